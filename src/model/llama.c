/* llama: Llama 1 to 3, Mistral and all models of the same structure, and
 * Mixtral's experts. RoPE rotates adjacent pairs; the rows of q and k are
 * permuted accordingly in the file. rope_freqs.weight, if given, stretches
 * frequencies (Llama 3.1). Source: arXiv:2302.13971, arXiv:2401.04088,
 * arXiv:2407.21783. */
#include "model/blocks.h"

void model_llama(struct build *b)
{
    const struct model_layers o = {.attention.freqs = model_rope_freqs(b),
                                   .mtp = true};

    model_decoder(b, &o);
}
