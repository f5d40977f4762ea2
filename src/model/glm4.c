/* glm4 (GLM-4-0414, GLM-Z1): llama, but RoPE rotates only half of a head, q, k
 * and v may have biases, the matrix ffn_up contains gate and up, and the result
 * of each part of a layer is normalised, too. Source: the model cards of
 * GLM-4-0414. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_glm4_read(struct model *m, pl_err *err)
{
    (void)err;
    m->fused_up = true;
    return PL_OK;
}

void model_glm4(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1, .post_norm = true};

    model_decoder(b, &o);
}
