/* The parts that families share, one function each. The graph does not mention
 * devices; how it is split follows from the roles given here. Where order
 * matters, each statement has one builder call: then every compiler creates the
 * nodes in the same order. */
#include "model/blocks.h"

#include "base/ascii.h"
#include "base/err.h"
#include "graph/graph.h"
#include "graph/shape.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct pl_dim n_tok = {1, PL_N_TOK};

static pl_dim size(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

struct model_dim model_width(const struct build *b)
{
    return (struct model_dim){b->m->d_model, "embedding_length"};
}

static struct model_dim d_key(const struct build *b)
{
    return (struct model_dim){b->m->d_key[b->layer], "attention.key_length"};
}

void model_layer(struct build *b, int64_t layer)
{
    b->layer = layer;
    b->prefix[0] = '\0';
    if (layer >= 0)
        snprintf(b->prefix, sizeof b->prefix, "blk.%" PRId64 ".", layer);
    pl_layer(b->g, (int)layer);
}

pl_tensor model_name(struct build *b, pl_tensor x, const char *name)
{
    char s[64], *end = stpcpy(s, name);

    *end++ = '-';
    ascii_put_number(end, (uint64_t)b->layer);
    pl_name(b->g, x, s);
    return x;
}

pl_tensor model_heads(struct build *b, pl_tensor x, int64_t n, int64_t d)
{
    return pl_reshape(b->g, x, 3, (pl_dim[]){n_tok, size(n), size(d)});
}

pl_tensor model_flat(struct build *b, pl_tensor x, int64_t n)
{
    return pl_reshape(b->g, x, 2, (pl_dim[]){n_tok, size(n)});
}

static pl_tensor scaled(struct build *b, pl_tensor x, const char *base)
{
    bool each;
    pl_tensor s = model_scale(b, base, false, &each);

    return s < 0 ? x : pl_mul(b->g, x, s);
}

/* Multiplies y [n_tok, n_used, *], the results of the chosen experts, by the
 * scales of these experts. The tensor `ids` [n_tok, n_used] has the experts'
 * numbers. */
static pl_tensor scaled_by_expert(struct build *b, pl_tensor y,
                                  const char *base, pl_tensor ids)
{
    const pl_dim column[2] = {size(b->m->n_expert), size(1)};
    bool each;
    pl_tensor s = model_scale(b, base, true, &each);

    if (s < 0)
        return y;
    if (each) { /* the scales of all experts, [n_expert], become those of the
                   chosen ones, [n_tok, n_used, 1] */
        if (b->g->node[s].format != PL_F32)
            s = pl_cast(b->g, s, PL_F32);
        s = pl_gather_rows(b->g, pl_reshape(b->g, s, 2, column), ids);
    }
    return pl_mul(b->g, y, s);
}

static pl_role bias_role(pl_role weight)
{
    static const struct {
        pl_role weight, bias;
    } rows[] = {
        {PL_ROLE_ATTN_Q, PL_ROLE_ATTN_Q_BIAS},
        {PL_ROLE_ATTN_K, PL_ROLE_ATTN_K_BIAS},
        {PL_ROLE_ATTN_V, PL_ROLE_ATTN_V_BIAS},
        {PL_ROLE_ATTN_QKV, PL_ROLE_ATTN_QKV_BIAS},
        {PL_ROLE_ATTN_OUT, PL_ROLE_ATTN_OUT_BIAS},
        {PL_ROLE_ROUTER, PL_ROLE_ROUTER_BIAS},
        {PL_ROLE_FFN_GATE_EXPS, PL_ROLE_FFN_GATE_EXPS_BIAS},
        {PL_ROLE_FFN_UP_EXPS, PL_ROLE_FFN_UP_EXPS_BIAS},
        {PL_ROLE_FFN_DOWN_EXPS, PL_ROLE_FFN_DOWN_EXPS_BIAS},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].weight == weight)
            return rows[i].bias;
    return PL_ROLE_NONE;
}

pl_tensor model_matmul(struct build *b, pl_tensor x, const char *base,
                       pl_role role, struct model_dim out, struct model_dim in,
                       bool need_bias)
{
    const struct model_dim dim[2] = {out, in};
    pl_tensor w = model_weight(b, base, "weight", role, false, 2, dim);
    pl_tensor y = scaled(b, pl_matmul(b->g, x, w), base);
    pl_tensor bias =
        model_weight(b, base, "bias", bias_role(role), !need_bias, 1, &out);

    return bias < 0 ? y : pl_add(b->g, y, bias);
}

pl_tensor model_norm(struct build *b, pl_tensor x, const char *base,
                     struct model_dim d)
{
    const struct model *m = b->m;
    /* Some files have a norm's name without a suffix. */
    const char *suffix = model_has(b, base, NULL) ? NULL : "weight";
    pl_tensor w = model_weight(b, base, suffix, PL_ROLE_NORM, false, 1, &d);
    pl_tensor y = m->layer_norm ? pl_layer_norm(b->g, x, w, m->eps)
                                : pl_rms_norm(b->g, x, w, m->eps);

    if (!m->norm_bias)
        return y;
    return pl_add(b->g, y,
                  model_weight(b, base, "bias", PL_ROLE_NORM, false, 1, &d));
}

/* Returns x times `factor`. */
static pl_tensor times(struct build *b, pl_tensor x, float factor)
{
    return fabsf(factor - 1) > 0 ? pl_scale(b->g, x, factor) : x;
}

/* Returns x [n_tok, d], the heads of q or k, normalised over d, times
 * `base`.weight [d]. It is written out because x is split by heads: ranks
 * exchange only their sums of squares, not x. */
static pl_tensor norm_all_heads(struct build *b, pl_tensor x, const char *base,
                                struct model_dim d)
{
    pl_tensor w = model_weight(b, base, "weight", PL_ROLE_NORM, false, 1, &d);
    pl_tensor s = pl_sum(b->g, model_heads(b, pl_sqr(b->g, x), d.n, 1));

    s = pl_scale(b->g, s, (float)(1 / (double)d.n));
    s = pl_add(b->g, s, pl_clamp(b->g, s, b->m->eps, b->m->eps));
    return pl_mul(b->g, pl_div(b->g, x, pl_sqrt(b->g, s)), w);
}

/* Returns the rows of the table `base` for the step's tokens. */
static pl_tensor embed(struct build *b, const char *base)
{
    const struct model_dim dim[2] = {{b->m->n_vocab, b->m->vocab_key},
                                     model_width(b)};
    pl_tensor table =
        model_weight(b, base, "weight", PL_ROLE_TOKEN_EMBD, false, 2, dim);

    return scaled(b, pl_gather_rows(b->g, table, b->ids), base);
}

pl_tensor model_embed(struct build *b)
{
    if (b->block && b->g->err.status == PL_OK)
        err_set(&b->g->err, PL_UNSUPPORTED,
                "%s: multi-token prediction is not supported for %s",
                gguf_path(b->m->file), b->m->family->arch);
    return times(b, embed(b, "token_embd"), b->m->embedding_scale);
}

pl_tensor model_enter(struct build *b, int64_t *end)
{
    const struct model_dim e = model_width(b);
    const struct model_dim both = {2 * e.n, "2 * embedding_length"};
    const pl_dim shape[2] = {n_tok, size(e.n)};
    pl_tensor x[2];

    *end = b->block ? b->first + 1 : b->m->n_layer;
    if (!b->block)
        return model_embed(b);
    model_layer(b, b->first);
    if (model_has(b, "nextn.embed_tokens", "weight")) {
        x[0] = embed(b, "nextn.embed_tokens");
    } else {
        model_layer(b, -1);
        x[0] = embed(b, "token_embd");
        model_layer(b, b->first);
    }
    x[1] = pl_input(b->g, "hidden", PL_F32, 2, shape);
    x[0] = model_norm(b, x[0], "nextn.enorm", e);
    x[1] = model_norm(b, x[1], "nextn.hnorm", e);
    return model_matmul(b, pl_concat(b->g, 2, x, 1), "nextn.eh_proj",
                        PL_ROLE_MTP_PROJ, e, both, false);
}

/* Building attention ----------------------------------------------------- */

/* The results of the matrices for queries, keys and values, [n_tok, heads *
 * width] each. k and v are -1 in a layer that reads another layer's caches and
 * so computes no keys and values. */
struct qkv {
    pl_tensor q, k, v;
};

/* Returns true if the file has a bias for at least one of attn_q, attn_k and
 * attn_v. The builder then requires all three. */
static bool biased(const struct build *b)
{
    return model_has(b, "attn_q", "bias") || model_has(b, "attn_k", "bias") ||
           model_has(b, "attn_v", "bias");
}

static struct qkv project(struct build *b, pl_tensor h,
                          const struct model_attention *o)
{
    const struct model *m = b->m;
    const int64_t n_q =
        m->n_head[b->layer] *
        (m->d_key[b->layer] + (o->gate ? m->d_value[b->layer] : 0));
    const int64_t n_k = m->n_head_kv[b->layer] * m->d_key[b->layer];
    const int64_t n_v = m->n_head_kv[b->layer] * m->d_value[b->layer];
    const struct model_dim q = {n_q, "attention.head_count * key_length"};
    const struct model_dim k = {n_k, "attention.head_count_kv * key_length"};
    const struct model_dim v = {n_v, "attention.head_count_kv * value_length"};
    const struct model_dim all = {
        n_q + n_k + n_v, "attention.head_count, head_count_kv and key_length"};
    const bool fused =
        model_has(b, "attn_qkv", "weight") && !model_has(b, "attn_q", "weight");
    const bool v_is_k =
        o->v_is_k && n_k == n_v && !model_has(b, "attn_v", "weight");
    const bool bias = o->bias || (!fused && biased(b));
    struct qkv x = {-1, -1, -1};

    if (fused) { /* The rows of attn_qkv are those of all query heads, then of
                    all key heads, then of all value heads. */
        x.v = model_matmul(b, h, "attn_qkv", PL_ROLE_ATTN_QKV, all,
                           model_width(b), bias);
        x.q = pl_slice(b->g, x.v, 1, 0, n_q);
        x.k = pl_slice(b->g, x.v, 1, n_q, n_k);
        x.v = pl_slice(b->g, x.v, 1, n_q + n_k, n_v);
    } else {
        x.q = model_matmul(b, h, "attn_q", PL_ROLE_ATTN_Q, q, model_width(b),
                           bias);
        if (o->kv)
            return x;
        x.k = model_matmul(b, h, "attn_k", PL_ROLE_ATTN_K, k, model_width(b),
                           bias);
        x.v = v_is_k ? x.k
                     : model_matmul(b, h, "attn_v", PL_ROLE_ATTN_V, v,
                                    model_width(b), bias);
    }
    return x;
}

/* Returns the window of the layer's attention in tokens, 0 if none. */
static int64_t window(const struct build *b)
{
    return b->m->window ? b->m->window[b->layer] : 0;
}

/* Writes x, the keys or values of the step's tokens, to the current layer's
 * cache. Returns the cache. */
static pl_tensor cached(struct build *b, pl_tensor x, bool values)
{
    const struct model *m = b->m;
    char name[32];

    snprintf(name, sizeof name, "cache_%c.%" PRId64, values ? 'v' : 'k',
             b->layer);
    return pl_cache_write(
        b->g,
        pl_cache(b->g, name, values ? b->cache_v : b->cache_k,
                 m->n_head_kv[b->layer],
                 values ? m->d_value[b->layer] : m->d_key[b->layer], values,
                 m->encoder ? 0 : window(b)),
        x);
}

/* Returns true if each head of q and k is normalised in this layer. If the file
 * has the weight of one of the two norms, the builder requires both. */
static bool normed(const struct build *b, const struct model_attention *o)
{
    return o->qk_norm == QK_NORM_ALWAYS || o->qk_norm == QK_NORM_AFTER_ROPE ||
           ((o->qk_norm == QK_NORM_IF_GIVEN ||
             o->qk_norm == QK_NORM_OWN_IF_GIVEN) &&
            (model_has(b, "attn_q_norm", "weight") ||
             model_has(b, "attn_k_norm", "weight")));
}

pl_tensor model_tempered(struct build *b, pl_tensor q, int64_t d)
{
    /* The angles of this RoPE are so small that it rotates nothing. The public
     * builder of RoPE lacks the temperature. */
    const struct graph_attr still = {.base = 10000,
                                     .freq_scale = 1e-30f,
                                     .mscale = 1,
                                     .n_rot = (int)d,
                                     .scale = b->m->temp,
                                     .window = b->m->temp_length};
    const pl_tensor in[] = {q, b->pos, -1};

    return b->m->temp > 0 ? graph_make(b->g, OP_rope, 3, in, &still, 0, NULL)
                          : q;
}

/* Returns x, the heads of q or k, after RoPE, unless the layer has none. */
static pl_tensor rotated(struct build *b, pl_tensor x,
                         const struct model_attention *o)
{
    const struct model *m = b->m;
    const bool in_window = window(b) > 0;

    if (m->no_rope && m->no_rope[b->layer])
        return x;
    return pl_rope_apply(b->g, x, b->pos,
                         o->freqs_full && in_window ? -1 : o->freqs,
                         in_window ? &m->rope_window : &m->rope);
}

/* Returns x [n_tok, n, d_key], each of whose n heads is normalised and
 * multiplied by its own row of `base`.weight [n, d_key]. The product is apart
 * from the norm, whose weight is one vector. */
static pl_tensor norm_own(struct build *b, pl_tensor x, const char *base,
                          int64_t n, const char *key)
{
    const struct model_dim dim[2] = {{n, key}, d_key(b)};
    pl_tensor w = model_weight(b, base, "weight", PL_ROLE_NORM, false, 2, dim);

    return pl_mul(b->g, pl_layer_norm(b->g, x, -1, b->m->eps), w);
}

/* Normalises each head of *q, and of *k unless it is -1. */
static void norm_heads(struct build *b, pl_tensor *q, pl_tensor *k,
                       const struct model_attention *o)
{
    if (o->qk_norm == QK_NORM_OWN_IF_GIVEN) {
        *q = norm_own(b, *q, "attn_q_norm", b->m->n_head[b->layer],
                      "attention.head_count");
        *k = norm_own(b, *k, "attn_k_norm", b->m->n_head_kv[b->layer],
                      "attention.head_count_kv");
        return;
    }
    *q = model_norm(b, *q, "attn_q_norm", d_key(b));
    if (*k >= 0)
        *k = model_norm(b, *k, "attn_k_norm", d_key(b));
}

pl_tensor model_gated(struct build *b, pl_tensor y, pl_tensor h, model_act *act)
{
    const int64_t n_head = b->m->n_head[b->layer];
    const int64_t d_value = b->m->d_value[b->layer];
    const bool each = model_rows(b, "attn_gate") == n_head;
    const struct model_dim n = {each ? n_head : n_head * d_value,
                                each ? "attention.head_count"
                                     : "attention.head_count * value_length"};
    pl_tensor gate = model_matmul(b, h, "attn_gate", PL_ROLE_ATTN_GATE, n,
                                  model_width(b), false);

    gate = model_heads(b, act(b->g, gate), n_head, each ? 1 : d_value);
    return pl_mul(b->g, y, gate);
}

pl_tensor model_attention(struct build *b, pl_tensor h,
                          const struct model_attention *o)
{
    const struct model *m = b->m;
    const int64_t n_head = m->n_head[b->layer];
    const int64_t n_head_kv = m->n_head_kv[b->layer];
    const int64_t d_value = m->d_value[b->layer];
    const struct model_dim width = {n_head * d_value,
                                    "attention.head_count * value_length"};
    const struct model_dim heads_q = {n_head, "attention.head_count"};
    const bool own = !o->kv;
    const int64_t width_k = m->d_key[b->layer];
    const struct model_dim all_q = {n_head * width_k,
                                    "attention.head_count * key_length"};
    const struct model_dim all_k = {n_head_kv * width_k,
                                    "attention.head_count_kv * key_length"};
    const int64_t d_gate = o->gate ? d_value : 0;
    const bool norm = normed(b, o);
    const bool norm_last = o->qk_norm == QK_NORM_AFTER_ROPE;
    struct qkv x = project(b, h, o);
    pl_tensor q, k = -1, v = -1, gate = -1, sinks = -1, chosen, y;

    if (o->qk_norm == QK_NORM_ALL_HEADS) {
        x.q = norm_all_heads(b, x.q, "attn_q_norm", all_q);
        x.k = norm_all_heads(b, x.k, "attn_k_norm", all_k);
    }
    q = model_heads(b, x.q, n_head, width_k + d_gate);
    if (own) {
        k = model_heads(b, x.k, n_head_kv, width_k);
        v = model_heads(b, x.v, n_head_kv, d_value);
    }
    if (o->gate) { /* The result of attn_q has, for each head, the query and
                      then the gate. */
        gate = pl_slice(b->g, q, 2, width_k, d_value);
        q = pl_slice(b->g, q, 2, 0, width_k);
    }
    if (norm && !norm_last)
        norm_heads(b, &q, &k, o);
    if (o->v_norm && own)
        v = pl_rms_norm(b->g, v, -1, m->eps);
    q = rotated(b, model_tempered(b, q, width_k), o);
    k = own ? rotated(b, k, o) : -1;
    if (norm && norm_last)
        norm_heads(b, &q, &k, o);
    if (own) {
        b->kv.k = cached(b, k, false);
        b->kv.v = cached(b, v, true);
    } else {
        b->kv = *o->kv;
    }
    if (o->sinks || o->some_sinks)
        sinks = model_weight(b, "attn_sinks", "weight", PL_ROLE_ATTN_SINKS,
                             !o->sinks, 1, &heads_q);
    chosen = model_index_blocks(b, h);
    if (chosen >= 0)
        y = pl_attention_blocks(b->g, q, b->kv.k, b->kv.v, chosen,
                                (int)m->index_block, m->query_scale);
    else if (m->encoder)
        y = pl_bidirectional_attention(b->g, q, b->kv.k, b->kv.v, b->ends,
                                       m->query_scale, window(b),
                                       m->attn_softcap);
    else
        y = pl_attention(b->g, q, b->kv.k, b->kv.v, sinks, m->query_scale,
                         window(b), m->attn_softcap);
    if (o->gate)
        y = pl_mul(b->g, y, pl_sigmoid(b->g, gate));
    if (o->gate_act)
        y = model_gated(b, y, h, o->gate_act);
    y = model_flat(b, y, width.n);
    model_name(b, y, "kqv_out");
    y = model_matmul(b, y, "attn_output", PL_ROLE_ATTN_OUT, model_width(b),
                     width, false);
    return times(b, y, m->value_scale);
}

/* Building feed-forward parts and experts -------------------------------- */

/* The width of a feed-forward part, and twice that width, which is the number
 * of rows if one matrix contains gate and up. */
struct width {
    struct model_dim one, two;
};

static struct width d_ff(const struct build *b)
{
    int64_t n = b->m->d_ff[b->layer];

    return (struct width){{n, "feed_forward_length"},
                          {2 * n, "2 * feed_forward_length"}};
}

static struct width d_expert(const struct build *b)
{
    int64_t n = b->m->d_expert[b->layer];

    return (struct width){{n, b->m->family->expert_width},
                          {2 * n, "twice the experts' width"}};
}

static struct width d_shared(const struct build *b)
{
    int64_t n = b->m->n_shared * b->m->d_expert[b->layer];

    if (b->m->d_shared > 0)
        return (struct width){
            {b->m->d_shared, "expert_shared_feed_forward_length"},
            {2 * b->m->d_shared, "twice the shared expert's width"}};
    return (struct width){
        {n, "expert_shared_count * expert_feed_forward_length"},
        {2 * n, "twice the shared expert's width"}};
}

/* Returns the hidden values glu(gate, up). If limit[layer] > 0, they are
 * min(silu(gate), limit) * clamp(up, -limit, limit) instead, or silu(min(gate,
 * limit)) * the same. */
static pl_tensor joined(struct build *b, model_glu *glu, pl_tensor gate,
                        pl_tensor up, const float *limit)
{
    const float c = limit ? limit[b->layer] : 0;

    if (c <= 0)
        return glu(b->g, gate, up);
    if (b->m->clamp_first) {
        gate = pl_clamp(b->g, gate, -FLT_MAX, c);
        return pl_swiglu(b->g, gate, pl_clamp(b->g, up, -c, c));
    }
    gate = pl_clamp(b->g, pl_silu(b->g, gate), -FLT_MAX, c);
    return pl_mul(b->g, gate, pl_clamp(b->g, up, -c, c));
}

/* Builds a feed-forward part down(glu(gate h, up h)), or down(b->hidden(up h))
 * if that is not NULL. Its matrices are named
 * ffn_gate, ffn_up and ffn_down, each followed by `suffix`. */
static pl_tensor mlp(struct build *b, pl_tensor h, model_glu *glu,
                     const char *suffix, struct width ff)
{
    const struct model_dim e = model_width(b);
    char gate_name[32], up_name[32], both[32], down[32];
    pl_tensor gate, up;

    snprintf(gate_name, sizeof gate_name, "ffn_gate%s", suffix);
    snprintf(up_name, sizeof up_name, "ffn_up%s", suffix);
    snprintf(both, sizeof both, "ffn_%s%s", b->m->fused_up ? "up" : "gate_up",
             suffix);
    snprintf(down, sizeof down, "ffn_down%s", suffix);
    if (b->hidden) {
        up = model_matmul(b, h, up_name, PL_ROLE_FFN_UP, ff.one, e, false);
        return model_matmul(b, b->hidden(b, up), down, PL_ROLE_FFN_DOWN, e,
                            ff.one, false);
    }
    if (b->m->fused_up || model_has(b, both, "weight")) {
        /* The matrix has the rows of gate, then those of up. */
        up = model_matmul(b, h, both, PL_ROLE_FFN_GATE_UP, ff.two, e, false);
        gate = pl_slice(b->g, up, 1, 0, ff.one.n);
        up = pl_slice(b->g, up, 1, ff.one.n, ff.one.n);
    } else {
        gate =
            model_matmul(b, h, gate_name, PL_ROLE_FFN_GATE, ff.one, e, false);
        up = model_matmul(b, h, up_name, PL_ROLE_FFN_UP, ff.one, e, false);
    }
    h = joined(b, glu, gate, up, b->m->clamp_shared);
    return model_matmul(b, h, down, PL_ROLE_FFN_DOWN, e, ff.one, false);
}

pl_tensor model_mlp(struct build *b, pl_tensor h, model_glu *glu)
{
    return mlp(b, h, glu, "", d_ff(b));
}

pl_tensor model_relu_squared(struct build *b, pl_tensor x)
{
    return pl_sqr(b->g, pl_relu(b->g, x));
}

static pl_tensor expert_weight(struct build *b, const char *base, pl_role role,
                               struct model_dim out, struct model_dim in)
{
    const struct model_dim dim[3] = {{b->m->n_expert, "expert_count"}, out, in};

    return model_weight(b, base, "weight", role, false, 3, dim);
}

/* Returns the biases `base`.bias of the experts chosen for each token, [n_tok,
 * n_used, out]. Returns -1 if the file has no such biases. */
static pl_tensor expert_bias(struct build *b, const char *base, pl_role role,
                             struct model_dim out, pl_tensor ids)
{
    const struct model_dim dim[2] = {{b->m->n_expert, "expert_count"}, out};
    pl_tensor bias =
        model_weight(b, base, "bias", bias_role(role), true, 2, dim);

    return bias < 0 ? -1 : pl_gather_rows(b->g, bias, ids);
}

/* Multiplies x [n_tok, 1, in] by the matrices of the experts chosen for each
 * token, whose numbers are in `ids` [n_tok, n_used]. Returns [n_tok, n_used,
 * out]. */
static pl_tensor expert_matmul(struct build *b, pl_tensor x, pl_tensor ids,
                               const char *base, pl_role role,
                               struct model_dim out)
{
    pl_tensor w = expert_weight(b, base, role, out, model_width(b));
    pl_tensor y =
        scaled_by_expert(b, pl_expert_matmul(b->g, x, w, ids), base, ids);
    pl_tensor bias = expert_bias(b, base, role, out, ids);

    return bias < 0 ? y : pl_add(b->g, y, bias);
}

/* Returns the result of the shared expert, which computes for every token
 * besides the chosen experts. */
static pl_tensor shared_expert(struct build *b, pl_tensor h, model_glu *glu)
{
    pl_tensor y = mlp(b, h, glu, "_shexp", d_shared(b)), gate;

    if (!b->m->shared_gate)
        return y;
    gate = model_matmul(b, h, "ffn_gate_inp_shexp", PL_ROLE_ROUTER,
                        (struct model_dim){1, "one shared expert"},
                        model_width(b), false);
    return pl_mul(b->g, y, pl_sigmoid(b->g, gate));
}

pl_tensor model_router(struct build *b, pl_tensor h)
{
    const struct model_dim n_expert = {b->m->n_expert, "expert_count"};

    return model_matmul(b, h, "ffn_gate_inp", PL_ROLE_ROUTER, n_expert,
                        model_width(b), false);
}

/* Returns the bias that the router adds before it chooses experts, -1 if there
 * is none. Its name has no suffix in some families' files. */
static pl_tensor selection_bias(struct build *b, struct model_dim n)
{
    const struct model *m = b->m;
    const char *suffix =
        m->select_bias && !model_has(b, "exp_probs_b", "bias") ? NULL : "bias";
    const bool optional = m->select_bias || m->gating != PL_GATING_SIGMOID;

    if (!m->select_bias && !m->family->shared)
        return -1;
    return model_weight(b, "exp_probs_b", suffix, PL_ROLE_ROUTER_BIAS, optional,
                        1, &n);
}

pl_tensor model_experts(struct build *b, pl_tensor h, pl_tensor logits,
                        model_glu *glu)
{
    const struct model *m = b->m;
    const struct width ff = d_expert(b);
    const struct model_dim e = model_width(b);
    const struct model_dim n_expert = {m->n_expert, "expert_count"};
    const int used = (int)m->n_expert_used;
    pl_tensor ids =
        b->expert_ids >= 0
            ? b->expert_ids
            : pl_router_topk(b->g, logits, selection_bias(b, n_expert),
                             m->gating, used, (int)m->n_group,
                             (int)m->n_group_used);
    pl_tensor w = pl_router_weights(b->g, logits, ids, m->gating, m->normalise,
                                    m->routed);
    pl_tensor x = model_heads(b, h, 1, e.n);
    pl_tensor gate = -1, up, weight, of_result;

    model_name(b, ids, "ffn_moe_topk");
    /* The matrices have the rows of gate, then those of up. */
    if (b->hidden) {
        up = expert_matmul(b, x, ids, "ffn_up_exps", PL_ROLE_FFN_UP_EXPS,
                           ff.one);
        up = b->hidden(b, up);
    } else if (model_has(b, "ffn_gate_up_exps", "weight")) {
        up = expert_matmul(b, x, ids, "ffn_gate_up_exps",
                           PL_ROLE_FFN_GATE_UP_EXPS, ff.two);
        gate = pl_slice(b->g, up, 2, 0, ff.one.n);
        up = pl_slice(b->g, up, 2, ff.one.n, ff.one.n);
    } else {
        gate = expert_matmul(b, x, ids, "ffn_gate_exps", PL_ROLE_FFN_GATE_EXPS,
                             ff.one);
        up = expert_matmul(b, x, ids, "ffn_up_exps", PL_ROLE_FFN_UP_EXPS,
                           ff.one);
    }
    w = model_heads(b, w, used, 1);
    /* The scale of the matrix ffn_down_exps is applied before the product, to
     * the hidden values of each expert, together with the expert's weight. */
    weight = scaled_by_expert(b, w, "ffn_down_exps", ids);
    if (!b->hidden)
        up = joined(b, glu, gate, up, m->clamp_expert);
    x = pl_mul(b->g, up, weight);
    weight =
        expert_weight(b, "ffn_down_exps", PL_ROLE_FFN_DOWN_EXPS, e, ff.one);
    x = pl_expert_down(b->g, x, weight, ids);
    of_result = expert_bias(b, "ffn_down_exps", PL_ROLE_FFN_DOWN_EXPS, e, ids);
    if (of_result >= 0)
        x = pl_add(b->g, x, pl_sum(b->g, pl_mul(b->g, of_result, w)));
    if (m->n_shared > 0 || m->d_shared > 0)
        x = pl_add(b->g, x, shared_expert(b, h, glu));
    return m->shared_mean ? pl_scale(b->g, x, 0.5f) : x;
}

/* Building the output and whole networks --------------------------------- */

/* Normalises the result of the last layer. A multi-token-prediction block may
 * have its own weight for this norm. */
static pl_tensor last_norm(struct build *b, pl_tensor x)
{
    const bool own =
        b->block && model_has(b, "nextn.shared_head_norm", "weight");

    if (!own)
        model_layer(b, -1);
    x = model_norm(b, x,
                   own                 ? "nextn.shared_head_norm"
                   : b->m->output_norm ? b->m->output_norm
                                       : "output_norm",
                   model_width(b));
    pl_name(b->g, x, "result_norm");
    return x;
}

/* Multiplies x by the output matrix, which yields logits. A
 * multi-token-prediction block may have its own output matrix. */
static pl_tensor last_matmul(struct build *b, pl_tensor x)
{
    const struct model_dim vocab = {b->m->n_vocab, b->m->vocab_key};
    const struct model_dim e = model_width(b);
    bool tied;

    if (b->block) {
        model_layer(b, b->first);
        if (model_has(b, "nextn.shared_head_head", "weight"))
            return model_matmul(b, x, "nextn.shared_head_head", PL_ROLE_OUTPUT,
                                vocab, e, false);
        model_layer(b, -1);
    }
    tied = !model_has(b, "output", "weight");
    return model_matmul(b, x, tied ? "token_embd" : "output",
                        tied ? PL_ROLE_TOKEN_EMBD : PL_ROLE_OUTPUT, vocab, e,
                        false);
}

/* Builds the output hidden_rows from the result x of the last layer. The
 * weight of the last norm exists already. */
static void hidden_rows(struct build *b, pl_tensor x)
{
    const struct model *m = b->m;
    const struct model_dim e = model_width(b);
    pl_tensor w = -1;

    if (m->next_normed)
        w = model_weight(b, m->output_norm ? m->output_norm : "output_norm",
                         "weight", PL_ROLE_NORM, false, 1, &e);
    model_layer(b, m->n_layer - 1);
    x = pl_rms_norm(b->g, x, w, m->eps);
    pl_name(b->g, x, "hidden_rows");
    pl_output(b->g, x);
    graph_aside(b->g, x);
}

/* Adds the class head for x [n_out, d_model], the result of the last norm.
 * Encoders have a dense layer first: tanh(cls x), or norm(gelu(cls x)) if the
 * file has cls.norm. The scores of other models are the probabilities of the
 * classes. */
static void class_head(struct build *b, pl_tensor x)
{
    const struct model_dim e = model_width(b);
    const struct model_dim n = {b->m->n_label, "rows of the class head"};
    const bool has_last = model_has(b, "cls.output", "weight");

    if (n.n == 0)
        return;
    if (has_last && model_has(b, "cls", "weight")) {
        x = model_matmul(b, x, "cls", PL_ROLE_NONE, e, e, false);
        x = model_has(b, "cls.norm", "weight")
                ? model_norm(b, pl_gelu_erf(b->g, x), "cls.norm", e)
                : pl_tanh(b->g, x);
    }
    x = model_matmul(b, x, has_last ? "cls.output" : "cls", PL_ROLE_NONE, n, e,
                     false);
    if (!b->m->encoder)
        x = pl_softmax(b->g, x);
    pl_name(b->g, x, "scores");
    pl_output(b->g, x);
}

void model_head(struct build *b, pl_tensor x)
{
    const pl_tensor all = x;

    /* Selects the rows of the tokens that get logits. This node still belongs
     * to the last layer. */
    x = pl_gather_rows(b->g, x, b->out_ids);
    pl_name(b->g, x, "result_hidden");
    x = last_norm(b, x);
    if (!b->block)
        class_head(b, x);
    x = times(b, last_matmul(b, x), b->m->logit_scale);
    if (b->m->softcap > 0) {
        x = pl_tanh(b->g, pl_scale(b->g, x, 1 / b->m->softcap));
        x = pl_scale(b->g, x, b->m->softcap);
    }
    pl_name(b->g, x, "logits");
    pl_output(b->g, x);
    if (b->hidden_rows)
        hidden_rows(b, all);
}

pl_tensor model_gelu(struct build *b, pl_tensor x)
{
    return pl_gelu(b->g, x);
}

void model_embeddings(struct build *b, pl_tensor x)
{
    static const char *const dense[] = {"dense_2", "dense_3"};
    struct model_dim in = model_width(b);

    x = pl_gather_rows(b->g, x, b->out_ids);
    model_layer(b, -1);
    for (int i = 0; i < 2; i++)
        if (model_has(b, dense[i], "weight")) {
            const struct model_dim out = {i == 1 ? b->m->d_model
                                                 : model_rows(b, dense[i]),
                                          "embedding_length"};

            x = model_matmul(b, x, dense[i], PL_ROLE_NONE, out, in, false);
            in = out;
        }
    pl_name(b->g, x, "result_norm");
    pl_output(b->g, x);
    class_head(b, x);
}

/* Returns the norm of the result x of a part of a layer. */
static pl_tensor post_norm(struct build *b, pl_tensor x, const char *base,
                           float eps)
{
    const struct model_dim e = model_width(b);
    pl_tensor w = model_weight(b, base, "weight", PL_ROLE_NORM, false, 1, &e);

    return pl_rms_norm(b->g, x, w, eps > 0 ? eps : b->m->eps);
}

/* Returns the input of a part of a layer: x, or the norm of x. */
static pl_tensor part_input(struct build *b, pl_tensor x, const char *norm,
                            const char *name, const struct model_layers *o)
{
    if (o->bare)
        return x;
    return model_name(b, model_norm(b, x, norm, model_width(b)), name);
}

/* Returns x plus the result y of a part of a layer. */
static pl_tensor part_added(struct build *b, pl_tensor x, pl_tensor y,
                            const char *norm, const struct model_layers *o)
{
    if (o->post_norm)
        y = post_norm(b, y, norm, o->post_eps);
    return pl_add(b->g, x, times(b, y, b->m->residual_scale));
}

pl_tensor model_feed_forward(struct build *b, pl_tensor h,
                             const struct model_layers *o)
{
    model_glu *glu = o->glu ? o->glu : pl_swiglu;

    return model_is_dense(b->m, b->layer)
               ? model_mlp(b, h, glu)
               : model_experts(b, h, model_router(b, h), glu);
}

void model_decoder(struct build *b, const struct model_layers *o)
{
    int64_t end = b->m->n_layer;
    pl_tensor x = o->mtp ? model_enter(b, &end) : model_embed(b), h, norm;

    b->hidden = o->hidden;
    if (o->embd_norm)
        x = pl_rms_norm(b->g, x, -1, b->m->eps);
    for (int64_t i = b->first; i < end; i++) {
        model_layer(b, i);
        norm = part_input(b, x, "attn_norm", "attn_norm", o);
        h = b->m->recurrent && b->m->recurrent[i]
                ? (o->recurrent ? o->recurrent : model_delta_net)(b, norm)
                : (o->attend ? o->attend : model_attention)(b, norm,
                                                            &o->attention);
        if (o->beside)
            h = pl_add(b->g, h, o->beside(b, norm));
        if (o->parallel) {
            h = pl_add(b->g, h, model_feed_forward(b, norm, o));
            x = pl_add(b->g, x, h);
        } else {
            x = part_added(b, x, h, "post_attention_norm", o);
            model_name(b, x, "ffn_inp");
            h = part_input(b, x, o->ffn_norm ? o->ffn_norm : "ffn_norm",
                           "ffn_norm", o);
            x = part_added(b, x, model_feed_forward(b, h, o), "post_ffw_norm",
                           o);
        }
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    if (b->m->encoder) {
        model_layer(b, -1);
        model_embeddings(b, model_norm(b, x, "output_norm", model_width(b)));
    } else {
        model_head(b, x);
    }
}
