#include "plan/place.h"
#include "graph/graph.h"
pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list, const pl_graph *g,
                       const pl_options *opt, int *home, const pl_layout **want,
                       pl_err *err)
{
    (void)a; (void)list; (void)opt; (void)want; (void)err;
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *x = &g->node[i];
        home[i] = -1;
        if (x->op == OP_weight || x->op == OP_cache)
            home[i] = x->layer >= 0 ? p->of_layer[x->layer] : x->role == PL_ROLE_TOKEN_EMBD ? p->of_input : p->of_layer[p->n_layer];
        if (opt->host_experts && p->host >= 0 && x->op == OP_weight && x->role >= PL_ROLE_FFN_GATE_EXPS && x->role <= PL_ROLE_FFN_DOWN_EXPS) home[i] = p->host;
        if (opt->host_cache && p->host >= 0 && x->op == OP_cache) home[i] = p->host;
    }
    return PL_OK;
}
pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err)
{
    (void)err;
    int last = p->of_input;
    for (int i = 0; i < num->n; i++) {
        const struct num_node *n = &num->node[i];
        at[i] = -1;
        if (n->kind == NUM_OP && num->g->node[n->node].op <= OP_cache) { at[i] = home[n->node]; continue; }
        if (n->kind == NUM_ALL_REDUCE || n->kind == NUM_REDUCE_SCATTER) { at[i] = at[n->in[0]]; continue; }
        for (int k = 0; k < n->n_in; k++) {
            int y = n->in[k];
            if (y < 0) continue;
            while (num->node[y].kind == NUM_OP && num->g->node[num->node[y].node].op == OP_cache_write && num->g->node[n->node].op != OP_reshape) y = num->node[y].in[0];
            int gn = num->node[y].node;
            if (num->node[y].kind == NUM_OP && home[gn] >= 0) {
                at[i] = away && away[gn] && num->g->node[n->node].op != OP_cache_write ? p->of_layer[num->g->node[gn].layer] : home[gn];
                if (num->g->node[gn].op == OP_cache || num->g->node[gn].n_dim > 1) break;
            }
        }
        if (at[i] < 0) at[i] = last;
        else if (at[i] != p->host) last = at[i];
    }
    return PL_OK;
}
