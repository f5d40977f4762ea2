/* Random graphs with their data: any ops in any order, among them whole blocks
 * of models with their roles, and layouts requested for random tensors. */
#ifndef TEST_RANDOM_GRAPH_H
#define TEST_RANDOM_GRAPH_H

#include "graph/graph.h"
#include "layout/numeric.h"

enum { RANDOM_MAX_TOK = 7, RANDOM_N_SEQ = 2, RANDOM_MAX_POS = 32 };

struct random_graph {
    pl_graph *g;
    /* linear ops on small integers only, so that no result is rounded */
    bool exact;
    bool quantized; /* true if any weight has a block format */
    void **bytes;   /* [n_node] data of the weights in their formats, owned */
    /* [n_node] for I32 inputs: ids are less than this; positions if 0 */
    int *below;
    int n_node;
};

/* A combination that a plan may contain: the op, its split, and the conversion
 * before one of its operands. */
struct random_aim {
    enum op op;
    /* letter of the op's row that is split; or RANDOM_WHOLE, RANDOM_PASSES or
     * RANDOM_MOVED; 'r': a split inside groups g */
    int letter;
    /* the conversion before one of the operands; NUM_OP for none */
    enum num_kind kind;
    /* reason why the combination cannot occur; NULL if it can */
    const char *never;
};

enum {
    RANDOM_WHOLE = '-',  /* nothing is split */
    RANDOM_PASSES = '+', /* an operand is PARTIAL, and so is the result */
    /* a reshape or similar op moves the intervals of its operand's split */
    RANDOM_MOVED = '=',
};

/* Returns all combinations that the rows of ops.def allow, always in the same
 * order, and their number in *n. */
const struct random_aim *random_aims(int *n);

/* Draws a graph for n_rank ranks and its data. If `aim` is not NULL, the graph
 * contains blocks that are likely to show this combination. Always succeeds. */
void random_graph_make(struct random_graph *r, int n_rank,
                       const struct random_aim *aim, uint64_t *seed);
/* Parses a graph from its text and gives it random weights. */
pl_status random_graph_parse(struct random_graph *r, const char *text,
                             uint64_t *seed, pl_err *err);
void random_graph_free(struct random_graph *r);

#endif
