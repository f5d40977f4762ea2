/* The models that one server offers: which exist, which are loaded, and how
 * many requests use them.
 *
 * A request names its model. If the model is loaded, the request's handler runs
 * at once. Otherwise the request waits, without occupying a thread, until the
 * loader thread has loaded the model. The loader loads or unloads one model at
 * a time. It loads models in the order of their first requests. It unloads the
 * least recently used model if too many are loaded or memory is short, and
 * models that have been idle for too long. A model in use is never unloaded:
 * its users are counted (service_hold).
 *
 * An endless stream of requests for loaded models must not starve a model that
 * is not loaded. So once requests for such a model have waited long, the model
 * that was loaded first accepts no new requests. These wait for it to be loaded
 * again, and it is unloaded when its present requests have ended.
 *
 * The `open` callback decides what a model is and how it is loaded. */
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
    MODEL_FAILED, /* loading failed; the next request loads it again */
};

/* Describes one model. Strings are borrowed until models_free. */
struct model_about {
    const char *name; /* name that clients use */
    /* further names that requests may use, [n_alias] */
    const char *const *alias;
    int n_alias;
    const char *path;        /* file name of the model, or its repository on a
                                hub */
    const char *const *args; /* command line options of the model, [n_args];
                                shown in lists of models */
    int n_args;
    int idle_s;  /* seconds without a request after which the model is unloaded;
                    0 for never */
    bool pinned; /* the model is unloaded only if a client requests that */
    void *own;   /* pointer of models_options.open, which alone interprets it */
};

struct models_options {
    int max_loaded;  /* most models loaded at once; 0 for any number */
    int max_waiting; /* most requests that wait for models; 0 for 256 */
    bool any_name;   /* there is one model, and the name in a request is
                        ignored */
    /* Models are loaded only by /models/load and by requests with
     * ?autoload=true. Other requests for a model that is not loaded wait only
     * if its load was already requested; else they are rejected. */
    bool no_autoload;
    /* Seconds after which a model in use is evicted for a model that requests
     * wait for (see above); 0 for 30. They begin when the waiting requests
     * first asked for a load or when the model in use was loaded, whichever is
     * later. */
    double wait_s;
    double moment_s; /* if memory is short, seconds that a load waits for
                        another model to become idle; 0 for 0.5 */
    /* Loads a model; called on the loader thread. If it returns NO_MEMORY,
     * NO_DEVICE_MEMORY or FULL, another model is unloaded, if possible, and
     * `open` is called again. Another thread may set *cancel to nonzero; then
     * `open` should soon return CANCELLED or success. */
    pl_status (*open)(void *user, const struct model_about *about,
                      const volatile int *cancel, struct service **out,
                      pl_err *err);
    void (*close)(void *user, struct service *v);
    /* Looks for models that were added or removed since the last call, and
     * calls models_add and models_hide for them. Called when a client asks for
     * the list of models or for an unknown one, on any thread, but never by two
     * at once. NULL if the models are always the same. */
    void (*scan)(void *user, struct models *m);
    void *user;
    pl_log_fn *log;
    void *log_user;
};

/* Creates the table of n models and starts the loader thread. `routes` are the
 * routes of a service (service_routes). models_routes returns them after the
 * table's own routes. BAD_ARGUMENT: two models have the same name or alias.
 * Other errors: NO_MEMORY. */
pl_status models_create(struct models **out, const struct model_about *about,
                        int n, const struct models_options *o,
                        const struct http_route *routes, int n_route,
                        pl_err *err);
/* Adds a model. BAD_ARGUMENT: the name or an alias is in use. FULL: 1,000
 * models were added since models_create. Called by the scan callback only. */
pl_status models_add(struct models *m, const struct model_about *about,
                     pl_err *err);
/* Hides model i because its file is gone, or shows it again. i is its index in
 * the order of models_create and models_add. A hidden model is not listed, and
 * requests do not find it. If it is loaded, it is unloaded when its requests
 * have ended. */
void models_hide(struct models *m, int i, bool hidden);
/* Waits until the loader thread has ended, then ends all requests of loaded
 * models. Streams end with an error that says that the server is stopping.
 * Called after models_drain. */
void models_cancel(struct models *m);
/* Stops loading: cancels a load in progress. The loader thread then rejects all
 * requests that wait for a model, and ends. */
void models_drain(struct models *m);
/* Rejects requests that still wait, unloads all models, and frees the table.
 * Called after http_stop. NULL is allowed. */
void models_free(struct models *m);

/* Loads model i and waits until it is loaded or loading has failed. Returns the
 * result of the load. */
pl_status models_load(struct models *m, int i, pl_err *err);

/* Returns the routes for http_start, [*n], valid until models_free. Its `user`
 * argument must be `m`. */
const struct http_route *models_routes(const struct models *m, int *n);
/* Sets the HTTP server whose connections and requests the metrics count. */
void models_set_http(struct models *m, struct http *http);

#endif
