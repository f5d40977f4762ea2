/* qwen2: llama, but RoPE rotates pairs (i, i + n_rot/2), and q, k and v have
 * biases. Source: arXiv:2407.10671. */
#include "model/blocks.h"

void model_qwen2(struct build *b)
{
    const struct model_layers o = {.attention = {.bias = true, .freqs = -1},
                                   .mtp = true};

    model_decoder(b, &o);
}
