/* qwen2: llama, but RoPE rotates pairs (i, i + n_rot/2), and q, k and v have
 * biases. Source: arXiv:2407.10671. */
#include "model/blocks.h"

void model_qwen2(struct build *b)
{
    const struct model_attention o = {.bias = true, .freqs = -1};

    model_decoder(b, &o, "ffn_norm", pl_swiglu);
}
