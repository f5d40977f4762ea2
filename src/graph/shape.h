/* Shape inference and the checks of operands: one function for each op. */
#ifndef GRAPH_SHAPE_H
#define GRAPH_SHAPE_H

#include "graph/graph.h"

/* Checks a leaf's sizes: positive, whole blocks, at most one symbolic
 * dimension. */
bool shape_leaf(const struct graph_node *n, pl_err *err);

/* Checks n's operands and parameters and fills in its shape and format. A shape
 * that cannot be inferred (reshape, slice) is given in n and checked. */
bool shape_infer(const pl_graph *g, struct graph_node *n, pl_err *err);

/* Does the same for a custom op, by the letters of its row. */
bool custom_shape(const pl_graph *g, struct graph_node *n, pl_err *err);

bool dim_equal(pl_dim a, pl_dim b);
/* "n_tok", "n_slot1": a symbol's name. */
extern const char *const dim_symbols[GRAPH_N_SEQ + 1];
/* Prints "n_tok", "64" or "4*n_tok" to buf and returns buf. */
const char *dim_print(pl_dim d, char buf[32]);

/* Appends any op, for the text form and tools. `given` presets the shape of
 * reshape and slice. */
pl_tensor graph_make(pl_graph *g, enum op op, int n_in, const pl_tensor *in,
                     const struct graph_attr *attr, int n_given,
                     const pl_dim *given);
pl_tensor graph_append(pl_graph *g, struct graph_node *n);
pl_tensor graph_fail(pl_graph *g, pl_status s);

#endif
