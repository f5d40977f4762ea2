/* Evaluates a graph in double precision without splitting it, one loop per op.
 *
 * It is the reference for everything that splits a graph. Its formulas are
 * written anew from pl_graph.h, and it shares nothing with the kernels. It is
 * slow and small. NaN means "absent". NaN passes through every op, ids
 * included, so that a test sees which values a result depends on. For this
 * reason ids and positions are doubles, too. */
#ifndef TEST_EVAL64_H
#define TEST_EVAL64_H

#include "graph/graph.h"

struct eval_value {
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    int64_t n; /* number of values, the product of dim[] */
    /* [n] values, row by row; owned by the code that allocated them */
    double *x;
};

/* The positions and sequences of a step's tokens. Slot seq * max_pos + pos of a
 * cache holds position pos of sequence seq. Slot seq of a state holds the
 * current state of sequence seq. */
struct eval_rows {
    int64_t n_tok, n_out, max_pos;
    const int32_t *pos, *seq; /* [n_tok] position and sequence of each token */
};

/* Computes the op of node `n` on the operands in[], whose sizes may differ from
 * the node's. An operand with x == NULL is absent. Reads only the node's
 * attributes, and for reshape its shape. out->x is malloc'ed. Where scores
 * decide a choice, lowers *gap to their least difference; `gap` may be NULL.
 * Changes no state. */
void eval64_op(const struct graph_node *n, const struct eval_value *in,
               const struct eval_rows *rows, struct eval_value *out,
               double *gap);

struct eval64 {
    const pl_graph *g;        /* borrowed */
    struct eval_value *value; /* [n_node] value of each node, owned */
    int64_t n_seq, max_pos;
    /* least difference of scores that decided a choice, over all steps;
     * infinity if there was none */
    double gap;
    /* Relative error that is added to every result; 0 for exact results. If it
     * is not 0, casts do not round, because this error takes the place of
     * rounding. */
    double noise;
    uint64_t seed;
};

struct eval64 *eval64_create(const pl_graph *g, int64_t n_seq, int64_t max_pos);
void eval64_free(struct eval64 *e);
/* Sets a weight's value from the bytes of its format. */
void eval64_weight(struct eval64 *e, int node, const void *bytes);
/* Allocates the value of an input for this step. The caller fills x of the
 * result. */
struct eval_value *eval64_input(struct eval64 *e, int node,
                                const struct eval_rows *rows);
/* Evaluates all nodes once. Caches and states keep what earlier steps wrote. */
void eval64_step(struct eval64 *e, const struct eval_rows *rows);

void eval_value_free(struct eval_value *v);

#endif
