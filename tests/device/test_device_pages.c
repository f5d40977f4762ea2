/* Pages of caches arrive on other devices, memory that instructions may not
 * access is protected, and the trace has the times of instructions. */
#include "lib/program_build.h"

#include "device/cpu/cpu_image.h"

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
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
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

enum { N_PAGE = 12, TILE = 256, H0 = 3, H1 = 2, STRIDE = 5, N_SEQ = 4 };

/* Heads 2 and 0 of device 0's cache are transferred to device 1 in two
 * instructions. It pulls them into a cache of its own, or they are pushed into
 * its inbox. */
#define PAGES_HEAD                                                             \
    "programs 2\n"                                                             \
    "max n_tok 8 n_slot 768 n_seq 4 page_stride 5\n"                           \
    "device 0\n"                                                               \
    "  %0: f32[n_slot, 3, 1] cache\n"                                          \
    "  %1: i32[36]\n"                                                          \
    "device 1\n"
static const char pages_pulled[] =
    PAGES_HEAD "  %0: f32[n_slot, 2, 1] cache\n"
               "  %1: i32[36]\n"
               "  %2: i32[35]\n"
               "  %3: i32[36] micro 1\n"
               "variant\n"
               "  1 copy: pages %0 <- 0.%0 table %1 heads(2, -) tile 256\n"
               "  1 copy: pages %0 <- 0.%0 table %1 heads(-, 0) tile 256\n";
static const char pages_pushed[] =
    PAGES_HEAD "  %0: f32[n_slot, 2, 1] inbox\n"
               "variant\n"
               "  0 copy: pages 1.%0 <- %0 table %1 heads(2, -) tile 256\n"
               "  0 copy: pages 1.%0 <- %0 table %1 heads(-, 0) tile 256\n"
               "  0 copy: post 0\n"
               "  1 copy: wait 0.0\n";

/* Sequence 0 is at 64 .. 66, 2 at 128 and 3 at 5. 2 shares a page with 0, and
 * its first page was freed. */
static void fill_token_table(struct device_set *s, int dev,
                             struct device_run *run)
{
    static const int32_t pos[6] = {64, 65, 66, 128, 5, 4};
    static const int32_t seq[6] = {0, 0, 0, 2, 3, 3};
    static const int32_t pages[N_SEQ * STRIDE] = {
        4, 7, 9, 9, 9, 8, 8, 8, 8, 8, -1, 7, 11, 3, 3, 0, 6, 6, 6, 6};

    const struct token_table b = {6, 0, pos, seq, pages, STRIDE};

    build_put_token_table(s, dev, 1, &b, N_SEQ);
    *run = build_run(6);
    run->sizes[0].n_slot[0] = N_PAGE * PAGE_TOKENS;
    run->sizes[0].n_seq = N_SEQ;
}

TEST(device_pages_bring_what_the_tokens_use)
{
    static const struct {
        const char *spec;
        int n_thread, n_host;
        bool pulls;
    } cases[] = {
        {"cpu*2", 1, 0, true},     {"cpu*2", 3, 0, true},
        {"cpu*2", 2, 0, false},    {"sim,cpu", 2, 0, false},
        {"cpu,sim", 1, 0, true},   {"cpu,sim", 1, 0, false},
        {"sim*2", 1, 0, false},    {"cpu", 1, 2, true},
        {"cpu", 1, 2, false},      {"sim", 1, 2, false},
        {"cpu,emu", 1, 0, true},   {"cpu,emu", 1, 0, false},
        {"emu*2", 1, 0, false},    {"emu,cpu", 1, 0, false},
        {"emu", 1, 2, false},      {"cpu,bare", 1, 0, true},
        {"bare,cpu", 1, 0, false}, {"bare,emu", 1, 0, false},
        {"cpu,bare", 1, 0, true},  {"bare,sim", 1, 0, false},
    };
    static const bool used[N_PAGE] = {
        [4] = true, [7] = true, [11] = true, [0] = true};
    unsigned char from[N_PAGE * H0 * TILE], to[N_PAGE * H1 * TILE];
    uint64_t rng = test_seed();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct device_set *s = set_with_host(cases[i].spec, cases[i].n_thread,
                                             cases[i].n_host, i, i % 2, false);
        enum region r = cases[i].pulls ? REGION_CACHE : REGION_INBOX;
        struct device_run run;
        struct arena a = {0};
        pl_counters c = {0};

        LOAD_OK(
            s, build_text(&a, cases[i].pulls ? pages_pulled : pages_pushed, 2));
        for (size_t k = 0; k < sizeof from; k++)
            from[k] = (unsigned char)test_below(&rng, 255);
        memset(to, 0xEE, sizeof to);
        device_write(s, 0, REGION_CACHE, 0, from, sizeof from, NULL);
        device_write(s, 1, r, 0, to, sizeof to, NULL);
        fill_token_table(s, cases[i].pulls, &run);
        RUN_OK(s, &run);
        device_read(s, 1, r, 0, to, sizeof to, NULL);
        for (int page = 0; page < N_PAGE; page++)
            for (int h = 0; h < H1; h++)
                for (int k = 0; k < TILE; k++)
                    assert_int_equal(
                        to[(page * H1 + h) * TILE + k],
                        used[page] ? from[(page * H0 + (h ? 0 : 2)) * TILE + k]
                                   : 0xEE);
        device_set_counters(s, &c);
        assert_int_equal(c.copies, 2);
        /* page 7 is copied twice */
        assert_int_equal(c.copy_bytes, 2 * 5 * TILE);
        device_set_free(s);
        arena_fini(&a);
    }
}

TEST(device_load_refuses_wrong_pages)
{
    static const struct {
        /* text of the program pages_pulled to replace, its replacement, and the
         * error */
        const char *was, *is, *says;
    } cases[] = {
        {"heads(2, -)", "heads(3, 0)", "a head that its source lacks"},
        {"tile 256\n", "tile 272\n", "past the end of their source"},
        {"f32[n_slot, 2, 1]", "f16[n_slot, 2, 1]",
         "past the end of its result"},
        {"0.%0", "0.%2", "past the end of their source"},
        {"table %1", "table %4", "names a tensor that does not exist"},
        {"table %1", "table %0", "a token table from a tensor that is not one"},
        {"table %1", "table %2", "a token table from a tensor that is not one"},
        {"table %1", "table %3", "a tensor of another micro-batch"},
        {"device 0\n", "device 0\nmax n_slot 64\n",
         "past the end of their source"},
        {"%0 <- 0.%0 table %1 heads(2, -)",
         "0.%0 <- 0.%0 table %1 heads(2, -, -)",
         "reads a device that is not in the set"},
        {"%0 <- 0.%0", "%0 <- %0", "reads a device that is not in the set"},
        {"%0 <- 0.%0", "%0 <- 2.%0", "reads a device that is not in the set"},
        {"1 copy: pages %0 <- 0.%0", "0 copy: pages 1.%0 <- %0",
         "pushes outside of an inbox"},
        {"1 copy: pages %0 <- 0.%0 table %1 heads(2, -)",
         "0 copy: pages %0 <- 1.%0 table %1 heads(0, 0, 0)",
         "pulls from memory that it cannot access"},
    };
    struct device_set *s = build_set("cpu,sim", 1, 0);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = {0};
        const char *at = strstr(pages_pulled, cases[i].was);
        char text[1024];
        pl_err err;

        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - pages_pulled),
                 pages_pulled, cases[i].is, at + strlen(cases[i].was));
        assert_int_equal(device_set_load(s, build_text(&a, text, 2), &err),
                         PL_BAD_ARGUMENT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says);
        arena_fini(&a);
    }
    device_set_free(s);
}

/* ---- guard ------------------------------------------------------------- */

enum crime {
    NONE,
    READS_PEER,
    WRITES_PEER,
    WRITES_WEIGHTS,
    /* reads the weights region, though its tensor is in another */
    TAKES_WEIGHTS,
    PUSHES_WORK, /* pushes into the peer's work region instead of its inbox */
    N_CRIME
};

static struct cpu_image *image(struct device_set *s, int dev)
{
    return s->dev[dev].own;
}

static void commit_one(struct device_set *s, enum crime crime)
{
    if (crime == READS_PEER)
        image(s, 0)->tensor[0].data = image(s, 1)->base[REGION_WORK];
    if (crime == WRITES_PEER)
        image(s, 1)->tensor[1].data = image(s, 0)->base[REGION_WORK];
    if (crime == WRITES_WEIGHTS)
        image(s, 1)->tensor[1].data = image(s, 1)->base[REGION_WEIGHTS];
    if (crime == TAKES_WEIGHTS)
        image(s, 0)->tensor[0].data = image(s, 0)->base[REGION_WEIGHTS];
    if (crime == PUSHES_WORK)
        s->dev[1].at[REGION_INBOX] = image(s, 1)->base[REGION_WORK];
}

/* Two devices: each scales its own tensor; they meet at a barrier and add if
 * they can; 0 pushes to 1, which also pulls from 0 where that is open. */
static void commit(enum crime crime, const char *spec, int n_host)
{
    struct device_set *s = set_with_host(spec, 2, n_host, 1, true, false);
    const struct device_desc *d[2] = {&s->dev[0].desc, &s->dev[1].desc};
    bool meets = d[0]->memory >= 0 && d[1]->memory >= 0 && n_host == 0;
    bool pulls = d[0]->memory >= 0;
    struct device_run run = build_run(1);
    struct arena a = {0};
    char text[1024];
    pl_err err;

    snprintf(text, sizeof text,
             "programs 2\n"
             "max n_tok 1\n"
             "device 0 weights 64\n"
             "  %%0: f32[n_tok, 16]\n"
             "  %%1: f32[n_tok, 16]\n"
             "  %%2: f32[n_tok, 16]\n"
             "device 1 weights 64\n"
             "  %%0: f32[n_tok, 16]\n"
             "  %%1: f32[n_tok, 16]\n"
             "  %%2: f32[n_tok, 16]\n"
             "  %%3: f32[n_tok, 16] inbox\n"
             "variant\n"
             "  0, 1: %%1 = scale(%%0) scale=2\n"
             "  0, 1: post 0\n"
             "%s"
             "  0 copy: push 1.%%3 <- %%0 64\n"
             "  1 copy: wait 1.0\n"
             "  1 copy: wait 0.0\n"
             "%s",
             meets ? "  0, 1: merge barrier; %2 <- sum(0.%1, 1.%1+) 64\n" : "",
             pulls ? "  1 copy: pull %2 <- 0.%0 64\n" : "");
    if (device_set_load(s, build_text(&a, text, 2), &err) != PL_OK)
        _exit(2);
    commit_one(s, crime);
    if (device_set_run(s, &run, &err) != PL_OK)
        _exit(3);
    /* between steps the host may access all memory */
    for (int i = 0; i < 2; i++) {
        unsigned char *v = device_map(s, i, REGION_WORK);
        float x[16];

        if (device_write(s, i, REGION_WEIGHTS, 0, x, 4, NULL) != PL_OK ||
            device_read(s, i, REGION_WORK, 0, x, sizeof x, NULL) != PL_OK)
            _exit(4);
        if (v)
            v[0] = 1;
    }
    device_set_free(s);
    arena_fini(&a);
}

/* Returns the result of a child that commits the crime: 0, or the signal that
 * killed it. */
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

TEST(device_guard_kills_who_leaves_its_memory)
{
    static const struct {
        const char *spec;
        int n_host;
    } cases[] = {
        {"cpu*2", 0}, {"sim*2", 0}, {"cpu,sim", 0}, {"cpu", 2}, {"sim", 1}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int crime = NONE; crime < N_CRIME; crime++) {
            int end = end_of((enum crime)crime, cases[i].spec, cases[i].n_host);
            bool dies = crime != NONE;

            if (dies != (end != 0) || (end != 0 && end != SIGSEGV))
                fail_msg("%s, %d host threads, crime %d: the end is %d",
                         cases[i].spec, cases[i].n_host, crime, end);
        }
}

/* ---- trace ------------------------------------------------------------- */

/* A transfer over a link of 2 ms during a kernel. An instruction of an absent
 * micro-batch leaves no trace. */
#define TRACE_HEAD                                                             \
    "programs 2\n"                                                             \
    "max n_tok 1\n"                                                            \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 8]\n"                                                    \
    "  %1: f32[n_tok, 8]\n"                                                    \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 8]\n"                                                    \
    "  %1: f32[n_tok, 8]\n"                                                    \
    "  %2: f32[n_tok, 8] inbox\n"                                              \
    "variant micro 2\n"                                                        \
    "  0: %1 = scale(%0) scale=2\n"                                            \
    "  0: post 0\n"                                                            \
    "  0 micro 1: merge\n"
static const char traced_pull[] = TRACE_HEAD "  1: %1 = scale(%0) scale=2\n"
                                             "  1: post 0\n"
                                             "  1 copy: wait 1.0\n"
                                             "  1 copy: wait 0.0\n"
                                             "  1 copy: pull %0 <- 0.%0 32\n";
static const char traced_push[] = TRACE_HEAD "  0 copy: push 1.%2 <- %0 32\n"
                                             "  0 copy: post 1\n"
                                             "  1: wait 0.1\n"
                                             "  1: %1 = scale(%2) scale=2\n";

static void trace_case(const char *spec, const char *text, const int step[3][2])
{
    struct device_set *s = set_with_host(spec, 2, 0, 1, false, true);
    struct device_run run = build_run(1);
    const struct device_timing *e;
    struct arena a = {0};
    int n;

    LOAD_OK(s, build_text(&a, text, 2));
    e = device_set_trace(s, &n);
    assert_true(e == NULL && n == 0);
    for (int k = 0; k < 2; k++) {
        double begin[3] = {0}, end[3] = {0};

        RUN_OK(s, &run);
        e = device_set_trace(s, &n);
        assert_int_equal(n, 3);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 3; j++)
                if (e[i].dev == step[j][0] && e[i].step == step[j][1]) {
                    begin[j] = e[i].begin_s;
                    end[j] = e[i].end_s;
                }
        for (int j = 0; j < 3; j++)
            if (!(begin[j] > 0 && begin[j] <= end[j] && end[j] < 60))
                fail_msg("%s, run %d: step %d of device %d from %g to %g s",
                         spec, k, step[j][1], step[j][0], begin[j], end[j]);
        if (text == traced_pull) {
            assert_true(begin[2] >= end[0]);
            assert_true(end[2] - begin[2] >= 0.002);
        } else {
            assert_true(begin[2] - begin[1] >= 0.002);
        }
    }
    s->dev[1].fail_insn = 0;
    assert_int_equal(device_set_run(s, &run, NULL), PL_DEVICE);
    e = device_set_trace(s, &n);
    assert_true(e == NULL && n == 0);
    device_set_free(s);
    arena_fini(&a);
}

TEST(device_trace_times_every_step)
{
    static const int pull[3][2] = {{0, 0}, {1, 0}, {1, 4}};
    static const int push[3][2] = {{0, 0}, {0, 3}, {1, 1}};

    trace_case("cpu,sim:2ms", traced_pull, pull);
    trace_case("sim:2ms,cpu", traced_push, push);
    trace_case("sim:2ms,sim", traced_push, push);
    trace_case("sim:2ms,proc*1", traced_push, push);
}
