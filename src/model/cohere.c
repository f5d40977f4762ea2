/* command-r (Command R, Command R+), cohere2 (Command R7B, Command A, Aya) and
 * cohere2moe (North Mini Code): both parts of a layer read the same norm of x,
 *
 *   h = norm(x);  x += attention(h) + mlp(h)
 *
 * norms subtract the mean, and logits have a factor. Command R+ also normalises
 * each head of q and k, with weights of its own. In cohere2 the last of every
 * four layers has neither a window nor RoPE. In cohere2moe it is the first of
 * every four, which has RoPE only if it is one of the leading layers without
 * experts; norms are RMS norms if the file has their epsilon; and a layer's
 * experts and its shared expert are averaged. Source: model cards of Command R,
 * Command R7B and North Mini Code; parallel parts, arXiv:2204.02311. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 4 };

static pl_status read_logit_scale(struct model *m, pl_err *err)
{
    double scale;

    PL_TRY(params_factor(m, "logit_scale", 0, true, &scale, err));
    if (scale > 0)
        m->logit_scale = (float)scale;
    return PL_OK;
}

pl_status model_command_r_read(struct model *m, pl_err *err)
{
    PL_TRY(params_layer_norm(m, err));
    return read_logit_scale(m, err);
}

/* Reads the windows. Their width is required: without it, no layer would have
 * RoPE. A negative `pattern` is explained at params_windows(). */
static pl_status read_windows(struct model *m, int64_t pattern, pl_err *err)
{
    int64_t width;

    PL_TRY(params_need(m, "attention.sliding_window", MAX_WIDTH, &width, err));
    PL_TRY(params_windows(m, pattern, 0, err));
    m->rope_window = m->rope;
    return PL_OK;
}

pl_status model_cohere2_read(struct model *m, pl_err *err)
{
    PL_TRY(model_command_r_read(m, err));
    PL_TRY(read_windows(m, PATTERN, err));
    return params_no_rope(m, 0, 0, err);
}

pl_status model_cohere2moe_read(struct model *m, pl_err *err)
{
    struct params_key k;

    if (!gguf_find(m->file,
                   params_key(m, "attention.layer_norm_rms_epsilon", &k)))
        PL_TRY(params_layer_norm(m, err));
    PL_TRY(read_logit_scale(m, err));
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_shared(m, 0, err));
    if (m->n_shared == 0)
        m->d_shared = 0;
    m->shared_mean = m->n_shared > 0;
    PL_TRY(read_windows(m, -PATTERN, err));
    return params_no_rope(m, 0, m->n_dense, err);
}

void model_cohere(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_OWN_IF_GIVEN, .freqs = -1},
        .parallel = true};

    model_decoder(b, &o);
}
