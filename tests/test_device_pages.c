/* Pages of caches between devices, memory that steps may not touch, and what
 * the clock says of steps. */
#include "program_build.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device_set *set_with_host(const char *spec, int n_thread,
                                        int n_host, uint64_t seed, bool guard,
                                        bool trace)
{
    struct device_options opt = {.family = CPU_GENERIC,
                                 .sim_seed = seed,
                                 .no_pin = true,
                                 .guard = guard,
                                 .trace = trace};
    struct device_list l;
    struct device_set *s;

    assert_int_equal(device_parse(&l, spec, n_thread, NULL), PL_OK);
    if (n_host > 0)
        build_add_host(&l, n_host, false);
    s = build_set_of(&l, &opt);
    device_list_free(&l);
    return s;
}

/* ---- pages ------------------------------------------------------------- */

enum { N_PAGE = 12, TILE = 96, H0 = 3, H1 = 2, STRIDE = 5, N_SEQ = 4 };

static int build_cache(struct build *b, int64_t n_head)
{
    size_t bytes = (size_t)(N_PAGE * n_head * TILE);

    b->p.max.n_slot = N_PAGE * PAGE_TOKENS;
    b->tensor[b->p.n_tensor] = (struct prog_tensor){
        .format = PL_F32,
        .n_dim = 3,
        .dim = {{1, PL_N_SLOT}, build_const(n_head), build_const(1)},
        .region = REGION_CACHE,
        .offset = b->p.bytes[REGION_CACHE],
        .bytes = bytes,
    };
    b->p.bytes[REGION_CACHE] += (bytes + 63) / 64 * 64;
    return b->p.n_tensor++;
}

/* Device 1 takes heads 2 and 0 of device 0's cache, in two steps. */
static struct build *build_pages(struct step *st[2])
{
    static const int32_t first[H1] = {2, -1}, second[H1] = {-1, 0};
    struct build *b = build_new(2, 8);

    for (int d = 0; d < 2; d++) {
        b[d].p.n_seq = N_SEQ;
        b[d].p.page_stride = STRIDE;
        build_cache(&b[d], d == 0 ? H0 : H1);
    }
    for (int k = 0; k < 2; k++) {
        st[k] = build_step(&b[1], STEP_PAGES);
        st[k]->queue = QUEUE_COPY;
        st[k]->pages = (struct step_pages){
            .map = k == 0 ? first : second,
            .tile_bytes = TILE,
        };
    }
    return b;
}

/* Sequence 0 at 64 .. 66, 2 at 128 and 3 at 5; 2 shares a page with 0, and its
 * first page was given back. */
static void fill_batch(struct device_run *run)
{
    static const int32_t pos[6] = {64, 65, 66, 128, 5, 4};
    static const int32_t seq[6] = {0, 0, 0, 2, 3, 3};
    static const int32_t pages[N_SEQ * STRIDE] = {
        4, 7, 9, 9, 9, 8, 8, 8, 8, 8, -1, 7, 11, 3, 3, 0, 6, 6, 6, 6};

    *run = build_run(6);
    run->sizes[0].n_slot = N_PAGE * PAGE_TOKENS;
    run->batch[0].pos = pos;
    run->batch[0].seq = seq;
    run->batch[0].pages = pages;
    run->batch[0].page_stride = STRIDE;
    run->n_seq = N_SEQ;
}

static void device_pages_bring_what_the_batch_uses(void **state)
{
    static const struct {
        const char *spec;
        int n_thread, n_host;
    } cases[] = {
        {"cpu*2", 1, 0},   {"cpu*2", 3, 0}, {"sim,cpu", 2, 0},
        {"cpu,sim", 1, 0}, {"sim*2", 1, 0}, {"cpu", 1, 2},
    };
    static const bool used[N_PAGE] = {
        [4] = true, [7] = true, [11] = true, [0] = true};
    unsigned char from[N_PAGE * H0 * TILE], to[N_PAGE * H1 * TILE];
    uint64_t rng = test_seed();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct device_set *s = set_with_host(cases[i].spec, cases[i].n_thread,
                                             cases[i].n_host, i, i % 2, false);
        struct step *st[2];
        struct build *b = build_pages(st);
        struct program *p = build_programs(b, 2);
        struct device_run run;
        pl_counters c = {0};

        LOAD_OK(s, p);
        for (size_t k = 0; k < sizeof from; k++)
            from[k] = (unsigned char)test_below(&rng, 255);
        memset(to, 0xEE, sizeof to);
        device_write(s, 0, REGION_CACHE, 0, from, sizeof from, NULL);
        device_write(s, 1, REGION_CACHE, 0, to, sizeof to, NULL);
        fill_batch(&run);
        RUN_OK(s, &run);
        device_read(s, 1, REGION_CACHE, 0, to, sizeof to, NULL);
        for (int page = 0; page < N_PAGE; page++)
            for (int h = 0; h < H1; h++)
                for (int k = 0; k < TILE; k++)
                    assert_int_equal(
                        to[(page * H1 + h) * TILE + k],
                        used[page] ? from[(page * H0 + (h ? 0 : 2)) * TILE + k]
                                   : 0xEE);
        device_set_counters(s, &c);
        assert_int_equal(c.copies, 2);
        assert_int_equal(c.copy_bytes, 2 * 5 * TILE); /* page 7 twice */
        device_set_free(s);
        free(p);
        free(b);
    }
}

static void pages_refused(struct build *b, const char *says)
{
    struct device_set *s = build_set("cpu,sim", 1, 0);
    struct program *p = build_programs(b, 2);
    pl_err err;

    assert_int_equal(device_set_load(s, p, &err), PL_BAD_ARGUMENT);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    device_set_free(s);
    free(p);
    free(b);
}

static void device_load_refuses_wrong_pages(void **state)
{
    static const int32_t beyond[H1] = {3, 0};
    struct step *st[2];
    struct build *b;

    (void)state;
    b = build_pages(st);
    st[0]->pages.map = beyond;
    pages_refused(b, "a head that its source does not have");
    b = build_pages(st);
    st[1]->pages.tile_bytes = TILE + 16;
    pages_refused(b, "beyond their source");
    b = build_pages(st);
    b[1].p.bytes[REGION_CACHE] -= 64;
    b[1].tensor[0].bytes -= 64;
    pages_refused(b, "beyond its result");
    b = build_pages(st);
    st[0]->pages.src = 1;
    pages_refused(b, "beyond their source");
    b = build_pages(st);
    b[0].p.max.n_slot = 64;
    pages_refused(b, "beyond their source");
}

/* ---- guard ------------------------------------------------------------- */

enum crime { NONE, READS_PEER, WRITES_PEER, WRITES_WEIGHTS, PULLS_WEIGHTS };

/* Two devices: each scales its own tensor, then they meet and add. */
static void commit(enum crime crime, const char *spec, int n_host)
{
    enum { W = 16 };
    struct device_set *s = set_with_host(spec, 2, n_host, 1, true, false);
    struct build *b = build_new(2, 1);
    struct copy_piece piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
    struct copy_piece pull = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
    struct merge_addend a[2] = {{.dev = 0, .tensor = 1},
                                {.dev = 1, .tensor = 1}};
    struct merge_item m = {.reduce = true,
                           .out = 2,
                           .n_piece = 1,
                           .piece = &piece,
                           .n_addend = 2,
                           .addend = a,
                           .depth = build_tree(a, 2)};
    bool meets = s->n_cpu == 2 && n_host == 0;
    struct device_run run = build_run(1);
    struct program *p;
    struct step *st;
    pl_err err;

    for (int d = 0; d < 2; d++) {
        for (int t = 0; t < 3; t++)
            build_tensor(&b[d], W);
        b[d].p.bytes[REGION_WEIGHTS] = W * 4;
        build_op(&b[d], KERNEL_scale, 1, 0, 2);
        build_post(&b[d], QUEUE_COMPUTE, 0);
        if (meets) {
            st = build_merge(&b[d], &m);
            st->merge.meet = true;
        }
    }
    build_wait(&b[1], QUEUE_COPY, 0, 0);
    build_pull(&b[1], 2, &pull);
    p = build_programs(b, 2);
    if (device_set_load(s, p, &err) != PL_OK)
        _exit(2);
    if (crime == READS_PEER)
        s->dev[0].tensor[0].data = s->dev[1].base[REGION_WORK];
    if (crime == WRITES_PEER)
        s->dev[1].tensor[1].data = s->dev[0].base[REGION_WORK];
    if (crime == WRITES_WEIGHTS)
        s->dev[1].tensor[1].data = s->dev[1].base[REGION_WEIGHTS];
    if (crime == PULLS_WEIGHTS) /* another region than the tensor's */
        s->dev[0].tensor[0].data = s->dev[0].base[REGION_WEIGHTS];
    if (device_set_run(s, &run, &err) != PL_OK)
        _exit(3);
    for (int d = 0; d < 2; d++) { /* all is open to the host again */
        unsigned char *v = device_map(s, d, REGION_WORK);
        float x[W];

        if (device_write(s, d, REGION_WEIGHTS, 0, x, 4, NULL) != PL_OK ||
            device_read(s, d, REGION_WORK, 0, x, sizeof x, NULL) != PL_OK)
            _exit(4);
        if (v)
            v[0] = 1;
    }
    device_set_free(s);
    free(p);
    free(b);
}

/* How a child ends that commits it: 0, or the signal that killed it. */
static int end_of(enum crime crime, const char *spec, int n_host)
{
    const struct rlimit none = {0, 0};
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        commit(crime, spec, n_host);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return WEXITSTATUS(status);
}

static void device_guard_kills_who_leaves_its_memory(void **state)
{
    static const struct {
        const char *spec;
        int n_host;
    } cases[] = {{"cpu*2", 0}, {"sim*2", 0}, {"cpu", 2}, {"sim", 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int crime = NONE; crime <= PULLS_WEIGHTS; crime++) {
            int end = end_of((enum crime)crime, cases[i].spec, cases[i].n_host);
            bool dies = crime != NONE;

            if (dies != (end != 0) || (end != 0 && end != SIGSEGV))
                fail_msg("%s, %d host threads, crime %d: the end is %d",
                         cases[i].spec, cases[i].n_host, crime, end);
        }
}

/* ---- trace ------------------------------------------------------------- */

/* A pull over a link of 2 ms beside a kernel; a step of an absent micro-batch
 * leaves nothing. */
static void device_trace_times_every_step(void **state)
{
    enum { W = 8 };
    struct copy_piece piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);

    (void)state;
    for (int sim = 0; sim < 2; sim++) {
        struct device_set *s = set_with_host(
            sim ? "cpu,sim:2ms" : "sim:2ms,cpu", 2, 0, 1, false, true);
        struct build *b = build_new(2, 1);
        struct device_run run = build_run(1);
        const struct device_event *e;
        struct program *p;
        int n;

        for (int d = 0; d < 2; d++) {
            build_tensor(&b[d], W);
            build_tensor(&b[d], W);
            b[d].script.n_instance = 2;
            build_op(&b[d], KERNEL_scale, 1, 0, 2);
            build_post(&b[d], QUEUE_COMPUTE, 0);
        }
        build_step(&b[0], STEP_MERGE)->instance = 1;
        build_wait(&b[1], QUEUE_COPY, 0, 0);
        build_pull(&b[1], 0, &piece);
        p = build_programs(b, 2);
        LOAD_OK(s, p);
        e = device_set_trace(s, &n);
        assert_true(e == NULL && n == 0);
        for (int k = 0; k < 2; k++) {
            RUN_OK(s, &run);
            e = device_set_trace(s, &n);
            assert_int_equal(n, 3);
            assert_non_null(e);
            assert_true(e[0].dev == 0 && e[0].step == 0);
            assert_true(e[1].dev == 1 && e[1].step == 0);
            assert_true(e[2].dev == 1 && e[2].step == 3);
            for (int i = 0; i < n; i++)
                assert_true(e[i].begin_s >= 0 && e[i].begin_s <= e[i].end_s &&
                            e[i].end_s < 60);
            assert_true(e[2].begin_s >= e[0].end_s);
            assert_true(e[2].end_s - e[2].begin_s >= 0.002);
        }
        s->dev[1].fail_step = 0;
        assert_int_equal(device_set_run(s, &run, NULL), PL_DEVICE);
        e = device_set_trace(s, &n);
        assert_true(e == NULL && n == 0);
        device_set_free(s);
        free(p);
        free(b);
    }
}

int test_device_pages(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_pages_bring_what_the_batch_uses),
        cmocka_unit_test(device_load_refuses_wrong_pages),
        cmocka_unit_test(device_guard_kills_who_leaves_its_memory),
        cmocka_unit_test(device_trace_times_every_step),
    };

    return TEST_RUN(tests);
}
