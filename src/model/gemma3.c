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
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

enum { PATTERN = 6, LAYERS_OF_27B = 62 };

pl_status model_gemma3_read(struct model *m, pl_err *err)
{
    double base;

    PL_TRY(params_rope_base(m, "rope.freq_base_swa", 10000, &base, err));
    PL_TRY(params_softcap(m, err));
    PL_TRY(params_windows(m, PATTERN, err));
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

void model_gemma3(struct build *b)
{
    const struct model_attention o = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1};
    const struct model_dim e = model_width(b);
    pl_tensor x = pl_scale(b->g, model_embed(b), (float)sqrt((double)e.n)), h;

    for (int64_t i = 0; i < b->m->n_layer; i++) {
        model_layer(b, i);
        h = model_norm(b, x, "attn_norm", e);
        model_name(b, h, "attn_norm");
        h = model_attention(b, h, &o);
        x = pl_add(b->g, x, model_norm(b, h, "post_attention_norm", e));
        model_name(b, x, "ffn_inp");
        h = model_norm(b, x, "ffn_norm", e);
        model_name(b, h, "ffn_norm");
        h = model_mlp(b, h, pl_geglu);
        x = pl_add(b->g, x, model_norm(b, h, "post_ffw_norm", e));
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_head(b, x);
}
