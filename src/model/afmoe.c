/* afmoe (Trinity): three of four layers have a window, and the others have no
 * RoPE. Each head of q and k is normalised before RoPE, the result of attention
 * is multiplied by the sigmoid of a matrix of its own, attn_gate, and the
 * results of both parts of a layer are normalised, too. Embeddings are
 * multiplied by sqrt(d_model). Experts are as in glm4moe. Source: the model
 * card of Trinity. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

enum { PERIOD = 4 };

pl_status model_afmoe_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    m->embedding_scale = (float)sqrt((double)m->d_model);
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_get(m, "expert_shared_count", 0, 0, MAX_EXPERT, &m->n_shared,
                      err));
    PL_TRY(params_windows(m, PERIOD, 0, err));
    m->rope_window = m->rope;
    return params_no_rope(m, PERIOD, 0, err);
}

void model_afmoe(struct build *b)
{
    const struct model_layers o = {.attention = {.qk_norm = QK_NORM_ALWAYS,
                                                 .gate_act = pl_sigmoid,
                                                 .freqs = -1},
                                   .post_norm = true};

    model_decoder(b, &o);
}
