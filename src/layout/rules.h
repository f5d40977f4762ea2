/* Applies the split rules of an op to one node. The op's row in graph/ops.def
 * gives each dimension of the operands and the result a letter. If a dimension
 * is split, all dimensions with the same letter must be split alike. */
#ifndef LAYOUT_RULES_H
#define LAYOUT_RULES_H

#include "graph/graph.h"
#include "layout/layout.h"

/* The letters of one dimension, 0 if none. A dimension of two factors, such as
 * (gr), has the letters a and b; others have only a. */
struct dim_letters {
    int a, b;
    bool whole; /* may not be split: marked '!' in the row, or symbolic */
};

struct node_letters {
    struct dim_letters in[GRAPH_MAX_IN][GRAPH_MAX_DIM];
    struct dim_letters out[GRAPH_MAX_DIM];
};

void rules_letters(const pl_graph *g, const struct graph_node *n,
                   struct node_letters *out);

/* A split, by layout `l`, of a dimension that has the letters a and b and the
 * given size. */
struct rule_split {
    int a, b;
    int64_t size;
    const pl_layout *l; /* SPLIT; l->dim is ignored */
};

enum rule_fit {
    RULE_FREE,    /* no dimension has the split's letters: the tensor stays
                     MIRRORED */
    RULE_SPLIT,   /* *out is the layout that the tensor must have, which may be
                     MIRRORED */
    RULE_ILLEGAL, /* a dimension that must stay whole would be split */
    RULE_NO_MEMORY,
};

/* Computes the layout that split s requires of a tensor of n_dim dimensions
 * with the given letters and sizes. */
enum rule_fit rules_project(struct arena *a, const struct rule_split *s,
                            const struct dim_letters *letters, int n_dim,
                            const pl_dim *dim, int n_rank,
                            const pl_layout **out);

/* Computes the layout of the result of a moving op (reshape, permute, slice,
 * concat) from the layouts x[n->n_in] of its operands. Operands of concat may
 * be split only along the axis of concatenation. Sets *out to NULL if no layout
 * can express the result. Returns false if out of memory. */
bool move_layout(struct arena *a, const pl_graph *g, const struct graph_node *n,
                 const pl_layout *const *x, int n_rank, const pl_layout **out);

#endif
