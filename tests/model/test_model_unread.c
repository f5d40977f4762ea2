/* Parts of a model's file that no code reads: a key or a tensor that would
 * change the results rejects the file, an unknown key is named in a warning,
 * and other parts of published files are passed over. Keys that llama.cpp reads
 * are read. */
#include "graph/graph.h"
#include "lib/edit_model.h"
#include "lib/support.h"
#include "model/model.h"
#include "pl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The smallest reference model of each family. */
static const char *const families[] = {
    "llama-gqa-f32", "qwen2-bias-f32",    "qwen3-tied-f32",
    "qwen3moe-f32",  "glm4moe-f32",       "gemma3-swa-f32",
    "gptoss-f32",    "qwen35-dense-f32",  "qwen35moe-f32",
    "qwen3next-f32", "deepseek2-mla-f32", "gemma4-ple-sharedkv-f32",
};
enum { N_FAMILY = sizeof families / sizeof families[0] };

static const char *edited(const char *ref, const struct edit *e, int n)
{
    char file[64];

    snprintf(file, sizeof file, "%s.gguf", ref);
    return edit_model(test_ref_need(file), true, e, n);
}

struct opened {
    struct gguf *file;
    struct model *m;
    pl_graph *g;
};

static void open_edited(struct opened *o, const char *ref, const struct edit *e,
                        int n)
{
    const struct model_graph_options f16 = {.cache_k = PL_F16,
                                            .cache_v = PL_F16};
    pl_err err;

    TEST_OK(gguf_open(&o->file, edited(ref, e, n), &err), err);
    TEST_OK(model_open(&o->m, o->file, &err), err);
    TEST_OK(pl_graph_create(&o->g, &err), err);
    TEST_OK(model_graph(o->m, o->g, &f16, &err), err);
}

static void close_edited(struct opened *o)
{
    pl_graph_free(o->g);
    model_close(o->m);
    gguf_close(o->file);
}

/* Opens the edited model `ref`. The error or the warning, or neither, must have
 * the text; NULL for neither. */
static void must_warn(const char *ref, const struct edit *e, int n,
                      const char *text)
{
    struct opened o;

    open_edited(&o, ref, e, n);
    if (!text && o.m->unread)
        fail_msg("%s: %s", ref, o.m->unread);
    if (text && (!o.m->unread || !strstr(o.m->unread, text)))
        fail_msg("%s, %s: the warning is: %s", ref, text,
                 o.m->unread ? o.m->unread : "none");
    close_edited(&o);
}

static void must_refuse(const char *ref, const struct edit *e, int n,
                        const char *text)
{
    struct gguf *g;
    struct model *m;
    pl_err err;
    pl_status s;

    TEST_OK(gguf_open(&g, edited(ref, e, n), &err), err);
    s = model_open(&m, g, &err);
    if (s == PL_OK)
        fail_msg("%s: accepted with %s", ref, text);
    if (s != PL_UNSUPPORTED || !strstr(err.message, text))
        fail_msg("%s, %s: %s", ref, text, err.message);
    gguf_close(g);
}

/* Tensors ---------------------------------------------------------------- */

TEST(unread_tensors_reject_a_file_of_any_family)
{
    static const char *const names[] = {
        "blk.0.attn_sub_norm.weight", "blk.0.ffn_up.extra",
        "position_embd.weight",       "dense_2.weight",
        "blk.99.attn_norm.weight",    "token_types.weight",
    };

    for (int f = 0; f < N_FAMILY; f++) {
        const struct edit e = {names[f % 6], EDIT_TENSOR, 8, NULL};

        must_refuse(families[f], &e, 1, e.name);
    }
    for (int i = 0; i < 6; i++) {
        const struct edit e = {names[i], EDIT_TENSOR, 8, NULL};

        must_refuse("qwen3moe-f32", &e, 1, e.name);
    }
}

/* These change nothing: tables of RoPE, scales of activations,
 * the parts for images and sound. */
TEST(unread_tensors_that_change_nothing_pass)
{
    static const struct edit spare[] = {
        {"blk.0.attn_rot_embd.inv_freq", EDIT_TENSOR, 8, NULL},
        {"blk.0.attn_output.input_scale", EDIT_TENSOR, 1, NULL},
        {"v.blk.0.ln1.weight", EDIT_TENSOR, 8, NULL},
        {"mm.input_projection.weight", EDIT_TENSOR, 8, NULL},
        {"a.blk.0.ln1.weight", EDIT_TENSOR, 8, NULL},
    };
    static const struct edit cls = {"cls.output.weight", EDIT_TENSOR, 8, NULL};
    static const struct edit latent[] = {
        {"blk.0.attn_kv_b.weight", EDIT_TENSOR, 8, NULL}};

    for (int f = 0; f < N_FAMILY; f++)
        must_warn(families[f], spare, 5, NULL);
    must_warn("qwen3-tied-f32", &cls, 1, "tensor cls.output.weight");
    must_warn("deepseek2-mla-f32", latent, 1, NULL);
    must_refuse("llama-gqa-f32", latent, 1, "attn_kv_b");
}

/* Keys ------------------------------------------------------------------- */

/* Keys that converters write besides the keys that a family asks for. */
static const struct edit published[] = {
    {".rope.scaling.finetuned", EDIT_BOOL, 1, NULL},
    {".rope.dimension_sections", EDIT_FLAGS, 0, "1110"},
    {".tensor_data_layout", EDIT_TEXT, 0, "Meta AI original pth"},
    {".attention.causal", EDIT_BOOL, 1, NULL},
    {".attention.layer_norm_epsilon", EDIT_FLOAT, 1e-5, NULL},
    {".attention.temperature_length", EDIT_INT, 8192, NULL},
    {".attention.temperature_scale", EDIT_FLOAT, 0, NULL},
    {".rope.scale_linear", EDIT_FLOAT, 1, NULL},
    {".expert_group_count", EDIT_INT, 1, NULL},
    {".expert_group_used_count", EDIT_INT, 1, NULL},
    {".classifier.output_labels", EDIT_TEXT, 0, "yes"},
    {".vision.block_count", EDIT_INT, 27, NULL},
    {".mm.tokens_per_image", EDIT_INT, 256, NULL},
    {".pooling_type", EDIT_INT, 3, NULL},
    {".logit_scale", EDIT_FLOAT, 1, NULL},
    {".use_parallel_residual", EDIT_BOOL, 0, NULL},
    {"split.count", EDIT_INT, 1, NULL},
    {"general.sampling.temp", EDIT_FLOAT, 0.6, NULL},
    {"some.tool.version", EDIT_TEXT, 0, "1"},
};
enum { N_PUBLISHED = sizeof published / sizeof published[0] };

TEST(unread_keys_of_published_files_pass_in_any_family)
{
    for (int f = 0; f < N_FAMILY; f++) {
        must_warn(families[f], NULL, 0, NULL);
        must_warn(families[f], published, N_PUBLISHED, NULL);
    }
}

TEST(unread_unknown_keys_are_named_in_one_warning)
{
    struct edit many[12];
    char name[12][32];

    for (int f = 0; f < N_FAMILY; f++) {
        const struct edit two[] = {
            {".no_such_key", EDIT_INT, 7, NULL},
            {".attention.no_such", EDIT_TEXT, 0, "x"},
        };
        must_warn(families[f], two, 2, ".no_such_key, key ");
        must_warn(families[f], two, 2, ".attention.no_such; if it");
    }
    for (int i = 0; i < 12; i++) {
        snprintf(name[i], sizeof name[i], ".unknown_%02d", i);
        many[i] = (struct edit){name[i], EDIT_INT, i, NULL};
    }
    must_warn("llama-gqa-f32", many, 12, "llama.unknown_07 and 4 more;");
}

/* Each key with a value that changes results, and one that does not. */
TEST(unread_keys_that_change_results_reject_a_file)
{
    static const struct {
        const char *ref;
        struct edit bad, good;
    } rows[] = {
#define ROW(ref, key, kind, bad, good)                                         \
    {                                                                          \
        ref, {key, EDIT_##kind, bad, NULL},                                    \
        {                                                                      \
            key, EDIT_##kind, good, NULL                                       \
        }                                                                      \
    }
#define LLAMA(key, kind, bad, good) ROW("llama-gqa-f32", key, kind, bad, good)
        LLAMA(".attention.max_alibi_bias", FLOAT, 8, 0),
        LLAMA(".attention.clamp_kqv", FLOAT, 8, 0),
        LLAMA(".attention.scale", FLOAT, 0.5, 0),
        LLAMA(".attention.output_scale", FLOAT, 0.5, 1),
        LLAMA(".attention.value_scale", FLOAT, 0.5, 1),
        LLAMA(".attention.shared_kv_layers", INT, 1, 0),
        LLAMA(".attn_logit_softcapping", FLOAT, 50, 0),
        LLAMA(".router_logit_softcapping", FLOAT, 30, 0),
        LLAMA(".final_logit_softcapping", FLOAT, 30, 0),
        LLAMA(".logit_scale", FLOAT, 0.0625, 1),
        LLAMA(".residual_scale", FLOAT, 0.22, 1),
        LLAMA(".embedding_scale", FLOAT, 12, 1),
        LLAMA(".embedding_length_out", INT, 7, 64),
        LLAMA(".use_parallel_residual", BOOL, 1, 0),
        LLAMA(".swiglu_clamp_exp", FLOAT, 7, 0),
        LLAMA(".interleave_moe_layer_step", INT, 2, 1),
        LLAMA(".rope.scaling.alpha", FLOAT, 1000, 1),
        LLAMA(".rope.global.freq_base", FLOAT, 1e6, 1e4),
        ROW("llama-yarn-f32", ".rope.scaling.yarn_ext_factor", FLOAT, 0, 1),
        ROW("llama-yarn-f32", ".rope.scaling.yarn_attn_factor", FLOAT, 0.5, 1),
        ROW("llama-yarn-f32", ".rope.scaling.yarn_log_multiplier", FLOAT, 0.1,
            0),
        ROW("llama-yarn-f32", ".rope.scaling.yarn_attn_factor", FLOAT, 2,
            1.138629),
        ROW("qwen3moe-f32", ".expert_gating_func", INT, 2, 1),
        ROW("gptoss-f32", ".expert_gating_func", INT, 1, 3),
        ROW("qwen3moe-f32", ".expert_weights_norm", BOOL, 0, 1),
        ROW("qwen3moe-f32", ".expert_weights_scale", FLOAT, 2.5, 1),
        ROW("gemma3-swa-f32", ".rope.dimension_count_swa", INT, 16, 32),
        ROW("gemma3-swa-f32", ".attention.key_length_swa", INT, 64, 32),
        ROW("gemma3-swa-f32", ".rope.local.freq_base", FLOAT, 1e6, 1e4),
#undef LLAMA
#undef ROW
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        must_refuse(rows[i].ref, &rows[i].bad, 1, rows[i].bad.name);
        must_warn(rows[i].ref, &rows[i].good, 1, NULL);
    }
    for (int f = 0; f < N_FAMILY; f++) {
        const struct edit causal = {".attention.causal", EDIT_BOOL, 0, NULL};
        const struct edit temperature = {".attention.temperature_scale",
                                         EDIT_FLOAT, 0.1, NULL};

        must_refuse(families[f], &causal, 1,
                    ".attention.causal is false, which changes the results");
        /* deepseek2 reads this key. */
        if (!strstr(families[f], "deepseek2"))
            must_refuse(families[f], &temperature, 1,
                        ".attention.temperature_scale is 0.1");
    }
}

/* A window that hides nothing passes; a narrower one is named. */
TEST(unread_windows_are_named_where_they_hide_tokens)
{
    const struct edit wide = {".attention.sliding_window", EDIT_INT, 2048,
                              NULL};
    const struct edit narrow = {".attention.sliding_window", EDIT_INT, 1024,
                                NULL};

    must_warn("qwen2-bias-f32", &wide, 1, NULL);
    must_warn("qwen2-bias-f32", &narrow, 1, "qwen2.attention.sliding_window");
}

/* Keys that are read ----------------------------------------------------- */

static const struct graph_node *first(const pl_graph *g, enum op op)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == op)
            return &g->node[i];
    fail_msg("no %s", op_info(op)->name);
    return NULL;
}

static int count_op(const pl_graph *g, enum op op)
{
    int n = 0;

    for (int i = 0; i < g->n_node; i++)
        n += g->node[i].op == op;
    return n;
}

/* n_rot 32, base 10000, 32 positions: c(t) = 32 ln(32 / 2 pi t) / (2 ln 10000),
 * which is 2.83 for t = 1 and 4.03 for t = 0.5. */
TEST(read_yarn_ramp_follows_the_file)
{
    const struct edit e[] = {
        {".rope.scaling.yarn_beta_fast", EDIT_FLOAT, 1, NULL},
        {".rope.scaling.yarn_beta_slow", EDIT_FLOAT, 0.5, NULL}};
    const struct edit wrong = {".rope.scaling.yarn_beta_slow", EDIT_FLOAT, 64,
                               NULL};
    struct opened o;
    struct gguf *g;
    struct model *m;
    pl_err err;

    open_edited(&o, "llama-yarn-f32", e, 2);
    assert_float_equal(first(o.g, OP_rope)->attr.yarn_low, 2, 0);
    assert_float_equal(first(o.g, OP_rope)->attr.yarn_high, 5, 0);
    close_edited(&o);
    open_edited(&o, "llama-yarn-f32", e + 1, 1);
    assert_float_equal(first(o.g, OP_rope)->attr.yarn_high, 5, 0);
    close_edited(&o);
    TEST_OK(gguf_open(&g, edited("llama-yarn-f32", &wrong, 1), &err), err);
    assert_int_equal(model_open(&m, g, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "yarn_beta_slow is 64, more than"));
    gguf_close(g);
}

/* A list or a period says which layers have a window, in all families that have
 * windows; their RoPE may have another base. */
TEST(read_windows_follow_the_file)
{
    const struct edit list[] = {
        {".attention.sliding_window_pattern", EDIT_FLAGS, 0, "0110000"},
        {".rope.freq_base_swa", EDIT_FLOAT, 5000, NULL}};
    const struct edit period = {".attention.sliding_window_pattern", EDIT_INT,
                                3, NULL};
    struct opened o;

    open_edited(&o, "gptoss-f32", list, 2);
    assert_int_equal(o.m->window[0], 0);
    assert_int_equal(o.m->window[1], 8);
    assert_int_equal(o.m->window[2], 8);
    assert_float_equal(o.m->rope_window.base, 5000, 0);
    assert_float_equal(o.m->rope.base, 150000, 0);
    assert_true(o.m->rope_window.yarn);
    /* c(32) = 32 ln(4096 / 2 pi 32) / (2 ln 5000) = 5.66 */
    assert_float_equal(o.m->rope_window.yarn_low, 5, 0);
    close_edited(&o);
    open_edited(&o, "gptoss-f32", NULL, 0);
    assert_int_equal(o.m->window[0], 8);
    assert_int_equal(o.m->window[1], 0);
    assert_float_equal(o.m->rope_window.base, 150000, 0);
    close_edited(&o);
    open_edited(&o, "gptoss-f32", &period, 1);
    assert_int_equal(o.m->window[1], 8);
    assert_int_equal(o.m->window[2], 0);
    close_edited(&o);
    open_edited(&o, "gemma3-swa-f32", list, 1);
    for (int i = 0; i < 7; i++)
        assert_int_equal(o.m->window[i], i == 1 || i == 2 ? 8 : 0);
    close_edited(&o);
}

/* The list of recurrent layers counts more than the interval. */
TEST(read_recurrent_layers_follow_the_file)
{
    const struct edit all = {".attention.recurrent_layers", EDIT_FLAGS, 0,
                             "1110"};
    const struct edit other = {".attention.recurrent_layers", EDIT_FLAGS, 0,
                               "1010"};
    const struct edit interval[] = {
        {".full_attention_interval", EDIT_INT, 2, NULL},
        {".attention.recurrent_layers", EDIT_FLAGS, 0, "1110"}};
    struct gguf *g;
    struct model *m;
    struct opened o;
    pl_err err;

    open_edited(&o, "qwen35moe-f32", &all, 1);
    assert_int_equal(count_op(o.g, OP_delta_net_tiled), 3);
    close_edited(&o);
    open_edited(&o, "qwen35moe-f32", interval, 2);
    assert_int_equal(count_op(o.g, OP_delta_net_tiled), 3);
    close_edited(&o);
    TEST_OK(gguf_open(&g, edited("qwen35moe-f32", &other, 1), &err), err);
    assert_int_not_equal(model_open(&m, g, &err), PL_OK);
    assert_non_null(strstr(err.message, "blk.1.attn_qkv.weight"));
    gguf_close(g);
}

/* Groups of experts, in any family with experts. */
TEST(read_groups_of_experts_in_any_family)
{
    static const char *const moe[] = {"llama-moe-f32", "qwen3moe-f32",
                                      "qwen35moe-f32", "glm4moe-f32"};
    const struct edit e[] = {{".expert_group_count", EDIT_INT, 2, NULL},
                             {".expert_group_used_count", EDIT_INT, 1, NULL}};
    struct opened o;

    for (int i = 0; i < 4; i++) {
        open_edited(&o, moe[i], e, 2);
        assert_int_equal(first(o.g, OP_router_topk)->attr.n_group, 2);
        assert_int_equal(first(o.g, OP_router_topk)->attr.n_group_used, 1);
        close_edited(&o);
    }
}

/* The library ------------------------------------------------------------ */

struct heard {
    int n_warning;
    char last[1024];
};

static void hear(void *user, pl_log_level level, const char *text)
{
    struct heard *h = user;

    if (level < PL_LOG_WARN)
        return;
    h->n_warning++;
    snprintf(h->last, sizeof h->last, "%s", text);
}

/* A plan logs the warning once; that of a prediction block does not repeat
 * it. */
TEST(unread_warning_is_logged_once_by_a_plan)
{
    const struct edit e = {".no_such_key", EDIT_INT, 7, NULL};
    struct heard h = {0};
    pl_options o;
    pl_model *m;
    pl_plan *p;
    pl_err err;

    pl_options_init(&o);
    o.log = hear;
    o.log_user = &h;
    TEST_OK(pl_model_open(&m, edited("glm4moe-f32", &e, 1), &err), err);
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    assert_int_equal(h.n_warning, 1);
    assert_non_null(strstr(h.last, "glm4moe.no_such_key"));
    pl_plan_free(p);
    o.mtp = 1;
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    assert_int_equal(h.n_warning, 1);
    pl_plan_free(p);
    pl_model_free(m);
}

TEST(model_pooling_is_that_of_the_file)
{
    for (int i = -1; i <= 4; i++) {
        const struct edit e = {".pooling_type", EDIT_INT, i, NULL};
        pl_model *m;
        pl_err err;

        TEST_OK(pl_model_open(&m, edited("qwen3-tied-f32", &e, 1), &err), err);
        assert_int_equal(pl_model_pooling(m), (int)PL_POOLING_NONE + i);
        pl_model_free(m);
    }
}

/* All keys of general.sampling; others of the caller's settings stay. */
TEST(model_sampling_is_that_of_the_file)
{
    static const struct edit e[] = {
        {"general.sampling.temp", EDIT_FLOAT, 0.25, NULL},
        {"general.sampling.top_k", EDIT_INT, 7, NULL},
        {"general.sampling.top_p", EDIT_FLOAT, 0.5, NULL},
        {"general.sampling.min_p", EDIT_TEXT, 0, "0.125"},
        {"general.sampling.xtc_probability", EDIT_FLOAT, 0.75, NULL},
        {"general.sampling.xtc_threshold", EDIT_FLOAT, 0.0625, NULL},
        {"general.sampling.penalty_last_n", EDIT_INT, -1, NULL},
        {"general.sampling.penalty_repeat", EDIT_FLOAT, 1.5, NULL},
        {"general.sampling.mirostat", EDIT_INT, 2, NULL},
        {"general.sampling.mirostat_tau", EDIT_FLOAT, 3, NULL},
        {"general.sampling.mirostat_eta", EDIT_FLOAT, 0.5, NULL},
        {"general.sampling.sequence", EDIT_TEXT, 0,
         "top_k;min-p;no_such;temperature;top_k"},
    };
    static const struct edit odd[] = {
        {"general.sampling.temp", EDIT_FLOAT, -1, NULL},
        {"general.sampling.top_k", EDIT_INT, -1, NULL},
        {"general.sampling.top_p", EDIT_INT, 5, NULL},
        {"general.sampling.min_p", EDIT_TEXT, 0, "none"},
        {"general.sampling.mirostat", EDIT_INT, 7, NULL},
        {"general.sampling.sequence", EDIT_TEXT, 0, "no_such"},
    };
    pl_sampling s;
    pl_model *m;
    pl_err err;

    pl_sampling_init(&s);
    s.seed = 99;
    s.dry_base = 3;
    TEST_OK(pl_model_open(&m, edited("qwen3-tied-f32", e, 12), &err), err);
    TEST_OK(pl_model_sampling(m, &s, &err), err);
    assert_float_equal(s.temperature, 0.25, 0);
    assert_int_equal(s.top_k, 7);
    assert_float_equal(s.top_p, 0.5, 0);
    assert_float_equal(s.min_p, 0.125, 0);
    assert_float_equal(s.xtc_probability, 0.75, 0);
    assert_float_equal(s.xtc_threshold, 0.0625, 0);
    assert_int_equal(s.penalty_last_n, -1);
    assert_float_equal(s.repeat_penalty, 1.5, 0);
    assert_int_equal(s.mirostat, 2);
    assert_float_equal(s.mirostat_tau, 3, 0);
    assert_float_equal(s.mirostat_eta, 0.5, 0);
    assert_int_equal(s.n_step, 3);
    assert_int_equal(s.step[0], PL_STEP_TOP_K);
    assert_int_equal(s.step[1], PL_STEP_MIN_P);
    assert_int_equal(s.step[2], PL_STEP_TEMPERATURE);
    assert_int_equal(s.seed, 99);
    assert_float_equal(s.dry_base, 3, 0);
    assert_int_equal(s.size, sizeof s);
    pl_model_free(m);

    pl_sampling_init(&s);
    TEST_OK(pl_model_open(&m, edited("qwen3-tied-f32", odd, 6), &err), err);
    assert_int_equal(pl_model_sampling(m, &s, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "general.sampling.min_p is none"));
    assert_float_equal(s.temperature, 0, 0);
    assert_int_equal(s.top_k, 0);
    assert_float_equal(s.top_p, 1, 0);
    assert_float_equal(s.min_p, 0.05, 1e-6);
    assert_int_equal(s.mirostat, 0);
    assert_int_equal(s.n_step, 0);
    pl_model_free(m);
}
