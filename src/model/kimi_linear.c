/* kimi-linear (Kimi Linear) and bailingmoe3 (Ling 3): layers without KV heads
 * have Kimi delta attention (kda.c), the others latent attention as in
 * deepseek2. The first layers have one feed-forward part, the others experts
 * and a shared expert as in glm4moe.
 *
 * In kimi-linear latent attention has no RoPE. In bailingmoe3 it has, a head's
 * result is multiplied by sigmoid(attn_gate h), and the hidden values of
 * experts may be limited as in step35. Source: arXiv:2510.26692; the model
 * cards of Kimi Linear and Ling 3. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_kimi_linear_read(struct model *m, pl_err *err)
{
    PL_TRY(model_deepseek2_read(m, err));
    PL_TRY(params_no_rope(m, 1, 0, err));
    m->normalise = true; /* whatever expert_weights_norm says */
    return model_kda_params(m, err);
}

pl_status model_bailingmoe3_read(struct model *m, pl_err *err)
{
    struct params_key k;
    double bound;
    bool safe;

    PL_TRY(model_deepseek2_read(m, err));
    PL_TRY(gguf_get_bool(m->file, params_key(m, "kda.safe_gate", &k), true,
                         &safe, err));
    if (!safe)
        return err_set(
            err, PL_UNSUPPORTED,
            "%s: key %s is false; only decays with a lower bound are "
            "supported",
            gguf_path(m->file), k.s);
    PL_TRY(gguf_get_f64(m->file, params_key(m, "kda.gate_lower_bound", &k), 0,
                        &bound, err));
    if (!(bound >= -1e3 && bound <= -1e-3))
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %g, or missing; it must be in -1000 .. "
                       "-0.001",
                       gguf_path(m->file), k.s, bound);
    m->decay_bound = (float)bound;
    PL_TRY(params_shared(m, 1, err));
    m->d_shared *= m->n_shared;
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_exp", &k), 0, 1e6,
                               &m->clamp_expert, err));
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_shexp", &k), 0,
                               1e6, &m->clamp_shared, err));
    return model_kda_params(m, err);
}

void model_kimi_linear(struct build *b)
{
    const struct model_layers o = {
        .attention = {.gate_act = b->m->decay_bound < 0 ? pl_sigmoid : NULL,
                      .freqs = -1},
        .attend = model_latent_attention,
        .recurrent = model_kda};

    model_decoder(b, &o);
}
