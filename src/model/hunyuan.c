/* hunyuan-dense, hunyuan-moe and hy_v3 (Hunyuan 3). RoPE rotates pairs (i, i +
 * n_rot/2). The older two normalise each head of q and k after RoPE, hy_v3
 * before it. In hunyuan-dense, a key stretches the base of RoPE's angles for
 * long contexts ("dynamic NTK"):
 *
 *   base * alpha^(d / (d - 2)),  d the width of a head
 *
 * hunyuan-moe has experts and a shared expert in every layer. hy_v3 has them
 * after its first layers, with a router as in glm4moe. Source: the model cards
 * and configurations of Hunyuan; arXiv:2411.02265. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

pl_status model_hunyuan_dense_read(struct model *m, pl_err *err)
{
    const double d = (double)m->d_key[0];
    double alpha, base;

    PL_TRY(params_factor(m, "rope.scaling.alpha", 0, true, &alpha, err));
    if (alpha <= 0 || d <= 2)
        return PL_OK;
    base = (double)m->rope.base * pow(alpha, d / (d - 2));
    return params_rope(m, base, &m->rope, err);
}

pl_status model_hunyuan_moe_read(struct model *m, pl_err *err)
{
    return params_shared(m, 1, err);
}

pl_status model_hy_v3_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    return params_shared(m, 1, err);
}

void model_hunyuan(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_AFTER_ROPE, .freqs = -1}};

    model_decoder(b, &o);
}
