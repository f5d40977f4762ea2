/* Evaluates a graph in double precision, unsplit, one loop per op.
 *
 * It is the reference for everything that splits. Its mathematics is written
 * anew from pl.h and shares nothing with the kernels. It is slow and small. NaN
 * means "absent". It passes through every op, ids included, so that a test sees
 * what a result reads. Ids and positions are doubles too. */
#ifndef TEST_EVAL64_H
#define TEST_EVAL64_H

#include "graph/graph.h"

struct eval_value {
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    int64_t n; /* product of the dimensions */
    double *x; /* owned by the code that made it */
};

/* The sequences and positions of a step's rows. Slot seq * max_pos + pos of a
 * cache holds that position of that sequence. Slot seq of a state holds its
 * current value. */
struct eval_rows {
    int64_t n_tok, n_out, max_pos;
    const int32_t *pos, *seq; /* [n_tok] */
};

/* Computes one op on these operands (x == NULL: absent), which may have other
 * sizes than the node says. It reads only the node's attributes, and its shape
 * for reshape. The result is malloc'ed. *gap, if not NULL, is lowered to the
 * least difference between scores that decided a choice. A state is not
 * changed. */
void eval64_op(const struct graph_node *n, const struct eval_value *in,
               const struct eval_rows *rows, struct eval_value *out,
               double *gap);

struct eval64 {
    const pl_graph *g;        /* borrowed */
    struct eval_value *value; /* [n_node] */
    int64_t n_seq, max_pos;
    double gap;   /* the minimum over all steps; infinity if none */
    double noise; /* relative error added to every result, with casts left out,
                   * so that the difference shows the effect of rounding; 0 */
    uint64_t seed;
};

struct eval64 *eval64_create(const pl_graph *g, int64_t n_seq, int64_t max_pos);
void eval64_free(struct eval64 *e);
/* Sets a weight's value from the bytes of its format. */
void eval64_weight(struct eval64 *e, int node, const void *bytes);
/* Sizes an input for this step; the caller fills ->x. */
struct eval_value *eval64_input(struct eval64 *e, int node,
                                const struct eval_rows *rows);
/* Evaluates all nodes once. Memories keep what was written. */
void eval64_step(struct eval64 *e, const struct eval_rows *rows);

void eval_value_free(struct eval_value *v);

#endif
