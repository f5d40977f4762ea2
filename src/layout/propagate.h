/* Chooses the layouts of a graph's values. numeric.c makes the numeric plan of
 * them. */
#ifndef LAYOUT_PROPAGATE_H
#define LAYOUT_PROPAGATE_H

#include "layout/numeric.h"

/* The layouts chosen for a node. */
struct choice {
    /* Layout in which the op computes its result; PARTIAL before a
     * reduction. */
    const pl_layout *result;
    /* Layouts in which the op reads its operands; PARTIAL for an operand whose
     * addends the op passes on. */
    const pl_layout *want[GRAPH_MAX_IN];
    const pl_layout *sum; /* layout of the dimension that the op sums over, if
                             that is split; else NULL */
};

struct propagated {
    const pl_graph *g;
    struct arena *a; /* for layouts */
    int n_rank;
    struct choice *choice;  /* [n_node] layouts chosen for each node */
    const pl_layout **have; /* [n_node] layout in which the readers of each
                               value get it */
    bool *cut; /* [n_node] true if the value's addends are summed over the ranks
                  at this node (see cut.h); false at first */
};

/* Fills in the arrays of *s, whose other fields and memory are the caller's.
 * leaf[i] is as in numeric_create. If out of memory, s->a says so (arena_check)
 * and the result means nothing. */
pl_status propagate(struct propagated *s, const pl_layout *const *leaf,
                    pl_err *err);

#endif
