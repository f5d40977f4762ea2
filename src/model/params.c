/* Reads hyper-parameters, with the defaults that writers of GGUF files rely on.
 * weight.c checks that the shapes of the tensors agree with them. */
#include "model/params.h"

#include "base/err.h"
#include "model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *params_key(const struct model *m, const char *name,
                       struct params_key *k)
{
    snprintf(k->s, sizeof k->s, "%s.%s", m->family->arch, name);
    return k->s;
}

static bool params_has(const struct model *m, const char *name)
{
    struct params_key k;

    return gguf_find(m->file, params_key(m, name, &k)) != NULL;
}

pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err)
{
    struct params_key k;

    return gguf_need_i64(m->file, params_key(m, name, &k), 1, hi, out, err);
}

pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err)
{
    struct params_key k;

    return gguf_get_i64(m->file, params_key(m, name, &k), def, lo, hi, out,
                        err);
}

pl_status params_factor(const struct model *m, const char *name, double def,
                        bool zero, double *out, pl_err *err)
{
    struct params_key k;

    PL_TRY(gguf_get_f64(m->file, params_key(m, name, &k), def, out, err));
    if ((zero && *out == 0) || (*out >= 1e-6 && *out <= 1e6))
        return PL_OK;
    return err_set(err, PL_BAD_FILE, "%s: key %s is %g, not in 1e-6 .. 1e6%s",
                   gguf_path(m->file), k.s, *out, zero ? ", nor 0 (none)" : "");
}

/* Allocates an array of integers with an element for each layer and each
 * multi-token-prediction block. Returns NULL and sets the error if out of
 * memory. */
static int64_t *layers_alloc(struct model *m, pl_err *err)
{
    int64_t *v =
        arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next), sizeof *v);

    if (!v)
        err_no_memory(err, "hyper-parameters");
    return v;
}

/* Returns the least number of heads of a layer, and the least width of its
 * feed-forward part: 0 in families whose layers have one part each. */
static int64_t least(const struct model *m)
{
    return m->family->graph == model_nemotron_h ? 0 : 1;
}

static pl_status per_layer(struct model *m, const char *name, int64_t lo,
                           int64_t hi, const int64_t *def, const int64_t **out,
                           pl_err *err)
{
    struct params_key k;
    const struct gguf_kv *kv = gguf_find(m->file, params_key(m, name, &k));
    int64_t *v;

    *out = def;
    if (!kv && def)
        return PL_OK;
    v = layers_alloc(m, err);
    if (!v)
        return PL_NO_MEMORY;
    *out = v;
    if (!kv || kv->type != GGUF_ARRAY) {
        PL_TRY(gguf_need_i64(m->file, k.s, least(m), hi, &v[0], err));
        for (int64_t i = 1; i < m->n_layer; i++)
            v[i] = v[0];
        return PL_OK;
    }
    if (kv->count < (uint64_t)m->n_layer)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s has %" PRIu64 " values, %" PRId64
                       " by block_count; the file is damaged",
                       gguf_path(m->file), k.s, kv->count, m->n_layer);
    for (int64_t i = 0; i < m->n_layer; i++)
        if (!gguf_as_i64(kv, (uint64_t)i, &v[i]) || v[i] < lo || v[i] > hi)
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s: value %" PRId64
                           " is not an integer in %" PRId64 " .. %" PRId64
                           "; the file is damaged",
                           gguf_path(m->file), k.s, i, lo, hi);
    return PL_OK;
}

pl_status params_per_layer(struct model *m, const char *name, int64_t hi,
                           const int64_t *def, const int64_t **out, pl_err *err)
{
    return per_layer(m, name, least(m), hi, def, out, err);
}

static pl_status read_vocab(struct model *m, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(m->file, "tokenizer.ggml.tokens");
    const struct gguf_tensor *t =
        gguf_find_tensor(m->file, "token_embd.weight");

    if (kv && kv->type == GGUF_ARRAY && kv->count >= 1 &&
        kv->count <= MAX_WIDTH) {
        m->n_vocab = (int64_t)kv->count;
        m->vocab_key = "the length of tokenizer.ggml.tokens";
        return PL_OK;
    }
    m->vocab_key = "vocab_size";
    return params_get(m, "vocab_size", t && t->n_dim == 2 ? t->dim[0] : 1, 1,
                      MAX_WIDTH, &m->n_vocab, err);
}

pl_status params_head_width(struct model *m, const char *name, int64_t def,
                            const int64_t **out, pl_err *err)
{
    int64_t *v = layers_alloc(m, err);

    if (!v)
        return PL_NO_MEMORY;
    *out = v;
    PL_TRY(params_get(m, name, def, 1, MAX_HEAD, &v[0], err));
    for (int64_t i = 1; i < m->n_layer; i++)
        v[i] = v[0];
    return PL_OK;
}

static pl_status read_attention(struct model *m, pl_err *err)
{
    int64_t def;
    struct params_key k;

    PL_TRY(params_per_layer(m, "attention.head_count", MAX_HEAD, NULL,
                            &m->n_head, err));
    PL_TRY(per_layer(m, "attention.head_count_kv", 0, MAX_HEAD, m->n_head,
                     &m->n_head_kv, err));
    for (int64_t i = 0; i < m->n_layer; i++)
        if (m->n_head_kv[i] > 0 &&
            (m->n_head[i] == 0 || m->n_head[i] % m->n_head_kv[i]))
            return err_set(err, PL_BAD_FILE,
                           "%s: layer %" PRId64 ": %s is %" PRId64
                           ", not a multiple of head_count_kv, %" PRId64,
                           gguf_path(m->file), i,
                           params_key(m, "attention.head_count", &k),
                           m->n_head[i], m->n_head_kv[i]);
    if (m->n_head[0] == 0) { /* No layer has attention. */
        PL_TRY(params_head_width(m, "attention.key_length", 2, &m->d_key, err));
        m->d_value = m->d_key;
        return PL_OK;
    }
    def = m->d_model / m->n_head[0];
    if (!params_has(m, "attention.key_length") && m->d_model % m->n_head[0])
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is missing, and embedding_length, %" PRId64
                       ", is not a multiple of head_count, %" PRId64,
                       gguf_path(m->file),
                       params_key(m, "attention.key_length", &k), m->d_model,
                       m->n_head[0]);
    PL_TRY(params_head_width(m, "attention.key_length", def, &m->d_key, err));
    return params_head_width(m, "attention.value_length", def, &m->d_value,
                             err);
}

/* Reads the number of groups of experts and of those used. The router chooses
 * only experts of the best n_group_used groups. */
static pl_status read_groups(struct model *m, pl_err *err)
{
    struct params_key k;

    PL_TRY(params_get(m, "expert_group_count", 1, 0, m->n_expert, &m->n_group,
                      err));
    if (m->n_group <= 1) {
        m->n_group = 0;
        return PL_OK;
    }
    PL_TRY(params_get(m, "expert_group_used_count", m->n_group, 1, m->n_group,
                      &m->n_group_used, err));
    if (m->n_expert % m->n_group || m->n_expert < 2 * m->n_group ||
        m->n_expert / m->n_group * m->n_group_used < m->n_expert_used)
        return err_set(
            err, PL_BAD_FILE,
            "%s: key %s is %" PRId64 ": %" PRId64
            " experts cannot form groups of two or more, of which %" PRId64
            " have %" PRId64,
            gguf_path(m->file), params_key(m, "expert_group_count", &k),
            m->n_group, m->n_expert, m->n_group_used, m->n_expert_used);
    return PL_OK;
}

pl_status params_router(struct model *m, pl_gating gating, bool normalise,
                        pl_err *err)
{
    struct params_key k;
    int64_t number;
    double routed;

    PL_TRY(params_get(m, "leading_dense_block_count", 0, 0, m->n_layer,
                      &m->n_dense, err));
    PL_TRY(params_get(m, "expert_gating_func",
                      gating == PL_GATING_SOFTMAX ? 1 : 2, 0, INT32_MAX,
                      &number, err));
    if (number != 1 && number != 2)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: key %s is %" PRId64 "; for %s only 1, softmax, and "
                       "2, sigmoid, are supported",
                       gguf_path(m->file),
                       params_key(m, "expert_gating_func", &k), number,
                       m->family->arch);
    m->gating = number == 1 ? PL_GATING_SOFTMAX : PL_GATING_SIGMOID;
    PL_TRY(gguf_get_bool(m->file, params_key(m, "expert_weights_norm", &k),
                         normalise, &m->normalise, err));
    PL_TRY(params_factor(m, "expert_weights_scale", 1, true, &routed, err));
    m->routed = routed == 0 ? 1 : (float)routed;
    if (m->n_dense > 0)
        PL_TRY(params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL,
                                &m->d_ff, err));
    return PL_OK;
}

pl_status params_shared(struct model *m, int64_t def, pl_err *err)
{
    PL_TRY(params_get(m, "expert_shared_count", def, 0, MAX_EXPERT,
                      &m->n_shared, err));
    return params_get(m, "expert_shared_feed_forward_length", 0, 0, MAX_WIDTH,
                      &m->d_shared, err);
}

/* Reads the keys that only families with a shared expert have. If a key is
 * absent, its default is the value for which writers omit it. */
static pl_status read_shared(struct model *m, pl_err *err)
{
    struct params_key k;

    PL_TRY(gguf_need_i64(m->file, params_key(m, "expert_shared_count", &k), 0,
                         MAX_EXPERT, &m->n_shared, err));
    return params_router(m, PL_GATING_SIGMOID, false, err);
}

static pl_status read_experts(struct model *m, pl_err *err)
{
    m->gating = PL_GATING_SOFTMAX;
    m->normalise = true;
    m->routed = 1;
    if (m->family->moe == MOE_IF_GIVEN)
        PL_TRY(
            params_get(m, "expert_count", 0, 0, MAX_EXPERT, &m->n_expert, err));
    if (m->family->moe == MOE_ALWAYS)
        PL_TRY(params_need(m, "expert_count", MAX_EXPERT, &m->n_expert, err));
    if (m->n_expert == 0) {
        m->n_dense = m->n_layer;
        return params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL,
                                &m->d_ff, err);
    }
    PL_TRY(params_need(m, "expert_used_count", m->n_expert, &m->n_expert_used,
                       err));
    PL_TRY(params_per_layer(m, m->family->expert_width, MAX_WIDTH, NULL,
                            &m->d_expert, err));
    PL_TRY(read_groups(m, err));
    return m->family->shared ? read_shared(m, err) : PL_OK;
}

static bool is(struct gguf_str s, const char *word)
{
    return s.len == strlen(word) && !memcmp(s.s, word, s.len);
}

/* Limits of YaRN's ramp: how often a pair of values turns within the original
 * context. Pairs that turn more than `fast` times, or fewer than `slow` times,
 * are outside the ramp. */
struct turns {
    double fast, slow;
};

static pl_status read_turns(const struct model *m, struct turns *t, pl_err *err)
{
    struct params_key k;

    PL_TRY(params_factor(m, "rope.scaling.yarn_beta_fast", 32, false, &t->fast,
                         err));
    PL_TRY(params_factor(m, "rope.scaling.yarn_beta_slow", 1, false, &t->slow,
                         err));
    if (t->slow <= t->fast)
        return PL_OK;
    return err_set(
        err, PL_BAD_FILE, "%s: key %s is %g, more than yarn_beta_fast, %g",
        gguf_path(m->file), params_key(m, "rope.scaling.yarn_beta_slow", &k),
        t->slow, t->fast);
}

/* Reads the length in tokens of the context with which the model was trained,
 * which YaRN extends. */
static pl_status read_original(const struct model *m, int64_t *out, pl_err *err)
{
    return params_get(m, "rope.scaling.original_context_length", m->n_ctx_train,
                      1, MAX_WIDTH, out, err);
}

/* Sets the parameters of YaRN (arXiv:2309.00071). Pairs of values that turn
 * often within the original context keep their frequency. That of slow pairs is
 * divided by `factor`. For the pairs between these, on the ramp, both are
 * mixed. Cos and sin are scaled by mscale. */
static void set_yarn(pl_rope *r, double base, double factor, double n_ctx,
                     struct turns t)
{
    double n = r->n_rot, low, high;

    low = floor(n * log(n_ctx / (2 * M_PI * t.fast)) / (2 * log(base)));
    high = ceil(n * log(n_ctx / (2 * M_PI * t.slow)) / (2 * log(base)));
    r->yarn = true;
    r->yarn_low = (float)fmax(0, low);
    r->yarn_high = (float)fmin(n - 1, high);
    if (factor > 1)
        r->mscale *= (float)(1 + 0.1 * log(factor));
}

/* Reads the factor by which RoPE divides positions, from the key
 * rope.scaling.factor or, if that is absent, from the older key
 * rope.scale_linear. */
static pl_status read_factor(const struct model *m, double *out, pl_err *err)
{
    const char *name = params_has(m, "rope.scaling.factor")
                           ? "rope.scaling.factor"
                           : "rope.scale_linear";

    PL_TRY(params_factor(m, name, 1, true, out, err));
    *out = *out == 0 ? 1 : *out;
    return PL_OK;
}

pl_status params_flags(struct model *m, const char *name, bool **out,
                       pl_err *err)
{
    const char *path = gguf_path(m->file);
    const int64_t n = m->n_layer + m->n_next;
    struct params_key k;
    const struct gguf_kv *kv = gguf_find(m->file, params_key(m, name, &k));

    *out = NULL;
    if (!kv)
        return PL_OK;
    if (kv->type != GGUF_ARRAY || kv->count < (uint64_t)m->n_layer)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is not a list of %" PRId64
                       " values, one per layer; convert the model again",
                       path, k.s, m->n_layer);
    *out = arena_alloc(&m->arena, (size_t)n, sizeof **out);
    if (!*out)
        return err_no_memory(err, "hyper-parameters");
    for (int64_t i = 0; i < n && i < (int64_t)kv->count; i++)
        if (!gguf_as_bool(kv, (uint64_t)i, &(*out)[i]))
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s: value %" PRId64 " is neither true nor "
                           "false; the file is damaged",
                           path, k.s, i);
    return PL_OK;
}

pl_status params_windows(struct model *m, int64_t pattern, int64_t width,
                         pl_err *err)
{
    const bool full_first = pattern < 0;
    int64_t period = full_first ? -pattern : pattern;
    static const char name[] = "attention.sliding_window_pattern";
    struct params_key k;
    const struct gguf_kv *kv = gguf_find(m->file, params_key(m, name, &k));
    int64_t *window = layers_alloc(m, err);
    bool *has = NULL;

    if (!window)
        return PL_NO_MEMORY;
    if (period > 0 && (!kv || kv->type != GGUF_ARRAY))
        PL_TRY(params_get(m, name, period, 1, INT32_MAX, &period, err));
    else if (kv)
        PL_TRY(params_flags(m, name, &has, err));
    else
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is missing; it is a list of %" PRId64
                       " values, one per layer; convert the model again",
                       gguf_path(m->file), k.s, m->n_layer);
    if (has && width == 0)
        PL_TRY(
            params_need(m, "attention.sliding_window", MAX_WIDTH, &width, err));
    else
        PL_TRY(params_get(m, "attention.sliding_window", width, 0, MAX_WIDTH,
                          &width, err));
    for (int64_t i = 0; i < m->n_layer; i++) {
        const bool by_period =
            period > 0 &&
            (full_first ? i % period != 0 : i % period < period - 1);

        window[i] = (has ? has[i] : by_period) ? width : 0;
    }
    m->window = window;
    return PL_OK;
}

static pl_status no_memory_for_keys(pl_err *err)
{
    return err_no_memory(err, "hyper-parameters");
}

static pl_status read_epsilon(struct model *m, const char *name, pl_err *err)
{
    struct params_key k;
    double eps;

    PL_TRY(gguf_need_f64(m->file, params_key(m, name, &k), &eps, err));
    /* With an epsilon of 0, the norm would turn a row of zeros into NaN. */
    if (!(eps >= 1e-30) || eps > 1)
        return err_set(err, PL_BAD_FILE, "%s: key %s is %g, not in 1e-30 .. 1",
                       gguf_path(m->file), k.s, eps);
    m->eps = (float)eps;
    return PL_OK;
}

pl_status params_layer_norm(struct model *m, pl_err *err)
{
    m->layer_norm = true;
    return read_epsilon(m, "attention.layer_norm_epsilon", err);
}

pl_status params_encoder(struct model *m, pl_err *err)
{
    struct params_key k;
    bool causal;

    PL_TRY(gguf_get_bool(m->file, params_key(m, "attention.causal", &k), false,
                         &causal, err));
    if (causal)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: key %s is true; for %s only false is supported",
                       gguf_path(m->file), k.s, m->family->arch);
    m->encoder = true;
    /* The cast from const is safe, because this file allocated the array. */
    for (int64_t i = 0; m->window && i < m->n_layer; i++)
        if (m->window[i] > 0)
            ((int64_t *)m->window)[i] = m->window[i] / 2 + 1;
    return PL_OK;
}

pl_status params_no_rope(struct model *m, int64_t period, int64_t first,
                         pl_err *err)
{
    bool *none =
        arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next), sizeof *none);

    if (!none)
        return no_memory_for_keys(err);
    for (int64_t i = first; i < m->n_layer; i++)
        none[i] = period > 0 ? (i + 1) % period == 0 : m->window[i] == 0;
    m->no_rope = none;
    return PL_OK;
}

pl_status params_dense(struct model *m, pl_err *err)
{
    bool *dense =
        arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next), sizeof *dense);

    if (!dense)
        return no_memory_for_keys(err);
    for (int64_t i = 0; i < m->n_layer; i++) {
        char name[48];

        snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_gate_inp.weight", i);
        dense[i] = !model_has_tensor(m, name);
    }
    m->dense = dense;
    return params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL, &m->d_ff,
                            err);
}

pl_status params_layer_floats(struct model *m, const char *key, double lo,
                              double hi, const float **out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(m->file, key);
    float *v;

    *out = NULL;
    if (!kv)
        return PL_OK;
    v = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next), sizeof *v);
    if (!v)
        return no_memory_for_keys(err);
    for (int64_t i = 0; i < m->n_layer; i++) {
        const uint64_t at = kv->type == GGUF_ARRAY ? (uint64_t)i : 0;
        double x;

        if (at >= kv->count || !gguf_as_f64(kv, at, &x) ||
            !(x >= lo && x <= hi))
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s: value %" PRIu64
                           " is missing or not in %g .. %g; the file is "
                           "damaged",
                           gguf_path(m->file), key, at, lo, hi);
        v[i] = (float)x;
    }
    *out = v;
    return PL_OK;
}

pl_status params_scales(struct model *m, pl_err *err)
{
    const struct {
        const char *name;
        float *to;
        bool divides;
    } rows[] = {{"embedding_scale", &m->embedding_scale, false},
                {"residual_scale", &m->residual_scale, false},
                {"attention.scale", &m->query_scale, false},
                {"attention.value_scale", &m->value_scale, false},
                {"logit_scale", &m->logit_scale, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v;

        PL_TRY(params_factor(m, rows[i].name, 0, true, &v, err));
        if (v > 0)
            *rows[i].to = (float)(rows[i].divides ? 1 / v : v);
    }
    return PL_OK;
}

pl_status params_temperature(struct model *m, const char *length, int64_t def,
                             pl_err *err)
{
    const char *path = gguf_path(m->file);
    struct params_key k;
    double temp;

    PL_TRY(
        params_factor(m, "attention.temperature_scale", 0, true, &temp, err));
    m->temp = (float)temp;
    PL_TRY(params_get(m, length, def, 0, INT32_MAX, &m->temp_length, err));
    if (temp > 0 && m->temp_length == 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is missing or 0, but "
                       "attention.temperature_scale is %g; convert the model "
                       "again",
                       path, params_key(m, length, &k), temp);
    if (temp > 0 && m->d_key[0] % 2)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: heads of %" PRId64 " values cannot have a "
                       "temperature; an even number can",
                       path, m->d_key[0]);
    return PL_OK;
}

pl_status params_rope_window(struct model *m, double base, pl_err *err)
{
    int64_t n_rot;

    PL_TRY(params_rope_base(m, "rope.freq_base_swa", base, &base, err));
    PL_TRY(params_get(m, "rope.dimension_count_swa", m->rope.n_rot, 2,
                      m->d_key[0], &n_rot, err));
    PL_TRY(
        params_rope_count(m, "rope.dimension_count_swa", n_rot, &n_rot, err));
    m->rope_window = (pl_rope){.size = sizeof m->rope_window,
                               .n_rot = (int)n_rot,
                               .neox = m->rope.neox,
                               .base = (float)base,
                               .freq_scale = 1,
                               .mscale = 1};
    return PL_OK;
}

pl_status params_of_windows(struct model *m, const char *name,
                            const int64_t **v, pl_err *err)
{
    int64_t n, *own = layers_alloc(m, err);

    if (!own)
        return PL_NO_MEMORY;
    PL_TRY(params_get(m, name, (*v)[0], 1, MAX_HEAD, &n, err));
    for (int64_t i = 0; i < m->n_layer; i++)
        own[i] = m->window[i] > 0 ? n : (*v)[i];
    *v = own;
    return PL_OK;
}

pl_status params_rope_base(const struct model *m, const char *name, double def,
                           double *out, pl_err *err)
{
    struct params_key k;

    PL_TRY(gguf_get_f64(m->file, params_key(m, name, &k), def, out, err));
    if ((float)*out > 1 && *out <= 1e30)
        return PL_OK;
    return err_set(err, PL_BAD_FILE,
                   "%s: key %s is %.9g, not above 1 and at most 1e30",
                   gguf_path(m->file), k.s, *out);
}

pl_status params_rope_count(const struct model *m, const char *name,
                            int64_t d_key, int64_t *out, pl_err *err)
{
    struct params_key k;

    PL_TRY(params_get(m, name, d_key, 2, d_key, out, err));
    if (*out % 2)
        return err_set(err, PL_BAD_FILE, "%s: key %s is %" PRId64 ", not even",
                       gguf_path(m->file), params_key(m, name, &k), *out);
    return PL_OK;
}

pl_status params_softcap(const struct model *m, const char *name, double def,
                         float *out, pl_err *err)
{
    struct params_key k;
    double softcap;

    PL_TRY(gguf_get_f64(m->file, params_key(m, name, &k), def, &softcap, err));
    if (softcap != 0 && !(softcap >= 1e-3 && softcap <= 1e6))
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %g, not in 1e-3 .. 1e6, nor 0 (none)",
                       gguf_path(m->file), k.s, softcap);
    *out = (float)softcap;
    return PL_OK;
}

static pl_status read_pooling(struct model *m, pl_err *err)
{
    int64_t pooling; /* value of the key pooling_type: 0 for PL_POOLING_NONE and
                        so on, -1 if the key is absent */

    PL_TRY(params_get(m, "pooling_type", -1, -1,
                      PL_POOLING_RANK - PL_POOLING_NONE, &pooling, err));
    m->pooling = (pl_pooling)(PL_POOLING_NONE + pooling);
    return PL_OK;
}

pl_status params_rope(const struct model *m, double base, pl_rope *out,
                      pl_err *err)
{
    const char *path = gguf_path(m->file);
    struct params_key k;
    struct gguf_str scaling;
    struct turns turns;
    double factor, stretch;
    int64_t n_rot, n_ctx;

    PL_TRY(
        params_rope_count(m, "rope.dimension_count", m->d_key[0], &n_rot, err));
    PL_TRY(read_factor(m, &factor, err));
    /* The key applies to every type of RoPE scaling. It multiplies cos and sin,
     * so it multiplies products of q and k by its square. */
    PL_TRY(
        params_factor(m, "rope.scaling.attn_factor", 1, false, &stretch, err));
    PL_TRY(gguf_get_str(m->file, params_key(m, "rope.scaling.type", &k),
                        &scaling, err));
    *out = (pl_rope){.size = sizeof *out,
                     .n_rot = (int)n_rot,
                     .neox = m->family->neox,
                     .base = (float)base,
                     .freq_scale = (float)(1 / factor),
                     .mscale = (float)stretch};
    if (!scaling.s || is(scaling, "linear"))
        return PL_OK;
    if (is(scaling, "none")) {
        out->freq_scale = 1;
        return PL_OK;
    }
    if (!is(scaling, "yarn"))
        return err_set(err, PL_UNSUPPORTED,
                       "%s: key %s is '%.*s'; none, linear and yarn are "
                       "supported",
                       path, k.s, (int)(scaling.len < 40 ? scaling.len : 40),
                       scaling.s);
    PL_TRY(read_original(m, &n_ctx, err));
    PL_TRY(read_turns(m, &turns, err));
    set_yarn(out, base, factor, (double)n_ctx, turns);
    return PL_OK;
}

/* Sets m->n_label to the number of rows of the class head's last matrix, 0 if
 * there is none. */
static void read_labels(struct model *m)
{
    const struct gguf_tensor *t =
        gguf_find_tensor(m->file, "cls.output.weight");

    t = t ? t : gguf_find_tensor(m->file, "cls.weight");
    if (m->pooling == PL_POOLING_RANK && t && t->n_dim == 2 &&
        t->dim[0] <= MAX_WIDTH)
        m->n_label = t->dim[0];
}

/* Sets the hyper-parameters of the multi-token-prediction blocks to those of
 * the last layer with attention, because files have none for the blocks. The
 * casts from const are safe, because this file allocated the arrays. */
static void follow_layers(struct model *m)
{
    const int64_t *all[] = {m->n_head, m->n_head_kv, m->d_key, m->d_value,
                            m->d_ff,   m->d_expert,  m->window};
    int64_t last = m->n_layer - 1;

    while (last > 0 && m->recurrent && m->recurrent[last])
        last--;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        for (int64_t i = m->n_layer; all[k] && i < m->n_layer + m->n_next; i++)
            ((int64_t *)all[k])[i] = all[k][last];
}

/* Raises n_ctx_train, the longest context in tokens, to the one that YaRN
 * extends it to. */
static pl_status extend_context(struct model *m, pl_err *err)
{
    int64_t n, reach;

    if (!m->rope.yarn)
        return PL_OK;
    PL_TRY(read_original(m, &n, err));
    reach = llround(fmin((double)n / (double)m->rope.freq_scale, INT32_MAX));
    m->n_ctx_train = m->n_ctx_train > reach ? m->n_ctx_train : reach;
    return PL_OK;
}

pl_status model_params_read(struct model *m, pl_err *err)
{
    struct params_key k;
    double base;

    PL_TRY(params_need(m, "context_length", INT32_MAX, &m->n_ctx_train, err));
    PL_TRY(params_need(m, "embedding_length", MAX_WIDTH, &m->d_model, err));
    PL_TRY(params_need(m, "block_count", MAX_LAYER, &m->n_layer, err));
    PL_TRY(params_get(m, "nextn_predict_layers", 0, 0, m->n_layer - 1,
                      &m->n_next, err));
    /* The key block_count includes the multi-token-prediction blocks, which
     * come after the layers. */
    m->n_layer -= m->n_next;
    PL_TRY(read_vocab(m, err));
    PL_TRY(read_attention(m, err));
    PL_TRY(read_experts(m, err));
    PL_TRY(params_rope_base(m, "rope.freq_base", 10000, &base, err));
    PL_TRY(params_rope(m, base, &m->rope, err));
    PL_TRY(read_pooling(m, err));
    read_labels(m);
    m->query_scale = (float)(1 / sqrt((double)m->d_key[0]));
    m->embedding_scale = m->value_scale = 1;
    m->residual_scale = m->logit_scale = 1;
    if (m->family->read)
        PL_TRY(m->family->read(m, err));
    if (!m->layer_norm)
        PL_TRY(read_epsilon(m, "attention.layer_norm_rms_epsilon", err));
    PL_TRY(extend_context(m, err));
    follow_layers(m);
    for (int64_t i = 0; i < m->n_layer; i++)
        if (m->n_head_kv[i] == 0 && !(m->recurrent && m->recurrent[i]))
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s: layer %" PRId64
                           " has attention but 0 KV heads; it needs 1 or more",
                           gguf_path(m->file),
                           params_key(m, "attention.head_count_kv", &k), i);
    return PL_OK;
}
