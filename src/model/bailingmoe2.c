/* bailingmoe2 (Ling 2, Ring 2) and dots1 (dots.llm1): each head of q and k is
 * normalised before RoPE, which rotates pairs (i, i + n_rot/2). After the first
 * layers come experts with a router as in glm4moe, which may first choose
 * groups of experts. In bailingmoe2 a key has the width of one shared expert.
 * The graph serves hy_v3 and exaone-moe, too. Source: arXiv:2510.22115 (Ling
 * 2), arXiv:2506.05767 (dots.llm1). */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_bailingmoe2_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_shared(m, 1, err));
    m->d_shared *= m->n_shared;
    return PL_OK;
}

void model_bailingmoe2(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1}};

    model_decoder(b, &o);
}
