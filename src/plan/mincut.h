/* Assigns groups to nodes that read neither weight nor cache, by a minimum cut
 * over the bytes copied between groups. Here a node is called a vertex and its
 * group a label, because the algorithm does not depend on ops and devices. */
#ifndef PLAN_MINCUT_H
#define PLAN_MINCUT_H

#include "pl.h"

/* A value and the vertices that read it. It is copied to each group with a
 * reader, except the group that produces it. */
struct mincut_value {
    int from;      /* vertex that produces the value */
    int first, n;  /* the vertices that read the value: glue.reader[first ..
                      first + n - 1] */
    int64_t bytes; /* size in bytes of one copy of the value */
    /* number of copies that a reading group needs, one per rank that holds the
     * value; a group with fewer devices needs only one per device */
    double copies;
    /* true if even a group with fewer devices needs all `copies` */
    bool in_ranks;
    bool stored; /* the value is a weight or cache, which exists before the
                    step */
};

struct glue {
    int n, n_label;
    int *label;    /* [n] label of each vertex; mincut_solve overwrites the
                      labels of movable vertices only */
    bool *movable; /* [n] true for vertices whose label mincut_solve chooses */
    const int *width; /* [n_label] number of devices of the group that carry
                         ranks */
    int n_value;
    struct mincut_value *value;
    int *reader; /* the readers of all values, value by value; a vertex appears
                    once per value */
    int other;   /* label for movable vertices that no value connects with a
                    labelled vertex */
};

/* Sets the labels of the movable vertices so that few bytes are copied. The
 * result is optimal for two labels. For more labels it starts each vertex with
 * the label that holds most bytes of its operands. Then it improves one pair of
 * labels at a time until no pair improves. Returns PL_NO_MEMORY if out of
 * memory. */
pl_status mincut_solve(struct glue *g, pl_err *err);

/* glue_cost_to returns the bytes copied if a vertex with label `label` reads
 * value `v` and the value is produced under another label. mincut_cost sets
 * *out to the bytes copied for all values under the present labels. */
int64_t glue_cost_to(const struct glue *g, const struct mincut_value *v,
                     int label);
pl_status mincut_cost(const struct glue *g, int64_t *out, pl_err *err);

#endif
