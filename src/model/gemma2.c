/* gemma2: as gemma3, but q and k are not normalised, every other layer has a
 * window, and scores of attention and logits have a soft limit. The largest
 * model, with 46 layers, derives the scale of scores from d_model / n_head
 * instead of the width of its heads. Source: arXiv:2408.00118. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

enum { PATTERN = 2, WINDOW = 4096, LAYERS_OF_27B = 46 };

pl_status model_gemma2_read(struct model *m, pl_err *err)
{
    const int64_t n =
        m->n_layer == LAYERS_OF_27B ? m->d_model / m->n_head[0] : m->d_key[0];

    PL_TRY(params_softcap(m, "final_logit_softcapping", 30, &m->softcap, err));
    PL_TRY(
        params_softcap(m, "attn_logit_softcapping", 50, &m->attn_softcap, err));
    PL_TRY(params_windows(m, PATTERN, WINDOW, err));
    m->rope_window = m->rope;
    m->embedding_scale = (float)sqrt((double)m->d_model);
    m->query_scale = (float)(1 / sqrt((double)n));
    return PL_OK;
}

void model_gemma2(struct build *b)
{
    const struct model_layers o = {
        .attention.freqs = -1, .glu = pl_geglu, .post_norm = true};

    model_decoder(b, &o);
}
