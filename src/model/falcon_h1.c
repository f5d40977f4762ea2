/* falcon-h1: each layer has attention and a Mamba-2 block (mamba2.c), which
 * read the same norm,
 *
 *   h = norm x;  x += attention(h) + mamba2(h);  x += mlp(norm x)
 *
 * with RoPE over pairs (i, i + n_rot/2). The multipliers of the original are in
 * the weights. Source: arXiv:2507.22448. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_falcon_h1_read(struct model *m, pl_err *err)
{
    return model_mamba2_params(m, err);
}

void model_falcon_h1(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1,
                                   .beside = model_mamba2};

    b->bare_scan = true;
    model_decoder(b, &o);
}
