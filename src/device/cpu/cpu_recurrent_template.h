/* The kernels short_conv, delta_net* and ssm_scan. They divide a step's tokens
 * into runs, the consecutive tokens of one sequence. For each run they find the
 * sequence's state and call the functions of cpu_recurrent.h. Included by
 * cpu_ops_template.h. */
#ifndef DEVICE_CPU_CPU_RECURRENT_TEMPLATE_H
#define DEVICE_CPU_CPU_RECURRENT_TEMPLATE_H

#include "device/cpu/cpu_delta_net_template.h"
#include "device/cpu/cpu_short_conv_template.h"
#include "device/cpu/cpu_ssm_scan_template.h"
#include "device/cpu/cpu_steal.h"

/* A run: n consecutive tokens of one sequence, from token `tok` of the step on.
 * `in` is the sequence's state before these tokens, `out` is where the state
 * after them is written. */
struct state_run {
    int64_t tok, n;
    const float *in; /* NULL if the state before the run is all zeros */
    float *out;
};

/* Returns the run of tokens of one sequence that begins at token `tok`, with
 * the state slots that it reads and writes. `state` points to the memory of all
 * state slots, of `bytes` bytes each. */
static inline struct state_run state_run(const struct token_table *b,
                                         int64_t tok, void *state, size_t bytes)
{
    const int32_t *w = b->pages + b->seq[tok] * b->page_stride;
    int32_t from = w[b->pos[tok] == w[STATE_AT] ? STATE_READ : STATE_WRITTEN];
    struct state_run r = {.tok = tok, .n = 1};

    while (tok + r.n < b->n_tok && b->seq[tok + r.n] == b->seq[tok])
        r.n++;
    if (b->pos[tok] > 0)
        r.in = (const float *)((const char *)state + (size_t)from * bytes);
    r.out = (float *)((char *)state + (size_t)w[STATE_WRITTEN] * bytes);
    return r;
}

static inline size_t state_bytes(const struct cpu_tensor *t)
{
    return (size_t)(t->dim[1] * t->dim[2]) * sizeof(float);
}

/* ---- short convolution --------------------------------------------------- */

static inline struct cpu_short_conv conv_args(const struct cpu_call *c)
{
    return (struct cpu_short_conv){.n_tok = c->out.dim[0],
                                   .n_channel = CONV_CHANNELS,
                                   .n_tap = c->in[1].dim[1],
                                   .x_stride = c->out.dim[1],
                                   .out_stride = c->out.dim[1],
                                   .silu = c->attr->silu};
}

/* Returns the scratch size in bytes that a thread needs for short_conv: that of
 * cpu_short_conv_scratch(), plus a transposed state for a block of
 * CONV_CHANNELS channels. */
static inline size_t short_conv_scratch(const struct cpu_call *c)
{
    struct cpu_short_conv a = conv_args(c);

    return cpu_short_conv_scratch(&a) +
           (size_t)(a.n_tap * CONV_CHANNELS) * sizeof(float);
}

/* Computes short_conv:
 *
 *   x [n_tok, c], w [c, n_tap], state [slots, c, n_tap - 1]  ->  out [n_tok, c]
 *
 * In a state slot the inputs of a channel are contiguous, but the functions of
 * cpu_recurrent.h need those of a token contiguous. So the state is transposed
 * before and after, for a block of channels at a time. */
static inline void short_conv_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    int64_t n_channel = c->out.dim[1];
    struct cpu_part p = cpu_part(n_channel, CONV_CHANNELS, c->ith, c->nth);
    struct cpu_short_conv a = conv_args(c);
    float *turned = (float *)((char *)c->scratch + cpu_short_conv_scratch(&a));
    struct state_run r;

    for (int64_t t = 0; t < b->n_tok && p.lo < p.hi; t += r.n) {
        r = state_run(b, t, c->in[2].data, state_bytes(&c->in[2]));
        for (int64_t ch = p.lo; ch < p.hi; ch += CONV_CHANNELS) {
            int64_t n = p.hi - ch < CONV_CHANNELS ? p.hi - ch : CONV_CHANNELS;
            int64_t held = a.n_tap - 1;

            for (int64_t i = 0; r.in && i < n; i++)
                for (int64_t j = 0; j < held; j++)
                    turned[j * n + i] = r.in[(ch + i) * held + j];
            a.n_tok = r.n;
            a.n_channel = n;
            a.x = (const float *)c->in[0].data + t * n_channel + ch;
            a.w = (const float *)c->in[1].data + ch * a.n_tap;
            a.state_in = r.in ? turned : NULL;
            a.state_out = turned;
            a.out = (float *)c->out.data + t * n_channel + ch;
            short_conv_channels(&a, 0, n, c->scratch);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < held; j++)
                    r.out[(ch + i) * held + j] = turned[j * n + i];
        }
    }
}

/* ---- gated delta net ----------------------------------------------------- */

static inline struct cpu_delta_net delta_args(const struct cpu_call *c)
{
    int64_t n_k = c->in[0].dim[1], n_v = c->out.dim[1];
    int64_t d_k = c->in[0].dim[2], d_v = c->out.dim[2];
    bool channels = c->in[3].n_dim == 3;

    return (struct cpu_delta_net){.n_tok = c->out.dim[0],
                                  .n_head_k = n_k,
                                  .n_head_v = n_v,
                                  .d_k = d_k,
                                  .d_v = d_v,
                                  .head_map = c->head_map,
                                  .q_stride = n_k * d_k,
                                  .k_stride = n_k * d_k,
                                  .v_stride = n_v * d_v,
                                  .g_stride = channels ? n_v * d_k : n_v,
                                  .beta_stride = n_v,
                                  .channels = channels,
                                  .eps = c->attr->eps,
                                  .out_stride = n_v * d_v};
}

static inline size_t delta_net_scratch(const struct cpu_call *c)
{
    struct cpu_delta_net a = delta_args(c);

    return cpu_delta_net_scratch(&a);
}

/* Returns the number of runs in the token table. */
static inline int64_t count_runs(const struct token_table *b)
{
    int64_t n = 0;

    for (int64_t t = 0; t < b->n_tok; t++)
        n += t == 0 || b->seq[t] != b->seq[t - 1];
    return n;
}

/* Computes delta_net and delta_net_channels:
 *
 *   q, k [n_tok, n_key, d], v [n_tok, n_head, e], decay, beta [n_tok, n_head],
 *   state [slots, n_head, d * e]  ->  out [n_tok, n_head, e]
 *
 * where delta_net_channels has decay [n_tok, n_head, d]. Threads divide the
 * blocks of state columns (items) of all value heads and all sequences. */
static inline void delta_net_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    struct cpu_delta_net a = delta_args(c);
    int64_t n_item = cpu_delta_net_items(&a);
    struct cpu_part p;
    struct state_run r;
    int64_t k = 0;

    p = cpu_part(count_runs(b) * n_item, 1, c->ith, c->nth);
    for (int64_t t = 0; t < b->n_tok && n_item > 0; t += r.n, k++) {
        int64_t lo = p.lo - k * n_item, hi = p.hi - k * n_item;

        r = state_run(b, t, c->in[5].data, state_bytes(&c->in[5]));
        lo = lo > 0 ? lo : 0;
        hi = hi < n_item ? hi : n_item;
        if (lo >= hi)
            continue;
        a.n_tok = r.n;
        a.q = (const float *)c->in[0].data + t * a.q_stride;
        a.k = (const float *)c->in[1].data + t * a.k_stride;
        a.v = (const float *)c->in[2].data + t * a.v_stride;
        a.g = (const float *)c->in[3].data + t * a.g_stride;
        a.beta = (const float *)c->in[4].data + t * a.beta_stride;
        a.state_in = r.in;
        a.state_out = r.out;
        a.out = (float *)c->out.data + t * a.out_stride;
        delta_net_items(&a, lo, hi - lo, c->scratch);
    }
}

static inline void delta_net_channels_run(const struct cpu_call *c)
{
    delta_net_run(c);
}

/* ---- scan of a state space model ----------------------------------------- */

static inline struct cpu_ssm_scan scan_args(const struct cpu_call *c)
{
    int64_t n_group = c->in[0].dim[1], n_head = c->out.dim[1];
    int64_t d_state = c->in[0].dim[2], d_head = c->out.dim[2];

    return (struct cpu_ssm_scan){.n_tok = c->out.dim[0],
                                 .n_group = n_group,
                                 .n_head = n_head,
                                 .d_state = d_state,
                                 .d_head = d_head,
                                 .head_map = c->head_map,
                                 .c_stride = n_group * d_state,
                                 .b_stride = n_group * d_state,
                                 .x_stride = n_head * d_head,
                                 .g_stride = n_head,
                                 .out_stride = n_head * d_head};
}

static inline size_t ssm_scan_scratch(const struct cpu_call *c)
{
    struct cpu_ssm_scan a = scan_args(c);

    return cpu_ssm_scan_scratch(&a);
}

/* Computes ssm_scan:
 *
 *   c, b [n_tok, n_group, d], x [n_tok, n_head, e], decay [n_tok, n_head],
 *   state [slots, n_head, d * e]  ->  out [n_tok, n_head, e]
 *
 * Threads divide the blocks of state columns (items of cpu_recurrent.h) of all
 * heads and all sequences of the step. */
static inline void ssm_scan_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    struct cpu_ssm_scan a = scan_args(c);
    int64_t n_item = cpu_ssm_scan_items(&a), k = 0;
    struct cpu_part p = cpu_part(count_runs(b) * n_item, 1, c->ith, c->nth);
    struct state_run r;

    for (int64_t t = 0; t < b->n_tok && n_item > 0; t += r.n, k++) {
        int64_t lo = p.lo - k * n_item, hi = p.hi - k * n_item;

        r = state_run(b, t, c->in[4].data, state_bytes(&c->in[4]));
        lo = lo > 0 ? lo : 0;
        hi = hi < n_item ? hi : n_item;
        if (lo >= hi)
            continue;
        a.n_tok = r.n;
        a.c = (const float *)c->in[0].data + t * a.c_stride;
        a.b = (const float *)c->in[1].data + t * a.b_stride;
        a.x = (const float *)c->in[2].data + t * a.x_stride;
        a.g = (const float *)c->in[3].data + t * a.g_stride;
        a.state_in = r.in;
        a.state_out = r.out;
        a.out = (float *)c->out.data + t * a.out_stride;
        ssm_scan_items(&a, lo, hi - lo, c->scratch);
    }
}

#endif
