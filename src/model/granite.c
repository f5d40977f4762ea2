/* granite, granitemoe and granitehybrid (Granite 3, Granite 4): llama with
 * factors for embeddings, scores, results of a layer's parts, and logits.
 * granitemoe has experts in every layer, as wide as feed_forward_length, and
 * may have a shared expert. In granitehybrid, layers without KV heads have a
 * Mamba-2 block (mamba2.c) instead of attention, experts are optional, and
 * there is no RoPE if a key says so. Source: the model cards of Granite; the
 * factors, arXiv:2203.03466. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_granite_read(struct model *m, pl_err *err)
{
    if (m->n_expert > 0)
        PL_TRY(params_get(m, "expert_shared_feed_forward_length", 0, 0,
                          MAX_WIDTH, &m->d_shared, err));
    return params_scales(m, err);
}

pl_status model_granitehybrid_read(struct model *m, pl_err *err)
{
    bool *recurrent = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next),
                                  sizeof *recurrent);
    struct params_key k;
    bool rope;

    if (!recurrent)
        return err_no_memory(err, "hyper-parameters");
    for (int64_t i = 0; i < m->n_layer; i++)
        recurrent[i] = m->n_head_kv[i] == 0;
    m->recurrent = recurrent;
    PL_TRY(model_mamba2_params(m, err));
    PL_TRY(gguf_get_bool(m->file, params_key(m, "rope.scaling.finetuned", &k),
                         true, &rope, err));
    if (!rope)
        PL_TRY(params_no_rope(m, 1, 0, err));
    return model_granite_read(m, err);
}

void model_granite(struct build *b)
{
    const struct model_layers o = {.attention.freqs = model_rope_freqs(b),
                                   .recurrent = model_mamba2};

    model_decoder(b, &o);
}
