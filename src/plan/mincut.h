/* Assigns groups to nodes that read neither weight nor cache, by a minimum cut
 * over the bytes copied between groups. Here a node is a vertex and a group is
 * a label, so the algorithm does not depend on ops and devices. */
#ifndef PLAN_MINCUT_H
#define PLAN_MINCUT_H

#include "pl.h"

/* A value and its readers. It must be copied to each group that reads it,
 * except the group that produces it. */
struct mincut_value {
    int from;      /* vertex that produces the value */
    int first, n;  /* readers: glue.reader[first .. first + n - 1] */
    int64_t bytes; /* bytes of one copy of the value */
    /* number of copies that a group needs; a group with fewer members needs
     * only one per member */
    double copies;
    /* true: even a group with fewer members needs all `copies` */
    bool in_ranks;
    bool stored; /* a weight or cache, which exists before the step */
};

struct glue {
    int n, n_label;
    int *label;       /* [n] label of each vertex; mincut_solve overwrites the
                         labels of movable vertices only */
    bool *movable;    /* [n] */
    const int *width; /* [n_label] number of the group's members that carry
                         ranks */
    int n_value;
    struct mincut_value *value;
    int *reader; /* vertices that read values; a vertex appears at most once per
                    value */
    int other;   /* label for vertices that share a value with no labelled
                    vertex */
};

/* Sets the labels of the movable vertices so that few bytes are copied. The
 * result is optimal for two labels. For more labels it starts each vertex with
 * the label that holds most bytes of its operands. Then it improves one pair of
 * labels at a time until no pair improves. Returns PL_NO_MEMORY if out of
 * memory. */
pl_status mincut_solve(struct glue *g, pl_err *err);

/* glue_cost_to returns the number of bytes copied when a vertex of `label`
 * reads value `v`, produced elsewhere. mincut_cost sets *out to the bytes
 * copied for all values under the present labels. */
int64_t glue_cost_to(const struct glue *g, const struct mincut_value *v,
                     int label);
pl_status mincut_cost(const struct glue *g, int64_t *out, pl_err *err);

#endif
