/* Maximum flow by augmenting paths (Dinic), on vertices split in two.
 *
 * Vertex v is an arc in(v) -> out(v) of capacity bytes(v); the data flow and
 * the links to source and sink are unlimited. After the flow, the vertices
 * whose arc leads out of what the source still reaches are the minimum cut
 * nearest the source. Region graphs are near-chains of few thousand vertices;
 * each phase is linear. Source: Dinitz 1970; residual cut: Ford and Fulkerson
 * 1956. */
#include "layout/cut.h"

#include "base/err.h"

#include <string.h>

struct arc {
    int to, next;
    int64_t cap;
};

struct flow {
    struct arc *arc;
    int n_arc;
    int *head, *level, *at, *stack, *queue;
    int n;
};

static const int64_t UNLIMITED = INT64_MAX / 4;

static void add_arc(struct flow *f, int from, int to, int64_t cap)
{
    f->arc[f->n_arc] = (struct arc){to, f->head[from], cap};
    f->head[from] = f->n_arc++;
    f->arc[f->n_arc] = (struct arc){from, f->head[to], 0};
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
    return t >= 0 && f->level[t] >= 0;
}

/* One augmenting path along the levels; false when there is none. The path is
 * a stack of arcs, so that depth costs no call frames. */
static bool augment(struct flow *f, int s, int t)
{
    int depth = 0, v = s;
    int64_t least = UNLIMITED;

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

pl_status cut_minimum(const struct cut_graph *g, bool *cut, pl_err *err)
{
    struct arena a = {0};
    struct flow f = {.n = 2 * g->n + 2};
    int s = 2 * g->n, t = s + 1;
    size_t n = (size_t)f.n;

    f.arc = arena_alloc(&a, 2 * (3 * (size_t)g->n + (size_t)g->n_edge),
                        sizeof *f.arc);
    f.head = arena_alloc(&a, n, sizeof *f.head);
    f.level = arena_alloc(&a, n, sizeof *f.level);
    f.at = arena_alloc(&a, n, sizeof *f.at);
    f.stack = arena_alloc(&a, n, sizeof *f.stack);
    f.queue = arena_alloc(&a, n, sizeof *f.queue);
    if (!f.arc || !f.head || !f.level || !f.at || !f.stack || !f.queue) {
        arena_fini(&a);
        return err_no_memory(err, "the search for a minimum cut");
    }
    memset(f.head, -1, n * sizeof *f.head);
    for (int v = 0; v < g->n; v++) {
        add_arc(&f, 2 * v, 2 * v + 1, g->bytes[v]);
        if (g->born[v])
            add_arc(&f, s, 2 * v, UNLIMITED);
        if (g->needed[v])
            add_arc(&f, 2 * v + 1, t, UNLIMITED);
    }
    for (int e = 0; e < g->n_edge; e++)
        add_arc(&f, 2 * g->from[e] + 1, 2 * g->to[e], UNLIMITED);
    while (levels(&f, s, t)) {
        memcpy(f.at, f.head, n * sizeof *f.at);
        while (augment(&f, s, t))
            ;
    }
    for (int v = 0; v < g->n; v++)
        cut[v] = f.level[2 * v] >= 0 && f.level[2 * v + 1] < 0;
    arena_fini(&a);
    return PL_OK;
}
