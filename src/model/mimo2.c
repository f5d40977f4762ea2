/* mimo2 (MiMo-V2): numbers of heads differ by layer, and values are narrower
 * than keys. A list tells which layers have a window; these use another base of
 * RoPE's angles. Some layers have sinks as in gpt-oss. The result of attention
 * is multiplied by a factor. Layers with experts have a router as in glm4moe.
 * Source: the model card of MiMo-V2-Flash. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_mimo2_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, true, err));
    PL_TRY(params_dense(m, err));
    PL_TRY(params_scales(m, err));
    PL_TRY(params_windows(m, 0, 0, err));
    return params_rope_window(m, 10000, err);
}

void model_mimo2(struct build *b)
{
    const struct model_layers o = {
        .attention = {.some_sinks = true, .freqs = -1}};

    model_decoder(b, &o);
}
