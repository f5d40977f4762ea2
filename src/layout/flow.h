/* Maximum flow by Dinic's algorithm, and the minimum cut nearest the source. */
#ifndef LAYOUT_FLOW_H
#define LAYOUT_FLOW_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

static const int64_t FLOW_UNLIMITED = INT64_MAX / 4;

struct flow_arc {
    int to, next;
    int64_t cap; /* remaining capacity of the arc: its capacity minus the
                    flow */
};

struct flow {
    int n, n_arc;
    struct flow_arc *arc; /* [2 * n_arc] arcs, each followed by the arc in the
                             opposite direction */
    /* [n_vertex] for each vertex its first arc, its level and the next arc to
     * try; the arcs of the present path; the queue of the search */
    int *head, *level, *at, *stack, *queue;
};

/* Allocates a network for at most n_vertex vertices and n_arc arcs. The caller
 * checks the arena. */
void flow_init(struct flow *f, struct arena *a, size_t n_vertex, size_t n_arc);
/* Removes all arcs, so that the network has n vertices 0 .. n - 1 without
 * arcs. */
void flow_clear(struct flow *f, int n);
void flow_add(struct flow *f, int from, int to, int64_t cap);
void flow_maximum(struct flow *f, int source, int sink);
/* Returns true if the vertex is on the source's side of the minimum cut. Valid
 * after flow_maximum. */
static inline bool flow_reached(const struct flow *f, int vertex)
{
    return f->level[vertex] >= 0;
}

#endif
