/* The thread of the engine loop, and the functions of loop.h that other threads
 * call. loop_step.c has the code of one step. */
#include "loop_inner.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limit of the memory for the logits of prompt tokens in one step, in bytes
 * (task_params.prompt_logits). */
enum { LOGIT_BYTES = 64 << 20 };

static pl_status no_memory(pl_err *err)
{
    return server_fail(
        err, PL_NO_MEMORY,
        "out of memory for a task of the server; try again later");
}

/* ---- creating, adding and ending tasks ----------------------------------- */

static void task_free(struct task *w)
{
    if (!w)
        return;
    pl_sampler_free(w->sampler);
    pl_receipt_free(w->receipt);
    free(w->text);
    free(w->saved);
    free(w);
}

const unsigned char loop_edges[N_TASK_STATE] = {
#define TO(state) (1 << TASK_##state)
    [TASK_WAITING] = TO(LOOKING) | TO(PREFILL) | TO(ENDED),
    [TASK_LOOKING] = TO(LOADING) | TO(PREFILL) | TO(ENDED),
    [TASK_LOADING] = TO(PREFILL) | TO(ENDED),
    [TASK_PREFILL] = TO(WAITING) | TO(DECODING) | TO(PREEMPTED) | TO(ENDED),
    [TASK_DECODING] = TO(PREFILL) | TO(PREEMPTED) | TO(ENDED),
    [TASK_PREEMPTED] = TO(PREFILL) | TO(DECODING) | TO(ENDED),
#undef TO
};

void loop_set_state(struct loop *l, struct task *w, enum task_state to)
{
    int *const count[N_TASK_STATE] = {
        [TASK_WAITING] = &l->counts.n_waiting,
        [TASK_LOOKING] = &l->counts.n_waiting,
        [TASK_PREEMPTED] = &l->counts.n_preempted,
        [TASK_LOADING] = &l->counts.n_running,
        [TASK_PREFILL] = &l->counts.n_running,
        [TASK_DECODING] = &l->counts.n_running,
    };

    assert(loop_edges[w->at] >> to & 1);
    l->moved[w->at] |= 1 << to;
    pthread_mutex_lock(&l->lock);
    --*count[w->at];
    if (count[to])
        ++*count[to];
    pthread_mutex_unlock(&l->lock);
    w->at = to;
}

void loop_finish_task(struct loop *l, struct task *w, enum task_finish why,
                      const pl_err *err)
{
    struct task_report r = {.why = why,
                            .n_prompt = w->params.n_prompt,
                            .n_cached = w->n_cached,
                            .n_written = w->n_written};
    struct task_callbacks j;
    double now = clock_now(), began = w->admitted_s > 0 ? w->admitted_s : now;
    double first_token_s = w->first_token_s > 0 ? w->first_token_s : now;

    if (err)
        r.err = *err;
    r.receipt = w->receipt;
    w->receipt = NULL;
    r.queue_s = began - w->arrival_s;
    r.prompt_s = first_token_s - began;
    r.written_s = now - first_token_s;
    if (loop_has_slot(w)) {
        /* The computed part of the text stays what it is, even if the
         * sequence cannot be trimmed to it. */
        const int64_t n_done = w->n_done;

        loop_drafts_settle(l, w);
        w->n_done = n_done;
        pl_draft_forget(l->o.drafter, w->seq);
        pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
        l->taken[w->seq] = false;
        loop_leave_slot(l, w);
    }
    r.n_drafted = w->n_drafted;
    r.n_accepted = w->n_taken;
    loop_set_state(l, w, TASK_ENDED);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_task; i++)
        if (l->task[i] == w) {
            memmove(&l->task[i], &l->task[i + 1],
                    (size_t)(--l->n_task - i) * sizeof *l->task);
            break;
        }
    schedule_remove_task(&l->schedule, w->params.client);
    l->counts.n_failed += why == FINISH_ERROR;
    pthread_mutex_unlock(&l->lock);
    j = w->params.listener;
    loop_tiers_cancel(l, w);
    /* The task is freed first, because its `end` callback may release the
     * grammar that its sampler uses. */
    task_free(w);
    j.end(j.user, &r);
    pl_receipt_free(r.receipt);
}

static pl_status check_params(const struct loop *l,
                              const struct task_params *params, pl_err *err)
{
    if (params->n_prompt < 1)
        return server_fail(err, PL_BAD_ARGUMENT,
                           "the prompt has no tokens; give at least one");
    for (int64_t i = 0; i < params->n_prompt; i++)
        if (params->prompt[i] < 0 || params->prompt[i] >= l->n_vocab)
            return server_fail(
                err, PL_BAD_ARGUMENT,
                "prompt: token %" PRId64 " is %" PRId32
                ", not in the vocabulary; use ids from 0 to %" PRId64,
                i, params->prompt[i], l->n_vocab - 1);
    if (params->slot < -1 || params->slot >= l->o.n_seq)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "id_slot %d: no such slot; use 0 to %d (-np), or -1 for any",
            params->slot, l->o.n_seq - 1);
    if (params->rows && l->o.d_model == 0)
        return server_fail(
            err, PL_UNSUPPORTED,
            "embeddings are disabled; start the server with --embeddings");
    if (l->o.whole && !params->rows)
        return server_fail(
            err, PL_UNSUPPORTED,
            "the model is an encoder, which generates no text; use "
            "/v1/embeddings%s",
            l->o.scores ? " of another server, or /rerank" : "");
    if (l->o.whole && params->n_prompt > pl_engine_max_text(l->e))
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "the text has %" PRId64 " tokens, but the model computes at most "
            "%" PRId64 " at once; shorten it, or start the server with a "
            "larger -ub, and -c if that is smaller",
            params->n_prompt, pl_engine_max_text(l->e));
    if (!l->o.whole && params->n_prompt >= l->n_ctx)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "the prompt has %" PRId64 " tokens, but the context has %" PRId64
            ", of which the output needs at least 1; shorten the "
            "prompt, or start the server with a larger context (-c)",
            params->n_prompt, l->n_ctx);
    return PL_OK;
}

/* Creates the sampler of a task. Limits the window of the DRY sampler to the
 * context size, in tokens. */
static pl_status make_sampler(struct task *w, const struct loop *l,
                              const pl_sampling *given, pl_err *err)
{
    pl_sampling s;

    if (given)
        s = *given;
    else
        pl_sampling_init(&s);
    if (s.dry_last_n < 0 || s.dry_last_n > l->n_ctx)
        s.dry_last_n = (int)l->n_ctx;
    return pl_sampler_create(&w->sampler, &s, l->n_vocab, err);
}

static pl_status task_create(struct task **out, const struct loop *l,
                             const struct task_params *params, pl_err *err)
{
    struct task *w = calloc(1, sizeof *w);
    pl_status s;

    *out = NULL;
    if (!w)
        return no_memory(err);
    w->params = *params;
    w->params.prompt = NULL;
    w->params.sampling = NULL;
    w->arrival_s = clock_now();
    w->max_text = params->n_prompt + 64;
    w->text = malloc((size_t)w->max_text * sizeof *w->text);
    if (!w->text) {
        task_free(w);
        return no_memory(err);
    }
    memcpy(w->text, params->prompt, (size_t)params->n_prompt * sizeof *w->text);
    w->n_text = params->n_prompt;
    s = make_sampler(w, l, params->sampling, err);
    if (s != PL_OK) {
        task_free(w);
        return s;
    }
    for (int64_t i = 0; i < w->n_text; i++)
        pl_sampler_accept(w->sampler, w->text[i]);
    *out = w;
    return PL_OK;
}

/* Estimates the seconds until a slot becomes free: the seconds of all steps so
 * far, divided by the number of tasks so far, limited to 1 ... 60. */
static double retry_after_s(const struct loop *l)
{
    double per_task_s =
        l->counts.n_task > 0 ? l->counts.step_s / (double)l->counts.n_task : 1;

    return per_task_s < 1 ? 1 : per_task_s > 60 ? 60 : per_task_s;
}

/* Adds n tasks to the loop's queue, all or none, as loop_add does. Caller holds
 * the lock. */
static pl_status enqueue_tasks(struct loop *l, struct task **w, int n,
                               double *retry_s, pl_err *err)
{
    int k = 0;

    if (l->stops)
        return server_fail(err, PL_CANCELLED, "the server is stopping");
    if (l->is_lost)
        return server_fail(err, PL_DEVICE, "%s", l->lost.message);
    if (n > l->o.max_waiting)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "the request has %d tasks, more than the queue holds (%d); "
            "send fewer prompts or choices, or start the server with a "
            "larger --max-waiting",
            n, l->o.max_waiting);
    if (n > l->o.max_waiting - l->counts.n_waiting ||
        n > l->max_task - l->n_task) {
        l->counts.n_rejected += (uint64_t)n;
        if (retry_s)
            *retry_s = retry_after_s(l);
        return server_fail(
            err, PL_FULL,
            "the queue is full: %d of %d tasks are waiting, no space "
            "for %d more; try again later",
            l->counts.n_waiting, l->o.max_waiting, n);
    }
    while (k < n &&
           schedule_add_task(&l->schedule, w[k]->params.client, err) == PL_OK)
        k++;
    if (k < n) {
        while (k-- > 0)
            schedule_remove_task(&l->schedule, w[k]->params.client);
        return PL_NO_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        w[i]->id = ++l->last_id;
        /* Fits, because the check above ensures that n_task is less than
         * max_task. */
        l->task[l->n_task] = w[i];
        l->n_task++; /* from here on the loop's thread sees the task */
    }
    l->counts.n_waiting += n;
    l->counts.n_task += (uint64_t)n;
    pthread_cond_signal(&l->wake);
    return PL_OK;
}

pl_status loop_add(struct loop *l, const struct task_params *params, int n,
                   double *retry_s, pl_err *err)
{
    struct task **w = calloc((size_t)n + 1, sizeof *w);
    pl_status s = w ? PL_OK : no_memory(err);

    for (int i = 0; i < n && s == PL_OK; i++) {
        s = check_params(l, &params[i], err);
        if (s == PL_OK)
            s = task_create(&w[i], l, &params[i], err);
    }
    if (s == PL_OK) {
        pthread_mutex_lock(&l->lock);
        s = enqueue_tasks(l, w, n, retry_s, err);
        pthread_mutex_unlock(&l->lock);
    }
    for (int i = 0; i < n && w && s != PL_OK; i++)
        task_free(w[i]);
    free(w);
    return s;
}

/* ---- running calls of other threads between two steps -------------------- */

pl_status loop_run_between_steps(struct loop *l,
                                 pl_status (*act)(void *user, pl_engine *e,
                                                  pl_err *err),
                                 void *user, pl_err *err)
{
    struct loop_call a = {.act = act, .user = user, .err = err};
    struct loop_call **end;

    pthread_mutex_lock(&l->lock);
    if (l->stops) {
        pthread_mutex_unlock(&l->lock);
        return server_fail(err, PL_CANCELLED, "the server is stopping");
    }
    for (end = &l->loop_call; *end;)
        end = &(*end)->next;
    *end = &a;
    pthread_cond_signal(&l->wake);
    while (!a.done)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return a.status;
}

/* Runs all queued calls of loop_run_between_steps. Caller holds the lock, which
 * is released during each call. */
static void run_pending_calls(struct loop *l)
{
    struct loop_call *a;

    while ((a = l->loop_call)) {
        l->loop_call = a->next;
        pthread_mutex_unlock(&l->lock);
        a->status = a->act(a->user, l->e, a->err);
        pthread_mutex_lock(&l->lock);
        /* From here on loop_run_between_steps may return, and `a` is
         * invalid. */
        a->done = true;
        pthread_cond_broadcast(&l->done);
    }
}

/* ---- starting and stopping the loop's thread ----------------------------- */

static void *loop_thread(void *user)
{
    struct loop *l = user;
    bool stops = false;

    while (!stops) {
        bool busy = loop_step(l);

        pthread_mutex_lock(&l->lock);
        run_pending_calls(l);
        while (!busy && !l->stops && !l->loop_call && l->n_task == 0 &&
               !loop_tiers_backlogged(l)) {
            pthread_cond_wait(&l->wake, &l->lock);
            /* a task was added: run the next step at once. */
            busy = l->n_task > 0;
        }
        if (!busy && !l->stops && !l->loop_call) {
            /* All tasks wait or are paused. No signal tells the loop's thread
             * when their clients or the tiers become ready, so it checks again
             * after 5 ms. */
            clock_wait(&l->wake, &l->lock, clock_now() + 0.005);
        }
        stops = l->stops;
        pthread_mutex_unlock(&l->lock);
    }
    while (l->n_task > 0)
        loop_finish_task(l, l->task[0], FINISH_CANCELLED, NULL);
    pthread_mutex_lock(&l->lock);
    run_pending_calls(l);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Returns how many rows of logits [n_vocab] fit in LOGIT_BYTES, but at most the
 * number of tokens of a step. */
static int64_t usual_rows(const struct loop *l)
{
    int64_t n = LOGIT_BYTES / (int64_t)sizeof *l->logits / l->n_vocab;

    return n < l->max_batch ? n : l->max_batch;
}

static bool alloc_buffers(struct loop *l)
{
    size_t n = (size_t)l->o.n_seq, m;
    int64_t chunk = l->o.chunk < l->o.step ? l->o.step : l->o.chunk;

    l->max_task = l->o.n_seq + l->o.max_waiting;
    l->max_batch = chunk + l->o.n_seq;
    m = (size_t)l->max_batch + (l->o.drafter ? 2 * PL_DRAFT_MAX * n : 0);
    l->task = calloc((size_t)l->max_task, sizeof *l->task);
    l->ready = calloc((size_t)l->max_task, sizeof *l->ready);
    l->client = calloc((size_t)l->max_task, sizeof *l->client);
    l->slot = calloc(n, sizeof *l->slot);
    l->last = calloc(n, sizeof *l->last);
    l->n_device = pl_engine_devices(l->e, NULL, 0, sizeof *l->device);
    l->device = calloc((size_t)l->n_device + 1, sizeof *l->device);
    l->traffic = calloc((size_t)l->n_device + 1, sizeof *l->traffic);
    l->run = calloc(n, sizeof *l->run);
    l->plan = calloc(n, sizeof *l->plan);
    l->taken = calloc(n, sizeof *l->taken);
    l->token = calloc(m, sizeof *l->token);
    l->seq = calloc(m, sizeof *l->seq);
    l->wanted = calloc(m, sizeof *l->wanted);
    l->drafted = calloc(n, sizeof *l->drafted);
    l->draft = calloc(n, sizeof *l->draft);
    l->max_rows = l->o.max_rows > 0 ? l->o.max_rows : usual_rows(l);
    if (l->max_rows < l->o.n_seq)
        l->max_rows = l->o.n_seq;
    l->logits = calloc((n + (size_t)l->max_rows) * (size_t)l->n_vocab,
                       sizeof *l->logits);
    l->path = calloc((size_t)l->n_ctx, sizeof *l->path);
    l->rows = calloc(n, sizeof *l->rows);
    if (l->o.d_model > 0)
        l->row = calloc((size_t)(l->max_batch * l->o.d_model), sizeof *l->row);
    return ahead_init(&l->ahead, l->o.n_seq) && l->task && l->ready &&
           l->client && l->slot && l->last && l->device && l->traffic &&
           l->run && l->plan && l->taken && l->token && l->seq && l->wanted &&
           l->drafted && l->draft && l->logits && l->path && l->rows &&
           (l->row || l->o.d_model == 0);
}

pl_status loop_create(struct loop **out, pl_engine *e, const pl_tokenizer *t,
                      const struct loop_options *o, pl_err *err)
{
    struct loop *l = calloc(1, sizeof *l);

    *out = NULL;
    if (!l)
        return no_memory(err);
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->wake);
    clock_cond_init(&l->done);
    l->e = e;
    l->t = t;
    l->o = *o;
    l->n_ctx = pl_engine_n_ctx(e);
    l->n_vocab = pl_tokenizer_n_vocab(t);
    if (l->o.max_waiting == 0)
        l->o.max_waiting = 16 * l->o.n_seq;
    if (l->o.look_s == 0)
        l->o.look_s = 5;
    if (l->o.chunk == 0)
        l->o.chunk = l->o.step / 4 > 32 ? l->o.step / 4 : 32;
    schedule_init(&l->schedule, l->o.step, l->o.chunk);
    l->schedule.whole = l->o.whole;
    if (!alloc_buffers(l)) {
        loop_free(l);
        return no_memory(err);
    }
    loop_read_counters(l);
    if (pthread_create(&l->thread, NULL, loop_thread, l) != 0) {
        loop_free(l);
        return server_fail(
            err, PL_NO_MEMORY,
            "cannot start the thread of the scheduling loop; raise the "
            "limits of threads and memory (ulimit -u, -v)");
    }
    l->started = true;
    *out = l;
    return PL_OK;
}

void loop_stop(struct loop *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stops = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
    l->started = false;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    loop_stop(l);
    pthread_cond_destroy(&l->wake);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    schedule_fini(&l->schedule);
    ahead_fini(&l->ahead);
    free(l->task);
    free(l->ready);
    free(l->client);
    free(l->slot);
    for (int i = 0; i < l->o.n_seq && l->last; i++)
        free(l->last[i].token);
    free(l->last);
    free(l->device);
    free(l->traffic);
    free(l->run);
    free(l->plan);
    free(l->taken);
    free(l->token);
    free(l->seq);
    free(l->wanted);
    free(l->drafted);
    free(l->draft);
    free(l->logits);
    free(l->path);
    free(l->row);
    free(l->rows);
    free(l);
}

/* ---- reading the loop's counters ----------------------------------------- */

void loop_counts(struct loop *l, struct loop_counts *out)
{
    pthread_mutex_lock(&l->lock);
    *out = l->counts;
    pthread_mutex_unlock(&l->lock);
}

int loop_slots(struct loop *l, struct loop_slot *slot, int n)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < n && i < l->o.n_seq; i++)
        slot[i] = l->slot[i];
    pthread_mutex_unlock(&l->lock);
    return l->o.n_seq;
}

struct loop_slot *loop_all_slots(struct loop *l, int *n)
{
    struct loop_slot *slot = calloc((size_t)l->o.n_seq + 1, sizeof *slot);

    *n = slot ? loop_slots(l, slot, l->o.n_seq) : 0;
    return slot;
}

int loop_devices(struct loop *l, pl_device_counters *device,
                 pl_device_traffic *traffic, int n)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < n && i < l->n_device; i++) {
        device[i] = l->device[i];
        traffic[i] = l->traffic[i];
    }
    pthread_mutex_unlock(&l->lock);
    return l->n_device;
}
