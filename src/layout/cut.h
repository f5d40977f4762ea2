/* Decides which PARTIAL values are reduced, that is, summed over the ranks, by
 * a minimum vertex cut of the data-flow graph. */
#ifndef LAYOUT_CUT_H
#define LAYOUT_CUT_H

#include "base/arena.h"
#include "pl.h"

/* The subgraph of the PARTIAL values. Vertices 0 .. n-1 are these values, in
 * graph order. */
struct cut_graph {
    int n;
    int64_t *bytes; /* [n] cost in bytes of reducing the value */
    bool *born;     /* [n] true if a contraction computes the value, so that its
                       addends are new */
    bool *needed;   /* [n] true if some reader needs the sum of the addends */
    int n_edge;
    int *from, *to; /* [n_edge] indices of the value that is read and of the
                       value that is computed from it */
};

/* Sets cut[v] to true for the values to reduce, so that every path from a
 * contraction to a reader that needs the sum contains such a value. Minimises
 * the total cost in bytes. Among several minimum cuts, chooses the one nearest
 * the contractions. */
pl_status cut_minimum(const struct cut_graph *g, bool *cut, pl_err *err);

#endif
