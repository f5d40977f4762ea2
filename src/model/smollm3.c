/* smollm3: llama, but the last of every four layers has no RoPE. Source: the
 * model card of SmolLM3; layers without RoPE, arXiv:2501.18795. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PERIOD = 4 };

pl_status model_smollm3_read(struct model *m, pl_err *err)
{
    return params_no_rope(m, PERIOD, 0, err);
}

void model_smollm3(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1};

    model_decoder(b, &o);
}
