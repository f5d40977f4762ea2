/* Dinic's algorithm: each phase computes the distance (level) of each vertex
 * from the source, then augments paths along ascending levels. Graphs of models
 * are almost chains, for which a phase takes linear time. See Dinitz 1970, and
 * Ford and Fulkerson 1956 for the cut. */
#include "layout/flow.h"

#include <string.h>

void flow_init(struct flow *f, struct arena *a, size_t n_vertex, size_t n_arc)
{
    f->arc = arena_alloc(a, n_arc, 2 * sizeof *f->arc);
    f->head = arena_alloc(a, n_vertex, sizeof *f->head);
    f->level = arena_alloc(a, n_vertex, sizeof *f->level);
    f->at = arena_alloc(a, n_vertex, sizeof *f->at);
    f->stack = arena_alloc(a, n_vertex, sizeof *f->stack);
    f->queue = arena_alloc(a, n_vertex, sizeof *f->queue);
}

void flow_clear(struct flow *f, int n)
{
    f->n = n;
    f->n_arc = 0;
    memset(f->head, -1, (size_t)n * sizeof *f->head);
}

void flow_add(struct flow *f, int from, int to, int64_t cap)
{
    f->arc[f->n_arc] = (struct flow_arc){to, f->head[from], cap};
    f->head[from] = f->n_arc++;
    f->arc[f->n_arc] = (struct flow_arc){from, f->head[to], 0};
    f->head[to] = f->n_arc++;
}

static bool levels(struct flow *f, int s, int t)
{
    int n = 0;

    memset(f->level, -1, (size_t)f->n * sizeof *f->level);
    f->level[s] = 0;
    f->queue[n++] = s;
    for (int i = 0; i < n; i++)
        for (int a = f->head[f->queue[i]]; a >= 0; a = f->arc[a].next)
            if (f->arc[a].cap > 0 && f->level[f->arc[a].to] < 0) {
                f->level[f->arc[a].to] = f->level[f->queue[i]] + 1;
                f->queue[n++] = f->arc[a].to;
            }
    return f->level[t] >= 0;
}

/* Augments the flow along one path of ascending levels. Returns false if there
 * is no such path. The path is kept in an explicit stack of arcs, because
 * recursion could be too deep. */
static bool augment(struct flow *f, int s, int t)
{
    int depth = 0, v = s;
    int64_t least = FLOW_UNLIMITED;

    while (v != t) {
        int a = f->at[v];

        while (a >= 0 && !(f->arc[a].cap > 0 &&
                           f->level[f->arc[a].to] == f->level[v] + 1))
            a = f->arc[a].next;
        f->at[v] = a;
        if (a >= 0) {
            f->stack[depth++] = a;
            v = f->arc[a].to;
        } else {
            if (depth == 0)
                return false;
            a = f->stack[--depth];
            v = f->arc[a ^ 1].to;
            f->at[v] = f->arc[a].next;
        }
    }
    for (int i = 0; i < depth; i++)
        if (f->arc[f->stack[i]].cap < least)
            least = f->arc[f->stack[i]].cap;
    for (int i = 0; i < depth; i++) {
        f->arc[f->stack[i]].cap -= least;
        f->arc[f->stack[i] ^ 1].cap += least;
    }
    return true;
}

void flow_maximum(struct flow *f, int source, int sink)
{
    while (levels(f, source, sink)) {
        memcpy(f->at, f->head, (size_t)f->n * sizeof *f->at);
        while (augment(f, source, sink))
            ;
    }
}
