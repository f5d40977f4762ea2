/* qwen3 and qwen3moe: llama, but RoPE rotates pairs (i, i + n_rot/2), and each
 * head of q and k is normalised before RoPE. qwen3moe has experts in every
 * layer, softmax over all of them, and weights normalised over the chosen ones.
 * Source: arXiv:2505.09388. */
#include "model/blocks.h"

void model_qwen3(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1}, .mtp = true};

    model_decoder(b, &o);
}
