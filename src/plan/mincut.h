/* Assigns groups to nodes that read neither weight nor cache, by a minimum cut
 * over the bytes copied between groups. Works on labels of vertices,
 * independent of ops and devices. */
#ifndef PLAN_MINCUT_H
#define PLAN_MINCUT_H

#include "pl.h"

/* A value is copied once to each group that reads it, except its own. */
struct mincut_value {
    int from;      /* vertex that produces it */
    int first, n;  /* its readers, in reader[] */
    int64_t bytes; /* of one copy */
    double copies; /* at most; a smaller group needs one a member */
    bool in_ranks; /* all copies, in a smaller group too */
    bool stored;   /* a weight or cache: exists before the step */
};

struct glue {
    int n, n_label;
    int *label;       /* [n]; if movable, -1 or a start; all set at the end */
    bool *movable;    /* [n] */
    const int *width; /* [n_label] members with ranks */
    int n_value;
    struct mincut_value *value;
    int *reader; /* vertices, each once for each value */
    int other;   /* label of vertices without any connection */
};

/* Exact for two labels. Otherwise starts from the labels with most operand
 * bytes and swaps pair by pair, until no pair improves. */
pl_status mincut_solve(struct glue *g, pl_err *err);

/* Returns the bytes of copying one value to `label`; the second, of all
 * values. */
int64_t glue_cost_to(const struct glue *g, const struct mincut_value *v,
                     int label);
pl_status mincut_cost(const struct glue *g, int64_t *out, pl_err *err);

#endif
