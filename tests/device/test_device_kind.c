/* A backend that exists only in a test (kind_plain.c) does all that ours do.
 * The bundled model has the bits of cpu devices on it and on mixes with ours,
 * under placement options. Its counters and rejections are the same, and after
 * a failure no device is left waiting. */
#include "emu/emu_driver.h"
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/gpu_bare.h"
#include "lib/gpu_odd.h"
#include "lib/gpu_watched.h"
#include "lib/kind_known.h"
#include "lib/kind_pipe.h"
#include "lib/kind_plain.h"
#include "lib/program_build.h"
#include "program/program_text.h"

#include <stdlib.h>
#include <string.h>

/* The table of backends of the whole test program: see device_backends.c. */
const struct backend_ops *const device_backends[] = {
#define KIND(name) &name##_ops,
#include "device/device_backends.def"
#undef KIND
    &emu_ops,   &plain_ops,   &bare_ops,  &parts_ops, &eager_ops, &hung_ops,
    &wrong_ops, &watched_ops, &known_ops, &pipe_ops,  NULL,
};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { TOKENS = 24, CHUNK = 20 };

static pl_options options(const char *devices)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ranks = 4;
    o.no_fit = true;
    return o;
}

static void open_bundled(struct engine_run *r, const pl_options *o)
{
    const char *name = "models/fable-moe-Q8_0.gguf";

    engine_run_open(r, test_file(name), name, o);
}

static const int32_t *tokens(void)
{
    static int32_t t[TOKENS];

    for (int i = 0; i < TOKENS; i++)
        t[i] = 5 + 131 * i;
    return t;
}

/* Computes the logits of some tokens: a prompt at once, then the others one by
 * one. */
static float *logits(const struct engine_run *r, int seq)
{
    float *out = test_need(TOKENS, (size_t)r->n_vocab * sizeof *out);

    engine_run_decode(r, seq, CHUNK, tokens(), out);
    for (int i = CHUNK; i < TOKENS; i++)
        engine_run_decode(r, seq, 1, tokens() + i, out + i * r->n_vocab);
    return out;
}

/* Computes the logits of one cpu device with the same ranks, and their size in
 * bytes. */
static float *cpu_logits(size_t *bytes)
{
    const pl_options o = options("cpu*1");
    struct engine_run r;
    float *want;

    open_bundled(&r, &o);
    want = logits(&r, 0);
    *bytes = TOKENS * (size_t)r.n_vocab * sizeof *want;
    engine_run_close(&r);
    return want;
}

TEST(kind_of_a_test_is_short)
{
    const char *path = test_file("tests/lib/kind_plain.c");
    int n_line = 0;
    size_t n;
    char *s;

    assert_non_null(path);
    s = test_read(path, &n);
    for (size_t i = 0; i < n; i++)
        n_line += s[i] == '\n';
    free(s);
    assert_in_range(n_line, 100, 249);
}

TEST(kind_of_a_test_has_the_bits_of_cpu)
{
    static const char *const devices[] = {
        "plain",     "plain*2",     "plain*3",         "cpu,plain",
        "plain,cpu", "plain*2,sim", "sim,plain,cpu*2",
    };
    static const struct {
        pl_split_mode mode;
        const char *experts;
        bool cache;
        pl_offload offload;
    } places[] = {
        {PL_SPLIT_TENSOR, NULL, false, PL_OFFLOAD_AUTO},
        {PL_SPLIT_LAYER, NULL, false, PL_OFFLOAD_AUTO},
        {PL_SPLIT_TENSOR, "2", true, PL_OFFLOAD_ON},
        {PL_SPLIT_LAYER, "all", false, PL_OFFLOAD_OFF},
    };
    size_t bytes;
    float *want = cpu_logits(&bytes);

    for (int i = 0; i < COUNT(devices) * COUNT(places); i++) {
        int k = i % COUNT(places);
        pl_options o = options(devices[i / COUNT(places)]);
        struct engine_run r;
        float *have;

        if (test_brief() && (k + i / COUNT(places)) % COUNT(places))
            /* the brief tier runs each set of devices with one placement */
            continue;
        o.split_mode = places[k].mode;
        o.host_experts = places[k].experts;
        o.host_cache = places[k].cache;
        o.offload = places[k].offload;
        if (i % 3 == 0)
            o.n_ubatch = 5; /* so that the prompt takes several micro-batches */
        if (i % 5 == 0)
            setenv("PL_DEBUG", "guard", 1);
        open_bundled(&r, &o);
        unsetenv("PL_DEBUG");
        have = logits(&r, 0);
        if (memcmp(have, want, bytes) != 0)
            fail_msg("-dev %s, place %d: the logits are not those of cpu",
                     o.devices, k);
        free(have);
        engine_run_close(&r);
    }
    free(want);
}

/* Devices that share nothing with this process but two pipes. */
TEST(kind_of_a_test_over_pipes_has_the_bits_of_cpu)
{
    static const struct {
        const char *devices, *experts;
        pl_split_mode mode;
    } rows[] = {
        {"pipe", NULL, PL_SPLIT_TENSOR},
        {"pipe*2", NULL, PL_SPLIT_TENSOR},
        {"cpu,pipe*2", "2", PL_SPLIT_TENSOR},
        {"sim,pipe,proc*1", NULL, PL_SPLIT_LAYER},
        {"pipe*2,cpu*2", "all", PL_SPLIT_HYBRID},
    };
    size_t bytes;
    float *want = cpu_logits(&bytes);

    for (int i = 0; i < COUNT(rows); i++) {
        pl_options o = options(rows[i].devices);
        struct engine_run r;
        float *have;

        o.split_mode = rows[i].mode;
        o.hybrid_size = 2;
        o.host_experts = rows[i].experts;
        o.n_ubatch = i % 2 ? 5 : 0; /* micro-batches of a pipeline */
        open_bundled(&r, &o);
        have = logits(&r, 0);
        if (memcmp(have, want, bytes) != 0)
            fail_msg("-dev %s: the logits are not those of cpu", o.devices);
        free(have);
        engine_run_close(&r);
    }
    free(want);
}

/* Counters do not depend on the backend, and no instruction is missing in the
 * trace. */
TEST(kind_of_a_test_counts_as_ours_do)
{
    static const char *const devices[] = {"plain*3", "sim*3", "emu*3"};
    pl_counters c[COUNT(devices)];

    memset(c, 0, sizeof c);
    for (int i = 0; i < COUNT(devices); i++) {
        pl_options o = options(devices[i]);
        struct test_text text = {0};
        struct engine_run r;

        o.trace = test_text_add;
        o.trace_user = &text;
        open_bundled(&r, &o);
        free(logits(&r, 0));
        pl_engine_counters(r.engine, &c[i], sizeof c[i]);
        for (int d = 0; d < 3; d++) {
            const struct device_timing *e;
            int n, found = 0;

            e = device_set_trace(r.engine->exec->set, &n);
            for (int k = 0; k < n; k++)
                found += e[k].dev == d && e[k].begin_s <= e[k].end_s;
            assert_true(found > 20);
        }
        engine_run_close(&r);
        free(text.s);
    }
    assert_true(c[0].messages > 0);
    for (int i = 1; i < COUNT(devices); i++) {
        assert_memory_equal(c[0].macs, c[i].macs, sizeof c[0].macs);
        assert_true(c[0].messages == c[i].messages);
        assert_true(c[0].message_bytes == c[i].message_bytes);
        assert_true(c[0].copies == c[i].copies && c[0].steps == c[i].steps);
        assert_true(c[0].copy_bytes == c[i].copy_bytes);
    }
}

TEST(kind_of_a_test_fails_for_all)
{
    static const char *const devices[] = {"plain*2", "cpu,plain,sim", "emu*2",
                                          "cpu,bare"};
    size_t bytes;
    float *want = cpu_logits(&bytes);
    int failed = 0;

    for (int i = 0; i < COUNT(devices); i++) {
        pl_options o = options(devices[i]);
        struct engine_run r;
        struct device_set *set;

        open_bundled(&r, &o);
        set = r.engine->exec->set;
        for (int d = 0; d < device_set_size(set); d++)
            for (int k = 0; k < 4; k += test_brief() ? 3 : 1) {
                struct device *x = device_of(set, d);
                const pl_batch b = {.size = sizeof b,
                                    .n = 1,
                                    .token = tokens(),
                                    .seq = (int32_t[]){1},
                                    .wanted = (uint8_t[]){0}};
                pl_err err;
                pl_status s;

                x->fail_insn = x->prog->variant[0].n_insn * k / 4;
                s = pl_engine_decode(r.engine, &b, NULL, &err);
                x->fail_insn = -1;
                /* the failing instruction is not part of this step */
                if (s == PL_OK)
                    continue;
                assert_int_equal(s, PL_DEVICE);
                assert_non_null(strstr(err.message, x->desc.name));
                failed++;
            }
        /* the devices run later steps as if none had failed */
        for (int seq = 0; seq < 2; seq++) {
            float *have;

            assert_int_equal(pl_seq_trim(r.engine, seq, 0, NULL, NULL), PL_OK);
            have = logits(&r, seq);
            assert_memory_equal(have, want, bytes);
            free(have);
        }
        engine_run_close(&r);
    }
    free(want);
    assert_true(failed > 10);
}

TEST(kind_of_a_test_is_asked_as_ours_are)
{
    pl_options o = options("plain:1MiB,plain:2GiB*2");
    struct device_list l;
    pl_err err;
    pl_model *m;
    pl_engine *e;

    TEST_OK(device_parse(&l, o.devices, 0, &err), err);
    assert_int_equal(l.n, 3);
    assert_string_equal(l.dev[2].name, "plain2");
    assert_true(l.dev[2].memory_bytes == (uint64_t)2 << 30);
    device_list_free(&l);
    assert_int_equal(device_parse(&l, "plain:1GB/s", 0, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, plain_ops.accepts));
    TEST_OK(pl_model_open(&m, test_model(), &err), err);
    assert_int_equal(pl_engine_create(&e, m, &o, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "plain0"));
    pl_model_free(m);
}

TEST(kind_of_a_test_allocation_failure_is_a_status)
{
    static const char *const devices[] = {"plain*2,cpu*1", "emu*2,cpu*1",
                                          "bare,sim,emu"};
    const struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    struct build *b = build_new(3, 4);
    struct device_list l;
    struct program *p;

    for (int d = 0; d < 3; d++) {
        int x = build_tensor(b + d, 16);

        build_op(b + d, KERNEL_scale, x, x, 2);
    }
    p = build_programs(b, 3);
    for (int i = 0; i < COUNT(devices); i++) {
        assert_int_equal(device_parse(&l, devices[i], 1, NULL), PL_OK);
        build_survives(&l, &opt, p);
        device_list_free(&l);
    }
    free(p);
    free(b);
}

/* A contraction with operands in formats that its device does not read is
 * rejected before it runs. */
TEST(kind_says_what_its_kernels_read)
{
#define HEAD                                                                   \
    "programs 1\n"                                                             \
    "max n_tok 4\n"                                                            \
    "device 0\n"                                                               \
    "%0: f32[n_tok, 64]\n"                                                     \
    "%1: q8_0[32, 64] weights packed\n"                                        \
    "%2: q8_0[32, 64] weights\n"                                               \
    "%3: f32[n_tok, 64] q8\n"                                                  \
    "%4: f32[n_tok, 32]\n"                                                     \
    "variant\n"                                                                \
    "0: %3 = quantize(%0)\n"
    static const struct {
        const char *text;
        enum kernel_set set;
        /* fits: the program is accepted; cpu: only by backends with the
         * processors' kernels */
        bool fits, cpu;
    } rows[] = {
        {HEAD "0: %4 = matmul(%0, %1, %3)\n", KERNEL_SET_GENERIC, true, false},
        {HEAD "0: %4 = matmul(%0, %1)\n", KERNEL_SET_GENERIC, false, false},
        {HEAD "0: %4 = matmul(%0, %2, %3)\n", KERNEL_SET_GENERIC, false, false},
        {HEAD "0: %4 = matmul(%0, %1, %3)\n", KERNEL_SET_REFERENCE, false,
         false},
        {HEAD "0: %4 = matmul(%0, %1)\n", KERNEL_SET_REFERENCE, true, true},
    };
    static const char *const kinds[] = {"plain", "cpu*1", "sim", "proc*1",
                                        "emu"};

    for (int k = 0; k < COUNT(kinds) * COUNT(rows); k++) {
        const char *text = rows[k % COUNT(rows)].text;
        struct device_options opt = {.kernel_set = rows[k % COUNT(rows)].set};
        struct device_list l;
        struct device_set *s;
        struct program *p;
        struct arena a = {0};
        pl_err err = {0};
        int n;

        assert_int_equal(program_parse(&p, &n, &a, text, strlen(text), NULL),
                         PL_OK);
        assert_int_equal(device_parse(&l, kinds[k / COUNT(rows)], 1, NULL),
                         PL_OK);
        assert_int_equal(device_set_create(&s, &l, &opt, NULL), PL_OK);
        if (rows[k % COUNT(rows)].fits &&
            (!l.dev[0].ops->driver || !rows[k % COUNT(rows)].cpu)) {
            TEST_OK(device_set_load(s, p, &err), err);
        } else {
            assert_int_equal(device_set_load(s, p, &err), PL_UNSUPPORTED);
            assert_non_null(strstr(err.message, "kernel for "));
        }
        device_set_free(s);
        device_list_free(&l);
        arena_fini(&a);
    }
#undef HEAD
}
