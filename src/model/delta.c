/* A layer's gated delta net; the equations are in qwen35.c. */
#include "graph/graph.h"
#include "model/blocks.h"

#include <inttypes.h>
#include <stdio.h>

static const char *layer_name(const struct build *b, const char *name,
                              char buf[32])
{
    snprintf(buf, 32, "%s.%" PRId64, name, b->layer);
    return buf;
}

/* Returns the weight `base`.`suffix`, a vector with one value for each value
 * head, [n_value]. */
static pl_tensor head_values(struct build *b, const char *base,
                             const char *suffix)
{
    const struct model_dim n = {b->m->delta.n_value, "ssm.time_step_rank"};

    return model_weight(b, base, suffix, PL_ROLE_DELTA_GATE, false, 1, &n);
}

struct gates {
    pl_tensor alpha, beta; /* [n_tok, n_value] one value per value head */
};

static struct gates gates(struct build *b, pl_tensor h)
{
    const struct model_delta *d = &b->m->delta;
    const struct model_dim n = {d->n_value, "ssm.time_step_rank"};
    const struct model_dim both = {2 * d->n_value, "2 * ssm.time_step_rank"};
    const pl_dim four[4] = {{1, PL_N_TOK},
                            {d->n_key, PL_CONST},
                            {2, PL_CONST},
                            {d->n_value / d->n_key, PL_CONST}};
    struct gates y;
    pl_tensor x;

    if (!model_has(b, "ssm_ba", "weight")) {
        y.beta = model_matmul(b, h, "ssm_beta", PL_ROLE_DELTA_GATE, n,
                              model_width(b), false);
        y.alpha = model_matmul(b, h, "ssm_alpha", PL_ROLE_DELTA_GATE, n,
                               model_width(b), false);
        return y;
    }
    /* For each key head, the matrix ssm_ba has the rows of beta for the value
     * heads of that key head, then their rows of alpha. */
    x = model_matmul(b, h, "ssm_ba", PL_ROLE_DELTA_GATES, both, model_width(b),
                     false);
    x = pl_reshape(b->g, x, 4, four);
    y.beta = pl_slice(b->g, x, 2, 0, 1);
    y.beta = model_flat(b, y.beta, d->n_value);
    y.alpha = pl_slice(b->g, x, 2, 1, 1);
    y.alpha = model_flat(b, y.alpha, d->n_value);
    return y;
}

/* Returns the queries, keys and values of all heads after the short
 * convolution, [n_tok, channels]. */
static pl_tensor convolved(struct build *b, pl_tensor h)
{
    const struct model_delta *d = &b->m->delta;
    const struct model_dim channels = {
        (2 * d->n_key + d->n_value) * d->d_head,
        "(2 ssm.group_count + ssm.time_step_rank) * ssm.state_size"};
    const struct model_dim taps[2] = {channels, {d->n_tap, "ssm.conv_kernel"}};
    char name[32];
    pl_tensor x = model_matmul(b, h, "attn_qkv", PL_ROLE_ATTN_QKV, channels,
                               model_width(b), false);
    pl_tensor w =
        model_weight(b, "ssm_conv1d", "weight", PL_ROLE_CONV, false, 2, taps);
    pl_tensor state = pl_state(b->g, layer_name(b, "conv_state", name),
                               channels.n, d->n_tap - 1, PL_ROLE_CONV_STATE);

    if (w >= 0 && b->g->node[w].format != PL_F32)
        w = pl_cast(b->g, w, PL_F32);
    return pl_short_conv(b->g, x, w, state, true);
}

pl_tensor model_delta_net(struct build *b, pl_tensor h)
{
    const struct model_delta *d = &b->m->delta;
    const int64_t n_k = d->n_key * d->d_head, n_v = d->n_value * d->d_head;
    const struct model_dim inner = {n_v, "ssm.inner_size"};
    const struct model_dim d_head = {d->d_head, "ssm.state_size"};
    char name[32];
    pl_tensor x = convolved(b, h);
    pl_tensor q = pl_slice(b->g, x, 1, 0, n_k);
    pl_tensor k = pl_slice(b->g, x, 1, n_k, n_k);
    pl_tensor v = pl_slice(b->g, x, 1, 2 * n_k, n_v);
    struct gates a = gates(b, h);
    pl_tensor state, decay, z;

    q = model_heads(b, q, d->n_key, d->d_head);
    k = model_heads(b, k, d->n_key, d->d_head);
    v = model_heads(b, v, d->n_value, d->d_head);
    decay = pl_add(b->g, a.alpha, head_values(b, "ssm_dt", "bias"));
    decay = pl_softplus(b->g, decay);
    decay = pl_mul(b->g, decay, head_values(b, "ssm_a", NULL));
    state = pl_state(b->g, layer_name(b, "state", name), d->n_value,
                     d->d_head * d->d_head, PL_ROLE_STATE);
    x = pl_delta_net(b->g, q, k, v, decay, pl_sigmoid(b->g, a.beta), state,
                     b->m->eps, !d->neighbours);
    x = model_norm(b, x, "ssm_norm", d_head);
    z = model_matmul(b, h, "attn_gate", PL_ROLE_ATTN_GATE, inner,
                     model_width(b), false);
    z = model_heads(b, z, d->n_value, d->d_head);
    x = model_flat(b, pl_swiglu(b->g, z, x), n_v);
    model_name(b, x, "kqv_out");
    return model_matmul(b, x, "ssm_out", PL_ROLE_ATTN_OUT, model_width(b),
                        inner, false);
}
