/* Random graphs with their data: any ops in any order, whole blocks of models
 * with their roles among them, layouts requested at random tensors. */
#ifndef TEST_RANDOM_GRAPH_H
#define TEST_RANDOM_GRAPH_H

#include "graph/graph.h"
#include "layout/numeric.h"

enum { RANDOM_MAX_TOK = 7, RANDOM_N_SEQ = 2, RANDOM_MAX_POS = 32 };

struct random_graph {
    pl_graph *g;
    bool exact;     /* linear, on small integers: no rounding anywhere */
    bool quantized; /* some weight is stored in blocks */
    void **bytes;   /* [n_node] weights in their format; owned */
    int *below;     /* [n_node] I32 inputs: ids below this; 0 = positions */
    int n_node;
};

/* A combination that a plan may contain: the op, its split, and the conversion
 * before one of its operands. */
struct random_aim {
    enum op op;
    int letter; /* of its row; RANDOM_WHOLE, _PASSES, _MOVED; 'r': inside g */
    enum num_kind kind; /* the conversion before an operand; OP: none */
    const char *never;  /* why it cannot occur; NULL: it can */
};

enum {
    RANDOM_WHOLE = '-',  /* nothing is split */
    RANDOM_PASSES = '+', /* a PARTIAL operand, and so a PARTIAL result */
    RANDOM_MOVED = '=',  /* runs of a moving op's operand */
};

/* Returns all combinations of the rows of ops.def, always in the same order. */
const struct random_aim *random_aims(int *n);

/* Makes a graph for n_rank ranks. If `aim` is not NULL, it contains blocks that
 * are likely to show it. Always succeeds. */
void random_graph_make(struct random_graph *r, int n_rank,
                       const struct random_aim *aim, uint64_t *seed);
/* Parses the graph of this text, with random weights. */
pl_status random_graph_parse(struct random_graph *r, const char *text,
                             uint64_t *seed, pl_err *err);
void random_graph_free(struct random_graph *r);

#endif
