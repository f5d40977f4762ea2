/* Fuzzes the reader of models: a valid file gives a graph, the same one each
 * time, and an invalid one an error. Numbers from the file that decide the
 * graph must be finite. */
#include "graph/graph.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

int fuzz_model(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static void walk(const struct model *m)
{
    const struct model_graph_options opt = {.cache_k = PL_F16,
                                            .cache_v = PL_F16};
    pl_graph *g;
    pl_err err;

    require(isfinite(m->eps) && m->eps > 0);
    require(isfinite(m->routed) && m->routed > 0);
    require(isfinite(m->rope.base) && m->rope.base > 1);
    require(isfinite(m->rope.freq_scale) && m->rope.freq_scale > 0);
    require(isfinite(m->rope.mscale) && m->rope.mscale > 0);
    require(isfinite(m->rope.yarn_low) && isfinite(m->rope.yarn_high));
    if (pl_graph_create(&g, &err) != PL_OK)
        return;
    require(model_graph(m, g, &opt, &err) == PL_OK);
    require(pl_tensor_find(g, "logits") >= 0);
    pl_graph_free(g);
}

int fuzz_model(const uint8_t *data, size_t n)
{
    struct gguf *f;
    struct model *m;
    pl_err err = {PL_OK, ""};

    if (gguf_open_memory(&f, data, n, "fuzz.gguf", &err) != PL_OK)
        return 0;
    if (model_open(&m, f, &err) == PL_OK)
        walk(m);
    else
        require(m == NULL && strlen(err.message) > 0);
    model_close(m);
    gguf_close(f);
    return 0;
}
