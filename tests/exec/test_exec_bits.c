/* Every bit of a result is the same, however it was computed.
 *
 * With given ranks, nothing else may change a logit: not the kernels'
 * instruction set, not the devices, not what a sequence went through before
 * (copied, trimmed, decoded again, its pages shared), not the other sequences
 * in the batch, for any element of the cache. test_engine_reference.c covers
 * devices, shares, threads and micro-batches. The second half compares
 * pl_tensor_set and pl_tensor_get with plain arrays of bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf_write.h"
#include "lib/cache_formats.h"
#include "lib/engine_run.h"
#include "lib/kernel_sets.h"
#include "lower/compile.h"
#include "pl_graph.h"
#include "quant/format.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void same(const float *a, const float *b, int64_t n, int64_t n_vocab,
                 const char *what)
{
    for (int64_t i = 0; i < n * n_vocab; i++)
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("%s: row %" PRId64 ", logit %" PRId64 " is %.9g, not %.9g",
                     what, i / n_vocab, i % n_vocab, (double)a[i],
                     (double)b[i]);
}

static float *rows_new(const struct engine_run *r, int64_t n)
{
    float *p = test_need((size_t)(n * r->n_vocab), sizeof *p);

    return p;
}

/* Whole models ------------------------------------------------------------ */

/* Returns the logits of 40 tokens at once and 3 one by one; *n_row rows, the
 * caller frees. */
static float *logits(const char *path, const char *name, const pl_options *o,
                     int64_t *n_vocab)
{
    enum { N = 40, M = 3 };
    struct engine_run r;
    uint64_t random = test_seed();
    int32_t token[N + M];
    float *out;

    engine_run_open(&r, path, name, o);
    out = rows_new(&r, N + M);
    engine_run_tokens(&r, &random, N + M, token);
    engine_run_decode(&r, 0, N, token, out);
    for (int i = N; i < N + M; i++)
        engine_run_decode(&r, 0, 1, token + i, out + i * r.n_vocab);
    *n_vocab = r.n_vocab;
    engine_run_close(&r);
    return out;
}

TEST(bits_do_not_depend_on_the_instruction_set)
{
    static const char *const names[] = {"llama3-tied-ropefreqs-f16.gguf",
                                        "llama-q-bf16.gguf",
                                        "llama-q-q8_0.gguf",
                                        "llama-q-q4_0.gguf",
                                        "llama-q-q6_k.gguf",
                                        "llama-wide-q4_k_m.gguf",
                                        "qwen2-bias-f32.gguf",
                                        "qwen3-tied-f32.gguf",
                                        "qwen3moe-f32.gguf",
                                        "qwen3moe-q-q4_k_m.gguf",
                                        "llama-q-q3_k_s.gguf",
                                        "llama-q-iq4_xs.gguf",
                                        "qwen3moe-q-mxfp4_moe.gguf",
                                        "glm4moe-q-q4_k_m.gguf",
                                        "llama-yarn-f32.gguf",
                                        "qwen35-dense-f32.gguf",
                                        "qwen35moe-q-q4_k_m.gguf",
                                        "qwen3next-f32.gguf"};
    static const int ranks[] = {1, 3};

    for (int i = 0; i < COUNT(names); i++) {
        const char *path = test_ref_need(names[i]);

        for (int k = 0; k < 2; k++) {
            pl_options o = engine_run_options();
            int64_t n_vocab;
            float *want;

            o.cpu = "generic";
            o.n_ranks = ranks[k];
            want = logits(path, names[i], &o, &n_vocab);
            for (int f = KERNEL_SET_GENERIC + 1; f < KERNEL_SET_COUNT; f++) {
                float *got;
                char what[128];

                if (!kernel_set_runs(f))
                    continue;
                o.cpu = kernel_set_name(f);
                got = logits(path, names[i], &o, &n_vocab);
                snprintf(what, sizeof what, "%s, %d ranks, %s", names[i],
                         ranks[k], o.cpu);
                same(got, want, 43, n_vocab, what);
                free(got);
            }
            free(want);
        }
    }
    kernel_sets_skip_absent();
}

/* Writes the model with its matrices' values cut to BF16, stored as F32 or as
 * BF16. */
static const char *with_bf16_values(const char *path, const char *name,
                                    pl_format format)
{
    const char *out = test_temp(name);
    struct gguf *in;
    struct gguf_writer *w;
    void *kept[256]; /* data of tensors that the writer borrows, owned */
    int n_kept = 0;
    pl_err err = {0};

    TEST_OK(gguf_open(&in, path, &err), err);
    TEST_OK(gguf_writer_create(&w, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(in); i++)
        gguf_put_kv(w, gguf_kv_at(in, i));
    for (int64_t i = 0; i < gguf_n_tensor(in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(in, i);
        const uint32_t *from = t->data;
        size_t n = t->bytes / 4;
        uint32_t *full;
        uint16_t *half;

        if (t->n_dim < 2) {
            gguf_put_tensor(w, t->name, t->format, t->n_dim, t->dim, t->data);
            continue;
        }
        assert_int_equal(t->format, PL_F32);
        assert_true(n_kept < COUNT(kept));
        half = kept[n_kept++] = full = test_need(1, t->bytes);
        for (size_t k = 0; k < n; k++)
            if (format == PL_BF16)
                half[k] = (uint16_t)(from[k] >> 16);
            else
                full[k] = from[k] & 0xffff0000;
        gguf_put_tensor(w, t->name, format, t->n_dim, t->dim, full);
    }
    TEST_OK(gguf_writer_save(w, out, &err), err);
    gguf_writer_free(w);
    for (int i = 0; i < n_kept; i++)
        free(kept[i]);
    gguf_close(in);
    return out;
}

/* BF16 weights give the same bits as F32 weights of the same values. So they
 * are as correct as F32 weights, which were compared with references. */
TEST(bits_of_bf16_weights_are_those_of_their_values)
{
    static const char *const names[] = {
        "llama-yarn-f32.gguf", "qwen2-bias-f32.gguf", "qwen3moe-f32.gguf",
        "qwen35moe-f32.gguf"};
    static const char *const devices[] = {"cpu", "cpu*2", "sim*3", "cpu,sim"};
    static const char *const kernels[] = {NULL, "reference", "generic"};

    for (int m = 0; m < COUNT(names); m++) {
        const char *path = test_ref_need(names[m]);
        char f32[512], bf16[512];

        snprintf(f32, sizeof f32, "%s",
                 with_bf16_values(path, "f32.gguf", PL_F32));
        snprintf(bf16, sizeof bf16, "%s",
                 with_bf16_values(path, "bf16.gguf", PL_BF16));
        for (int k = 0; k < COUNT(kernels); k++)
            for (int d = 0; d < COUNT(devices); d++) {
                pl_options o = engine_run_options();
                int64_t n_vocab;
                float *want, *got;
                char what[128];

                o.devices = devices[d];
                o.n_ranks = 1 + d;
                o.cpu = kernels[k];
                snprintf(what, sizeof what, "%s on %s, kernels %s", names[m],
                         devices[d], kernels[k] ? kernels[k] : "default");
                want = logits(f32, what, &o, &n_vocab);
                got = logits(bf16, what, &o, &n_vocab);
                same(got, want, 43, n_vocab, what);
                free(got);
                free(want);
            }
    }
}

/* Returns true if the root mean square of a - b is above 0 and within `part` of
 * that of a. */
static bool is_near(const float *a, const float *b, int64_t n, double part)
{
    double all = 0, off = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];

        all += (double)a[i] * (double)a[i];
        off += d * d;
    }
    return off > 0 && off <= part * part * all;
}

/* Products of BF16 have their own bits, the same on all backends that have
 * them. Most rows stay within 3 % of the exact ones; in the others another
 * expert with as good a score was chosen. Where no kernel set of the machine
 * has them, plain C is compared with itself. */
TEST(bits_of_fast_numerics_do_not_depend_on_devices)
{
    static const char *const names[] = {"llama3-tied-ropefreqs-f16.gguf",
                                        "llama-q-bf16.gguf",
                                        "qwen3moe-f32.gguf",
                                        "deepseek2-mla-f32.gguf",
                                        "gptoss-f32.gguf",
                                        "gemma3-swa-f32.gguf"};
    static const char *const devices[] = {"cpu", "cpu*2", "sim*3", "cpu,sim",
                                          "cpu,proc"};
    const char *best =
        kernel_set_has_bf16(kernel_set_best()) ? NULL : "generic";

    for (int m = 0; m < COUNT(names); m++) {
        const char *path = test_ref_need(names[m]);
        pl_options o = engine_run_options();
        int64_t n_vocab;
        float *exact, *want;
        int n_near = 0;

        o.n_ranks = 4;
        o.cpu = "generic";
        exact = logits(path, names[m], &o, &n_vocab);
        o.numerics = PL_NUMERICS_FAST;
        want = logits(path, names[m], &o, &n_vocab);
        for (int i = 0; i < 43; i++)
            n_near +=
                is_near(exact + i * n_vocab, want + i * n_vocab, n_vocab, 0.03);
        if (n_near < 25)
            fail_msg("%s: %d of 43 fast rows are near the exact ones", names[m],
                     n_near);
        for (int d = 0; d < COUNT(devices); d++) {
            char what[128];
            float *got;

            o.devices = devices[d];
            o.cpu = best;
            o.n_threads = 1 + d % 3;
            o.n_ubatch = d % 2 ? 64 : 7;
            o.sim_seed = test_seed();
            snprintf(what, sizeof what, "%s, fast, on %s", names[m],
                     devices[d]);
            got = logits(path, what, &o, &n_vocab);
            same(got, want, 43, n_vocab, what);
            free(got);
        }
        free(exact);
        free(want);
    }
    if (best)
        TEST_SKIP("this machine has no products of BF16: plain C alone was "
                  "compared");
}

/* With --numerics fast, a kernel set without products of BF16 gives an
 * error. */
TEST(bits_of_fast_numerics_are_refused_where_there_are_none)
{
    static const struct {
        const char *devices, *cpu, *says;
    } cases[] = {{"emu", NULL, "emu0 has no BF16 products"},
                 {"cpu,emu", "generic", "emu0 has no"},
                 {"cpu", "reference", "cpu0 has no"},
                 {"cpu*2", "avx2", "or --numerics fast"},
                 {"sim", "avx512_vnni", "sim0 has no"}};
    const char *path = test_file("models/fable-moe-Q8_0.gguf");
    pl_err err = {0};
    pl_model *model;

    assert_non_null(path); /* the bundled model is a part of the checkout */
    TEST_OK(pl_model_open(&model, path, &err), err);
    for (int i = 0; i < COUNT(cases); i++) {
        pl_options o = engine_run_options();
        pl_engine *e = NULL;
        enum kernel_set set;

        if (kernel_set_find(&set, cases[i].cpu, false, &err) != PL_OK)
            continue;
        o.devices = cases[i].devices;
        o.cpu = cases[i].cpu;
        o.numerics = PL_NUMERICS_FAST;
        assert_int_equal(pl_engine_create(&e, model, &o, &err), PL_UNSUPPORTED);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s", err.message);
    }
    pl_model_free(model);
}

/* A kernel with fast numerics is found although an exact one comes before
 * it. */
TEST(bits_of_fast_numerics_are_refused_behind_exact_ones)
{
    static const char text[] =
        "x: f32[n_tok, 64] = input\n"
        "w: f16[64, 64] = weight\n"
        "y: f32[n_tok, 64] = matmul(x, w)\n"
        "z: f32[n_tok, 64] = matmul(y, w) bf16=1 !output\n";
    pl_options o = {.size = sizeof o, .devices = "emu", .no_fit = true};
    struct compiled *p;
    pl_graph *g;
    pl_err err = {0};

    TEST_OK(pl_graph_parse(&g, text, &err), err);
    TEST_OK(compile_graph(&p, g, &o, &err), err);
    assert_int_equal(compiled_check_kernels(p, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "emu0 has no BF16 products"));
    compiled_free(p);
    pl_graph_free(g);
}

/* Writes the model with a tensor for each expert, as the first files of Mixtral
 * had them, last ones first. */
static const char *with_experts_apart(const char *path)
{
    const char *out = test_temp("apart.gguf");
    struct gguf *in;
    struct gguf_writer *w;
    pl_err err = {0};

    TEST_OK(gguf_open(&in, path, &err), err);
    TEST_OK(gguf_writer_create(&w, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(in); i++)
        gguf_put_kv(w, gguf_kv_at(in, i));
    for (int64_t i = gguf_n_tensor(in) - 1; i >= 0; i--) {
        const struct gguf_tensor *t = gguf_tensor_at(in, i);
        const char *mark = strstr(t->name, "_exps.");
        int64_t n = mark ? t->dim[0] : 1;
        size_t bytes = t->bytes / (size_t)n;

        for (int64_t e = n - 1; e >= 0; e--) {
            char name[96];

            snprintf(name, sizeof name, "%s", t->name);
            if (mark)
                snprintf(name, sizeof name, "%.*s.%d.weight",
                         (int)(mark - t->name), t->name, (int)e);
            gguf_put_tensor(w, name, t->format, t->n_dim - (mark != NULL),
                            t->dim + (mark != NULL),
                            (const char *)t->data + (size_t)e * bytes);
        }
    }
    TEST_OK(gguf_writer_save(w, out, &err), err);
    gguf_writer_free(w);
    gguf_close(in);
    return out;
}

TEST(bits_do_not_depend_on_how_files_hold_experts)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2", "cpu,sim"};
    const char *path = test_file("models/fable-moe-Q8_0.gguf");
    const char *apart = with_experts_apart(path);

    for (int d = 0; d < COUNT(devices); d++)
        for (int host = 0; host < 2; host++) {
            pl_options o = engine_run_options();
            int64_t n_vocab;
            float *want, *got;

            o.devices = devices[d];
            o.n_ranks = 3;
            o.host_experts = host ? "all" : NULL;
            want = logits(path, devices[d], &o, &n_vocab);
            got = logits(apart, devices[d], &o, &n_vocab);
            same(got, want, 43, n_vocab, devices[d]);
            free(got);
            free(want);
        }
}

TEST(bits_do_not_depend_on_who_holds_the_cache)
{
    static const pl_format formats[][2] = {
        {PL_F32, PL_F32},   {PL_F16, PL_F16},   {PL_BF16, PL_BF16},
        {PL_Q8_0, PL_Q8_0}, {PL_Q8_0, PL_F16},  {PL_BF16, PL_Q8_0},
        {PL_Q4_0, PL_Q4_0}, {PL_Q5_1, PL_Q4_1}, {PL_IQ4_NL, PL_Q5_0}};
    static const char *const devices[] = {"cpu",     "cpu*2",     "sim*3",
                                          "cpu,sim", "sim,cpu*2", "cpu,proc"};
    static const char *const names[] = {"llama-q-q8_0.gguf",
                                        "qwen3moe-f32.gguf"};

    for (int m = 0; m < COUNT(names); m++)
        for (int f = 0; f < COUNT(formats); f++) {
            float *want = NULL;
            int64_t n_vocab;

            for (int d = 0; d < COUNT(devices); d++) {
                pl_options o = engine_run_options();
                char what[128];
                float *got;

                o.devices = devices[d];
                o.n_ranks = 4;
                o.n_threads = 1 + d % 2;
                o.cache_set = true;
                o.cache_k = formats[f][0];
                o.cache_v = formats[f][1];
                o.sim_seed = test_seed() + (uint64_t)f;
                snprintf(what, sizeof what, "%s, cache %s and %s on %s",
                         names[m], format_info(o.cache_k)->name,
                         format_info(o.cache_v)->name, devices[d]);
                got = logits(test_ref(names[m]), names[m], &o, &n_vocab);
                if (want)
                    same(got, want, 43, n_vocab, what);
                else
                    want = got;
                if (got != want)
                    free(got);
            }
            free(want);
        }
}

/* With 64 ranks, most ranks have no part of most matrices. */
TEST(bits_of_sixty_four_ranks_do_not_depend_on_devices)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2", "proc*2"};
    static const char *const names[] = {
        "llama-q-q8_0.gguf", "qwen3moe-f32.gguf", "qwen35moe-f32.gguf"};

    for (int m = 0; m < COUNT(names); m++) {
        float *want = NULL;
        int64_t n_vocab;

        for (int d = 0; d < COUNT(devices); d++) {
            static const double shares[] = {5, 1, 2};
            pl_options o = engine_run_options();
            float *got;

            o.devices = devices[d];
            o.n_ranks = PL_MAX_RANKS;
            if (d == 1) {
                o.tensor_split = shares;
                o.n_tensor_split = 3;
            }
            got = logits(test_ref(names[m]), names[m], &o, &n_vocab);
            if (want)
                same(got, want, 43, n_vocab, devices[d]);
            else
                want = got;
            if (got != want)
                free(got);
        }
        free(want);
    }
}

/* Sequences --------------------------------------------------------------- */

enum { LENGTH = 150 };

struct tale {
    struct engine_run r;
    /* two texts that are equal up to token `parting` */
    int32_t token[2][LENGTH];
    float *row[2]; /* logits of each text, decoded into an empty sequence */
    float *got;
    const char *what;
};

static const int32_t *text(const struct tale *t, int which)
{
    return t->token[which];
}

/* Appends tokens [from, to) of a text to a sequence; they must have the bits of
 * a fresh one. */
static void goes_on(struct tale *t, int seq, int which, int from, int to,
                    const char *how)
{
    char what[200];

    assert_int_equal(pl_seq_length(t->r.engine, seq), from);
    engine_run_decode(&t->r, seq, to - from, text(t, which) + from, t->got);
    snprintf(what, sizeof what, "%s: %s", t->what, how);
    same(t->got, t->row[which] + from * t->r.n_vocab, to - from, t->r.n_vocab,
         what);
}

static void tale_open(struct tale *t, const char *name, const char *devices,
                      int parting)
{
    pl_options o = engine_run_options();
    uint64_t random = test_seed();
    pl_err err;

    o.devices = devices;
    o.n_ranks = 3;
    o.n_ctx = 1024;
    t->what = devices;
    engine_run_open(&t->r, test_ref(name), name, &o);
    t->got = rows_new(&t->r, LENGTH);
    engine_run_tokens(&t->r, &random, LENGTH, t->token[0]);
    engine_run_tokens(&t->r, &random, LENGTH, t->token[1]);
    memcpy(t->token[1], t->token[0], (size_t)parting * sizeof(int32_t));
    for (int k = 0; k < 2; k++) {
        t->row[k] = rows_new(&t->r, LENGTH);
        engine_run_decode(&t->r, 0, LENGTH, t->token[k], t->row[k]);
        TEST_OK(pl_seq_trim(t->r.engine, 0, 0, NULL, &err), err);
    }
}

static void tale_close(struct tale *t)
{
    free(t->row[0]);
    free(t->row[1]);
    free(t->got);
    engine_run_close(&t->r);
}

static void trim(struct tale *t, int seq, int n)
{
    pl_err err = {0};

    TEST_OK(pl_seq_trim(t->r.engine, seq, n, NULL, &err), err);
}

static void copy(struct tale *t, int dst, int src)
{
    pl_err err = {0};

    TEST_OK(pl_seq_copy(t->r.engine, dst, src, &err), err);
}

static const char *const holders[] = {"cpu", "cpu*2", "sim*2", "cpu,sim",
                                      "proc*2"};

/* Copies share pages. Either side may then diverge, at a page's end, in the
 * middle of a page, and in a page that was shared whole. */
TEST(bits_of_copies_are_those_of_fresh_sequences)
{
    static const int partings[] = {64, 100, 128};

    for (int d = 0; d < COUNT(holders); d++)
        for (int p = 0; p < COUNT(partings); p++) {
            struct tale t;
            int at = partings[p];

            tale_open(&t, p % 2 ? "llama-q-q8_0.gguf" : "qwen3moe-f32.gguf",
                      holders[d], at);
            goes_on(&t, 0, 0, 0, at, "the prefix");
            copy(&t, 1, 0);
            goes_on(&t, 1, 1, at, LENGTH, "the copy parts");
            goes_on(&t, 0, 0, at, LENGTH, "the source goes on");
            /* now sequences 1 and 2 also share the full pages of the prefix */
            copy(&t, 2, 0);
            trim(&t, 2, 30);
            goes_on(&t, 2, 0, 30, at, "a shared page is written again");
            goes_on(&t, 2, 1, at, LENGTH, "and goes the other way");
            copy(&t, 3, 1);
            trim(&t, 3, 10);
            engine_run_decode(&t.r, 3, 90, text(&t, 0) + 40, NULL);
            trim(&t, 1, at - 1);
            goes_on(&t, 1, 1, at - 1, LENGTH, "what it shared is unharmed");
            trim(&t, 0, 1);
            goes_on(&t, 0, 0, 1, LENGTH, "so is the source");
            copy(&t, 1, 0); /* the copy replaces the contents of sequence 1 */
            trim(&t, 1, 64);
            goes_on(&t, 1, 0, 64, LENGTH, "a copy over a copy");
            tale_close(&t);
        }
}

TEST(bits_of_trimmed_sequences_are_those_of_fresh_ones)
{
    for (int d = 0; d < COUNT(holders); d++) {
        struct tale t;
        uint64_t random = test_seed();

        tale_open(&t, "llama-q-q8_0.gguf", holders[d], 0);
        for (int i = 0, n = 0; i < 12; i++) {
            int to = n + (int)test_below(&random, LENGTH - n) + 1;

            goes_on(&t, 1, 0, n, to, "decoded again");
            n = (int)test_below(&random, to + 1);
            trim(&t, 1, n);
        }
        trim(&t, 1, 0);
        goes_on(&t, 1, 1, 0, LENGTH, "another text in the same pages");
        tale_close(&t);
    }
}

/* Four sequences that grow at different speeds, with tokens in any order. */
TEST(bits_of_sequences_together_are_those_of_each_alone)
{
    enum { S = 4, N = 60 };

    for (int d = 0; d < COUNT(holders); d++) {
        pl_options o = engine_run_options();
        const char *name =
            d % 2 ? "qwen3moe-q-q4_k_m.gguf" : "llama-q-q8_0.gguf";
        struct engine_run r;
        uint64_t random = test_seed() + (uint64_t)d;
        int32_t token[S][N];
        float *alone[S], *got;
        int at[S] = {0};
        pl_err err = {0};

        o.devices = holders[d];
        o.n_ranks = 4;
        o.n_ctx = 512;
        o.n_ubatch = 24;
        engine_run_open(&r, test_ref(name), name, &o);
        got = rows_new(&r, S * N);
        for (int s = 0; s < S; s++) {
            alone[s] = rows_new(&r, N);
            engine_run_tokens(&r, &random, N, token[s]);
            engine_run_decode(&r, s, N, token[s], alone[s]);
            TEST_OK(pl_seq_trim(r.engine, s, 0, NULL, &err), err);
        }
        while (at[0] + at[1] + at[2] + at[3] < S * N) {
            int32_t id[40], seq[40];
            int64_t row[40];
            pl_batch b = {.size = sizeof b,
                          .n = 0,
                          .token = id,
                          .seq = seq,
                          .wanted = NULL,
                          .logits = got};
            int n = 1 + (int)test_below(&random, 40);

            for (int i = 0; i < n; i++) {
                int s = (int)test_below(&random, S);

                if (at[s] == N)
                    continue;
                id[b.n] = token[s][at[s]];
                seq[b.n] = s;
                row[b.n++] = at[s]++;
            }
            TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
            for (int64_t i = 0; i < b.n; i++)
                same(got + i * r.n_vocab, alone[seq[i]] + row[i] * r.n_vocab, 1,
                     r.n_vocab, holders[d]);
        }
        for (int s = 0; s < S; s++)
            free(alone[s]);
        free(got);
        engine_run_close(&r);
    }
}

/* Bytes in and out -------------------------------------------------------- */

/* A tensor, and the bytes that it must have. */
struct shadow {
    pl_tensor t;
    unsigned char *byte;
    size_t n;
    bool read_only;
    const char *name;
};

enum { MAX_SHADOW = 96 };

struct bench {
    pl_graph *g;
    struct shadow s[MAX_SHADOW];
    int n;
};

static void shadow(struct bench *b, pl_tensor t, size_t n, const char *name)
{
    struct shadow *s = &b->s[b->n++];

    assert_true(b->n <= MAX_SHADOW && t >= 0);
    *s = (struct shadow){t, calloc(n + 1, 1), n, false, name};
    assert_non_null(s->byte);
}

static const pl_interval cut_rows[] = {{16, 1}, {32, 2}, {5, 12}, {43, 8}};
static const pl_interval cut_k[] = {{32, 1}, {32, 8}, {64, 4}, {128, 2}};
static const pl_interval cut_many[] = {{4, 3}, {12, 4}, {8, 8}};
static const pl_layout by_rows = {PL_SPLIT, 0, 96, 4, cut_rows};
static const pl_layout by_k = {PL_SPLIT, 1, 256, 4, cut_k};
static const pl_layout by_expert_rows = {PL_SPLIT, 1, 24, 3, cut_many};
static const pl_layout by_expert_k = {PL_SPLIT, 2, 256, 4, cut_k};

/* Builds every format in matrices split both ways and not at all, for 4 ranks;
 * experts; tables; caches of every element. */
static void bench_build(struct bench *b)
{
    const int64_t m[] = {96, 256}, e[] = {3, 48, 256}, v[] = {256};
    const pl_dim x_dim[] = {{1, PL_N_TOK}, {256, PL_CONST}};
    const pl_dim x3_dim[] = {{1, PL_N_TOK}, {1, PL_CONST}, {256, PL_CONST}};
    const pl_dim id_dim[] = {{1, PL_N_TOK}};
    const pl_dim ids_dim[] = {{1, PL_N_TOK}, {2, PL_CONST}};
    const pl_dim q_dim[] = {{1, PL_N_TOK}, {4, PL_CONST}, {32, PL_CONST}};
    pl_tensor x, x3, id, ids, qx;
    static char name[MAX_SHADOW][32];

    b->n = 0;
    assert_int_equal(pl_graph_create(&b->g, NULL), PL_OK);
    x = pl_input(b->g, "x", PL_F32, 2, x_dim);
    x3 = pl_reshape(b->g, x, 3, x3_dim);
    id = pl_input(b->g, "id", PL_I32, 1, id_dim);
    ids = pl_input(b->g, "ids", PL_I32, 2, ids_dim);
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        const struct format_info *fi = format_info((pl_format)f);
        size_t row = format_row_bytes((pl_format)f, 256);

        /* for these formats not every byte can be read back as it was set */
        if (f == PL_I32 || f == PL_TQ1_0)
            continue;
        for (int k = 0; k < 2; k++) {
            char *nm = name[b->n];
            pl_tensor w, y;

            snprintf(nm, sizeof name[0], "%s.%s", fi->name, k ? "k" : "rows");
            w = pl_weight(b->g, nm, (pl_format)f, 2, m, PL_ROLE_NONE);
            shadow(b, w, 96 * row, nm);
            pl_want_layout(b->g, w, k ? &by_k : &by_rows);
            y = pl_matmul(b->g, x, w);
            /* the weight is also a table, so it is stored unpacked, too */
            if (f % 3 == 0)
                y = pl_concat(b->g, 2,
                              (pl_tensor[]){y, pl_gather_rows(b->g, w, id)}, 1);
            pl_output(b->g, y);
        }
        if (f % 2 == 0) {
            char *nm = name[b->n];
            pl_tensor w;

            snprintf(nm, sizeof name[0], "%s.experts", fi->name);
            w = pl_weight(b->g, nm, (pl_format)f, 3, e, PL_ROLE_NONE);
            shadow(b, w, 3 * 48 * row, nm);
            pl_want_layout(b->g, w, f % 4 ? &by_expert_k : &by_expert_rows);
            pl_output(b->g, pl_expert_matmul(b->g, x3, w, ids));
        }
    }
    {
        pl_tensor w = pl_weight(b->g, "plain", PL_F32, 1, v, PL_ROLE_NONE);
        static const pl_interval halves[] = {{128, 2}, {128, 8}};
        static const pl_layout half = {PL_SPLIT, 0, 256, 2, halves};

        pl_want_layout(b->g, w, &half);
        shadow(b, w, 1024, "plain");
        pl_output(b->g, pl_mul(b->g, x, w));
    }
    qx = pl_input(b->g, "q", PL_F32, 3, q_dim);
    for (int f = 0; f < N_CACHE_FORMAT; f++) {
        pl_tensor k, c[2];

        for (int i = 0; i < 2; i++) {
            char *nm = name[b->n];

            snprintf(nm, sizeof name[0], "cache.%s.%s",
                     format_info(cache_formats[f])->name, i ? "v" : "k");
            c[i] = pl_cache(b->g, nm, cache_formats[f], 4, 32, i == 1, 0);
            shadow(b, c[i], 128 * 4 * format_row_bytes(cache_formats[f], 32),
                   nm);
        }
        k = pl_cache_write(b->g, c[0], qx);
        pl_output(b->g,
                  pl_attention(b->g, qx, k, pl_cache_write(b->g, c[1], qx), -1,
                               1, 0, 0));
    }
}

/* Writes and reads random ranges of random tensors, and compares the bytes. */
static void ranges(pl_exec *x, struct bench *b, int n, uint64_t *random,
                   const char *what)
{
    pl_err err = {0};

    for (int i = 0; i < n; i++) {
        struct shadow *s = &b->s[test_below(random, b->n)];
        size_t from = (size_t)test_below(random, (int64_t)s->n + 1), len;
        unsigned char *got = test_need(1, s->n + 1);

        len = (size_t)test_below(random, (int64_t)(s->n - from) + 1);
        if (test_below(random, 2))
            len = len > 40 ? len % 40 : len;
        if (test_below(random, 2)) {
            for (size_t k = from; k < from + len; k++)
                s->byte[k] = (unsigned char)test_random(random);
            if (pl_tensor_set(x, s->t, s->byte + from, from, len, &err))
                fail_msg("%s: %s", what, err.message);
            from -= from / 3;
            len = s->n - from;
        }
        if (pl_tensor_get(x, s->t, got, from, len, &err))
            fail_msg("%s: %s", what, err.message);
        for (size_t k = 0; k < len; k++)
            if (got[k] != s->byte[from + k])
                fail_msg("%s: %s: byte %zu of %zu is %02x, not %02x", what,
                         s->name, from + k, s->n, got[k], s->byte[from + k]);
        free(got);
    }
    for (int i = 0; i < b->n; i++) {
        struct shadow *s = &b->s[i];
        unsigned char byte;

        TEST_OK(pl_tensor_get(x, s->t, &byte, s->n, 0, &err), err);
        assert_int_equal(pl_tensor_get(x, s->t, &byte, s->n, 1, &err),
                         PL_BAD_ARGUMENT);
        assert_int_equal(pl_tensor_set(x, s->t, &byte, s->n + 1, 0, &err),
                         PL_BAD_ARGUMENT);
    }
}

TEST(tensor_bytes_are_those_that_were_set)
{
    static const char *const devices[] = {"cpu",     "cpu*3", "sim*2",
                                          "cpu,sim", "cpu*6", "cpu,sim,proc"};

    for (int d = 0; d < COUNT(devices); d++) {
        pl_options o = {.size = sizeof o,
                        .devices = devices[d],
                        .n_ranks = 4,
                        .n_threads = 1,
                        .n_ubatch = 4,
                        .n_ctx = 128,
                        .no_pin = true,
                        .sim_seed = test_seed()};
        uint64_t random = test_seed();
        struct bench b;
        pl_exec *x;
        pl_err err = {0};

        bench_build(&b);
        if (pl_exec_create(&x, b.g, &o, &err) != PL_OK)
            fail_msg("%s: %s", devices[d], err.message);
        for (int i = 0; i < b.n; i++) {
            for (size_t k = 0; k < b.s[i].n; k++)
                b.s[i].byte[k] = (unsigned char)test_random(&random);
            if (pl_tensor_set(x, b.s[i].t, b.s[i].byte, 0, b.s[i].n, &err))
                fail_msg("%s: %s: %s", devices[d], b.s[i].name, err.message);
        }
        ranges(x, &b, test_draws(600, 20000), &random, devices[d]);
        pl_exec_free(x);
        for (int i = 0; i < b.n; i++)
            free(b.s[i].byte);
        pl_graph_free(b.g);
    }
}

/* A weight set in pieces computes the same as one set at once, in each of its
 * storage forms. */
TEST(tensor_pieces_compute_as_the_whole)
{
    enum { T = 4 };

    for (int d = 0; d < 4; d++) {
        static const char *const devices[] = {"cpu*2", "sim*2", "cpu,sim",
                                              "proc*2"};
        pl_options o = {.size = sizeof o,
                        .devices = devices[d],
                        .n_ranks = 4,
                        .n_threads = 1,
                        .n_ubatch = T,
                        .n_ctx = 128,
                        .no_pin = true};
        float *out[2] = {NULL, NULL};
        size_t n_out = 0;

        for (int how = 0; how < 2; how++) {
            static const int32_t pages[] = {1, 0};
            static const int32_t pos[T] = {62, 63, 64, 65}, seq[T] = {0};
            uint64_t random = test_seed(), cut = test_seed() + 1;
            struct bench b;
            pl_exec *x;
            pl_err err = {0};
            float in[T * 256];
            int32_t id[T * 2];
            pl_step_tokens rows = {sizeof rows, T, T, pos, seq, {pages}, 2};

            bench_build(&b);
            TEST_OK(pl_exec_create(&x, b.g, &o, &err), err);
            for (int i = 0; i < b.n; i++) {
                struct shadow *s = &b.s[i];

                for (size_t k = 0; k < s->n; k++)
                    s->byte[k] = (unsigned char)(test_random(&random) & 0x3f);
                for (size_t at = 0, n; at < s->n; at += n) {
                    n = how ? 1 + (size_t)test_below(&cut, 5000) : s->n;
                    n = n < s->n - at ? n : s->n - at;
                    if (pl_tensor_set(x, s->t, s->byte + at, at, n, &err))
                        fail_msg("%s", err.message);
                }
            }
            for (int i = 0; i < T * 256; i++)
                in[i] = test_unit(&random);
            for (int i = 0; i < T * 2; i++)
                id[i] = i % 3;
            for (size_t at = 0, n; at < sizeof in; at += n) {
                n = how ? 1 + (size_t)test_below(&cut, 50) : sizeof in;
                n = n < sizeof in - at ? n : sizeof in - at;
                TEST_OK(pl_tensor_set(x, pl_tensor_find(b.g, "x"),
                                      (char *)in + at, at, n, &err),
                        err);
            }
            pl_tensor_set(x, pl_tensor_find(b.g, "q"), in, 0, T * 128 * 4,
                          &err);
            pl_tensor_set(x, pl_tensor_find(b.g, "id"), id, 0, T * 4, &err);
            pl_tensor_set(x, pl_tensor_find(b.g, "ids"), id, 0, T * 8, &err);
            TEST_OK(pl_exec_step(x, &rows, &err), err);
            out[how] = test_need(1, (size_t)1 << 20);
            n_out = 0;
            for (pl_tensor t = 0;; t++) {
                pl_dim dim[4];
                int n_dim = pl_tensor_shape(b.g, t, dim);
                size_t n = 1;

                if (n_dim < 0)
                    break;

                for (int k = 0; k < n_dim; k++)
                    n *= (size_t)(dim[k].symbol == PL_CONST ? dim[k].n
                                                            : T * dim[k].n);
                if (pl_tensor_get(x, t, out[how] + n_out, 0, 4, NULL) ||
                    pl_tensor_set(x, t, out[how], 0, 0, NULL) == PL_OK)
                    /* the value is not computed, or is neither output nor
                     * kept */
                    continue;
                TEST_OK(pl_tensor_get(x, t, out[how] + n_out, 0, 4 * n, &err),
                        err);
                n_out += n;
            }
            pl_exec_free(x);
            for (int i = 0; i < b.n; i++)
                free(b.s[i].byte);
            pl_graph_free(b.g);
        }
        assert_true(n_out > 5000);
        assert_memory_equal(out[0], out[1], n_out * 4);
        free(out[0]);
        free(out[1]);
    }
}

/* Tensors marked as kept can be read in any part, in every layout they can
 * have. */
TEST(tensor_values_kept_are_readable_in_any_part)
{
    enum { T = 3, D = 96, N = 64 };
    static const pl_interval owners[] = {{16, 1}, {48, 6}, {32, 8}};
    static const pl_layout split = {PL_SPLIT, 1, D, 3, owners};
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2", "cpu,sim",
                                          "proc*2"};
    const pl_dim x_dim[] = {{1, PL_N_TOK}, {D, PL_CONST}};
    const int64_t w_dim[] = {N, D};

    for (int d = 0; d < COUNT(devices); d++) {
        pl_options o = {.size = sizeof o,
                        .devices = devices[d],
                        .n_ranks = 4,
                        .n_threads = 1,
                        .n_ubatch = 8,
                        .n_ctx = 64,
                        .no_pin = true};
        uint64_t random = test_seed();
        float in[8 * D], w[N * D], want[4][T * D];
        const int n_value[4] = {T * D, T * D, T * N, T * N};
        pl_tensor v[4], x, wt, lost;
        pl_step_tokens rows = {.size = sizeof rows, .n_tok = T, .n_out = 0};
        pl_graph *g;
        pl_exec *e;
        pl_err err = {0};
        unsigned char got[sizeof want[0]];

        TEST_OK(pl_graph_create(&g, &err), err);
        x = pl_input(g, "x", PL_F32, 2, x_dim);
        wt = pl_weight(g, "w", PL_F32, 2, w_dim, PL_ROLE_NONE);
        v[0] = pl_scale(g, x, 2);
        pl_want_layout(g, v[0], &split);
        v[1] = pl_sqr(g, v[0]);
        pl_want_layout(g, wt, &(pl_layout){PL_SPLIT, 1, D, 3, owners});
        /* contracts over a split dimension, so the result is PARTIAL before its
         * sum is taken */
        v[2] = pl_matmul(g, v[1], wt);
        lost = pl_scale(g, v[2], 3);
        v[3] = pl_scale(g, lost, 0.5f);
        for (int i = 0; i < 3; i++)
            pl_keep(g, v[i]);
        pl_output(g, v[3]);
        if (pl_exec_create(&e, g, &o, &err) != PL_OK)
            fail_msg("%s: %s", devices[d], err.message);
        for (int i = 0; i < 8 * D; i++)
            in[i] = (float)test_below(&random, 9) - 4;
        for (int i = 0; i < N * D; i++)
            w[i] = (float)test_below(&random, 9) - 4;
        pl_tensor_set(e, wt, w, 0, sizeof w, &err);
        pl_tensor_set(e, x, in, 0, sizeof in, &err);
        for (int i = 0; i < T * D; i++) {
            want[0][i] = 2 * in[i];
            want[1][i] = 4 * in[i] * in[i];
        }
        for (int i = 0; i < T * N; i++) {
            want[2][i] = 0;
            for (int k = 0; k < D; k++)
                want[2][i] += want[1][i / N * D + k] * w[i % N * D + k];
            want[3][i] = 1.5f * want[2][i];
        }
        if (pl_exec_step(e, &rows, &err) != PL_OK)
            fail_msg("%s: %s", devices[d], err.message);
        for (int i = 0; i < 500; i++) {
            int k = (int)test_below(&random, 4);
            size_t n = 4 * (size_t)n_value[k];
            size_t from = (size_t)test_below(&random, (int64_t)n + 1);
            size_t len = (size_t)test_below(&random, (int64_t)(n - from) + 1);

            if (pl_tensor_get(e, v[k], got, from, len, &err) != PL_OK)
                fail_msg("%s: %s", devices[d], err.message);
            if (memcmp(got, (unsigned char *)want[k] + from, len))
                fail_msg("%s: bytes %zu to %zu of value %d differ", devices[d],
                         from, from + len, k);
            assert_int_equal(pl_tensor_get(e, v[k], got, n - 2, 3, &err),
                             PL_BAD_ARGUMENT);
        }
        assert_int_equal(pl_tensor_get(e, lost, got, 0, 4, &err),
                         PL_BAD_ARGUMENT);
        assert_int_equal(pl_tensor_set(e, v[0], got, 0, 4, &err),
                         PL_BAD_ARGUMENT);
        pl_exec_free(e);
        pl_graph_free(g);
    }
}
