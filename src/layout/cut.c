/* Finds a minimum vertex cut by a maximum flow. Each vertex is split into two.
 *
 * Vertex v becomes an arc in(v) -> out(v) of capacity bytes(v). The arcs of the
 * data flow and those from the source and to the sink have unlimited capacity.
 * After the flow, the source still reaches some vertices through arcs with
 * remaining capacity. The cut consists of the vertices v of which the source
 * reaches in(v) but not out(v). It is the minimum cut nearest the source. The
 * graphs are almost chains and have a few thousand vertices. */
#include "layout/cut.h"

#include "base/err.h"
#include "layout/flow.h"

pl_status cut_minimum(const struct cut_graph *g, bool *cut, pl_err *err)
{
    struct arena a = {0};
    struct flow f = {0};
    int s = 2 * g->n, t = s + 1;
    pl_status st;

    flow_init(&f, &a, 2 * (size_t)g->n + 2,
              3 * (size_t)g->n + (size_t)g->n_edge);
    st = arena_check(&a, "the search for a minimum cut", err);
    if (st != PL_OK)
        goto done;
    flow_clear(&f, t + 1);
    for (int v = 0; v < g->n; v++) {
        flow_add(&f, 2 * v, 2 * v + 1, g->bytes[v]);
        if (g->born[v])
            flow_add(&f, s, 2 * v, FLOW_UNLIMITED);
        if (g->needed[v])
            flow_add(&f, 2 * v + 1, t, FLOW_UNLIMITED);
    }
    for (int e = 0; e < g->n_edge; e++)
        flow_add(&f, 2 * g->from[e] + 1, 2 * g->to[e], FLOW_UNLIMITED);
    flow_maximum(&f, s, t);
    for (int v = 0; v < g->n; v++)
        cut[v] = flow_reached(&f, 2 * v) && !flow_reached(&f, 2 * v + 1);
done:
    arena_fini(&a);
    return st;
}
