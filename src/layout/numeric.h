/* The numeric plan: everything that decides bits, and nothing else.
 *
 * Made from a graph, a number of ranks and the layouts of the leaves. It is the
 * graph again, with a layout for each value and conversions as nodes. A weight
 * that is read under several layouts appears once for each. It does not depend
 * on measurements or devices. */
#ifndef LAYOUT_NUMERIC_H
#define LAYOUT_NUMERIC_H

#include "graph/graph.h"
#include "layout/layout.h"

/* kind, its name in plans */
#define NUM_KIND_MAP(X)                                                        \
    X(OP, "op")                                                                \
    X(ALL_REDUCE, "AllReduce")         /* PARTIAL to MIRRORED */               \
    X(REDUCE_SCATTER, "ReduceScatter") /* PARTIAL to SPLIT */                  \
    X(ALL_GATHER, "AllGather")         /* SPLIT to MIRRORED */                 \
    X(SLICE, "Slice")                  /* to indices ranks hold: free */       \
    X(ALL_TO_ALL, "AllToAll")          /* SPLIT to another SPLIT */

enum num_kind {
#define NUM_KIND_ENUM(name, text) NUM_##name,
    NUM_KIND_MAP(NUM_KIND_ENUM)
#undef NUM_KIND_ENUM
        NUM_KIND_COUNT
};

const char *num_kind_name(enum num_kind k);

/* The edition of doc/numerics.md. It increases when an order of operations
 * changes, and every hash depends on it. */
enum { NUMERIC_ORDER = 2 };

struct num_node {
    enum num_kind kind;
    int node; /* graph node of the op, or of the converted value */
    int n_in;
    int in[GRAPH_MAX_IN]; /* earlier num nodes; -1 absent */
    const pl_layout *layout;
    /* contractions over a split letter: its layout in the operand that decides
     * (owners and intervals of the summed dimension); else NULL */
    const pl_layout *sum;
};

struct numeric {
    struct arena arena; /* owns all that follows */
    const pl_graph *g;  /* borrowed */
    int n_rank;
    int n;
    struct num_node *node;
    /* [g->n_node] node that holds the graph value, after reduction, for readers
     * outside (outputs, kept values, caches); -1 if none. */
    int *value;
    uint64_t hash;
};

/* The sizes at which conversions are costed. */
extern const struct graph_sizes numeric_reference_sizes;

/* Creates the numeric plan. leaf[i] is the layout of graph node i if it is a
 * leaf with a role's default; NULL means MIRRORED. A node's own `want`
 * overrides it. */
pl_status numeric_create(struct numeric **out, const pl_graph *g, int n_rank,
                         const pl_layout *const *leaf, pl_err *err);
void numeric_free(struct numeric *p);

/* Returns the logical bytes of a conversion at these sizes (values * 4). */
int64_t numeric_bytes(const struct numeric *p, int i,
                      const struct graph_sizes *s);

#endif
