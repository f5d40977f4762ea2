/* Tasks in company: each generates what it would alone, whatever other tasks
 * do: arrive, end, pause or preempt it. */
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/loop_states.h"
#include "lib/support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct place {
    pl_model *model;
    pl_engine *engine;
    struct loop *loop;
    const pl_tokenizer *t;
    const char *file; /* the model's file; NULL for the bundled model */
    bool shares;      /* true if all prompts begin with the same tokens */
    /* name of the value that the engine keeps; NULL for none */
    const char *const *keep;
};

/* The listener of a task, and the output that it received. */
struct heard {
    int32_t id[512];
    uint32_t sum[512]; /* sum of the logits' bits for each token */
    /* n: tokens received; most: number after which the listener ends the task,
     * 0 for none */
    int n, most;
    /* number of tokens after which the client is backlogged for a while; 0 for
     * never */
    int pause;
    /* number of tokens after which the client disconnects; 0 for never, -1 for
     * during the prompt */
    int leave;
    int free; /* number of tokens before the grammar applies */
    int64_t n_vocab, done;
    bool told; /* true if progress of the prompt was reported */
    _Atomic enum client_state wish;
    struct task_report report;
    atomic_int n_end;
};

static void set_up(struct place *p, const char *devices, int64_t n_ctx,
                   const struct loop_options *o)
{
    struct loop_options own = *o;
    pl_options opt;
    pl_err err;

    pl_options_init(&opt);
    opt.devices = devices;
    opt.n_ctx = n_ctx;
    opt.n_ubatch = own.step;
    opt.n_seq = own.n_seq;
    opt.n_threads = 1;
    opt.no_fit = true;
    opt.prefix_cache = p->shares;
    opt.keep = p->keep;
    opt.n_keep = p->keep != NULL;
    TEST_OK(pl_model_open(&p->model, p->file ? p->file : test_model(), &err),
            err);
    if (p->keep)
        own.d_model = pl_model_d_model(p->model);
    TEST_OK(pl_engine_create(&p->engine, p->model, &opt, &err), err);
    p->t = pl_model_tokenizer(p->model);
    TEST_OK(loop_create(&p->loop, p->engine, p->t, &own, &err), err);
}

static void tear_down(struct place *p)
{
    expect_drawn_edges(p->loop);
    loop_free(p->loop);
    pl_engine_free(p->engine);
    pl_model_free(p->model);
}

static void hear_progress(void *user, int64_t done, int64_t total,
                          int64_t cached)
{
    struct heard *h = user;

    assert_true(done <= total && cached <= done);
    assert_true(h->told ? done > h->done : done == cached);
    h->told = true;
    h->done = done;
    if (h->leave < 0)
        h->wish = CLIENT_GONE;
}

static bool hear_token(void *user, int32_t id, const float *logits)
{
    struct heard *h = user;
    uint32_t sum = 0, bits;

    for (int64_t i = 0; i < h->n_vocab; i++) {
        memcpy(&bits, &logits[i], sizeof bits);
        sum = sum * 31 + bits;
    }
    h->id[h->n] = id;
    h->sum[h->n] = sum;
    h->n++;
    if (h->n == h->pause)
        h->wish = CLIENT_BACKLOGGED;
    if (h->n == h->leave)
        h->wish = CLIENT_GONE;
    return h->n != h->most;
}

static enum client_state tell_wish(void *user)
{
    return ((struct heard *)user)->wish;
}

static void hear_end(void *user, const struct task_report *report)
{
    struct heard *h = user;

    h->report = *report;
    h->n_end++;
}

/* Adds a task of n random tokens drawn from `seed`; `prompt` has space for
 * them. */
static pl_status add(struct place *p, struct heard *h, uint64_t seed,
                     int32_t *prompt, int n, int max_tokens, uint64_t client,
                     pl_err *err)
{
    struct task_params params = {.prompt = prompt,
                                 .n_prompt = n,
                                 .max_tokens = max_tokens,
                                 .ignore_end = true,
                                 .client = client,
                                 .slot = -1,
                                 .listener = {.progress = hear_progress,
                                              .token = hear_token,
                                              .poll_client = tell_wish,
                                              .end = hear_end,
                                              .user = h}};
    pl_sampling how;

    pl_sampling_init(&how);
    how.seed = seed;
    params.sampling = &how;
    h->n_vocab = pl_tokenizer_n_vocab(p->t);
    for (int i = 0; i < n; i++)
        prompt[i] = (int32_t)test_below(&seed, h->n_vocab);
    return loop_add(p->loop, &params, 1, NULL, err);
}

static void ask(struct place *p, struct heard *h, uint64_t seed, int n_prompt,
                int max_tokens, uint64_t client)
{
    int32_t *prompt = test_need((size_t)n_prompt, sizeof *prompt);
    pl_err err;

    TEST_OK(add(p, h, seed, prompt, n_prompt, max_tokens, client, &err), err);
    free(prompt);
}

static void wait_for(struct heard *h)
{
    TEST_UNTIL(h->n_end > 0);
    assert_int_equal(h->n_end, 1);
}

static void expect_same(const struct heard *a, const struct heard *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, (size_t)a->n * sizeof *a->id);
    assert_memory_equal(a->sum, b->sum, (size_t)a->n * sizeof *a->sum);
}

/* Runs tasks of these sizes one after the other, each alone. */
static void write_alone(struct place *p, struct heard *h, int n)
{
    for (int i = 0; i < n; i++) {
        ask(p, &h[i], (uint64_t)i, 20 + 37 * i, 10 + 3 * i, 1);
        wait_for(&h[i]);
        assert_int_equal(h[i].report.why, FINISH_LENGTH);
        assert_int_equal(h[i].n, 10 + 3 * i);
    }
}

TEST(server_jobs_in_company_write_what_they_write_alone)
{
    enum { N = 9 };
    const char *const devices[] = {"cpu", "cpu*2", "sim*2"};

    for (int d = 0; d < 3; d++) {
        struct heard alone[N] = {0}, together[N] = {0};
        struct place p = {0};

        set_up(&p, devices[d], 2048,
               &(struct loop_options){.n_seq = 4, .step = 64});
        write_alone(&p, alone, N);
        for (int i = 0; i < N; i++)
            ask(&p, &together[i], (uint64_t)i, 20 + 37 * i, 10 + 3 * i,
                1 + (uint64_t)i % 3);
        for (int i = 0; i < N; i++) {
            wait_for(&together[i]);
            expect_same(&alone[i], &together[i]);
        }
        tear_down(&p);
    }
}

/* Each token of a text counts as generated, the first one too. */
TEST(server_totals_are_those_of_all_jobs)
{
    enum { N = 5 };
    static const int max_tokens[N] = {1, 0, 2, 7, 1};
    struct heard h[N] = {0};
    struct loop_counts c;
    struct place p = {0};
    uint64_t n_written = 0, n_cached = 0, n_prompt = 0;

    set_up(&p, "cpu", 512, &(struct loop_options){.n_seq = 2, .step = 64});
    for (int i = 0; i < N; i++)
        ask(&p, &h[i], (uint64_t)i % 3, 100, max_tokens[i], (uint64_t)i + 1);
    for (int i = 0; i < N; i++) {
        wait_for(&h[i]);
        assert_int_equal(h[i].report.n_written, max_tokens[i]);
        n_written += (uint64_t)h[i].report.n_written;
        n_cached += (uint64_t)h[i].report.n_cached;
        n_prompt += (uint64_t)(100 - h[i].report.n_cached);
    }
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_written, n_written);
    assert_int_equal(c.n_cached, n_cached);
    assert_int_equal(c.n_prompt, n_prompt);
    tear_down(&p);
}

/* 8 tasks in a cache that can finish about 3 of them at once. */
/* The edges of the drawing in server/loop_inner.h. All tests of the loop check
 * at their end that no other was taken. */
TEST(server_tasks_change_their_states_as_drawn)
{
    static const enum task_state drawn[][2] = {
        {TASK_WAITING, TASK_LOOKING},    {TASK_LOOKING, TASK_LOADING},
        {TASK_WAITING, TASK_PREFILL},    {TASK_PREFILL, TASK_WAITING},
        {TASK_LOOKING, TASK_PREFILL},    {TASK_LOADING, TASK_PREFILL},
        {TASK_PREFILL, TASK_DECODING},   {TASK_DECODING, TASK_PREFILL},
        {TASK_PREFILL, TASK_PREEMPTED},  {TASK_PREEMPTED, TASK_PREFILL},
        {TASK_DECODING, TASK_PREEMPTED}, {TASK_PREEMPTED, TASK_DECODING}};
    unsigned edges[N_TASK_STATE] = {0};

    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        edges[drawn[i][0]] |= 1u << drawn[i][1];
    for (int a = 0; a < TASK_ENDED; a++)
        assert_int_equal(loop_edges[a], edges[a] | 1u << TASK_ENDED);
    assert_int_equal(loop_edges[TASK_ENDED], 0);
}

TEST(server_jobs_that_give_their_place_write_the_same)
{
    enum { N = 8 };
    struct heard alone[N] = {0}, together[N] = {0};
    struct loop_counts c;
    struct place p = {0};

    set_up(&p, "cpu", 512, &(struct loop_options){.n_seq = N, .step = 64});
    for (int i = 0; i < N; i++) {
        ask(&p, &alone[i], (uint64_t)i, 10, 150, 1);
        wait_for(&alone[i]);
    }
    for (int i = 0; i < N; i++)
        ask(&p, &together[i], (uint64_t)i, 10, 150, (uint64_t)i + 1);
    for (int i = 0; i < N; i++) {
        wait_for(&together[i]);
        assert_int_equal(together[i].report.why, FINISH_LENGTH);
        expect_same(&alone[i], &together[i]);
    }
    loop_counts(p.loop, &c);
    assert_true(c.n_preemptions > 0);
    assert_int_equal(c.n_running + c.n_waiting + c.n_preempted, 0);
    /* a preempted task's state needs no checksum of the weights, because only
     * this engine restores it */
    assert_false(p.engine->has_weights);
    assert_true(taken_edges(p.loop, TASK_DECODING) >> TASK_PREEMPTED & 1);
    assert_true(taken_edges(p.loop, TASK_PREEMPTED) >> TASK_DECODING & 1);
    tear_down(&p);
}

/* A prefix computed for one task is not computed for the next, which generates
 * the same; preemptions occur meanwhile. */
TEST(server_jobs_that_share_a_prefix_write_the_same)
{
    enum { N = 4 };
    struct heard alone[N] = {0}, shared[2 * N] = {0};
    struct loop_counts c;
    struct place p = {0};

    set_up(&p, "cpu*2", 512, &(struct loop_options){.n_seq = N, .step = 64});
    for (int i = 0; i < N; i++) {
        ask(&p, &alone[i], (uint64_t)i, 150 + 40 * i, 30, 1);
        wait_for(&alone[i]);
        assert_int_equal(alone[i].report.n_cached, 0);
    }
    tear_down(&p);
    p = (struct place){.shares = true};
    set_up(&p, "cpu*2", 512, &(struct loop_options){.n_seq = N, .step = 64});
    for (int i = 0; i < 2 * N; i++)
        ask(&p, &shared[i], (uint64_t)i % N, 150 + 40 * (i % N), 30,
            (uint64_t)i);
    for (int i = 0; i < 2 * N; i++) {
        wait_for(&shared[i]);
        expect_same(&alone[i % N], &shared[i]);
    }
    for (int i = 0; i < 2 * N; i++) { /* two tasks for each prompt */
        memset(&shared[i], 0, sizeof shared[i]);
        ask(&p, &shared[i], (uint64_t)i / 2, 150 + 40 * (i / 2), 30, 1);
        wait_for(&shared[i]);
        expect_same(&alone[i / 2], &shared[i]);
    }
    loop_counts(p.loop, &c);
    assert_true(c.n_cached >= N * 2 * 64);
    tear_down(&p);
}

/* Runs n tasks, each of alone[] twice; some pause, and some of those
 * disconnect. */
static void disturb(struct place *p, const struct heard *alone, int n,
                    uint64_t *seed)
{
    struct heard *h = test_need((size_t)n, sizeof *h);

    for (int i = 0; i < n; i++) {
        h[i].pause = (int)test_below(seed, 60);
        ask(p, &h[i], (uint64_t)i / 2, 70 + 20 * (i / 2), 50, (uint64_t)i % 3);
    }
    for (int i = 0; i < n; i++) {
        bool leaves = test_below(seed, 4) == 0;

        TEST_UNTIL(h[i].n_end > 0 || h[i].wish == CLIENT_BACKLOGGED);
        if (h[i].wish == CLIENT_BACKLOGGED)
            h[i].wish = leaves ? CLIENT_GONE : CLIENT_READY;
        wait_for(&h[i]);
        if (h[i].report.why != FINISH_CANCELLED) {
            assert_int_equal(h[i].report.why, FINISH_LENGTH);
            expect_same(&alone[i / 2], &h[i]);
        }
    }
    free(h);
}

/* Models whose sequences cannot be trimmed freely, recurrent ones and windows
 * among them. Tasks generate what they do alone, while they are preempted and
 * resumed, and others pause, disconnect and share prefixes. */
TEST_FLAGGED(__FILE__, server_jobs_of_any_memory_write_what_they_write_alone,
             TEST_NOT_BRIEF)
{
    enum { N = 8 };
    static const char *const models[] = {
        "gemma3-swa-f32.gguf", "qwen3next-f32.gguf", "qwen35moe-f32.gguf",
        "gptoss-f32.gguf", "deepseek2-mla-f32.gguf"};
    uint64_t seed = test_seed();

    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct heard alone[N / 2] = {0};
        struct loop_counts c;
        struct place p = {.file = test_ref_need(models[m])};

        set_up(&p, "cpu*2", 320,
               &(struct loop_options){.n_seq = 3, .step = 64});
        for (int i = 0; i < N / 2; i++) {
            ask(&p, &alone[i], (uint64_t)i, 70 + 20 * i, 50, 1);
            wait_for(&alone[i]);
        }
        tear_down(&p);
        p = (struct place){.file = test_ref(models[m]), .shares = true};
        set_up(&p, "cpu*2", 320,
               &(struct loop_options){.n_seq = 3, .step = 64});
        for (int round = 0; round < (TEST_SANITIZED ? 1 : 2); round++)
            disturb(&p, alone, N, &seed);
        loop_counts(p.loop, &c);
        assert_true(c.n_preemptions > 0 && c.n_failed == 0);
        tear_down(&p);
    }
}

static bool tell_holds(void *user)
{
    const struct heard *h = user;

    return h->n >= h->free;
}

/* Even if the model's end is likely before its grammar applies, the text
 * continues to there, and follows the grammar then. */
TEST(server_jobs_do_not_end_before_their_grammar_holds)
{
    enum { FREE = 20, MOST_END = 64 };
    static const char form[] = "root ::= \"a tale.\"";
    struct heard h = {.free = FREE};
    int32_t end[MOST_END], prompt[] = {1, 2, 3};
    float bias[MOST_END];
    struct task_params params = {.prompt = prompt,
                                 .n_prompt = 3,
                                 .max_tokens = 200,
                                 .slot = -1,
                                 .listener = {.token = hear_token,
                                              .grammar_applies = tell_holds,
                                              .end = hear_end,
                                              .user = &h}};
    struct test_text text = {0};
    pl_detokenizer *d;
    struct place p = {0};
    pl_sampling how;
    pl_err err;

    set_up(&p, "cpu", 512, &(struct loop_options){.n_seq = 1, .step = 64});
    pl_sampling_init(&how);
    how.bias_id = end;
    how.bias = bias;
    h.n_vocab = pl_tokenizer_n_vocab(p.t);
    for (int64_t id = 0; id < h.n_vocab; id++)
        if (pl_token_is_eog(p.t, (int32_t)id)) {
            assert_true(how.n_bias < MOST_END);
            bias[how.n_bias] = 1000;
            end[how.n_bias++] = (int32_t)id;
        }
    assert_true(how.n_bias > 0);
    params.sampling = &how;
    TEST_OK(pl_grammar_create(&params.grammar, p.t, PL_GRAMMAR_GBNF, form,
                              sizeof form - 1, NULL, &err),
            err);
    TEST_OK(loop_add(p.loop, &params, 1, NULL, &err), err);
    wait_for(&h);
    assert_int_equal(h.report.why, FINISH_EOG);
    assert_true(h.n > FREE);
    TEST_OK(pl_detokenizer_create(&d, p.t, true, &err), err);
    for (int i = 0; i < h.n; i++) {
        const char *s = pl_detokenize(d, h.id[i]);

        assert_false(pl_token_is_eog(p.t, h.id[i]));
        if (i >= FREE)
            test_text_add(&text, s, strlen(s));
    }
    assert_string_equal(text.s, "a tale.");
    free(text.s);
    pl_detokenizer_free(d);
    tear_down(&p);
    pl_grammar_free(params.grammar);
}

/* A task that names a slot gets only that one, however long another task has
 * it. Others overtake it. */
TEST(server_jobs_have_the_place_that_they_name)
{
    enum { N = 3 };
    const int32_t prompt[] = {1, 2, 3};
    struct heard h[2 * N] = {0};
    struct task_params params = {.prompt = prompt,
                                 .n_prompt = 3,
                                 .max_tokens = 20,
                                 .ignore_end = true,
                                 .slot = -1,
                                 .listener = {.token = hear_token,
                                              .poll_client = tell_wish,
                                              .end = hear_end}};
    struct place p = {0};
    pl_err err;

    set_up(&p, "cpu", 512, &(struct loop_options){.n_seq = N, .step = 64});
    /* the first two tasks request the last slot; the others request none */
    for (int i = 0; i < 2 * N; i++) {
        h[i].n_vocab = pl_tokenizer_n_vocab(p.t);
        h[i].wish = CLIENT_BACKLOGGED;
        params.listener.user = &h[i];
        params.slot = i < 2 ? N - 1 : -1;
        params.max_tokens = 20 + i;
        TEST_OK(loop_add(p.loop, &params, 1, NULL, &err), err);
    }
    for (int i = 0; i < 2 * N; i++)
        h[i].wish = CLIENT_READY;
    for (int i = 0; i < 2 * N; i++) {
        wait_for(&h[i]);
        assert_int_equal(h[i].report.why, FINISH_LENGTH);
        assert_int_equal(h[i].n, 20 + i);
    }
    for (int slot = 0; slot < N; slot++) {
        int32_t *token;
        int64_t n;

        loop_slot_erase(p.loop, slot);
        params.slot = slot;
        params.max_tokens = 9;
        h[0] = (struct heard){.n_vocab = h[0].n_vocab};
        params.listener.user = &h[0];
        TEST_OK(loop_add(p.loop, &params, 1, NULL, &err), err);
        wait_for(&h[0]);
        for (int other = 0; other < N; other++) {
            assert_true(loop_slot_tokens(p.loop, other, &token, &n));
            assert_int_equal(n, other <= slot ? 3 + 9 - 1 : n);
            free(token);
        }
    }
    params.slot = N;
    assert_int_equal(loop_add(p.loop, &params, 1, NULL, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "id_slot 3: no such slot; use 0 "
                                        "to 2"));
    tear_down(&p);
}

/* A paused task does not block its slot for others, named or not. */
TEST(server_jobs_that_pause_leave_the_place_that_another_names)
{
    const int32_t prompt[] = {1, 2, 3};
    struct heard h[2] = {{.pause = 3}};
    struct task_params params = {.prompt = prompt,
                                 .n_prompt = 3,
                                 .max_tokens = 9,
                                 .ignore_end = true,
                                 .slot = 1,
                                 .listener = {.token = hear_token,
                                              .poll_client = tell_wish,
                                              .end = hear_end}};
    struct place p = {0};
    pl_err err;

    set_up(&p, "cpu", 512, &(struct loop_options){.n_seq = 3, .step = 64});
    for (int i = 0; i < 2; i++) {
        h[i].n_vocab = pl_tokenizer_n_vocab(p.t);
        params.listener.user = &h[i];
        TEST_OK(loop_add(p.loop, &params, 1, NULL, &err), err);
        while (i == 0 && h[0].wish != CLIENT_BACKLOGGED)
            sched_yield();
    }
    wait_for(&h[1]);
    assert_int_equal(h[1].n, 9);
    assert_int_equal(h[0].n_end, 0);
    h[0].wish = CLIENT_READY;
    wait_for(&h[0]);
    assert_int_equal(h[0].n, 9);
    tear_down(&p);
}

TEST(server_jobs_end_when_they_are_told)
{
    struct heard h[5] = {0};
    struct place p = {0};
    struct loop_slot slot[2];

    set_up(&p, "cpu", 2048, &(struct loop_options){.n_seq = 2, .step = 64});
    h[0].most = 3;
    ask(&p, &h[0], 1, 30, 100, 1);
    wait_for(&h[0]);
    assert_int_equal(h[0].report.why, FINISH_STOPPED);
    assert_int_equal(h[0].n, 3);
    assert_int_equal(h[0].report.n_prompt, 30);
    assert_int_equal(h[0].report.n_written, 3);
    ask(&p, &h[1], 1, 30, 0, 1);
    wait_for(&h[1]);
    assert_int_equal(h[1].report.why, FINISH_LENGTH);
    assert_int_equal(h[1].n, 0);
    /* Clients leave in the middle of a prompt, and while they wait for a
     * slot. */
    ask(&p, &h[2], 2, 1900, 100, 1);
    ask(&p, &h[3], 3, 30, 400, 1);
    ask(&p, &h[4], 4, 30, 100, 1);
    h[2].wish = CLIENT_GONE;
    h[4].wish = CLIENT_GONE;
    wait_for(&h[2]);
    wait_for(&h[4]);
    assert_int_equal(h[2].report.why, FINISH_CANCELLED);
    assert_int_equal(h[4].report.why, FINISH_CANCELLED);
    h[3].wish = CLIENT_GONE;
    wait_for(&h[3]);
    assert_int_equal(loop_slots(p.loop, slot, 2), 2);
    assert_int_equal(slot[0].id_task + slot[1].id_task, 0);
    assert_int_equal(pl_seq_length(p.engine, 0), 0);
    assert_int_equal(pl_seq_length(p.engine, 1), 0);
    tear_down(&p);
}

/* A cancelled task ends within a step, whatever state it is in, and no further
 * token is computed for it. */
TEST(server_jobs_are_given_up_within_a_step)
{
    static const int leave[] = {-1, 1, 17};
    struct place p = {0};
    struct loop_counts c;

    set_up(&p, "cpu", 2048, &(struct loop_options){.n_seq = 2, .step = 64});
    for (int i = 0; i < 3; i++) {
        struct heard h = {.leave = leave[i]};

        ask(&p, &h, 1, 300, 100, 1);
        wait_for(&h);
        assert_int_equal(h.report.why, FINISH_CANCELLED);
        assert_int_equal(h.n, leave[i] < 0 ? 0 : leave[i]);
        assert_int_equal(h.done, leave[i] < 0 ? 64 : 300);
    }
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_prompt, 64 + 300 + 300);
    tear_down(&p);
}

/* A client that does not read stops only its own task. */
TEST(server_jobs_of_slow_clients_pause)
{
    struct heard slow = {0}, quick = {0}, late = {0}, half = {0};
    struct place p = {0};

    set_up(&p, "cpu", 2048, &(struct loop_options){.n_seq = 2, .step = 64});
    slow.wish = CLIENT_BACKLOGGED;
    ask(&p, &slow, 1, 30, 50, 1);
    ask(&p, &quick, 2, 30, 50, 2);
    wait_for(&quick);
    assert_int_equal(slow.n, 0);
    assert_int_equal(slow.n_end, 0);
    slow.wish = CLIENT_READY;
    wait_for(&slow);
    assert_int_equal(slow.n, 50);
    memset(&quick, 0, sizeof quick);
    /* the client pauses in the middle of its output; its slot is not needed */
    half.pause = 5;
    ask(&p, &half, 1, 30, 50, 1);
    ask(&p, &quick, 2, 30, 50, 2);
    wait_for(&quick);
    assert_int_equal(half.n, 5);
    half.wish = CLIENT_READY;
    wait_for(&half);
    expect_same(&slow, &half);
    late.wish = CLIENT_BACKLOGGED;
    {
        const int32_t prompt[] = {1, 2, 3};
        struct task_params params = {.prompt = prompt,
                                     .n_prompt = 3,
                                     .max_tokens = 5,
                                     .time_s = 0.05,
                                     .slot = -1,
                                     .listener = {.token = hear_token,
                                                  .poll_client = tell_wish,
                                                  .end = hear_end,
                                                  .user = &late}};

        assert_int_equal(loop_add(p.loop, &params, 1, NULL, NULL), PL_OK);
    }
    wait_for(&late);
    assert_int_equal(late.report.why, FINISH_TIMEOUT);
    tear_down(&p);
}

TEST(server_refuses_what_can_never_run_and_what_is_too_much)
{
    enum { N = 3 };
    static int32_t prompt[300];
    struct heard h[N] = {0};
    struct task_params params = {.prompt = prompt,
                                 .max_tokens = 5,
                                 .slot = -1,
                                 .listener = {.token = hear_token,
                                              .poll_client = tell_wish,
                                              .end = hear_end,
                                              .user = &h[0]}};
    struct place p = {0};
    double retry_s = 0;
    pl_err err;

    set_up(&p, "cpu", 256,
           &(struct loop_options){.n_seq = 1, .step = 64, .max_waiting = N});
    assert_int_equal(loop_add(p.loop, &params, 1, NULL, &err), PL_BAD_ARGUMENT);
    params.n_prompt = 256;
    assert_int_equal(loop_add(p.loop, &params, 1, NULL, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "256 tokens"));
    params.n_prompt = 2;
    prompt[1] = 1 << 30;
    assert_int_equal(loop_add(p.loop, &params, 1, NULL, &err), PL_BAD_ARGUMENT);
    prompt[1] = 0;
    for (int i = 0; i < N; i++) {
        h[i].wish = CLIENT_BACKLOGGED;
        ask(&p, &h[i], 1, 30, 5, 1);
    }
    /* The first task may have its slot by now: then one more may wait. */
    for (int i = 0; i < 2; i++) {
        params.time_s = 1e-9;
        if (loop_add(p.loop, &params, 1, &retry_s, &err) == PL_FULL)
            break;
        assert_int_equal(i, 0);
    }
    assert_int_equal(err.status, PL_FULL);
    assert_true(retry_s >= 1);
    for (int i = 0; i < N; i++)
        h[i].wish = CLIENT_READY;
    for (int i = 0; i < N; i++) {
        h[i].wish = CLIENT_GONE;
        wait_for(&h[i]);
    }
    tear_down(&p);
}

/* Paused tasks keep neither slots nor pages from others, and continue later
 * with the same bits. */
TEST(server_jobs_that_pause_give_their_place_to_others)
{
    enum { N = 3 };
    /* with one sequence tasks wait for the slot; with four they wait for
     * pages */
    static const int n_seq[] = {1, 4};

    for (int k = 0; k < 2; k++) {
        struct heard alone = {0}, slow[N] = {0}, quick = {0};
        struct loop_counts c;
        struct place p = {0};

        set_up(&p, "cpu", 512,
               &(struct loop_options){.n_seq = n_seq[k], .step = 64});
        ask(&p, &alone, 7, 300, 40, 1);
        wait_for(&alone);
        for (int i = 0; i < N; i++) {
            slow[i].pause = 5 + i;
            ask(&p, &slow[i], 7, 300, 40, (uint64_t)i);
        }
        ask(&p, &quick, 8, 400, 20, 9);
        wait_for(&quick);
        assert_int_equal(quick.n, 20);
        for (int i = 0; i < N; i++) {
            assert_int_equal(slow[i].n_end, 0);
            slow[i].pause = 0;
            slow[i].wish = CLIENT_READY;
        }
        for (int i = 0; i < N; i++) {
            wait_for(&slow[i]);
            expect_same(&alone, &slow[i]);
        }
        loop_counts(p.loop, &c);
        assert_true(c.n_preemptions > 0);
        assert_int_equal(c.n_running + c.n_waiting + c.n_preempted, 0);
        tear_down(&p);
    }
}

/* Clients that disconnect before their turn take nothing from later ones. */
TEST(server_jobs_given_up_while_they_wait_make_room)
{
    enum { N = 8 };
    struct heard h[N] = {0}, last = {0};
    struct loop_counts c;
    struct place p = {0};

    set_up(&p, "cpu", 256,
           &(struct loop_options){.n_seq = 1, .step = 64, .max_waiting = N});
    for (int round = 0; round < 20; round++) {
        memset(h, 0, sizeof h);
        for (int i = 0; i < N; i++)
            ask(&p, &h[i], (uint64_t)i, 20, 200, (uint64_t)i);
        for (int i = 0; i < N; i++)
            h[i].wish = CLIENT_GONE;
        for (int i = 0; i < N; i++)
            wait_for(&h[i]);
        loop_counts(p.loop, &c);
        assert_int_equal(c.n_running + c.n_waiting + c.n_preempted, 0);
    }
    ask(&p, &last, 1, 20, 5, 1);
    wait_for(&last);
    assert_int_equal(last.n, 5);
    tear_down(&p);
}

/* Tasks added together are all accepted or all rejected. Those that can never
 * fit get no advice to try again. */
TEST(server_jobs_come_together_or_not_at_all)
{
    enum { MOST = 4 };
    const int32_t prompt[] = {1, 2, 3};
    struct heard h[MOST + 1] = {0};
    struct task_params params[MOST + 1];
    struct loop_counts c;
    struct place p = {0};
    pl_err err;

    set_up(&p, "cpu", 256,
           &(struct loop_options){.n_seq = 1, .step = 64, .max_waiting = MOST});
    for (int i = 0; i <= MOST; i++) {
        h[i].n_vocab = pl_tokenizer_n_vocab(p.t);
        params[i] = (struct task_params){.prompt = prompt,
                                         .n_prompt = 3,
                                         .max_tokens = 2,
                                         .ignore_end = true,
                                         .slot = -1,
                                         .listener = {.token = hear_token,
                                                      .poll_client = tell_wish,
                                                      .end = hear_end,
                                                      .user = &h[i]}};
    }
    assert_int_equal(loop_add(p.loop, params, MOST + 1, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "--max-waiting"));
    params[MOST - 1].n_prompt = 0;
    assert_int_equal(loop_add(p.loop, params, MOST, NULL, &err),
                     PL_BAD_ARGUMENT);
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_task, 0);
    params[MOST - 1].n_prompt = 3;
    /* the task cannot proceed, so later ones must wait */
    h[0].wish = CLIENT_BACKLOGGED;
    TEST_OK(loop_add(p.loop, params, 1, NULL, &err), err);
    assert_int_equal(loop_add(p.loop, params + 1, MOST, NULL, &err), PL_FULL);
    loop_counts(p.loop, &c);
    assert_int_equal(c.n_task, 1);
    TEST_OK(loop_add(p.loop, params + 1, MOST - 1, NULL, &err), err);
    h[0].wish = CLIENT_READY;
    for (int i = 0; i < MOST; i++) {
        wait_for(&h[i]);
        assert_int_equal(h[i].n, 2);
    }
    assert_int_equal(h[MOST].n_end, 0);
    tear_down(&p);
}

/* Each allocation fails once, on whatever thread: one task is rejected or
 * fails, the others generate what they should, and later ones are unaffected.
 * They begin when all are present and have different texts, so that two of them
 * compete for a cache that cannot hold both, and the same allocations occur
 * each time. */
TEST(server_loop_survives_every_allocation_that_fails)
{
    enum { N = 4, N_PROMPT = 60, N_WRITE = 72 };
    struct heard alone[N] = {0};
    struct loop_counts c;
    struct place p = {.shares = true};
    int n_refused = 0, n_failed = 0;
    const int64_t step = test_long() ? 1 : TEST_SANITIZED ? 11 : 3;
    bool failed = true;

    set_up(&p, "cpu", 256, &(struct loop_options){.n_seq = N, .step = 64});
    for (int i = 0; i < N; i++) {
        ask(&p, &alone[i], (uint64_t)i, N_PROMPT, N_WRITE, 1);
        wait_for(&alone[i]);
    }
    for (int64_t n = 1; failed; n += step) {
        const int before = n_refused + n_failed;
        struct heard h[N] = {0};
        int32_t prompt[N_PROMPT];
        bool added[N];

        alloc_fail_at(n);
        for (int i = 0; i < N; i++) {
            h[i].wish = CLIENT_BACKLOGGED;
            added[i] = add(&p, &h[i], (uint64_t)i, prompt, N_PROMPT, N_WRITE, 1,
                           NULL) == PL_OK;
            n_refused += !added[i];
        }
        for (int i = 0; i < N; i++)
            h[i].wish = CLIENT_READY;
        for (int i = 0; i < N; i++) {
            if (!added[i])
                continue;
            wait_for(&h[i]);
            if (h[i].report.why == FINISH_LENGTH) {
                expect_same(&alone[i], &h[i]);
            } else {
                assert_int_equal(h[i].report.err.status, PL_NO_MEMORY);
                n_failed++;
            }
        }
        failed = alloc_fail_off();
        assert_int_equal(n_refused + n_failed - before, failed);
        loop_counts(p.loop, &c);
        assert_int_equal(c.n_running + c.n_waiting + c.n_preempted, 0);
    }
    assert_true(n_refused > 0 && n_failed > 0 && c.n_preemptions > 0);
    tear_down(&p);
}

static pl_status look_at_length(void *user, pl_engine *e, pl_err *err)
{
    (void)err;
    *(int64_t *)user = pl_seq_length(e, 0);
    /* the status that loop_run_between_steps must return */
    return PL_NOT_FOUND;
}

static void *run_errands(void *user)
{
    struct place *p = user;
    int64_t length;

    for (int i = 0; i < 50; i++)
        assert_int_equal(
            loop_run_between_steps(p->loop, look_at_length, &length, NULL),
            PL_NOT_FOUND);
    return NULL;
}

/* Errands come from several threads at once, and the loop is freed while it
 * works. */
TEST(server_loop_takes_errands_and_jobs_from_any_thread)
{
    struct heard h[4] = {0};
    struct place p = {0};
    pthread_t thread[3];

    set_up(&p, "cpu", 2048, &(struct loop_options){.n_seq = 2, .step = 64});
    for (int i = 0; i < 4; i++)
        ask(&p, &h[i], (uint64_t)i, 100, 300, (uint64_t)i);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_errands, &p), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    tear_down(&p);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(h[i].n_end, 1);
        assert_true(h[i].report.why == FINISH_CANCELLED ||
                    h[i].report.why == FINISH_LENGTH);
    }
}

/* ---- logits of prompts --------------------------------------------------- */

/* The logits that a listener received of a prompt, as sums of their bits. */
struct prompt_heard {
    struct heard h; /* must be the first field */
    uint32_t sum[256];
    int64_t n;
};

static void hear_prompt_logits(void *user, int64_t at, const float *logits)
{
    struct prompt_heard *p = user;
    uint32_t bits;

    assert_int_equal(at, p->n);
    for (int64_t i = 0; i < p->h.n_vocab; i++) {
        memcpy(&bits, &logits[i], sizeof bits);
        p->sum[at] = p->sum[at] * 31 + bits;
    }
    p->n++;
}

static void ask_prompt_logits(struct place *p, struct prompt_heard *h,
                              uint64_t seed, int n, int max_tokens)
{
    int32_t prompt[256];
    struct task_params params = {
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = max_tokens,
        .no_cache = true,
        .prompt_logits = true,
        .ignore_end = true,
        .client = seed + 1,
        .slot = -1,
        .listener = {.progress = hear_progress,
                     .prompt_logits = hear_prompt_logits,
                     .token = hear_token,
                     .poll_client = tell_wish,
                     .end = hear_end,
                     .user = h}};
    pl_err err;

    h->h.n_vocab = pl_tokenizer_n_vocab(p->t);
    for (int i = 0; i < n; i++)
        prompt[i] = (int32_t)test_below(&seed, h->h.n_vocab);
    TEST_OK(loop_add(p->loop, &params, 1, NULL, &err), err);
}

/* Each token of a prompt but the last has its logits once, in order, with the
 * same bits whatever limits a step, also when tasks are preempted. They are
 * those with which the next token is sampled. */
TEST(server_prompts_have_the_same_logits_in_any_steps)
{
    enum { N = 4, LONG = 150 };
    static const struct {
        int64_t max_rows, n_ctx;
        int n_seq;
    } row[] = {{0, 1024, 1}, {1, 1024, 4}, {7, 1024, 4}, {0, 256, 4}};
    struct prompt_heard *first = test_need(N, sizeof *first);

    for (size_t r = 0; r < sizeof row / sizeof row[0]; r++) {
        struct prompt_heard *h = test_need(N, sizeof *h);
        struct heard busy = {0};
        struct place p = {0};

        set_up(&p, "cpu", row[r].n_ctx,
               &(struct loop_options){.n_seq = row[r].n_seq,
                                      .step = 64,
                                      .max_rows = row[r].max_rows});
        if (r > 0)
            ask(&p, &busy, 9, 10, 60, 1);
        for (int i = 0; i < N; i++) {
            ask_prompt_logits(&p, &h[i], 5 + (uint64_t)i, LONG - i, 2 * i);
            if (r == 0)
                wait_for(&h[i].h);
        }
        for (int i = 0; i < N; i++) {
            wait_for(&h[i].h);
            assert_int_equal(h[i].h.report.why, FINISH_LENGTH);
            assert_int_equal(h[i].n, LONG - i - 1);
            if (r == 0)
                first[i] = h[i];
            assert_memory_equal(h[i].sum, first[i].sum, sizeof h[i].sum);
            expect_same(&h[i].h, &first[i].h);
        }
        if (r > 0)
            wait_for(&busy);
        tear_down(&p);
        free(h);
    }
    free(first);
}

/* ---- rows ---------------------------------------------------------------- */

struct rows {
    float *row; /* [n, width] rows received, owned */
    /* width: values per row; n: rows expected; last: index of the last row
     * received */
    int64_t width, n, last;
    struct task_report report;
    atomic_int n_end;
};

static void hear_row(void *user, int64_t at, const float *row)
{
    struct rows *h = user;

    assert_true(at == 0 || at == h->last + 1 || h->last < 0);
    h->last = at;
    memcpy(h->row + at * h->width, row, (size_t)h->width * sizeof *row);
}

static void hear_rows_end(void *user, const struct task_report *report)
{
    struct rows *h = user;

    h->report = *report;
    h->n_end++;
}

static bool hear_no_token(void *user, int32_t id, const float *logits)
{
    (void)user;
    (void)id;
    (void)logits;
    return false;
}

static void ask_rows(struct place *p, struct rows *h, uint64_t seed, int n,
                     enum task_rows which)
{
    int32_t *prompt = test_need((size_t)n, sizeof *prompt);
    struct task_params params = {.prompt = prompt,
                                 .n_prompt = n,
                                 .rows = which,
                                 .no_cache = true,
                                 .client = seed,
                                 .slot = -1,
                                 .listener = {.row = hear_row,
                                              .token = hear_no_token,
                                              .end = hear_rows_end,
                                              .user = h}};
    pl_err err;

    h->width = pl_model_d_model(p->model);
    h->row = test_need((size_t)(n * h->width), sizeof *h->row);
    h->n = n;
    h->last = -1;
    for (int i = 0; i < n; i++)
        prompt[i] = (int32_t)test_below(&seed, pl_tokenizer_n_vocab(p->t));
    TEST_OK(loop_add(p->loop, &params, 1, NULL, &err), err);
    free(prompt);
}

static void wait_for_rows(struct rows *h)
{
    TEST_UNTIL(h->n_end > 0);
    assert_int_equal(h->report.why, FINISH_EOG);
    assert_int_equal(h->last, h->n - 1);
}

/* Embedding tasks with decoding tasks: each row has the bits that it has alone,
 * whether all rows are requested or only the last one. Decoding tasks are
 * unaffected. */
TEST(server_rows_are_the_same_alone_and_in_company)
{
    enum { N = 5 };
    static const char *const keep[] = {"result_norm"};
    const char *const devices[] = {"cpu", "cpu*2"};

    for (int d = 0; d < 2; d++) {
        struct heard alone[N] = {0}, together[N] = {0};
        struct rows rows[N] = {0}, again[N] = {0}, last[N] = {0};
        struct place p = {.keep = keep, .shares = true};

        set_up(&p, devices[d], 2048,
               &(struct loop_options){.n_seq = 4, .step = 64});
        write_alone(&p, alone, N);
        for (int i = 0; i < N; i++) {
            ask_rows(&p, &rows[i], (uint64_t)i + 70, 10 + 43 * i,
                     TASK_ALL_ROWS);
            wait_for_rows(&rows[i]);
        }
        for (int i = 0; i < N; i++) {
            ask(&p, &together[i], (uint64_t)i, 20 + 37 * i, 10 + 3 * i,
                1 + (uint64_t)i % 3);
            ask_rows(&p, &again[i], (uint64_t)i + 70, 10 + 43 * i,
                     TASK_ALL_ROWS);
            ask_rows(&p, &last[i], (uint64_t)i + 70, 10 + 43 * i,
                     TASK_LAST_ROW);
        }
        for (int i = 0; i < N; i++) {
            size_t row = (size_t)rows[i].width * sizeof(float);

            wait_for(&together[i]);
            expect_same(&alone[i], &together[i]);
            wait_for_rows(&again[i]);
            wait_for_rows(&last[i]);
            assert_memory_equal(rows[i].row, again[i].row,
                                (size_t)rows[i].n * row);
            assert_memory_equal(rows[i].row + (rows[i].n - 1) * rows[i].width,
                                last[i].row + (rows[i].n - 1) * rows[i].width,
                                row);
            free(rows[i].row);
            free(again[i].row);
            free(last[i].row);
        }
        tear_down(&p);
    }
}

/* A task decodes with an embedding task until pages run short; its output is
 * complete. */
TEST(server_jobs_beside_rows_give_their_place_and_write_the_same)
{
    static const char *const keep[] = {"result_norm"};
    const struct timespec soon = {.tv_nsec = 100000};
    struct heard alone = {0}, beside = {0};
    struct loop_counts c = {0};
    struct rows rows = {0};
    struct place p = {.keep = keep};
    uint64_t before;

    set_up(&p, "cpu", 512,
           &(struct loop_options){.n_seq = 2, .step = 64, .chunk = 1});
    ask(&p, &alone, 1, 10, 460, 1);
    wait_for(&alone);
    assert_int_equal(alone.n, 460);
    loop_counts(p.loop, &c);
    before = c.n_written;
    ask(&p, &beside, 1, 10, 460, 1);
    while (c.n_written < before + 20 && beside.n_end == 0) {
        nanosleep(&soon, NULL);
        loop_counts(p.loop, &c);
    }
    ask_rows(&p, &rows, 2, 240, TASK_ALL_ROWS);
    wait_for_rows(&rows);
    wait_for(&beside);
    assert_int_equal(beside.report.why, FINISH_LENGTH);
    expect_same(&alone, &beside);
    free(rows.row);
    tear_down(&p);
}
