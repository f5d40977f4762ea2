/* The table of the models that a server offers: the models that exist, those
 * that are loaded, and the number of requests that use each.
 *
 * A request names its model. If the model is loaded, the request's handler runs
 * at once. Otherwise the request waits, without occupying a thread, until the
 * loader thread has loaded the model. The loader loads or unloads one model at
 * a time. It loads models in the order of their first requests. It unloads the
 * least recently used model if too many are loaded or memory is short, and
 * models that have been idle for too long. A model is never unloaded while it
 * is in use; its users are counted (service_hold).
 *
 * An endless stream of requests for loaded models must not starve a model that
 * is not loaded. So once requests for such a model have waited long, the loaded
 * model that was loaded first is evicted: it accepts no new requests, and it is
 * unloaded when its present requests have ended. New requests for it wait until
 * it is loaded again.
 *
 * The callback models_options.open loads a model; the table does not know
 * how. */
#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "http.h"
#include "service.h"

struct models;

enum model_state {
    MODEL_UNLOADED,
    MODEL_LOADING,
    MODEL_LOADED,
    MODEL_UNLOADING,
    /* The last load failed; the next request for the model starts another
     * load. */
    MODEL_FAILED,
};

/* Describes one model. The strings are borrowed until models_free. */
struct model_about {
    const char *name; /* name of the model, as clients use it */
    /* Further names by which requests may call the model, [n_alias]. */
    const char *const *alias;
    int n_alias;
    const char *tags; /* what clients may show, between commas; NULL for none */
    /* Path of the model's file, or the name of its repository on a hub. */
    const char *path;
    /* Command line options that apply to the model, [n_args]; shown in lists of
     * models. */
    const char *const *args;
    int n_args;
    /* The model is unloaded after this many seconds without a request; 0 for
     * never. */
    int idle_s;
    /* The model is never evicted; it is unloaded only if a client requests
     * that. */
    bool pinned;
    /* Pointer for the callback models_options.open; the table does not use
     * it. */
    void *own;
};

struct models_options {
    int max_loaded; /* limit of the number of loaded models; 0 for no limit */
    /* Limit of the number of requests that wait for models; 0 for 256. */
    int max_waiting;
    /* The server has one model, and the model name in a request is ignored. */
    bool any_name;
    /* Only /models/load and requests with ?autoload=true start the load of a
     * model. Any other request for a model that is not loaded waits if the load
     * was already requested; else it is rejected. */
    bool no_autoload;
    /* Seconds until a model in use is evicted to make space for a model that
     * requests wait for; 0 for 30. The time begins when the load was first
     * requested, or when the model in use was loaded, whichever is later. */
    double wait_s;
    /* If memory is short, a load waits this many seconds for another model to
     * become idle; 0 for 0.5. */
    double moment_s;
    /* Loads a model; called on the loader thread. If it returns NO_MEMORY,
     * NO_DEVICE_MEMORY or FULL, another model is unloaded, if possible, and
     * `open` is called again. Another thread may set *cancel to nonzero; then
     * `open` should soon return CANCELLED or success. */
    pl_status (*open)(void *user, const struct model_about *about,
                      const volatile int *cancel, struct service **out,
                      pl_err *err);
    void (*close)(void *user, struct service *v);
    /* Finds the models that were added or removed since the last call, and
     * calls models_add and models_hide for them. Called when a client asks for
     * the list of models or for an unknown model, on any thread, but never by
     * two threads at once. NULL if the set of models never changes. */
    void (*scan)(void *user, struct models *m);
    /* Called when a device of a loaded model has failed, before its requests
     * end, on the thread of its loop. May be NULL. */
    void (*lost)(void *user);
    void *user;
    pl_log_fn *log;
    void *log_user;
};

/* Creates the table of the n models `about` and starts the loader thread.
 * `routes` are the routes of a service (service_routes); models_routes returns
 * them after the table's own routes. BAD_ARGUMENT: two models have the same
 * name or alias. Other errors: NO_MEMORY. */
pl_status models_create(struct models **out, const struct model_about *about,
                        int n, const struct models_options *o,
                        const struct http_route *routes, int n_route,
                        pl_err *err);
/* Adds a model to the table. BAD_ARGUMENT: its name or an alias is in use.
 * FULL: 1,000 models were added since models_create. Only the callback
 * models_options.scan may call it. */
pl_status models_add(struct models *m, const struct model_about *about,
                     pl_err *err);
/* Hides model i because its file is gone, or shows it again. i is its index in
 * the order of models_create and models_add. A hidden model is not listed, and
 * requests do not find it. If it is loaded, it is unloaded when its requests
 * have ended. */
void models_hide(struct models *m, int i, bool hidden);
/* Waits until the loader thread has ended, then ends all requests of loaded
 * models. Streamed responses end with an error that says that the server is
 * stopping. Called after models_drain. */
void models_cancel(struct models *m);
/* Stops the loading of models: cancels a load in progress. The loader thread
 * then rejects all requests that wait for a model, and ends. */
void models_drain(struct models *m);
/* Rejects requests that still wait for a model, unloads all models, and frees
 * the table. Called after http_stop. NULL is allowed. */
void models_free(struct models *m);

/* Loads model i and waits until it is loaded or loading has failed. Returns the
 * result of the load. */
pl_status models_load(struct models *m, int i, pl_err *err);

/* Returns the *n routes of the table for http_start, valid until models_free.
 * The `user` argument of http_start must be `m`. */
const struct http_route *models_routes(const struct models *m, int *n);
/* Sets the HTTP server whose numbers of connections and requests the metrics
 * contain. */
void models_set_http(struct models *m, struct http *http);

#endif
