/* deepseek2 (DeepSeek V2, V3 and R1, Kimi K2, Mistral Large 3): multi-head
 * latent attention. For each token, the cache contains one latent c and one
 * rotated key r, which all heads share:
 *
 *   (c, r) = kv_a h,  c = norm(c),  r = rope(r)
 *   (q_n, q_r) = a head of q_b norm(q_a h), or of q h;  q_r = rope(q_r)
 *   score = ((k_b q_n) c + q_r r) * query_scale,  out = v_b (sum of p c)
 *
 * where each head has its own matrices k_b and v_b. So the keys are (c, r), and
 * the values are c, the first part of the keys: one cache serves for both.
 *
 * Older files contain k_b (transposed) and v_b as rows of one matrix, kv_b.
 * Then the keys and values of each head are computed and cached:
 *
 *   (k_n, v) = a head of kv_b c,  score = (q_n k_n + q_r r) * query_scale
 *
 * In deepseek32 and glm-dsa tokens attend to chosen latents (indexer.c).
 *
 * Experts are as in glm4moe. The router may also be a softmax, and may first
 * choose groups of experts. Source: arXiv:2405.04434, arXiv:2412.19437. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MAX_RANK = 1 << 20, MAX_HEAD_WIDTH = 1 << 16 };

/* Reads YaRN's scale. In these models it applies to the scores of attention,
 * not to cos and sin, and is the square of 1 + l ln(factor). l is the key
 * yarn_log_multiplier, a tenth of mscale_all_dim in the original model. Files
 * without this key are rejected, because their scale has changed its meaning
 * over time. Source: llama.cpp, discussion 7416 and pull request 17945. */
static pl_status read_yarn(struct model *m, pl_err *err)
{
    const double factor = 1 / (double)m->rope.freq_scale;
    struct params_key k;
    double l, stretch;

    PL_TRY(gguf_get_f64(m->file, params_key(m, "rope.scaling.attn_factor", &k),
                        1, &stretch, err));
    PL_TRY(gguf_get_f64(m->file,
                        params_key(m, "rope.scaling.yarn_log_multiplier", &k),
                        0, &l, err));
    if (!(l >= 1e-6 && l <= 1e3))
        return err_set(err, PL_UNSUPPORTED,
                       "%s: key %s is %g, or missing; for %s with YaRN only "
                       "1e-6 .. 1e3 is supported, convert the model again",
                       gguf_path(m->file), k.s, l, m->family->arch);
    m->rope.mscale = (float)stretch;
    stretch *= 1 + l * log(factor);
    m->query_scale = (float)(stretch * stretch / sqrt((double)m->d_key[0]));
    return PL_OK;
}

pl_status model_deepseek2_read(struct model *m, pl_err *err)
{
    const char *path = gguf_path(m->file);
    struct params_key k;
    int64_t d_key, d_value;

    PL_TRY(params_get(m, "attention.q_lora_rank", 0, 0, MAX_RANK, &m->q_rank,
                      err));
    PL_TRY(gguf_need_i64(m->file, params_key(m, "attention.kv_lora_rank", &k),
                         1, MAX_RANK, &m->kv_rank, err));
    PL_TRY(params_get(m, "attention.key_length_mla", 0, 0, MAX_HEAD_WIDTH,
                      &d_key, err));
    PL_TRY(params_get(m, "attention.value_length_mla", 0, 0, MAX_HEAD_WIDTH,
                      &d_value, err));
    if ((d_key > 0) != (d_value > 0))
        return err_set(err, PL_BAD_FILE,
                       "%s: either %s or attention.value_length_mla is missing",
                       path, params_key(m, "attention.key_length_mla", &k));
    m->latent = d_key > 0;
    /* Files without these keys have the widths of a head in
     * attention.key_length and attention.value_length, which are read for all
     * families. */
    if (m->latent) {
        PL_TRY(params_head_width(m, "attention.key_length_mla", 0, &m->d_key,
                                 err));
        PL_TRY(params_head_width(m, "attention.value_length_mla", 0,
                                 &m->d_value, err));
    }
    if (m->rope.n_rot >= m->d_key[0])
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %d, so attention.key_length_mla or "
                       "key_length must be larger, not %" PRId64,
                       path, params_key(m, "rope.dimension_count", &k),
                       m->rope.n_rot, m->d_key[0]);
    if (!gguf_find(m->file, params_key(m, "expert_gating_func", &k)))
        m->gating = PL_GATING_SOFTMAX;
    m->query_scale = (float)(1 / sqrt((double)m->d_key[0]));
    if (m->rope.yarn && m->rope.freq_scale < 1)
        PL_TRY(read_yarn(m, err));
    return params_temperature(m, "attention.temperature_length", 0, err);
}

static pl_tensor rotated(struct build *b, pl_tensor x)
{
    if (b->m->no_rope && b->m->no_rope[b->layer])
        return x;
    return pl_rope_apply(b->g, x, b->pos, -1, &b->m->rope);
}

/* Writes x [n_tok, n_head, d], values of the step's tokens, to the layer's
 * cache named cache_`kind`. Returns the cache. */
static pl_tensor cached(struct build *b, const char *kind, pl_format f,
                        bool values, int64_t n_head, int64_t d, pl_tensor x)
{
    char name[40];

    snprintf(name, sizeof name, "cache_%s.%" PRId64, kind, b->layer);
    return pl_cache_write(b->g, pl_cache(b->g, name, f, n_head, d, values, 0),
                          x);
}

/* Multiplies the values of each head in x [n_tok, n_head, in] by that head's
 * matrix in the weight `base`. */
static pl_tensor by_head(struct build *b, pl_tensor x, const char *base,
                         pl_role role, struct model_dim out,
                         struct model_dim in)
{
    const struct model_dim dim[3] = {
        {b->m->n_head[b->layer], "attention.head_count"}, out, in};
    bool each;
    pl_tensor scale;

    x = pl_head_matmul(b->g, x,
                       model_weight(b, base, "weight", role, false, 3, dim));
    scale = model_scale(b, base, false, &each);
    return scale < 0 ? x : pl_mul(b->g, x, scale);
}

/* Returns the queries of all heads before RoPE, [n_tok, n_head, d_key]. Sets
 * *latents to their latents [n_tok, q_rank], or to h if there are none. */
static pl_tensor queries(struct build *b, pl_tensor h, pl_tensor *latents)
{
    const struct model *m = b->m;
    const struct model_dim rank = {m->q_rank, "attention.q_lora_rank"};
    const struct model_dim all = {m->n_head[b->layer] * m->d_key[b->layer],
                                  "attention.head_count * key length"};
    const bool plain = m->q_rank == 0;

    if (!plain) {
        h = model_matmul(b, h, "attn_q_a", PL_ROLE_ATTN_Q_A, rank,
                         model_width(b), false);
        h = model_norm(b, h, "attn_q_a_norm", rank);
    }
    *latents = h;
    h = model_matmul(b, h, plain ? "attn_q" : "attn_q_b", PL_ROLE_ATTN_Q, all,
                     plain ? model_width(b) : rank, false);
    h = model_heads(b, h, m->n_head[b->layer], m->d_key[b->layer]);
    return model_tempered(b, h, m->d_key[b->layer]);
}

/* Returns the result of attention to the cached latents, [n_tok, n_head,
 * d_value]. Its inputs are the latents c [n_tok, kv_rank] and rotated keys r
 * [n_tok, 1, n_rot] of the step's tokens, and the two parts of their queries,
 * q_n and q_r [n_tok, n_head, *]. */
static pl_tensor by_latents(struct build *b, pl_tensor c, pl_tensor r,
                            pl_tensor q_n, pl_tensor q_r)
{
    const struct model *m = b->m;
    const struct model_dim rank = {m->kv_rank, "attention.kv_lora_rank"};
    const struct model_dim k = {m->d_key[b->layer] - m->rope.n_rot,
                                "key_length_mla - dimension_count"};
    const struct model_dim v = {m->d_value[b->layer],
                                "attention.value_length_mla"};
    pl_tensor q = by_head(b, q_n, "attn_k_b", PL_ROLE_ATTN_K_B, rank, k), kv, y;

    q = pl_concat(b->g, 2, (pl_tensor[]){q, q_r}, 2);
    kv = model_heads(b, c, 1, m->kv_rank);
    kv = pl_concat(b->g, 2, (pl_tensor[]){kv, r}, 2);
    kv = cached(b, "kv", b->cache_k, true, 1, m->kv_rank + m->rope.n_rot, kv);
    y = b->chosen < 0
            ? pl_latent_attention(b->g, q, kv, m->kv_rank, m->query_scale)
            : pl_chosen_attention(b->g, q, kv, b->chosen, m->kv_rank,
                                  m->query_scale);
    return by_head(b, y, "attn_v_b", PL_ROLE_ATTN_V_B, v, rank);
}

/* Returns the result of attention, [n_tok, n_head, d_value], from the same
 * inputs as by_latents. The keys and values of each head are computed from the
 * latents and cached, as older files need it. */
static pl_tensor by_keys(struct build *b, pl_tensor c, pl_tensor r,
                         pl_tensor q_n, pl_tensor q_r)
{
    const struct model *m = b->m;
    const int64_t n_head = m->n_head[b->layer];
    const int64_t d_n = m->d_key[b->layer] - m->rope.n_rot;
    const struct model_dim rank = {m->kv_rank, "attention.kv_lora_rank"};
    const struct model_dim all = {
        n_head * (d_n + m->d_value[b->layer]),
        "attention.head_count, key_length, value_length and dimension_count"};
    pl_tensor q = pl_concat(b->g, 2, (pl_tensor[]){q_n, q_r}, 2), kv, k, v;

    kv = model_matmul(b, c, "attn_kv_b", PL_ROLE_ATTN_KV_B, all, rank, false);
    kv = model_heads(b, kv, n_head, d_n + m->d_value[b->layer]);
    k = pl_slice(b->g, kv, 2, 0, d_n);
    v = pl_slice(b->g, kv, 2, d_n, m->d_value[b->layer]);
    /* Copies the rotated key r, which all heads share, to each head. */
    r = pl_add(b->g, pl_scale(b->g, q_r, 0), r);
    k = pl_concat(b->g, 2, (pl_tensor[]){k, r}, 2);
    k = cached(b, "k", b->cache_k, false, n_head, m->d_key[b->layer], k);
    v = cached(b, "v", b->cache_v, true, n_head, m->d_value[b->layer], v);
    return pl_attention(b->g, q, k, v, -1, m->query_scale, 0, 0);
}

pl_tensor model_latent_attention(struct build *b, pl_tensor h,
                                 const struct model_attention *o)
{
    const struct model *m = b->m;
    const int64_t n_rot = m->rope.n_rot, d_n = m->d_key[b->layer] - n_rot;
    const struct model_dim rank = {m->kv_rank, "attention.kv_lora_rank"};
    const struct model_dim both = {m->kv_rank + n_rot,
                                   "kv_lora_rank and dimension_count"};
    const struct model_dim width = {m->n_head[b->layer] * m->d_value[b->layer],
                                    "attention.head_count * value length"};
    pl_tensor r_q, q = queries(b, h, &r_q), q_n, q_r, c, r, y;

    model_indexer(b, h, r_q);
    q_n = pl_slice(b->g, q, 2, 0, d_n);
    q_r = rotated(b, pl_slice(b->g, q, 2, d_n, n_rot));
    c = model_matmul(b, h, "attn_kv_a_mqa", PL_ROLE_ATTN_KV_A, both,
                     model_width(b), false);
    r = pl_slice(b->g, c, 1, m->kv_rank, n_rot);
    r = rotated(b, model_heads(b, r, 1, n_rot));
    c = pl_slice(b->g, c, 1, 0, m->kv_rank);
    c = model_norm(b, c, "attn_kv_a_norm", rank);
    y = m->latent ? by_latents(b, c, r, q_n, q_r) : by_keys(b, c, r, q_n, q_r);
    if (o->gate_act)
        y = model_gated(b, y, h, o->gate_act);
    y = model_flat(b, y, width.n);
    model_name(b, y, "kqv_out");
    return model_matmul(b, y, "attn_output", PL_ROLE_ATTN_OUT, model_width(b),
                        width, false);
}

void model_deepseek2(struct build *b)
{
    const struct model_attention o = {.freqs = -1};
    const struct model_dim e = model_width(b);
    int64_t end;
    pl_tensor x = model_enter(b, &end), h;

    for (int64_t i = b->first; i < end; i++) {
        model_layer(b, i);
        h = model_norm(b, x, "attn_norm", e);
        model_name(b, h, "attn_norm");
        x = pl_add(b->g, x, model_latent_attention(b, h, &o));
        model_name(b, x, "ffn_inp");
        h = model_norm(b, x, "ffn_norm", e);
        model_name(b, h, "ffn_norm");
        x = pl_add(b->g, x,
                   i < b->m->n_dense
                       ? model_mlp(b, h, pl_swiglu)
                       : model_experts(b, h, model_router(b, h), pl_swiglu));
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_head(b, x);
}
