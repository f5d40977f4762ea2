/* The models behind one port: which there are, which of them are loaded, and
 * who uses them.
 *
 * A request names its model. Where that is loaded its handler runs at once.
 * Else it waits, and no thread with it, until the keeper, a thread of its own,
 * has loaded the model. The keeper does one thing at a time. It loads models in
 * the order in which they were first asked for; unloads the one whose last use
 * is longest ago where too many are loaded or memory is short; and unloads
 * those that nobody asks for any more. A model in use is never unloaded: who
 * uses it is counted (service_hold). So that requests without an end for some
 * do not shut out another, whose requests have waited for long: then the one
 * that was loaded first takes no new ones, which wait in their turn, and makes
 * way when those that it has have ended.
 *
 * What a model is, and how it is loaded, is its opener's business. */
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
    MODEL_FAILED, /* it was tried; whoever asks next has it tried again */
};

/* Strings are borrowed until models_free. */
struct model_about {
    const char *name;        /* for clients */
    const char *path;        /* a file, or a repository of a hub */
    const char *const *args; /* [n_args], the options that it has, as words */
    int n_args;
    int idle_s;  /* without a use, until it is unloaded; 0: it is kept */
    bool pinned; /* never unloaded, but by a client's wish */
    void *own;   /* its opener's */
};

struct models_options {
    int max_loaded;   /* 0: any number */
    int max_waiting;  /* requests that wait for models; 0: 256 */
    bool any_name;    /* there is one model, whatever requests call it */
    bool no_autoload; /* models are loaded by /models/load, and by requests
                         that ask for it with ?autoload=true; the others wait
                         only where that is under way */
    double wait_s;    /* that one waits for models in use, and that those have
                         been there, until one of them makes way; 0: 30 */
    double moment_s;  /* that memory which is short is waited for where models
                         are in use that may end soon; 0: half a second */
    /* The keeper calls them. NO_MEMORY, NO_DEVICE_MEMORY, FULL: it is tried
     * again where unloading another gives room. Once *cancel is nonzero, which
     * another thread sets, it is to end soon with CANCELLED, or well. */
    pl_status (*open)(void *user, const struct model_about *about,
                      const volatile int *cancel, struct service **out,
                      pl_err *err);
    void (*close)(void *user, struct service *v);
    void *user;
    pl_log_fn *log;
    void *log_user;
};

/* BAD_ARGUMENT: two have one name. The routes are those of its models
 * (service_routes) and those of /models. */
pl_status models_create(struct models **out, const struct model_about *about,
                        int n, const struct models_options *o,
                        const struct http_route *routes, int n_route,
                        pl_err *err);
/* From now on none is loaded, and that which is being loaded is given up;
 * requests that wait for one are refused, by the keeper. */
void models_drain(struct models *m);
/* After http_stop: requests that still wait are refused, all is unloaded. Takes
 * NULL. */
void models_free(struct models *m);

/* Has model i loaded, and waits until it is, or has failed. */
pl_status models_load(struct models *m, int i, pl_err *err);

/* All that is to be served, for http_start, with `m` as its user; until
 * models_free. */
const struct http_route *models_routes(const struct models *m, int *n);
/* The listener, for its load in metrics. */
void models_set_http(struct models *m, struct http *http);

#endif
