/* stablelm (StableLM 2, StableLM 3B, StableCode): llama with norms that
 * subtract the mean and have a bias, and RoPE over pairs (i, i + n_rot/2) of a
 * part of each head. Larger models have no second norm: both parts of a layer
 * read the first one's result. They also normalise each head of q and k, with
 * weights of its own. The key use_parallel_residual is read and ignored,
 * because converters wrote it for models with a second norm, too. Source: the
 * model cards of StableLM 2 and StableLM 3B. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_stablelm_read(struct model *m, pl_err *err)
{
    struct params_key k;
    bool parallel;

    m->norm_bias = true;
    PL_TRY(gguf_get_bool(m->file, params_key(m, "use_parallel_residual", &k),
                         false, &parallel, err));
    return params_layer_norm(m, err);
}

void model_stablelm(struct build *b)
{
    struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_OWN_IF_GIVEN, .freqs = -1}};

    model_layer(b, 0);
    o.parallel = !model_has(b, "ffn_norm", "weight");
    model_layer(b, -1);
    model_decoder(b, &o);
}
