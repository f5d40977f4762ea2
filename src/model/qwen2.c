/* qwen2: llama with rope over halves of a head, and biases on q, k and v.
 * Source: arXiv:2407.10671. */
#include "model/blocks.h"

void model_qwen2(struct build *b)
{
    const struct block_attention o = {.bias = true, .freqs = -1};

    block_decoder(b, &o);
}
