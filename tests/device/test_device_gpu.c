/* GPUs with any driver: transfers to them, fences between their queues, and
 * inboxes that kernels can or cannot access. Results are correct in every case,
 * and a GPU that hangs or differs ends the step. */
#include "lib/gpu_odd.h"
#include "lib/gpu_watched.h"
#include "lib/program_build.h"

#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_rates.h"
#include "lib/command.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char *const kinds[] = {"emu", "bare"};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

/* Reads n bytes of the weights region into `have` and compares them with
 * `want`. */
static void weights_are(struct device_set *s, const unsigned char *want,
                        unsigned char *have, size_t n)
{
    assert_int_equal(device_read(s, 0, REGION_WEIGHTS, 0, have, n, NULL),
                     PL_OK);
    assert_memory_equal(have, want, n);
}

/* Writes more than the staging buffers hold, in writes of any size that
 * overlap. The source may be overwritten at once. */
TEST(gpu_writes_arrive_in_their_order)
{
    enum {
        BYTES = (GPU_SLOTS + 2) * GPU_SLOT + 1234,
        HALF = GPU_SLOTS / 2 * GPU_SLOT
    };
    uint64_t rng = test_seed();
    unsigned char *want = test_need(1, BYTES), *have = test_need(1, BYTES);
    char text[128];

    snprintf(text, sizeof text, "programs 1\ndevice 0 weights %d\nvariant\n",
             (int)BYTES);
    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(kinds[k], 1, test_random(&rng));
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, text, 1));
        memset(want, 0xFF, BYTES);
        for (int i = 0; i < 40; i++) {
            int n = 1 + (int)test_below(&rng, i % 4 ? 5000 : BYTES / 2);
            int at = (int)test_below(&rng, BYTES - n);

            memset(have, i, (size_t)n);
            memset(want + at, i, (size_t)n);
            assert_int_equal(device_write(s, 0, REGION_WEIGHTS, (size_t)at,
                                          have, (size_t)n, NULL),
                             PL_OK);
            memset(have, 0xEE, (size_t)n);
        }
        weights_are(s, want, have, BYTES);
        for (int i = 0; i < 20; i++) {
            for (int at = 0; at < BYTES; at += GPU_SLOT)
                memset(want + at, i + at / GPU_SLOT,
                       (size_t)(BYTES - at < GPU_SLOT ? BYTES - at : GPU_SLOT));
            assert_int_equal(
                device_write(s, 0, REGION_WEIGHTS, 0, want, BYTES, NULL),
                PL_OK);
            /* both halves of the data, which go through different staging
             * buffers */
            for (int half = 0; half < 2; half++) {
                memset(want + BYTES - HALF, 2 * i + half, HALF);
                assert_int_equal(device_write(s, 0, REGION_WEIGHTS,
                                              BYTES - HALF, want + BYTES - HALF,
                                              HALF, NULL),
                                 PL_OK);
            }
            weights_are(s, want, have, BYTES);
        }
        device_set_free(s);
        arena_fini(&a);
    }
    free(want);
    free(have);
}

/* ---- several writing threads --------------------------------------------- */

enum { N_WRITER = 4, EACH = 3 * GPU_SLOT + 77 };

struct writer {
    struct device_set *set;
    const unsigned char *from;
    size_t at;
    uint64_t seed;
    pl_status s;
    pthread_t thread;
};

static void *write_pieces(void *user)
{
    struct writer *w = user;

    for (size_t done = 0; done < EACH && w->s == PL_OK;) {
        size_t n = 1 + (size_t)test_below(&w->seed, GPU_SLOT / 2);

        n = n < EACH - done ? n : EACH - done;
        w->s = device_write(w->set, 0, REGION_WEIGHTS, w->at + done,
                            w->from + done, n, NULL);
        done += n;
    }
    return NULL;
}

TEST(gpu_takes_what_several_threads_write)
{
    uint64_t rng = test_seed();
    unsigned char *want = test_need(N_WRITER, EACH);
    unsigned char *have = test_need(N_WRITER, EACH);
    char text[128];

    snprintf(text, sizeof text, "programs 1\ndevice 0 weights %d\nvariant\n",
             N_WRITER * EACH);
    for (size_t i = 0; i < (size_t)N_WRITER * EACH; i++)
        want[i] = (unsigned char)test_random(&rng);
    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(kinds[k], 1, test_random(&rng));
        struct writer w[N_WRITER];
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, text, 1));
        for (int i = 0; i < N_WRITER; i++) {
            w[i] = (struct writer){.set = s,
                                   .from = want + (size_t)i * EACH,
                                   .at = (size_t)i * EACH,
                                   .seed = test_random(&rng)};
            assert_int_equal(
                pthread_create(&w[i].thread, NULL, write_pieces, &w[i]), 0);
        }
        for (int i = 0; i < N_WRITER; i++) {
            pthread_join(w[i].thread, NULL);
            assert_int_equal(w[i].s, PL_OK);
        }
        weights_are(s, want, have, (size_t)N_WRITER * EACH);
        device_set_free(s);
        arena_fini(&a);
    }
    free(want);
    free(have);
}

/* Memory that cannot be read before another thread has written. A write that
 * waits for its turn would wait for ever. */
static struct {
    void *p;
    size_t bytes;
    atomic_bool written;
} barred;

static void unbar(int signal)
{
    /* long enough that the stopped thread looks idle */
    const struct timespec nap = {0, 20000000};

    (void)signal;
    while (!atomic_load(&barred.written))
        nanosleep(&nap, NULL);
    mprotect(barred.p, barred.bytes, PROT_READ | PROT_WRITE);
}

static void *write_barred(void *user)
{
    struct writer *w = user;

    w->s = device_write(w->set, 0, REGION_WEIGHTS, w->at, barred.p,
                        barred.bytes, NULL);
    return NULL;
}

TEST(gpu_writers_copy_beside_each_other)
{
    struct sigaction act = {.sa_handler = unbar}, before;
    struct device_set *s = build_set("emu", 1, 1);
    struct writer w = {.set = s, .at = 4096};
    struct arena a = {0};
    const struct timespec soon = {0, 20000000};

    LOAD_OK(s,
            build_text(&a, "programs 1\ndevice 0 weights 8192\nvariant\n", 1));
    barred.bytes = 4096;
    barred.p =
        mmap(NULL, barred.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(barred.p != MAP_FAILED);
    assert_int_equal(sigaction(SIGSEGV, &act, &before), 0);
    assert_int_equal(pthread_create(&w.thread, NULL, write_barred, &w), 0);
    /* the thread is in its copy by now or gets there later: both are valid */
    nanosleep(&soon, NULL);
    assert_int_equal(
        device_write(s, 0, REGION_WEIGHTS, 0, "now", sizeof "now", NULL),
        PL_OK);
    atomic_store(&barred.written, true);
    pthread_join(w.thread, NULL);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(w.s, PL_OK);
    munmap(barred.p, barred.bytes);
    device_set_free(s);
    arena_fini(&a);
}

/* The copy queue waits for the compute queue's first event, which is late.
 * Before that it posts more events that are waited for than a GPU has
 * fences. */
TEST(gpu_marks_are_used_again)
{
    enum { EVENTS = GPU_MAX_MARKS + 20, LATE = 300 };
    struct arena a = {0};
    char *text = test_need(EVENTS + LATE + 20, 100), *p = text;
    struct program *prog;

    p += sprintf(p, "programs 2\nmax n_tok 1\n"
                    "device 0\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8]\n"
                    "device 1\n"
                    "  %%0: f32[n_tok, 8] inbox\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "  %%2: f32[n_tok, 65536]\n"
                    "variant\n");
    for (int i = 0; i < LATE; i++)
        p += sprintf(p, "  1: %%2 = scale(%%2) scale=2\n");
    p += sprintf(p, "  1: post 0\n"
                    "  0: wait 1.0\n"
                    "  0: %%1 = scale(%%0) scale=2\n"
                    "  0: post 0\n");
    for (int i = 1; i <= EVENTS; i++)
        p += sprintf(p,
                     "  0 copy: push 1.%%0 <- %%0 32\n"
                     "  0 copy: post %d\n"
                     "  0: wait 0.%d\n",
                     i, i);
    sprintf(p, "  0 copy: wait 0.0\n"
               "  0 copy: push 1.%%1 <- %%1 32\n");
    prog = build_text(&a, text, 2);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct device_set *s = build_set("emu,cpu", 1, seed);
        struct device_run run = build_run(1);
        float v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];

        LOAD_OK(s, prog);
        build_put(s, 0, 0, v, 8);
        RUN_OK(s, &run);
        build_get(s, 1, 1, out, 8);
        for (int i = 0; i < 8; i++)
            assert_true(out[i] == 2 * v[i]);
        device_set_free(s);
    }
    free(text);
    arena_fini(&a);
}

#define CAME                                                                   \
    "programs 2\nmax n_tok 400\n"                                              \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 64] inbox\n"                                             \
    "  %1: f32[n_tok, 64] inbox\n"                                             \
    "  %2: f32[n_tok, 64]\n"                                                   \
    "  %3: f32[n_tok, 64]\n"                                                   \
    "  %4: f32[n_tok, 64]\n"                                                   \
    "  %5: f32[n_tok, 64]\n"                                                   \
    "variant\n"                                                                \
    "  0: push 1.%0, 1.%1 <- %0 256*n_tok\n"                                   \
    "  0: post 0\n"                                                            \
    "  1: wait 0.0\n"                                                          \
    "  1: %2 = scale(%0) scale=2\n"                                            \
    "  1: %3 = add(%0, %2)\n"                                                  \
    "  1: merge %4 <- %1 256*n_tok\n"                                          \
    "  1: merge %5 <- sum(%2, %1+) 256*n_tok\n"

/* Runs a step of n_tok rows that are pushed to a GPU by the program CAME. */
static void run_came(struct device_set *s, int n_tok)
{
    /* factors of the tensors from %2 on */
    static const float times[] = {2, 3, 1, 3};
    struct device_run run = build_run(n_tok);
    int n = 64 * n_tok;
    float *v = test_need((size_t)n, sizeof *v);

    for (int i = 0; i < n; i++)
        v[i] = (float)(i + n_tok);
    build_put(s, 0, 0, v, n);
    gpu_watch_reset();
    RUN_OK(s, &run);
    for (int k = 0; k < 4; k++) {
        build_get(s, 1, 2 + k, v, n);
        for (int i = 0; i < n; i++)
            if (v[i] != times[k] * (float)(i + n_tok))
                fail_msg("%d rows: tensor %d has %g at %d", n_tok, 2 + k,
                         (double)v[i], i);
    }
    free(v);
}

/* Data that peers pushed is available to kernels in a device-side inbox. It is
 * copied there once, as far as the step uses it. A MERGE of a few bytes reads
 * the host inbox directly. */
TEST(gpu_inbox_is_carried_once)
{
    static const char *const spec[] = {"cpu*1,emu", "cpu*1,bare",
                                       "cpu*1,watched"};
    enum { FEW = 2, MANY = 300 };

    for (int k = 0; k < 3; k++) {
        struct device_set *s = build_set(spec[k], 1, 1);
        struct arena a = {0};
        struct gpu_watched w;

        LOAD_OK(s, build_text(&a, CAME, 2));
        for (int again = 0; again < 3; again++) {
            run_came(s, FEW);
            w = gpu_watch_seen();
            if (k == 2)
                assert_true(w.n_write == 1 && w.bytes == 256 * FEW &&
                            w.n_carried == 1 && w.n_summed == 1);
            assert_int_equal(w.n_worked, 0);
        }
        run_came(s, MANY);
        w = gpu_watch_seen();
        if (k == 2)
            assert_true(w.n_write == 3 && w.bytes == 3 * 256 * MANY &&
                        w.n_carried == 0 && w.n_summed == 0);
        assert_int_equal(w.n_worked, 0);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* Data pushed again to the same offset is copied again. */
TEST(gpu_inbox_is_carried_after_each_push)
{
    static const char *const spec[] = {"cpu*1,emu", "cpu*1,bare"};

    for (int k = 0; k < 2; k++) {
        struct device_set *s = build_set(spec[k], 1, 1);
        struct device_run run = build_run(2);
        struct arena a = {0};
        float v[16], out[16];

        LOAD_OK(s, build_text(&a,
                              "programs 2\nmax n_tok 2\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 8]\n"
                              "  %1: f32[n_tok, 8]\n"
                              "device 1\n"
                              "  %0: f32[n_tok, 8] inbox\n"
                              "  %1: f32[n_tok, 8]\n"
                              "  %2: f32[n_tok, 8]\n"
                              "variant\n"
                              "  0: %1 = scale(%0) scale=5\n"
                              "  0: push 1.%0 <- %0 32*n_tok\n"
                              "  0: post 0\n"
                              "  1: wait 0.0\n"
                              "  1: %1 = scale(%0) scale=2\n"
                              "  1: post 0\n"
                              "  0: wait 1.0\n"
                              "  0: push 1.%0 <- %1 32*n_tok\n"
                              "  0: post 1\n"
                              "  1: wait 0.1\n"
                              "  1: %2 = scale(%0) scale=2\n",
                              2));
        for (int i = 0; i < 16; i++)
            v[i] = (float)i;
        build_put(s, 0, 0, v, 16);
        RUN_OK(s, &run);
        for (int t = 1; t < 3; t++) {
            build_get(s, 1, t, out, 16);
            for (int i = 0; i < 16; i++)
                assert_true(out[i] == (t == 1 ? 2 : 10) * v[i]);
        }
        device_set_free(s);
        arena_fini(&a);
    }
}

/* ---- pulls from unmapped memory */

#define STREAMED                                                               \
    "programs 2\nmax n_tok 1\n"                                                \
    "device 0\n"                                                               \
    "  %0: f32[2500, 1024]\n"                                                  \
    "  %1: f32[64, 16]\n"                                                      \
    "device 1\n"                                                               \
    "  %0: f32[2500, 1024]\n"                                                  \
    "  %1: f32[64, 8]\n"                                                       \
    "  %2: f32[8]\n"                                                           \
    "  %3: f32[64, 8]\n"                                                       \
    "variant\n"                                                                \
    "  1 copy: pull %0 <- 0.%0 10240000\n"                                     \
    "  1 copy: pull %1 <- 0.%1 32 x 64(64, 32)\n"                              \
    "  1: %2 = scale(%2) scale=2\n"                                            \
    "  1: %2 = scale(%2) scale=2\n"                                            \
    "  1 copy: post 0\n"                                                       \
    "  1: wait 1.0\n"                                                          \
    "  1: %3 = scale(%1) scale=2\n"

enum { STREAM = 2500 * 1024, LINES = 64 };

/* Pulls more than the staging ring holds, and every second half of 64 lines. */
static void run_streamed(struct device_set *s, float *v, float *out)
{
    struct device_run run = build_run(1);

    build_put(s, 0, 0, v, STREAM);
    build_put(s, 0, 1, v, LINES * 16);
    assert_int_equal(device_flush(s, NULL), PL_OK);
    gpu_watch_reset();
    RUN_OK(s, &run);
    build_get(s, 1, 0, out, STREAM);
    assert_memory_equal(out, v, STREAM * sizeof *v);
    build_get(s, 1, 3, out, LINES * 8);
    for (int i = 0; i < LINES * 8; i++)
        assert_true(out[i] == 2 * v[i / 8 * 16 + i % 8]);
}

/* A GPU copies what it cannot map through memory known to its driver, after the
 * launches that hide the copy. Adjacent ranges take one copy. */
TEST(gpu_streams_what_it_has_not_mapped)
{
    static const char *const spec[] = {"cpu*1,emu", "cpu*1,bare",
                                       "cpu*1,watched"};
    uint64_t rng = test_seed();
    float *v = test_need(STREAM, sizeof *v),
          *out = test_need(STREAM, sizeof *v);

    gpu_watch_blind = true;
    for (int k = 0; k < 3; k++) {
        struct device_set *s = build_set(spec[k], 1, test_random(&rng));
        struct arena a = {0};
        struct gpu_watched w;

        LOAD_OK(s, build_text(&a, STREAMED, 2));
        for (int again = 1; again < 4; again++) {
            for (int i = 0; i < STREAM; i++)
                v[i] = (float)(i % 9973 + again);
            run_streamed(s, v, out);
            w = gpu_watch_seen();
        }
        if (k == 2) {
            assert_int_equal(w.loose, 0);
            assert_int_equal(w.n_before, 2);
            assert_true(w.n_write <= STREAM * 4 / GPU_SLOT + 4);
            assert_int_equal(w.bytes, STREAM * 4 + LINES * 32);
        }
        device_set_free(s);
        arena_fini(&a);
    }
    gpu_watch_blind = false;
    free(v);
    free(out);
}

/* Copy threads may miss the start of some steps, but not of all. */
TEST(gpu_streams_by_several_threads)
{
    enum { RUNS = 500 };
    float *v = test_need(STREAM, sizeof *v),
          *out = test_need(STREAM, sizeof *v);
    struct device_run run = build_run(1);
    struct device_set *s;
    struct arena a = {0};
    int n = 0;

    gpu_watch_blind = true;
    s = build_set("cpu*1,watched", 1, 1);
    LOAD_OK(s, build_text(&a, STREAMED, 2));
    run_streamed(s, v, out);
    while (n < RUNS && gpu_watch_seen().n_writer < 2) {
        RUN_OK(s, &run);
        n++;
    }
    assert_true(gpu_watch_seen().n_writer >= 2);
    device_set_free(s);
    gpu_watch_blind = false;
    arena_fini(&a);
    free(v);
    free(out);
}

/* ---- pushes to unmapped memory ------------------------------------------- */

/* Pushes more than the staging ring holds, columns that are apart at either
 * end, and rows of one value from both devices into an inbox. */
#define RETURNED                                                               \
    "programs 2\nmax n_tok 1\n"                                                \
    "device 0\n"                                                               \
    "  %0: f32[2500, 1024] inbox\n"                                            \
    "  %1: f32[64, 16] inbox\n"                                                \
    "  %2: f32[2, 1024]\n"                                                     \
    "  %3: f32[2500, 1024]\n"                                                  \
    "  %4: f32[64, 16]\n"                                                      \
    "device 1\n"                                                               \
    "  %0: f32[2500, 1024]\n"                                                  \
    "  %1: f32[64, 16]\n"                                                      \
    "  %2: f32[64, 8]\n"                                                       \
    "  %3: f32[4, 1024] inbox\n"                                               \
    "  %4: f32[4, 1024]\n"                                                     \
    "  %5: f32[2, 1024]\n"                                                     \
    "variant\n"                                                                \
    "  1: %2 = scale(%2) scale=2\n"                                            \
    "  1: push 0.%0 <- %0 10240000\n"                                          \
    "  1: push 0.%1 <- %2 32 x 64(32, 64)\n"                                   \
    "  1: push 0.%1@32 <- %1@32 32 x 64(64, 64)\n"                             \
    "  1: post 0\n"                                                            \
    "  0: wait 1.0\n"                                                          \
    "  0: merge %3 <- %0 10240000\n"                                           \
    "  0: merge %4 <- %1 4096\n"                                               \
    "  0: push 1.%3 <- %2 8192\n"                                              \
    "  0: post 0\n"                                                            \
    "  1 copy: push 1.%3@8192 <- %5 8192\n"                                    \
    "  1 copy: post 1\n"                                                       \
    "  1: wait 1.1\n"                                                          \
    "  1: wait 0.0\n"                                                          \
    "  1: merge %4 <- %3 16384\n"

enum { ROOM = 4 * 1024 };

static void run_returned(struct device_set *s, float *v, float *out, int again)
{
    struct device_run run = build_run(1);

    for (int i = 0; i < STREAM; i++)
        v[i] = (float)(i % 9973 + again);
    build_put(s, 1, 0, v, STREAM);
    build_put(s, 1, 1, v, LINES * 16);
    build_put(s, 1, 2, v, LINES * 8);
    build_put(s, 0, 2, v, ROOM / 2);
    build_put(s, 1, 5, v + ROOM / 2, ROOM / 2);
    assert_int_equal(device_flush(s, NULL), PL_OK);
    gpu_watch_reset();
    RUN_OK(s, &run);
    build_get(s, 0, 4, out, LINES * 16);
    for (int i = 0; i < LINES * 16; i++)
        assert_true(out[i] == (i % 16 < 8 ? 2 * v[i / 16 * 8 + i % 8] : v[i]));
    build_get(s, 0, 3, out, STREAM);
    assert_memory_equal(out, v, STREAM * sizeof *v);
}

/* A GPU's pushes to memory that it cannot map go through memory known to its
 * driver. They arrive before the POST is seen, whichever queue posts. The same
 * holds for data in its own inbox, some of which it pushed itself. */
TEST(gpu_pushes_to_what_it_has_not_mapped)
{
    static const struct {
        const char *spec;
        bool blind;
        size_t most;
    } cases[] = {{"cpu*1,emu", false, 0},
                 {"cpu*1,bare", false, 0},
                 {"cpu*1,watched", true, 0},
                 {"cpu*1,watched", false, 1 << 20}};
    uint64_t rng = test_seed();
    float *v = test_need(STREAM, sizeof *v),
          *out = test_need(STREAM, sizeof *v);

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct device_set *s;
        struct arena a = {0};
        struct gpu_watched w = {0};

        gpu_watch_blind = cases[k].blind;
        gpu_watch_most = cases[k].most;
        s = build_set(cases[k].spec, 1, test_random(&rng));
        LOAD_OK(s, build_text(&a, RETURNED, 2));
        for (int again = 1; again < 4; again++) {
            run_returned(s, v, out, again);
            w = gpu_watch_seen();
            build_get(s, 1, 4, out, ROOM);
            assert_memory_equal(out, v, ROOM * sizeof *v);
        }
        assert_int_equal(w.loose, 0);
        if (k >= 2) /* adjacent ranges are fetched in one copy */
            assert_in_range(w.n_read, 10 + LINES, 20 + LINES);
        device_set_free(s);
        arena_fini(&a);
    }
    gpu_watch_blind = false;
    gpu_watch_most = 0;
    free(v);
    free(out);
}

/* A device in two groups transfers its own data as it does that of others: by a
 * pull, or, where others push, by a push. */
TEST(gpu_serves_itself)
{
    /* numbers of rows; 400 take a long time */
    static const int rows[] = {1, 3, 400};

    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(kinds[k], 1, 1);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a,
                              "programs 1\nmax n_tok 400\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 64]\n"
                              "  %1: f32[n_tok, 64] inbox\n"
                              "  %2: f32[n_tok, 64]\n"
                              "  %3: f32[n_tok, 64]\n"
                              "variant\n"
                              "  0: pull %2 <- %0 256*n_tok\n"
                              "  0: push 0.%1 <- %2 256*n_tok\n"
                              "  0: post 0\n"
                              "  0 copy: wait 0.0\n"
                              "  0 copy: merge %3 <- %1 256*n_tok\n",
                              1));
        for (int i = 0; i < 3; i++) {
            struct device_run run = build_run(rows[i]);
            int n = 64 * rows[i];
            float *v = test_need((size_t)n, sizeof *v);

            for (int j = 0; j < n; j++)
                v[j] = (float)(j + i);
            build_put(s, 0, 0, v, n);
            RUN_OK(s, &run);
            for (int t = 2; t < 4; t++) {
                build_get(s, 0, t, v, n);
                for (int j = 0; j < n; j++)
                    assert_true(v[j] == (float)(j + i));
            }
            free(v);
        }
        device_set_free(s);
        arena_fini(&a);
    }
}

/* Weights of more bytes than an allocation may have. They are split between
 * tensors, the fewest times, and are written, read and used as one region. */
TEST(gpu_weights_lie_in_several_allocations)
{
    enum { N = 5, ROWS = 128, BYTES = ROWS << 10, ALL = N * BYTES };
    struct device_set *s = build_set("parts", 1, 1);
    struct device_run run = build_run(1);
    const struct gpu_device *x;
    struct arena a = {0};
    uint64_t rng = test_seed();
    float *in = test_need(1, ALL), *out = test_need(1, ALL);
    char text[1024], *p = text;

    p += sprintf(p, "programs 1\nmax n_tok 1\ndevice 0\n");
    for (int i = 0; i < N; i++)
        p += sprintf(p, "  %%%d: f32[%d, 256] weights\n", i, ROWS);
    p += sprintf(p, "  %%%d: f32[%d, 256]\nvariant\n", N, ROWS);
    sprintf(p, "  0: %%%d = scale(%%%d) scale=2\n", N, N - 1);
    for (int i = 0; i < ALL / 4; i++)
        in[i] = test_unit(&rng);
    LOAD_OK(s, build_text(&a, text, 1));
    x = device_of(s, 0)->own;
    /* two tensors are larger than an allocation may be */
    assert_int_equal(x->image.n_cut, N - 1);
    assert_int_equal(device_write(s, 0, REGION_WEIGHTS, 0, in, ALL, NULL),
                     PL_OK);
    assert_int_equal(device_read(s, 0, REGION_WEIGHTS, 0, out, ALL, NULL),
                     PL_OK);
    assert_memory_equal(in, out, ALL);
    RUN_OK(s, &run);
    build_get(s, 0, N, out, BYTES / 4);
    for (int i = 0; i < BYTES / 4; i++)
        assert_true(out[i] == 2 * in[(N - 1) * BYTES / 4 + i]);
    device_set_free(s);
    free(in);
    free(out);
    arena_fini(&a);
}

/* Memory that GPUs map shares no page with anything else, however small it
 * is. */
TEST(gpu_maps_whole_pages_of_the_host)
{
    static const char *const devices[] = {"emu,cpu*1", "cpu*1,emu"};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (int k = 0; k < 2; k++) {
        struct device_set *s = build_set(devices[k], 1, 1);
        const struct device *cpu = device_of(s, !k);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a,
                              "programs 2\n"
                              "device 0 weights 100 cache 100\n"
                              "device 1 weights 100 cache 100\n"
                              "variant\n",
                              2));
        assert_true(cpu->desc.memory == 0);
        for (int r = 0; r < REGION_COUNT; r++)
            assert_true((uintptr_t)cpu->at[r] % page == 0);
        assert_ptr_not_equal(cpu->at[REGION_WEIGHTS], cpu->at[REGION_CACHE]);
        device_set_free(s);
        arena_fini(&a);
    }
}

TEST(gpu_tensors_above_an_allocation_are_refused)
{
    struct device_set *s = build_set("parts", 1, 1);
    struct arena a = {0};
    pl_err err;

    assert_int_equal(device_set_load(s,
                                     build_text(&a,
                                                "programs 1\n"
                                                "device 0\n"
                                                "  %0: f32[4, 256] weights\n"
                                                "  %1: f32[208, 256] weights\n"
                                                "variant\n",
                                                1),
                                     &err),
                     PL_NO_DEVICE_MEMORY);
    if (!strstr(err.message, "parts0: a tensor of its weights has 208") ||
        !strstr(err.message, "guarantees 192") ||
        !strstr(err.message, "-sm tensor"))
        fail_msg("%s", err.message);
    device_set_free(s);
    arena_fini(&a);
}

/* A -dev item names every GPU, one of them, or a number of devices. */
TEST(gpu_items_name_gpus)
{
    static const struct {
        const char *item;
        int n;
    } good[] = {{"emu", 1}, {"emu:0", 1}, {"emu*3", 3}, {"emu:0*2", 2}};
    static const struct {
        const char *item, *says;
    } bad[] = {
        {"emu:1", "no GPU 1; there is 1, counted from 0; `plait devices`"},
        {"emu:2GiB", "\"2GiB\" is not a GPU number"},
        {"emu:-1", "\"-1\" is not a GPU number"},
        {"emu:99999999999999999999", "is not a GPU number"}};
    struct device_list l;
    pl_err err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        TEST_OK(device_parse(&l, good[i].item, 0, &err), err);
        assert_int_equal(l.n, good[i].n);
        assert_string_equal(l.dev[0].name, "emu0");
        assert_true(l.dev[0].index == 0 && l.dev[0].memory < 0);
        device_list_free(&l);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(device_parse(&l, bad[i].item, 0, &err),
                         PL_BAD_ARGUMENT);
        if (!strstr(err.message, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.message, bad[i].says);
    }
}

/* ---- their assumed speed ------------------------------------------------- */

/* Figures from NVIDIA's data sheets at their clocks: floats in TFLOP/s, and
 * int8 dense in TOPS, which is more than kernels can use. */
TEST(gpu_speeds_are_those_of_data_sheets)
{
    static const struct {
        int level, n_unit;
        double ghz, tflops, tops;
    } rows[] = {
        {61, 30, 1.531, 11.76, 47},    /* P40 */
        {70, 80, 1.53, 15.7, 63},      /* V100 */
        {80, 108, 1.41, 19.5, 624},    /* A100 */
        {86, 82, 1.695, 35.6, 284},    /* RTX 3090 */
        {89, 128, 2.52, 82.6, 661},    /* RTX 4090 */
        {90, 132, 1.98, 66.9, 1979},   /* H200 */
        {100, 148, 1.965, 75, 4500},   /* B200 */
        {103, 148, 1.92, 75, 330},     /* B300 */
        {120, 170, 2.407, 104.8, 838}, /* RTX 5090 */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpu_info g = {.n_unit = rows[i].n_unit};

        gpu_speeds_cuda(&g, rows[i].level, false, rows[i].ghz * 1e9);
        if (fabs(2e-12 * g.float_macs_per_s / rows[i].tflops - 1) > 0.05)
            fail_msg("%d: %g", rows[i].level, 2e-12 * g.float_macs_per_s);
        assert_true(g.block_macs_per_s >= g.float_macs_per_s);
        assert_true(2e-12 * g.block_macs_per_s <= rows[i].tops * 1.05);
        assert_true(g.launch_s > 0);
    }
}

/* OpenCL reports little. Plans have a figure for every GPU anyway, and more
 * units are faster. */
TEST(gpu_speeds_are_guessed_where_little_is_told)
{
    static const uint32_t vendor[] = {0x10de, 0x1002, 0x8086, 0};

    for (int k = 0; k < 32; k++) {
        struct gpu_info g[2] = {{.n_unit = k & 16 ? 0 : 8}, {.n_unit = 16}};

        for (int i = 0; i < 2; i++) {
            g[i].on_cores = k & 4;
            gpu_speeds_opencl(&g[i], vendor[k & 3], k & 8 ? 2e9 : 0, false);
            assert_true(g[i].mem_bytes_per_s > 1e8);
            assert_true(g[i].float_macs_per_s > g[i].mem_bytes_per_s);
            assert_true(g[i].block_macs_per_s >= g[i].float_macs_per_s);
            assert_true(g[i].launch_s > 3e-6);
        }
        assert_true(g[0].float_macs_per_s < g[1].float_macs_per_s);
        assert_true(g[0].mem_bytes_per_s < g[1].mem_bytes_per_s);
    }
}

/* The benchmark completes, on an emulated GPU and with tiny sizes. */
TEST(gpu_bench_measures_all_that_it_names)
{
    static const char *const row[] = {
        "copy_on_device",    "launch_to_launch",     "matvec_Q8_0_",
        "matvec_Q4_K_",      "matmul_BF16_",         "attention_f16_decode_",
        "queues_wait_for_e", "attention_f16_prompt_"};
    char line[5000];
    struct ran r;

    snprintf(line, sizeof line, "%s", command_path());
    assert_non_null(strrchr(line, '/'));
    strcpy(strrchr(line, '/') + 1, "bench-gpu");
    if (access(line, X_OK) != 0)
        TEST_SKIP("%s is not built", line);
    strcat(line, " -t emu");
    r = sh(0, line);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!strstr(r.out, row[i]))
            fail_msg("no row %s: %s", row[i], r.out);
    strcpy(strstr(line, " -t"), " -t emu:9");
    must_say(sh(1, line), "emu has 1 GPUs here");
    strcpy(strstr(line, " -t"), " -t nix");
    must_say(sh(1, line), "a driver is cuda, hip, opencl or emu");
}

/* ---- a GPU that hangs ---------------------------------------------------- */

/* 100 instructions of a GPU and of a cpu, each of which waits for the
 * other's. */
static struct program *hand_over(struct arena *a)
{
    char *text = test_need(500, 100), *p = text;
    struct program *prog;

    p += sprintf(p, "programs 2\nmax n_tok 1\n"
                    "device 0\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "device 1\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "variant\n");
    for (int i = 0; i < 100; i++)
        p += sprintf(p, "  0: %%0 = scale(%%0) scale=1\n");
    p += sprintf(p, "  0: push 1.%%1 <- %%0 32\n"
                    "  0: post 0\n"
                    "  1: wait 0.0\n"
                    "  1: %%0 = scale(%%1) scale=1\n"
                    "  1: push 0.%%1 <- %%0 32\n"
                    "  1: post 0\n"
                    "  0: wait 1.0\n"
                    "  0: %%0 = scale(%%1) scale=1\n");
    prog = build_text(a, text, 2);
    free(text);
    return prog;
}

static struct device_set *hung_set(struct arena *a)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.1};
    struct device_set *s = build_set_as("hung,cpu*1", 1, &opt);

    LOAD_OK(s, hand_over(a));
    return s;
}

/* Checks that the memory is still mapped, because a lost GPU may write
 * there. */
static void assert_there(void *p, size_t bytes)
{
    if (msync(p, bytes, MS_ASYNC) != 0)
        fail_msg("%zu bytes at %p: %s", bytes, p, strerror(errno));
}

/* Frees a set of devices whose GPU was lost. */
static void free_lost(struct device_set *s)
{
    struct lent {
        void *p;
        size_t bytes;
    } lent[5];
    int n = 0;

    for (int i = 0; i < 2; i++) {
        const struct device *d = device_of(s, i);

        lent[n++] = (struct lent){d->event, d->event_bytes};
        lent[n++] = (struct lent){d->at[REGION_INBOX], d->bytes[REGION_INBOX]};
    }
    lent[n++] = (struct lent){device_of(s, 1)->at[REGION_WORK],
                              device_of(s, 1)->bytes[REGION_WORK]};
    device_set_free(s);
    for (int i = 0; i < n; i++)
        assert_there(lent[i].p, lent[i].bytes);
}

static void says(const pl_err *err, const char *what)
{
    if (!strstr(err->message, what))
        fail_msg("\"%s\" does not say \"%s\"", err->message, what);
}

/* A step with a GPU that hangs after n kernels ends with an error that names
 * the GPU and the instruction. After that no driver function is called. */
static void hang_after(int n, const char *where)
{
    const float one[8] = {1};
    struct arena a = {0};
    struct device_set *s;
    struct device_run run = build_run(1);
    float v[8];
    pl_err err;

    gpu_hung_begin();
    s = hung_set(&a);
    build_put(s, 0, 0, one, 8);
    RUN_OK(s, &run);
    gpu_hung.n_left = n;
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hangs: no progress for 0.1 s");
    says(&err, where);
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hung before");
    assert_int_equal(device_write(s, 0, REGION_WORK, 0, one, sizeof one, &err),
                     PL_DEVICE);
    assert_int_equal(device_read(s, 0, REGION_WORK, 0, v, sizeof v, &err),
                     PL_DEVICE);
    free_lost(s);
    assert_int_equal(gpu_hung.n_call, 0);
    gpu_hung_end();
    arena_fini(&a);
}

/* The hang is detected where the GPU is waited for, and where other devices
 * wait for it themselves. */
TEST(gpu_that_hangs_ends_the_run_and_is_left_alone)
{
    hang_after(102, "instructions 64 to 103");
    hang_after(80, "instructions 64 to 102");
    hang_after(10, "instructions 0 to 63");
}

TEST(gpu_that_hangs_without_words_ends_the_run)
{
    gpu_hung.wordless = true;
    hang_after(102, "instructions 102 to 103");
    hang_after(80, "instructions 64 to 101");
    gpu_hung.wordless = false;
}

/* A hang is also detected before a step, when the host waits for its writes. */
TEST(gpu_that_hangs_is_found_between_runs)
{
    struct arena a = {0};
    struct device_run run = build_run(1);
    struct device_set *s;
    float v[8] = {0};
    pl_err err;

    gpu_hung_begin();
    s = hung_set(&a);
    build_put(s, 0, 0, v, 8);
    gpu_hung.n_left = 0;
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hangs: no progress for 0.1 s;");
    free_lost(s);
    assert_int_equal(gpu_hung.n_call, 0);
    gpu_hung_end();
    arena_fini(&a);
}

static struct device_set *set_to_hang(const char *spec, const char *text, int n,
                                      struct arena *a)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.1};
    struct device_set *s;

    gpu_hung_begin();
    s = build_set_as(spec, 1, &opt);
    LOAD_OK(s, build_text(a, text, n));
    return s;
}

/* A thread that waits for staging space between steps is released. */
TEST(gpu_that_hangs_ends_who_writes)
{
    unsigned char *v = test_need(N_WRITER, EACH);
    struct writer w[N_WRITER];
    struct arena a = {0};
    struct device_set *s;
    char text[128];
    pl_err err;
    int n = 0;

    snprintf(text, sizeof text, "programs 1\ndevice 0 weights %d\nvariant\n",
             N_WRITER * EACH);
    s = set_to_hang("hung", text, 1, &a);
    gpu_hung.n_left = 0;
    for (int i = 0; i < N_WRITER; i++) {
        w[i] = (struct writer){.set = s,
                               .from = v + (size_t)i * EACH,
                               .at = (size_t)i * EACH,
                               .seed = (uint64_t)i};
        assert_int_equal(
            pthread_create(&w[i].thread, NULL, write_pieces, &w[i]), 0);
    }
    for (int i = 0; i < N_WRITER; i++) {
        pthread_join(w[i].thread, NULL);
        assert_true(w[i].s == PL_OK || w[i].s == PL_DEVICE);
        n += w[i].s == PL_DEVICE;
    }
    assert_true(n > 0);
    assert_int_equal(device_write(s, 0, REGION_WEIGHTS, 0, v, 1, &err),
                     PL_DEVICE);
    says(&err, "hung0 hung before");
    device_set_free(s);
    assert_int_equal(gpu_hung.n_call, 0);
    gpu_hung_end();
    arena_fini(&a);
    free(v);
}

/* Runs two steps of the program. The last device, a GPU, hangs in the second
 * one, which must end with an error. */
static void must_end(const char *program)
{
    struct device_run run = build_run(1);
    struct arena a = {0};
    struct device_set *s;
    pl_err err;

    gpu_hung.blind = true;
    s = set_to_hang("cpu*1,hung", program, 2, &a);
    RUN_OK(s, &run);
    gpu_hung.n_left = 0;
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hangs: no progress for 0.1 s");
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hung before");
    device_set_free(s);
    gpu_hung.blind = false;
    assert_int_equal(gpu_hung.n_call, 0);
    gpu_hung_end();
    arena_fini(&a);
}

/* A thread that waits for staging space in a step is released. */
TEST(gpu_that_hangs_ends_what_is_streamed)
{
    must_end(STREAMED);
}

/* A step in which the GPU pushes ends too. Late data from the GPU lands in
 * memory that stays allocated. */
TEST(gpu_that_hangs_ends_what_it_pushes)
{
    must_end(RETURNED);
}

/* ---- a GPU that differs -------------------------------------------------- */

static pl_status load_wrong(int kernel, bool inexact, uint64_t *differs,
                            pl_err *err)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .inexact = inexact};
    struct device_set *s = build_set_as("wrong", 1, &opt);
    struct arena a = {0};
    pl_status st;

    gpu_wrong_kernel = kernel;
    st = device_set_load(s,
                         build_text(&a,
                                    "programs 1\n"
                                    "max n_tok 1\n"
                                    "device 0\n"
                                    "  %0: f32[n_tok, 8]\n"
                                    "variant\n"
                                    "  0: %0 = scale(%0) scale=2\n",
                                    1),
                         err);
    *differs = device_set_inexact_hash(s);
    device_set_free(s);
    arena_fini(&a);
    gpu_wrong_kernel = GPU_KERNEL_COUNT;
    return st;
}

/* One wrong bit suffices, in any operation or in a kernel that the program has.
 * With `inexact` the set still loads, and records the difference. */
TEST(gpu_that_differs_is_refused_by_name)
{
    uint64_t differs;
    pl_err err;

    TEST_OK(load_wrong(GPU_KERNEL_COUNT, false, &differs, &err), err);
    assert_true(differs == 0);
    TEST_OK(load_wrong(GPU_softmax, false, &differs, &err), err);
    assert_true(differs == 0);
    assert_int_equal(load_wrong(GPU_probe, false, &differs, &err), PL_DEVICE);
    says(&err, "wrong0 fails its self test: kernel probe (plain sum) computes");
    assert_int_equal(load_wrong(GPU_unary, false, &differs, &err), PL_DEVICE);
    says(&err, "kernel unary (scale, F32) computes");
    says(&err, "--inexact");
    TEST_OK(load_wrong(GPU_unary, true, &differs, &err), err);
    assert_true(differs != 0);
}
