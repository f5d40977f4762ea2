/* muse-glimmer: three of four layers have a window and RoPE, the others
 * neither. Embeddings, each head of q and k, and the results of both parts of a
 * layer are normalised; the result of attention is multiplied by the sigmoid of
 * the matrix attn_gate. Logits have a factor and a soft limit. Source: the
 * model card of Muse Glimmer. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 4 };

pl_status model_muse_glimmer_read(struct model *m, pl_err *err)
{
    double scale;

    PL_TRY(params_softcap(m, "final_logit_softcapping", 30, &m->softcap, err));
    PL_TRY(params_factor(m, "logit_scale", 0, true, &scale, err));
    if (scale > 0)
        m->logit_scale = (float)scale;
    PL_TRY(params_windows(m, PATTERN, 0, err));
    PL_TRY(params_rope_window(m, (double)m->rope.base, err));
    return params_no_rope(m, 0, 0, err);
}

void model_muse_glimmer(struct build *b)
{
    const struct model_layers o = {.attention = {.qk_norm = QK_NORM_ALWAYS,
                                                 .gate_act = pl_sigmoid,
                                                 .freqs = -1},
                                   .post_norm = true,
                                   .post_eps = 1e-8f,
                                   .embd_norm = true};

    model_decoder(b, &o);
}
