/* Where ops without a home stand, so that the fewest bytes are copied between
 * groups: labels of vertices, knowing neither ops nor devices. */
#ifndef PLAN_MINCUT_H
#define PLAN_MINCUT_H

#include "pl.h"

/* A value goes once to each group that reads it, other than its own. */
struct mincut_value {
    int from;      /* vertex that makes it */
    int first, n;  /* its readers, in reader[] */
    int64_t bytes; /* of one copy */
    double copies; /* that a group of many members needs */
    bool in_ranks; /* all of them, however few members there are */
    bool stored;   /* a weight or cache: there before the run */
};

struct glue {
    int n, n_label;
    int *label;    /* [n]; where movable, -1 or a start; all set in the end */
    bool *movable; /* [n] */
    const int *width; /* [n_label] members that hold something */
    int n_value;
    struct mincut_value *value;
    int *reader; /* vertices, each once a value */
    int other;   /* label of vertices that nothing ties to any */
};

/* Exact for two labels; else swapped pair by pair from what most operand bytes
 * say, until no pair is better. */
pl_status mincut_solve(struct glue *g, pl_err *err);

/* Bytes that one value costs to reach `label`, and all under the labels. */
int64_t glue_cost_to(const struct glue *g, const struct mincut_value *v,
                     int label);
pl_status mincut_cost(const struct glue *g, int64_t *out, pl_err *err);

#endif
