/* nemotron (Minitron, Nemotron 4): llama with norms that subtract the mean and
 * have a bias, RoPE over pairs (i, i + n_rot/2) of a part of each head, and
 * feed-forward parts without gate, down(max(0, up h)^2). The weights of norms
 * are stored with 1 added. Source: arXiv:2402.16819. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_nemotron_read(struct model *m, pl_err *err)
{
    m->norm_bias = true;
    return params_layer_norm(m, err);
}

void model_nemotron(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1,
                                   .hidden = model_relu_squared};

    model_decoder(b, &o);
}
