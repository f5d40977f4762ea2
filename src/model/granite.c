/* granite and granitemoe (Granite 3, dense Granite 4): llama with factors for
 * embeddings, scores, results of a layer's parts, and logits. granitemoe has
 * experts in every layer, as wide as feed_forward_length, and may have a shared
 * expert. Source: the model cards of Granite; the factors, arXiv:2203.03466. */
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

void model_granite(struct build *b)
{
    const struct model_layers o = {.attention.freqs = model_rope_freqs(b)};

    model_decoder(b, &o);
}
