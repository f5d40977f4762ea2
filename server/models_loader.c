/* The loader thread, which loads and unloads models. See models.h. */
#include "models_inner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- unloading models ---------------------------------------------------- */

/* Unloads a loaded model and logs the reason `why`. Caller holds models.lock,
 * which is released meanwhile. */
static void unload(struct models *m, struct model *a, const char *why)
{
    struct service *v = a->service;
    char *past;

    a->state = MODEL_UNLOADING;
    pthread_mutex_unlock(&m->lock);
    /* Finishes pending writes to the tiers, so that their counters are final
     * for models_saved_totals. */
    service_settle(v);
    /* Needs no lock, because only this thread changes a->past. */
    past = models_saved_totals(v, a->past);
    pthread_mutex_lock(&m->lock);
    while (a->n_use > 0) /* other threads may still be reading the service's
                            metrics */
        pthread_cond_wait(&m->wake, &m->lock);
    a->service = NULL;
    if (past) {
        free(a->past);
        a->past = past;
    }
    pthread_mutex_unlock(&m->lock);
    m->o.close(m->o.user, v);
    server_log(m->o.log, m->o.log_user, PL_LOG_INFO, "%s: unloaded, %s",
               a->about.name, why);
    pthread_mutex_lock(&m->lock);
    a->state = MODEL_UNLOADED;
    a->unload_pending = a->evict_pending = false;
}

/* Returns the least recently used of the models that are loaded, not in use and
 * not pinned; NULL if there is none. */
static struct model *lru_model(struct models *m)
{
    struct model *least = NULL;

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->state == MODEL_LOADED && a->n_use == 0 && !a->about.pinned &&
            (!least || a->requested < least->requested))
            least = a;
    }
    return least;
}

/* Returns true if any loaded model may be unloaded, now or once it is no longer
 * in use. */
static bool any_evictable(const struct models *m)
{
    for (int i = 0; i < m->n; i++) {
        const struct model *a = &m->model[i];

        if (a->state == MODEL_LOADED && (!a->about.pinned || a->unload_pending))
            return true;
    }
    return false;
}

static bool is_idle_too_long(const struct model *a, double now)
{
    return a->idle_s > 0 && !a->about.pinned && now - a->used >= a->idle_s;
}

/* Unloads one model that is not in use: one that must be unloaded or evicted,
 * or that has been idle for too long. Returns false if there is none. Caller
 * holds models.lock, which is released meanwhile. */
static bool unload_one(struct models *m)
{
    const double now = clock_now();

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->state != MODEL_LOADED || a->n_use > 0)
            continue;
        if (!a->unload_pending && !a->evict_pending &&
            !is_idle_too_long(a, now))
            continue;
        unload(m, a,
               a->unload_pending  ? "as requested"
               : a->evict_pending ? "evicted for a waiting model"
                                  : "idle for too long");
        return true;
    }
    return false;
}

/* ---- loading models ------------------------------------------------------ */

static bool lacks_memory(pl_status s)
{
    return s == PL_NO_MEMORY || s == PL_NO_DEVICE_MEMORY || s == PL_FULL;
}

/* Returns an idle model to unload because memory is short; NULL if there is
 * none. Waits up to moment_s seconds for a model to become idle, because a
 * client may request the next model before its previous request counts as
 * ended. Caller holds models.lock, which is released meanwhile. */
static struct model *find_idle_victim(struct models *m)
{
    const double until = clock_now() + m->o.moment_s;
    struct model *a = NULL;

    while (!m->stops && !(a = lru_model(m)) && any_evictable(m) &&
           clock_now() < until)
        /* a millisecond more, so that `until` has passed in spite of
         * rounding */
        clock_wait(&m->wake, &m->lock, until + 1e-3);
    return m->stops ? NULL : a;
}

/* Opens a model. If memory is short, unloads other models one by one and tries
 * again. Caller does not hold models.lock. */
static pl_status open_model(struct models *m, struct model *a,
                            struct service **v, pl_err *err)
{
    pl_status s;
    struct model *other;

    while (
        lacks_memory(s = m->o.open(m->o.user, &a->about, &a->cancel, v, err))) {
        pthread_mutex_lock(&m->lock);
        other = find_idle_victim(m);
        if (other)
            unload(m, other, "to free its memory for another model");
        pthread_mutex_unlock(&m->lock);
        if (!other)
            break;
    }
    return s;
}

/* Sets a->why to the error that a cancelled load reports. */
static void set_cancelled(const struct models *m, struct model *a)
{
    a->why.status = PL_CANCELLED;
    snprintf(a->why.message, sizeof a->why.message, "%s",
             m->stops ? "the server is stopping"
                      : "unloaded while loading; load it again");
}

static void load(struct models *m, struct model *a)
{
    double began = clock_now();
    struct service *v = NULL;
    char *props = NULL;
    pl_status s;
    pl_err err = {0};

    a->state = MODEL_LOADING;
    __atomic_store_n(&a->cancel, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&m->lock);
    s = open_model(m, a, &v, &err);
    if (s == PL_OK)
        props = models_saved_props(v);
    if (s == PL_OK)
        server_log(m->o.log, m->o.log_user, PL_LOG_INFO, "%s: loaded in %.1f s",
                   a->about.name, clock_now() - began);
    else if (s == PL_CANCELLED)
        server_log(m->o.log, m->o.log_user, PL_LOG_INFO,
                   "%s: loading cancelled, %s", a->about.name, err.message);
    else
        server_log(m->o.log, m->o.log_user, PL_LOG_WARN, "%s: cannot load: %s",
                   a->about.name, err.message);
    pthread_mutex_lock(&m->lock);
    a->state = s == PL_OK          ? MODEL_LOADED
               : s == PL_CANCELLED ? MODEL_UNLOADED
                                   : MODEL_FAILED;
    a->unload_pending =
        s == PL_OK && __atomic_load_n(&a->cancel, __ATOMIC_RELAXED);
    if (s == PL_OK) {
        v->owner = models_owner(a);
        v->http = m->http;
        /* So that the ids of responses differ from those of the model's earlier
         * loads. */
        v->n_response = m->n_load++ << 24;
        a->service = v;
        free(a->props);
        a->props = props;
    }
    a->why = err;
    a->why.status = s;
    if (s == PL_CANCELLED || a->unload_pending)
        set_cancelled(m, a);
    a->used = a->loaded = clock_now();
    a->requested = ++m->n_request;
    models_finish_load(m, a);
}

/* Returns the first model in the load queue that is not loaded; NULL if there
 * is none. A model in the load queue may be loaded, if its eviction is
 * pending. */
static struct model *next_model(struct models *m)
{
    struct model *next = NULL;

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->queue_pos > 0 && a->state != MODEL_LOADED &&
            (!next || a->queue_pos < next->queue_pos))
            next = a;
    }
    return next;
}

static int count_loaded(const struct models *m)
{
    int n = 0;

    for (int i = 0; i < m->n; i++)
        n += m->model[i].state == MODEL_LOADED;
    return n;
}

/* Fails the load of a model because the limit of loaded models is reached and
 * all loaded models are pinned. */
static void fail_all_pinned(struct models *m, struct model *a)
{
    a->state = MODEL_FAILED;
    a->why.status = PL_FULL;
    snprintf(a->why.message, sizeof a->why.message,
             "all %d loaded models are pinned; unload one of them, or start "
             "the server with a larger --models-max",
             m->o.max_loaded);
    models_finish_load(m, a);
}

/* ---- evicting models that are in use ------------------------------------- */

/* Returns the model to evict when all loaded models are in use: the one that
 * was loaded first among those that are not pinned. NULL if there is none, or
 * if any model is about to be unloaded anyway. */
static struct model *oldest_loaded(struct models *m)
{
    struct model *first = NULL;

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->state != MODEL_LOADED)
            continue;
        if (a->unload_pending || a->evict_pending)
            return NULL;
        if (!a->about.pinned && (!first || a->loaded < first->loaded))
            first = a;
    }
    return first;
}

/* Returns the time by clock_now, in seconds, at which model `first` must be
 * evicted for model `a`; 0 if either is NULL. */
static double eviction_time(const struct models *m, const struct model *a,
                            const struct model *first)
{
    return !a || !first ? 0 : m->o.wait_s + fmax(a->since, first->loaded);
}

/* Cancels all pending evictions, because no model waits for space any more.
 * Runs the requests that wait for the models whose eviction is cancelled. */
static void cancel_evictions(struct models *m)
{
    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (!a->evict_pending)
            continue;
        a->evict_pending = false;
        if (models_is_ready(a)) {
            a->queue_pos = 0;
            models_dispatch_waiting(m, a);
        }
    }
}

/* Starts evicting the model of oldest_loaded for model `a`, if requests for `a`
 * have waited long enough. Returns false if they must wait longer, or if there
 * is no model to evict. */
static bool request_eviction(struct models *m, const struct model *a)
{
    struct model *first = oldest_loaded(m);

    if (!first || clock_now() < eviction_time(m, a, first))
        return false;
    first->evict_pending = true;
    server_log(m->o.log, m->o.log_user, PL_LOG_INFO,
               "%s: queueing new requests until it is evicted for %s",
               first->about.name, a->about.name);
    return true;
}

/* Works on the first model in the load queue: loads it, unloads another model
 * or requests its eviction, or fails the load. Returns false if the queue is
 * empty, or if all loaded models are in use and none can be evicted yet. */
static bool load_one(struct models *m)
{
    struct model *a = next_model(m), *other;

    if (!a || m->o.max_loaded == 0 || count_loaded(m) < m->o.max_loaded)
        cancel_evictions(m);
    if (!a)
        return false;
    if (m->o.max_loaded == 0 || count_loaded(m) < m->o.max_loaded) {
        load(m, a);
        return true;
    }
    other = lru_model(m);
    if (other)
        unload(m, other, "evicted for another model (--models-max)");
    else if (!any_evictable(m))
        fail_all_pinned(m, a);
    else
        return request_eviction(m, a);
    return true;
}

/* ---- main function of the loader thread ---------------------------------- */

/* Returns the earliest time by clock_now, in seconds, at which a model will
 * have been idle for so long that it must be unloaded; 0 if there is none. */
static double next_idle(const struct models *m)
{
    double next = 0;

    for (int i = 0; i < m->n; i++) {
        const struct model *a = &m->model[i];
        double at = a->used + a->idle_s;

        if (a->state == MODEL_LOADED && a->n_use == 0 && !a->about.pinned &&
            a->idle_s > 0 && (next == 0 || at < next))
            next = at;
    }
    return next;
}

static void wait_for_request(struct models *m)
{
    double at = next_idle(m), way = 0;
    struct model *a = next_model(m);

    if (a && m->o.max_loaded > 0 && count_loaded(m) >= m->o.max_loaded)
        way = eviction_time(m, a, oldest_loaded(m));
    if (way > 0 && (at == 0 || way < at))
        at = way;
    if (at == 0)
        pthread_cond_wait(&m->wake, &m->lock);
    else
        clock_wait(&m->wake, &m->lock, at + 1e-3);
}

void *models_loader_thread(void *models)
{
    struct models *m = models;

    pthread_mutex_lock(&m->lock);
    while (!m->stops)
        if (!unload_one(m) && !load_one(m))
            wait_for_request(m);
    /* Rejects all requests that wait for a model. */
    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        set_cancelled(m, a);
        models_finish_load(m, a);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}
