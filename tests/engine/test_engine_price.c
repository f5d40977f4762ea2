/* Plans for machines with unlike devices: GPUs together with the machine's
 * processors. Their known rates decide, so GPUs get all that fits and most of
 * the rest, and no rate changes a bit. */
#include "cost/rates.h"
#include "engine/engine.h"
#include "fit/fit.h"
#include "lib/fake_cuda.h"
#include "lib/hollow_model.h"
#include "lib/support.h"
#include "test_paths.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define H200   "4.8TB/s:flops=60T:int8=470T:link=50GB/s:latency=10us"
#define SERVER "host:4TiB:200GB/s:flops=4T"

static const struct hollow_model moe = {.n_layer = 12,
                                        .d_model = 1024,
                                        .n_head = 16,
                                        .n_head_kv = 8,
                                        .d_head = 64,
                                        .n_expert = 32,
                                        .n_used = 4,
                                        .d_ff = 512,
                                        .n_vocab = 8192,
                                        .format = PL_Q4_K};

static pl_model *open_model(void)
{
    const char *path = test_temp("price.gguf");
    pl_model *m = NULL;
    pl_err err;

    TEST_OK(hollow_model_write(path, &moe, &err), err);
    TEST_OK(pl_model_open(&m, path, &err), err);
    return m;
}

static pl_plan *plan(const pl_model *m, pl_options o)
{
    pl_plan *p;
    pl_err err;

    o.size = sizeof o;
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    return p;
}

static pl_plan *on_paper(const pl_model *m, const char *spec,
                         pl_split_mode mode)
{
    return plan(m, (pl_options){.device_spec = spec,
                                .split_mode = mode,
                                .n_ctx = 512,
                                .n_seq = 1});
}

static double weights(const pl_plan *p, int first, int n)
{
    double sum = 0;

    for (int d = first; d < first + n; d++)
        sum += (double)p->compiled->low->prog[d].bytes[REGION_WEIGHTS];
    return sum;
}

static double all_weights(const pl_plan *p)
{
    return weights(p, 0, p->compiled->list.n);
}

/* Returns the bytes of memory that the model needs on a single device. */
static double needed(const pl_model *m)
{
    pl_plan *p = on_paper(m, "gpu:1TiB:1TB/s", PL_SPLIT_NONE);
    double sum = 0;

    for (int r = 0; r < REGION_COUNT; r++)
        sum += (double)p->compiled->low->prog[0].bytes[r];
    pl_plan_free(p);
    return sum;
}

static double seconds(const pl_plan *p)
{
    const struct compiled *q = p->compiled;
    struct cost_rates r[16];
    struct rates_basis basis;
    double s;

    assert_int_equal(rates_known(q, NULL, r, &basis, NULL), PL_OK);
    assert_int_equal(fit_seconds(q, r, 512, &s, NULL, NULL), PL_OK);
    return s;
}

static int ranks_of(const pl_plan *p, int d)
{
    int rank0, n;

    compiled_ranks(p->compiled, d, &rank0, &n);
    return n;
}

/* ---- fake GPUs ----------------------------------------------------------- */

/* Returns the fake CUDA library, whose devices are the emulator's: 512 GB/s,
 * 100 multiprocessors at 1 GHz. */
static const struct fake_cuda *fake(void)
{
    const struct fake_cuda *f;
    void *library = dlopen(PLAIT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);

    assert_int_equal(setenv("PLAIT_LIBCUDA", PLAIT_FAKE_CUDA, 1), 0);
    if (!library)
        fail_msg("%s", dlerror());
    f = dlsym(library, "fake_cuda");
    assert_non_null(f);
    return f;
}

static void near(double is, double want)
{
    if (fabs(is - want) > 1e-9 * fabs(want))
        fail_msg("%.12g, not %.12g", is, want);
}

TEST(price_of_a_gpu_is_its_own_whatever_the_processors)
{
    struct calibration c = {.n_core = 4096};
    pl_model *m = open_model();
    struct cost_rates r[2][8];
    struct rates_basis basis;
    pl_plan *p;

    fake();
    for (int i = 0; i < CALIBRATION_FIELDS; i++)
        *calibration_value(&c.one, &calibration_field[i]) =
            *calibration_value(&c.all, &calibration_field[i]) = 7;
    p = plan(m, (pl_options){.devices = "cuda:0,cpu*1",
                             .split_mode = PL_SPLIT_LAYER,
                             .no_fit = true,
                             .device_layers = "all"});
    for (int k = 0; k < 2; k++) {
        assert_int_equal(
            rates_known(p->compiled, k ? &c : NULL, r[k], &basis, NULL), PL_OK);
        near(r[k][0].read_bytes_per_s, 0.8 * 512e9);
        near(r[k][0].float_macs_per_s, 0.4 * 128 * 100 * 1e9);
        near(r[k][0].block_macs_per_s, 8 * r[k][0].float_macs_per_s);
        near(r[k][0].insn_s, 0.8e-6);
        assert_true(r[k][0].has_copy_engine && !r[k][1].has_copy_engine);
        assert_int_equal(basis.calibrated, k);
    }
    /* the processors' measured time of a collective */
    near(r[1][1].collective_s, 7);
    assert_true(r[0][1].collective_s < 1);
    pl_plan_free(p);
    pl_model_free(m);
}

/* With nearly enough memory most stays on the GPU, with enough all. */
TEST(price_keeps_what_fits_on_a_gpu)
{
    const struct fake_cuda *f = fake();
    pl_model *m = open_model();
    double all = needed(m);

    for (int i = 0; i < 2; i++) {
        pl_plan *p;

        f->set_free((size_t)(all * (i ? 1.3 : 0.8)));
        p = plan(m,
                 (pl_options){.devices = "cuda:0", .n_ctx = 512, .n_seq = 1});
        if (weights(p, 0, 1) < (i ? 1 : 0.55) * all_weights(p))
            fail_msg("%s: %.0f of %.0f bytes", pl_plan_options(p),
                     weights(p, 0, 1), all_weights(p));
        assert_int_equal(p->compiled->place.host == PLACE_NOWHERE, i);
        pl_plan_free(p);
    }
    f->set_free(0);
    pl_model_free(m);
}

/* The prompt's experts are sent to the GPU if that is faster: it multiplies
 * many times as fast as a processor. */
TEST(price_streams_experts_to_a_gpu)
{
    pl_model *m = open_model();
    pl_plan *p;

    fake();
    p = plan(m, (pl_options){.devices = "cuda:0",
                             .n_ctx = 512,
                             .n_threads = 1,
                             .host_experts = "all",
                             .n_ubatch = 512,
                             .cpu = "generic"});
    assert_true(p->compiled->variant[VARIANT_STREAMED] >= 0);
    assert_true(p->compiled->variants.stream_from <= 512);
    pl_plan_free(p);
    pl_model_free(m);
}

/* ---- machines on paper --------------------------------------------------- */

TEST(price_of_more_memory_is_never_a_slower_plan)
{
    pl_model *m = open_model();
    double all = needed(m), before = INFINITY, held = 0;

    for (int i = 2; i <= 14; i += 2) {
        char spec[256];
        pl_plan *p;
        double s;

        snprintf(spec, sizeof spec, "gpu:%.0fKiB:" H200 "," SERVER,
                 all * i / 10 / 1024);
        p = on_paper(m, spec, PL_SPLIT_AUTO);
        s = seconds(p);
        if (s > before * 1.0001)
            fail_msg("%s: %g s, with less memory %g s", spec, s, before);
        if (weights(p, 0, 1) < 0.9 * held)
            fail_msg("%s: %s holds %g, with less memory %g", spec,
                     pl_plan_options(p), weights(p, 0, 1), held);
        /* streaming takes some, and not all memory is for weights */
        if (weights(p, 0, 1) <
            fmin(1, 0.1 * i - (i < 10 ? 0.25 : 0)) * all_weights(p))
            fail_msg("%s: %s holds %g", spec, pl_plan_options(p),
                     weights(p, 0, 1) / all_weights(p));
        before = s;
        held = weights(p, 0, 1);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* The faster the link to the host's experts, the shorter the prompts for which
 * sending them pays. */
TEST(price_of_a_link_decides_from_when_on_experts_are_streamed)
{
    static const double link[] = {0.01, 0.1, 1, 10, 100, 1000};
    enum { N = sizeof link / sizeof link[0] };
    pl_model *m = open_model();
    int64_t from[N];

    for (int i = 0; i < N; i++) {
        char spec[256];
        pl_plan *p;

        snprintf(spec, sizeof spec,
                 "gpu:80GiB:4.8TB/s:flops=60T:int8=470T:link=%gGB/s:"
                 "latency=10us," SERVER,
                 link[i]);
        p = plan(m, (pl_options){.device_spec = spec,
                                 .n_ctx = 512,
                                 .n_ubatch = 512,
                                 .host_experts = "all"});
        from[i] = p->compiled->variants.stream_from;
        assert_true(i == 0 || from[i] <= from[i - 1]);
        pl_plan_free(p);
    }
    assert_true(from[0] > 512 && from[N - 1] <= 64);
    pl_model_free(m);
}

/* ---- a group of both ----------------------------------------------------- */

/* The ranks of a GPU and a CPU are equal. Their number does not depend on the
 * devices' rates, which only decide how many each device gets. */
TEST(price_deals_whole_ranks_to_unlike_devices)
{
    static const int speed[] = {5, 50, 500, 2400, 4800};
    enum { N = sizeof speed / sizeof speed[0] };
    pl_model *m = open_model();
    uint64_t hash = 0;
    int before = 0;

    for (int fit = 0; fit < 2; fit++)
        for (int i = 0; i < N; i++) {
            char spec[256];
            pl_plan *p;

            snprintf(spec, sizeof spec,
                     "gpu:141GiB:4.8TB/s:flops=60T,"
                     "cpu:512GiB:%dGB/s:flops=%gT:shared",
                     speed[i], speed[i] / 80.);
            p = plan(m, (pl_options){.device_spec = spec,
                                     .split_mode = PL_SPLIT_TENSOR,
                                     .no_fit = !fit,
                                     .n_ctx = 512,
                                     .n_seq = 1});
            hash = hash ? hash : p->compiled->numeric_hash;
            assert_int_equal(p->compiled->place.n_rank,
                             PLAN_CONFIG_MIXED_RANKS);
            assert_int_equal(p->compiled->numeric_hash, hash);
            assert_int_equal(ranks_of(p, 0) + ranks_of(p, 1),
                             PLAN_CONFIG_MIXED_RANKS);
            assert_true(ranks_of(p, 1) >= (i > 0 ? before : 0));
            before = ranks_of(p, 1);
            /* processors at no more than a tenth of the GPU's speed get at most
             * 2 of 16 ranks */
            assert_true(i > 2 || before <= 2);
            assert_true(i < N - 1 || before == PLAN_CONFIG_MIXED_RANKS / 2);
            assert_non_null(strstr(pl_plan_options(p), "--ranks 16"));
            pl_plan_free(p);
        }
    pl_model_free(m);
}

/* Stated ranks or shares are kept; equal devices have one rank each. */
TEST(price_leaves_ranks_that_are_asked_for)
{
    static const double share[] = {3, 1};
    static const char both[] = "gpu:9GiB:1TB/s,cpu:9GiB:1TB/s:shared";
    const struct {
        pl_options o;
        int n_rank;
    } rows[] = {
        {{.device_spec = both, .n_ranks = 4}, 4},
        {{.device_spec = both, .tensor_split = share, .n_tensor_split = 2}, 2},
        {{.device_spec = "gpu:9GiB:1TB/s,other:9GiB:90GB/s"}, 2},
        {{.device_spec = "cpu:9GiB:1TB/s:shared,other:9GiB:90GB/s:shared"}, 2},
        {{.device_spec = both}, PLAN_CONFIG_MIXED_RANKS},
    };
    pl_model *m = open_model();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = rows[i].o;
        struct compiled *q;
        pl_plan *p;
        pl_err err;

        o.split_mode = PL_SPLIT_TENSOR;
        o.no_fit = true;
        p = plan(m, o);
        assert_int_equal(p->compiled->place.n_rank, rows[i].n_rank);
        /* the number of ranks is the same for a graph that is compiled without
         * fitting */
        o.size = sizeof o;
        TEST_OK(compile_graph(&q, p->compiled->g, &o, &err), err);
        assert_int_equal(q->place.n_rank, rows[i].n_rank);
        compiled_free(q);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* ---- bypassing the host -------------------------------------------------- */

/* Two GPUs that a model needs both. The chosen mode is as fast as the best that
 * could be requested. Transfers that bypass the host do not make it slower;
 * with them tensor split pays. */
TEST(price_of_peers_decides_how_gpus_share_a_model)
{
    static const char *const p2p[] = {"", ":p2p=2GB/s", ":p2p=450GB/s"};
    pl_model *m = open_model();
    double all = needed(m), before = INFINITY, split = INFINITY;

    for (int i = 0; i < 3; i++) {
        char spec[256];
        double best = INFINITY, s[PL_SPLIT_HYBRID + 1];
        pl_plan *p;

        snprintf(spec, sizeof spec,
                 "gpu:%.0fKiB:400GB/s:flops=20T:link=2GB/s:latency=2us%s*2",
                 all * 0.8 / 1024, p2p[i]);
        for (int mode = PL_SPLIT_LAYER; mode <= PL_SPLIT_TENSOR; mode++) {
            p = on_paper(m, spec, (pl_split_mode)mode);
            s[mode] = seconds(p);
            best = fmin(best, s[mode]);
            pl_plan_free(p);
        }
        p = on_paper(m, spec, PL_SPLIT_AUTO);
        if (seconds(p) > 1.04 * best || seconds(p) > 1.001 * before)
            fail_msg("%s: %s takes %g s; best %g s, before %g s", spec,
                     pl_plan_options(p), seconds(p), best, before);
        before = seconds(p);
        if (i == 1)
            /* this link is as fast as the way through the host */
            near(s[PL_SPLIT_TENSOR], split);
        split = s[PL_SPLIT_TENSOR];
        if (i == 2)
            assert_non_null(strstr(pl_plan_options(p), "-sm tensor"));
        pl_plan_free(p);
    }
    pl_model_free(m);
}
