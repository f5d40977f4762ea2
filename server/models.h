/* The models behind one port: which exist, which are loaded, and how many
 * requests use them.
 *
 * A request names its model. If that is loaded, its handler runs at once.
 * Otherwise the request waits, without occupying a thread, until the loader
 * thread has loaded the model. The loader does one thing at a time. It loads
 * models in the order of their first requests. It unloads the least recently
 * used one if too many are loaded or memory is short, and those that have been
 * idle for too long. A model in use is never unloaded: its users are counted
 * (service_hold).
 *
 * An endless stream of requests for loaded models must not starve another one.
 * So once requests for that have waited long, the model loaded first takes no
 * new requests: these queue for it like others, and it is unloaded when its
 * present ones have ended.
 *
 * What a model is, and how it is loaded, is up to the `open` callback. */
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
    MODEL_FAILED, /* loading failed; the next request tries again */
};

/* Strings are borrowed until models_free. */
struct model_about {
    const char *name;        /* for clients */
    const char *path;        /* a file, or a repository of a hub */
    const char *const *args; /* [n_args], its command line options */
    int n_args;
    int idle_s;  /* seconds of idling before it is unloaded; 0: never */
    bool pinned; /* unloaded only by a client's request */
    void *own;   /* for models_options.open */
};

struct models_options {
    int max_loaded;   /* 0: any number */
    int max_waiting;  /* requests that wait for models; 0: 256 */
    bool any_name;    /* there is one model, and any name in a request means
                         it */
    bool no_autoload; /* models are loaded only by /models/load and by requests
                         with ?autoload=true; others wait only if loading is
                         already under way */
    double wait_s;    /* a model in use is drained once a request has waited,
                         and that model has been loaded, for this many seconds;
                         0: 30 */
    double moment_s;  /* seconds to wait for memory while models in use may
                         become idle soon; 0: 0.5 */
    /* Called on the loader thread. NO_MEMORY, NO_DEVICE_MEMORY, FULL: called
     * again if unloading another model frees memory. Once *cancel is nonzero,
     * which another thread sets, it should return soon, with CANCELLED or
     * success. */
    pl_status (*open)(void *user, const struct model_about *about,
                      const volatile int *cancel, struct service **out,
                      pl_err *err);
    void (*close)(void *user, struct service *v);
    void *user;
    pl_log_fn *log;
    void *log_user;
};

/* Creates the table. BAD_ARGUMENT: two models have one name. The routes are
 * those of its models (service_routes) and those of /models. */
pl_status models_create(struct models **out, const struct model_about *about,
                        int n, const struct models_options *o,
                        const struct http_route *routes, int n_route,
                        pl_err *err);
/* Stops loading: a load in progress is cancelled, and the loader rejects
 * requests that wait for one. */
void models_drain(struct models *m);
/* Called after http_stop: rejects requests that still wait, and unloads all
 * models. Takes NULL. */
void models_free(struct models *m);

/* Loads model i and waits until it is loaded or has failed. */
pl_status models_load(struct models *m, int i, pl_err *err);

/* Returns the routes for http_start, whose `user` is m; valid until
 * models_free. */
const struct http_route *models_routes(const struct models *m, int *n);
/* Sets the listener whose load metrics report. */
void models_set_http(struct models *m, struct http *http);

#endif
