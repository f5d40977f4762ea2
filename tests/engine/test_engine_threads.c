/* Calls from several threads. An engine takes one call at a time and rejects
 * the second; separate engines are independent, even over one model. These
 * cases are most effective under the thread sanitizer. */
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"
#include "pl_graph.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const model = "llama-yarn-f32.gguf";

enum { N_TOK = 5, N_THREAD = 2 };

/* A thread decodes the same tokens again and again in a sequence of its own. */
struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    /* model from which the thread creates its engine; NULL if it uses
     * `engine` */
    const pl_model *model;
    const pl_options *o;
    pl_engine *engine;
    int seq;
    const int32_t *token; /* [N_TOK] tokens to decode */
    const float *want;    /* [n_vocab] expected logits after the last token */
    int64_t n_vocab;
    int n_busy, n_done;
    char why[200]; /* what failed in the thread; "" if nothing */
};

/* Returns true if another thread is in the engine, so the call must be
 * repeated. */
static bool busy(struct worker *w, pl_status s, const pl_err *err)
{
    if (s == PL_OK)
        return false;
    if (s == PL_BAD_ARGUMENT && strstr(err->message, "the engine is busy")) {
        w->n_busy++;
        sched_yield();
        return true;
    }
    snprintf(w->why, sizeof w->why, "%s: %.150s", pl_status_name(s),
             err->message);
    return false;
}

static void one_round(struct worker *w, float *logits)
{
    int32_t seq[N_TOK];
    uint8_t wanted[N_TOK] = {[N_TOK - 1] = 1};
    const pl_batch b = {.size = sizeof b,
                        .n = N_TOK,
                        .token = w->token,
                        .seq = seq,
                        .wanted = wanted,
                        .logits = logits};
    pl_exec *x = pl_engine_exec(w->engine);
    pl_tensor t = pl_engine_tensor(w->engine, "output_norm.weight");
    float norm[4];
    pl_err err = {PL_OK, ""};

    for (int i = 0; i < N_TOK; i++)
        seq[i] = w->seq;
    while (busy(w, pl_seq_trim(w->engine, w->seq, 0, NULL, &err), &err))
        ;
    while (busy(w, pl_engine_decode(w->engine, &b, NULL, &err), &err))
        ;
    while (busy(w, pl_tensor_get(x, t, norm, 0, sizeof norm, &err), &err))
        ;
    if (!w->why[0] &&
        memcmp(logits, w->want, (size_t)w->n_vocab * sizeof *logits) != 0)
        snprintf(w->why, sizeof w->why, "round %d: other logits", w->n_done);
    w->n_done++;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    float *logits = malloc((size_t)w->n_vocab * sizeof *logits);
    pl_err err = {PL_OK, ""};

    pthread_barrier_wait(w->start);
    if (w->model && pl_engine_create(&w->engine, w->model, w->o, &err) != PL_OK)
        snprintf(w->why, sizeof w->why, "%.150s", err.message);
    while (!w->why[0] && w->n_done < test_draws(12, 12))
        one_round(w, logits);
    if (w->model)
        pl_engine_free(w->engine);
    free(logits);
    return NULL;
}

/* Runs all workers at once. Fails the case if one of them got anything but
 * right logits or a busy engine. */
static void work_together(struct worker w[N_THREAD])
{
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, N_THREAD);
    for (int i = 0; i < N_THREAD; i++) {
        w[i].start = &start;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++)
        pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < N_THREAD; i++) {
        print_message("thread %d: %d rounds, busy %d times\n", i, w[i].n_done,
                      w[i].n_busy);
        if (w[i].why[0])
            fail_msg("thread %d: %s", i, w[i].why);
        assert_int_equal(w[i].n_done, test_draws(12, 12));
    }
}

static const int32_t tokens[N_THREAD][N_TOK] = {{1, 5, 9, 200, 3},
                                                {7, 77, 12, 4, 31}};

/* Returns the logits of each thread's tokens, decoded one thread after the
 * other. */
static float *alone(const struct engine_run *r)
{
    float *all =
        test_need((size_t)(N_THREAD * N_TOK * r->n_vocab), sizeof *all);

    for (int i = 0; i < N_THREAD; i++)
        engine_run_decode(r, i, N_TOK, tokens[i], all + i * N_TOK * r->n_vocab);
    return all;
}

static void workers_init(struct worker w[N_THREAD], const struct engine_run *r,
                         const float *want)
{
    memset(w, 0, N_THREAD * sizeof *w);
    for (int i = 0; i < N_THREAD; i++) {
        w[i].engine = r->engine;
        w[i].seq = i;
        w[i].token = tokens[i];
        w[i].want = want + ((i + 1) * N_TOK - 1) * r->n_vocab;
        w[i].n_vocab = r->n_vocab;
    }
}

TEST(threads_of_one_engine_get_right_logits_or_busy)
{
    static const char *const devices[] = {"cpu", "cpu*2", "sim*2"};

    for (int d = 0; d < 3; d++) {
        pl_options o = engine_run_options();
        struct worker w[N_THREAD];
        struct engine_run r;
        float *want;

        o.devices = devices[d];
        engine_run_open(&r, test_ref_need(model), model, &o);
        want = alone(&r);
        workers_init(w, &r, want);
        work_together(w);
        free(want);
        engine_run_close(&r);
    }
}

/* Engines are created at the same time, over one model. A GPU reads and writes
 * memory of CPUs while they work. */
TEST(threads_with_engines_of_their_own_get_right_logits)
{
    static const char *const devices[] = {"cpu*2", "cuda:0,cpu"};
    pl_options o = engine_run_options();
    struct worker w[N_THREAD];
    struct engine_run r;
    float *want;

    fake_cuda_use();
    o.n_ranks = 2;
    o.devices = devices[0];
    engine_run_open(&r, test_ref_need(model), model, &o);
    want = alone(&r);
    for (int d = 0; d < 2; d++) {
        o.devices = devices[d];
        workers_init(w, &r, want);
        for (int i = 0; i < N_THREAD; i++) {
            w[i].model = r.model;
            w[i].o = &o;
        }
        work_together(w);
        assert_int_equal(w[0].n_busy + w[1].n_busy, 0);
    }
    free(want);
    engine_run_close(&r);
}

/* ---- during a call ------------------------------------------------------ */

struct intruder {
    struct engine_run *r;
    pthread_t thread;
    /* true if calls come from the callback that writes a state, which may only
     * read */
    bool callback;
    int n_call;
    char why[200];
};

static void must_be_busy(struct intruder *t, pl_status s, const pl_err *err,
                         const char *call)
{
    t->n_call++;
    if (s != PL_BAD_ARGUMENT || !strstr(err->message, "the engine is busy"))
        snprintf(t->why, sizeof t->why, "%s: %s: %.100s", call,
                 pl_status_name(s), err->message);
}

static void must_be_lent(struct intruder *t, pl_status s, const pl_err *err,
                         const char *call)
{
    if (!t->callback) {
        must_be_busy(t, s, err, call);
        return;
    }
    t->n_call++;
    if (s != PL_OK)
        snprintf(t->why, sizeof t->why, "%s: %s: %.100s", call,
                 pl_status_name(s), err->message);
}

static bool write_nothing(void *user, const void *data, size_t n)
{
    (void)user;
    (void)data;
    (void)n;
    return true;
}

static int64_t read_nothing(void *user, void *data, size_t n)
{
    (void)user;
    (void)data;
    (void)n;
    return 0;
}

static void *intrude(void *arg)
{
    struct intruder *t = arg;
    pl_engine *e = t->r->engine;
    pl_exec *x = pl_engine_exec(e);
    const int32_t id = 1;
    const pl_batch b = {
        .size = sizeof b, .n = 1, .token = &id, .wanted = (uint8_t[]){0}};
    const pl_view v = {1, {1}, {1}, 0};
    const pl_step_tokens rows = {.size = sizeof rows, .n_tok = 1};
    pl_tensor w = pl_engine_tensor(e, "output_norm.weight");
    float f = 0;
    uint64_t n;
    int64_t got;
    pl_err err = {PL_OK, ""};

#define BUSY(call) must_be_busy(t, call, &err, #call)
#define LENT(call) must_be_lent(t, call, &err, #call)
    BUSY(pl_engine_decode(e, &b, NULL, &err));
    BUSY(pl_seq_trim(e, 0, 0, NULL, &err));
    BUSY(pl_seq_copy(e, 1, 0, &err));
    BUSY(pl_seq_share(e, 1, NULL, 0, &got, &err));
    BUSY(pl_state_size(e, 0, 0, -1, &n, &err));
    BUSY(pl_state_save(e, 0, 0, -1, write_nothing, NULL, &err));
    BUSY(pl_state_restore(e, 0, read_nothing, NULL, 0, &err));
    LENT(pl_tensor_get(x, w, &f, 0, sizeof f, &err));
    BUSY(pl_tensor_set(x, w, &f, 0, sizeof f, &err));
    BUSY(pl_tensor_get_async(x, w, &f, 0, sizeof f, &err));
    BUSY(pl_tensor_set_async(x, w, &f, 0, sizeof f, &err));
    LENT(pl_tensor_get_view(x, w, &v, &f, &err));
    BUSY(pl_tensor_set_view(x, w, &v, &f, &err));
    BUSY(pl_exec_wait(x, &err));
    BUSY(pl_exec_step(x, &rows, &err));
#undef LENT
#undef BUSY
    return NULL;
}

/* Intrudes at the first bytes of a state, because its saver is in a call
 * then. */
static bool write_and_intrude(void *user, const void *data, size_t n)
{
    struct intruder *t = user;

    (void)data;
    (void)n;
    if (t->n_call > 0)
        return true;
    t->callback = true;
    intrude(t);
    t->callback = false;
    if (pthread_create(&t->thread, NULL, intrude, t) != 0)
        return false;
    pthread_join(t->thread, NULL);
    return true;
}

TEST(threads_meet_a_busy_engine_at_every_door)
{
    pl_options o = engine_run_options();
    struct engine_run r;
    struct intruder t = {.r = &r};
    float *before, *after;
    pl_err err;

    engine_run_open(&r, test_ref_need(model), model, &o);
    before = alone(&r);
    TEST_OK(pl_state_save(r.engine, 0, 0, -1, write_and_intrude, &t, &err),
            err);
    if (t.why[0])
        fail_msg("%s", t.why);
    assert_int_equal(t.n_call, 2 * 15);
    /* the rejected calls have changed nothing */
    assert_int_equal(pl_seq_length(r.engine, 0), N_TOK);
    TEST_OK(pl_exec_wait(pl_engine_exec(r.engine), &err), err);
    for (int i = 0; i < N_THREAD; i++)
        TEST_OK(pl_seq_trim(r.engine, i, 0, NULL, &err), err);
    after = alone(&r);
    assert_memory_equal(
        before, after, (size_t)(N_THREAD * N_TOK * r.n_vocab) * sizeof *before);
    free(before);
    free(after);
    engine_run_close(&r);
}

/* ---- threads of a device ------------------------------------------------- */

/* With so many tokens, two spans of four KV heads each are visible: eight tasks
 * for three threads, or five. */
TEST(threads_share_the_spans_of_a_token)
{
    enum { PROMPT = 420, STEP = 60, AFTER = 6 };
    const int threads[] = {1, 3, 5};
    int32_t token[PROMPT + AFTER];
    uint64_t random = test_seed();
    float *want = NULL;

    for (int k = 0; k < 3; k++) {
        pl_options o = engine_run_options();
        struct engine_run r;
        float *have;

        o.devices = "cpu*1";
        o.n_threads = threads[k];
        o.n_ctx = PROMPT + AFTER;
        engine_run_open(&r, test_ref_need(model), model, &o);
        if (k == 0)
            engine_run_tokens(&r, &random, PROMPT + AFTER, token);
        have = test_need(AFTER * (size_t)r.n_vocab, sizeof *have);
        for (int i = 0; i < PROMPT; i += STEP)
            engine_run_decode(&r, 0, STEP, token + i, NULL);
        for (int i = 0; i < AFTER; i++)
            engine_run_decode(&r, 0, 1, token + PROMPT + i,
                              have + i * r.n_vocab);
        if (want)
            assert_memory_equal(have, want,
                                AFTER * (size_t)r.n_vocab * sizeof *have);
        engine_run_close(&r);
        free(k ? have : NULL);
        want = k ? want : have;
    }
    free(want);
}
