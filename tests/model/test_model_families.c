/* Laws of all families that are not core (lib/ref_models.h), each tried with
 * its made model. A key that changes results is read or rejects the file; a
 * tensor that is missing or has another shape is named; a key that plait does
 * not know is named in a warning. doc/families.md lists all families. The core
 * families have cases of their own in test_model_open.c and
 * test_model_unread.c. */
#include "graph/graph.h"
#include "lib/edit_model.h"
#include "lib/made_model.h"
#include "lib/support.h"
#include "model/model.h"
#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls `test` with the path of the made model of each family that is not
 * core. */
static void each_family(void (*test)(const char *path))
{
    int n, n_family = 0;
    const struct made_name *made = made_model_names(&n);

    for (int i = 0; i < n; i++) {
        char file[80];

        if (!made[i].smallest || ref_model_is_core(made[i].name))
            continue;
        snprintf(file, sizeof file, "%s.gguf", made[i].name);
        test(made_model_file(file));
        n_family++;
    }
    assert_in_range(n_family, 32, 100);
}

/* Opens an edited copy of the model at `path`. Returns the text of its graph,
 * owned by the caller, or NULL if the file is rejected, with the reason in
 * *err. With `unread`, writes the warning to it. */
static char *graph_of(const char *path, const struct edit *e, int n,
                      char unread[1024], pl_err *err)
{
    const struct model_graph_options opt = {.cache_k = PL_F32,
                                            .cache_v = PL_F32};
    struct test_text text = {0};
    struct gguf *file;
    struct model *m;
    pl_graph *g;
    pl_err own;

    TEST_OK(gguf_open(&file, edit_model(path, true, e, n), &own), own);
    if (model_open(&m, file, err) == PL_OK) {
        TEST_OK(pl_graph_create(&g, &own), own);
        TEST_OK(model_graph(m, g, &opt, &own), own);
        assert_int_equal(pl_graph_print(g, test_text_add, &text, NULL), PL_OK);
        pl_graph_free(g);
        if (unread)
            snprintf(unread, 1024, "%s", m->unread ? m->unread : "");
        model_close(m);
    }
    gguf_close(file);
    return text.s;
}

/* ---- keys ---------------------------------------------------------------- */

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n >= k && !strcmp(s + n - k, end);
}

/* Returns true if another value of the key may leave the graph as it is: the
 * key describes only the context or images, or the shapes of tensors tell the
 * same. */
static bool is_free(const char *key)
{
    static const char *const names[] = {
        ".context_length", ".vocab_size", ".block_count",
        ".rope.dimension_sections", ".n_deepstack_layers",
        ".feed_forward_length", ".expert_shared_count",
        ".expert_feed_forward_length", ".interleave_moe_layer_step",
        ".use_parallel_residual",
        /* used with several groups of experts only */
        "nemotron_h_moe.expert_group_used_count",
        /* the weights of experts are normalised whatever it says */
        "kimi-linear.expert_weights_norm",
        /* its made model has no RoPE */
        "granitehybrid.rope.freq_base",
        /* files have both epsilons */
        "nemotron_h.attention.layer_norm_epsilon",
        "nemotron_h_moe.attention.layer_norm_epsilon"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ends(key, names[i]))
            return true;
    return false;
}

/* Sets *e to a change of the key, of a number to a much smaller one if `less`.
 * Returns false if there is none. `text` gets the flags of a list of
 * booleans. */
static bool changed(struct edit *e, const struct gguf_kv *kv, bool less,
                    char text[64])
{
    double v = 0;
    bool is = false;

    *e = (struct edit){.name = kv->key};
    if (kv->type == GGUF_ARRAY && kv->elem == GGUF_BOOL) {
        assert_in_range(kv->count, 1, 63);
        for (uint64_t i = 0; i < kv->count; i++) {
            gguf_as_bool(kv, i, &is);
            text[i] = is ? '0' : '1';
        }
        text[kv->count] = '\0';
        e->kind = EDIT_FLAGS;
        e->text = text;
        return true;
    }
    if (kv->elem == GGUF_BOOL) {
        gguf_as_bool(kv, 0, &is);
        e->kind = EDIT_BOOL;
        e->v = !is;
        return true;
    }
    if (kv->elem == GGUF_STRING || !gguf_as_f64(kv, 0, &v))
        return false;
    e->kind = kv->elem == GGUF_F32 ? EDIT_FLOAT : EDIT_INT;
    if (strstr(kv->key, ".yarn_beta_") || less)
        e->v = v / 64;
    else if (kv->elem == GGUF_F32)
        e->v = v > 0 ? 1.5 * v : v + 0.5;
    else if (ends(kv->key, "_func"))
        e->v = 3 - v;
    else /* YaRN's ramp begins and ends at whole pairs */
        e->v = ends(kv->key, ".original_context_length") ? 64 * v : v + 1;
    return true;
}

/* Returns true if another value of the key changes the graph `plain`, or if the
 * file is rejected or the key named then. */
static bool counts(const char *path, const struct gguf_kv *kv, bool less,
                   const char *plain)
{
    char text[64], unread[1024] = "", *other;
    struct edit e;
    bool same;
    pl_err err;

    if (!changed(&e, kv, less, text))
        return true;
    other = graph_of(path, &e, 1, unread, &err);
    same = other && !strcmp(plain, other) && unread[0] == '\0';
    free(other);
    return !same;
}

static void keys_count(const char *path)
{
    char *plain = graph_of(path, NULL, 0, NULL, NULL);
    struct gguf *g;
    int n = 0;
    pl_err err;

    assert_non_null(plain);
    TEST_OK(gguf_open(&g, path, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (!strncmp(kv->key, "general.", 8) ||
            !strncmp(kv->key, "tokenizer.", 10) || is_free(kv->key))
            continue;
        if (!counts(path, kv, false, plain) && !counts(path, kv, true, plain))
            fail_msg("%s: another value changes nothing", kv->key);
        n++;
    }
    assert_true(n >= 4);
    gguf_close(g);
    free(plain);
}

TEST(families_read_every_key_that_changes_results)
{
    each_family(keys_count);
}

static void keys_are_judged(const char *path)
{
    static const struct edit bad[] = {
        {".attention.causal", EDIT_BOOL, 0, NULL},
        {".attention.max_alibi_bias", EDIT_FLOAT, 8, NULL},
        {".attention.clamp_kqv", EDIT_FLOAT, 8, NULL},
        {".router_logit_softcapping", EDIT_FLOAT, 30, NULL},
        {".use_parallel_residual", EDIT_BOOL, 1, NULL},
        {".hash_layer_count", EDIT_INT, 1, NULL},
        {".hyper_connection.count", EDIT_INT, 4, NULL},
    };
    static const struct edit unknown = {".no_such_key", EDIT_INT, 7, NULL};
    char unread[1024];
    pl_err err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        /* In stablelm, the tensors tell what this key tells in others. */
        if (!strcmp(bad[i].name, ".use_parallel_residual") &&
            strstr(path, "stablelm"))
            continue;
        /* deepseek4 reads these keys. */
        if (strstr(path, "deepseek4") &&
            (!strcmp(bad[i].name, ".hash_layer_count") ||
             !strcmp(bad[i].name, ".hyper_connection.count")))
            continue;
        assert_null(graph_of(path, &bad[i], 1, NULL, &err));
        assert_int_equal(err.status, PL_UNSUPPORTED);
        if (!strstr(err.message, bad[i].name))
            fail_msg("%s: %s", bad[i].name, err.message);
    }
    free(graph_of(path, &unknown, 1, unread, &err));
    assert_non_null(strstr(unread, ".no_such_key"));
    free(graph_of(path, NULL, 0, unread, &err));
    assert_string_equal(unread, "");
}

TEST(families_reject_or_name_keys_they_do_not_read)
{
    each_family(keys_are_judged);
}

/* ---- Mistral's temperature and YaRN -------------------------------------- */

struct mistral {
    const char *file;
    struct edit edit;
    /* what is read then: factor of cos and sin, factor of scores (0: not
     * compared), positions after which the temperature grows */
    double mscale, query_scale;
    int64_t length;
};

static void reads_mistral(const struct mistral *t)
{
    const char *path = made_model_file(t->file);
    struct gguf *file;
    struct model *m;
    pl_err err;

    TEST_OK(gguf_open(&file, edit_model(path, true, &t->edit, 1), &err), err);
    TEST_OK(model_open(&m, file, &err), err);
    assert_true(fabs((double)m->rope.mscale / t->mscale - 1) < 1e-6);
    if (t->query_scale > 0)
        assert_true(fabs((double)m->query_scale / t->query_scale - 1) < 1e-6);
    assert_true(fabs((double)m->temp - 0.1) < 1e-6);
    assert_int_equal(m->temp_length, t->length);
    model_close(m);
    gguf_close(file);
}

/* A key l changes the factor m of cos and sin to (1 + 0.1 ln f) / (1 + 0.1 l ln
 * f). In mistral4 l is ten times the key, and scores are multiplied by the
 * square of m (1 + 0.1 l ln f). */
TEST(mistral_keys_of_yarn_and_temperature_are_read)
{
    static const char log_key[] = ".rope.scaling.yarn_log_multiplier";
    static const char length[] = ".rope.scaling.original_context_length";
    const double a = 1 + 0.1 * log(16), b = 1 + 0.1 * log(8);
    const struct mistral cases[] = {
        {"mistral3-f32.gguf", {log_key, EDIT_FLOAT, 1, NULL}, 1, 0, 16},
        {"mistral3-f32.gguf",
         {log_key, EDIT_FLOAT, 0.5, NULL},
         a / (1 + 0.05 * log(16)),
         0,
         16},
        {"mistral3-f32.gguf", {log_key, EDIT_DROP, 0, NULL}, a, 0, 16},
        {"mistral3-f32.gguf", {length, EDIT_DROP, 0, NULL}, 1, 0, 4096},
        {"mistral4-f32.gguf",
         {log_key, EDIT_FLOAT, 0.1, NULL},
         1,
         b * b / sqrt(24),
         8},
        {"mistral4-f32.gguf",
         {log_key, EDIT_FLOAT, 0.05, NULL},
         b / (1 + 0.05 * log(8)),
         b * b / sqrt(24),
         8},
    };
    static const struct edit none = {".attention.temperature_length", EDIT_INT,
                                     0, NULL};
    pl_err err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        reads_mistral(&cases[i]);
    assert_null(
        graph_of(made_model_file("mistral4-f32.gguf"), &none, 1, NULL, &err));
    assert_int_equal(err.status, PL_BAD_FILE);
    assert_non_null(strstr(err.message, "temperature_length is missing or 0"));
}

static int count_lines(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += *s == '\n';
    return n;
}

/* Files count blocks for multi-token prediction, which come last, among their
 * layers. The network's graph is the same with them. */
static void blocks_are_left_out(const char *path)
{
    struct edit e[2] = {{".block_count", EDIT_INT, 0, NULL},
                        {".nextn_predict_layers", EDIT_INT, 1, NULL}};
    char *plain = graph_of(path, NULL, 0, NULL, NULL), *with, key[64];
    struct gguf_str arch;
    struct gguf *g;
    int64_t n;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    TEST_OK(gguf_get_str(g, "general.architecture", &arch, &err), err);
    snprintf(key, sizeof key, "%.*s.block_count", (int)arch.len, arch.s);
    TEST_OK(gguf_need_i64(g, key, 1, 99, &n, &err), err);
    gguf_close(g);
    e[0].v = (double)(n + 1);
    with = graph_of(path, e, 2, NULL, &err);
    if (!with)
        fail_msg("%s: %s", path, err.message);
    assert_string_equal(with, plain);
    free(with);
    free(plain);
}

TEST(families_leave_out_blocks_after_the_layers)
{
    each_family(blocks_are_left_out);
}

/* Mistral Large 3 has the architecture deepseek2 and the keys of the
 * temperature: one op more a layer, which multiplies the queries. */
TEST(deepseek2_queries_may_have_a_temperature)
{
    static const struct edit temp[] = {
        {".attention.temperature_scale", EDIT_FLOAT, 0.1, NULL},
        {".attention.temperature_length", EDIT_INT, 16, NULL},
    };
    const char *path = made_model_file("deepseek2-mla-f32.gguf");
    char *plain = graph_of(path, NULL, 0, NULL, NULL), *tempered;
    struct gguf *g;
    int64_t n_layer;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    TEST_OK(gguf_need_i64(g, "deepseek2.block_count", 1, 99, &n_layer, &err),
            err);
    gguf_close(g);
    tempered = graph_of(path, temp, 2, NULL, &err);
    assert_non_null(tempered);
    assert_int_equal(count_lines(tempered), count_lines(plain) + n_layer);
    free(tempered);
    free(plain);
}

/* Kimi Linear's experts have weights whose sum is 1; a key that says otherwise
 * is passed over, as in llama.cpp. */
TEST(kimi_linear_normalises_whatever_the_key_says)
{
    static const struct edit no = {".expert_weights_norm", EDIT_BOOL, 0, NULL};
    const char *path = made_model_file("kimi-linear-f32.gguf");
    char *plain = graph_of(path, NULL, 0, NULL, NULL), *other;
    pl_err err;

    other = graph_of(path, &no, 1, NULL, &err);
    assert_non_null(other);
    assert_string_equal(other, plain);
    free(other);
    free(plain);
}

/* Returns how often `word` stands in the graph of the made model `file` with
 * this edit. */
static int count_words(const char *file, const struct edit *e, const char *word)
{
    char *text = graph_of(made_model_file(file), e, 1, NULL, NULL);
    int n = 0;

    assert_non_null(text);
    for (const char *s = text; (s = strstr(s, word)); s++)
        n++;
    free(text);
    return n;
}

/* A limit adds two ops to a layer: those of the experts to layers 1 to 3, that
 * of feed-forward parts and shared experts to all four. */
TEST(bailingmoe3_limits_experts_and_other_parts_apart)
{
    static const struct edit experts = {".swiglu_clamp_exp", EDIT_FLOAT, 2,
                                        NULL};
    static const struct edit others = {".swiglu_clamp_shexp", EDIT_FLOAT, 2,
                                       NULL};
    static const struct edit unsafe = {".kda.safe_gate", EDIT_BOOL, 0, NULL};
    static const struct edit above = {".kda.gate_lower_bound", EDIT_FLOAT, 1,
                                      NULL};
    static const char file[] = "bailingmoe3-f32.gguf";
    pl_err err;

    assert_int_equal(count_words(file, &experts, " = clamp("), 6);
    assert_int_equal(count_words(file, &others, " = clamp("), 8);
    assert_null(graph_of(made_model_file(file), &unsafe, 1, NULL, &err));
    assert_int_equal(err.status, PL_UNSUPPORTED);
    assert_null(graph_of(made_model_file(file), &above, 1, NULL, &err));
    assert_int_equal(err.status, PL_BAD_FILE);
    assert_non_null(strstr(err.message, "kda.gate_lower_bound is 1"));
}

/* ---- chosen keys --------------------------------------------------------- */

/* Checks which layer's choice of keys each layer of glm-dsa uses if its list of
 * indexers is `types`. */
static void shares_choice(const char *types, const int layers[3])
{
    const struct model_graph_options opt = {.cache_k = PL_F32,
                                            .cache_v = PL_F32};
    const struct edit e = {".attention.indexer.types", EDIT_FLAGS, 0, types};
    struct gguf *file;
    struct model *m;
    pl_graph *g;
    pl_err err;
    int n = 0;

    TEST_OK(gguf_open(&file,
                      edit_model(made_model_file("glm-dsa-shared-f32.gguf"),
                                 true, &e, 1),
                      &err),
            err);
    TEST_OK(model_open(&m, file, &err), err);
    TEST_OK(pl_graph_create(&g, &err), err);
    TEST_OK(model_graph(m, g, &opt, &err), err);
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *x = &g->node[i];

        if (x->op != OP_latent_attention)
            continue;
        assert_int_equal(x->n_in, 3);
        assert_int_equal(g->node[x->in[2]].op, OP_index_topk);
        assert_in_range(n, 0, 2);
        assert_int_equal(g->node[x->in[2]].layer, layers[n++]);
    }
    assert_int_equal(n, 3);
    pl_graph_free(g);
    model_close(m);
    gguf_close(file);
}

TEST(glm_dsa_layers_without_an_indexer_use_the_last_choice)
{
    static const struct edit none = {".attention.indexer.types", EDIT_FLAGS, 0,
                                     "011"};
    pl_err err;

    shares_choice("101", (const int[]){0, 0, 2});
    assert_null(graph_of(made_model_file("glm-dsa-shared-f32.gguf"), &none, 1,
                         NULL, &err));
    assert_int_equal(err.status, PL_BAD_FILE);
    assert_non_null(strstr(err.message, "the first layer has no indexer"));
}

/* ---- tables of experts --------------------------------------------------- */

/* The layers of deepseek4 whose experts a table chooses have no router's
 * choice. A table that names an expert that does not exist is refused. */
TEST(deepseek4_tables_choose_experts_that_exist)
{
    static const char name[] = "blk.0.ffn_gate_tid2eid.weight";
    const char *path = made_model_file("deepseek4-f32.gguf");
    const char *bad = test_temp("table.gguf");
    const struct gguf_tensor *t;
    const int32_t six = 6;
    struct gguf *file;
    struct model *m;
    unsigned char *bytes;
    size_t n;
    FILE *f;
    pl_err err;

    TEST_OK(gguf_open(&file, path, &err), err);
    t = gguf_find_tensor(file, name);
    assert_non_null(t);
    bytes = test_read(path, &n);
    memcpy(bytes + t->offset + t->bytes - sizeof six, &six, sizeof six);
    gguf_close(file);
    f = fopen(bad, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    TEST_OK(gguf_open(&file, bad, &err), err);
    assert_int_equal(model_open(&m, file, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, name));
    assert_non_null(strstr(err.message, "is 6, not in 0 .. 5"));
    gguf_close(file);
}

/* ---- tensors ------------------------------------------------------------- */

/* Returns true if a model may lack the tensor. Without it, another one may be
 * missing or be left over, and then the file is rejected. */
static bool is_optional(const char *name)
{
    static const char *const parts[] = {"output.weight", "rope_freqs",
                                        "exp_probs_b", "attn_sinks"};
    const bool bias = ends(name, ".bias");

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]) && !strstr(name, "attn_output"))
            return true;
    return bias && !strstr(name, "_norm.");
}

/* Fails unless the message names the tensor or at least its layer: without
 * ffn_gate_inp, a layer may count as one without experts, which lacks
 * others. */
static void must_name(const pl_err *err, const char *name)
{
    size_t layer = strncmp(name, "blk.", 4) ? strlen(name)
                                            : 4 + strcspn(name + 4, ".") + 1;
    char part[96];

    snprintf(part, sizeof part, "%.*s", (int)layer, name);
    if (!strstr(err->message, part))
        fail_msg("%s: %s", name, err->message);
}

static void tensors_are_named(const char *path)
{
    static int from;
    const int each = test_long() ? 1 : 7;
    struct gguf *g;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    for (int64_t i = from++ % each; i < gguf_n_tensor(g); i += each) {
        const char *name = gguf_tensor_at(g, i)->name;
        const struct edit without = {name, EDIT_DROP, 0, NULL};
        const struct edit other = {name, EDIT_TENSOR, 7, NULL};
        char *text;

        /* no graph of the default context has it */
        if (strstr(name, "rope_factors_long"))
            continue;
        text = graph_of(path, &without, 1, NULL, &err);
        if (text && !is_optional(name))
            fail_msg("%s is not missed", name);
        if (!text && !is_optional(name))
            must_name(&err, name);
        free(text);
        if (graph_of(path, &other, 1, NULL, &err))
            fail_msg("%s may have 7 values", name);
        must_name(&err, name);
    }
    gguf_close(g);
}

TEST(families_name_tensors_that_are_missing_or_misshapen)
{
    each_family(tensors_are_named);
}

/* ---- the list ------------------------------------------------------------ */

/* Returns true if tests/refs/encoders describes a model of the family. */
static bool is_encoder(const char *arch)
{
    char path[600];

    snprintf(path, sizeof path, PLAIT_SOURCE_DIR "/tests/refs/encoders/%s.json",
             arch);
    return access(path, R_OK) == 0;
}

/* Returns true if a made model, or one of tests/refs, is of the family. */
static bool has_model(const char *arch)
{
    int n;
    const struct made_name *made = made_model_names(&n);

    for (int i = 0; i < n; i++)
        if (!strcmp(made[i].family, arch))
            return true;
    /* tests/refs has its files */
    return !strcmp(arch, "qwen2") || is_encoder(arch);
}

/* Returns true if the first column of a table in the document has the name, in
 * which Markdown needs a backslash before "_". */
static bool is_listed(const char *text, const char *arch)
{
    for (const char *row = strstr(text, "\n| "); row;
         row = strstr(row + 1, "\n| ")) {
        char name[64];
        size_t n = 0;

        for (const char *c = row + 3; *c && *c != '|'; c++) {
            if (*c != ',' && *c != ' ') {
                if (*c != '\\' && n < sizeof name - 1)
                    name[n++] = *c;
                continue;
            }
            name[n] = '\0';
            n = 0;
            if (!strcmp(name, arch))
                return true;
        }
    }
    return false;
}

TEST(families_all_have_a_model)
{
    for (int i = 0; model_family_name(i); i++)
        if (!has_model(model_family_name(i)))
            fail_msg("%s has no model in tests/refs", model_family_name(i));
}

TEST(documents_list_every_family)
{
    size_t n;
    char *text = test_read(test_file("doc/families.md"), &n);

    for (int i = 0; model_family_name(i); i++)
        if (!is_listed(text, model_family_name(i)))
            fail_msg("doc/families.md does not have %s", model_family_name(i));
    free(text);
}
