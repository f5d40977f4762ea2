/* Finds the model that a request names, and passes the request to the model's
 * service. Also handles requests about the table of models. See models.h. */
#include "models_inner.h"

#include "json_field.h"
#include "json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- running or queueing a request of a model ---------------------------- */

/* Returns the service's route for a request. If the request matched one of the
 * table's own routes, this is the route of a service with the same path. */
static const struct http_route *inner_of(const struct models *m,
                                         const struct http_request *r)
{
    int i = http_route_index(r), k = 0;

    if (i >= m->n_own)
        return &m->inner[i - m->n_own];
    while (strcmp(m->inner[k].path, m->route[i].path) != 0)
        k++;
    return &m->inner[k];
}

/* Returns true for a read-only request: one with any method but POST. Such a
 * request does not keep its model loaded. It loads a model only with
 * ?autoload=true. */
static bool only_looks(const struct http_request *r)
{
    return strcmp(http_method(r), "POST") != 0;
}

void models_run(void *model, struct http_request *r)
{
    struct model *a = model;
    struct models *m = a->of;
    /* Called before the handler, because the handler may free `r`. */
    bool looks = only_looks(r);
    double seconds;
    bool keeps = models_read_keep(r, &seconds);

    if (!looks) {
        pthread_mutex_lock(&m->lock);
        a->requested = ++m->n_request;
        pthread_mutex_unlock(&m->lock);
    }
    /* The model stays loaded during the call, because the caller counted a use
     * of it (models_use). */
    inner_of(m, r)->handle(a->service, r);
    pthread_mutex_lock(&m->lock);
    models_use(a, -1);
    if (!looks)
        a->used = clock_now();
    if (keeps)
        models_keep(m, a, seconds);
    pthread_mutex_unlock(&m->lock);
}

void models_reject_load(struct http_request *r, const pl_err *err)
{
    struct api_error why;

    api_error_set_status(&why, err->status, err);
    if (why.status == 400) /* status 400 would blame the request, which is
                              valid */
        why.status = err->status == PL_FULL ? 503 : 500;
    why.code = "model_not_loaded";
    service_reject(r, &why);
}

static void append(struct model *a, struct models_waiting *w)
{
    struct models_waiting **end = &a->first;

    while (*end)
        end = &(*end)->next;
    w->next = NULL;
    *end = w;
}

/* Rejects those requests waiting for model `a` whose clients have disconnected.
 * Caller holds models.lock. */
static void end_left(struct models *m, struct model *a)
{
    const pl_err left = {PL_CANCELLED, "the client disconnected"};
    struct models_waiting *w = a->first, *next;

    a->first = NULL;
    for (; w; w = next) {
        next = w->next;
        if (!http_has_left(w->r)) {
            append(a, w);
            continue;
        }
        m->n_waiting--;
        /* Ends the request; its client has disconnected and gets no
         * response. */
        models_reject_load(w->r, &left);
        free(w);
    }
}

/* Makes a request wait for its model, and requests a load of the model. Returns
 * false with *why filled if the request must be rejected. Caller holds
 * models.lock. */
static bool wait_for(struct models *m, struct model *a, struct http_request *r,
                     struct api_error *why)
{
    struct models_waiting *w = NULL;

    for (int i = 0; i < m->n && m->n_waiting >= m->o.max_waiting; i++)
        end_left(m, &m->model[i]);
    if (m->n_waiting >= m->o.max_waiting)
        return api_error_set(why, 429, NULL, NULL,
                             "the queue is full: %d requests are waiting for "
                             "models; try again later",
                             m->n_waiting);
    if (m->stops)
        return api_error_set(why, 503, "model_not_loaded", NULL,
                             "the server is stopping");
    if (!(w = calloc(1, sizeof *w)))
        return api_error_set_memory(why);
    w->r = r;
    append(a, w);
    m->n_waiting++;
    models_request_load(m, a);
    return true;
}

static bool may_load(const struct models *m, const struct http_request *r)
{
    const char *autoload = http_query(r, "autoload");

    if (!autoload)
        return !m->o.no_autoload && !only_looks(r);
    return strcmp(autoload, "true") == 0 || strcmp(autoload, "1") == 0;
}

void models_dispatch(struct models *m, struct model *a, struct http_request *r)
{
    bool autoload = may_load(m, r), run, waits = false;
    struct api_error why;

    pthread_mutex_lock(&m->lock);
    /* A read-only request runs even if the eviction of its model is pending,
     * because the request ends soon and hardly delays the eviction. */
    run = models_is_ready(a) ||
          (only_looks(r) && a->state == MODEL_LOADED && !a->unload_pending);
    if (run)
        models_use(a, 1);
    else if (autoload ||
             ((a->queue_pos > 0 || a->evict_pending) && !only_looks(r)))
        waits = wait_for(m, a, r, &why);
    else
        api_error_set(&why, 400, "model_not_loaded", "model",
                      "model \"%.80s\" is not loaded, and this request does "
                      "not load it; POST /models/load first",
                      a->about.name);
    pthread_mutex_unlock(&m->lock);
    if (run)
        models_run(a, r);
    else if (!waits)
        service_reject(r, &why);
}

/* ---- finding the model that a request names ------------------------------ */

/* Sets *name to the query argument "model" or, if there is none, to the field
 * "model" of the JSON body. If there is neither, sets it to NULL. Sets *owner
 * to the parsed body, which owns *name; the caller releases it. Returns false
 * with *why filled if the body is invalid. */
static bool read_name(const struct http_request *r, const char **name,
                      json_t **owner, struct api_error *why)
{
    size_t len;
    const char *body = http_body(r, &len);
    struct fields f;

    *name = http_query(r, "model");
    if (*name || len == 0)
        return true;
    return fields_read(&f, owner, body, len, why) &&
           field_text(&f, "model", name);
}

/* Returns the index of the only model of the table, or -1 if there are
 * several. */
static int only_model(const struct models *m)
{
    int only = -1, n = 0;

    for (int i = 0; i < m->n; i++)
        if (!m->model[i].hidden) {
            only = i;
            n++;
        }
    return n == 1 ? only : -1;
}

/* Returns the model that a request names or, if there is only one model, that
 * model. NULL with *why filled if the name is unknown, or missing although
 * there are several models. */
static struct model *find_model(struct models *m, const struct http_request *r,
                                struct api_error *why)
{
    const char *name = NULL;
    json_t *owner = NULL;
    struct model *a = NULL;
    int i = -1;

    if (m->o.any_name)
        return &m->model[0];
    if (read_name(r, &name, &owner, why)) {
        i = name ? models_find_anew(m, name) : only_model(m);
        if (i >= 0)
            a = &m->model[i];
        else
            models_reject_name(m, name, why);
    }
    json_decref(owner);
    return a;
}

void models_on_request(void *models, struct http_request *r)
{
    struct models *m = models;
    const struct http_route *route = inner_of(m, r);
    struct api_error why;
    struct model *a;

    if (route->flags & SERVICE_NONE) {
        route->handle(NULL, r);
        return;
    }
    a = find_model(m, r, &why);
    if (a)
        models_dispatch(m, a, r);
    else
        service_reject(r, &why);
}

/* ---- listing the models -------------------------------------------------- */

/* Names of the states of models in llama.cpp's server, which its clients
 * expect. A failed load has no name of its own there. */
static const char *const state_names[] = {
    [MODEL_UNLOADED] = "unloaded", [MODEL_LOADING] = "loading",
    [MODEL_LOADED] = "loaded",     [MODEL_UNLOADING] = "unloading",
    [MODEL_FAILED] = "unloaded",
};

static json_t *status_json(const struct model *a)
{
    json_t *args = json_array(), *status;

    for (int i = 0; i < a->about.n_args; i++)
        json_text_add(&args,
                      json_text(a->about.args[i], strlen(a->about.args[i])));
    status =
        json_pack("{s:s, s:o}", "value", state_names[a->state], "args", args);
    if (a->queue_pos > 0 && a->state != MODEL_LOADING)
        json_text_put(&status, "queued", json_true());
    if (a->state == MODEL_FAILED) {
        json_text_put(&status, "failed", json_true());
        json_text_put(&status, "error",
                      json_text(a->why.message, strlen(a->why.message)));
    }
    return status;
}

static json_t *meta_json(const struct service *v)
{
    const struct model_facts *f = &v->facts;

    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "vocab_type",
                     f->vocab_type, "n_vocab",
                     (json_int_t)pl_tokenizer_n_vocab(v->words), "n_ctx",
                     (json_int_t)pl_engine_n_ctx(v->engine), "n_ctx_train",
                     (json_int_t)pl_model_n_ctx_train(v->model), "n_embd",
                     (json_int_t)pl_model_d_model(v->model), "n_params",
                     (json_int_t)f->n_param, "size", (json_int_t)f->n_byte,
                     "architecture", pl_model_arch(v->model));
}

/* Returns the names of a model that requests may use, as a JSON list. */
static json_t *names_json(const struct model_about *a)
{
    json_t *list = json_array();

    json_text_add(&list, json_text(a->name, strlen(a->name)));
    for (int i = 0; i < a->n_alias; i++)
        json_text_add(&list, json_text(a->alias[i], strlen(a->alias[i])));
    return list;
}

/* Returns the tags of a model as a JSON list. */
static json_t *tags_json(const char *tags)
{
    json_t *list = json_array();

    while (tags != NULL && *tags != '\0') {
        size_t n = strcspn(tags, ",");

        if (n > 0)
            json_text_add(&list, json_text(tags, n));
        tags += n + (tags[n] == ',');
    }
    return list;
}

static json_t *model_json(const struct models *m, const struct model *a)
{
    const struct service *v = a->service;

    return json_pack(
        "{s:o, s:o, s:o, s:s, s:I, s:s, s:o, s:o, s:b, s:i,"
        " s:{s:[s], s:[s]}, s:o?}",
        "id", json_text(a->about.name, strlen(a->about.name)), "aliases",
        names_json(&a->about), "tags", tags_json(a->about.tags), "object",
        "model", "created", (json_int_t)m->created, "owned_by", "plait", "path",
        json_text(a->about.path, strlen(a->about.path)), "status",
        status_json(a), "pinned", (int)a->about.pinned, "uses", a->n_use,
        "architecture", "input_modalities", "text", "output_modalities", "text",
        "meta", v && v->engine ? meta_json(v) : NULL);
}

/* Returns a model as an item of the second list of models, which llama-server
 * has for clients of Ollama's API. Fields that are empty there are so here. */
static json_t *short_json(const struct model *a)
{
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:[s], s:s,"
        " s:{s:s, s:s, s:s, s:[s], s:s, s:s}}",
        "name", json_text(a->about.name, strlen(a->about.name)), "model",
        json_text(a->about.name, strlen(a->about.name)), "modified_at", "",
        "size", "", "digest", "", "type", "model", "description", "", "tags",
        tags_json(a->about.tags), "capabilities", "completion", "parameters",
        "", "details", "parent_model", "", "format", "gguf", "family", "",
        "families", "", "parameter_size", "", "quantization_level", "");
}

static void respond_list(void *user, struct http_request *r)
{
    struct models *m = user;
    json_t *list = json_array(), *other = json_array();

    models_scan(m);
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n; i++)
        if (!m->model[i].hidden) {
            json_text_add(&list, model_json(m, &m->model[i]));
            json_text_add(&other, short_json(&m->model[i]));
        }
    pthread_mutex_unlock(&m->lock);
    service_respond_json(r, json_pack("{s:o, s:s, s:o}", "models", other,
                                      "object", "list", "data", list));
}

/* Handles GET /models. A scan for new models reads files, so a handler thread
 * does the work. */
static void on_list(void *user, struct http_request *r)
{
    const struct models *m = user;

    if (!m->o.scan || !http_hand(r, respond_list, user))
        respond_list(user, r);
}

/* Handles GET /v1/models/{}: describes the model with this name. */
static void on_model(void *user, struct http_request *r)
{
    struct models *m = user;
    const char *name = http_name(r);
    int i = models_find(m, name);
    struct api_error why;
    json_t *j;

    if (i < 0) {
        models_reject_name(m, name, &why);
        service_reject(r, &why);
        return;
    }
    pthread_mutex_lock(&m->lock);
    j = model_json(m, &m->model[i]);
    pthread_mutex_unlock(&m->lock);
    service_respond_json(r, j);
}

/* ---- routes that load and unload models ---------------------------------- */

static struct model *named(struct models *m, struct http_request *r)
{
    struct api_error why;
    struct model *a = find_model(m, r, &why);

    if (!a)
        service_reject(r, &why);
    return a;
}

/* Handles /models/load: requests a load and responds at once. The list of
 * models shows the progress. */
static void on_load(void *user, struct http_request *r)
{
    struct models *m = user;
    struct model *a = named(m, r);

    if (!a)
        return;
    pthread_mutex_lock(&m->lock);
    if (!models_is_ready(a))
        models_request_load(m, a);
    pthread_mutex_unlock(&m->lock);
    service_respond_json(r, json_pack("{s:b}", "success", 1));
}

/* Handles /models/unload: unloads a model once its present requests have ended.
 * Later requests load the model again. If the model is being loaded, its load
 * is cancelled, and the requests that wait for it are rejected. */
static void on_unload(void *user, struct http_request *r)
{
    struct models *m = user;
    struct model *a = named(m, r);
    struct api_error why;
    bool ok;

    if (!a)
        return;
    pthread_mutex_lock(&m->lock);
    ok = models_unload(m, a) || models_cancel_load(m, a);
    if (!ok)
        api_error_set(&why, 400, "model_not_loaded", "model",
                      "model \"%.80s\" is not loaded; list the loaded models "
                      "with GET /models",
                      a->about.name);
    pthread_mutex_unlock(&m->lock);
    if (ok)
        service_respond_json(r, json_pack("{s:b}", "success", 1));
    else
        service_reject(r, &why);
}

char *models_saved_props(const struct service *v)
{
    json_t *j = v->loop ? service_props(v, true) : NULL;
    char *s = j ? json_text_plain(j, JSON_COMPACT) : NULL;

    json_decref(j);
    return s;
}

/* Responds to /props with the properties that an unloaded model had at its last
 * load. Returns false without a response if the request does not name such a
 * model. */
static bool respond_asleep(struct models *m, struct http_request *r)
{
    struct api_error why;
    struct model *a = find_model(m, r, &why);
    char *props = NULL;

    if (a) {
        pthread_mutex_lock(&m->lock);
        if (a->state != MODEL_LOADED && a->props)
            props = strdup(a->props);
        pthread_mutex_unlock(&m->lock);
    }
    if (!props)
        return false;
    service_respond(r, props);
    return true;
}

/* Handles /props: describes the server if the request names no model, else
 * passes the request to that model's service. */
static void on_props(void *user, struct http_request *r)
{
    struct models *m = user;

    if (!m->o.any_name && !http_query(r, "model"))
        service_respond_json(
            r, json_pack("{s:s, s:i, s:b, s:s}", "role", "router",
                         "max_instances", m->o.max_loaded, "models_autoload",
                         !m->o.no_autoload, "build_info", pl_version()));
    else if (!respond_asleep(m, r))
        models_on_request(m, r);
}

const struct http_route models_own_routes[] = {
    {"GET", "/models", on_list, 0},
    {"GET", "/v1/models", on_list, 0},
    {"GET", "/v1/models/{}", on_model, 0},
    {"GET", "/props", on_props, 0},
    {"GET", "/metrics", models_on_metrics, 0},
    {"POST", "/models/load", on_load, 0},
    {"POST", "/models/unload", on_unload, 0},
};
const int models_n_own_route =
    sizeof models_own_routes / sizeof *models_own_routes;
