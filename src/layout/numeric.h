/* The numeric plan contains all decisions that determine the bits of results,
 * and nothing else.
 *
 * It is computed from a graph, the number of ranks, and the layouts of the
 * leaves, which are weights, caches and inputs. It contains the nodes of the
 * graph with a layout for each value, and in addition nodes that convert values
 * between layouts. A weight that is read under several layouts appears once for
 * each. The numeric plan does not depend on measurements or devices. */
#ifndef LAYOUT_NUMERIC_H
#define LAYOUT_NUMERIC_H

#include "graph/graph.h"
#include "layout/layout.h"

/* Kinds of nodes. Columns: enumerator, name in printed plans. */
#define NUM_KIND_MAP(X)                                                        \
    X(OP, "op")                                                                \
    X(ALL_REDUCE, "AllReduce")         /* from PARTIAL to MIRRORED */          \
    X(REDUCE_SCATTER, "ReduceScatter") /* from PARTIAL to SPLIT */             \
    X(ALL_GATHER, "AllGather")         /* from SPLIT to MIRRORED */            \
    X(SLICE, "Slice")         /* takes indices that a rank has, no copy */     \
    X(ALL_TO_ALL, "AllToAll") /* from SPLIT to another SPLIT */

enum num_kind {
#define NUM_KIND_ENUM(name, text) NUM_##name,
    NUM_KIND_MAP(NUM_KIND_ENUM)
#undef NUM_KIND_ENUM
        NUM_KIND_COUNT
};

const char *num_kind_name(enum num_kind k);

/* The edition of doc/numerics.md. It is increased when the order of any
 * operations changes. All hashes of numeric plans depend on it. */
enum { NUMERIC_ORDER = 2 };

struct num_node {
    enum num_kind kind;
    int node; /* graph node whose op is computed, or whose value is converted */
    int n_in;
    int in[GRAPH_MAX_IN]; /* operands: indices of earlier nodes of the numeric
                             plan, -1 if absent */
    const pl_layout *layout;
    /* For a matrix product whose summed dimension is split: the layout of that
     * dimension, which gives the order of summation. NULL for other nodes. */
    const pl_layout *sum;
    bool aside; /* made for a node that is marked by graph_aside: not hashed */
};

struct numeric {
    struct arena arena; /* owns the layouts and `value` */
    const pl_graph *g;  /* the graph that is planned; it must outlive the
                           numeric plan */
    int n_rank;
    int n;
    struct num_node *node;
    /* [g->n_node] for each graph node, the node of the numeric plan that has
     * its final value, after reduction. The host reads outputs, kept values,
     * weights and caches there. -1 if there is none. */
    int *value;
    uint64_t hash;
};

/* Number of tokens and of cache slots for which the bytes of a conversion are
 * computed when layouts are chosen. */
extern const struct graph_sizes numeric_reference_sizes;

/* Creates the numeric plan. leaf[i] is the default layout of graph node i if it
 * is a weight, cache or input; NULL stands for MIRRORED. A layout that the user
 * requested for the node is used instead. */
pl_status numeric_create(struct numeric **out, const pl_graph *g, int n_rank,
                         const pl_layout *const *leaf, pl_err *err);
void numeric_free(struct numeric *p);

/* Returns the size in bytes of the value that node i converts, for the sizes s:
 * 4 bytes per element, counting each element once, not once per rank. */
int64_t numeric_bytes(const struct numeric *p, int i,
                      const struct graph_sizes *s);

#endif
