/* Shape inference and the checks of operands: one function an op. */
#ifndef GRAPH_SHAPE_H
#define GRAPH_SHAPE_H

#include "graph/graph.h"

/* Sizes of a leaf: positive, whole blocks, at most one symbolic dimension. */
bool shape_leaf(const struct graph_node *n, pl_err *err);

/* Checks n's operands and parameters and fills its shape and format. Where the
 * shape cannot be inferred (reshape, slice) it is given in n and checked. */
bool shape_infer(const pl_graph *g, struct graph_node *n, pl_err *err);

/* The same for an op of the caller's own, by the letters of its row. */
bool custom_shape(const pl_graph *g, struct graph_node *n, pl_err *err);

bool dim_equal(pl_dim a, pl_dim b);
/* "n_tok", "n_slot1": a symbol's name. */
extern const char *const dim_symbols[GRAPH_N_SEQ + 1];
/* "n_tok", "64", "4*n_tok" into buf; returns buf. */
const char *dim_print(pl_dim d, char buf[32]);

/* Appends any op, as the text form and tools do; `given` presets the shape of
 * reshape and slice. */
pl_tensor graph_make(pl_graph *g, enum op op, int n_in, const pl_tensor *in,
                     const struct graph_attr *attr, int n_given,
                     const pl_dim *given);
pl_tensor graph_append(pl_graph *g, struct graph_node *n);
pl_tensor graph_fail(pl_graph *g, pl_status s);

#endif
