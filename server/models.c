/* The table of models, with the number of users of each model. See models.h. */
#include "models_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Limit of the number of models that models_add may add. */
enum { MORE_MODELS = 1000 };

/* ---- counting users, requesting loads and unloads ------------------------ */

void models_use(struct model *a, int more)
{
    a->n_use += more;
    if (a->n_use == 0)
        pthread_cond_signal(&a->of->wake);
}

/* The callbacks by which a loaded service reports to the table of models
 * (struct service_owner). */
static void on_use(void *user, int more)
{
    struct model *a = user;
    struct models *m = a->of;

    pthread_mutex_lock(&m->lock);
    models_use(a, more);
    a->used = clock_now();
    pthread_mutex_unlock(&m->lock);
}

static void on_lost(void *user, const pl_err *err)
{
    struct model *a = user;
    struct models *m = a->of;

    (void)err; /* the loop has logged the error already */
    pthread_mutex_lock(&m->lock);
    a->unload_pending = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    if (m->o.lost)
        m->o.lost(m->o.user);
}

bool models_is_ready(const struct model *a)
{
    return a->state == MODEL_LOADED && !a->unload_pending && !a->evict_pending;
}

void models_request_load(struct models *m, struct model *a)
{
    if (a->queue_pos == 0) {
        a->queue_pos = ++m->last_turn;
        a->since = clock_now();
    }
    pthread_cond_signal(&m->wake);
}

void models_dispatch_waiting(struct models *m, struct model *a)
{
    struct models_waiting *w, *next;

    for (w = a->first; w; w = next) {
        bool run = models_is_ready(a);

        next = w->next;
        m->n_waiting--;
        if (run)
            models_use(a, 1);
        if (run && !http_hand(w->r, models_run, a))
            models_use(a, -1), run = false;
        if (!run)
            models_reject_load(w->r, &a->why);
        free(w);
    }
    a->first = NULL;
}

void models_finish_load(struct models *m, struct model *a)
{
    a->queue_pos = 0;
    a->n_try++;
    models_dispatch_waiting(m, a);
    pthread_cond_broadcast(&m->load_ended);
}

static void stop_load(struct model *a)
{
    __atomic_store_n(&a->cancel, 1, __ATOMIC_RELAXED);
}

bool models_unload(struct models *m, struct model *a)
{
    if (a->state != MODEL_LOADED)
        return false;
    a->unload_pending = true;
    pthread_cond_signal(&m->wake);
    return true;
}

bool models_cancel_load(struct models *m, struct model *a)
{
    if (a->state == MODEL_LOADING) {
        stop_load(a);
        return true;
    }
    if (a->queue_pos == 0)
        return false;
    server_fail(&a->why, PL_CANCELLED,
                "unloaded before it could be loaded; load it again");
    models_finish_load(m, a);
    return true;
}

/* ---- comparing model names ----------------------------------------------- */

/* Returns the length of a model's name without the tag ":latest", in bytes.
 * Ollama's clients add this tag to names that have no tag. */
static size_t untagged(const char *name)
{
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;

    return n > n_tag && strcmp(name + n - n_tag, tag) == 0 ? n - n_tag : n;
}

/* The ways in which a model's name may match that of a request, strictest
 * first. */
enum match {
    MATCH_EXACT,
    MATCH_UNTAGGED, /* without the tag ":latest" */
    MATCH_ANY_CASE, /* likewise, in upper or lower case */
    MATCH_NO_QUANT  /* likewise, without the part after the model's colon */
};

/* Returns true if the model's name `of` matches the name `name` of a request in
 * the way `how`. */
static bool same_name(const char *of, const char *name, enum match how)
{
    size_t n = untagged(name), n_of = untagged(of);

    if (how == MATCH_EXACT)
        return strcmp(of, name) == 0;
    if (how == MATCH_UNTAGGED)
        return n_of == n && strncmp(of, name, n) == 0;
    return strncasecmp(of, name, n) == 0 &&
           (n_of == n || (how == MATCH_NO_QUANT && of[n] == ':'));
}

static bool has_name(const struct model_about *a, const char *name,
                     enum match how)
{
    if (same_name(a->name, name, how))
        return true;
    for (int i = 0; i < a->n_alias; i++)
        if (same_name(a->alias[i], name, how))
            return true;
    return false;
}

static bool is_offered(const struct model *a, const char *name, enum match how)
{
    return !a->hidden && has_name(&a->about, name, how);
}

/* Tries the ways of matching a name up to `last`, until some model matches.
 * Returns the index of that model; -1 if no model or several match. */
static int find(const struct models *m, const char *name, enum match last)
{
    for (enum match how = MATCH_EXACT; how <= last; how++) {
        int found = -1, n = 0;

        for (int i = 0; i < m->n; i++)
            if (is_offered(&m->model[i], name, how)) {
                found = i;
                n++;
            }
        if (n > 0)
            return n == 1 ? found : -1;
    }
    return -1;
}

int models_find(const struct models *m, const char *name)
{
    return find(m, name, MATCH_NO_QUANT);
}

int models_find_anew(struct models *m, const char *name)
{
    int i = find(m, name, MATCH_UNTAGGED);

    if (i >= 0)
        return i;
    models_scan(m);
    return models_find(m, name);
}

void models_scan(struct models *m)
{
    if (!m->o.scan)
        return;
    pthread_mutex_lock(&m->scan_lock);
    m->o.scan(m->o.user, m);
    pthread_mutex_unlock(&m->scan_lock);
}

bool models_reject_name(const struct models *m, const char *name,
                        struct api_error *why)
{
    char names[400] = "";
    size_t n = 0;
    bool some = false; /* the name fits some models, so only these are listed */

    for (int i = 0; i < m->n && name && !some; i++)
        some = is_offered(&m->model[i], name, MATCH_NO_QUANT);
    for (int i = 0; i < m->n && n < sizeof names; i++)
        if (some ? is_offered(&m->model[i], name, MATCH_NO_QUANT)
                 : !m->model[i].hidden)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s\"%s\"",
                                  n > 0 ? ", " : "", m->model[i].about.name);
    if (n >= sizeof names)
        memcpy(names + sizeof names - 4, "...", 4);
    if (!name)
        return api_error_set(
            why, 400, "model_required", "model",
            "model: required, because the server has several; use one of %s",
            names);
    return api_error_set(why, 404, "model_not_found", "model",
                         "model \"%.80s\" %s; use one of %s", name,
                         some ? "fits several" : "not found", names);
}

/* ---- creating and freeing the table of models ---------------------------- */

/* Appends a model to the table. Its name must differ from the names of all
 * other models, even of hidden ones, because the file of a hidden model may
 * reappear. */
static pl_status append(struct models *m, const struct model_about *about,
                        pl_err *err)
{
    for (int i = 0; i < m->n; i++)
        for (int k = -1; k < about->n_alias; k++) {
            const char *name = k < 0 ? about->name : about->alias[k];

            if (has_name(&m->model[i].about, name, MATCH_EXACT))
                return server_fail(
                    err, PL_BAD_ARGUMENT,
                    "model name \"%s\" is used twice (%s and %s); "
                    "rename one of them with --alias or in a preset",
                    name, m->model[i].about.path, about->path);
        }
    if (m->n == m->max)
        return server_fail(
            err, PL_FULL,
            "%s: more than %d models were added; restart the server",
            about->path, MORE_MODELS);
    m->model[m->n].of = m;
    m->model[m->n].about = *about;
    m->model[m->n].idle_s = about->idle_s;
    m->n++; /* from here on other threads see the new model */
    return PL_OK;
}

pl_status models_add(struct models *m, const struct model_about *about,
                     pl_err *err)
{
    pl_status s;

    pthread_mutex_lock(&m->lock);
    s = append(m, about, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

void models_hide(struct models *m, int i, bool hidden)
{
    struct model *a = &m->model[i];

    pthread_mutex_lock(&m->lock);
    a->hidden = hidden;
    if (hidden)
        models_unload(m, a);
    pthread_mutex_unlock(&m->lock);
}

static void fill_routes(struct models *m)
{
    memcpy(m->route, models_own_routes,
           (size_t)models_n_own_route * sizeof *m->route);
    memcpy(m->route + models_n_own_route, models_ollama_routes,
           (size_t)models_n_ollama_route * sizeof *m->route);
    memcpy(m->route + m->n_own, m->inner,
           (size_t)(m->n_route - m->n_own) * sizeof *m->route);
    for (int i = m->n_own; i < m->n_route; i++)
        m->route[i].handle = models_on_request;
}

pl_status models_create(struct models **out, const struct model_about *about,
                        int n, const struct models_options *o,
                        const struct http_route *routes, int n_route,
                        pl_err *err)
{
    struct models *m = calloc(1, sizeof *m);
    pl_status s = PL_OK;

    *out = NULL;
    if (!m)
        return server_fail(err, PL_NO_MEMORY,
                           "out of memory for the table of models");
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->scan_lock, NULL);
    clock_cond_init(&m->wake);
    clock_cond_init(&m->load_ended);
    m->o = *o;
    if (m->o.max_waiting == 0)
        m->o.max_waiting = 256;
    if (m->o.wait_s == 0)
        m->o.wait_s = 30;
    if (m->o.moment_s == 0)
        m->o.moment_s = 0.5;
    m->max = n + (o->scan ? MORE_MODELS : 0);
    m->inner = routes;
    m->n_own = models_n_own_route + models_n_ollama_route;
    m->n_route = m->n_own + n_route;
    m->created = (int64_t)time(NULL);
    m->model = calloc((size_t)m->max + 1, sizeof *m->model);
    m->route = calloc((size_t)m->n_route + 1, sizeof *m->route);
    if (!m->model || !m->route)
        s = server_fail(err, PL_NO_MEMORY,
                        "out of memory for the table of models");
    for (int i = 0; i < n && s == PL_OK; i++)
        s = append(m, &about[i], err);
    if (s == PL_OK) {
        fill_routes(m);
        m->has_keeper =
            pthread_create(&m->keeper, NULL, models_loader_thread, m) == 0;
        if (!m->has_keeper)
            s = server_fail(
                err, PL_NO_MEMORY,
                "cannot start the thread that loads models; raise the "
                "limits of threads and memory (ulimit -u, -v)");
    }
    if (s == PL_OK)
        *out = m;
    else
        models_free(m);
    return s;
}

void models_drain(struct models *m)
{
    pthread_mutex_lock(&m->lock);
    m->stops = true;
    for (int i = 0; m->model && i < m->n; i++)
        stop_load(&m->model[i]);
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void models_cancel(struct models *m)
{
    if (m->has_keeper)
        pthread_join(m->keeper, NULL);
    /* The loader thread has ended, so no service is freed from here on. */
    m->has_keeper = false;
    for (int i = 0; i < m->n; i++)
        if (m->model[i].service)
            loop_stop(m->model[i].service->loop);
}

void models_free(struct models *m)
{
    if (!m)
        return;
    models_drain(m);
    if (m->has_keeper)
        pthread_join(m->keeper, NULL);
    for (int i = 0; m->model && i < m->n; i++) {
        struct model *a = &m->model[i];

        /* Makes models_is_ready return false, so that waiting requests are
         * rejected. */
        a->unload_pending = true;
        server_fail(&a->why, PL_CANCELLED, "the server is stopping");
        models_dispatch_waiting(m, a);
        if (a->service)
            m->o.close(m->o.user, a->service); /* the callback `close` waits
                                                  until the service has no
                                                  users */
        free(a->past);
        json_decref(a->file);
        free(a->props);
    }
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->load_ended);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->scan_lock);
    free(m->model);
    free(m->route);
    free(m);
}

pl_status models_load(struct models *m, int i, pl_err *err)
{
    struct model *a = &m->model[i];
    pl_status s = PL_OK;
    uint64_t n_try;

    pthread_mutex_lock(&m->lock);
    n_try = a->n_try;
    if (!models_is_ready(a)) {
        models_request_load(m, a);
        while (a->n_try == n_try)
            pthread_cond_wait(&m->load_ended, &m->lock);
        if (a->state != MODEL_LOADED)
            s = server_fail(err, a->why.status, "%s", a->why.message);
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

const struct http_route *models_routes(const struct models *m, int *n)
{
    *n = m->n_route;
    return m->route;
}

void models_set_http(struct models *m, struct http *http)
{
    pthread_mutex_lock(&m->lock);
    m->http = http;
    for (int i = 0; i < m->n; i++)
        if (m->model[i].service)
            m->model[i].service->http = http;
    pthread_mutex_unlock(&m->lock);
}

/* Returns the callbacks for a model's service. The loader thread sets them as
 * the owner of the service. */
struct service_owner models_owner(struct model *a)
{
    return (struct service_owner){on_use, on_lost, a};
}
