/* The times counted for each device add up to the time of the steps, and slow
 * links show in the right counter. */
#include "lib/engine_run.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { MANY = 8, N = 40 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Decodes N tokens at once and some one by one. Returns the seconds. */
static double decode(struct engine_run *r)
{
    int32_t token[N];
    uint64_t seed = test_seed();
    double began;

    engine_run_tokens(r, &seed, N, token);
    began = now();
    engine_run_decode(r, 0, N, token, NULL);
    for (int i = 0; i < 4; i++)
        engine_run_decode(r, 0, 1, token + i, NULL);
    return now() - began;
}

static int count(const struct engine_run *r, pl_device_counters *c)
{
    int n = pl_engine_devices(r->engine, c, MANY, sizeof *c);

    assert_true(n <= MANY);
    return n;
}

static void open_run(struct engine_run *r, const char *devices, bool host)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ctx = 256;
    o.host_experts = host ? "all" : NULL;
    engine_run_open(r, test_model(), devices, &o);
}

/* Device strings, their number of devices, the name of the last one, and
 * whether there is a host. */
static const struct {
    const char *devices;
    int n;
    const char *name; /* name of the last device */
    bool host;
} sets[] = {{"cpu", 1, "cpu0", false},      {"cpu*2", 2, "cpu1", false},
            {"proc*2", 2, "proc1", false},  {"sim*2", 2, "sim1", false},
            {"emu*2", 2, "emu1", false},    {"cpu*2", 3, "host", true},
            {"sim*2,cpu", 3, "cpu0", false}};

TEST(device_seconds_are_those_of_its_steps)
{
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        pl_device_counters c[MANY] = {{0}};
        struct engine_run r;
        double took;
        int n;

        open_run(&r, sets[k].devices, sets[k].host);
        took = decode(&r);
        n = count(&r, c);
        assert_int_equal(n, sets[k].n);
        assert_string_equal(c[n - 1].name, sets[k].name);
        for (int i = 0; i < n; i++) {
            double all = c[i].busy_s + c[i].reduce_s + c[i].wait_s +
                         (c[i].beside ? 0 : c[i].copy_s);

            assert_true(c[i].busy_s > 0 && c[i].wait_s >= 0);
            assert_true(c[i].step_s == c[0].step_s && c[i].step_s <= took);
            if (fabs(all - c[i].step_s) > 1e-6 + 1e-3 * took)
                fail_msg("%s of %s: %f s of %f", c[i].name, sets[k].devices,
                         all, c[i].step_s);
            if (n == 2 && !c[i].whole)
                assert_true(c[i].reduce_s > 0);
        }
        engine_run_close(&r);
    }
}

/* A pull over a slow link takes its latency each time. A push travels by
 * itself, so its time is not the device's. */
TEST(device_seconds_of_copies_are_those_of_the_link)
{
    pl_device_counters c[MANY] = {{0}};
    pl_counters all;
    struct engine_run r;
    double copies = 0;
    int n;

    open_run(&r, "sim:2ms*2", true);
    decode(&r);
    pl_engine_counters(r.engine, &all, sizeof all);
    n = count(&r, c);
    for (int i = 0; i < n; i++)
        copies += c[i].copy_s;
    assert_true(all.copies > 0);
    if (copies < 2e-3 * (double)all.copies / 4)
        fail_msg("%f s of %d copies", copies, (int)all.copies);
    engine_run_close(&r);
}

/* A caller whose struct has fewer or more fields gets those that it knows. */
TEST(device_counters_come_in_the_callers_size)
{
    enum { LESS = offsetof(pl_device_counters, wait_s) };
    pl_device_counters c[MANY];
    unsigned char less[2 * LESS + 1], more[2 * (sizeof c[0] + 8)];
    struct engine_run r;

    open_run(&r, "cpu*2", false);
    decode(&r);
    count(&r, c);
    memset(less, 0x55, sizeof less);
    memset(more, 0x55, sizeof more);
    assert_int_equal(pl_engine_devices(r.engine, NULL, 0, sizeof c[0]), 2);
    pl_engine_devices(r.engine, (pl_device_counters *)(void *)less, 2, LESS);
    pl_engine_devices(r.engine, (pl_device_counters *)(void *)more, 2,
                      sizeof c[0] + 8);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(less + i * LESS, &c[i], LESS);
        /* padding after the last field may have any value */
        assert_memory_equal(more + (size_t)i * (sizeof c[0] + 8), &c[i],
                            offsetof(pl_device_counters, whole) +
                                sizeof c[0].whole);
    }
    assert_int_equal(less[2 * LESS], 0x55);
    engine_run_close(&r);
}

TEST(cache_counters_tell_pages_used_and_kept)
{
    pl_options o = engine_run_options();
    pl_cache_counters c;
    struct engine_run r;
    pl_err err;

    o.devices = "cpu";
    o.n_ctx = 512;
    o.prefix_cache = true;
    engine_run_open(&r, test_model(), "the cache", &o);
    for (int i = 0; i < 4; i++)
        decode(&r); /* 176 tokens: three pages, two of them full */
    pl_engine_cache(r.engine, &c, sizeof c);
    assert_true(c.n_page >= 8);
    assert_int_equal(c.n_used, 3);
    assert_int_equal(c.n_kept, 0);
    TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
    pl_engine_cache(r.engine, &c, sizeof c);
    assert_int_equal(c.n_used, 0);
    assert_int_equal(c.n_kept, 2);
    engine_run_close(&r);
}
