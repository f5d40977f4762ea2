/* The loop and the tiers of the cache (tiers.h): pages go there between two
 * steps, a few at a time, and come back before a job's first step.
 *
 * A job that waits is looked up once, when a place for it is free; meanwhile
 * others come. What was found is put into its sequence page by page, as it
 * comes, in no more time between two steps than others can spare, and then it
 * takes part in steps. Whatever fails on the way, the rest of its prompt is
 * computed. */
#include "loop_inner.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    MAX_LOOKING = 16, /* jobs that wait for the tiers */
};

static const double alone_s = 0.05;   /* of putting, where nobody else runs */
static const double beside_s = 0.005; /* where others do */

/* ---- there --------------------------------------------------------------- */

bool loop_tiers_give(struct loop *l, double seconds)
{
    double end = loop_now() + seconds;
    bool gave = false;

    if (!l->o.tiers)
        return false;
    do {
        int64_t n;
        bool goes_on;
        void *data;
        size_t bytes;
        pl_err err;

        if (tiers_full(l->o.tiers))
            return gave;
        if (pl_kept_next(l->e, l->path, pl_engine_n_ctx(l->e), &n, &goes_on,
                         &data, &bytes, &err) != PL_OK) {
            loop_say(l, PL_LOG_WARN, "a page of the cache is not saved: %s",
                     err.message);
            return gave;
        }
        if (n == 0)
            return gave;
        tiers_give(l->o.tiers, l->path, n, goes_on, data, bytes);
        gave = true;
    } while (loop_now() < end);
    return gave;
}

bool loop_tiers_owe(struct loop *l)
{
    return l->o.tiers && tiers_full(l->o.tiers);
}

/* ---- back ---------------------------------------------------------------- */

/* The reader may tell while the loop looks elsewhere, and is not waited for:
 * who waits for it looks again soon. */
static void wake(void *user)
{
    struct loop *l = user;

    pthread_cond_signal(&l->come);
}

static int n_looking(struct loop *l)
{
    int n = 0;

    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_work; i++)
        n += l->work[i]->at == WORK_WAITS && l->work[i]->search;
    pthread_mutex_unlock(&l->lock);
    return n;
}

bool loop_tiers_look(struct loop *l, struct work *w)
{
    int64_t length;
    bool enough;

    if (!l->o.tiers || w->looked || w->job.no_cache || w->at != WORK_WAITS ||
        n_looking(l) >= MAX_LOOKING)
        return false;
    w->looked = true;
    w->look_end = loop_now() + l->o.look_s;
    length = pl_kept_length(l->e, w->text, w->n_text);
    enough = w->n_text - 1 - length < TIER_TOKENS;
    w->search = tiers_search(l->o.tiers, w->text, w->n_text, length, wake, l);
    if (enough) /* it counts as used there */
        loop_tiers_leave(l, w);
    return w->search != NULL;
}

bool loop_tiers_waits(const struct loop *l, const struct work *w)
{
    return w->at == WORK_WAITS && w->search && !tiers_search_done(w->search) &&
           loop_now() < w->look_end && !tiers_hangs(l->o.tiers);
}

void loop_tiers_leave(struct loop *l, struct work *w)
{
    if (w->search)
        tiers_search_free(l->o.tiers, w->search);
    w->search = NULL;
}

bool loop_tiers_puts(const struct work *w)
{
    return w->at == WORK_RUNS && w->search;
}

/* The sequence has all that comes; where no state is behind it, it goes back
 * to where one is. */
static void end_putting(struct loop *l, struct work *w)
{
    int64_t kept = 0;

    loop_tiers_leave(l, w);
    if (pl_seq_trim(l->e, w->seq, w->n_done, &kept, NULL) != PL_OK)
        return;
    w->n_done = w->n_cached = kept;
}

void loop_tiers_stop(struct loop *l, struct work *w)
{
    if (loop_tiers_puts(w))
        end_putting(l, w);
    else
        loop_tiers_leave(l, w);
}

void loop_tiers_begin(struct loop *l, struct work *w)
{
    struct tiers_found f;

    w->n_put = 0;
    if (!w->search)
        return;
    if (!tiers_search_done(w->search)) {
        loop_say(l, PL_LOG_WARN,
                 "job %" PRIu64 " waits no longer for the cache's folder, "
                 "which does not answer; its prompt is computed",
                 w->id);
        loop_tiers_leave(l, w);
        return;
    }
    f = tiers_search_found(w->search);
    if (f.end <= w->n_cached) {
        loop_tiers_leave(l, w);
        return;
    }
    if (w->n_cached % TIER_TOKENS != 0 && f.from == 0) {
        /* A state within a page is not gone on from, and less is there. */
        pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
        w->n_done = w->n_cached = w->n_shared = 0;
    }
    if (w->n_cached < f.from || w->n_cached % TIER_TOKENS != 0)
        loop_tiers_leave(l, w); /* what it began behind has gone since */
    else
        w->n_put = (int)((w->n_cached - f.from) / TIER_TOKENS);
    w->look_end = loop_now() + l->o.look_s;
}

static void put_entry(struct loop *l, struct work *w,
                      const struct tier_entry *e)
{
    double began = loop_now();
    bool last = ++w->n_put == tiers_search_found(w->search).n;
    pl_err err;
    pl_status s = pl_seq_extend(l->e, w->seq, w->text + e->first, e->n, e->data,
                                e->bytes, &err);

    if (s == PL_OK) {
        w->n_done += e->n;
        w->n_cached = w->n_done;
    } else {
        loop_say(l, PL_LOG_WARN, "a page of the cache does not come back: %s",
                 err.message);
        if (s == PL_BAD_FILE || s == PL_BAD_ARGUMENT || s == PL_UNSUPPORTED)
            tiers_damaged(l->o.tiers, e);
    }
    w->look_end = loop_now() + l->o.look_s;
    pthread_mutex_lock(&l->lock);
    l->counts.back_s += loop_now() - began;
    pthread_mutex_unlock(&l->lock);
    if (s != PL_OK || last)
        end_putting(l, w);
}

/* The next entry; at the last, or where one fails, it is over. False: it has
 * not come yet. */
static bool put_one(struct loop *l, struct work *w)
{
    bool ended, late = loop_now() > w->look_end || tiers_hangs(l->o.tiers);
    const struct tier_entry *e =
        tiers_search_take(l->o.tiers, w->search, w->n_put, &ended);

    if (e)
        put_entry(l, w, e);
    else if (ended || late)
        end_putting(l, w);
    if (!e && !ended && late)
        loop_say(l, PL_LOG_WARN,
                 "job %" PRIu64 " waits no longer for the cache's folder, "
                 "which does not answer; the rest of its prompt is computed",
                 w->id);
    return e || ended || late;
}

/* NULL: there are no more. The loop's thread alone removes jobs. */
static struct work *nth(struct loop *l, int n)
{
    struct work *w;

    pthread_mutex_lock(&l->lock);
    w = n < l->n_work ? l->work[n] : NULL;
    pthread_mutex_unlock(&l->lock);
    return w;
}

bool loop_tiers_put(struct loop *l)
{
    double end = loop_now() + (l->counts.n_running > 1 ? beside_s : alone_s);
    struct work *w;
    bool any = false;

    if (!l->o.tiers)
        return false;
    for (int i = 0; (w = nth(l, i)); i++)
        while (loop_tiers_puts(w)) {
            if (any && loop_now() > end)
                return true;
            if (!put_one(l, w))
                break;
            any = true;
        }
    return any;
}
