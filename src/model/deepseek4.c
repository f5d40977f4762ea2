/* deepseek4 (DeepSeek V4 Flash, Pro): four residual streams, and attention with
 * one key, which is its value, too, to the last tokens and to compressed keys.
 *
 * Streams X_s (hyper-connections): with f = norm(X), without a weight, all
 * streams being one row, the weights a, o and C are sinkhorn(hc_fn f). A part
 * of a layer, attention or experts, reads h = norm(sum of a_s X_s), and its
 * result y is added:
 *
 *   X_d = o_d y + sum over s of C[s, d] X_s
 *
 * Attention: r = norm(attn_q_a h); q = a head of attn_q_b r, normalised without
 * a weight; k = norm(attn_kv h). RoPE rotates the last values of q and k, and
 * turns those of a head's result back. Runs of heads have an output matrix
 * each, attn_output_a, and all together attn_output_b.
 *
 * Layers with a ratio R also have a key for each R tokens, a mean weighted by
 * gates (op block_mean), normalised, and rotated by the first token's position.
 * With R = 4 means overlap, and an indexer as in deepseek32, whose keys are
 * such means too, chooses the blocks. The cache has a block's key at its last
 * token.
 *
 * Experts: the first layers have a table from tokens to experts. Source: the
 * model card of DeepSeek V4; arXiv:2409.19606 and arXiv:2512.24880. */
#include "base/err.h"
#include "graph/graph.h"
#include "graph/shape.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    STREAMS = 4,
    OVERLAPPING = 4, /* the ratio whose means overlap */
    SEPARATE = 128,  /* the ratio whose means do not */
    MAX_RANK = 1 << 20,
    MAX_KEYS = 1 << 20,
    MAX_ITER = 1000
};

static pl_status fault(const struct model *m, const char *key, int64_t value,
                       const char *want, pl_err *err)
{
    struct params_key k;

    return err_set(err, PL_UNSUPPORTED,
                   "%s: key %s is %" PRId64 "; for %s only %s is supported",
                   gguf_path(m->file), params_key(m, key, &k), value,
                   m->family->arch, want);
}

static pl_status read_streams(struct model *m, pl_err *err)
{
    struct params_key k;
    double eps;
    int64_t n;

    PL_TRY(params_get(m, "hyper_connection.count", STREAMS, 0, INT32_MAX, &n,
                      err));
    if (n != STREAMS)
        return fault(m, "hyper_connection.count", n, "4", err);
    PL_TRY(params_need(m, "hyper_connection.sinkhorn_iterations", MAX_ITER,
                       &m->v4.n_iter, err));
    PL_TRY(gguf_get_f64(m->file, params_key(m, "hyper_connection.epsilon", &k),
                        1e-6, &eps, err));
    if (!(eps >= 0 && eps <= 1))
        return err_set(err, PL_BAD_FILE, "%s: key %s is %g, not in 0 .. 1",
                       gguf_path(m->file), k.s, eps);
    m->v4.eps = (float)eps;
    return PL_OK;
}

/* Reads the ratio of each layer, and how many tokens caches of few tokens
 * keep. */
static pl_status read_ratios(struct model *m, pl_err *err)
{
    struct params_key k;
    const float *ratio;
    bool any = false, chooses = false;
    double base;

    PL_TRY(params_need(m, "attention.sliding_window", INT32_MAX, &m->v4.window,
                       err));
    m->v4.kept = m->v4.window;
    PL_TRY(params_layer_floats(m,
                               params_key(m, "attention.compress_ratios", &k),
                               0, 1e6, &ratio, err));
    m->v4.ratio = ratio;
    for (int64_t i = 0; ratio && i < m->n_layer; i++) {
        const int64_t n = (int64_t)ratio[i];
        const int64_t reach = n == OVERLAPPING ? 2 * n : n;

        if ((n != 0 && n != OVERLAPPING && n != SEPARATE) ||
            ratio[i] > (float)n)
            return fault(m, "attention.compress_ratios", n, "0, 4 or 128", err);
        m->v4.kept = reach > m->v4.kept ? reach : m->v4.kept;
        any |= n > 0;
        chooses |= n == OVERLAPPING;
    }
    if (chooses) {
        PL_TRY(params_need(m, "attention.indexer.head_count", MAX_HEAD,
                           &m->n_index, err));
        PL_TRY(params_need(m, "attention.indexer.key_length", MAX_HEAD,
                           &m->d_index, err));
        PL_TRY(params_need(m, "attention.indexer.top_k", MAX_KEYS, &m->top_keys,
                           err));
        if (m->d_index < m->rope.n_rot)
            return fault(m, "attention.indexer.key_length", m->d_index,
                         "rope.dimension_count or more", err);
    }
    /* Layers without a ratio have no scaling. */
    m->rope_window = m->rope;
    m->rope_window.yarn = false;
    m->rope_window.freq_scale = m->rope_window.mscale = 1;
    PL_TRY(params_rope_base(m, "attention.compress_rope_freq_base", 160000,
                            &base, err));
    if (any)
        PL_TRY(params_rope(m, base, &m->rope, err));
    /* YaRN changes no size of queries and keys, whatever this key says. */
    PL_TRY(params_factor(m, "rope.scaling.yarn_log_multiplier", 0, true, &base,
                         err));
    m->rope.mscale = 1;
    return PL_OK;
}

static pl_status read_experts(struct model *m, pl_err *err)
{
    struct params_key k;
    double routed;

    m->gating = PL_GATING_SQRT_SOFTPLUS;
    m->normalise = m->select_bias = m->clamp_first = true;
    PL_TRY(params_factor(m, "expert_weights_scale", 1, true, &routed, err));
    m->routed = routed == 0 ? 1 : (float)routed;
    PL_TRY(params_shared(m, 1, err));
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_exp", &k), 0, 1e6,
                               &m->clamp_expert, err));
    PL_TRY(params_layer_floats(m, params_key(m, "swiglu_clamp_shexp", &k), 0,
                               1e6, &m->clamp_shared, err));
    if (!m->clamp_shared)
        m->clamp_shared = m->clamp_expert;
    return params_get(m, "hash_layer_count", 0, 0, m->n_layer, &m->v4.n_hash,
                      err);
}

pl_status model_deepseek4_read(struct model *m, pl_err *err)
{
    PL_TRY(params_need(m, "attention.q_lora_rank", MAX_RANK, &m->q_rank, err));
    PL_TRY(params_need(m, "attention.output_lora_rank", MAX_RANK,
                       &m->v4.out_rank, err));
    PL_TRY(params_need(m, "attention.output_group_count", MAX_HEAD,
                       &m->v4.n_group, err));
    for (int64_t i = 0; i < m->n_layer; i++) {
        if (m->n_head_kv[i] != 1)
            return fault(m, "attention.head_count_kv", m->n_head_kv[i], "1",
                         err);
        if (m->d_value[i] != m->d_key[i])
            return fault(m, "attention.value_length", m->d_value[i],
                         "attention.key_length", err);
        if (m->n_head[i] % m->v4.n_group)
            return fault(m, "attention.output_group_count", m->v4.n_group,
                         "a divisor of attention.head_count", err);
    }
    PL_TRY(read_streams(m, err));
    PL_TRY(read_ratios(m, err));
    return read_experts(m, err);
}

/* ---- streams ------------------------------------------------------------- */

static struct model_dim all_streams(const struct build *b)
{
    return (struct model_dim){STREAMS * b->m->d_model,
                              "hyper_connection.count * embedding_length"};
}

/* Returns sum of a_s x_s, [n_tok, d_model], of the streams x [n_tok, 4,
 * d_model] and the weights a [n_tok, 4]. */
static pl_tensor joined(struct build *b, pl_tensor x, pl_tensor a)
{
    return pl_sum(b->g, pl_mul(b->g, x, model_heads(b, a, STREAMS, 1)));
}

/* Returns `base`_fn times the normalised streams. */
static pl_tensor of_streams(struct build *b, pl_tensor x, const char *base,
                            struct model_dim out)
{
    x = pl_rms_norm(b->g, model_flat(b, x, all_streams(b).n), -1, b->m->eps);
    return model_matmul(b, x, base, PL_ROLE_ROUTER, out, all_streams(b), false);
}

/* Returns the weights of streams, [n_tok, 24], before a part of a layer, which
 * is `part`. */
static pl_tensor weights(struct build *b, pl_tensor x, const char *part)
{
    const struct model_dim out = {STREAMS * (STREAMS + 2),
                                  "hyper_connection.count"};
    const struct model_dim three = {3, "the rule of three scales"};
    char fn[32], scale[32], base[32];
    pl_tensor s, t;

    snprintf(fn, sizeof fn, "hc_%s_fn", part);
    snprintf(scale, sizeof scale, "hc_%s_scale", part);
    snprintf(base, sizeof base, "hc_%s_base", part);
    x = of_streams(b, x, fn, out);
    s = model_weight(b, scale, "weight", PL_ROLE_NORM, false, 1, &three);
    t = model_weight(b, base, "weight", PL_ROLE_NORM, false, 1, &out);
    return pl_sinkhorn(b->g, x, s, t, (int)b->m->v4.n_iter, b->m->v4.eps);
}

/* Returns the streams joined for the output. */
static pl_tensor last_joined(struct build *b, pl_tensor x)
{
    const struct model_dim n = {STREAMS, "hyper_connection.count"};
    const struct model_dim one = {1, "the rule of one scale"};
    pl_tensor a, w;

    model_layer(b, -1);
    a = of_streams(b, x, "output_hc_fn", n);
    w = model_weight(b, "output_hc_scale", "weight", PL_ROLE_NORM, false, 1,
                     &one);
    a = pl_mul(b->g, a, w);
    w = model_weight(b, "output_hc_base", "weight", PL_ROLE_NORM, false, 1, &n);
    a = pl_sigmoid(b->g, pl_add(b->g, a, w));
    w = pl_clamp(b->g, a, b->m->v4.eps, b->m->v4.eps);
    return joined(b, x, pl_add(b->g, a, w));
}

/* ---- attention ----------------------------------------------------------- */

static int64_t ratio_of(const struct build *b)
{
    return b->m->v4.ratio ? (int64_t)b->m->v4.ratio[b->layer] : 0;
}

/* Returns x [n_tok, *, d] with the last values of each head rotated, by the
 * positions less `start`, or by the negative angles if `back`. */
static pl_tensor rotated(struct build *b, pl_tensor x, int64_t d, int64_t start,
                         bool back)
{
    const pl_rope *r = ratio_of(b) ? &b->m->rope : &b->m->rope_window;
    const struct graph_attr a = {.base = r->base,
                                 .freq_scale = r->freq_scale,
                                 .yarn = r->yarn,
                                 .yarn_low = r->yarn_low,
                                 .yarn_high = r->yarn_high,
                                 .mscale = r->mscale,
                                 .n_rot = r->n_rot,
                                 .start = start,
                                 .back = back};
    const int64_t rest = d - r->n_rot;
    pl_tensor part[2] = {-1, x};

    if (rest > 0) {
        part[0] = pl_slice(b->g, x, 2, 0, rest);
        part[1] = pl_slice(b->g, x, 2, rest, r->n_rot);
    }
    x = graph_make(b->g, OP_rope, 3, (pl_tensor[]){part[1], b->pos, -1}, &a, 0,
                   NULL);
    part[1] = x;
    return rest > 0 ? pl_concat(b->g, 2, part, 2) : x;
}

/* Writes x [n_tok, 1, d] to the layer's cache `what`, which keeps `window`
 * tokens, or all if that is 0. */
static pl_tensor cached(struct build *b, const char *what, pl_tensor x,
                        pl_format f, int64_t d, pl_role role, int64_t window)
{
    char name[40];

    snprintf(name, sizeof name, "cache_%s.%" PRId64, what, b->layer);
    return pl_cache_write(
        b->g,
        graph_cache(b->g, name, f, 1, d, role != PL_ROLE_CACHE_K, window, role),
        x);
}

/* Returns the keys of blocks that end at the step's tokens, [n_tok, 1, d].
 * Those of other tokens have no meaning. `cache` is the name of the cache of
 * values and gates, `base` the beginning of the weights' names. */
static pl_tensor block_keys(struct build *b, pl_tensor h, const char *cache,
                            const char *base, pl_role role, struct model_dim d)
{
    const int64_t ratio = ratio_of(b), n = ratio == OVERLAPPING ? 2 : 1;
    const struct model_dim ape[2] = {{ratio, "attention.compress_ratios"},
                                     {n * d.n, d.key}};
    char name[40];
    pl_tensor x[2], raw;

    snprintf(name, sizeof name, "%s_kv", base);
    x[0] = model_matmul(b, h, name, role, ape[1], model_width(b), false);
    snprintf(name, sizeof name, "%s_gate", base);
    x[1] = model_matmul(b, h, name, role, ape[1], model_width(b), false);
    raw = model_heads(b, pl_concat(b->g, 2, x, 1), 1, 2 * n * d.n);
    raw = cached(b, cache, raw, PL_F32, 2 * n * d.n, PL_ROLE_CACHE_INDEX,
                 b->m->v4.kept);
    snprintf(name, sizeof name, "%s_ape", base);
    x[0] = model_weight(b, name, "weight", PL_ROLE_NORM, false, 2, ape);
    x[0] = pl_block_mean(b->g, raw, b->pos, x[0], d.n);
    snprintf(name, sizeof name, "%s_norm", base);
    x[0] = model_norm(b, x[0], name, d);
    return rotated(b, model_heads(b, x[0], 1, d.n), d.n, ratio - 1, false);
}

/* Returns the blocks that attention to blocks of the inputs h sees, or -1 if it
 * sees all. r [n_tok, q_rank] are the latents of its queries. */
static pl_tensor chosen(struct build *b, pl_tensor h, pl_tensor r)
{
    const struct model *m = b->m;
    const struct model_dim n = {m->n_index, "attention.indexer.head_count"};
    const struct model_dim d = {m->d_index, "attention.indexer.key_length"};
    const struct model_dim rank = {m->q_rank, "attention.q_lora_rank"};
    const struct model_dim all = {n.n * d.n,
                                  "indexer.head_count * indexer.key_length"};
    const float scale = (float)(1 / sqrt((double)all.n));
    pl_tensor q, k, w;
    char name[40];

    if (ratio_of(b) != OVERLAPPING)
        return -1;
    q = model_matmul(b, r, "indexer.attn_q_b", PL_ROLE_INDEXER, all, rank,
                     false);
    q = rotated(b, model_heads(b, q, n.n, d.n), d.n, 0, false);
    w = model_matmul(b, h, "indexer.proj", PL_ROLE_INDEXER, n, model_width(b),
                     false);
    k = block_keys(b, h, "index_raw", "indexer_compressor", PL_ROLE_INDEXER, d);
    snprintf(name, sizeof name, "cache_index.%" PRId64, b->layer);
    k = pl_cache_write(b->g, pl_index_cache(b->g, name, b->cache_k, d.n), k);
    return pl_compressed_topk(b->g, q, pl_scale(b->g, w, scale), k,
                              (int)m->top_keys, (int)ratio_of(b));
}

/* Returns the results of all heads, [n_tok, n_head, d]. */
static pl_tensor attend(struct build *b, pl_tensor h, pl_tensor r, pl_tensor q,
                        pl_tensor k)
{
    const struct model *m = b->m;
    const int64_t d = m->d_key[b->layer], window = m->v4.window;
    const struct model_dim heads = {m->n_head[b->layer],
                                    "attention.head_count"};
    const struct model_dim width = {d, "attention.key_length"};
    pl_tensor sinks = model_weight(b, "attn_sinks", "weight",
                                   PL_ROLE_ATTN_SINKS, false, 1, &heads);
    pl_tensor v, choice;

    if (ratio_of(b) == 0) {
        v = cached(b, "v", k, b->cache_v, d, PL_ROLE_CACHE_V, m->v4.kept);
        k = cached(b, "k", k, b->cache_k, d, PL_ROLE_CACHE_K, m->v4.kept);
        return pl_attention(b->g, q, k, v, sinks, m->query_scale, window, 0);
    }
    choice = chosen(b, h, r);
    v = block_keys(b, h, "raw", "attn_compressor", PL_ROLE_ATTN_KV_A, width);
    v = cached(b, "block", v, b->cache_k, d, PL_ROLE_CACHE_V, 0);
    k = cached(b, "kv", k, b->cache_k, d, PL_ROLE_CACHE_V, 0);
    return pl_compressed_attention(b->g, q, k, v, sinks, choice,
                                   (int)ratio_of(b), m->query_scale, window);
}

static pl_tensor attention(struct build *b, pl_tensor h)
{
    const struct model *m = b->m;
    const int64_t n_head = m->n_head[b->layer], d = m->d_key[b->layer];
    const int64_t n_group = m->v4.n_group, rank = m->v4.out_rank;
    const struct model_dim q_rank = {m->q_rank, "attention.q_lora_rank"};
    const struct model_dim all = {n_head * d,
                                  "attention.head_count * key_length"};
    const struct model_dim one = {d, "attention.key_length"};
    const struct model_dim a[3] = {
        {n_group, "attention.output_group_count"},
        {rank, "attention.output_lora_rank"},
        {all.n / n_group, "head_count * key_length / output_group_count"}};
    const struct model_dim ranks = {n_group * rank,
                                    "output_group_count * output_lora_rank"};
    pl_tensor r, q, k, y, w;

    r = model_matmul(b, h, "attn_q_a", PL_ROLE_ATTN_Q_A, q_rank, model_width(b),
                     false);
    r = model_norm(b, r, "attn_q_a_norm", q_rank);
    q = model_matmul(b, r, "attn_q_b", PL_ROLE_ATTN_Q, all, q_rank, false);
    q = pl_rms_norm(b->g, model_heads(b, q, n_head, d), -1, m->eps);
    q = rotated(b, q, d, 0, false);
    k = model_matmul(b, h, "attn_kv", PL_ROLE_ATTN_KV_A, one, model_width(b),
                     false);
    k = model_norm(b, k, "attn_kv_a_norm", one);
    k = rotated(b, model_heads(b, k, 1, d), d, 0, false);
    y = rotated(b, attend(b, h, r, q, k), d, 0, true);
    y = model_heads(b, y, n_group, a[2].n);
    w = model_weight(b, "attn_output_a", "weight", PL_ROLE_ATTN_OUT_A, false, 3,
                     a);
    y = model_flat(b, pl_head_matmul(b->g, y, w), ranks.n);
    model_name(b, y, "kqv_out");
    return model_matmul(b, y, "attn_output_b", PL_ROLE_ATTN_OUT, model_width(b),
                        ranks, false);
}

/* ---- the network --------------------------------------------------------- */

/* Returns the result of a layer's experts. */
static pl_tensor experts(struct build *b, pl_tensor h)
{
    const struct model *m = b->m;
    const struct model_dim table[2] = {{m->n_vocab, m->vocab_key},
                                       {m->n_expert_used, "expert_used_count"}};
    pl_tensor w;

    b->expert_ids = -1;
    if (b->layer < m->v4.n_hash) {
        w = model_weight(b, "ffn_gate_tid2eid", "weight", PL_ROLE_EXPERT_IDS,
                         false, 2, table);
        b->expert_ids = pl_gather_rows(b->g, w, b->ids);
    }
    return model_experts(b, h, model_router(b, h), pl_swiglu);
}

/* Returns the streams x after a part of a layer, attention or experts. */
static pl_tensor part(struct build *b, pl_tensor x, const char *name,
                      const char *norm,
                      pl_tensor (*run)(struct build *b, pl_tensor h))
{
    pl_tensor w = weights(b, x, name), h;

    h = joined(b, x, pl_slice(b->g, w, 1, 0, STREAMS));
    h = model_name(b, model_norm(b, h, norm, model_width(b)), norm);
    h = run(b, h);
    w = pl_slice(b->g, w, 1, STREAMS, STREAMS * (STREAMS + 1));
    return pl_mix_streams(b->g, x, h, w);
}

void model_deepseek4(struct build *b)
{
    pl_tensor x = model_heads(b, model_embed(b), 1, b->m->d_model);

    x = pl_concat(b->g, STREAMS, (pl_tensor[STREAMS]){x, x, x, x}, 1);
    for (int64_t i = 0; i < b->m->n_layer; i++) {
        model_layer(b, i);
        x = part(b, x, "attn", "attn_norm", attention);
        x = part(b, x, "ffn", "ffn_norm", experts);
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_head(b, last_joined(b, x));
}
