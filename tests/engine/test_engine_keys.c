/* Overrides of a model's keys (pl_model_open_override). A model with overrides
 * is the model that the file would be with these values: it computes the same
 * bits, has the same numeric hash, and restores the same states. What changes
 * nothing, or cannot be computed, is rejected by name. */
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/edit_model.h"
#include "lib/engine_run.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40, MOST_EDIT = 4 };

static const char *path_of(const char *ref)
{
    char file[64];

    snprintf(file, sizeof file, "%s.gguf", ref);
    return test_ref_need(file);
}

/* Opens a model with an override, NULL for none, and its engine. */
static void open_with(struct engine_run *r, const char *path, const char *text,
                      const pl_options *o)
{
    pl_err err;

    TEST_OK(pl_model_open_override(&r->model, path, &text, text != NULL, &err),
            err);
    TEST_OK(pl_engine_create(&r->engine, r->model, o, &err), err);
    r->n_vocab = pl_model_n_vocab(r->model);
}

/* The logits of a model for N tokens, and the plan's numeric hash. */
struct result {
    float *logits; /* [N, n_vocab] logits, owned */
    size_t bytes;
    uint64_t hash;
};

static struct result compute(const char *path, const char *text,
                             const pl_options *o)
{
    struct engine_run r;
    struct result result;
    int32_t token[N];
    uint64_t random = 3;

    open_with(&r, path, text, o);
    result.bytes = (size_t)(N * r.n_vocab) * sizeof *result.logits;
    result.logits = test_need(1, result.bytes);
    result.hash = r.engine->plan->compiled->numeric_hash;
    engine_run_tokens(&r, &random, N, token);
    engine_run_decode(&r, 0, N, token, result.logits);
    engine_run_close(&r);
    return result;
}

static bool same(const struct result *a, const struct result *b)
{
    return a->hash == b->hash && a->bytes == b->bytes &&
           memcmp(a->logits, b->logits, a->bytes) == 0;
}

static void need_same(const struct result *a, const struct result *b,
                      const char *what)
{
    if (!same(a, b))
        fail_msg("%s: other bits", what);
}

/* ---- equal bits ---------------------------------------------------------- */

#define FACTOR 4, NULL
#define YARN                                                                   \
    {".rope.scaling.type", EDIT_TEXT, 0, "yarn"},                              \
    {                                                                          \
        ".rope.scaling.factor", EDIT_FLOAT, FACTOR                             \
    }
#define YARN_TEXT ".rope.scaling.type=str:yarn,.rope.scaling.factor=float:4"

/* A change of a file, and the override that equals it. */
static const struct change {
    const char *ref;
    /* the changes; the last one is followed by one without a name */
    struct edit edit[MOST_EDIT];
    const char *text;
} changes[] = {
    {"qwen3-tied-f32",
     {{".rope.freq_base", EDIT_FLOAT, 500.5, NULL}},
     ".rope.freq_base=float:500.5"},
    {"qwen3-tied-f32",
     {{".rope.scaling.factor", EDIT_FLOAT, 0.3, NULL}},
     "qwen3.rope.scaling.factor=float:0.3"},
    {"qwen3-tied-f32",
     {YARN, {".rope.scaling.original_context_length", EDIT_INT, 16, NULL}},
     YARN_TEXT ",.rope.scaling.original_context_length=int:16"},
    {"qwen2-bias-f32", {YARN}, YARN_TEXT},
    {"llama-yarn-f32",
     {{".rope.scaling.type", EDIT_TEXT, 0, "linear"}},
     "llama.rope.scaling.type=str:linear"},
    {"llama-yarn-f32",
     {{".rope.scaling.type", EDIT_TEXT, 0, "none"}},
     ".rope.scaling.type=str:none"},
    {"llama-yarn-f32",
     {{".rope.scaling.attn_factor", EDIT_FLOAT, 1.1, NULL}},
     ".rope.scaling.attn_factor=float:1.1"},
    {"llama-yarn-f32",
     {{".rope.scaling.yarn_beta_fast", EDIT_FLOAT, 2, NULL},
      {".rope.scaling.yarn_beta_slow", EDIT_FLOAT, 0.5, NULL}},
     ".rope.scaling.yarn_beta_slow=float:0.5,"
     ".rope.scaling.yarn_beta_fast=float:2"},
    {"qwen3moe-f32",
     {{".expert_used_count", EDIT_INT, 1, NULL}},
     "qwen3moe.expert_used_count=int:1"},
    {"qwen3moe-f32",
     {{".attention.layer_norm_rms_epsilon", EDIT_FLOAT, 0.01, NULL}},
     "qwen3moe.attention.layer_norm_rms_epsilon=float:0.01"},
    {"gemma3-swa-f32",
     {{".attention.sliding_window", EDIT_INT, 3, NULL}},
     "gemma3.attention.sliding_window=int:3"},
    {"deepseek2-mla-f32",
     {YARN, {".rope.scaling.yarn_log_multiplier", EDIT_FLOAT, 0.05, NULL}},
     YARN_TEXT ",.rope.scaling.yarn_log_multiplier=float:0.05"},
};
enum { N_CHANGE = sizeof changes / sizeof changes[0] };

static const char *edited(const struct change *c)
{
    int n = 0;

    while (n < MOST_EDIT && c->edit[n].name)
        n++;
    return edit_model(path_of(c->ref), false, c->edit, n);
}

TEST(overrides_give_the_bits_of_a_file_with_these_values)
{
    const pl_options o = engine_run_options();

    for (int i = 0; i < N_CHANGE; i++) {
        const char *path = path_of(changes[i].ref);
        struct result plain = compute(path, NULL, &o),
                      file = compute(edited(&changes[i]), NULL, &o),
                      own = compute(path, changes[i].text, &o);

        need_same(&own, &file, changes[i].text);
        if (own.hash == plain.hash ||
            memcmp(own.logits, plain.logits, own.bytes) == 0)
            fail_msg("%s changes nothing", changes[i].text);
        free(plain.logits);
        free(file.logits);
        free(own.logits);
    }
}

TEST(overrides_give_the_same_bits_on_all_devices)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
    } rows[] = {{"cpu*2", PL_SPLIT_TENSOR},
                {"cpu*2", PL_SPLIT_LAYER},
                {"sim*2", PL_SPLIT_TENSOR},
                {"proc*2", PL_SPLIT_TENSOR},
                {"emu*2", PL_SPLIT_TENSOR}};
    const struct change *c = &changes[2];
    pl_options o = engine_run_options();
    struct result want;

    o.n_ranks = 2;
    want = compute(edited(c), NULL, &o);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct result got;

        o.devices = rows[i].devices;
        o.split_mode = rows[i].mode;
        got = compute(path_of(c->ref), c->text, &o);
        need_same(&got, &want, rows[i].devices);
        free(got.logits);
    }
    free(want.logits);
}

/* The last value of a key counts, but one with a dot counts more. An override
 * by the file's own value changes nothing. */
TEST(overrides_of_one_key_have_an_order)
{
    static const char *const both[] = {
        ".rope.freq_base=float:500.5,qwen3.rope.freq_base=float:7",
        "qwen3.rope.freq_base=float:8"};
    const pl_options o = engine_run_options();
    const char *path = path_of("qwen3-tied-f32");
    struct result want = compute(path, changes[0].text, &o), got;
    pl_model *m;
    pl_err err;

    got = compute(path, both[0], &o);
    need_same(&got, &want, both[0]);
    free(got.logits);
    free(want.logits);
    TEST_OK(pl_model_open_override(&m, path, both, 2, &err), err);
    assert_float_equal(m->model->rope.base, 500.5, 0);
    pl_model_free(m);
    TEST_OK(pl_model_open_override(
                &m, path,
                (const char *const[]){both[1], "qwen3.rope.freq_base=int:9"}, 2,
                &err),
            err);
    assert_float_equal(m->model->rope.base, 9, 0);
    pl_model_free(m);
    TEST_OK(pl_model_open_override(&m, path, NULL, 0, &err), err);
    pl_model_free(m);
}

/* ---- states -------------------------------------------------------------- */

static void *save(const char *path, const char *text, size_t *n)
{
    const pl_options o = engine_run_options();
    int32_t token[N] = {1, 2, 3};
    struct engine_run r;
    void *data;
    pl_err err;

    open_with(&r, path, text, &o);
    engine_run_decode(&r, 0, N, token, NULL);
    TEST_OK(pl_state_save_memory(r.engine, 0, 0, -1, &data, n, &err), err);
    engine_run_close(&r);
    return data;
}

static pl_status restore(const char *path, const char *text, const void *data,
                         size_t n, pl_err *err)
{
    const pl_options o = engine_run_options();
    struct engine_run r;
    pl_status s;

    open_with(&r, path, text, &o);
    s = pl_state_restore_memory(r.engine, 0, data, n, 0, err);
    engine_run_close(&r);
    return s;
}

/* The keys of cached pages on disk begin with the head of a state. */
TEST(overrides_are_part_of_the_model_in_saved_states)
{
    for (int i = 0; i < N_CHANGE; i++) {
        const struct change *c = &changes[i];
        const char *path = path_of(c->ref);
        size_t n;
        void *data = save(path, c->text, &n);
        pl_err err;

        TEST_OK(restore(path, c->text, data, n, &err), err);
        TEST_OK(restore(edited(c), NULL, data, n, &err), err);
        if (restore(path, NULL, data, n, &err) != PL_BAD_ARGUMENT ||
            !strstr(err.message, "the state is of another model"))
            fail_msg("%s: the state was restored without it", c->text);
        free(data);
        data = save(path, NULL, &n);
        if (restore(path, c->text, data, n, &err) != PL_BAD_ARGUMENT)
            fail_msg("%s: a state without it was restored", c->text);
        free(data);
    }
}

/* ---- what is rejected ---------------------------------------------------- */

TEST(overrides_that_cannot_be_are_rejected_by_name)
{
    static const struct {
        const char *ref, *text;
        pl_status s;
        const char *said[2];
    } rows[] = {
#define ROW(text, ...)                                                         \
    {                                                                          \
        "qwen3moe-f32", text, PL_BAD_ARGUMENT,                                 \
        {                                                                      \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
        ROW("", "the override '' is not KEY=TYPE:VALUE"),
        ROW("a", "the override 'a' is not"),
        ROW("a=3", "the override 'a=3' is not"),
        ROW("=int:3", "the override '=int:3' is not"),
        ROW("a=long:3", "with a type of int, float, bool or str"),
        ROW("a=in:3", "the override 'a=in:3' is not"),
        ROW("a=int:3,", "the override '' is not"),
        ROW("a=int:", "after int: give a whole number"),
        ROW("a=int:3.5", "after int: give a whole number"),
        ROW("a=int: 3", "after int: give a whole number"),
        ROW("a=int:9223372036854775808", "after int: give a whole number"),
        ROW("a=float:", "after float: give a finite number"),
        ROW("a=float:1e39", "after float: give a finite number"),
        ROW("a=float:nan", "after float: give a finite number"),
        ROW("a=float:0x1", "after float: give a finite number"),
        ROW("a=float:1,5", "the override '5' is not"),
        ROW("a=bool:1", "after bool: give true or false"),
        ROW("\"a=str:x", "the override '' is not"),
        /* No code reads these keys in this model. */
        ROW("a=int:3", "the override of key a changes nothing"),
        ROW("split.count=int:1", "key split.count changes nothing"),
        ROW("general.alignment=int:64", "general.alignment changes nothing"),
        ROW("general.file_type=int:1", "general.file_type changes nothing"),
        ROW("llama.block_count=int:2", "llama.block_count changes nothing"),
        ROW("qwen3moe.rope.scaling.original_context_length=int:8",
            "qwen3moe.rope.scaling.original_context_length changes nothing"),
        ROW(".rope.scaling.yarn_beta_fast=float:8",
            "qwen3moe.rope.scaling.yarn_beta_fast changes nothing"),
        ROW(".rope.dimension_sections=int:8", "dimension_sections changes"),
        ROW(".no_such_key=int:8", "qwen3moe.no_such_key changes nothing"),
        /* The code that reads the key does not accept this value. */
        ROW("qwen3moe.expert_used_count=int:0",
            "the override of key qwen3moe.expert_used_count is int:0 where",
            "an integer from 1 to "),
        ROW("qwen3moe.expert_used_count=float:1.5", "is float:1.5 where"),
        ROW("qwen3moe.expert_used_count=str:2", "is str:2 where"),
        ROW("qwen3moe.expert_used_count=bool:true", "is bool:true where"),
        ROW(".rope.freq_base=str:1", "is str:1 where a finite number"),
        ROW(".rope.scaling.type=int:1", "is int:1 where a string is expected"),
        ROW("general.architecture=int:1", "is int:1 where a string"),
        ROW("tokenizer.ggml.add_bos_token=int:2", "is int:2 where a bool is"),
        ROW("tokenizer.chat_template=int:2", "is int:2 where a string is"),
        ROW("general.sampling.temp=str:hot",
            "the override of key general.sampling.temp is hot, not a number"),
#undef ROW
#define ROW(s, text, said)                                                     \
    {                                                                          \
        "qwen3moe-f32", text, PL_##s,                                          \
        {                                                                      \
            said                                                               \
        }                                                                      \
    }
        ROW(BAD_FILE, ".rope.scaling.factor=float:0.0000001",
            "key qwen3moe.rope.scaling.factor is 1e-07, not in"),
        ROW(UNSUPPORTED, ".rope.scaling.type=str:longrope", "'longrope'"),
        ROW(UNSUPPORTED, "qwen3moe.attention.causal=bool:false",
            "key qwen3moe.attention.causal is false, which changes"),
        ROW(UNSUPPORTED, YARN_TEXT ",.rope.scaling.yarn_ext_factor=float:0.5",
            "yarn_ext_factor is 0.5, which changes the results"),
        ROW(UNSUPPORTED, "general.architecture=str:nonesuch", "'nonesuch'"),
        /* With these values the tensors would need other shapes. */
        ROW(BAD_FILE, "qwen3moe.embedding_length=int:128", "weight"),
        ROW(UNSUPPORTED, "qwen3moe.block_count=int:1", "blk.1."),
#undef ROW
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_err err = {0};
        pl_model *m;
        pl_status s = pl_model_open_override(&m, path_of(rows[i].ref),
                                             &rows[i].text, 1, &err);

        if (s == PL_OK)
            fail_msg("%s: accepted", rows[i].text);
        assert_null(m);
        for (int k = 0; k < 2 && rows[i].said[k]; k++)
            if (s != rows[i].s || !strstr(err.message, rows[i].said[k]))
                fail_msg("%s: %s", rows[i].text, err.message);
    }
}

/* A key that no code reads is accepted with the value that plait computes with;
 * a key of the sampler or of chats is read after the model is opened. */
TEST(overrides_of_keys_read_late_or_judged_pass)
{
    static const char *const texts[] = {
        "qwen3moe.attention.causal=bool:true",
        YARN_TEXT ",.rope.scaling.yarn_ext_factor=float:1",
        "general.sampling.temp=float:0.5",
        "general.sampling.sequence=str:top_k;temperature",
        "tokenizer.chat_template.tool_use=str:x",
        "tokenizer.ggml.padding_token_id=int:2",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        pl_model *m;
        pl_err err;

        TEST_OK(pl_model_open_override(&m, path_of("qwen3moe-f32"), &texts[i],
                                       1, &err),
                err);
        assert_null(m->model->unread);
        pl_model_free(m);
    }
}

/* ---- text ---------------------------------------------------------------- */

TEST(overrides_reach_tokenizer_sampler_and_template)
{
    static const char *const texts[] = {
        "tokenizer.ggml.add_bos_token=bool:true,general.sampling.top_k=int:7",
        "\"tokenizer.chat_template=str:{{ \"\"a\"\" }}, {{ bos_token }}\"",
        "tokenizer.ggml.bos_token_id=int:0"};
    pl_sampling sampling;
    pl_template *t;
    pl_model *m;
    int32_t *ids;
    int64_t n;
    pl_err err;

    TEST_OK(pl_model_open_override(&m, test_model(), texts, 3, &err), err);
    assert_true(pl_tokenizer_adds_bos(pl_model_tokenizer(m)));
    TEST_OK(pl_tokenize(pl_model_tokenizer(m), "a", 1, PL_ADD_SPECIAL, &ids, &n,
                        &err),
            err);
    assert_int_equal(ids[0], 0);
    free(ids);
    pl_sampling_init(&sampling);
    TEST_OK(pl_model_sampling(m, &sampling, &err), err);
    assert_int_equal(sampling.top_k, 7);
    TEST_OK(pl_model_template(&t, m, NULL, 0, &err), err);
    assert_string_equal(pl_template_text(t, false),
                        "{{ \"a\" }}, {{ bos_token }}");
    pl_template_free(t);
    pl_model_free(m);
}

/* ---- the context --------------------------------------------------------- */

TEST(overrides_by_yarn_extend_the_context)
{
    static const struct {
        const char *text;
        int64_t n;
    } rows[] = {
        {".rope.scaling.factor=float:4", 512},
        {YARN_TEXT, 2048},
        {YARN_TEXT ",.rope.scaling.original_context_length=int:300", 1200},
        {YARN_TEXT ",.rope.scaling.original_context_length=int:100", 512},
        {"qwen3moe.context_length=int:700", 700},
    };
    pl_options o = engine_run_options();

    o.n_ctx = PL_CTX_MODEL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_model *m;
        pl_plan *p;
        pl_err err;

        TEST_OK(
            pl_model_open_override(&m, test_model(), &rows[i].text, 1, &err),
            err);
        assert_int_equal(pl_model_n_ctx_train(m), rows[i].n);
        TEST_OK(pl_plan_create(&p, m, &o, &err), err);
        assert_int_equal(p->n_ctx, rows[i].n);
        pl_plan_free(p);
        pl_model_free(m);
    }
}

/* ---- reports ------------------------------------------------------------- */

static void need_text(struct test_text *t, const char *want)
{
    if (!strstr(t->s, want))
        fail_msg("\"%s\" is not in:\n%s", want, t->s);
    free(t->s);
    *t = (struct test_text){0};
}

TEST(overrides_are_shown_by_plan_and_inspect)
{
    static const char *const text = ".rope.freq_base=float:500.5";
    const pl_options o = engine_run_options();
    struct test_text t = {0};
    pl_model *m;
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_model_open_override(&m, path_of("qwen3moe-f32"), &text, 1, &err),
            err);
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    TEST_OK(pl_plan_print(p, false, test_text_add, &t, &err), err);
    need_text(&t, "\noverride  qwen3moe.rope.freq_base=float:500.5\n");
    TEST_OK(pl_plan_print(p, true, test_text_add, &t, &err), err);
    need_text(&t, "\"qwen3moe.rope.freq_base=float:500.5\"\n");
    TEST_OK(pl_model_inspect(m, false, test_text_add, &t, &err), err);
    need_text(&t, "f32     500.5  (override)\n");
    TEST_OK(pl_model_inspect(m, true, test_text_add, &t, &err), err);
    need_text(&t, "\"overridden\": true");
    pl_plan_free(p);
    pl_model_free(m);
}

TEST(overrides_out_of_memory_leave_nothing)
{
    static const char *const text = YARN_TEXT ",general.name=str:x";
    const char *path = path_of("qwen3-tied-f32");

    for (int64_t n = 0; alloc_each(&n);) {
        struct gguf *g;
        pl_status s = gguf_open(&g, path, NULL);

        if (s == PL_OK)
            s = gguf_override(g, &text, 1, NULL);
        alloc_ran(s);
        gguf_close(g);
    }
}
