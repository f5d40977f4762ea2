/* qwen2: llama with rope over halves of a head, and biases on q, k and v.
 * Source: arXiv:2407.10671. */
#include "model/blocks.h"

void model_qwen2(struct build *b)
{
    const struct model_attention o = {.bias = true, .freqs = -1};

    model_decoder(b, &o, "ffn_norm", pl_swiglu);
}
