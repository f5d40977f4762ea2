/* starcoder2 (StarCoder 2): llama with norms that subtract the mean, biases
 * everywhere, RoPE over pairs (i, i + n_rot/2), and feed-forward parts without
 * gate, down(gelu(up h)) with the tanh form of GELU. Source:
 * arXiv:2402.19173. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_starcoder2_read(struct model *m, pl_err *err)
{
    m->norm_bias = true;
    return params_layer_norm(m, err);
}

void model_starcoder2(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1, .hidden = model_gelu};

    model_decoder(b, &o);
}
