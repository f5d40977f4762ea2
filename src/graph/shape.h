/* Shape inference, and checks of a node's operands and parameters. shape.c has
 * a function for each op. */
#ifndef GRAPH_SHAPE_H
#define GRAPH_SHAPE_H

#include "graph/graph.h"

/* Checks the shape of a leaf (an input, weight or memory): sizes are positive,
 * a row consists of whole quantization blocks, and at most one dimension is
 * symbolic. Returns false and sets `err` if not. */
bool shape_leaf(const struct graph_node *n, pl_err *err);

/* Checks the operands and parameters of node n, and sets the shape and format
 * of n. For ops whose shape cannot be inferred (reshape, slice), the caller
 * sets the shape, which is checked. Returns false and sets `err` on failure. */
bool shape_infer(const pl_graph *g, struct graph_node *n, pl_err *err);

/* Like shape_infer, for a custom op, using the letters of the op's row
 * (ops.def). */
bool custom_shape(const pl_graph *g, struct graph_node *n, pl_err *err);

bool dim_equal(pl_dim a, pl_dim b);
/* Names of symbolic dimensions, such as "n_tok" and "n_slot1". */
extern const char *const dim_symbols[GRAPH_N_SEQ + 1];
/* Writes the text of a dimension to `buf`: "n_tok", "64" or "4*n_tok". Returns
 * `buf`. */
const char *dim_print(pl_dim d, char buf[32]);

/* graph_make appends a node with any op to the graph. The parser of the text
 * form, and tools, use graph_make. given[n_given] is the shape of a reshape or
 * slice. graph_append appends a node that the caller has filled in. graph_fail
 * records that a builder failed with status s. graph_make and graph_append
 * return the new tensor, or -1 on failure; graph_fail returns -1. */
pl_tensor graph_make(pl_graph *g, enum op op, int n_in, const pl_tensor *in,
                     const struct graph_attr *attr, int n_given,
                     const pl_dim *given);
pl_tensor graph_append(pl_graph *g, struct graph_node *n);
pl_tensor graph_fail(pl_graph *g, pl_status s);

#endif
