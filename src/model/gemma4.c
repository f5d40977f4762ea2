/* gemma4: norms as in gemma3. Heads are wider in layers without a window, and
 * scores are not scaled. The last layers compute no keys and values. They read
 * the cache of the last earlier layer that, like them, has a window or has
 * none. v is normalised without a weight; if the file lacks attn_v, v is the
 * projected k. The result of a layer may be scaled as a whole.
 *
 * Experts, if any, are in addition to the feed-forward part. Their router has a
 * norm of its own (n: norm without a weight):
 *
 *   y = norm(mlp(norm(x))) + norm(experts(norm(x), router(n(x) * scale / s))),
 *   s = sqrt(d_model);  x += norm(y)
 *
 * With per-layer embeddings, tokens contribute P values to each layer i: e_i
 * from a table and r_i from the embedding x0:
 *
 *   p_i = (sqrt(P) e_i + norm(r_i / s)) / sqrt(2)
 *   x += norm(out(gelu(gate x) * p_i))
 *
 * Source: the model cards and configurations of Gemma 4; per-layer embeddings
 * first came with Gemma 3n. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <math.h>

static bool has_window(const struct model *m, int64_t layer)
{
    return m->window[layer] > 0;
}

/* Reads n_shared_kv, the number of layers without a cache of their own. Checks
 * each of these layers: an earlier layer must have a cache with the same number
 * of KV heads, and must have a window if and only if the layer has one. */
static pl_status read_shared_kv(struct model *m, pl_err *err)
{
    const char *path = gguf_path(m->file);
    struct params_key k;
    int64_t own, last[2] = {-1, -1};

    PL_TRY(params_get(m, "attention.shared_kv_layers", 0, 0, m->n_layer - 1,
                      &m->n_shared_kv, err));
    own = m->n_layer - m->n_shared_kv;
    for (int64_t i = 0; i < own; i++)
        last[has_window(m, i)] = i;
    for (int64_t i = own; i < m->n_layer; i++) {
        int64_t from = last[has_window(m, i)];

        if (from < 0)
            return err_set(
                err, PL_BAD_FILE,
                "%s: key %s is %" PRId64 ", but no layer before %" PRId64
                " is, like layer %" PRId64
                ", %s a window, so none can share its keys and values; the "
                "file is damaged",
                path, params_key(m, "attention.shared_kv_layers", &k),
                m->n_shared_kv, own, i, has_window(m, i) ? "with" : "without");
        if (m->n_head_kv[i] != m->n_head_kv[from])
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s is %" PRId64 " in layer %" PRId64
                           ", but %" PRId64 " in layer %" PRId64
                           ", whose keys and values it shares; the file is "
                           "damaged",
                           path, params_key(m, "attention.head_count_kv", &k),
                           m->n_head_kv[i], i, m->n_head_kv[from], from);
    }
    return PL_OK;
}

static pl_status read_rope_window(struct model *m, pl_err *err)
{
    int64_t n_rot, d_key;
    double base;

    PL_TRY(params_get(m, "attention.key_length_swa", m->d_key[0], 1, MAX_HEAD,
                      &d_key, err));
    PL_TRY(
        params_rope_count(m, "rope.dimension_count_swa", d_key, &n_rot, err));
    PL_TRY(params_rope_base(m, "rope.freq_base_swa", 10000, &base, err));
    m->rope_window = (pl_rope){.size = sizeof m->rope_window,
                               .n_rot = (int)n_rot,
                               .neox = m->rope.neox,
                               .base = (float)base,
                               .freq_scale = 1,
                               .mscale = 1};
    return PL_OK;
}

pl_status model_gemma4_read(struct model *m, pl_err *err)
{
    PL_TRY(params_windows(m, 0, 0, err));
    PL_TRY(params_of_windows(m, "attention.key_length_swa", &m->d_key, err));
    PL_TRY(
        params_of_windows(m, "attention.value_length_swa", &m->d_value, err));
    PL_TRY(read_rope_window(m, err));
    PL_TRY(read_shared_kv(m, err));
    PL_TRY(params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL, &m->d_ff,
                            err));
    PL_TRY(params_get(m, "embedding_length_per_layer_input", 0, 0, MAX_WIDTH,
                      &m->d_per_layer, err));
    m->query_scale = 1;
    return params_softcap(m, "final_logit_softcapping", 0, &m->softcap, err);
}

/* Returns the per-layer embeddings p, [n_tok, n_layer, d_per_layer], or -1 if
 * the model has none. x is the input of the first layer. */
static pl_tensor per_layer_inputs(struct build *b, pl_tensor x)
{
    const struct model *m = b->m;
    const struct model_dim one = {m->d_per_layer,
                                  "embedding_length_per_layer_input"};
    const struct model_dim all = {
        m->n_layer * one.n, "block_count * embedding_length_per_layer_input"};
    const struct model_dim table[2] = {{m->n_vocab, m->vocab_key}, all};
    const pl_dim dim[3] = {
        {1, PL_N_TOK}, {m->n_layer, PL_CONST}, {one.n, PL_CONST}};
    pl_tensor e, r;

    if (one.n == 0)
        return -1;
    e = model_weight(b, "per_layer_token_embd", "weight",
                     PL_ROLE_PER_LAYER_EMBD, false, 2, table);
    e = pl_reshape(b->g, pl_gather_rows(b->g, e, b->ids), 3, dim);
    e = pl_scale(b->g, e, (float)sqrt((double)one.n));
    r = model_matmul(b, x, "per_layer_model_proj", PL_ROLE_PER_LAYER_PROJ, all,
                     model_width(b), false);
    r = pl_scale(b->g, r, (float)(1 / sqrt((double)m->d_model)));
    r = model_norm(b, pl_reshape(b->g, r, 3, dim), "per_layer_proj_norm", one);
    return pl_scale(b->g, pl_add(b->g, r, e), (float)sqrt(0.5));
}

static pl_tensor add_per_layer(struct build *b, pl_tensor x, pl_tensor inputs)
{
    const struct model_dim e = model_width(b);
    const struct model_dim n = {b->m->d_per_layer,
                                "embedding_length_per_layer_input"};
    const pl_dim dim[2] = {{1, PL_N_TOK}, {n.n, PL_CONST}};
    pl_tensor own = pl_slice(b->g, inputs, 1, b->layer, 1), h;

    own = pl_reshape(b->g, own, 2, dim);
    h = model_matmul(b, x, "inp_gate", PL_ROLE_PER_LAYER_GATE, n, e, false);
    h = model_matmul(b, pl_geglu(b->g, h, own), "proj", PL_ROLE_PER_LAYER_OUT,
                     e, n, false);
    return pl_add(b->g, x, model_norm(b, h, "post_norm", e));
}

/* Returns the logits of the router for x. The router normalises x by itself and
 * has a scale of its own. */
static pl_tensor router(struct build *b, pl_tensor x)
{
    const struct model_dim e = model_width(b);
    const struct model_dim dim[2] = {{b->m->n_expert, "expert_count"}, e};
    pl_tensor w =
        model_weight(b, "ffn_gate_inp", "scale", PL_ROLE_NORM, false, 1, &e);

    x = pl_rms_norm(b->g, x, w, b->m->eps);
    x = pl_scale(b->g, x, (float)(1 / sqrt((double)e.n)));
    w = model_weight(b, "ffn_gate_inp", "weight", PL_ROLE_ROUTER, false, 2,
                     dim);
    return pl_matmul(b->g, x, w);
}

static pl_tensor feed_forward(struct build *b, pl_tensor x)
{
    const struct model_dim e = model_width(b);
    pl_tensor h = model_norm(b, x, "ffn_norm", e), y, z;

    model_name(b, h, "ffn_norm");
    y = model_mlp(b, h, pl_geglu);
    if (b->m->n_expert == 0)
        return y;
    h = model_norm(b, x, "pre_ffw_norm_2", e);
    z = model_experts(b, h, router(b, x), pl_geglu);
    y = model_norm(b, y, "post_ffw_norm_1", e);
    return pl_add(b->g, y, model_norm(b, z, "post_ffw_norm_2", e));
}

void model_gemma4(struct build *b)
{
    const struct model *m = b->m;
    const struct model_dim e = model_width(b), one = {1, "the rule of one"};
    const struct model_dim half = {m->rope.n_rot / 2,
                                   "rope.dimension_count / 2"};
    pl_tensor freqs = model_weight(b, "rope_freqs", "weight",
                                   PL_ROLE_ROPE_FREQS, true, 1, &half);
    pl_tensor x = pl_scale(b->g, model_embed(b), (float)sqrt((double)e.n));
    pl_tensor inputs = per_layer_inputs(b, x), h, scale;
    /* caches of the latest layer so far without a window, kv[0], and with one,
     * kv[1] */
    struct model_kv kv[2];

    for (int64_t i = 0; i < m->n_layer; i++) {
        const bool window = has_window(m, i);
        const bool own = i < m->n_layer - m->n_shared_kv;
        const struct model_attention o = {.qk_norm = QK_NORM_ALWAYS,
                                          .v_norm = true,
                                          .v_is_k = true,
                                          .freqs = window ? -1 : freqs,
                                          .kv = own ? NULL : &kv[window]};

        model_layer(b, i);
        h = model_norm(b, x, "attn_norm", e);
        model_name(b, h, "attn_norm");
        h = model_attention(b, h, &o);
        kv[window] = b->kv;
        x = pl_add(b->g, x, model_norm(b, h, "post_attention_norm", e));
        model_name(b, x, "ffn_inp");
        h = feed_forward(b, x);
        x = pl_add(b->g, x, model_norm(b, h, "post_ffw_norm", e));
        if (inputs >= 0)
            x = add_per_layer(b, x, inputs);
        scale = model_weight(b, "layer_output_scale", "weight", PL_ROLE_SCALE,
                             true, 1, &one);
        if (scale >= 0)
            x = pl_mul(b->g, x, scale);
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_head(b, x);
}
