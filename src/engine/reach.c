/* Access to the internals of an engine: its executor, its tensors by name, and
 * the intermediate values to keep. */
#include "engine/engine.h"

#include "base/err.h"

#include <fnmatch.h>
#include <string.h>

static bool is_value(const pl_graph *g, int i)
{
    return g->node[i].op != OP_input && g->node[i].op != OP_weight &&
           graph_memory(g, i) < 0;
}

pl_status engine_keep(pl_graph *g, const pl_options *opt, pl_err *err)
{
    for (int k = 0; k < opt->n_keep; k++) {
        const char *pattern = opt->keep[k];
        bool any = false;

        for (int i = 0; i < g->n_node; i++)
            if (is_value(g, i) && fnmatch(pattern, g->node[i].name, 0) == 0) {
                pl_keep(g, i);
                any = true;
            }
        if (!any)
            return err_set(
                err, PL_NOT_FOUND,
                "'%.80s': not an intermediate value; known are attn_norm-N, "
                "kqv_out-N, ffn_inp-N, ffn_norm-N, l_out-N (N is the layer), "
                "result_hidden, result_norm and logits",
                pattern);
    }
    return PL_OK;
}

const pl_graph *pl_plan_graph(const pl_plan *p)
{
    return p ? p->graph : NULL;
}

pl_exec *pl_engine_exec(pl_engine *e)
{
    return e ? e->exec : NULL;
}

pl_tensor pl_engine_tensor(const pl_engine *e, const char *name)
{
    return e ? pl_tensor_find(e->plan->graph, name) : -1;
}
