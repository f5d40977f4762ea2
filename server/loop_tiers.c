/* Connects the loop with the cache tiers (tiers.h). Pages are copied to the
 * tiers between steps, a few at a time. They are loaded from the tiers before a
 * task's first step.
 *
 * The prompt of a waiting task is looked up in the tiers once, when a slot is
 * free for the task. While the task waits for the result, other tasks are
 * admitted. After admission, the pages that were found are loaded into its
 * sequence, as threads of the tiers read them. Pages are loaded between steps,
 * for a limited time, so that other tasks are not delayed much. After the last
 * page the task takes part in steps. If a lookup or load fails, the rest of its
 * prompt is computed. */
#include "loop_inner.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    MAX_LOOKING = 16, /* limit of the number of tasks that wait for a lookup */
};

/* Seconds for loading pages between two steps, if no other task runs. */
static const double alone_s = 0.05;
/* Seconds for loading pages between two steps, if other tasks run. */
static const double beside_s = 0.005;

/* ---- copying pages to the tiers ------------------------------------------ */

bool loop_tiers_offload(struct loop *l, double seconds)
{
    double end = clock_now() + seconds;
    bool gave = false;

    if (!l->o.tiers)
        return false;
    do {
        int64_t n;
        bool resumable;
        void *data;
        size_t bytes;
        pl_err err;

        if (tiers_is_full(l->o.tiers))
            return gave;
        if (pl_prefix_export_page(l->e, l->path, pl_engine_n_ctx(l->e), &n,
                                  &resumable, &data, &bytes, &err) != PL_OK) {
            server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
                       "cannot save a KV cache page to the tiers: %s",
                       err.message);
            return gave;
        }
        if (n == 0)
            return gave;
        tiers_store(l->o.tiers, l->path, n, resumable, data, bytes);
        gave = true;
    } while (clock_now() < end);
    return gave;
}

bool loop_tiers_backlogged(struct loop *l)
{
    return l->o.tiers && tiers_is_full(l->o.tiers);
}

/* ---- loading pages from the tiers ---------------------------------------- */

/* Wakes the loop's thread; a callback of tiers_search. It does not take the
 * loop's lock, because it must not wait. So the thread may miss the signal, but
 * it checks again within 5 ms. */
static void wake(void *user)
{
    struct loop *l = user;

    pthread_cond_signal(&l->wake);
}

static int count_lookups(struct loop *l)
{
    int n = 0;

    for (int i = 0; i < l->n_task; i++)
        n += l->task[i]->at == TASK_LOOKING;
    return n;
}

bool loop_tiers_lookup(struct loop *l, struct task *w)
{
    int64_t length;
    bool enough;

    if (!l->o.tiers || w->tiers_searched || w->params.no_cache ||
        w->at != TASK_WAITING || count_lookups(l) >= MAX_LOOKING)
        return false;
    w->tiers_searched = true;
    w->tiers_deadline = clock_now() + l->o.look_s;
    length = pl_prefix_match_length(l->e, w->text, w->n_text);
    enough = w->n_text - 1 - length < TIER_TOKENS;
    w->search = tiers_search(l->o.tiers, w->text, w->n_text, length, wake, l);
    if (enough) /* Less than a page of the prompt is missing on the devices, so
                   no page is loaded. The lookup was started only to mark the
                   tiers' copies of the cached pages as used. */
        loop_tiers_cancel(l, w);
    if (w->search)
        loop_set_state(l, w, TASK_LOOKING);
    return w->search != NULL;
}

bool loop_tiers_is_pending(const struct loop *l, const struct task *w)
{
    return w->at == TASK_LOOKING && !tiers_search_done(w->search) &&
           clock_now() < w->tiers_deadline && !tiers_disk_stalled(l->o.tiers);
}

void loop_tiers_cancel(struct loop *l, struct task *w)
{
    if (w->search)
        tiers_search_free(l->o.tiers, w->search);
    w->search = NULL;
}

/* Ends the loading of a task's pages. Trims the task's sequence to the longest
 * length at which the task can continue. */
static void finish_loading(struct loop *l, struct task *w)
{
    int64_t kept = 0;

    loop_tiers_cancel(l, w);
    loop_set_state(l, w, TASK_PREFILL);
    if (pl_seq_trim(l->e, w->seq, w->n_done, &kept, NULL) != PL_OK)
        return;
    w->n_done = w->n_cached = kept;
    loop_drafts_begin(l, w);
}

void loop_tiers_abort(struct loop *l, struct task *w)
{
    if (w->at == TASK_LOADING)
        finish_loading(l, w);
}

bool loop_tiers_start(struct loop *l, struct task *w)
{
    struct tiers_found f;

    w->n_loaded = 0;
    if (!w->search)
        return false;
    if (!tiers_search_done(w->search)) {
        server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
                   "task %" PRIu64 ": lookup in the cache folder timed out; "
                   "computing the whole prompt",
                   w->id);
        loop_tiers_cancel(l, w);
        return false;
    }
    f = tiers_search_found(w->search);
    if (f.end <= w->n_cached) {
        loop_tiers_cancel(l, w);
        return false;
    }
    if (w->n_cached % TIER_TOKENS != 0 && f.from == 0) {
        /* The engine cannot append pages to a sequence that ends within a page.
         * The tiers have a longer prefix, so load all pages of it from token 0
         * on. */
        pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
        w->n_done = w->n_cached = w->n_shared = 0;
    }
    if (w->n_cached < f.from || w->n_cached % TIER_TOKENS != 0)
        loop_tiers_cancel(l, w); /* the cached prefix on the devices, which the
                                    found pages continue, was evicted */
    else
        w->n_loaded = (int)((w->n_cached - f.from) / TIER_TOKENS);
    w->tiers_deadline = clock_now() + l->o.look_s;
    return w->search != NULL;
}

static void load_entry(struct loop *l, struct task *w,
                       const struct tier_entry *e)
{
    double began = clock_now();
    bool last = ++w->n_loaded == tiers_search_found(w->search).n;
    pl_err err;
    pl_status s = pl_seq_import_page(l->e, w->seq, w->text + e->first, e->n,
                                     e->data, e->bytes, &err);

    if (s == PL_OK) {
        w->n_done += e->n;
        w->n_cached = w->n_done;
    } else {
        server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
                   "cannot load a KV cache page from the tiers: %s",
                   err.message);
        if (s == PL_BAD_FILE || s == PL_BAD_ARGUMENT || s == PL_UNSUPPORTED)
            tiers_report_corrupt(l->o.tiers, e);
    }
    w->tiers_deadline = clock_now() + l->o.look_s;
    pthread_mutex_lock(&l->lock);
    l->counts.restore_s += clock_now() - began;
    pthread_mutex_unlock(&l->lock);
    if (s != PL_OK || last)
        finish_loading(l, w);
}

/* Loads the next page of a task from the tiers. After the last page, on failure
 * or on timeout, ends the loading instead. Returns false if the next page has
 * not been read yet. */
static bool load_next(struct loop *l, struct task *w)
{
    bool ended, late = clock_now() > w->tiers_deadline ||
                       tiers_disk_stalled(l->o.tiers);
    const struct tier_entry *e =
        tiers_lookup_page(l->o.tiers, w->search, w->n_loaded, &ended);

    if (e)
        load_entry(l, w, e);
    else if (ended || late)
        finish_loading(l, w);
    if (!e && !ended && late)
        server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
                   "task %" PRIu64
                   ": loading pages from the cache folder timed "
                   "out; computing the rest of the prompt",
                   w->id);
    return e || ended || late;
}

bool loop_tiers_load(struct loop *l)
{
    double end = clock_now() + (l->counts.n_running > 1 ? beside_s : alone_s);
    bool any = false;

    for (int i = 0; i < l->n_task; i++)
        while (l->task[i]->at == TASK_LOADING) {
            if (any && clock_now() > end)
                return true;
            if (!load_next(l, l->task[i]))
                break;
            any = true;
        }
    return any;
}
