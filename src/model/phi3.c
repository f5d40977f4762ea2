/* phi3 (Phi-3, Phi-3.5, Phi-4, Phi-4-mini): llama, but RoPE rotates pairs (i, i
 * + n_rot/2), perhaps not all values of a head, and one matrix has the rows of
 * q, k and v, another those of gate and up. Models for long contexts
 * ("longrope") have two lists of divisors of RoPE's angles: rope_factors_short
 * for contexts up to the original one, and rope_factors_long for longer ones.
 * As in llama.cpp, the requested context decides, not the length of a sequence,
 * because keys in the cache cannot be rotated again.
 *
 * phimoe (Phi-3.5-MoE): such RoPE, but experts, biases of norms, of attention
 * and of logits, and separate matrices. Source: arXiv:2404.14219,
 * arXiv:2402.13753. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

static pl_status read_context(struct model *m, pl_err *err)
{
    return params_get(m, "rope.scaling.original_context_length", m->n_ctx_train,
                      1, INT32_MAX, &m->n_ctx_short, err);
}

pl_status model_phi3_read(struct model *m, pl_err *err)
{
    m->fused_up = true;
    return read_context(m, err);
}

pl_status model_phimoe_read(struct model *m, pl_err *err)
{
    m->norm_bias = true;
    return read_context(m, err);
}

static pl_tensor factors(struct build *b)
{
    const struct model_dim half = {b->m->rope.n_rot / 2,
                                   "rope.dimension_count / 2"};
    const bool both = model_has(b, "rope_factors_long", "weight") ||
                      model_has(b, "rope_factors_short", "weight");

    return model_weight(b,
                        b->n_ctx > b->m->n_ctx_short ? "rope_factors_long"
                                                     : "rope_factors_short",
                        "weight", PL_ROLE_ROPE_FREQS, !both, 1, &half);
}

void model_phi3(struct build *b)
{
    const struct model_layers o = {.attention.freqs = factors(b)};

    model_decoder(b, &o);
}
