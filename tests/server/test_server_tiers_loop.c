/* Tasks whose prompts are loaded from the cache's tiers generate what they do
 * without: from host memory, from a disk, after a restart, with another split.
 * Saving pages while idle after every response blocks and loses nothing. */
#include "lib/loop_states.h"
#include "lib/mute_disk.h"
#include "lib/support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct place {
    pl_model *model;
    pl_engine *engine;
    struct loop *loop;
    struct tiers *tiers;
};

struct heard {
    int32_t id[64];
    uint32_t sum; /* sum of the bits of all logits */
    int n;
    int64_t n_vocab;
    struct task_report report;
    atomic_int n_end;
};

struct setting {
    const char *file; /* the model's file; NULL for the bundled model */
    pl_options opt;
    uint64_t ram;
    const char *dir;
    bool mute; /* true if reads of the disk do not return (lib/mute_disk.h) */
};

enum { LONG_S = 1000000 };

static struct setting setting_of(const char *devices, pl_split_mode mode)
{
    struct setting s = {0};

    pl_options_init(&s.opt);
    s.opt.devices = devices;
    s.opt.split_mode = mode;
    s.opt.n_ranks = 2;
    s.opt.n_ctx = 512;
    s.opt.n_ubatch = 64;
    s.opt.n_seq = 3;
    s.opt.n_threads = 1;
    s.opt.no_fit = true;
    s.opt.prefix_cache = true;
    return s;
}

static void set_up(struct place *p, const struct setting *s)
{
    /* A slow disk is waited for on any machine, but not one that does not
     * answer at all. */
    const struct tiers_options to = {.ram = s->ram,
                                     .dir = s->dir,
                                     .disk = 1 << 30,
                                     .hang_s = LONG_S,
                                     .read_hang_s = s->mute ? 0.05 : LONG_S,
                                     .flush_s = LONG_S};
    struct loop_options lo = {
        .n_seq = s->opt.n_seq, .step = 64, .look_s = LONG_S};
    pl_err err;

    memset(p, 0, sizeof *p);
    TEST_OK(pl_model_open(&p->model, s->file ? s->file : test_model(), &err),
            err);
    TEST_OK(pl_engine_create(&p->engine, p->model, &s->opt, &err), err);
    if (s->ram > 0 || s->dir)
        TEST_OK(tiers_open(&p->tiers, &to, p->engine, &err), err);
    lo.tiers = p->tiers;
    TEST_OK(loop_create(&p->loop, p->engine, pl_model_tokenizer(p->model), &lo,
                        &err),
            err);
}

static void tear_down(struct place *p)
{
    expect_drawn_edges(p->loop);
    loop_free(p->loop);
    tiers_free(p->tiers);
    pl_engine_free(p->engine);
    pl_model_free(p->model);
}

static bool hear_token(void *user, int32_t id, const float *logits)
{
    struct heard *h = user;
    uint32_t bits;

    for (int64_t i = 0; i < h->n_vocab; i++) {
        memcpy(&bits, &logits[i], sizeof bits);
        h->sum = h->sum * 31 + bits;
    }
    h->id[h->n++] = id;
    return true;
}

static void hear_end(void *user, const struct task_report *report)
{
    struct heard *h = user;

    h->report = *report;
    h->n_end++;
}

/* Runs n equal tasks at once until they end. */
static void write_same(struct place *p, struct heard *h, int n, uint64_t seed,
                       int n_prompt, int max_tokens)
{
    int32_t *prompt = test_need((size_t)n_prompt, sizeof *prompt);
    struct task_params *params = test_need((size_t)n, sizeof *params);
    pl_sampling how;
    pl_err err;

    pl_sampling_init(&how);
    how.seed = seed;
    for (int i = 0; i < n; i++) {
        memset(&h[i], 0, sizeof h[i]);
        h[i].n_vocab = pl_tokenizer_n_vocab(pl_model_tokenizer(p->model));
        params[i] = (struct task_params){
            .prompt = prompt,
            .n_prompt = n_prompt,
            .max_tokens = max_tokens,
            .ignore_end = true,
            .client = 1,
            .sampling = &how,
            .slot = -1,
            .listener = {.token = hear_token, .end = hear_end, .user = &h[i]}};
    }
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)test_below(&seed, h->n_vocab);
    TEST_OK(loop_add(p->loop, params, n, NULL, &err), err);
    free(prompt);
    free(params);
    for (int i = 0; i < n; i++) {
        TEST_UNTIL(h[i].n_end > 0);
        if (h[i].report.why != FINISH_LENGTH)
            fail_msg("%s", h[i].report.err.message);
    }
}

static void write_one(struct place *p, struct heard *h, uint64_t seed,
                      int n_prompt, int max_tokens)
{
    write_same(p, h, 1, seed, n_prompt, max_tokens);
}

static void expect_same(const struct heard *a, const struct heard *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, (size_t)a->n * sizeof *a->id);
    assert_int_equal(a->sum, b->sum);
}

/* Stores the pages that the loop has not stored yet, in the way the loop does
 * it. */
static pl_status give_rest(void *user, pl_engine *e, pl_err *err)
{
    int32_t *token = test_need((size_t)pl_engine_n_ctx(e), sizeof *token);
    int64_t n = 1;
    bool goes_on;
    void *data;
    size_t bytes;

    while (n > 0 &&
           pl_prefix_export_page(e, token, pl_engine_n_ctx(e), &n, &goes_on,
                                 &data, &bytes, err) == PL_OK)
        if (n > 0)
            tiers_store(user, token, n, goes_on, data, bytes);
    free(token);
    return n == 0 ? PL_OK : err->status;
}

/* Waits until the tiers have stored all cached pages; with `disk` until they
 * are on disk. */
static void settle(struct place *p, bool disk)
{
    struct tiers_counts c;
    pl_err err;

    TEST_OK(loop_run_between_steps(p->loop, give_rest, p->tiers, &err), err);
    TEST_UNTIL((tiers_counts(p->tiers, &c), c.dirty_bytes == 0));
    assert_true(disk ? c.written > 0 : c.ram_pages > 0);
    assert_int_equal(c.failed + c.damaged, 0);
}

enum { N_JOB = 4, LONG = 300 };

/* Runs tasks one after the other; the cache holds few of them at once. */
static void write_all(struct place *p, struct heard h[N_JOB])
{
    for (int i = 0; i < N_JOB; i++)
        write_one(p, &h[i], (uint64_t)i + 1, LONG + 20 * i, 8);
}

static void write_again(struct place *p, const struct heard alone[N_JOB],
                        int64_t least)
{
    struct heard h[N_JOB];
    int64_t cached = 0;

    write_all(p, h);
    for (int i = 0; i < N_JOB; i++) {
        expect_same(&alone[i], &h[i]);
        cached += h[i].report.n_cached;
    }
    if (cached < least)
        fail_msg("%d tokens came from the cache, %d should have", (int)cached,
                 (int)least);
}

/* Without tiers; from memory; from a disk; after a restart with another
 * split. */
static void each_tier(const char *file, const char *dir, int64_t least)
{
    struct setting s = setting_of("cpu", PL_SPLIT_NONE);
    struct heard alone[N_JOB];
    struct loop_counts c;
    struct tiers_counts tc;
    struct place p;

    s.file = file;
    set_up(&p, &s);
    write_all(&p, alone);
    tear_down(&p);
    s.ram = 64 << 20;
    set_up(&p, &s);
    write_again(&p, alone, 0);
    settle(&p, false);
    write_again(&p, alone, least);
    loop_counts(p.loop, &c);
    assert_true((int64_t)c.n_restored >= least - 512);
    tear_down(&p);
    s.ram = 0;
    s.dir = dir;
    set_up(&p, &s);
    write_again(&p, alone, 0);
    settle(&p, true);
    write_again(&p, alone, least);
    tear_down(&p);
    s = setting_of("cpu*2", PL_SPLIT_TENSOR);
    s.file = file;
    s.ram = 64 << 20;
    s.dir = dir;
    set_up(&p, &s);
    write_again(&p, alone, least);
    tiers_counts(p.tiers, &tc);
    assert_true(tc.disk_hits > 0 && tc.damaged == 0);
    tear_down(&p);
}

TEST_FLAGGED(__FILE__, server_tiers_change_no_bit, TEST_NOT_BRIEF)
{
    each_tier(NULL, test_temp("tiers-plain"), N_JOB * 256);
}

TEST_FLAGGED(__FILE__, server_tiers_of_any_memory_change_no_bit, TEST_NOT_BRIEF)
{
    static const char *const models[] = {
        "gemma3-swa-f32.gguf", "qwen3next-f32.gguf", "deepseek2-mla-f32.gguf"};

    for (int m = 0; m < 3; m++)
        each_tier(test_ref_need(models[m]), test_temp(models[m]), N_JOB * 256);
}

/* Simultaneous tasks for the same pages all get these pages, however many they
 * are. */
TEST(server_tiers_serve_all_who_ask_at_once)
{
    enum { N = 6, N_PROMPT = 200 };
    struct setting s = setting_of("cpu", PL_SPLIT_NONE);
    struct heard alone, h[N];
    struct place p;

    s.opt.n_seq = N;
    s.opt.n_ctx = 2048;
    s.dir = test_temp("tiers-same");
    set_up(&p, &s);
    write_one(&p, &alone, 1, N_PROMPT, 8);
    settle(&p, true);
    tear_down(&p);
    set_up(&p, &s);
    write_same(&p, h, N, 1, N_PROMPT, 8);
    for (int i = 0; i < N; i++) {
        expect_same(&alone, &h[i]);
        assert_true(h[i].report.n_cached >= N_PROMPT / 64 * 64);
    }
    tear_down(&p);
}

/* A thread that reads the metrics' totals again and again, more often than
 * Prometheus does. */
struct looker {
    struct loop *loop;
    pthread_t thread;
    atomic_bool stops, fell;
};

static void *look_on(void *user)
{
    struct looker *k = user;
    struct loop_counts c, before = {0};

    while (!atomic_load(&k->stops)) {
        loop_counts(k->loop, &c);
        if (c.n_cached < before.n_cached || c.n_restored < before.n_restored ||
            c.n_prompt < before.n_prompt || c.n_written < before.n_written)
            atomic_store(&k->fell, true);
        before = c;
        sched_yield();
    }
    return NULL;
}

/* Damages three bytes of the data of the files in `dir` that a command
 * lists. */
static void damage(const char *dir, const char *which)
{
    char line[700];

    snprintf(
        line, sizeof line,
        "cd '%s' && for f in $(%s); do printf '\\377\\376\\375' | dd of=$f "
        "bs=1 seek=5000 conv=notrunc 2>/dev/null || exit 1; done",
        dir, which);
    assert_int_equal(system(line), 0);
}

/* Runs a task of LONG tokens with the pages of `keeps`, of which number `which`
 * is damaged. Returns how many tokens were loaded. */
static int64_t look_without(struct setting *s, const char *keeps, int which,
                            const struct heard *alone)
{
    struct looker k = {0};
    struct heard h;
    struct loop_counts c;
    struct place p;
    char line[1400];

    snprintf(line, sizeof line, "rm -rf '%s' && cp -r '%s' '%s'", s->dir, keeps,
             s->dir);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "ls *.page | sed -n %dp", which + 1);
    damage(s->dir, line);
    set_up(&p, s);
    k.loop = p.loop;
    assert_int_equal(pthread_create(&k.thread, NULL, look_on, &k), 0);
    write_one(&p, &h, 1, LONG, 8);
    atomic_store(&k.stops, true);
    pthread_join(k.thread, NULL);
    expect_same(alone, &h);
    assert_false(atomic_load(&k.fell));
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_cached, h.report.n_cached);
    assert_int_equal(c.n_restored, h.report.n_cached);
    assert_int_equal(c.n_prompt, LONG - h.report.n_cached);
    assert_int_equal(c.n_written, 8);
    tear_down(&p);
    return c.n_restored;
}

/* Loaded pages that cannot be used, because a later page with the state is
 * damaged, never count as restored. Totals are the sums of all tasks. */
TEST(server_totals_only_grow_whatever_comes_back)
{
    /* number of pages of the prompt, and one more each for the output and for
     * states */
    enum { N_PAGE = LONG / 64 + 2 };
    struct setting s = setting_of("cpu", PL_SPLIT_NONE);
    char keeps[600];
    struct heard alone;
    struct place p;
    int n_useful = 0;

    snprintf(keeps, sizeof keeps, "%s", test_temp("tiers-keeps"));
    s.file = test_ref_need("qwen3next-f32.gguf");
    s.dir = keeps;
    set_up(&p, &s);
    write_one(&p, &alone, 1, LONG, 8);
    settle(&p, true);
    tear_down(&p);
    s.dir = test_temp("tiers-totals");
    for (int i = 0; i < N_PAGE; i++)
        n_useful += look_without(&s, keeps, i, &alone) > 0;
    if (n_useful == 0 || n_useful == N_PAGE)
        fail_msg("%d of %d pages are of use without one", n_useful, N_PAGE);
}

/* A disk that does not answer: tasks finish without it, with the same output.
 * Waiting for it would never end. */
TEST(server_jobs_wait_for_no_disk_that_does_not_answer)
{
    struct setting s = setting_of("cpu", PL_SPLIT_NONE);
    struct heard alone[N_JOB], h[N_JOB];
    struct loop_counts c;
    struct place p;

    s.dir = test_temp("tiers-mute");
    set_up(&p, &s);
    write_all(&p, alone);
    settle(&p, true);
    tear_down(&p);
    s.mute = true;
    set_up(&p, &s);
    mute_disk(true);
    write_all(&p, h);
    for (int i = 0; i < N_JOB; i++)
        expect_same(&alone[i], &h[i]);
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_restored, 0);
    mute_disk(false);
    tear_down(&p);
}

/* Files of the tier with changed data: loaded pages are rejected, and
 * computed. */
TEST(server_tiers_use_nothing_damaged)
{
    struct setting s = setting_of("cpu", PL_SPLIT_NONE);
    const char *dir = test_temp("tiers-damage");
    struct heard alone[N_JOB];
    struct tiers_counts c;
    struct place p;

    s.dir = dir;
    set_up(&p, &s);
    write_all(&p, alone);
    settle(&p, true);
    tear_down(&p);
    damage(dir, "ls *.page");
    set_up(&p, &s);
    write_again(&p, alone, 0);
    tiers_counts(p.tiers, &c);
    assert_true(c.damaged >= N_JOB);
    tear_down(&p);
}

/* After each response its pages are saved while idle, again and again. */
TEST(server_idle_pages_are_saved_after_every_answer)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
        bool experts, cache;
    } ways[] = {
        {"cpu", PL_SPLIT_NONE, false, false},
        {"cpu*2", PL_SPLIT_LAYER, false, false},
        {"cpu*2", PL_SPLIT_TENSOR, false, false},
        {"cpu*2", PL_SPLIT_LAYER, true, false},
        {"sim*2", PL_SPLIT_TENSOR, true, true},
    };
    const char *file = test_file("models/fable-moe-Q8_0.gguf");
    const int n_answer = test_long() ? 500 : 12;

    assert_non_null(file); /* the bundled model is a part of the checkout */
    for (int k = 0; k < 5; k++) {
        struct setting s = setting_of(ways[k].devices, ways[k].mode);
        char name[40];
        struct heard h;
        struct tiers_counts c;
        struct place p;

        s.file = file;
        s.ram = 4 << 20;
        snprintf(name, sizeof name, "tiers-idle-%d", k);
        s.dir = test_temp(name);
        s.opt.host_experts = ways[k].experts ? "all" : NULL;
        s.opt.host_cache = ways[k].cache;
        set_up(&p, &s);
        for (int i = 0; i < n_answer; i++) {
            uint64_t n_before;

            tiers_counts(p.tiers, &c);
            n_before = c.written;
            write_one(&p, &h, (uint64_t)i, 70 + i % 60, 4);
            TEST_UNTIL((tiers_counts(p.tiers, &c), c.written > n_before));
        }
        assert_int_equal(c.failed + c.lost + c.damaged, 0);
        tear_down(&p);
    }
}
