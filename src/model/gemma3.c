/* gemma3: in five of six layers, attention has a window, and RoPE has another
 * base and no scaling. Each head of q and k is normalised before RoPE, and the
 * result of each part of a layer is normalised, too:
 *
 *   x = sqrt(d_model) embedding
 *   x += norm(attention(norm(x)));  x += norm(down(gelu(gate h) * up h)), h the
 *   norm of x
 *
 * The largest model, with 62 layers, derives the scale of scores from
 * d_model / n_head instead of the width of its heads. Source:
 * arXiv:2503.19786. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

enum { PATTERN = 6, LAYERS_OF_27B = 62 };

pl_status model_gemma3_read(struct model *m, pl_err *err)
{
    double base;

    PL_TRY(params_rope_base(m, "rope.freq_base_swa", 10000, &base, err));
    PL_TRY(params_softcap(m, "final_logit_softcapping", 0, &m->softcap, err));
    PL_TRY(params_windows(m, PATTERN, 0, err));
    m->embedding_scale = (float)sqrt((double)m->d_model);
    m->rope_window = (pl_rope){.size = sizeof m->rope_window,
                               .n_rot = m->rope.n_rot,
                               .neox = m->rope.neox,
                               .base = (float)base,
                               .freq_scale = 1,
                               .mscale = 1};
    if (m->n_layer == LAYERS_OF_27B)
        m->query_scale =
            (float)(1 / sqrt((double)m->d_model / (double)m->n_head[0]));
    return PL_OK;
}

/* Reads gemma-embedding (EmbeddingGemma), which is gemma3 as an encoder:
 * windows are to both sides, and there may be two matrices after the last norm.
 * Their sizes are those of the tensors. Source: arXiv:2509.20354. */
pl_status model_gemma_embedding_read(struct model *m, pl_err *err)
{
    static const char *const sizes[] = {"dense_2_feat_in", "dense_2_feat_out",
                                        "dense_3_feat_in", "dense_3_feat_out"};
    int64_t n;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        PL_TRY(params_get(m, sizes[i], 0, 0, MAX_WIDTH, &n, err));
    PL_TRY(model_gemma3_read(m, err));
    return params_encoder(m, err);
}

void model_gemma3(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1},
        .glu = pl_geglu,
        .post_norm = true};

    model_decoder(b, &o);
}
