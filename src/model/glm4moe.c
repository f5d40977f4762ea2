/* glm4moe (GLM-4.5 and its successors): llama, but RoPE rotates only the first
 * values of a head, in pairs (i, i + n_rot/2). Biases on q, k and v and norms
 * of each head of q and k are optional. The norm before the feed-forward part
 * is called post_attention_norm. The first n_dense layers have no experts; in
 * the others
 *
 *   p = sigmoid(router h),  S = the n_used best of p + exp_probs_b
 *   x += sum over e in S of w_e expert_e(h)  +  shared expert(h)
 *
 * where w is p over S, normalised and scaled by the keys. The bias affects the
 * choice, not the weights. Source: arXiv:2508.06471; routing:
 * arXiv:2412.19437. */
#include "model/blocks.h"

void model_glm4moe(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_IF_GIVEN, .freqs = -1},
        .ffn_norm = "post_attention_norm",
        .mtp = true};

    model_decoder(b, &o);
}
