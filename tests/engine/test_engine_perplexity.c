/* Perplexity of the bundled model on its held-out text stays within 0.3 % of
 * its reference.
 *
 * Windows of 512 tokens, each from an empty cache; the predictions from the
 * middle of a window to its end count. The long tier measures the whole text
 * for every format of the model against the figures of models/README.md, which
 * another engine measured. The short tier compares devices and kernels with
 * each other on the first windows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/kernel_set.h"
#include "lib/engine_run.h"
#include "quant/format.h"

enum { WINDOW = 512, ROWS = 64 };

static const char *const devices[] = {"cpu", "cpu*2", "cpu*3"};

/* Returns -log of the probability that the row gives to a token. */
static double surprise(const float *row, int64_t n, int32_t id)
{
    double top = row[0], sum = 0;

    for (int64_t i = 1; i < n; i++)
        top = row[i] > top ? row[i] : top;
    for (int64_t i = 0; i < n; i++)
        sum += exp(row[i] - top);
    return log(sum) + top - row[id];
}

/* Measures the first n_window windows of the text; 0: all. */
static double perplexity_as(const char *path, const char *name, pl_options o,
                            int n_window)
{
    const char *text_path = test_file("models/heldout.txt");
    struct engine_run r;
    char *text;
    size_t len;
    int32_t *id;
    int64_t n_id, n_scored = 0;
    float *row;
    double sum = 0;
    pl_err err = {0};

    if (!text_path)
        TEST_SKIP("models/heldout.txt is not at hand");
    text = test_read(text_path, &len);
    o.n_ctx = o.n_ubatch = WINDOW;
    engine_run_open(&r, path, name, &o);
    TEST_OK(pl_tokenize(pl_model_tokenizer(r.model), text, len, PL_ADD_SPECIAL,
                        &id, &n_id, &err),
            err);
    row = test_need(1, (size_t)(ROWS * r.n_vocab) * sizeof *row);
    if (n_window == 0)
        n_window = (int)(n_id / WINDOW);
    assert_in_range(n_window, 1, n_id / WINDOW);
    for (int w = 0; w < n_window; w++) {
        const int32_t *t = id + (int64_t)w * WINDOW;

        TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
        engine_run_decode(&r, 0, WINDOW / 2, t, NULL);
        for (int i = WINDOW / 2; i < WINDOW - 1; i += ROWS) {
            int n = WINDOW - 1 - i < ROWS ? WINDOW - 1 - i : ROWS;

            engine_run_decode(&r, 0, n, t + i, row);
            for (int k = 0; k < n; k++, n_scored++)
                sum += surprise(row + k * r.n_vocab, r.n_vocab, t[i + k + 1]);
        }
    }
    free(text);
    free(row);
    free(id);
    engine_run_close(&r);
    return exp(sum / (double)n_scored);
}

static double perplexity(const char *path, const char *name, const char *on,
                         const char *cpu, int n_window)
{
    pl_options o = engine_run_options();

    o.devices = on;
    o.cpu = cpu;
    o.n_threads = 0;
    return perplexity_as(path, name, o, n_window);
}

static void near(double got, double want, const char *what, const char *on)
{
    print_message("%s on %s: %.4f (%.4f)\n", what, on, got, want);
    if (!(fabs(got - want) <= 0.003 * want))
        fail_msg("%s on %s: perplexity %.4f is not within 0.3 %% of %.4f", what,
                 on, got, want);
}

static const char bundled[] = "models/fable-moe-Q8_0.gguf";

TEST(perplexity_is_the_same_on_any_devices)
{
    const char *path = test_file(bundled);
    int n = test_long() ? 8 : 2;
    double want = perplexity(path, bundled, "cpu", NULL, n);

    for (int d = 1; d < 3; d++)
        near(perplexity(path, bundled, devices[d], NULL, n), want, bundled,
             devices[d]);
    near(perplexity(path, bundled, "cpu,sim", NULL, 1),
         perplexity(path, bundled, "cpu", NULL, 1), bundled, "cpu,sim");
}

/* At equal ranks a placement changes no bit, and so no digit. */
TEST(perplexity_is_the_same_under_every_placement)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
        const char *experts, *layers;
        bool cache;
        pl_offload offload;
    } rows[] = {
        {"cpu", PL_SPLIT_NONE, "all", NULL, false, PL_OFFLOAD_OFF},
        {"sim", PL_SPLIT_NONE, NULL, "2", false, PL_OFFLOAD_AUTO},
        {"cpu*2", PL_SPLIT_LAYER, NULL, NULL, false, PL_OFFLOAD_AUTO},
        {"sim*2", PL_SPLIT_LAYER, "1", NULL, true, PL_OFFLOAD_ON},
        {"cpu*2", PL_SPLIT_TENSOR, "all", NULL, false, PL_OFFLOAD_ON},
        {"cpu,sim", PL_SPLIT_TENSOR, NULL, NULL, true, PL_OFFLOAD_OFF},
        {"sim*3", PL_SPLIT_TENSOR, "0-1", NULL, true, PL_OFFLOAD_ON},
        {"cpu*3", PL_SPLIT_HYBRID, "1", "3", false, PL_OFFLOAD_AUTO},
        {"cpu*3", PL_SPLIT_AUTO, NULL, NULL, false, PL_OFFLOAD_AUTO},
        {"sim*4", PL_SPLIT_HYBRID, NULL, NULL, false, PL_OFFLOAD_AUTO},
        {"cpu*4", PL_SPLIT_LAYER, "all", NULL, false, PL_OFFLOAD_AUTO},
        {"cpu*2,sim*2", PL_SPLIT_TENSOR, NULL, "0", false, PL_OFFLOAD_AUTO},
    };
    const char *path = test_file(bundled);
    pl_options o = engine_run_options();
    double want;

    o.n_ranks = 4;
    want = perplexity_as(path, bundled, o, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double got;

        o.devices = rows[i].devices;
        o.split_mode = rows[i].mode;
        o.hybrid_size = o.split_mode == PL_SPLIT_HYBRID ? 2 : 0;
        o.host_experts = rows[i].experts;
        o.device_layers = rows[i].layers;
        o.host_cache = rows[i].cache;
        o.offload = rows[i].offload;
        got = perplexity_as(path, bundled, o, 1);
        if (got != want)
            fail_msg("-dev %s, split mode %d: perplexity %.17g, on one device "
                     "%.17g",
                     o.devices, (int)o.split_mode, got, want);
    }
}

TEST(perplexity_is_the_same_with_reference_kernels)
{
    const char *path = test_file(bundled);
    int n = test_long() ? 8 : 1;

    near(perplexity(path, bundled, "cpu*2", NULL, n),
         perplexity(path, bundled, "cpu*2", "reference", n), bundled,
         "cpu*2, default kernels against reference");
}

/* Compares fast numerics with exact ones. Plain C is slow, so it has one
 * window. */
static void fast_is_near(const char *path, const char *name)
{
    bool has = kernel_set_has_bf16(kernel_set_best());
    int n = !has ? 1 : test_long() ? 0 : 8;
    pl_options o = engine_run_options();
    double exact, fast;

    o.n_threads = 0;
    exact = perplexity_as(path, name, o, n);
    o.cpu = has ? NULL : "generic";
    o.numerics = PL_NUMERICS_FAST;
    fast = perplexity_as(path, name, o, n);
    near(fast, exact, name, "cpu, --numerics fast");
    assert_true(fast != exact);
}

/* A model with Q8_0 weights, in which --numerics fast affects attention
 * only. */
TEST(perplexity_of_fast_attention_is_the_exact_one)
{
    const char *path = test_file(bundled);

    assert_non_null(path); /* the held-out text is a part of the checkout */
    fast_is_near(path, bundled);
}

TEST(perplexity_of_fast_weights_is_the_exact_one)
{
    static const char name[] = "../shared/demo/fable-moe-BF16.gguf";
    const char *path = test_file(name);

    if (!path)
        TEST_SKIP("not at hand: %s", name);
    fast_is_near(path, name);
}

/* Repeats the table of perplexities by cache format in doc/benchmarks.md. */
TEST_LONG(perplexity_of_each_cache_format_is_its_figure)
{
    static const struct {
        pl_format k, v;
        double want;
    } rows[] = {
        {PL_F32, PL_F32, 25.7506},       {PL_F16, PL_F16, 25.7654},
        {PL_BF16, PL_BF16, 25.7464},     {PL_Q8_0, PL_Q8_0, 25.7594},
        {PL_Q5_1, PL_Q5_1, 25.8093},     {PL_Q5_0, PL_Q5_0, 25.8310},
        {PL_Q4_1, PL_Q4_1, 25.9873},     {PL_Q4_0, PL_Q4_0, 25.9389},
        {PL_IQ4_NL, PL_IQ4_NL, 25.9015}, {PL_Q8_0, PL_Q5_1, 25.7574},
        {PL_Q8_0, PL_Q4_0, 25.7978},     {PL_Q4_0, PL_Q8_0, 25.9143},
    };
    const char *path = test_file(bundled);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_options o = engine_run_options();
        double got;

        o.n_threads = 0;
        o.cache_set = true;
        o.cache_k = rows[i].k;
        o.cache_v = rows[i].v;
        got = perplexity_as(path, bundled, o, 0);
        if (fabs(got - rows[i].want) > 0.0001)
            fail_msg("-ctk %s -ctv %s: perplexity %.4f, not %.4f",
                     format_info(rows[i].k)->name, format_info(rows[i].v)->name,
                     got, rows[i].want);
    }
}

TEST_LONG(perplexity_of_each_format_is_its_figure)
{
    static const struct {
        const char *name;
        double want; /* perplexity that llama.cpp measured (models/README.md) */
    } rows[] = {{"models/fable-moe-Q8_0.gguf", 25.7605},
                {"../shared/demo/fable-moe-BF16.gguf", 25.7558},
                {"../shared/demo/fable-moe-Q4_K_M.gguf", 25.8601}};
    char absent[256] = "";

    for (int i = 0; i < 3; i++) {
        const char *path = test_file(rows[i].name);

        if (!path) {
            strcat(strcat(absent, " "), rows[i].name);
            continue;
        }
        for (int d = 0; d < 3; d++)
            near(perplexity(path, rows[i].name, devices[d], NULL, 0),
                 rows[i].want, rows[i].name, devices[d]);
    }
    if (absent[0])
        TEST_SKIP("not at hand:%s", absent);
}
