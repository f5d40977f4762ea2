/* One step of the engine loop: ends cancelled tasks, admits tasks, computes
 * tokens, and passes the results to the tasks' callbacks. See loop.h. */
#include "loop_inner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- ending tasks before their last token -------------------------------- */

static bool abort_reason(const struct task *w, double now,
                         enum task_finish *why)
{
    if (w->client_state == CLIENT_GONE)
        *why = FINISH_CANCELLED;
    else if (w->params.time_s > 0 && now - w->arrival_s > w->params.time_s)
        *why = FINISH_TIMEOUT;
    else
        return false;
    return true;
}

static void retire_cancelled(struct loop *l)
{
    const double now = clock_now();
    enum task_finish why = FINISH_CANCELLED;

    for (int i = 0; i < l->n_task; i++) {
        struct task *w = l->task[i];
        const struct task_callbacks *j = &w->params.listener;

        w->client_state =
            j->poll_client ? j->poll_client(j->user) : CLIENT_READY;
        if (abort_reason(w, now, &why)) {
            loop_finish_task(l, w, why, NULL);
            i--;
        }
    }
}

/* ---- admitting and preempting tasks -------------------------------------- */

/* Returns the index of a free sequence that the task may use, or -1 if there is
 * none. */
static int find_free_slot(const struct loop *l, const struct task *w)
{
    const int slot = w->params.slot;

    if (slot >= 0)
        return l->taken[slot] ? -1 : slot;
    for (int i = 0; i < l->o.n_seq; i++)
        if (!l->taken[i])
            return i;
    return -1;
}

/* Returns true if the KV cache has space for the tokens of task `w` and 64
 * generated ones. For each running task, space is left for its tokens that are
 * not computed yet and 64 more, so that no task is preempted soon after `w` is
 * admitted. If no task runs, returns true. */
static bool fits_in_cache(struct loop *l, const struct task *w)
{
    enum { TO_WRITE = 64 };
    int64_t n_needed = w->n_text + TO_WRITE;
    int n = 0;

    for (int i = 0; i < l->n_task; i++) {
        const struct task *other = l->task[i];

        if (!loop_has_slot(other))
            continue;
        n++;
        n_needed += other->n_text - other->n_done + TO_WRITE;
    }
    return n == 0 || n_needed <= pl_engine_free_tokens(l->e, -1);
}

static bool is_paused(const struct task *w)
{
    return loop_has_slot(w) && w->client_state == CLIENT_BACKLOGGED;
}

/* Returns the task that runs in the slot if it is paused because its client is
 * backlogged, else NULL. */
static struct task *paused_task_in_slot(const struct loop *l, int slot)
{
    for (int i = 0; i < l->n_task; i++)
        if (is_paused(l->task[i]) && l->task[i]->seq == slot)
            return l->task[i];
    return NULL;
}

/* Returns true if the task can be admitted: it has no slot, its client is
 * ready, and its lookup in the tiers has ended. If it requires a certain slot,
 * that slot must be free, or its task paused; other tasks do not wait for this
 * one. */
static bool is_admissible(const struct loop *l, const struct task *w)
{
    return !loop_has_slot(w) && w->client_state == CLIENT_READY &&
           !loop_tiers_is_pending(l, w) &&
           (w->params.slot < 0 || find_free_slot(l, w) >= 0 ||
            paused_task_in_slot(l, w->params.slot));
}

/* Returns the next task to admit; NULL if no task is admissible. Chooses
 * preempted tasks first, so that every task that was once admitted can finish.
 * Chooses among waiting tasks by fair share of the clients (schedule_next). */
static struct task *pick_next_task(struct loop *l)
{
    int n = 0, first;

    for (int i = 0; i < l->n_task; i++) {
        if (!is_admissible(l, l->task[i]))
            continue;
        if (l->task[i]->at == TASK_PREEMPTED)
            return l->task[i];
        l->client[n] = l->task[i]->params.client;
        l->ready[n++] = l->task[i];
    }
    pthread_mutex_lock(&l->lock);
    first = schedule_next(&l->schedule, l->client, n);
    pthread_mutex_unlock(&l->lock);
    return first >= 0 ? l->ready[first] : NULL;
}

/* Returns a paused task to preempt; NULL if there is none. `w` is the task that
 * needs a slot, or NULL. If `w` requires a slot that is busy, only the task in
 * that slot is considered. Otherwise returns the paused task that arrived
 * last. */
static struct task *find_paused_task(struct loop *l, const struct task *w)
{
    if (w && w->params.slot >= 0 && find_free_slot(l, w) < 0)
        return paused_task_in_slot(l, w->params.slot);
    for (int i = l->n_task - 1; i >= 0; i--)
        if (is_paused(l->task[i]))
            return l->task[i];
    return NULL;
}

/* Returns true if all tokens of the task are computed but the last, which was
 * generated. */
static bool last_token_is_left(const struct task *w)
{
    return w->n_written > 0 && w->n_text - w->n_done == 1;
}

/* Restores the sequence of a preempted task. Returns false if the task must
 * wait longer, or has ended with an error. */
static bool resume(struct loop *l, struct task *w)
{
    pl_err err;
    pl_status s = pl_state_restore_memory(l->e, w->seq, w->saved,
                                          w->saved_bytes, 0, &err);

    /* If the cache is full, other tasks have taken the space. */
    if (s == PL_FULL && l->counts.n_running > 0) {
        l->taken[w->seq] = false;
        return false;
    }
    free(w->saved);
    w->saved = NULL;
    loop_set_state(l, w, last_token_is_left(w) ? TASK_DECODING : TASK_PREFILL);
    if (s == PL_OK) {
        /* The tokens are needed only for caching this sequence as a prefix
         * later, so errors are ignored. */
        pl_seq_set_tokens(l->e, w->seq, w->text, w->n_done, NULL);
        loop_drafts_begin(l, w);
    } else {
        loop_finish_task(l, w, FINISH_ERROR, &err);
    }
    return s == PL_OK;
}

/* Starts the prompt of a newly admitted task. Gives the task's sequence the
 * cached prefix that is on the devices, and starts loading further pages of it
 * from the tiers. */
static void start_prefill(struct loop *l, struct task *w)
{
    w->admitted_s = clock_now();
    if (!w->params.no_cache && pl_seq_share(l->e, w->seq, w->text, w->n_text,
                                            &w->n_cached, NULL) != PL_OK)
        w->n_cached = 0;
    w->n_done = w->n_shared = w->n_cached;
    loop_set_state(l, w, loop_tiers_start(l, w) ? TASK_LOADING : TASK_PREFILL);
    if (w->at == TASK_PREFILL)
        loop_drafts_begin(l, w);
}

/* Preempts a task: swaps its sequence out to host memory. A task whose sequence
 * is empty becomes a waiting task again. */
static void preempt(struct loop *l, struct task *w)
{
    pl_err err;

    loop_tiers_abort(l, w);
    pl_draft_forget(l->o.drafter, w->seq);
    if (w->n_done > 0 && pl_state_swap_out(l->e, w->seq, &w->saved,
                                           &w->saved_bytes, &err) != PL_OK) {
        loop_finish_task(l, w, FINISH_ERROR, &err);
        return;
    }
    pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
    l->taken[w->seq] = false;
    pthread_mutex_lock(&l->lock);
    l->counts.n_preemptions++;
    l->slot[w->seq] = (struct loop_slot){0};
    pthread_mutex_unlock(&l->lock);
    loop_set_state(l, w, w->n_done > 0 ? TASK_PREEMPTED : TASK_WAITING);
}

/* Preempts paused tasks to make a slot and KV cache space free for task `w`.
 * Returns false if that is not enough. */
static bool make_slot_free(struct loop *l, const struct task *w)
{
    struct task *idle;

    while (find_free_slot(l, w) < 0 || !fits_in_cache(l, w)) {
        idle = find_paused_task(l, w);
        if (!idle)
            return false;
        preempt(l, idle);
    }
    return true;
}

static void admit(struct loop *l)
{
    struct task *w;

    while ((w = pick_next_task(l)) && make_slot_free(l, w)) {
        if (loop_tiers_lookup(l, w))
            continue;
        w->seq = find_free_slot(l, w);
        l->taken[w->seq] = true;
        if (w->params.listener.placed)
            w->params.listener.placed(w->params.listener.user, w->seq);
        if (w->at != TASK_PREEMPTED)
            start_prefill(l, w);
        else if (!resume(l, w))
            break;
    }
}

/* ---- composing and computing a batch ------------------------------------- */

/* Returns true if the task needs the model's output at its token `at`: logits,
 * or a row for embeddings. */
static bool is_wanted(const struct task *w, int64_t at)
{
    if (w->params.rows == TASK_FIRST_ROW)
        return at == 0;
    return at + 1 == w->n_text || w->params.rows == TASK_ALL_ROWS ||
           (w->params.prompt_logits && at >= w->n_told &&
            at + 1 < w->params.n_prompt);
}

/* Returns how many tokens of the task to compute before it decodes. For a task
 * that needs the logits of prompt tokens, this is at most the task's share of
 * max_rows. */
static int64_t prefill_left(const struct loop *l, const struct task *w)
{
    int64_t left = w->n_text - w->n_done, most = l->max_rows / l->n_run;

    return w->params.prompt_logits && left > most ? most : left;
}

/* Fills l->run and l->plan for the next step. Returns the number of tokens of
 * the step. */
static int64_t build_step(struct loop *l)
{
    int64_t n;

    l->n_run = 0;
    for (int i = 0; i < l->n_task; i++)
        if (loop_has_slot(l->task[i]))
            l->run[l->n_run++] = l->task[i];
    for (int i = 0; i < l->n_run; i++) {
        const struct task *w = l->run[i];

        l->plan[i] = (struct schedule_entry){
            .client = w->params.client,
            .n_left = w->at == TASK_DECODING ? 0 : prefill_left(l, w),
            .paused = is_paused(w) || w->at == TASK_LOADING};
        l->rows[i] = w->params.rows != TASK_NO_ROW;
    }
    pthread_mutex_lock(&l->lock);
    n = schedule_step(&l->schedule, l->plan, l->n_run);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_run; i++) {
        const struct task *w = l->run[i];

        /* more than one token if its sequence could not be trimmed to a
         * draft's accepted length */
        if (w->at == TASK_DECODING && l->plan[i].n_now > 0)
            l->plan[i].n_now = w->n_text - w->n_done;
    }
    loop_drafts_propose(l);
    return n;
}

/* Appends the tokens that task run[i] has in this step to the batch, and those
 * of its draft. */
static void append_to_batch(struct loop *l, int i, pl_batch *b)
{
    const struct task *w = l->run[i];
    int64_t n = l->plan[i].n_now;

    for (int64_t k = 0; k < n + w->n_draft; k++) {
        l->token[b->n] = k < n ? w->text[w->n_done + k] : w->draft[k - n];
        l->seq[b->n] = w->seq;
        l->wanted[b->n] = k >= n || is_wanted(w, w->n_done + k);
        b->n++;
    }
}

/* Starts computing grammar masks on the worker thread: for those tasks run[from
 * ... to - 1] that sample a token after this step. */
static void start_mask_worker(struct loop *l, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct task *w = l->run[i];

        if (w->grammar_active && w->n_done + l->plan[i].n_now == w->n_text)
            ahead_add(&l->ahead, w->sampler);
    }
    ahead_begin(&l->ahead);
}

/* Computes the step for tasks run[from ... to - 1]: if `rows`, only for those
 * that return rows, else only for those that generate tokens. */
static pl_status decode_batch(struct loop *l, int from, int to, bool rows,
                              pl_err *err)
{
    pl_batch b;
    double began = clock_now();
    uint64_t busy = 0;
    pl_status s;

    pl_batch_init(&b);
    b.token = l->token;
    b.seq = l->seq;
    b.wanted = l->wanted;
    b.logits = rows ? NULL : l->logits;
    b.norm_out = rows && !l->o.scores ? l->row : NULL;
    b.scores = rows && l->o.scores ? l->row : NULL;
    for (int i = from; i < to; i++)
        if (l->rows[i] == rows) {
            append_to_batch(l, i, &b);
            busy += l->plan[i].n_now > 0;
        }
    start_mask_worker(l, from, to);
    s = b.n > 0 ? pl_engine_decode(l->e, &b, NULL, err) : PL_OK;
    ahead_end(&l->ahead);
    l->last_step_s = clock_now() - began;
    pthread_mutex_lock(&l->lock);
    l->counts.n_step += b.n > 0;
    l->counts.n_busy += busy;
    l->counts.step_s += l->last_step_s;
    pthread_mutex_unlock(&l->lock);
    return s;
}

/* Called when the KV cache is out of pages. Preempts a paused task if there is
 * one, else the newest task of the client that was served the most tokens. A
 * task that runs alone ends instead: with FINISH_LENGTH if it has generated
 * tokens, else with the error. */
static void preempt_for_pages(struct loop *l, const pl_err *err)
{
    struct task *victim = find_paused_task(l, NULL);
    int n = 0;

    /* n_running counts all running tasks: those that return rows, and those
     * that generate tokens. */
    if (l->counts.n_running == 1) {
        if (l->run[0]->n_written > 0)
            loop_finish_task(l, l->run[0], FINISH_LENGTH, NULL);
        else
            loop_finish_task(l, l->run[0], FINISH_ERROR, err);
        return;
    }
    for (int i = 0; i < l->n_run; i++)
        l->client[n++] = l->run[i]->params.client;
    pthread_mutex_lock(&l->lock);
    if (!victim)
        victim = l->run[schedule_victim(&l->schedule, l->client, n)];
    pthread_mutex_unlock(&l->lock);
    server_log(l->o.log, l->o.log_user, PL_LOG_INFO,
               "task %" PRIu64 ": preempted, the KV cache is full", victim->id);
    preempt(l, victim);
}

/* ---- passing results of a step to the tasks ------------------------------ */

static bool append_token(struct loop *l, struct task *w, int32_t id)
{
    if (w->n_text == w->max_text) {
        int64_t max = 2 * w->max_text;
        void *more = realloc(w->text, (size_t)max * sizeof *w->text);

        if (!more)
            return false;
        w->text = more;
        w->max_text = max;
    }
    w->text[w->n_text++] = id;
    w->n_written++;
    pthread_mutex_lock(&l->lock);
    l->counts.n_written++;
    pthread_mutex_unlock(&l->lock);
    return true;
}

/* Returns the next token of a task, which is forced or sampled; -1 with *err
 * set on failure. End-of-text tokens are not sampled before the task's grammar
 * applies, nor before the task has min_tokens tokens. They are not sampled
 * either if the task has ignore_end and no grammar applies. */
static int32_t sample_next(const struct loop *l, struct task *w,
                           const float *logits, pl_err *err)
{
    const struct task_callbacks *j = &w->params.listener;
    const int32_t forced = j->forced ? j->forced(j->user) : -1;
    const bool is_early = w->n_written < w->params.min_tokens;
    bool is_endless;
    int32_t id;

    if (forced >= 0 && !w->grammar_active) {
        pl_sampler_accept(w->sampler, forced);
        return forced;
    }
    if (w->params.grammar && !w->grammar_active &&
        (!j->grammar_applies || j->grammar_applies(j->user))) {
        if (pl_sampler_set_grammar(w->sampler, w->params.grammar, err) != PL_OK)
            return -1;
        w->grammar_active = true;
    }
    if (forced >= 0) {
        pl_status s = pl_sampler_force(w->sampler, forced, err);

        if (s != PL_NOT_FOUND)
            return s == PL_OK ? forced : -1;
    }
    is_endless = is_early || ((w->params.grammar || w->params.ignore_end) &&
                              !w->grammar_active);
    if (pl_sampler_exclude_eog(w->sampler, is_endless ? l->t : NULL, err) !=
            PL_OK ||
        pl_sampler_exclude_stops(w->sampler, is_early, err) != PL_OK)
        return -1;
    id = pl_sample(w->sampler, logits);
    if (id < 0)
        pl_sampler_status(w->sampler, err);
    return id;
}

/* Begins the receipt of a task (pl_receipt) when its prompt has been computed,
 * before the first generated token. */
static pl_status begin_receipt(const struct loop *l, struct task *w,
                               pl_err *err)
{
    pl_status s =
        pl_receipt_begin(&w->receipt, l->e, w->text, w->params.n_prompt, err);

    return s == PL_OK ? pl_sampler_record(w->sampler, w->receipt, err) : s;
}

/* Determines the next token of a task and passes it to the task's listener.
 * Returns false if the task has ended; it is freed then. */
static bool emit_next_token(struct loop *l, struct task *w, const float *logits)
{
    pl_err err;
    int32_t id;

    if (w->first_token_s == 0)
        w->first_token_s = clock_now();
    if (w->params.receipt && !w->receipt &&
        begin_receipt(l, w, &err) != PL_OK) {
        loop_finish_task(l, w, FINISH_ERROR, &err);
        return false;
    }
    if (w->params.max_tokens == 0) { /* the task has only a prompt to compute */
        if (w->params.keep)
            w->params.keep(w->params.listener.user, l->e, w->seq);
        loop_finish_task(l, w, FINISH_LENGTH, NULL);
        return false;
    }
    id = sample_next(l, w, logits, &err);
    if (id < 0) {
        loop_finish_task(l, w, FINISH_ERROR, &err);
    } else if (pl_token_is_eog(l->t, id)) {
        loop_finish_task(l, w, FINISH_EOG, NULL);
    } else if (!append_token(l, w, id)) {
        err =
            (pl_err){PL_NO_MEMORY,
                     "out of memory for the output of a task; try again later"};
        loop_finish_task(l, w, FINISH_ERROR, &err);
    } else if (!w->params.listener.token(w->params.listener.user, id, logits)) {
        loop_finish_task(l, w, FINISH_STOPPED, NULL);
    } else if (w->n_written == w->params.max_tokens || w->n_text >= l->n_ctx) {
        loop_finish_task(l, w, FINISH_LENGTH, NULL);
    } else {
        if (w->at == TASK_PREFILL)
            loop_set_state(l, w, TASK_DECODING);
        return true;
    }
    return false;
}

/* Passes the next tokens of a task to its listener. `logits` has a row for the
 * text and one for each token of the draft. The row of a drafted token is used
 * only if the token before it was sampled as drafted. */
static void emit_tokens(struct loop *l, struct task *w, const float *logits)
{
    while (emit_next_token(l, w, logits)) {
        if (w->n_accepted == w->n_draft ||
            w->draft[w->n_accepted] != w->text[w->n_text - 1]) {
            loop_drafts_settle(l, w);
            return;
        }
        w->n_accepted++;
        w->n_done++; /* the step has computed it */
        logits += l->n_vocab;
    }
}

/* Updates what /slots shows of the task's slot. Adds `n_prompt`, the number of
 * prompt tokens computed in this step, to the counters. Cached tokens are
 * counted only at the task's first step, because not all pages that a lookup
 * found may have been loaded. */
static void publish_slot(struct loop *l, struct task *w, int64_t n_prompt)
{
    const int64_t most = w->params.max_tokens, all = w->params.n_prompt;
    const int64_t left = most < 0 ? -1 : most - w->n_written;
    const int64_t prompt = w->n_done < all ? w->n_done : all;

    pthread_mutex_lock(&l->lock);
    if (!w->counted) {
        l->counts.n_cached += (uint64_t)w->n_cached;
        if (w->n_cached > w->n_shared)
            l->counts.n_restored += (uint64_t)(w->n_cached - w->n_shared);
        w->counted = true;
    }
    l->slot[w->seq] = (struct loop_slot){.id_task = w->id,
                                         .n_prompt = w->params.n_prompt,
                                         .n_done = w->n_done,
                                         .n_written = w->n_written,
                                         .n_cached = w->n_cached,
                                         .n_computed = prompt - w->n_cached,
                                         .n_left = left};
    l->counts.n_prompt += (uint64_t)n_prompt;
    pthread_mutex_unlock(&l->lock);
}

/* Passes the rows that were computed for a task in this step to the task's
 * listener, and advances *row past them. Ends the task if its prompt is
 * complete. */
static void emit_embedding_rows(struct loop *l, struct task *w, int64_t n_now,
                                const float **row)
{
    const struct task_callbacks *j = &w->params.listener;

    for (int64_t at = w->n_done - n_now; at < w->n_done; at++)
        if (is_wanted(w, at)) {
            j->row(j->user, at, *row);
            *row += l->o.d_model;
        }
    if (w->n_done < w->n_text)
        return;
    w->first_token_s = clock_now();
    loop_finish_task(l, w, FINISH_EOG, NULL);
}

/* Passes the logits of the last n_now tokens of a task, prompt tokens that were
 * computed in this step, to the task's listener. Advances *logits past them. */
static void emit_prompt_logits(const struct loop *l, struct task *w,
                               int64_t n_now, float **logits)
{
    const struct task_callbacks *j = &w->params.listener;

    for (int64_t at = w->n_done - n_now; at < w->n_done; at++) {
        if (at + 1 == w->n_text || !is_wanted(w, at))
            continue;
        j->prompt_logits(j->user, at, *logits);
        w->n_told = at + 1;
        *logits += l->n_vocab;
    }
}

/* Calls the progress callbacks of the tasks whose first prompt tokens are
 * computed in this step. */
static void report_starts(struct loop *l)
{
    for (int i = 0; i < l->n_run; i++) {
        struct task *w = l->run[i];
        const struct task_callbacks *j = &w->params.listener;

        if (w->started || l->plan[i].n_now == 0)
            continue;
        w->started = true;
        if (j->progress)
            j->progress(j->user, w->n_done, w->params.n_prompt, w->n_cached);
    }
}

/* Handles the results of decode_batch after a call with the same arguments. The
 * rows in l->logits or l->row are in the order of the tasks in l->run. */
static void emit_results(struct loop *l, int from, int to, bool rows)
{
    const float *row = l->row;
    float *logits = l->logits;

    for (int i = from; i < to; i++) {
        struct task *w = l->run[i];
        bool writing;

        if (l->rows[i] != rows || l->plan[i].n_now == 0)
            continue;
        writing = w->at == TASK_DECODING;
        w->n_done += l->plan[i].n_now;
        publish_slot(l, w, writing ? 0 : l->plan[i].n_now);
        if (w->params.listener.progress && w->n_written == 0)
            w->params.listener.progress(w->params.listener.user, w->n_done,
                                        w->params.n_prompt, w->n_cached);
        if (rows) {
            emit_embedding_rows(l, w, l->plan[i].n_now, &row);
            continue;
        }
        if (w->params.prompt_logits)
            emit_prompt_logits(l, w, l->plan[i].n_now, &logits);
        if (w->n_done == w->n_text) {
            const float *first = logits;

            logits += (1 + w->n_draft) * l->n_vocab;
            emit_tokens(l, w, first);
        }
    }
}

/* Ends all tasks with the error `why` after a device has failed, because their
 * sequences may be corrupt and the engine cannot compute any more. */
static void fail_all_device_lost(struct loop *l, const pl_err *why)
{
    pthread_mutex_lock(&l->lock);
    l->is_lost = true;
    l->lost = *why;
    pthread_mutex_unlock(&l->lock);
    server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
               "device lost, all requests of this model fail: %s",
               why->message);
    /* Called before the tasks end, because their clients may retry as soon as
     * they get the error. */
    if (l->o.lost)
        l->o.lost(l->o.lost_user, why);
    while (l->n_task > 0)
        loop_finish_task(l, l->task[0], FINISH_ERROR, why);
}

/* Computes a failed step again, separately for each of its tasks, because a
 * single task may be the cause of the failure. */
static void retry_one_by_one(struct loop *l, bool rows, const pl_err *why)
{
    pl_err err;

    server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
               "a step of %d tasks failed, retrying them one by one: %s",
               l->n_run, why->message);
    for (int i = 0; i < l->n_run; i++) {
        pl_status s;

        if (l->rows[i] != rows)
            continue;
        s = decode_batch(l, i, i + 1, rows, &err);
        if (s == PL_DEVICE) {
            fail_all_device_lost(l, &err);
            return;
        }
        if (s == PL_OK)
            emit_results(l, i, i + 1, rows);
        else
            loop_finish_task(l, l->run[i], FINISH_ERROR, &err);
    }
}

/* After a failed step, sets each task's n_done to the length of its sequence.
 * If the sequence has advanced but the logits or rows of its new tokens were
 * lost, empties the sequence, so that the tokens are computed again. */
static void resync_lengths(struct loop *l)
{
    for (int i = 0; i < l->n_run; i++) {
        struct task *w = l->run[i];
        const int64_t before = w->n_done;
        int64_t left;

        w->n_done = pl_seq_length(l->e, w->seq);
        if (w->n_done == w->n_text || /* the logits for the next token are
                                         lost */
            ((l->rows[i] || w->params.prompt_logits) &&
             w->n_done != before)) { /* logits or rows of prompt tokens are
                                        lost */
            pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
            w->n_done = 0;
            if (w->at == TASK_DECODING)
                loop_set_state(l, w, TASK_PREFILL);
        }
        left = w->n_text - w->n_done;
        if (l->plan[i].n_now > left)
            l->plan[i].n_now = left;
    }
}

void loop_read_counters(struct loop *l)
{
    pl_counters c;
    pl_draft_counters d;

    pl_engine_counters(l->e, &c, sizeof c);
    pthread_mutex_lock(&l->lock);
    l->counts.messages = c.messages;
    l->counts.message_bytes = c.message_bytes;
    l->counts.copy_bytes = c.copy_bytes;
    pl_draft_read_counters(l->o.drafter, -1, &d, sizeof d);
    l->counts.n_draft = d.n_draft;
    l->counts.n_draft_token = d.n_token;
    l->counts.n_draft_accepted = d.n_accepted;
    pl_engine_cache(l->e, &l->counts.cache, sizeof l->counts.cache);
    pl_engine_devices(l->e, l->device, l->n_device, sizeof *l->device);
    pl_engine_traffic(l->e, l->traffic, l->n_device, sizeof *l->traffic);
    pthread_mutex_unlock(&l->lock);
}

/* Runs the step for the tasks that return rows if `rows`, else for the tasks
 * that generate tokens. Returns false if the step failed; the list l->run is
 * then invalid. */
static bool run_sub_batch(struct loop *l, bool rows)
{
    pl_err err;
    pl_status s = decode_batch(l, 0, l->n_run, rows, &err);

    /* Without drafts the step may succeed: they need pages, and their logits
     * may not be finite. */
    if (s != PL_OK && s != PL_DEVICE && !rows && loop_drafts_drop(l)) {
        resync_lengths(l);
        s = decode_batch(l, 0, l->n_run, rows, &err);
    }
    if (s == PL_OK) {
        emit_results(l, 0, l->n_run, rows);
        if (!rows)
            loop_drafts_measure(l);
        return true;
    }
    if (s == PL_DEVICE) {
        fail_all_device_lost(l, &err);
        return false;
    }
    resync_lengths(l);
    if (s == PL_FULL)
        preempt_for_pages(l, &err);
    else
        retry_one_by_one(l, rows, &err);
    return false;
}

/* Runs the step for the tasks that return rows. Then removes these tasks from
 * the list l->run, because they may have been freed. Returns false if the step
 * failed. */
static bool run_embedding_batch(struct loop *l)
{
    int n = 0;
    bool any = false;

    for (int i = 0; i < l->n_run; i++)
        any |= l->rows[i];
    if (!any)
        return true;
    if (!run_sub_batch(l, true))
        return false;
    for (int i = 0; i < l->n_run; i++)
        if (!l->rows[i]) {
            l->run[n] = l->run[i];
            l->plan[n] = l->plan[i];
            l->rows[n++] = false;
        }
    l->n_run = n;
    return true;
}

bool loop_step(struct loop *l)
{
    double began = clock_now(), stepped = l->counts.step_s;
    bool put;

    retire_cancelled(l);
    admit(l);
    put = loop_tiers_load(l);
    if (build_step(l) == 0) {
        loop_read_counters(l);
        return loop_tiers_offload(l, 0) || put;
    }
    report_starts(l);
    if (run_embedding_batch(l) && l->n_run > 0)
        run_sub_batch(l, false);
    loop_read_counters(l);
    stepped = l->counts.step_s - stepped;
    pthread_mutex_lock(&l->lock);
    l->counts.overhead_s += clock_now() - began - stepped;
    pthread_mutex_unlock(&l->lock);
    loop_tiers_offload(l, stepped / 16);
    return true;
}
