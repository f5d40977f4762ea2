/* exaone4 and exaone-moe (K-EXAONE): each head of q and k is normalised before
 * RoPE, which rotates pairs (i, i + n_rot/2). In exaone4 the parts of a layer
 * read x itself, and their results are normalised. Its largest model, with 64
 * layers, and exaone-moe have a window and RoPE in three of four layers, and
 * neither in the others. exaone-moe has a router as in glm4moe. Source:
 * arXiv:2507.11407; the model card of K-EXAONE. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 4, LAYERS_OF_32B = 64 };

static pl_status read_windows(struct model *m, pl_err *err)
{
    PL_TRY(params_windows(m, PATTERN, 0, err));
    m->rope_window = m->rope;
    return params_no_rope(m, 0, 0, err);
}

pl_status model_exaone4_read(struct model *m, pl_err *err)
{
    return m->n_layer == LAYERS_OF_32B ? read_windows(m, err) : PL_OK;
}

pl_status model_exaone_moe_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_shared(m, 1, err));
    return read_windows(m, err);
}

void model_exaone4(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = model_rope_freqs(b)},
        .bare = true,
        .post_norm = true};

    model_decoder(b, &o);
}
