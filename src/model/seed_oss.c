/* seed_oss (Seed-OSS): qwen2, but the norm before the feed-forward part is
 * called post_attention_norm. Source: the model card of Seed-OSS. */
#include "model/blocks.h"

void model_seed_oss(struct build *b)
{
    const struct model_layers o = {.attention = {.bias = true, .freqs = -1},
                                   .ffn_norm = "post_attention_norm"};

    model_decoder(b, &o);
}
