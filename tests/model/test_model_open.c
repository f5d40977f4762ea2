/* Opening models: the reference files give the right graphs. A file that lacks
 * a key or a tensor, or has one of another shape, is rejected with a message
 * that names it. */
#include "gguf/gguf_write.h"
#include "graph/graph.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct model_graph_options f16_cache = {.cache_k = PL_F16,
                                                     .cache_v = PL_F16};

static pl_graph *build(const struct model *m)
{
    pl_graph *g;
    pl_err err;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    TEST_OK(model_graph(m, g, &f16_cache, &err), err);
    return g;
}

static const struct graph_node *node(const pl_graph *g, const char *name)
{
    pl_tensor t = pl_tensor_find(g, name);

    if (t < 0)
        fail_msg("no tensor %s", name);
    return &g->node[t];
}

static int count_op(const pl_graph *g, enum op op)
{
    int n = 0;

    for (int i = 0; i < g->n_node; i++)
        n += g->node[i].op == op;
    return n;
}

/* Reference files -------------------------------------------------------- */

static const char *const refs[] = {
    "llama-gqa-f32",     "llama-linear-f32",     "llama-moe-f32",
    "llama-yarn-f32",    "llama-q-bf16",         "llama-q-iq4_nl",
    "llama-q-iq4_xs",    "llama-q-q2_k",         "llama-q-q3_k_s",
    "llama-q-q4_0",      "llama-q-q4_1",         "llama-q-q4_k_m",
    "llama-q-q4_k_s",    "llama-q-q5_0",         "llama-q-q5_1",
    "llama-q-q5_k_s",    "llama-q-q6_k",         "llama-q-q8_0",
    "llama-wide-q4_k_m", "llama-wide-q6_k",      "llama3-tied-ropefreqs-f16",
    "qwen2-bias-f32",    "qwen3-tied-f32",       "qwen3-q-q4_k_m",
    "qwen3moe-f32",      "qwen3moe-q-iq4_xs",    "qwen3moe-q-mxfp4_moe",
    "qwen3moe-q-q4_0",   "qwen3moe-q-q4_k_m",    "qwen3moe-q-q6_k",
    "qwen3moe-q-q8_0",   "qwen3moe-wide-q4_k_m", "qwen3moe-wide-q5_k_m",
    "glm4moe-f32",       "glm4moe-q-q4_k_m",     "glm4moe-wide-q4_k_m",
    "gemma4-dense-f32",  "gemma4-moe-f32",       "gemma4-ple-sharedkv-f32",
    "deepseek2-mla-f32",
};

static const char *ref_path(const char *name)
{
    char file[80];

    snprintf(file, sizeof file, "%s.gguf", name);
    return test_ref_need(file);
}

/* Returns the number of tensors of layers after those that are evaluated. */
static int n_trailing(const struct model *m)
{
    int n = 0, layer;

    for (int64_t i = 0; i < gguf_n_tensor(m->file); i++)
        n += sscanf(gguf_tensor_at(m->file, i)->name, "blk.%d.", &layer) == 1 &&
             layer >= m->n_layer;
    return n;
}

/* Returns the number of products by a matrix: 4 in attention, less those that a
 * layer lacks; 3 in a feed-forward part; the router's; those of per-layer
 * inputs; the logits. */
static int64_t n_matmul(const struct model *m)
{
    const int64_t n_moe = m->n_layer - m->n_dense;
    const bool beside = m->d_ff && n_moe > 0 && m->n_shared == 0;
    int64_t n = 4 * m->n_layer + 3 * (beside ? m->n_layer : m->n_dense) +
                n_moe * (m->n_shared ? 4 : 1) + 1;
    char name[40];

    if (m->d_per_layer > 0)
        n += 2 * m->n_layer + 1;
    for (int64_t i = 0; i < m->n_layer; i++) {
        /* in layers with latents (MLA) q is one matrix, or two */
        if (m->kv_rank > 0) {
            n -= m->q_rank == 0;
            continue;
        }
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", (int)i);
        if (i >= m->n_layer - m->n_shared_kv)
            n -= 2;
        else
            n -= !gguf_find_tensor(m->file, name);
    }
    return n;
}

/* Checks that every weight has its file's shape, caches that of their heads,
 * and each layer the ops that its keys require. */
static void check_graph(const struct model *m, const pl_graph *g)
{
    const struct graph_node *logits = node(g, "logits");
    int64_t n_cache = 0, n_moe = m->n_layer - m->n_dense;

    assert_true(logits->output);
    assert_int_equal(logits->n_dim, 2);
    assert_int_equal(logits->dim[0].symbol, PL_N_OUT);
    assert_int_equal(logits->dim[1].n, m->n_vocab);
    assert_int_equal(node(g, "ids")->format, PL_I32);
    assert_int_equal(node(g, "pos")->dim[0].symbol, PL_N_TOK);
    assert_int_equal(node(g, "out_ids")->dim[0].symbol, PL_N_OUT);
    assert_int_equal(m->n_unused, n_trailing(m));
    assert_null(m->unread);
    assert_int_equal(count_op(g, OP_weight),
                     gguf_n_tensor(m->file) - m->n_unused);
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        const struct gguf_tensor *t;

        n_cache += n->op == OP_memory;
        if (n->op == OP_memory) {
            assert_int_equal(n->format, PL_F16);
            assert_int_equal(n->dim[1].n, m->n_head_kv[n->layer]);
            assert_int_equal(n->dim[2].n, m->latent ? m->kv_rank + m->rope.n_rot
                                          : n->attr.values
                                              ? m->d_value[n->layer]
                                              : m->d_key[n->layer]);
        }
        if (n->op != OP_weight)
            continue;
        t = gguf_find_tensor(m->file, n->name);
        assert_non_null(t);
        assert_int_equal(n->format, t->format);
        assert_int_equal(n->n_dim, t->n_dim);
        assert_int_not_equal(n->role, PL_ROLE_NONE);
        for (int d = 0; d < n->n_dim; d++)
            assert_int_equal(n->dim[d].n, t->dim[d]);
    }
    assert_int_equal(n_cache,
                     (m->latent ? 1 : 2) * (m->n_layer - m->n_shared_kv));
    assert_int_equal(
        count_op(g, m->latent ? OP_latent_attention : OP_attention),
        m->n_layer);
    assert_true(n_moe >= 0 && (m->n_expert > 0) == (n_moe > 0));
    assert_int_equal(count_op(g, OP_expert_down), n_moe);
    assert_int_equal(count_op(g, OP_matmul), n_matmul(m));
    assert_int_equal(count_op(g, OP_head_matmul),
                     m->latent ? 2 * m->n_layer : 0);
}

TEST(model_open_reference_files_give_their_graphs)
{
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        const char *path = ref_path(refs[i]);
        struct gguf *f;
        struct model *m;
        pl_graph *g;
        pl_err err;

        TEST_OK(gguf_open(&f, path, &err), err);
        TEST_OK(model_open(&m, f, &err), err);
        assert_memory_equal(m->family->arch, refs[i], 5);
        g = build(m);
        check_graph(m, g);
        pl_graph_free(g);
        model_close(m);
        gguf_close(f);
    }
}

static pl_graph *open_ref(const char *name, struct gguf **f, struct model **m)
{
    const char *path = ref_path(name);
    pl_err err;

    TEST_OK(gguf_open(f, path, &err), err);
    TEST_OK(model_open(m, *f, &err), err);
    return build(*m);
}

static void close_ref(pl_graph *g, struct gguf *f, struct model *m)
{
    pl_graph_free(g);
    model_close(m);
    gguf_close(f);
}

static const struct graph_node *first(const pl_graph *g, enum op op)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == op)
            return &g->node[i];
    fail_msg("no %s", op_info(op)->name);
    return NULL;
}

/* n_rot 32, base 10000, factor 4, 32 positions: c(32) < 0, c(1) = 2.83. */
TEST(model_open_yarn_ramp_follows_the_formula)
{
    struct gguf *f;
    struct model *m;
    pl_graph *g = open_ref("llama-yarn-f32", &f, &m);
    const struct graph_attr *a = &first(g, OP_rope)->attr;

    assert_int_equal(a->yarn, 1);
    assert_int_equal(a->neox, 0);
    assert_int_equal(a->n_rot, 32);
    assert_float_equal(a->base, 10000, 0);
    assert_float_equal(a->freq_scale, 0.25, 0);
    assert_float_equal(a->yarn_low, 0, 0);
    assert_float_equal(a->yarn_high, 3, 0);
    assert_float_equal(a->mscale, 1 + 0.1 * log(4), 1e-6);
    close_ref(g, f, m);
}

TEST(model_open_tied_embedding_is_one_leaf)
{
    struct gguf *f;
    struct model *m;
    pl_graph *g = open_ref("llama3-tied-ropefreqs-f16", &f, &m);
    const struct graph_node *embd = node(g, "token_embd.weight");
    const struct graph_node *rope = first(g, OP_rope);

    assert_int_equal(embd->role, PL_ROLE_TOKEN_EMBD);
    assert_ptr_equal(&g->node[first(g, OP_gather_rows)->in[0]], embd);
    assert_ptr_equal(&g->node[node(g, "logits")->in[1]], embd);
    assert_string_equal(g->node[rope->in[2]].name, "rope_freqs.weight");
    close_ref(g, f, m);
}

/* Files made here -------------------------------------------------------- */

struct tensor {
    char name[48];
    pl_format format;
    int n_dim;
    int64_t dim[4];
};

/* A small model; tests change it before it is written. */
struct file {
    const char *arch;
    struct {
        char name[64];
        char type; /* type of the value: 'i' integer, 'f' float, 's' string */
        double v;
        const char *s;
    } kv[40];
    int n_kv;
    struct tensor t[96];
    int n_t;
};

enum {
    E = 32,
    H = 4,
    KV = 2,
    D = 16,
    FF = 64,
    DENSE = 96,
    VOCAB = 40,
    EXPERT = 4,
    D_WINDOW = 8,
    PER_LAYER = 12,
    Q_RANK = 20,
    KV_RANK = 24,
    ROT = 6
};

static const uint32_t window_first[2] = {1, 0};

static void put(struct file *f, const char *name, int n_dim, int64_t a,
                int64_t b, int64_t c)
{
    struct tensor *t = &f->t[f->n_t++];

    *t = (struct tensor){.format = PL_F32, .n_dim = n_dim, .dim = {a, b, c, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void put_layer(struct file *f, int layer, const char *name, int n_dim,
                      int64_t a, int64_t b, int64_t c)
{
    char full[48];

    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    put(f, full, n_dim, a, b, c);
}

static void key(struct file *f, const char *name, double v)
{
    snprintf(f->kv[f->n_kv].name, sizeof f->kv[0].name, "%s.%s", f->arch, name);
    f->kv[f->n_kv].type = v == floor(v) ? 'i' : 'f';
    f->kv[f->n_kv++].v = v;
}

/* Adds a key whose value is a list with one number per layer. */
static void key_list(struct file *f, const char *name, const uint32_t *v, int n)
{
    key(f, name, n);
    f->kv[f->n_kv - 1].type = 'a';
    f->kv[f->n_kv - 1].s = (const char *)v;
}

static int find_key(const struct file *f, const char *name)
{
    for (int i = 0; i < f->n_kv; i++)
        if (!strcmp(strchr(f->kv[i].name, '.') + 1, name))
            return i;
    fail_msg("no key %s", name);
    return -1;
}

static void drop_key(struct file *f, const char *name)
{
    f->kv[find_key(f, name)].type = 0;
}

static struct tensor *find(struct file *f, const char *name)
{
    for (int i = 0; i < f->n_t; i++)
        if (!strcmp(f->t[i].name, name))
            return &f->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void drop(struct file *f, const char *name)
{
    find(f, name)->n_dim = 0;
}

static void base(struct file *f, const char *arch)
{
    bool glm = !strcmp(arch, "glm4moe");
    bool oss = !strcmp(arch, "gpt-oss");
    bool mla = !strcmp(arch, "deepseek2");
    bool shared = glm || mla;
    bool moe = !strcmp(arch, "qwen3moe") || shared || oss;
    /* gemma4 has experts in addition to a dense part, and per-layer inputs */
    bool gemma4 = !strcmp(arch, "gemma4");
    bool gemma = !strcmp(arch, "gemma3") || gemma4;

    memset(f, 0, sizeof *f);
    f->arch = arch;
    key(f, "context_length", 512);
    key(f, "embedding_length", E);
    key(f, "block_count", 2);
    key(f, "attention.head_count", H);
    key(f, "attention.head_count_kv", KV);
    key(f, "attention.key_length", D);
    key(f, "attention.value_length", D);
    key(f, "attention.layer_norm_rms_epsilon", 1e-5);
    key(f, moe ? "expert_feed_forward_length" : "feed_forward_length", FF);
    key(f, "vocab_size", VOCAB);
    put(f, "token_embd.weight", 2, VOCAB, E, 0);
    put(f, "output_norm.weight", 1, E, 0, 0);
    put(f, "output.weight", 2, VOCAB, E, 0);
    if (gemma4) {
        key(f, "expert_feed_forward_length", FF);
        key(f, "embedding_length_per_layer_input", PER_LAYER);
        key(f, "attention.sliding_window", 8);
        key(f, "attention.key_length_swa", D_WINDOW);
        key(f, "attention.value_length_swa", D_WINDOW);
        key_list(f, "attention.sliding_window_pattern", window_first, 2);
        put(f, "per_layer_token_embd.weight", 2, VOCAB, 2 * PER_LAYER, 0);
        put(f, "per_layer_model_proj.weight", 2, 2 * PER_LAYER, E, 0);
        put(f, "per_layer_proj_norm.weight", 1, PER_LAYER, 0, 0);
    }
    if (moe || gemma4) {
        key(f, "expert_count", EXPERT);
        key(f, "expert_used_count", 2);
    }
    if (mla) {
        key(f, "attention.key_length_mla", D);
        key(f, "attention.value_length_mla", D);
        key(f, "attention.q_lora_rank", Q_RANK);
        key(f, "attention.kv_lora_rank", KV_RANK);
        key(f, "rope.dimension_count", ROT);
        key(f, "expert_gating_func", 2);
    }
    if (shared) {
        key(f, "feed_forward_length", DENSE);
        key(f, "leading_dense_block_count", 1);
        key(f, "expert_shared_count", 2);
    }
    for (int i = 0; i < 2; i++) {
        const int64_t d = gemma4 && i == 0 ? D_WINDOW : D;

        put_layer(f, i, "attn_norm.weight", 1, E, 0, 0);
        if (mla) {
            put_layer(f, i, "attn_q_a.weight", 2, Q_RANK, E, 0);
            put_layer(f, i, "attn_q_a_norm.weight", 1, Q_RANK, 0, 0);
            put_layer(f, i, "attn_q_b.weight", 2, H * D, Q_RANK, 0);
            put_layer(f, i, "attn_kv_a_mqa.weight", 2, KV_RANK + ROT, E, 0);
            put_layer(f, i, "attn_kv_a_norm.weight", 1, KV_RANK, 0, 0);
            put_layer(f, i, "attn_k_b.weight", 3, H, KV_RANK, D - ROT);
            put_layer(f, i, "attn_v_b.weight", 3, H, D, KV_RANK);
        } else {
            put_layer(f, i, "attn_q.weight", 2, H * d, E, 0);
            put_layer(f, i, "attn_k.weight", 2, KV * d, E, 0);
            put_layer(f, i, "attn_v.weight", 2, KV * d, E, 0);
        }
        put_layer(f, i, "attn_output.weight", 2, E, H * d, 0);
        if (!strcmp(arch, "qwen2") || glm || oss) {
            put_layer(f, i, "attn_q.bias", 1, H * d, 0, 0);
            put_layer(f, i, "attn_k.bias", 1, KV * d, 0, 0);
            put_layer(f, i, "attn_v.bias", 1, KV * d, 0, 0);
        }
        if (gemma) {
            put_layer(f, i, "post_attention_norm.weight", 1, E, 0, 0);
            put_layer(f, i, "post_ffw_norm.weight", 1, E, 0, 0);
        }
        if (!strncmp(arch, "qwen3", 5) || gemma) {
            put_layer(f, i, "attn_q_norm.weight", 1, d, 0, 0);
            put_layer(f, i, "attn_k_norm.weight", 1, d, 0, 0);
        }
        if (oss)
            put_layer(f, i, "attn_sinks.weight", 1, H, 0, 0);
        put_layer(f, i,
                  glm || oss ? "post_attention_norm.weight" : "ffn_norm.weight",
                  1, E, 0, 0);
        if (moe && !(shared && i == 0)) {
            put_layer(f, i, "ffn_gate_inp.weight", 2, EXPERT, E, 0);
            put_layer(f, i, "ffn_gate_exps.weight", 3, EXPERT, FF, E);
            put_layer(f, i, "ffn_up_exps.weight", 3, EXPERT, FF, E);
            put_layer(f, i, "ffn_down_exps.weight", 3, EXPERT, E, FF);
        } else {
            int64_t ff = shared ? DENSE : FF;

            put_layer(f, i, "ffn_gate.weight", 2, ff, E, 0);
            put_layer(f, i, "ffn_up.weight", 2, ff, E, 0);
            put_layer(f, i, "ffn_down.weight", 2, E, ff, 0);
        }
        if (gemma4) {
            put_layer(f, i, "ffn_gate_inp.weight", 2, EXPERT, E, 0);
            put_layer(f, i, "ffn_gate_inp.scale", 1, E, 0, 0);
            put_layer(f, i, "pre_ffw_norm_2.weight", 1, E, 0, 0);
            put_layer(f, i, "post_ffw_norm_1.weight", 1, E, 0, 0);
            put_layer(f, i, "post_ffw_norm_2.weight", 1, E, 0, 0);
            put_layer(f, i, "ffn_gate_exps.weight", 3, EXPERT, FF, E);
            put_layer(f, i, "ffn_up_exps.weight", 3, EXPERT, FF, E);
            put_layer(f, i, "ffn_down_exps.weight", 3, EXPERT, E, FF);
            put_layer(f, i, "inp_gate.weight", 2, PER_LAYER, E, 0);
            put_layer(f, i, "proj.weight", 2, E, PER_LAYER, 0);
            put_layer(f, i, "post_norm.weight", 1, E, 0, 0);
        }
        if (shared && i > 0) {
            put_layer(f, i, "exp_probs_b.bias", 1, EXPERT, 0, 0);
            put_layer(f, i, "ffn_gate_shexp.weight", 2, 2 * FF, E, 0);
            put_layer(f, i, "ffn_up_shexp.weight", 2, 2 * FF, E, 0);
            put_layer(f, i, "ffn_down_shexp.weight", 2, E, 2 * FF, 0);
        }
    }
}

/* Writes the file and opens it as GGUF, which must succeed. */
static struct gguf *opened(const struct file *f)
{
    static const char zero[1 << 17];
    const char *path = test_temp("model.gguf");
    struct gguf_writer *w;
    struct gguf *g;
    pl_err err;

    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    if (f->arch)
        gguf_put_str(w, "general.architecture", f->arch);
    for (int i = 0; i < f->n_kv; i++)
        if (f->kv[i].type == 'i')
            gguf_put_u32(w, f->kv[i].name, (uint32_t)f->kv[i].v);
        else if (f->kv[i].type == 'f')
            gguf_put_f32(w, f->kv[i].name, (float)f->kv[i].v);
        else if (f->kv[i].type == 's')
            gguf_put_str(w, f->kv[i].name, f->kv[i].s);
        else if (f->kv[i].type == 'a')
            gguf_put_array(w, f->kv[i].name, GGUF_U32, f->kv[i].s,
                           (uint64_t)f->kv[i].v);
    for (int i = 0; i < f->n_t; i++)
        if (f->t[i].n_dim > 0)
            gguf_put_tensor(w, f->t[i].name, f->t[i].format, f->t[i].n_dim,
                            f->t[i].dim, zero);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    TEST_OK(gguf_open(&g, path, &err), err);
    return g;
}

/* Opening must fail with a message that contains both texts. */
static void refused(const struct file *f, pl_status want, const char *a,
                    const char *b)
{
    struct gguf *g = opened(f);
    struct model *m = (struct model *)g;
    pl_err err;
    pl_status s = model_open(&m, g, &err);

    if (s == PL_OK)
        fail_msg("accepted, not refused for %s %s", a, b);
    if (s != want || !strstr(err.message, a) || !strstr(err.message, b))
        fail_msg("%s: \"%s\", not \"%s\" and \"%s\"", pl_status_name(s),
                 err.message, a, b);
    assert_non_null(strstr(err.message, "model.gguf"));
    assert_null(m);
    gguf_close(g);
}

static struct model *accepted(const struct file *f)
{
    struct model *m;
    pl_err err;

    TEST_OK(model_open(&m, opened(f), &err), err);
    return m;
}

static void put_back(struct model *m)
{
    gguf_close((struct gguf *)m->file);
    model_close(m);
}

static const char *const archs[] = {"llama",    "qwen2",   "qwen3",
                                    "qwen3moe", "glm4moe", "gemma3",
                                    "gemma4",   "gpt-oss", "deepseek2"};
enum { N_ARCH = sizeof archs / sizeof archs[0] };

TEST(model_open_unknown_architecture_lists_the_known)
{
    struct file f;

    base(&f, "gpt9\n");
    refused(&f, PL_UNSUPPORTED, "'gpt9?'",
            "llama, qwen2, qwen3, qwen3moe, glm4moe");
    f.arch = NULL;
    refused(&f, PL_BAD_FILE, "general.architecture", "llama, qwen2, qwen3");
}

TEST(model_open_each_missing_key_is_named)
{
    static const char *const needed[] = {"context_length", "embedding_length",
                                         "block_count", "attention.head_count",
                                         "attention.layer_norm_rms_epsilon"};
    struct file f;

    for (size_t a = 0; a < N_ARCH; a++)
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
            base(&f, archs[a]);
            drop_key(&f, needed[i]);
            refused(&f, PL_BAD_FILE, archs[a], needed[i]);
        }
    base(&f, "qwen3");
    drop_key(&f, "feed_forward_length");
    refused(&f, PL_BAD_FILE, "qwen3.feed_forward_length", "");
    base(&f, "qwen3moe");
    drop_key(&f, "expert_feed_forward_length");
    refused(&f, PL_BAD_FILE, "qwen3moe.expert_feed_forward_length", "");
    base(&f, "qwen3moe");
    drop_key(&f, "expert_count");
    refused(&f, PL_BAD_FILE, "qwen3moe.expert_count", "");
    base(&f, "qwen3moe");
    drop_key(&f, "expert_used_count");
    refused(&f, PL_BAD_FILE, "qwen3moe.expert_used_count", "");
    for (size_t i = 0; i < 3; i++) {
        static const char *const of_gemma4[] = {
            "feed_forward_length", "attention.sliding_window",
            "attention.sliding_window_pattern"};

        base(&f, "gemma4");
        drop_key(&f, of_gemma4[i]);
        refused(&f, PL_BAD_FILE, "gemma4.", of_gemma4[i]);
    }
    base(&f, "glm4moe");
    drop_key(&f, "expert_shared_count");
    refused(&f, PL_BAD_FILE, "glm4moe.expert_shared_count", "");
    base(&f, "glm4moe");
    drop_key(&f, "feed_forward_length");
    refused(&f, PL_BAD_FILE, "glm4moe.feed_forward_length", "");
    f.kv[find_key(&f, "leading_dense_block_count")].v = 0;
    refused(&f, PL_BAD_FILE, "blk.0.ffn_gate_inp.weight is missing", "glm4moe");
}

TEST(model_open_bad_key_values_are_named)
{
    static const struct {
        const char *key;
        double v;
        const char *message;
    } rows[] = {
        {"embedding_length", 0, "embedding_length"},
        {"block_count", 70000, "block_count"},
        {"attention.head_count", 3, "not a multiple of head_count_kv, 2"},
        {"attention.layer_norm_rms_epsilon", 1.5, "1.5"},
        {"attention.layer_norm_rms_epsilon", 0, "1e-30 .. 1"},
        {"attention.layer_norm_rms_epsilon", 1e-40, "1e-30 .. 1"},
        {"attention.layer_norm_rms_epsilon", NAN, "a finite number"},
        {"rope.dimension_count", 7, "7, not even"},
        {"rope.dimension_count", 18, "rope.dimension_count"},
        {"rope.freq_base", 0.5, "0.5"},
        {"rope.freq_base", 1.00000001, "not above 1"},
        {"rope.freq_base", NAN, "a finite number"},
        {"rope.scaling.factor", 1e-9, "rope.scaling.factor"},
        {"rope.scale_linear", -0.5, "rope.scale_linear is -0.5"},
        {"rope.scaling.attn_factor", 0, "attn_factor is 0"},
        {"rope.scaling.attn_factor", -1.5, "attn_factor is -1.5"},
        {"rope.scaling.attn_factor", 1e7, "1e-6 .. 1e6"},
        {"rope.scaling.attn_factor", NAN, "a finite number"},
        {"expert_count", 4, "llama.expert_used_count"},
    };
    static const struct {
        const char *key;
        double v;
        pl_status status;
        const char *message;
    } glm[] = {
        {"leading_dense_block_count", 3, PL_BAD_FILE, "3"},
        {"expert_shared_count", 70000, PL_BAD_FILE, "0 to 65536"},
        {"expert_gating_func", 3, PL_UNSUPPORTED, "only 1, softmax, and 2,"},
        {"expert_group_count", 3, PL_BAD_FILE, "cannot form groups"},
        {"expert_group_count", 4, PL_BAD_FILE, "cannot form groups"},
        {"expert_group_count", 5, PL_BAD_FILE, "5"},
        {"expert_weights_scale", -2.5, PL_BAD_FILE, "-2.5"},
        {"expert_weights_norm", 7, PL_BAD_FILE, "7"},
        {"nextn_predict_layers", 2, PL_BAD_FILE, "2"},
    };
    static const struct {
        const char *key;
        double v;
        pl_status status;
        const char *message;
    } deepseek[] = {
        {"attention.kv_lora_rank", 0, PL_BAD_FILE, "0"},
        {"attention.key_length_mla", 0, PL_BAD_FILE, "is missing"},
        {"attention.key_length_mla", ROT, PL_BAD_FILE,
         "attention.key_length_mla or"},
        {"attention.temperature_scale", 0.1, PL_BAD_FILE,
         "temperature_length is missing or 0"},
        {"rope.scaling.yarn_log_multiplier", 0, PL_UNSUPPORTED, "or missing"},
        {"rope.scaling.yarn_log_multiplier", -0.5, PL_UNSUPPORTED, "is -0.5"},
        {"rope.scaling.yarn_log_multiplier", NAN, PL_BAD_FILE, "a finite"},
    };
    struct file f;

    for (size_t i = 0; i < sizeof deepseek / sizeof *deepseek; i++) {
        base(&f, "deepseek2");
        for (int k = 0; k < f.n_kv; k++)
            if (!strcmp(f.kv[k].name + 10, deepseek[i].key))
                f.kv[k].type = 0;
        key(&f, deepseek[i].key, deepseek[i].v);
        if (strstr(deepseek[i].key, "yarn")) {
            key(&f, "rope.scaling.factor", 4);
            key(&f, "rope.scaling.type", 0);
            f.kv[f.n_kv - 1].type = 's';
            f.kv[f.n_kv - 1].s = "yarn";
        }
        refused(&f, deepseek[i].status, deepseek[i].key, deepseek[i].message);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        base(&f, "llama");
        for (int k = 0; k < f.n_kv; k++)
            if (!strcmp(f.kv[k].name + 6, rows[i].key))
                f.kv[k].type = 0;
        key(&f, rows[i].key, rows[i].v);
        refused(&f, PL_BAD_FILE, rows[i].key + strcspn(rows[i].key, "."),
                rows[i].message);
    }
    for (size_t i = 0; i < sizeof glm / sizeof *glm; i++) {
        base(&f, "glm4moe");
        for (int k = 0; k < f.n_kv; k++)
            if (!strcmp(f.kv[k].name + 8, glm[i].key))
                f.kv[k].type = 0;
        key(&f, glm[i].key, glm[i].v);
        refused(&f, glm[i].status, glm[i].key, glm[i].message);
    }
    base(&f, "llama");
    key(&f, "rope.scaling.type", 0);
    f.kv[f.n_kv - 1].type = 's';
    f.kv[f.n_kv - 1].s = "longrope";
    refused(&f, PL_UNSUPPORTED, "'longrope'", "none, linear and yarn");
    base(&f, "llama");
    drop_key(&f, "attention.key_length");
    f.kv[find_key(&f, "embedding_length")].v = 34;
    refused(&f, PL_BAD_FILE, "llama.attention.key_length is missing", "34");
    base(&f, "llama");
    f.kv[find_key(&f, "feed_forward_length")].type = 'a';
    f.kv[find_key(&f, "feed_forward_length")].v = 1;
    f.kv[find_key(&f, "feed_forward_length")].s = "\x40\0\0";
    refused(&f, PL_BAD_FILE, "feed_forward_length has 1 values", "2 by block");
}

/* Opens the file of `f`, with `v` as value i of tensor `name`. */
static struct gguf *opened_with(const struct file *f, const char *name, int i,
                                float v)
{
    struct gguf *g = opened(f);
    FILE *out = fopen(gguf_path(g), "rb+");
    const struct gguf_tensor *t = gguf_find_tensor(g, name);

    assert_non_null(out);
    assert_int_equal(t->format, PL_F32);
    /* value i is the damaged one; all others are 1 */
    for (int k = 0; k < t->dim[0]; k++) {
        float x = k == i ? v : 1;

        fseek(out, (long)(t->offset + 4 * (size_t)k), SEEK_SET);
        assert_int_equal(fwrite(&x, 4, 1, out), 1);
    }
    fclose(out);
    return g;
}

TEST(model_open_values_that_decide_are_named)
{
    static const struct {
        const char *arch, *name;
        int n, i;
        float v;
        /* text that the error must contain; NULL if the value is accepted */
        const char *message;
    } rows[] = {
        {"llama", "rope_freqs.weight", D / 2, 0, 0, "value 0 is 0, not in"},
        {"llama", "rope_freqs.weight", D / 2, 7, NAN, "value 7 is nan"},
        {"llama", "rope_freqs.weight", D / 2, 3, -NAN, "value 3 is"},
        {"llama", "rope_freqs.weight", D / 2, 1, INFINITY, "value 1 is inf"},
        {"llama", "rope_freqs.weight", D / 2, 2, -8, "value 2 is -8"},
        {"llama", "rope_freqs.weight", D / 2, 2, 1e-31f, "value 2 is 1e-31"},
        {"llama", "rope_freqs.weight", D / 2, 2, 0.25f, NULL},
        {"llama", "rope_freqs.weight", D / 2, 2, 1e9f, NULL},
        {"llama", "blk.1.attn_q.scale", 1, 0, NAN, "value 0 is nan"},
        {"llama", "output.scale", 1, 0, -INFINITY, "value 0 is -inf"},
        {"llama", "blk.1.attn_q.scale", 1, 0, -0.5f, NULL},
        {"qwen3moe", "blk.0.ffn_up_exps.scale", EXPERT, 2, NAN, "value 2 is"},
        {"qwen3moe", "blk.0.ffn_up_exps.scale", EXPERT, 2, 0, NULL},
        {"glm4moe", "blk.1.exp_probs_b.bias", 0, 3, NAN, "value 3 is nan"},
        {"glm4moe", "blk.1.exp_probs_b.bias", 0, 3, -INFINITY, NULL},
    };

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct file f;
        struct gguf *g;
        struct model *m;
        pl_err err = {PL_OK, ""};
        pl_status s;

        base(&f, rows[k].arch);
        if (rows[k].n > 0)
            put(&f, rows[k].name, 1, rows[k].n, 0, 0);
        g = opened_with(&f, rows[k].name, rows[k].i, rows[k].v);
        s = model_open(&m, g, &err);
        if (s != (rows[k].message ? PL_BAD_FILE : PL_OK))
            fail_msg("row %zu: %s: %s", k, pl_status_name(s), err.message);
        if (rows[k].message && (!strstr(err.message, rows[k].message) ||
                                !strstr(err.message, rows[k].name)))
            fail_msg("row %zu: %s", k, err.message);
        model_close(m);
        gguf_close(g);
    }
}

TEST(model_open_experts_in_tensors_of_their_own)
{
    struct file f;
    struct model *m;
    int stacked, first;

    base(&f, "qwen3moe");
    for (stacked = 0; strcmp(f.t[stacked].name, "blk.0.ffn_up_exps.weight");)
        stacked++;
    first = f.n_t;
    for (int e = 0; e < EXPERT; e++) {
        char name[48];

        snprintf(name, sizeof name, "blk.0.ffn_up.%d.weight", e);
        put(&f, name, 2, f.t[stacked].dim[1], f.t[stacked].dim[2], 0);
    }
    f.t[stacked].n_dim = 0;
    m = accepted(&f);
    assert_int_equal(model_weight_parts(m, "blk.0.ffn_up_exps.weight"), EXPERT);
    assert_int_equal(model_weight_parts(m, "blk.1.ffn_up_exps.weight"), 1);
    assert_int_equal(model_weight_parts(m, "blk.2.ffn_up_exps.weight"), 0);
    assert_string_equal(
        model_weight_part(m, "blk.0.ffn_up_exps.weight", 2)->name,
        "blk.0.ffn_up.2.weight");
    put_back(m);
    f.t[first + 2].format = PL_F16;
    refused(&f, PL_UNSUPPORTED, "blk.0.ffn_up.2.weight is F16",
            "must have one format");
    f.t[first + 2].dim[0]++;
    refused(&f, PL_BAD_FILE, "blk.0.ffn_up.2.weight", "rows in the file");
    f.t[first + 2].n_dim = 0;
    refused(&f, PL_BAD_FILE, "blk.0.ffn_up.2.weight is missing", "qwen3moe");
}

TEST(model_open_each_missing_tensor_is_named)
{
    struct file f, damaged;
    char message[100];

    for (size_t a = 0; a < N_ARCH; a++) {
        base(&f, archs[a]);
        for (int i = 0; i < f.n_t; i++) {
            if (!strcmp(f.t[i].name, "output.weight") ||
                (!strcmp(archs[a], "gemma4") &&
                 /* without the tensor of V, gemma4 uses K as V */
                 strstr(f.t[i].name, "attn_v.")))
                continue;
            damaged = f;
            damaged.t[i].n_dim = 0;
            snprintf(message, sizeof message, ": %s is missing; %s needs it",
                     f.t[i].name, archs[a]);
            refused(&damaged, PL_BAD_FILE, message, "with shape [");
        }
    }
}

TEST(model_open_each_wrong_size_is_named)
{
    struct file f, damaged;
    char message[100];

    for (size_t a = 0; a < N_ARCH; a++) {
        base(&f, archs[a]);
        for (int i = 0; i < f.n_t; i++)
            for (int d = 0; d < f.t[i].n_dim; d++) {
                damaged = f;
                damaged.t[i].dim[d] += 1;
                snprintf(message, sizeof message, ": %s: %d %s in the file, %d",
                         f.t[i].name, (int)f.t[i].dim[d] + 1,
                         f.t[i].n_dim == 1       ? "values"
                         : f.t[i].n_dim - d == 1 ? "values per row"
                         : f.t[i].n_dim - d == 2 ? "rows"
                                                 : "matrices",
                         (int)f.t[i].dim[d]);
                refused(&damaged, PL_BAD_FILE, message, " by ");
            }
    }
    base(&f, "llama");
    find(&f, "blk.1.ffn_down.weight")->dim[0] = 24;
    refused(&f, PL_BAD_FILE,
            "blk.1.ffn_down.weight: 24 rows in the file, 32 by "
            "embedding_length",
            "(shape [24, 64] in the file, [32, 64] expected)");
    base(&f, "llama");
    *find(&f, "blk.1.ffn_down.weight") =
        (struct tensor){"blk.1.ffn_down.weight", PL_F32, 3, {2, 32, 64, 1}};
    refused(&f, PL_BAD_FILE, "blk.1.ffn_down.weight: shape [2, 32, 64] in",
            "[32, 64] expected");
}

TEST(model_open_formats_that_cannot_be_read_are_named)
{
    struct file f;

    base(&f, "llama");
    find(&f, "blk.0.attn_norm.weight")->format = PL_Q8_0;
    refused(&f, PL_UNSUPPORTED, "blk.0.attn_norm.weight is Q8_0",
            "F32, F16 or BF16");
    base(&f, "llama");
    find(&f, "blk.0.attn_q.weight")->format = PL_I32;
    refused(&f, PL_UNSUPPORTED, "blk.0.attn_q.weight is I32",
            "F32, F16, BF16, Q8_0,");
    base(&f, "llama");
    find(&f, "blk.0.attn_norm.weight")->format = PL_BF16;
    find(&f, "blk.0.attn_q.weight")->format = PL_Q4_0;
    put_back(accepted(&f));
}

/* Without the key of its gating a router is a softmax, which needs no bias. A
 * model may have no matrices between its queries' two. */
TEST(model_open_latents_with_plain_queries_and_softmax)
{
    const struct graph_attr *a;
    struct file f;
    struct model *m;
    pl_graph *g;

    base(&f, "deepseek2");
    drop_key(&f, "expert_gating_func");
    drop_key(&f, "attention.q_lora_rank");
    drop(&f, "blk.1.exp_probs_b.bias");
    key(&f, "expert_group_count", 2);
    key(&f, "expert_group_used_count", 1);
    for (int i = 0; i < 2; i++) {
        drop(&f, i ? "blk.1.attn_q_a.weight" : "blk.0.attn_q_a.weight");
        drop(&f, i ? "blk.1.attn_q_b.weight" : "blk.0.attn_q_b.weight");
        drop(&f,
             i ? "blk.1.attn_q_a_norm.weight" : "blk.0.attn_q_a_norm.weight");
        put_layer(&f, i, "attn_q.weight", 2, H * D, E, 0);
    }
    m = accepted(&f);
    g = build(m);
    a = &first(g, OP_router_topk)->attr;
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(a->gating, PL_GATING_SOFTMAX);
    assert_int_equal(a->n_group, 2);
    assert_int_equal(a->n_group_used, 1);
    assert_int_equal(first(g, OP_router_topk)->n_in, 1);
    assert_int_equal(node(g, "blk.1.attn_q.weight")->role, PL_ROLE_ATTN_Q);
    pl_graph_free(g);
    put_back(m);
}

TEST(model_open_fused_weights_are_cut_apart)
{
    struct file f;
    struct model *m;
    pl_graph *g;

    base(&f, "qwen2");
    for (int i = 0; i < f.n_t; i++)
        if (strstr(f.t[i].name, "attn_q.") || strstr(f.t[i].name, "attn_k.") ||
            strstr(f.t[i].name, "attn_v.") || strstr(f.t[i].name, "ffn_gate") ||
            strstr(f.t[i].name, "ffn_up"))
            f.t[i].n_dim = 0;
    for (int i = 0; i < 2; i++) {
        put_layer(&f, i, "attn_qkv.weight", 2, (H + 2 * KV) * D, E, 0);
        put_layer(&f, i, "attn_qkv.bias", 1, (H + 2 * KV) * D, 0, 0);
        put_layer(&f, i, "ffn_gate_up.weight", 2, 2 * FF, E, 0);
    }
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_slice), 2 * (3 + 2));
    assert_int_equal(node(g, "blk.1.attn_qkv.bias")->role,
                     PL_ROLE_ATTN_QKV_BIAS);
    assert_int_equal(node(g, "blk.1.ffn_gate_up.weight")->role,
                     PL_ROLE_FFN_GATE_UP);
    pl_graph_free(g);
    put_back(m);

    drop(&f, "blk.1.attn_qkv.bias");
    refused(&f, PL_BAD_FILE, "blk.1.attn_qkv.bias is missing", "[128]");

    base(&f, "qwen3moe");
    for (int i = 0; i < 2; i++) {
        drop(&f,
             i ? "blk.1.ffn_gate_exps.weight" : "blk.0.ffn_gate_exps.weight");
        drop(&f, i ? "blk.1.ffn_up_exps.weight" : "blk.0.ffn_up_exps.weight");
        put_layer(&f, i, "ffn_gate_up_exps.weight", 3, EXPERT, 2 * FF, E);
    }
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_expert_matmul), 2);
    assert_int_equal(count_op(g, OP_slice), 2 * 2);
    pl_graph_free(g);
    put_back(m);
}

TEST(model_open_scales_multiply_products)
{
    struct file f;
    struct model *m;
    pl_graph *g;
    int n_mul;

    base(&f, "qwen3moe");
    m = accepted(&f);
    g = build(m);
    /* number of multiplications with the router's weights */
    n_mul = count_op(g, OP_mul);
    pl_graph_free(g);
    put_back(m);

    put(&f, "output.scale", 1, 1, 0, 0);
    put(&f, "token_embd.scale", 1, 1, 0, 0);
    put(&f, "blk.0.attn_q.scale", 1, 1, 0, 0);
    put(&f, "blk.1.attn_output.scale", 1, 1, 0, 0);
    put(&f, "blk.0.ffn_gate_inp.scale", 1, 1, 0, 0);
    put(&f, "blk.0.ffn_gate_exps.scale", 1, 1, 0, 0);
    put(&f, "blk.0.ffn_up_exps.scale", 1, EXPERT, 0, 0);
    put(&f, "blk.0.ffn_down_exps.scale", 1, EXPERT, 0, 0);
    find(&f, "blk.0.ffn_down_exps.scale")->format = PL_F16;
    put(&f, "blk.1.ffn_down_exps.scale", 1, 1, 0, 0);
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_mul), n_mul + 9);
    assert_int_equal(count_op(g, OP_gather_rows), 2 + 2);
    assert_int_equal(node(g, "logits")->op, OP_mul);
    pl_graph_free(g);
    put_back(m);

    find(&f, "blk.0.ffn_up_exps.scale")->dim[0] = 3;
    refused(&f, PL_BAD_FILE, "blk.0.ffn_up_exps.scale: 3 values in the file",
            "4 by expert_count");
    find(&f, "blk.0.ffn_up_exps.scale")->dim[0] = 4;
    find(&f, "blk.0.attn_q.scale")->dim[0] = 4;
    refused(&f, PL_BAD_FILE, "blk.0.attn_q.scale: 4 values in the file",
            "1 by");
}

/* test_model_unread.c has the rules. */
TEST(model_open_judges_tensors_that_nothing_reads)
{
    struct file f;
    struct model *m;

    base(&f, "llama");
    put(&f, "blk.0.attn_rot_embd.weight", 1, 8, 0, 0);
    m = accepted(&f);
    assert_int_equal(m->n_unused, 1);
    put_back(m);
    put(&f, "blk.9.attn_norm.weight", 1, 8, 0, 0);
    refused(&f, PL_UNSUPPORTED, "blk.9.attn_norm.weight", "one of 1");
}

/* Next-token layers are left out in any family; block_count includes them. */
TEST(model_open_next_token_layers_are_left_out)
{
    struct file f;
    struct model *m;
    pl_graph *g;

    for (int a = 0; a < N_ARCH; a++) {
        base(&f, archs[a]);
        f.kv[find_key(&f, "block_count")].v = 4;
        key(&f, "nextn_predict_layers", 2);
        put(&f, "blk.2.attn_norm.weight", 1, E, 0, 0);
        put(&f, "blk.2.nextn.eh_proj.weight", 2, E, 2 * E, 0);
        put(&f, "blk.3.nextn.enorm.weight", 1, E, 0, 0);
        m = accepted(&f);
        assert_int_equal(m->n_layer, 2);
        assert_int_equal(m->n_next, 2);
        assert_int_equal(m->n_unused, 3);
        g = build(m);
        assert_int_equal(
            count_op(g, OP_attention) + count_op(g, OP_latent_attention), 2);
        pl_graph_free(g);
        put_back(m);
    }
}

/* Some models of this family have no biases. */
TEST(model_open_glm4moe_takes_biases_where_given)
{
    static const char *const names[] = {"attn_q.bias", "attn_k.bias",
                                        "attn_v.bias"};
    struct file f;
    struct model *m;
    pl_graph *g;
    int n_add;

    base(&f, "glm4moe");
    m = accepted(&f);
    g = build(m);
    n_add = count_op(g, OP_add);
    pl_graph_free(g);
    put_back(m);
    for (int layer = 0; layer < 2; layer++)
        for (int i = 0; i < 3; i++) {
            char name[48];

            snprintf(name, sizeof name, "blk.%d.%s", layer, names[i]);
            drop(&f, name);
        }
    m = accepted(&f);
    g = build(m);
    assert_int_equal(count_op(g, OP_add), n_add - 2 * 3);
    pl_graph_free(g);
    put_back(m);
}

/* The router's keys and their defaults; norms of heads occur together. */
TEST(model_open_router_follows_its_keys)
{
    struct file f;
    struct model *m;
    pl_graph *g;
    const struct graph_node *w;

    base(&f, "glm4moe");
    m = accepted(&f);
    g = build(m);
    w = first(g, OP_router_weights);
    assert_int_equal(w->attr.gating, PL_GATING_SIGMOID);
    assert_int_equal(w->attr.normalise, 0);
    assert_float_equal(w->attr.scale, 1, 0);
    assert_int_equal(count_op(g, OP_rms_norm), 2 * 2 + 1);
    assert_string_equal(g->node[first(g, OP_router_topk)->in[1]].name,
                        "blk.1.exp_probs_b.bias");
    pl_graph_free(g);
    put_back(m);

    key(&f, "expert_weights_norm", 1);
    key(&f, "expert_weights_scale", 2.5);
    put(&f, "blk.1.attn_q_norm.weight", 1, D, 0, 0);
    refused(&f, PL_BAD_FILE, "blk.1.attn_k_norm.weight is missing", "[16]");
    put(&f, "blk.1.attn_k_norm.weight", 1, D, 0, 0);
    m = accepted(&f);
    g = build(m);
    w = first(g, OP_router_weights);
    assert_int_equal(w->attr.normalise, 1);
    assert_float_equal(w->attr.scale, 2.5, 0);
    assert_int_equal(count_op(g, OP_rms_norm), 2 * 2 + 1 + 2);
    pl_graph_free(g);
    put_back(m);
}

/* Sizes may differ from layer to layer. */
TEST(model_open_arrays_give_each_layer_its_sizes)
{
    static const uint32_t ff[2] = {FF, 96}, kv[2] = {KV, 4};
    struct file f;
    struct model *m;
    pl_graph *g;

    base(&f, "llama");
    f.kv[find_key(&f, "feed_forward_length")].type = 'a';
    f.kv[find_key(&f, "feed_forward_length")].v = 2;
    f.kv[find_key(&f, "feed_forward_length")].s = (const char *)ff;
    f.kv[find_key(&f, "attention.head_count_kv")].type = 'a';
    f.kv[find_key(&f, "attention.head_count_kv")].v = 2;
    f.kv[find_key(&f, "attention.head_count_kv")].s = (const char *)kv;
    find(&f, "blk.1.ffn_gate.weight")->dim[0] = 96;
    find(&f, "blk.1.ffn_up.weight")->dim[0] = 96;
    find(&f, "blk.1.ffn_down.weight")->dim[1] = 96;
    find(&f, "blk.1.attn_k.weight")->dim[0] = 4 * D;
    find(&f, "blk.1.attn_v.weight")->dim[0] = 4 * D;
    m = accepted(&f);
    g = build(m);
    assert_int_equal(node(g, "cache_k.0")->dim[1].n, 2);
    assert_int_equal(node(g, "cache_v.1")->dim[1].n, 4);
    pl_graph_free(g);
    put_back(m);
}

/* The last layers read the cache of the last layer of their type that has
 * one. */
TEST(model_open_a_shared_expert_may_be_missing)
{
    static const char *const parts[] = {"gate", "up", "down"};
    struct file f;
    struct model *m;
    pl_graph *g;

    base(&f, "glm4moe");
    f.kv[find_key(&f, "expert_shared_count")].v = 0;
    for (int i = 0; i < 3; i++) {
        char name[40];

        snprintf(name, sizeof name, "blk.1.ffn_%s_shexp.weight", parts[i]);
        drop(&f, name);
    }
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_expert_down), 1);
    /* one for the dense layer 0, one for the experts */
    assert_int_equal(count_op(g, OP_swiglu), 2);
    pl_graph_free(g);
    put_back(m);
}

/* Keys of windowed layers apply even if no layer has a window. */
TEST(model_open_keys_of_windows_without_windows)
{
    static const uint32_t none[2] = {0, 0};
    struct file f;

    base(&f, "gemma4");
    f.kv[find_key(&f, "attention.sliding_window_pattern")].s =
        (const char *)none;
    f.kv[find_key(&f, "attention.key_length_swa")].v = 2 * D;
    key(&f, "rope.dimension_count_swa", 2 * D);
    find(&f, "blk.0.attn_q.weight")->dim[0] = H * D;
    find(&f, "blk.0.attn_k.weight")->dim[0] = KV * D;
    find(&f, "blk.0.attn_v.weight")->dim[0] = KV * D;
    find(&f, "blk.0.attn_q_norm.weight")->dim[0] = D;
    find(&f, "blk.0.attn_k_norm.weight")->dim[0] = D;
    find(&f, "blk.0.attn_output.weight")->dim[1] = H * D;
    put_back(accepted(&f));
    f.kv[f.n_kv - 1].v = 4 * D;
    refused(&f, PL_BAD_FILE, "rope.dimension_count_swa is 64", "2 to 32");
}

TEST(model_open_layers_share_keys_and_values)
{
    static const uint32_t all[2] = {1, 1}, kv[2] = {KV, 4}, odd[2] = {1, 7};
    struct file f;
    struct model *m;
    pl_graph *g;
    int at;

    base(&f, "gemma4");
    key(&f, "attention.shared_kv_layers", 1);
    refused(&f, PL_BAD_FILE, "attention.shared_kv_layers is 1",
            "no layer before 1 is, like layer 1, without a window");
    f.kv[f.n_kv - 1].v = 2;
    refused(&f, PL_BAD_FILE, "attention.shared_kv_layers is 2", "0 to 1");
    f.kv[f.n_kv - 1].v = 1;
    at = find_key(&f, "attention.sliding_window_pattern");
    f.kv[at].s = (const char *)odd;
    refused(&f, PL_BAD_FILE, "value 1 is neither true nor false",
            f.kv[at].name);
    f.kv[at].v = 1;
    refused(&f, PL_BAD_FILE, f.kv[at].name, "not a list of 2 values");
    f.kv[at].v = 2;
    f.kv[at].s = (const char *)all;
    key(&f, "rope.dimension_count_swa", D);
    refused(&f, PL_BAD_FILE, "rope.dimension_count_swa is 16", "2 to 8");
    f.kv[f.n_kv - 1].v = D_WINDOW;
    find(&f, "blk.1.attn_q.weight")->dim[0] = H * D_WINDOW;
    find(&f, "blk.1.attn_q_norm.weight")->dim[0] = D_WINDOW;
    find(&f, "blk.1.attn_output.weight")->dim[1] = H * D_WINDOW;
    drop(&f, "blk.1.attn_k.weight");
    drop(&f, "blk.1.attn_v.weight");
    drop(&f, "blk.1.attn_k_norm.weight");
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_memory), 2);
    assert_int_equal(count_op(g, OP_cache_write), 2);
    assert_int_equal(count_op(g, OP_attention), 2);
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_attention) {
            const struct graph_node *n = &g->node[i];

            assert_string_equal(g->node[graph_memory(g, n->in[1])].name,
                                "cache_k.0");
            assert_string_equal(g->node[graph_memory(g, n->in[2])].name,
                                "cache_v.0");
        }
    pl_graph_free(g);
    put_back(m);
    at = find_key(&f, "attention.head_count_kv");
    f.kv[at].type = 'a';
    f.kv[at].v = 2;
    f.kv[at].s = (const char *)kv;
    refused(&f, PL_BAD_FILE, "head_count_kv is 4 in layer 1, but 2 in layer 0",
            "whose keys and values it shares");
}

/* Without attn_v the values are the projected keys with their own norm. */
TEST(model_open_values_may_be_keys)
{
    struct file f;
    struct model *m;
    pl_graph *g;
    int n_matmul_before;

    base(&f, "gemma4");
    m = accepted(&f);
    g = build(m);
    n_matmul_before = count_op(g, OP_matmul);
    assert_int_equal(node(g, "cache_k.0")->dim[2].n, D_WINDOW);
    assert_int_equal(node(g, "cache_v.1")->dim[2].n, D);
    assert_int_equal(node(g, "cache_k.0")->dim[0].symbol, PL_N_SLOT);
    assert_int_equal(node(g, "cache_k.1")->dim[0].symbol, PL_N_SLOT + 1);
    pl_graph_free(g);
    put_back(m);
    drop(&f, "blk.1.attn_v.weight");
    m = accepted(&f);
    g = build(m);
    assert_int_equal(m->n_unused, 0);
    assert_int_equal(count_op(g, OP_matmul), n_matmul_before - 1);
    assert_int_equal(count_op(g, OP_memory), 4);
    pl_graph_free(g);
    put_back(m);
    f.kv[find_key(&f, "attention.value_length")].v = 2 * D;
    refused(&f, PL_BAD_FILE, "blk.1.attn_v.weight is missing", "[64, 32]");
}

TEST(model_open_cache_that_does_not_fit_is_refused)
{
    const struct model_graph_options q8 = {.cache_k = PL_Q8_0,
                                           .cache_v = PL_F16};
    struct file f;
    struct model *m;
    pl_graph *g;
    pl_err err;

    base(&f, "llama");
    m = accepted(&f);
    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    assert_int_not_equal(model_graph(m, g, &q8, &err), PL_OK);
    assert_non_null(strstr(err.message, "cache_k.0: rows of 16 values; Q8_0"));
    pl_graph_free(g);
    put_back(m);
}

/* Random changes to bytes of metadata and tensor lists give a status and a
 * message, or a graph if the file still opens. */
TEST(model_open_flipped_bytes_give_a_status)
{
    static const char *const names[] = {
        "llama-yarn-f32",         "qwen2-bias-f32",
        "qwen3moe-f32",           "glm4moe-f32",
        "qwen35moe-f32",          "qwen3next-f32",
        "gemma4-ple-sharedkv-f32"};
    const int n_flip = test_draws(700, 20000);
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = ref_path(names[i]);
        struct gguf *f;
        FILE *in;
        char *data;
        size_t n, n_head;

        assert_int_equal(gguf_open(&f, path, NULL), PL_OK);
        n = gguf_file_bytes(f);
        n_head = gguf_tensor_at(f, 0)->offset;
        gguf_close(f);
        data = test_need(1, n);
        in = fopen(path, "rb");
        assert_non_null(in);
        assert_int_equal(fread(data, 1, n, in), n);
        fclose(in);
        for (int k = 0; k < n_flip; k++) {
            size_t at = (size_t)test_below(&seed, (int64_t)n_head);
            char old = data[at];
            struct model *m;
            pl_err err = {PL_OK, ""};

            data[at] = (char)test_random(&seed);
            if (gguf_open_memory(&f, data, n, path, &err) == PL_OK) {
                if (model_open(&m, f, &err) == PL_OK)
                    pl_graph_free(build(m));
                else
                    assert_true(strlen(err.message) > 0);
                model_close(m);
                gguf_close(f);
            }
            data[at] = old;
        }
        free(data);
    }
}

static void out_of_memory(const char *arch)
{
    struct file f;
    struct gguf *g;

    base(&f, arch);
    g = opened(&f);
    for (int64_t n = 0; alloc_each(&n);) {
        struct model *m;
        pl_graph *graph = NULL;
        pl_err err;
        pl_status s;

        s = model_open(&m, g, &err);
        if (s == PL_OK)
            s = pl_graph_create(&graph, &err);
        if (s == PL_OK)
            s = model_graph(m, graph, &f16_cache, &err);
        alloc_ran(s);
        pl_graph_free(graph);
        model_close(m);
    }
    gguf_close(g);
}

TEST(model_open_out_of_memory_is_a_status)
{
    out_of_memory("glm4moe");
    out_of_memory("gemma4");
}
