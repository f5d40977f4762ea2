/* Random graphs with their data: any ops in any order, whole blocks of models
 * with their roles among them, layouts asked for at random tensors. */
#ifndef TEST_RANDOM_GRAPH_H
#define TEST_RANDOM_GRAPH_H

#include "graph/graph.h"

enum { RANDOM_MAX_TOK = 7, RANDOM_N_SEQ = 2, RANDOM_MAX_POS = 32 };

struct random_graph {
    pl_graph *g;
    bool exact;     /* linear, on small integers: no rounding anywhere */
    bool quantized; /* some weight is stored in blocks */
    void **bytes;   /* [n_node] weights in their format; owned */
    int *below;     /* [n_node] I32 inputs: ids below this; 0 = positions */
    int n_node;
};

/* n_rank ranks will hold it. Always succeeds. */
void random_graph_make(struct random_graph *r, int n_rank, uint64_t *seed);
/* The graph of this text, with random weights. */
pl_status random_graph_parse(struct random_graph *r, const char *text,
                             uint64_t *seed, pl_err *err);
void random_graph_free(struct random_graph *r);

#endif
