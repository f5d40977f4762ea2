/* Whole models on GPUs have the bits that cpu devices give with as many ranks:
 * one model per type of memory, with and without experts, in floats and in
 * blocks, whatever other devices there are and wherever experts and caches are.
 * The GPUs are emulated (tests/emu), those of CUDA and HIP behind fake
 * libraries, so models are small and few. A real GPU that PLAIT_GPU_TEST names,
 * an item of -dev, runs all of them. */
#include "device/device_inner.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_selftest_case.h"
#include "engine/engine.h"
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"
#include "lib/gpu_odd.h"
#include "lib/gpu_watched.h"
#include "lib/scene_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 76,
    AGAIN = 3 /* tokens of a second sequence in the same batch */
};

/* Tokens of a sequence: a chunk in two micro-batches, then the others one by
 * one. The first micro-batch has enough rows for every kernel for many rows. */
struct lengths {
    int n_token, chunk, n_ubatch;
};

static const struct lengths few = {40, 36, 34}, many = {MOST, 70, 64};
static const struct lengths *lengths = &few;

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { PLAIN, WINDOWS, MLA, STATES, BLOCKS, SUPER };

static const char *const models[] = {
    [PLAIN] = "qwen2-bias-f32.gguf",     /* attention */
    [WINDOWS] = "gemma3-swa-f32.gguf",   /* windows */
    [MLA] = "deepseek2-mla-f32.gguf",    /* latents, experts */
    [STATES] = "qwen35moe-f32.gguf",     /* states, experts */
    [BLOCKS] = "gptoss-mxfp4-q8_0.gguf", /* windows, sinks, experts of blocks */
    [SUPER] = "glm4moe-q-q4_k_m.gguf",   /* super-blocks, experts */
};

struct place {
    const char *devices;
    int n_rank;
    pl_split_mode mode;
    /* layers whose experts are on the host, as in host_experts */
    const char *experts;
    bool cache; /* true if the KV cache is on the host */
    pl_offload offload;
};

static const struct {
    struct place place;
    int model; /* the model that the short tier runs with this placement */
} places[] = {
    {{"emu*1", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, SUPER},
    {{"emu*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, BLOCKS},
    {{"emu*2", 3, PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO}, MLA},
    {{"emu*3", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, WINDOWS},
    {{"cpu*1,emu", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, STATES},
    {{"emu,sim,cpu*1", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
     SUPER},
    {{"emu*2", 2, PL_SPLIT_TENSOR, "all", false, PL_OFFLOAD_OFF}, SUPER},
    {{"emu", 2, PL_SPLIT_TENSOR, "all", false, PL_OFFLOAD_ON}, STATES},
    {{"emu*2", 2, PL_SPLIT_TENSOR, NULL, true, PL_OFFLOAD_AUTO}, WINDOWS},
    {{"emu", 2, PL_SPLIT_TENSOR, "1", true, PL_OFFLOAD_ON}, BLOCKS},
    {{"bare*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, MLA},
    {{"bare*3", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, PLAIN},
    {{"bare,sim,cpu*1", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
     STATES},
    {{"bare*3", 3, PL_SPLIT_TENSOR, NULL, true, PL_OFFLOAD_OFF}, BLOCKS},
    {{"parts*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, WINDOWS},
    {{"parts,cpu*1", 2, PL_SPLIT_LAYER, "1", false, PL_OFFLOAD_ON}, SUPER},
    {{"bare,emu", 3, PL_SPLIT_TENSOR, "all", true, PL_OFFLOAD_ON}, STATES},
    {{"cuda:0", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, PLAIN},
    {{"cuda:0*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, MLA},
    {{"cuda*3", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, PLAIN},
    {{"cuda:0,cuda:2", 2, PL_SPLIT_TENSOR, NULL, true, PL_OFFLOAD_ON}, MLA},
    {{"cuda:0,cuda:2,cpu*1", 3, PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO},
     SUPER},
    {{"cuda:0*2", 2, PL_SPLIT_TENSOR, "all", true, PL_OFFLOAD_ON}, MLA},
    {{"cpu*1,cuda:0*2", 3, PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO},
     STATES},
    {{"hip*3", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, PLAIN},
    {{"cuda:0,hip:0", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO}, MLA},
    {{"emu,cuda:0,sim", 3, PL_SPLIT_TENSOR, "1", true, PL_OFFLOAD_OFF}, BLOCKS},
};

/* The same placements for the requested GPU, in place of %s. */
static const struct place asked_places[] = {
    {"%s", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
    {"%s*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
    {"%s,cpu*1", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
    {"%s*2", 2, PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO},
    {"%s", 2, PL_SPLIT_TENSOR, "all", false, PL_OFFLOAD_ON},
    {"%s*2", 2, PL_SPLIT_TENSOR, "1", true, PL_OFFLOAD_AUTO},
};

static pl_options options(const struct place *p)
{
    pl_options o = engine_run_options();

    o.devices = p->devices;
    o.n_ranks = p->n_rank;
    o.split_mode = p->mode;
    o.host_experts = p->experts;
    o.host_cache = p->cache;
    o.offload = p->offload;
    o.no_fit = true;
    o.n_ubatch = lengths->n_ubatch;
    return o;
}

/* Computes the logits of a prompt, of the tokens after it one by one, and of a
 * few again. */
static float *logits(const struct engine_run *r, int64_t *n)
{
    int64_t v = r->n_vocab;
    int n_token = lengths->n_token, chunk = lengths->chunk;
    float *out = test_need(MOST + AGAIN, (size_t)v * sizeof *out);
    int32_t t[MOST];

    for (int i = 0; i < n_token; i++)
        t[i] = (5 + 131 * i) % (int32_t)v;
    engine_run_decode(r, 0, chunk, t, out);
    for (int i = chunk; i < n_token; i++)
        engine_run_decode(r, 0, 1, t + i, out + i * v);
    engine_run_decode(r, 1, AGAIN, t + 7, out + n_token * v);
    *n = (n_token + AGAIN) * v;
    return out;
}

static float *logits_on(const char *model, const struct place *p, int64_t *n)
{
    const pl_options o = options(p);
    struct engine_run r;
    float *out;

    engine_run_open(&r, test_ref(model), model, &o);
    out = logits(&r, n);
    engine_run_close(&r);
    return out;
}

/* Returns the logits that n_rank cpu devices with a rank each give. */
static float *cpu_logits(const char *model, int n_rank, int64_t *n)
{
    const struct place p = {.devices = n_rank == 2 ? "cpu*2" : "cpu*3",
                            .n_rank = n_rank,
                            .mode = PL_SPLIT_TENSOR};

    return logits_on(model, &p, n);
}

static void compare(const char *model, const struct place *p, const float *want,
                    int64_t n)
{
    float *have = logits_on(model, p, &n);

    for (int64_t i = 0; i < n; i++)
        if (memcmp(&have[i], &want[i], sizeof *have) != 0)
            fail_msg("%s, -dev %s --ranks %d: logit %lld is %g, not %g", model,
                     p->devices, p->n_rank, (long long)i, (double)have[i],
                     (double)want[i]);
    free(have);
}

/* Caches self test results for all cases. test_gpu_check.c tests the self
 * test. */
static void keep_self_tests(void)
{
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("cache"), 1), 0);
}

/* ---- a real GPU ---------------------------------------------------------- */
/* The real GPU comes first, because later cases replace CUDA's library with a
 * fake. */

static void asked_case(const char *model, const char *gpu)
{
    int64_t n;
    float *want = cpu_logits(model, 2, &n);

    for (int i = 0; i < COUNT(asked_places); i++) {
        struct place p = asked_places[i];
        char devices[256];

        assert_int_equal(p.n_rank, 2);
        snprintf(devices, sizeof devices, "%s%s", gpu, p.devices + 2);
        p.devices = devices;
        compare(model, &p, want, n);
    }
    free(want);
}

TEST(gpu_that_is_asked_for_has_the_bits_of_cpu)
{
    const char *gpu = getenv("PLAIT_GPU_TEST");

    if (!gpu)
        TEST_SKIP("PLAIT_GPU_TEST names no GPU of this machine");
    keep_self_tests();
    lengths = &many;
    for (int m = 0; m < COUNT(models); m++)
        asked_case(models[m], gpu);
    lengths = test_long() ? &many : &few;
}

/* ---- emulated ones ------------------------------------------------------- */

/* Each placement runs one model, and all in the long tier. In the brief one
 * every fifth placement does. */
static void model_case(int m)
{
    keep_self_tests();
    lengths = test_long() ? &many : &few;
    fake_cuda_use();
    fake_hip_use();
    for (int n_rank = 2; n_rank <= 3; n_rank++) {
        float *want = NULL;
        int64_t n;

        for (int i = 0; i < COUNT(places); i++) {
            if (places[i].place.n_rank != n_rank ||
                (!test_long() && places[i].model != m) ||
                (test_brief() && i % 5))
                continue;
            want = want ? want : cpu_logits(models[m], n_rank, &n);
            compare(models[m], &places[i].place, want, n);
        }
        free(want);
    }
}

/* Kernels read what others have put into host memory once, to copy it or to sum
 * a few bytes, and compute in their own memory. This holds for one-shot and
 * two-shot collectives and transfers from another group. GPUs with peer access
 * write into each other's memory and sum nothing in the host's. */
TEST(gpu_kernels_work_in_their_own_memory)
{
    static const struct place watched[] = {
        {"watched*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
        {"watched*2", 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
        {"watched*3", 3, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
        {"watched*2", 2, PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO},
        {"watched,sim", 2, PL_SPLIT_LAYER, "all", false, PL_OFFLOAD_ON},
    };

    test_ref_need(models[0]);
    keep_self_tests();
    for (int i = 0; i < COUNT(watched); i++) {
        struct gpu_watched w;
        int64_t n;
        float *want;

        if (test_brief() && i % 3 != 1)
            continue;
        want = cpu_logits(models[0], watched[i].n_rank, &n);

        gpu_watch_apart = i > 0;
        gpu_watch_reset();
        compare(models[0], &watched[i], want, n);
        w = gpu_watch_seen();
        if (w.n_worked > 0)
            fail_msg("-dev %s: %d of %d launches work in the host's memory, "
                     "%s the first",
                     watched[i].devices, w.n_worked, w.n_launch, w.kernel);
        assert_true(w.n_launch > 0 && w.n_carried > 0);
        assert_true(w.most <= 32 << 10);
        assert_int_equal(w.n_summed > 0,
                         watched[i].mode == PL_SPLIT_TENSOR && i > 0);
        free(want);
    }
    gpu_watch_apart = false;
}

TEST(gpu_attention_has_the_bits_of_cpu)
{
    model_case(PLAIN);
}

TEST(gpu_windows_have_the_bits_of_cpu)
{
    model_case(WINDOWS);
}

TEST(gpu_latents_have_the_bits_of_cpu)
{
    model_case(MLA);
}

TEST(gpu_states_have_the_bits_of_cpu)
{
    model_case(STATES);
}

TEST(gpu_experts_of_blocks_have_the_bits_of_cpu)
{
    model_case(BLOCKS);
}

TEST(gpu_super_blocks_have_the_bits_of_cpu)
{
    model_case(SUPER);
}

enum { LONG_PROMPT = 506, LONG_TOKENS = 520, LONG_CONTEXT = 4096 };

/* Computes logits of a sequence that grows from two spans to three, a token at
 * a time, and of a short one in between. */
static float *long_logits(const char *devices, int64_t *n)
{
    const struct scene_model scene = {1, 4, 2, 64, false};
    struct place p = {devices, 2, PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_OFF};
    pl_options o = options(&p);
    struct engine_run r;
    int32_t t[LONG_TOKENS];
    int64_t row, n_row = 2 * (LONG_TOKENS - LONG_PROMPT);
    float *out;

    o.n_ctx = LONG_CONTEXT;
    engine_run_open(&r, scene_model_write(&scene), "a scene", &o);
    row = r.n_vocab;
    out = test_need((size_t)(n_row * row), sizeof *out);
    for (int i = 0; i < LONG_TOKENS; i++)
        t[i] = (5 + 31 * i) % (int32_t)row;
    for (int i = 0; i < LONG_PROMPT; i += 46)
        engine_run_decode(&r, 0, 46, t + i, NULL);
    for (int i = 0; i < LONG_TOKENS - LONG_PROMPT; i++) {
        engine_run_decode(&r, 0, 1, t + LONG_PROMPT + i, out + 2 * i * row);
        engine_run_decode(&r, 1, 1, t + i, out + (2 * i + 1) * row);
    }
    engine_run_close(&r);
    *n = n_row * row;
    return out;
}

/* Launches and graphs are cached for the sequences' present lengths, though
 * their tables have space for more. */
TEST(gpu_launches_follow_sequences_as_they_grow)
{
    int64_t n;
    float *want = long_logits("cpu*2", &n), *have = long_logits("emu*2", &n);

    assert_memory_equal(have, want, (size_t)n * sizeof *have);
    free(have);
    free(want);
}

/* The kernels of all steps are known when the program is loaded, whatever the
 * sizes. The backend `eager` rejects all others. */
TEST(gpu_kernels_are_asked_for_before_runs)
{
    static const struct place two = {"eager*2", 2,     PL_SPLIT_TENSOR,
                                     NULL,      false, PL_OFFLOAD_AUTO};

    keep_self_tests();
    for (int m = 0; m < COUNT(models); m++) {
        int64_t n;

        test_ref_need(models[m]);
        if (!test_brief() || m % 3 == 0)
            free(logits_on(models[m], &two, &n));
    }
}

/* Fails unless the self test tries each of these kernels, with no others. */
static void all_tried(const char *model, const bool want[])
{
    struct selftest_case t = {.image = test_need(TRIAL_IMAGE, 1), .dry = true};
    bool tried[GPU_KERNEL_COUNT] = {false};

    for (int i = 0; trial_make(&t, i); i++)
        for (int k = 0; trial_takes(&t, want) && k < t.list.n; k++)
            tried[t.list.launch[k].kernel] = true;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (want[k] && !tried[k])
            fail_msg("%s: kernel %s is launched but not tried", model,
                     gpu_kernel_name((enum gpu_kernel)k));
    trial_fini(&t);
    free(t.image);
}

/* Test cases combine a model's kernels as the model does. */
TEST(gpu_kernels_of_models_are_tried)
{
    pl_options o = engine_run_options();

    o.devices = "emu*2";
    o.n_ranks = 2;
    o.no_fit = true;
    for (int m = 0; m < COUNT(models); m++) {
        bool want[GPU_KERNEL_COUNT];
        struct engine_run r;
        struct device_set *s;
        pl_err err;

        engine_run_open(&r, test_ref_need(models[m]), models[m], &o);
        s = r.engine->exec->set;
        TEST_OK(gpu_list_kernels(s, device_of(s, 0), NULL, want, &err), err);
        all_tried(models[m], want);
        engine_run_close(&r);
    }
}

struct told {
    int n_compiling, n_loading;
};

static void tell(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct told *t = user;

    assert_true(done <= total);
    if (strcmp(what, "compiling kernels") == 0)
        t->n_compiling++;
    else
        assert_string_equal(what, "loading weights");
    t->n_loading += strcmp(what, "loading weights") == 0;
    assert_true(t->n_loading == 0 || strcmp(what, "loading weights") == 0);
}

/* While an engine is created, its progress function hears of compiled kernels
 * and of weights. */
TEST(gpu_kernels_are_told_of_before_weights)
{
    const char *name = "models/fable-moe-Q8_0.gguf";
    pl_options o = engine_run_options();
    struct told t = {0};
    struct engine_run r;

    /* With an empty cache folder no GPU counts as tested. */
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("untried"), 1), 0);
    o.devices = "eager*2";
    o.no_fit = true;
    o.progress = tell;
    o.progress_user = &t;
    engine_run_open(&r, test_file(name), name, &o);
    /* more than ten kernels for each of two GPUs */
    assert_true(t.n_compiling > 2 * 10);
    assert_true(t.n_loading > 0);
    engine_run_close(&r);
}

static uint64_t hash_with(int wrong_kernel)
{
    const char *name = "models/fable-moe-Q8_0.gguf";
    pl_options o = engine_run_options();
    struct engine_run r;
    uint64_t hash;

    o.devices = "wrong";
    o.no_fit = true;
    o.inexact = true;
    gpu_wrong_kernel = wrong_kernel;
    engine_run_open(&r, test_file(name), name, &o);
    hash = r.engine->plan->compiled->numeric_hash;
    engine_run_close(&r);
    gpu_wrong_kernel = GPU_KERNEL_COUNT;
    return hash;
}

/* A plan with an op that no GPU has a kernel for gives the error of a step. */
TEST(gpu_without_kernels_is_refused_by_plans)
{
    const struct scene_model scene = {1, 4, 2, 64, false};
    pl_options o = engine_run_options();
    pl_model *m;
    pl_plan *p = NULL;
    pl_err err;

    o.devices = "cpu*1,emu";
    o.n_ranks = 2;
    o.split_mode = PL_SPLIT_TENSOR;
    o.cpu = "reference";
    TEST_OK(pl_model_open(&m, scene_model_write(&scene), &err), err);
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_UNSUPPORTED);
    if (!strstr(err.message, "emu0 has no reference kernel for ") ||
        !strstr(err.message, "-dev"))
        fail_msg("%s", err.message);
    o.devices = "cpu*2";
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    pl_plan_free(p);
    pl_model_free(m);
}

/* The numeric hash differs for a device that fails its self test. All kernels
 * that a model needs are tested, those of its formats too. */
TEST(gpu_that_differs_is_in_the_numeric_hash)
{
    uint64_t good = hash_with(GPU_KERNEL_COUNT);

    assert_true(hash_with(GPU_KERNEL_COUNT) == good);
    assert_true(hash_with(GPU_matvec_q8_0) != good);
    assert_true(hash_with(GPU_matmul_q8_0) != good);
    assert_true(hash_with(GPU_matvec_q4_k) == good);
}

/* Returns the launches of a layer, from its attention to the next one's. */
static int launches_of_layer(const struct engine_run *r)
{
    const struct gpu_device *x = device_of(r->engine->exec->set, 0)->own;
    const struct launch_list *l = &x->image.list;
    int first = -1;

    for (int i = 0; i < l->n; i++) {
        enum gpu_kernel k = l->launch[i].kernel;

        if (k < GPU_attend_4 || k > GPU_attend_codes_latent)
            continue;
        if (first >= 0)
            return i - first;
        first = i;
    }
    fail_msg("there are not two layers");
    return 0;
}

/* Checks that launches whose last work group goes on have their own counters,
 * because a device may execute two launches at once, and that the counters are
 * 0 after a step, for the next one. */
static void counters_are_apart(const struct engine_run *r)
{
    const struct gpu_device *x = device_of(r->engine->exec->set, 0)->own;
    const struct launch_list *l = &x->image.list;
    uint64_t last = 0;

    for (int i = 0; i < l->n; i++) {
        enum gpu_kernel k = l->launch[i].kernel;
        const void *args = l->bytes + l->launch[i].args;
        const uint32_t *counter;
        uint64_t at = 0;

        if (k >= GPU_matvec_f32 && k <= GPU_matvec_tq)
            at = ((const struct contract_args *)args)->tail.count;
        else if (k >= GPU_attend_4 && k <= GPU_attend_codes_latent)
            at = ((const struct attend_args *)args)->tail.count;
        if (at == 0)
            continue;
        assert_true(at >= last + TAIL_COUNTERS * sizeof *counter);
        last = at;
        counter = (const uint32_t *)(uintptr_t)last;
        for (int c = 0; c < TAIL_COUNTERS; c++)
            assert_int_equal(counter[c], 0);
    }
}

/* Checks that estimates count the launches of a step: one of each kernel, or
 * none. Parts of rows may be too long for the launch of attention to quantize,
 * which the plan does not know. */
static void launches_are_estimated(const struct engine_run *r)
{
    const struct device *d = device_of(r->engine->exec->set, 0);
    const struct variant *v = &d->prog->variant[0];
    const int *first = ((const struct gpu_device *)d->own)->image.first;

    for (int i = 0; i < v->n_insn; i++) {
        const struct insn *s = &v->insn[i];
        int n = first[i + 1] - first[i];

        if (s->kind == INSN_KERNEL && n > !s->in_launch &&
            !(s->kernel.kernel == KERNEL_quantize && s->kernel.n_span > 0))
            fail_msg("%s %d has %d launches, %d are estimated",
                     kernel_name(s->kernel.kernel), i, n, !s->in_launch);
    }
}

/* Checks the launches of a generated token on one GPU, so that they do not grow
 * unnoticed. */
static void layer_is(const char *path, int want)
{
    pl_options o = engine_run_options();
    const int32_t token = 1;
    struct engine_run r;
    int n;

    keep_self_tests();
    o.devices = "emu";
    o.no_fit = true;
    engine_run_open(&r, path, "launches", &o);
    engine_run_decode(&r, 0, 1, &token, NULL);
    counters_are_apart(&r);
    launches_are_estimated(&r);
    n = launches_of_layer(&r);
    if (n != want)
        fail_msg("%s: a layer is %d launches, not %d", path, n, want);
    engine_run_close(&r);
}

TEST(gpu_layers_of_experts_have_few_launches)
{
    layer_is(test_file("models/fable-moe-Q8_0.gguf"), 7);
}

/* The model has a bias after each matrix, also after those of experts. */
TEST(gpu_layers_of_sums_have_few_launches)
{
    layer_is(test_ref_need("gptoss-mxfp4-q8_0.gguf"), 13);
}

/* Layers without norms of heads, with such norms, with weights of two formats
 * for the same rows, and with biases. */
TEST(gpu_layers_have_few_launches)
{
    layer_is(test_ref_need("llama-q-q8_0.gguf"), 6);
    layer_is(test_ref_need("qwen3-tied-f32.gguf"), 6);
    layer_is(test_ref_need("llama-wide-q4_k_m.gguf"), 8);
    layer_is(test_ref_need("qwen2-bias-f32.gguf"), 6);
}
