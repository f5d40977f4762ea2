/* One step of the loop: who leaves, who comes, what is computed, what is told.
 * See loop.h. */
#include "loop_inner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- who leaves ---------------------------------------------------------- */

static bool is_over(const struct work *w, double now, enum job_end *why)
{
    if (w->wish == JOB_GIVE_UP)
        *why = JOB_CANCELLED;
    else if (w->job.time_s > 0 && now - w->came > w->job.time_s)
        *why = JOB_LATE;
    else
        return false;
    return true;
}

/* The nth job; NULL: there are no more. The loop's thread alone removes jobs,
 * so that it stays while it is looked at. */
static struct work *nth(struct loop *l, int n)
{
    struct work *w;

    pthread_mutex_lock(&l->lock);
    w = n < l->n_work ? l->work[n] : NULL;
    pthread_mutex_unlock(&l->lock);
    return w;
}

static void let_go(struct loop *l)
{
    const double now = loop_now();
    enum job_end why = JOB_CANCELLED;
    struct work *w;

    for (int i = 0; (w = nth(l, i)); i++) {
        const struct job_listener *j = &w->job.listener;

        w->wish = j->wish ? j->wish(j->user) : JOB_GO;
        if (is_over(w, now, &why)) {
            loop_end_work(l, w, why, NULL);
            i--;
        }
    }
}

/* ---- places -------------------------------------------------------------- */

static void set_place(struct loop *l, struct work *w, enum work_at at)
{
    pthread_mutex_lock(&l->lock);
    --*loop_count_of(l, w->at);
    ++*loop_count_of(l, at);
    w->at = at;
    pthread_mutex_unlock(&l->lock);
}

/* A free sequence that a job may have; -1: there is none now. */
static int free_seq(const struct loop *l, const struct work *w)
{
    const int place = w->job.place - 1;

    if (place >= 0)
        return l->taken[place] ? -1 : place;
    for (int i = 0; i < l->o.n_seq; i++)
        if (!l->taken[i])
            return i;
    return -1;
}

/* Room for all that a job has so far and some more to write in, beside some for
 * each that runs, so that nobody has to give a place at once. Where nobody runs
 * there is room for anybody. */
static bool has_room(struct loop *l, const struct work *w)
{
    enum { TO_WRITE = 64 };
    int64_t wish = w->n_text + TO_WRITE;
    int n = 0;

    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_work; i++) {
        const struct work *other = l->work[i];

        if (other->at != WORK_RUNS)
            continue;
        n++;
        wish += other->n_text - other->n_done + TO_WRITE;
    }
    pthread_mutex_unlock(&l->lock);
    return n == 0 || wish <= pl_engine_room(l->e, -1);
}

/* With the lock held: who has this place and takes part in no step; NULL:
 * nobody does. */
static struct work *idle_at(const struct loop *l, int place)
{
    for (int i = 0; i < l->n_work; i++)
        if (l->work[i]->at == WORK_RUNS && l->work[i]->seq == place - 1 &&
            l->work[i]->wish == JOB_PAUSE)
            return l->work[i];
    return NULL;
}

/* Who waits for one place, which another has and uses, lets others by. */
static bool may_come(const struct loop *l, const struct work *w,
                     enum work_at at)
{
    return w->at == at && w->wish == JOB_GO && !loop_tiers_waits(l, w) &&
           (w->job.place == 0 || free_seq(l, w) >= 0 ||
            idle_at(l, w->job.place));
}

/* Who gets the next place: those who gave theirs come first, or nobody would be
 * safe to end. Who would take part in no step gets none. NULL: nobody waits. */
static struct work *next_work(struct loop *l)
{
    struct work *next = NULL;
    int n = 0, first;

    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_work && !next; i++)
        if (may_come(l, l->work[i], WORK_AWAY))
            next = l->work[i];
    for (int i = 0; i < l->n_work && !next; i++)
        if (may_come(l, l->work[i], WORK_WAITS))
            l->client[n++] = l->work[i]->job.client;
    first = schedule_next(&l->schedule, l->client, n);
    for (int i = 0; i < l->n_work && !next && first >= 0; i++)
        if (may_come(l, l->work[i], WORK_WAITS) && first-- == 0)
            next = l->work[i];
    pthread_mutex_unlock(&l->lock);
    return next;
}

/* Who takes part in no step and has the place that w needs, or, where w is NULL
 * or needs no certain one, the newest such; NULL: there is none. */
static struct work *idle_work(struct loop *l, const struct work *w)
{
    bool named = w && w->job.place > 0 && free_seq(l, w) < 0;
    struct work *idle = NULL;

    pthread_mutex_lock(&l->lock);
    if (named)
        idle = idle_at(l, w->job.place);
    for (int i = 0; i < l->n_work && !named; i++)
        if (l->work[i]->at == WORK_RUNS && l->work[i]->wish == JOB_PAUSE)
            idle = l->work[i];
    pthread_mutex_unlock(&l->lock);
    return idle;
}

/* False: it could not, and waits on, or has ended. */
static bool come_back(struct loop *l, struct work *w)
{
    pl_err err;
    pl_status s = pl_state_restore_memory(l->e, w->seq, w->saved,
                                          w->saved_bytes, 0, &err);

    if (s == PL_FULL && l->counts.n_running > 1) { /* others grew */
        l->taken[w->seq] = false;
        set_place(l, w, WORK_AWAY);
        return false;
    }
    free(w->saved);
    w->saved = NULL;
    if (s == PL_OK) /* it is kept as if it had stayed; or not, and goes on */
        pl_seq_tell(l->e, w->seq, w->text, w->n_done, NULL);
    if (s != PL_OK)
        loop_end_work(l, w, JOB_FAILED, &err);
    return s == PL_OK;
}

/* What is kept of its prompt needs not be computed. */
static void begin(struct loop *l, struct work *w)
{
    w->began = loop_now();
    if (!w->job.no_cache && pl_seq_share(l->e, w->seq, w->text, w->n_text,
                                         &w->n_cached, NULL) != PL_OK)
        w->n_cached = 0;
    w->n_done = w->n_shared = w->n_cached;
    loop_tiers_begin(l, w);
}

/* A job gives its place, and what its sequence holds goes to host memory. */
static void send_away(struct loop *l, struct work *w)
{
    pl_err err;

    loop_tiers_stop(l, w);
    if (w->n_done > 0 && pl_state_put_aside(l->e, w->seq, &w->saved,
                                            &w->saved_bytes, &err) != PL_OK) {
        loop_end_work(l, w, JOB_FAILED, &err);
        return;
    }
    pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
    l->taken[w->seq] = false;
    pthread_mutex_lock(&l->lock);
    l->counts.n_given++;
    l->slot[w->seq] = (struct loop_slot){0};
    pthread_mutex_unlock(&l->lock);
    set_place(l, w, w->n_done > 0 ? WORK_AWAY : WORK_WAITS);
}

/* False: there is no place for it, or no room. Who takes part in no step gives
 * his place where others need one. */
static bool find_place(struct loop *l, const struct work *w)
{
    struct work *idle;

    while (free_seq(l, w) < 0 || !has_room(l, w)) {
        idle = idle_work(l, w);
        if (!idle)
            return false;
        send_away(l, idle);
    }
    return true;
}

static void admit(struct loop *l)
{
    struct work *w;

    while ((w = next_work(l)) && find_place(l, w)) {
        bool back = w->at == WORK_AWAY;

        if (loop_tiers_look(l, w))
            continue;
        w->seq = free_seq(l, w);
        l->taken[w->seq] = true;
        set_place(l, w, WORK_RUNS);
        if (!back)
            begin(l, w);
        else if (!come_back(l, w))
            break;
    }
}

/* ---- what is computed ---------------------------------------------------- */

static bool is_writing(const struct work *w)
{
    return w->n_written > 0 && w->n_text - w->n_done == 1;
}

/* Tokens of the step, all in all. */
static int64_t plan_step(struct loop *l)
{
    int64_t n;

    l->n_run = 0;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_work; i++)
        if (l->work[i]->at == WORK_RUNS)
            l->run[l->n_run++] = l->work[i];
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_run; i++) {
        const struct work *w = l->run[i];

        l->plan[i] = (struct schedule_job){
            .client = w->job.client,
            .n_left = is_writing(w) ? 0 : w->n_text - w->n_done,
            .paused = w->wish == JOB_PAUSE || loop_tiers_puts(w)};
        l->rows[i] = w->job.rows != JOB_NO_ROW;
    }
    pthread_mutex_lock(&l->lock);
    n = schedule_step(&l->schedule, l->plan, l->n_run);
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* Adds what a job has in this step to the batch. */
static void gather(struct loop *l, int i, pl_batch *b)
{
    const struct work *w = l->run[i];
    int64_t n = l->plan[i].n_now;

    for (int64_t k = 0; k < n; k++) {
        l->token[b->n] = w->text[w->n_done + k];
        l->seq[b->n] = w->seq;
        l->wanted[b->n] =
            w->n_done + k + 1 == w->n_text || w->job.rows == JOB_ALL_ROWS;
        b->n++;
    }
}

/* Those whose token is chosen behind this step. */
static void look_ahead(struct loop *l, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct work *w = l->run[i];

        if (w->held && w->n_done + l->plan[i].n_now == w->n_text)
            ahead_add(&l->ahead, w->sampler);
    }
    ahead_begin(&l->ahead);
}

/* Of jobs [from, to) those that write, or those that tell rows. */
static pl_status compute(struct loop *l, int from, int to, bool rows,
                         pl_err *err)
{
    pl_batch b;
    double began = loop_now();
    pl_status s;

    pl_batch_init(&b);
    b.token = l->token;
    b.seq = l->seq;
    b.wanted = l->wanted;
    b.logits = rows ? NULL : l->logits;
    b.norm_out = rows ? l->row : NULL;
    for (int i = from; i < to; i++)
        if (l->rows[i] == rows)
            gather(l, i, &b);
    look_ahead(l, from, to);
    s = b.n > 0 ? pl_engine_decode(l->e, &b, NULL, err) : PL_OK;
    ahead_end(&l->ahead);
    pthread_mutex_lock(&l->lock);
    l->counts.n_step += b.n > 0;
    l->counts.step_s += loop_now() - began;
    pthread_mutex_unlock(&l->lock);
    return s;
}

/* Pages are short: somebody gives a place, or, being alone, has all of it. */
static void make_way(struct loop *l, const pl_err *err)
{
    struct work *victim = idle_work(l, NULL);
    int n = 0;

    if (l->counts.n_running == 1) { /* of any sort */
        if (l->run[0]->n_written > 0)
            loop_end_work(l, l->run[0], JOB_LENGTH, NULL);
        else
            loop_end_work(l, l->run[0], JOB_FAILED, err);
        return;
    }
    for (int i = 0; i < l->n_run; i++)
        l->client[n++] = l->run[i]->job.client;
    pthread_mutex_lock(&l->lock);
    if (!victim)
        victim = l->run[schedule_victim(&l->schedule, l->client, n)];
    pthread_mutex_unlock(&l->lock);
    loop_say(l, PL_LOG_INFO,
             "job %" PRIu64 " gives its place: the cache is full", victim->id);
    send_away(l, victim);
}

/* ---- what is told -------------------------------------------------------- */

static bool keep(struct loop *l, struct work *w, int32_t id)
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

/* Any token but one that ends a text. */
static int32_t sample_on(const struct loop *l, struct work *w, float *logits)
{
    int32_t id;

    for (int i = 0; i < l->n_end; i++) {
        l->end_logit[i] = logits[l->end[i]];
        logits[l->end[i]] = -INFINITY;
    }
    id = pl_sample(w->sampler, logits);
    for (int i = 0; i < l->n_end; i++) /* the listener is told them all */
        logits[l->end[i]] = l->end_logit[i];
    return id;
}

/* Chooses the next token; where none can be, -1 and why. A text that is to keep
 * to a grammar does not end before that holds. */
static int32_t choose(const struct loop *l, struct work *w, float *logits,
                      pl_err *err)
{
    const struct job_listener *j = &w->job.listener;
    int32_t id;

    if (w->job.grammar && !w->held && (!j->holds || j->holds(j->user))) {
        if (pl_sampler_set_grammar(w->sampler, w->job.grammar, err) != PL_OK)
            return -1;
        w->held = true;
    }
    if (w->job.grammar && !w->held)
        id = sample_on(l, w, logits);
    else
        id = pl_sample(w->sampler, logits);
    if (id < 0)
        pl_sampler_status(w->sampler, err);
    return id;
}

/* The next token of a job; it may have ended then. */
static void write_on(struct loop *l, struct work *w, float *logits)
{
    pl_err err;
    int32_t id;

    if (w->wrote == 0)
        w->wrote = loop_now();
    if (w->job.max_tokens == 0) { /* the prompt alone was wanted */
        if (w->job.keep)
            w->job.keep(w->job.listener.user, l->e, w->seq);
        loop_end_work(l, w, JOB_LENGTH, NULL);
        return;
    }
    id = choose(l, w, logits, &err);
    if (id < 0) {
        loop_end_work(l, w, JOB_FAILED, &err);
    } else if (!w->job.ignore_end && pl_token_ends(l->t, id)) {
        loop_end_work(l, w, JOB_ENDED, NULL);
    } else if (!keep(l, w, id)) {
        err = (pl_err){PL_NO_MEMORY, "out of memory for what a job writes"};
        loop_end_work(l, w, JOB_FAILED, &err);
    } else if (!w->job.listener.token(w->job.listener.user, id, logits)) {
        loop_end_work(l, w, JOB_TOLD, NULL);
    } else if (w->n_written == w->job.max_tokens || w->n_text >= l->n_ctx) {
        loop_end_work(l, w, JOB_LENGTH, NULL);
    }
}

/* What was cached of a prompt counts from its first step on: until then less of
 * it may be used than was found. */
static void show(struct loop *l, struct work *w, int64_t n_prompt)
{
    pthread_mutex_lock(&l->lock);
    if (!w->counted) {
        l->counts.n_cached += (uint64_t)w->n_cached;
        if (w->n_cached > w->n_shared)
            l->counts.n_back += (uint64_t)(w->n_cached - w->n_shared);
        w->counted = true;
    }
    l->slot[w->seq] = (struct loop_slot){.job = w->id,
                                         .n_prompt = w->job.n_prompt,
                                         .n_done = w->n_done,
                                         .n_written = w->n_written,
                                         .n_held = w->n_done};
    l->counts.n_prompt += (uint64_t)n_prompt;
    pthread_mutex_unlock(&l->lock);
}

/* The rows of this step, which are at *row, go to the job; it ends with its
 * prompt. */
static void tell_rows(struct loop *l, struct work *w, int64_t n_now,
                      const float **row)
{
    const struct job_listener *j = &w->job.listener;

    for (int64_t at = w->n_done - n_now; at < w->n_done; at++)
        if (w->job.rows == JOB_ALL_ROWS || at + 1 == w->n_text) {
            j->row(j->user, at, *row);
            *row += l->o.d_model;
        }
    if (w->n_done < w->n_text)
        return;
    w->wrote = loop_now();
    loop_end_work(l, w, JOB_ENDED, NULL);
}

/* After jobs [from, to) were computed, those that write or those that tell
 * rows; what they wanted is there in their order. */
static void tell(struct loop *l, int from, int to, bool rows)
{
    const float *row = l->row;
    float *logits = l->logits;

    for (int i = from; i < to; i++) {
        struct work *w = l->run[i];
        bool writing;

        if (l->rows[i] != rows || l->plan[i].n_now == 0)
            continue;
        writing = is_writing(w);
        w->n_done += l->plan[i].n_now;
        show(l, w, writing ? 0 : l->plan[i].n_now);
        if (w->job.listener.progress && w->n_written == 0)
            w->job.listener.progress(w->job.listener.user, w->n_done,
                                     w->job.n_prompt, w->n_cached);
        if (rows) {
            tell_rows(l, w, l->plan[i].n_now, &row);
        } else if (w->n_done == w->n_text) {
            write_on(l, w, logits);
            logits += l->n_vocab;
        }
    }
}

/* A device failed: what sequences hold is not to be trusted, and nothing can be
 * computed any more. */
static void end_lost(struct loop *l, const pl_err *why)
{
    struct work *w;

    pthread_mutex_lock(&l->lock);
    l->is_lost = true;
    l->lost = *why;
    pthread_mutex_unlock(&l->lock);
    loop_say(l, PL_LOG_WARN, "all requests of this model end: %s",
             why->message);
    /* Told first: who is refused now may ask again at once. */
    if (l->o.lost)
        l->o.lost(l->o.lost_user, why);
    while ((w = nth(l, 0)))
        loop_end_work(l, w, JOB_FAILED, why);
}

/* A step of jobs of one sort failed, for a cause that may be one's: each by
 * itself. */
static void compute_apart(struct loop *l, bool rows, const pl_err *why)
{
    pl_err err;

    loop_say(l, PL_LOG_WARN, "a step of %d jobs failed: %s", l->n_run,
             why->message);
    for (int i = 0; i < l->n_run; i++) {
        pl_status s;

        if (l->rows[i] != rows)
            continue;
        s = compute(l, i, i + 1, rows, &err);
        if (s == PL_DEVICE) {
            end_lost(l, &err);
            return;
        }
        if (s == PL_OK)
            tell(l, i, i + 1, rows);
        else
            loop_end_work(l, l->run[i], JOB_FAILED, &err);
    }
}

/* Where sequences stand after a step that failed: those that cannot go back
 * hold what was done. */
static void look_again(struct loop *l)
{
    for (int i = 0; i < l->n_run; i++) {
        struct work *w = l->run[i];
        const int64_t before = w->n_done;
        int64_t left;

        w->n_done = pl_seq_length(l->e, w->seq);
        if (w->n_done == w->n_text || /* computed, and its logits are lost */
            (l->rows[i] && w->n_done != before)) { /* or its rows */
            pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
            w->n_done = 0;
        }
        left = w->n_text - w->n_done;
        if (l->plan[i].n_now > left)
            l->plan[i].n_now = left;
    }
}

void loop_look(struct loop *l)
{
    pl_counters c;

    pl_engine_counters(l->e, &c, sizeof c);
    pthread_mutex_lock(&l->lock);
    l->counts.messages = c.messages;
    l->counts.message_bytes = c.message_bytes;
    l->counts.copy_bytes = c.copy_bytes;
    pl_engine_cache(l->e, &l->counts.cache, sizeof l->counts.cache);
    pl_engine_devices(l->e, l->device, l->n_device, sizeof *l->device);
    pthread_mutex_unlock(&l->lock);
}

/* What jobs of one sort have in this step; false: it failed, and nobody of
 * `run` may be looked at any more. */
static bool step_of(struct loop *l, bool rows)
{
    pl_err err;
    pl_status s = compute(l, 0, l->n_run, rows, &err);

    if (s == PL_OK) {
        tell(l, 0, l->n_run, rows);
        return true;
    }
    if (s == PL_DEVICE) {
        end_lost(l, &err);
        return false;
    }
    look_again(l);
    if (s == PL_FULL)
        make_way(l, &err);
    else
        compute_apart(l, rows, &err);
    return false;
}

/* Rows come first; those who told them, and may be gone, are none of the step
 * any more. */
static bool step_of_rows(struct loop *l)
{
    int n = 0;
    bool any = false;

    for (int i = 0; i < l->n_run; i++)
        any |= l->rows[i];
    if (!any)
        return true;
    if (!step_of(l, true))
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
    double began = loop_now(), stepped = l->counts.step_s;
    bool put;

    let_go(l);
    admit(l);
    put = loop_tiers_put(l);
    if (plan_step(l) == 0) {
        loop_look(l);
        return loop_tiers_give(l, 0) || put;
    }
    if (step_of_rows(l) && l->n_run > 0)
        step_of(l, false);
    loop_look(l);
    stepped = l->counts.step_s - stepped;
    pthread_mutex_lock(&l->lock);
    l->counts.self_s += loop_now() - began - stepped;
    pthread_mutex_unlock(&l->lock);
    loop_tiers_give(l, stepped / 16);
    return true;
}
