/* olmo2 (OLMo 2, OLMo 3), olmoe and minimax-m2: all heads of q together, and of
 * k, are normalised before RoPE, which rotates pairs (i, i + n_rot/2). In olmo2
 * the parts of a layer read x itself, and their results are normalised:
 *
 *   x += norm(attention(x));  x += norm(mlp(x))
 *
 * In OLMo 3, three of four layers have a window and RoPE without scaling. olmoe
 * and minimax-m2 have experts in every layer: olmoe with a softmax whose
 * weights are not normalised, minimax-m2 with a router as in glm4moe. Source:
 * arXiv:2501.00656, arXiv:2409.02060, the model card of MiniMax-M2. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 4 };

pl_status model_olmo2_read(struct model *m, pl_err *err)
{
    PL_TRY(params_windows(m, PATTERN, 0, err));
    return params_rope_window(m, (double)m->rope.base, err);
}

pl_status model_olmoe_read(struct model *m, pl_err *err)
{
    return params_router(m, PL_GATING_SOFTMAX, false, err);
}

pl_status model_minimax_m2_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    return params_router(m, PL_GATING_SIGMOID, true, err);
}

void model_olmo2(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALL_HEADS, .freqs = -1},
        .bare = true,
        .post_norm = true};

    model_decoder(b, &o);
}

void model_olmoe(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALL_HEADS, .freqs = -1}};

    model_decoder(b, &o);
}
