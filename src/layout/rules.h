/* Applies the split rules of an op to one node. The op's row in graph/ops.def
 * gives each dimension of the operands and the result a letter. If a dimension
 * is split, all dimensions with the same letter must be split alike. */
#ifndef LAYOUT_RULES_H
#define LAYOUT_RULES_H

#include "graph/graph.h"
#include "layout/layout.h"

/* The letters that an op's row gives to one dimension, 0 if none. A dimension
 * of two factors, such as (gr), has two letters, a and b; others have only
 * a. */
struct dim_letters {
    int a, b;
    bool whole; /* true if the dimension may not be split, because it is marked
                   '!' in the row or has a symbolic size */
};

struct node_letters {
    struct dim_letters in[GRAPH_MAX_IN][GRAPH_MAX_DIM];
    struct dim_letters out[GRAPH_MAX_DIM];
};

void rules_letters(const pl_graph *g, const struct graph_node *n,
                   struct node_letters *out);

/* A dimension of `size` indices with the letters a and b, and the layout `l` by
 * which it is split. */
struct rule_split {
    int a, b;
    int64_t size;
    const pl_layout *l; /* the layout, which is SPLIT; its field `dim` is
                           ignored */
};

enum rule_fit {
    RULE_FREE,    /* no dimension of the tensor has the letters of the split
                     dimension, so the tensor stays MIRRORED */
    RULE_SPLIT,   /* the tensor must have the layout *out, which may be
                     MIRRORED */
    RULE_ILLEGAL, /* the split would divide a dimension that must stay whole */
};

/* Computes the layout that a tensor must have if split s divides some dimension
 * of the op. The tensor has n_dim dimensions with the given letters and
 * sizes. */
enum rule_fit rules_project(struct arena *a, const struct rule_split *s,
                            const struct dim_letters *letters, int n_dim,
                            const pl_dim *dim, int n_rank,
                            const pl_layout **out);

/* Returns the layout of the result of a moving op (reshape, permute, slice,
 * concat) for the layouts x[n->n_in] of its operands. Operands of concat may be
 * split only along the axis of concatenation. Returns NULL if no layout can
 * express the result. */
const pl_layout *move_layout(struct arena *a, const pl_graph *g,
                             const struct graph_node *n,
                             const pl_layout *const *x, int n_rank);

#endif
