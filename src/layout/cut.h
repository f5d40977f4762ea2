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
    bool *born;     /* [n] true if a contraction produces the value */
    bool *needed;   /* [n] true if a reader needs the sum */
    int n_edge;
    int *from, *to; /* [n_edge] data flow from one PARTIAL value to the next */
};

/* Sets cut[n] to true for the values to reduce, so that every path from a
 * contraction to a reader that needs the sum contains one. Minimises the total
 * cost. Among several minimum cuts, chooses the one nearest the
 * contractions. */
pl_status cut_minimum(const struct cut_graph *g, bool *cut, pl_err *err);

#endif
