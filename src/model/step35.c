/* step35 (Step 3.5 Flash): numbers of heads differ by layer. A list tells which
 * layers have a window; the others rotate only half as many values, by angles
 * that rope_freqs divides. Each head of q and k is normalised, and the result
 * of each head is multiplied by a sigmoid of its own. Layers with experts have
 * a router as in glm4moe and a shared expert. In some layers the hidden values
 * are limited:
 *
 *   min(silu(gate), c) * clamp(up, -c, c)
 *
 * Source: the model card of Step 3.5 Flash. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_step35_read(struct model *m, pl_err *err)
{
    struct params_key k;

    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_dense(m, err));
    PL_TRY(params_shared(m, 1, err));
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_exp", &k), 0, 1e6,
                               &m->clamp_expert, err));
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_shexp", &k), 0,
                               1e6, &m->clamp_shared, err));
    PL_TRY(params_windows(m, 0, 0, err));
    PL_TRY(params_rope_window(m, 10000, err));
    m->rope.n_rot = m->rope.n_rot / 4 * 2;
    return PL_OK;
}

/* Returns the divisors of the angles of layers without a window: the first ones
 * of rope_freqs, which has one for each pair that layers with a window
 * rotate. */
static pl_tensor freqs(struct build *b)
{
    const struct model_dim all = {b->m->rope_window.n_rot / 2,
                                  "rope.dimension_count / 2"};
    pl_tensor w = model_weight(b, "rope_freqs", "weight", PL_ROLE_ROPE_FREQS,
                               true, 1, &all);

    return w < 0 ? w : pl_slice(b->g, w, 0, 0, b->m->rope.n_rot / 2);
}

void model_step35(struct build *b)
{
    const struct model_layers o = {.attention = {.qk_norm = QK_NORM_ALWAYS,
                                                 .gate_act = pl_sigmoid,
                                                 .freqs = freqs(b),
                                                 .freqs_full = true}};

    model_decoder(b, &o);
}
