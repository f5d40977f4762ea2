/* Decides where PARTIAL values are summed, by a minimum vertex cut on the data
 * flow. */
#ifndef LAYOUT_CUT_H
#define LAYOUT_CUT_H

#include "base/arena.h"
#include "pl.h"

/* A subgraph of PARTIAL values: vertices 0..n-1 are PARTIAL values in graph
 * order. */
struct cut_graph {
    int n;
    int64_t *bytes; /* [n] cost of reducing the value */
    bool *born;     /* [n] a contraction produces it */
    bool *needed;   /* [n] some reader needs the sum */
    int n_edge;
    int *from, *to; /* [n_edge] data flow between PARTIAL values */
};

/* Marks the values to reduce in cut[n]: of all minimum cuts the one nearest the
 * contractions. */
pl_status cut_minimum(const struct cut_graph *g, bool *cut, pl_err *err);

#endif
