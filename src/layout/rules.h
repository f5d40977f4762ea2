/* The letters of an op's row, applied to one node: which dimensions a split
 * affects, and what it requires of the other operands. */
#ifndef LAYOUT_RULES_H
#define LAYOUT_RULES_H

#include "graph/graph.h"
#include "layout/layout.h"

/* Letters of one dimension; 0 = none. (gr) has b != 0. */
struct dim_letters {
    int a, b;
    bool whole; /* '!' or symbolic: may not be split */
};

struct node_letters {
    struct dim_letters in[GRAPH_MAX_IN][GRAPH_MAX_DIM];
    struct dim_letters out[GRAPH_MAX_DIM];
};

void rules_letters(const pl_graph *g, const struct graph_node *n,
                   struct node_letters *out);

/* A split of a dimension with letters (a, b) and `size` by layout `l`. */
struct rule_split {
    int a, b;
    int64_t size;
    const pl_layout *l; /* SPLIT; its dim does not matter */
};

enum rule_fit {
    RULE_FREE,    /* the split's letters do not occur: stays MIRRORED */
    RULE_SPLIT,   /* *out is the tensor's required layout (maybe MIRRORED) */
    RULE_ILLEGAL, /* a dimension that must stay whole would be cut */
    RULE_NO_MEMORY,
};

/* Computes what the split requires of a tensor with these dimensions and
 * letters. */
enum rule_fit rules_project(struct arena *a, const struct rule_split *s,
                            const struct dim_letters *letters, int n_dim,
                            const pl_dim *dim, int n_rank,
                            const pl_layout **out);

/* Computes the layout of the result of a moving op (reshape, permute, slice)
 * whose operand has layout `x`; *out = NULL if intervals cannot express it.
 * concat: along its own axis, given all operands' layouts. Returns false if out
 * of memory. */
bool move_layout(struct arena *a, const pl_graph *g, const struct graph_node *n,
                 const pl_layout *const *x, int n_rank, const pl_layout **out);

#endif
