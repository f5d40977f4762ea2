/* The equations: graphs of the reference models, evaluated in double precision
 * and unsplit, give the reference logits. A failure is due to the model or the
 * reference evaluation, never to a kernel, a layout or the executor. A model
 * that is not at hand is made (lib/made_model.h), and its logits must have the
 * stored numbers. */
#include "gguf/gguf_write.h"
#include "lib/made_model.h"
#include "lib/model64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* limits of the errors by refs/README.md, section 3, for float activations and
 * a float cache */
static const double MAX_ABS = 1e-3, MAX_RMS = 1e-4;

/* A model with its sequences and their logits. */
struct ref {
    struct model64 d;
    struct ref_seq seq[REF_SEQS];
    float *logits; /* owned, [rows of all sequences, n_vocab]; NULL: the model
                      is made, and has numbers of its logits */
};

/* Opens a model; `path`: a file of the same network in another form, or
 * NULL. */
static void open_ref(struct ref *r, const char *name, const char *path)
{
    int n_row = ref_sequences(name, r->seq);
    size_t n;

    model64_open(&r->d, path ? path : ref_model_path(name));
    r->logits = NULL;
    if (ref_model_is_made(name))
        return;
    r->logits = test_read(test_ref_logits(name), &n);
    assert_int_equal(n, (size_t)(n_row * r->d.m->n_vocab) * sizeof *r->logits);
}

static void close_ref(struct ref *r)
{
    model64_close(&r->d);
    free(r->logits);
}

struct error {
    double max, sum;
    int64_t n;
};

static void compare(struct error *e, const double *x, const float *want,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(x[i] - (double)want[i]);

        e->max = d <= e->max ? e->max : d; /* a NaN stays the maximum */
        e->sum += d * d;
    }
    e->n += n;
}

/* Returns the tensors of next-token layers, after those that are evaluated. */
static int trailing(const struct ref *r)
{
    int n = 0, layer;

    for (int64_t i = 0; i < gguf_n_tensor(r->d.file); i++)
        n += sscanf(gguf_tensor_at(r->d.file, i)->name, "blk.%d.", &layer) ==
                 1 &&
             layer >= r->d.m->n_layer;
    return n;
}

static void check(const char *name, const char *path)
{
    struct ref r;
    struct error e = {0, 0, 0};
    double *x;

    open_ref(&r, name, path);
    x = test_need((size_t)(REF_MAX_TOK * r.d.m->n_vocab), sizeof *x);
    for (int s = 0; s < REF_SEQS; s++) {
        int64_t v = r.d.m->n_vocab;

        model64_sequence(&r.d, &r.seq[s], x);
        if (r.logits)
            compare(&e, x, r.logits + r.seq[s].row * v, r.seq[s].n * v);
        else
            made_model_keeps(name, s, x, r.seq[s].n * v);
    }
    if (!(e.max <= MAX_ABS) || !(e.sum <= MAX_RMS * MAX_RMS * (double)e.n))
        fail_msg("%s: off by %g at most, %g rms", name, e.max,
                 sqrt(e.sum / (double)e.n));
    assert_int_equal(r.d.m->n_unused, trailing(&r));
    free(x);
    close_ref(&r);
}

#define EQUAL(id, name)                                                        \
    TEST(model_logits_equal_the_reference_##id)                                \
    {                                                                          \
        check(name, NULL);                                                     \
    }
/* One model for each path through the blocks, then formats. */
EQUAL(llama_gqa, "llama-gqa-f32")
EQUAL(llama_linear, "llama-linear-f32")
EQUAL(llama_yarn, "llama-yarn-f32")
EQUAL(llama_moe, "llama-moe-f32")
EQUAL(llama3, "llama3-tied-ropefreqs-f16")
EQUAL(qwen2, "qwen2-bias-f32")
EQUAL(qwen3, "qwen3-tied-f32")
EQUAL(qwen3moe, "qwen3moe-f32")
EQUAL(glm4moe, "glm4moe-f32")
EQUAL(gemma3, "gemma3-swa-f32")
EQUAL(gemma4, "gemma4-dense-f32")
EQUAL(gemma4_shared_kv, "gemma4-ple-sharedkv-f32")
EQUAL(gemma4_moe, "gemma4-moe-f32")
EQUAL(gemma4_moe_wide, "gemma4-moe-wide-q4_k_m")
EQUAL(gptoss, "gptoss-f32")
EQUAL(gptoss_mxfp4, "gptoss-mxfp4-q8_0")
EQUAL(deepseek2, "deepseek2-mla-f32")
EQUAL(glm4moe_scaled, "glm4moe-q-q4_k_m")
EQUAL(glm4moe_wide, "glm4moe-wide-q4_k_m")
EQUAL(llama_q8_0, "llama-q-q8_0")
EQUAL(qwen3moe_mxfp4, "qwen3moe-q-mxfp4_moe")
EQUAL(qwen3moe_wide, "qwen3moe-wide-q4_k_m")

/* The families that are not core (lib/ref_models.h). */
TEST(model_logits_of_further_families_equal_the_reference)
{
    static const char made[] = "made/";
    int n = 0;

    for (const char *const *l = ref_models(false); *l; l++)
        if (!ref_model_is_core(*l)) {
            /* the real model where it is at hand */
            assert_int_equal(strncmp(*l, made, sizeof made - 1), 0);
            check(*l + sizeof made - 1, NULL);
            n++;
        }
    assert_in_range(n, 32, 100);
}

/* Other forms of the same network ---------------------------------------- */

/* A reference model that is rewritten as another file, tensor by tensor. */
struct rewrite {
    const struct gguf *in;
    struct gguf_writer *out;
    void *data[256]; /* data of tensors that the writer borrows, owned */
    int n_data;
};

static float *keep(struct rewrite *w, size_t bytes)
{
    float *p = test_need(1, bytes);

    assert_true(w->n_data < 256);
    return w->data[w->n_data++] = p;
}

typedef void rewrite_fn(struct rewrite *w, const struct gguf_tensor *t);

/* A key that a rewritten model lacks, or has with another value. */
struct other_key {
    const char *drop, *put; /* keys to leave out and to add; NULL for none */
    float v;
    bool whole;       /* true if v is written as an integer */
    const char *text; /* text to write instead of v; NULL for v */
};

static bool drops(const struct other_key *key, int n_key, const char *name)
{
    for (int i = 0; i < n_key; i++)
        if (key[i].drop && !strcmp(key[i].drop, name))
            return true;
    return false;
}

/* Returns the path of `name`, rewritten as `out` with other keys, each tensor
 * by `each`. */
static const char *rewritten_keys(const char *file, const char *name,
                                  const struct other_key *key, int n_key,
                                  rewrite_fn *each)
{
    const char *out = test_temp(file);
    struct rewrite w = {.n_data = 0};
    struct gguf *in;
    pl_err err;

    TEST_OK(gguf_open(&in, ref_model_path(name), &err), err);
    TEST_OK(gguf_writer_create(&w.out, &err), err);
    w.in = in;
    for (int64_t i = 0; i < gguf_n_kv(in); i++)
        if (!drops(key, n_key, gguf_kv_at(in, i)->key))
            gguf_put_kv(w.out, gguf_kv_at(in, i));
    for (int i = 0; i < n_key; i++) {
        if (key[i].put && key[i].text)
            gguf_put_str(w.out, key[i].put, key[i].text);
        else if (key[i].put && key[i].whole)
            gguf_put_u32(w.out, key[i].put, (uint32_t)key[i].v);
        else if (key[i].put)
            gguf_put_f32(w.out, key[i].put, key[i].v);
    }
    for (int64_t i = 0; i < gguf_n_tensor(in); i++)
        each(&w, gguf_tensor_at(in, i));
    TEST_OK(gguf_writer_save(w.out, out, &err), err);
    gguf_writer_free(w.out);
    for (int i = 0; i < w.n_data; i++)
        free(w.data[i]);
    gguf_close(in);
    return out;
}

static const char *rewritten_as(const char *file, const char *name,
                                const struct other_key *key, rewrite_fn *each)
{
    return rewritten_keys(file, name, key, 1, each);
}

static const char *rewritten(const char *name, rewrite_fn *each)
{
    return rewritten_keys("rewritten.gguf", name, NULL, 0, each);
}

static void same_each(struct rewrite *w, const struct gguf_tensor *t)
{
    gguf_put_tensor(w->out, t->name, t->format, t->n_dim, t->dim, t->data);
}

/* Makes blk.N.<to> from the rows of blk.N.<parts>, matrix by matrix, if `t` is
 * the first of them. Returns false if t is not a part. */
static bool fuse(struct rewrite *w, const struct gguf_tensor *t, const char *to,
                 int n_part, const char *const *parts)
{
    const struct gguf_tensor *part[3];
    const char *dot = strchr(t->name, '.');
    char name[96];
    int64_t dim[GGUF_MAX_DIM], n_mat, d = t->n_dim >= 3 ? 1 : 0;
    size_t bytes = 0;
    char *data;
    int prefix;

    if (strncmp(t->name, "blk.", 4) != 0)
        return false;
    prefix = (int)(strchr(dot + 1, '.') - t->name) + 1;
    for (int i = 0; i < n_part; i++) {
        if (!strcmp(t->name + prefix, parts[i]) && i > 0)
            /* this tensor was written together with the first of the parts */
            return true;
        snprintf(name, sizeof name, "%.*s%s", prefix, t->name, parts[i]);
        part[i] = gguf_find_tensor(w->in, name);
        bytes += part[i] ? part[i]->bytes : 0;
    }
    if (strcmp(t->name + prefix, parts[0]) != 0)
        return false;
    memcpy(dim, t->dim, sizeof dim);
    n_mat = d ? t->dim[0] : 1;
    for (int i = 1; i < n_part; i++)
        dim[d] += part[i]->dim[d];
    data = (char *)keep(w, bytes);
    snprintf(name, sizeof name, "%.*s%s", prefix, t->name, to);
    gguf_put_tensor(w->out, name, t->format, t->n_dim, dim, data);
    for (int64_t m = 0; m < n_mat; m++)
        for (int i = 0; i < n_part; i++) {
            size_t n = part[i]->bytes / (size_t)n_mat;

            memcpy(data, (const char *)part[i]->data + (size_t)m * n, n);
            data += n;
        }
    return true;
}

static void fuse_each(struct rewrite *w, const struct gguf_tensor *t)
{
    static const char *const qkv[] = {"attn_q.weight", "attn_k.weight",
                                      "attn_v.weight"};
    static const char *const bias[] = {"attn_q.bias", "attn_k.bias",
                                       "attn_v.bias"};
    static const char *const ff[] = {"ffn_gate.weight", "ffn_up.weight"};
    static const char *const exps[] = {"ffn_gate_exps.weight",
                                       "ffn_up_exps.weight"};
    static const char *const shexp[] = {"ffn_gate_shexp.weight",
                                        "ffn_up_shexp.weight"};

    if (!fuse(w, t, "attn_qkv.weight", 3, qkv) &&
        !fuse(w, t, "attn_qkv.bias", 3, bias) &&
        !fuse(w, t, "ffn_gate_up.weight", 2, ff) &&
        !fuse(w, t, "ffn_gate_up_exps.weight", 2, exps) &&
        !fuse(w, t, "ffn_gate_up_shexp.weight", 2, shexp))
        gguf_put_tensor(w->out, t->name, t->format, t->n_dim, t->dim, t->data);
}

/* Divides every matrix by a power of two that its X.scale restores, another one
 * for each expert. */
static void scale_each(struct rewrite *w, const struct gguf_tensor *t)
{
    const char *suffix = strstr(t->name, ".weight");
    int64_t n_mat = t->n_dim == 3 ? t->dim[0] : 1;
    char name[96];
    float *data, *scale;
    size_t n;

    if (t->n_dim < 2 || !suffix) {
        gguf_put_tensor(w->out, t->name, t->format, t->n_dim, t->dim, t->data);
        return;
    }
    assert_int_equal(t->format, PL_F32);
    data = keep(w, t->bytes);
    scale = keep(w, (size_t)n_mat * sizeof *scale);
    n = t->bytes / sizeof *data / (size_t)n_mat;
    memcpy(data, t->data, t->bytes);
    for (int64_t m = 0; m < n_mat; m++) {
        scale[m] = ldexpf(1, (int)((m + n_mat) % 5) - 2);
        for (size_t i = 0; i < n; i++)
            data[(size_t)m * n + i] /= scale[m];
    }
    snprintf(name, sizeof name, "%.*s.scale", (int)(suffix - t->name), t->name);
    gguf_put_tensor(w->out, t->name, t->format, t->n_dim, t->dim, data);
    gguf_put_tensor(w->out, name, PL_F32, 1, &n_mat, scale);
}

TEST(model_logits_fused_matrices_change_nothing)
{
    check("llama-gqa-f32", rewritten("llama-gqa-f32", fuse_each));
    check("qwen2-bias-f32", rewritten("qwen2-bias-f32", fuse_each));
    check("qwen3-tied-f32", rewritten("qwen3-tied-f32", fuse_each));
    check("qwen3moe-f32", rewritten("qwen3moe-f32", fuse_each));
    check("glm4moe-f32", rewritten("glm4moe-f32", fuse_each));
}

/* Writes a tensor for each expert, the last one first. */
static void apart_each(struct rewrite *w, const struct gguf_tensor *t)
{
    const char *mark = strstr(t->name, "_exps.");
    size_t bytes = t->bytes / (size_t)t->dim[0];

    if (!mark) {
        gguf_put_tensor(w->out, t->name, t->format, t->n_dim, t->dim, t->data);
        return;
    }
    for (int64_t e = t->dim[0] - 1; e >= 0; e--) {
        char name[96];

        snprintf(name, sizeof name, "%.*s.%d.weight", (int)(mark - t->name),
                 t->name, (int)e);
        gguf_put_tensor(w->out, name, t->format, t->n_dim - 1, t->dim + 1,
                        (const char *)t->data + (size_t)e * bytes);
    }
}

TEST(model_logits_scales_give_back_what_they_divide)
{
    check("llama-moe-f32", rewritten("llama-moe-f32", scale_each));
    check("qwen2-bias-f32", rewritten("qwen2-bias-f32", scale_each));
    check("qwen3moe-f32", rewritten("qwen3moe-f32", scale_each));
    check("glm4moe-f32", rewritten("glm4moe-f32", scale_each));
}

static void same_graph(const char *name, const char *path)
{
    struct test_text a = {0}, b = {0};
    struct ref r;

    open_ref(&r, name, NULL);
    assert_int_equal(pl_graph_print(r.d.g, test_text_add, &a, NULL), PL_OK);
    close_ref(&r);
    open_ref(&r, name, path);
    assert_int_equal(pl_graph_print(r.d.g, test_text_add, &b, NULL), PL_OK);
    close_ref(&r);
    assert_string_equal(a.s, b.s);
    free(a.s);
    free(b.s);
}

TEST(model_logits_a_tensor_an_expert_is_the_same_graph)
{
    same_graph("llama-moe-f32", rewritten("llama-moe-f32", apart_each));
    same_graph("glm4moe-f32", rewritten("glm4moe-f32", apart_each));
}

/* Returns the logits of the first sequences of `name`, or of its other form,
 * after attention scores are multiplied by `scale`. */
static double *all_logits(const char *name, const char *path, double scale,
                          int64_t *n)
{
    struct ref r;
    double *x;
    int64_t at = 0;

    open_ref(&r, name, path);
    for (int i = 0; i < r.d.g->n_node; i++) {
        struct graph_node *node = &r.d.g->node[i];

        if (node->op == OP_attention || node->op == OP_latent_attention)
            node->attr.scale = (float)((double)node->attr.scale * scale);
    }
    x = test_need((size_t)(REF_SEQS * REF_MAX_TOK * r.d.m->n_vocab), sizeof *x);
    for (int s = 0; s < REF_SEQS; s++) {
        int64_t count = r.seq[s].n * r.d.m->n_vocab;

        memcpy(x + at, model64_step(&r.d, r.seq[s].id, 0, r.seq[s].n),
               (size_t)count * sizeof *x);
        at += count;
    }
    *n = at;
    close_ref(&r);
    return x;
}

static double farthest(const double *a, const double *b, int64_t n)
{
    double max = 0;

    for (int64_t i = 0; i < n; i++)
        max = fabs(a[i] - b[i]) <= max ? max : fabs(a[i] - b[i]);
    return max;
}

/* All values of a head are rotated here, so a factor f on cos and sin
 * multiplies scores by f * f. 2 is exact, so the difference is due to
 * rounding. */
TEST(model_logits_attn_factor_stretches_scores)
{
    static const char *const names[] = {"llama-yarn-f32", "llama-linear-f32"};
    static const char key[] = "llama.rope.scaling.attn_factor";

    for (int i = 0; i < 2; i++) {
        const struct other_key one = {.put = key, .v = 1};
        const struct other_key two = {.put = key, .v = 2};
        const char *path;
        double *got, *want, *plain;
        int64_t n;

        same_graph(names[i],
                   rewritten_as("one.gguf", names[i], &one, same_each));
        path = rewritten_as("two.gguf", names[i], &two, same_each);
        got = all_logits(names[i], path, 1, &n);
        want = all_logits(names[i], NULL, 4, &n);
        plain = all_logits(names[i], NULL, 1, &n);
        if (!(farthest(got, want, n) < 1e-5))
            fail_msg("%s: off by %g", names[i], farthest(got, want, n));
        assert_true(farthest(got, plain, n) > 0.1);
        free(got);
        free(want);
        free(plain);
    }
}

/* The older key counts if the newer one is absent. */
TEST(model_logits_scale_linear_is_the_factor)
{
    static const struct other_key old = {.drop = "llama.rope.scaling.factor",
                                         .put = "llama.rope.scale_linear",
                                         .v = 4};
    static const struct other_key both = {.put = "llama.rope.scale_linear",
                                          .v = 2};
    static const char *const names[] = {"llama-linear-f32", "llama-yarn-f32"};

    for (int i = 0; i < 2; i++) {
        check(names[i], rewritten_as("old.gguf", names[i], &old, same_each));
        same_graph(names[i],
                   rewritten_as("both.gguf", names[i], &both, same_each));
    }
}

/* Writes attn_k_b [head][c][k] and attn_v_b [head][v][c] as the rows of one
 * matrix: for each head first those for keys, then those for values. */
static void kv_b_each(struct rewrite *w, const struct gguf_tensor *t)
{
    const char *at = strstr(t->name, "attn_k_b");
    const struct gguf_tensor *v;
    const float *from = (const float *)t->data, *values;
    int64_t n_head, n_c, n_k, n_v, dim[2];
    char name[96];
    float *to;

    if (strstr(t->name, "attn_v_b"))
        return;
    if (!at) {
        same_each(w, t);
        return;
    }
    snprintf(name, sizeof name, "%.*sattn_v_b.weight", (int)(at - t->name),
             t->name);
    v = gguf_find_tensor(w->in, name);
    assert_non_null(v);
    values = (const float *)v->data;
    n_head = t->dim[0];
    n_c = t->dim[1];
    n_k = t->dim[2];
    n_v = v->dim[1];
    dim[0] = n_head * (n_k + n_v);
    dim[1] = n_c;
    to = keep(w, t->bytes + v->bytes);
    snprintf(name, sizeof name, "%.*sattn_kv_b.weight", (int)(at - t->name),
             t->name);
    gguf_put_tensor(w->out, name, PL_F32, 2, dim, to);
    for (int64_t h = 0; h < n_head; h++) {
        for (int64_t i = 0; i < n_k * n_c; i++)
            *to++ = from[(h * n_c + i % n_c) * n_k + i / n_c];
        memcpy(to, values + h * n_v * n_c, (size_t)(n_v * n_c) * sizeof *to);
        to += n_v * n_c;
    }
}

TEST(model_logits_latents_and_keys_of_heads_are_alike)
{
    static const char name[] = "deepseek2-mla-f32";
    static const struct other_key keys[] = {
        {.drop = "deepseek2.attention.key_length_mla"},
        {.drop = "deepseek2.attention.value_length_mla"},
        {"deepseek2.attention.key_length", "deepseek2.attention.key_length", 48,
         true, NULL},
        {"deepseek2.attention.value_length", "deepseek2.attention.value_length",
         32, true, NULL},
        {"deepseek2.attention.head_count_kv",
         "deepseek2.attention.head_count_kv", 4, true, NULL},
    };

    check(name, rewritten_keys("kv_b.gguf", name, keys, 5, kv_b_each));
}

/* YaRN by a factor of 2 with yarn_log_multiplier l multiplies scores by (1 + l
 * ln 2)^2, and keeps the size of cos and sin. A context so long that no pair is
 * interpolated shows that alone. */
TEST(model_logits_yarn_of_latents_stretches_scores)
{
    static const char name[] = "deepseek2-mla-f32";
    static const struct other_key keys[] = {
        {.put = "deepseek2.rope.scaling.type", .text = "yarn"},
        {.put = "deepseek2.rope.scaling.factor", .v = 2},
        {.put = "deepseek2.rope.scaling.yarn_log_multiplier", .v = 0.5f},
        {.put = "deepseek2.rope.scaling.original_context_length",
         .v = 100000000,
         .whole = true},
    };
    const double stretch = 1 + 0.5 * log(2);
    const char *path = rewritten_keys("yarn.gguf", name, keys, 4, same_each);
    double *got, *want;
    int64_t n;

    got = all_logits(name, path, 1, &n);
    want = all_logits(name, NULL, stretch * stretch, &n);
    if (!(farthest(got, want, n) < 1e-5))
        fail_msg("off by %g", farthest(got, want, n));
    free(got);
    free(want);
}
