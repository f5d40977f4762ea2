/* ernie4_5 and ernie4_5-moe (ERNIE 4.5): llama. ernie4_5-moe has experts in the
 * last of every `step` layers after the first ones, a router with a softmax and
 * a bias that only affects the choice, and perhaps a shared expert. Source: the
 * technical report of ERNIE 4.5. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_ernie4_5_read(struct model *m, pl_err *err)
{
    int64_t step;
    bool *dense;

    if (m->n_expert == 0)
        return PL_OK;
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SOFTMAX, true, err));
    PL_TRY(params_get(m, "expert_shared_feed_forward_length", 0, 0, MAX_WIDTH,
                      &m->d_shared, err));
    PL_TRY(params_get(m, "interleave_moe_layer_step", 1, 1, MAX_LAYER, &step,
                      err));
    if (step == 1)
        return PL_OK;
    dense = arena_alloc(&m->arena, (size_t)m->n_layer, sizeof *dense);
    if (!dense)
        return err_no_memory(err, "hyper-parameters");
    for (int64_t i = 0; i < m->n_layer; i++)
        dense[i] = i < m->n_dense || (i + 1) % step != 0;
    m->dense = dense;
    return params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL, &m->d_ff,
                            err);
}

void model_ernie4_5(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1};

    model_decoder(b, &o);
}
