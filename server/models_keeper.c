/* The thread that loads and unloads models. See models.h. */
#include "models_inner.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static void say(const struct models *m, pl_log_level level, const char *form,
                ...) __attribute__((format(printf, 3, 4)));
static void say(const struct models *m, pl_log_level level, const char *form,
                ...)
{
    char text[1400];
    va_list a;

    if (!m->o.log)
        return;
    va_start(a, form);
    vsnprintf(text, sizeof text, form, a);
    va_end(a);
    m->o.log(m->o.log_user, level, text);
}

/* ---- unloading: with the lock held, which is given back meanwhile -------- */

static void unload(struct models *m, struct model *a, const char *why)
{
    struct service *v = a->service;

    a->state = MODEL_UNLOADING;
    a->service = NULL;
    pthread_mutex_unlock(&m->lock);
    m->o.close(m->o.user, v);
    say(m, PL_LOG_INFO, "%s is unloaded: %s", a->about.name, why);
    pthread_mutex_lock(&m->lock);
    a->state = MODEL_UNLOADED;
    a->leaves = false;
}

/* Whose last use is longest ago, of those that may go; NULL: none may. */
static struct model *least_used(struct models *m)
{
    struct model *least = NULL;

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->state == MODEL_LOADED && a->n_use == 0 && !a->about.pinned &&
            (!least || a->asked < least->asked))
            least = a;
    }
    return least;
}

static bool is_idle_too_long(const struct model *a, double now)
{
    return a->about.idle_s > 0 && !a->about.pinned &&
           now - a->used >= a->about.idle_s;
}

/* One that has to go; false: none has. */
static bool unload_one(struct models *m)
{
    const double now = loop_now();

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->state != MODEL_LOADED || a->n_use > 0)
            continue;
        if (!a->leaves && !is_idle_too_long(a, now))
            continue;
        unload(m, a, a->leaves ? "as was wished" : "nobody used it");
        return true;
    }
    return false;
}

/* ---- loading ------------------------------------------------------------- */

static bool is_short(pl_status s)
{
    return s == PL_NO_MEMORY || s == PL_NO_DEVICE_MEMORY || s == PL_FULL;
}

/* Opens it, unloading others as long as that gives memory. Without the lock. */
static pl_status open_model(struct models *m, struct model *a,
                            struct service **v, pl_err *err)
{
    pl_status s;
    struct model *other;

    while (is_short(s = m->o.open(m->o.user, &a->about, v, err))) {
        pthread_mutex_lock(&m->lock);
        other = m->stops ? NULL : least_used(m);
        if (other)
            unload(m, other, "its memory is needed");
        pthread_mutex_unlock(&m->lock);
        if (!other)
            break;
    }
    return s;
}

/* Who waited for it is told. */
static void end_load(struct models *m, struct model *a)
{
    a->turn = 0;
    a->n_try++;
    models_wake(m, a);
    pthread_cond_broadcast(&m->told);
}

static void load(struct models *m, struct model *a)
{
    double began = loop_now();
    struct service *v = NULL;
    pl_status s;
    pl_err err;

    a->state = MODEL_LOADING;
    pthread_mutex_unlock(&m->lock);
    s = open_model(m, a, &v, &err);
    if (s == PL_OK)
        say(m, PL_LOG_INFO, "%s is loaded, in %.1f s", a->about.name,
            loop_now() - began);
    else
        say(m, PL_LOG_WARN, "%s could not be loaded: %s", a->about.name,
            err.message);
    pthread_mutex_lock(&m->lock);
    a->state = s == PL_OK ? MODEL_LOADED : MODEL_FAILED;
    if (s == PL_OK) {
        v->owner = models_owner(a);
        v->http = m->http;
        v->n_answer = m->n_load++ << 24; /* no two answers have one name */
        a->service = v;
    } else {
        a->why = err;
        a->why.status = s;
    }
    a->used = loop_now();
    a->asked = ++m->n_asked;
    a->leaves = false;
    end_load(m, a);
}

/* Who asked first, of those that are not loaded; NULL: nobody asks. */
static struct model *next_model(struct models *m)
{
    struct model *next = NULL;

    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];

        if (a->turn > 0 && a->state != MODEL_LOADED &&
            (!next || a->turn < next->turn))
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

/* Will any that is loaded ever make way by itself? */
static bool any_may_go(const struct models *m)
{
    for (int i = 0; i < m->n; i++) {
        const struct model *a = &m->model[i];

        if (a->state == MODEL_LOADED && (!a->about.pinned || a->leaves))
            return true;
    }
    return false;
}

/* Who waited for a place here would wait for ever. */
static void refuse_place(struct models *m, struct model *a)
{
    a->state = MODEL_FAILED;
    a->why.status = PL_FULL;
    snprintf(a->why.message, sizeof a->why.message,
             "all %d places are taken by pinned models: unload one of them, or "
             "start the server with a larger --models-max",
             m->o.max_loaded);
    end_load(m, a);
}

/* Loads one, makes a place for it, or refuses it; false: there is nothing to
 * do, or all that are loaded are in use. */
static bool load_one(struct models *m)
{
    struct model *a = next_model(m), *other;

    if (!a)
        return false;
    if (m->o.max_loaded == 0 || count_loaded(m) < m->o.max_loaded) {
        load(m, a);
        return true;
    }
    other = least_used(m);
    if (other)
        unload(m, other, "its place is needed");
    else if (!any_may_go(m))
        refuse_place(m, a);
    else
        return false;
    return true;
}

/* ---- the thread ---------------------------------------------------------- */

/* Until a model has been idle for too long; 0: none ever will. */
static double next_idle(const struct models *m)
{
    double next = 0;

    for (int i = 0; i < m->n; i++) {
        const struct model *a = &m->model[i];
        double at = a->used + a->about.idle_s;

        if (a->state == MODEL_LOADED && a->n_use == 0 && !a->about.pinned &&
            a->about.idle_s > 0 && (next == 0 || at < next))
            next = at;
    }
    return next;
}

static void wait_for_work(struct models *m)
{
    double at = next_idle(m);
    struct timespec t;

    if (at == 0) {
        pthread_cond_wait(&m->come, &m->lock);
        return;
    }
    at += 1e-3; /* past it, however the clock rounds */
    t.tv_sec = (time_t)at;
    t.tv_nsec = (long)((at - (double)t.tv_sec) * 1e9);
    pthread_cond_timedwait(&m->come, &m->lock, &t);
}

void *models_keep(void *models)
{
    struct models *m = models;

    pthread_mutex_lock(&m->lock);
    while (!m->stops)
        if (!unload_one(m) && !load_one(m))
            wait_for_work(m);
    /* Whoever waits in models_load is told. */
    for (int i = 0; i < m->n; i++)
        m->model[i].n_try++;
    pthread_cond_broadcast(&m->told);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}
