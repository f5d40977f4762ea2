/* laguna (Laguna XS): the first of every four layers has RoPE with the file's
 * scaling, and the others have a window and RoPE without scaling over a number
 * of values of their own. Numbers of heads differ by layer. Each head of q and
 * k is normalised, and the result of attention is multiplied by softplus(gate
 * h), with one gate for each head or for each value. Experts are as in glm4moe.
 * Source: the model card of Laguna XS. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 4 };

pl_status model_laguna_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_shared(m, 1, err));
    PL_TRY(params_windows(m, -PATTERN, 0, err));
    return params_rope_window(m, (double)m->rope.base, err);
}

void model_laguna(struct build *b)
{
    const struct model_layers o = {.attention = {.qk_norm = QK_NORM_ALWAYS,
                                                 .gate_act = pl_softplus,
                                                 .freqs = -1}};

    model_decoder(b, &o);
}
