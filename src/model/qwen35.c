/* qwen35, qwen35moe (Qwen3.5, Qwen3.6) and qwen3next: the last of every
 * `interval` layers, or those that a list does not mark as recurrent, have
 * attention, with a gate for each of its results,
 *
 *   x += out(attention(norm q, norm k, v) * sigmoid(gate))
 *
 * and the others have a gated delta net, a memory of fixed size:
 *
 *   q, k, v = silu(short convolution(qkv h))
 *   o = delta net(q, k, v; decay = a softplus(alpha h + dt),
 *                 beta = sigmoid(beta h))
 *   x += out(norm(o) * silu(gate h)),  the norm over each head
 *
 * A shared expert is weighted by its own sigmoid. qwen3next stores beta and
 * alpha in one matrix, and adjacent value heads share a key head. Source:
 * arXiv:2412.06464 (the delta net); model cards of Qwen3-Next and Qwen3.5. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>

enum { INTERVAL = 4, MAX_TAPS = 64, MAX_HEADS = 1 << 16 };

static pl_status read_delta(struct model *m, pl_err *err)
{
    struct model_delta *d = &m->delta;
    struct params_key k;
    int64_t inner;

    PL_TRY(params_need(m, "ssm.conv_kernel", MAX_TAPS, &d->n_tap, err));
    PL_TRY(params_need(m, "ssm.state_size", MAX_HEADS, &d->d_head, err));
    PL_TRY(params_need(m, "ssm.group_count", MAX_HEADS, &d->n_key, err));
    PL_TRY(params_need(m, "ssm.time_step_rank", MAX_HEADS, &d->n_value, err));
    PL_TRY(params_need(m, "ssm.inner_size", INT32_MAX, &inner, err));
    if (d->n_tap < 2)
        return err_set(err, PL_BAD_FILE, "%s: key %s is 1, not 2 to %d",
                       gguf_path(m->file), params_key(m, "ssm.conv_kernel", &k),
                       MAX_TAPS);
    if (inner != d->n_value * d->d_head)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %" PRId64
                       ", not ssm.time_step_rank * ssm.state_size, %" PRId64
                       " * %" PRId64,
                       gguf_path(m->file), params_key(m, "ssm.inner_size", &k),
                       inner, d->n_value, d->d_head);
    if (d->n_value % d->n_key)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %" PRId64
                       ", not a multiple of ssm.group_count, %" PRId64,
                       gguf_path(m->file),
                       params_key(m, "ssm.time_step_rank", &k), d->n_value,
                       d->n_key);
    return PL_OK;
}

pl_status model_qwen35_read(struct model *m, pl_err *err)
{
    const size_t n = (size_t)(m->n_layer + m->n_next);
    int64_t interval;
    bool *recurrent;

    PL_TRY(read_delta(m, err));
    PL_TRY(params_get(m, "full_attention_interval", INTERVAL, 1, INT32_MAX,
                      &interval, err));
    PL_TRY(params_flags(m, "attention.recurrent_layers", &recurrent, err));
    if (!recurrent) {
        recurrent = arena_alloc(&m->arena, n, sizeof *recurrent);
        if (!recurrent)
            return err_no_memory(err, "hyper-parameters");
        for (int64_t i = 0; i < m->n_layer; i++)
            recurrent[i] = (i + 1) % interval != 0;
    }
    for (int64_t i = m->n_layer; i < m->n_layer + m->n_next; i++)
        recurrent[i] = false; /* Multi-token-prediction blocks have attention,
                                 not a delta net. */
    m->recurrent = recurrent;
    if (m->n_expert == 0)
        return PL_OK;
    m->shared_gate = true;
    return params_need(m, "expert_shared_feed_forward_length", INT32_MAX,
                       &m->d_shared, err);
}

pl_status model_qwen3next_read(struct model *m, pl_err *err)
{
    PL_TRY(model_qwen35_read(m, err));
    m->delta.neighbours = true;
    return PL_OK;
}

void model_qwen35(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .gate = true, .freqs = -1},
        .ffn_norm = "post_attention_norm",
        .mtp = true};

    model_decoder(b, &o);
}
