/* Shared by the files of models.h; not included elsewhere. */
#ifndef SERVER_MODELS_INNER_H
#define SERVER_MODELS_INNER_H

#include "json_text.h"
#include "models.h"

#include <pthread.h>

/* A request that waits for its model. */
struct models_waiting {
    struct http_request *r;
    struct models_waiting *next;
};

struct model {
    struct models *of;
    struct model_about about;
    atomic_bool hidden; /* see models_hide */
    /* The following fields are guarded by the table's lock. */
    enum model_state state;
    struct service *service; /* owned; NULL unless loaded or being unloaded */
    int n_use;
    bool unload_pending; /* unload it once it is unused, because a client
                            requested that or its devices failed */
    bool evict_pending;  /* unload it once it is unused, because a request waits
                            for another model */
    double used;         /* end of the last use, by loop_now */
    /* Sequence number of the last use, for LRU eviction. It is set when the use
     * begins, because uses end in any order. */
    uint64_t requested;
    /* position in the load queue; 0 if no load is requested */
    uint64_t queue_pos;
    double since;   /* time by loop_now when the queued load was first
                       requested */
    double loaded;  /* time by loop_now when the last load ended */
    uint64_t n_try; /* number of loads that ended, successful or not */
    pl_err why;     /* error of a failed or cancelled load */
    /* Seconds without a use after which the model is unloaded; 0 for never. The
     * value of `about`, or of the last request's keep_alive. */
    double idle_s;
    /* Description of the model's file (pl_inspect), valid while the file has
     * the time and size below. Owned; NULL if not read yet. Used only by
     * models_ollama.c. */
    json_t *file;
    int64_t file_time, file_bytes;
    char *past;  /* metrics text with the totals of earlier loads; owned; NULL
                    if none */
    char *props; /* response of /props while the model is not loaded, made at
                    the last load; owned; NULL if there was none */
    int cancel;  /* the loader sets 0 when a load begins; another thread sets 1
                    to cancel the load; accessed atomically */
    struct models_waiting *first, *last;
};

struct models {
    struct models_options o;
    struct model *model; /* owned, [max] */
    atomic_int n;        /* models_add increments it while other threads read
                            it */
    int max;
    pthread_mutex_t scan_lock; /* held while models_options.scan is called */
    struct http_route *route; /* owned, [n_route]: the table's own n_own routes,
                                 then `inner` */
    int n_route, n_own;
    const struct http_route *inner; /* borrowed, [n_route - n_own]: the routes
                                       of a service */
    int64_t created;                /* seconds since 1970 */

    pthread_t keeper;
    bool has_keeper;
    pthread_mutex_t lock;
    pthread_cond_t wake;       /* signalled when the loader may have something
                                  to do */
    pthread_cond_t load_ended; /* signalled when a load has ended */
    struct http *http;         /* guarded */
    bool stops;                /* guarded */
    int n_waiting;             /* guarded; number of requests that wait for a
                                  model */
    uint64_t last_turn;        /* guarded */
    uint64_t n_request;        /* guarded */
    uint64_t n_load;           /* guarded; number of successful loads */
};

/* Returns the index of the model with this name or alias, or -1. */
int models_find(const struct models *m, const char *name);
/* Calls models_options.scan, which adds new models and hides removed ones. */
void models_scan(struct models *m);
/* Fills *why for a name that is unknown, or missing (NULL). Returns false. */
bool models_reject_name(const struct models *m, const char *name,
                        struct api_error *why);

/* Callers of the following functions hold the lock. */

/* Queues a load of the model, unless one is queued already. */
void models_request_load(struct models *m, struct model *a);
/* Returns true if the model is loaded and will not be unloaded, so requests for
 * it may run now. */
bool models_is_ready(const struct model *a);
void models_use(struct model *a, int more);
/* Cancels the load of a model. If it has not begun, the requests that wait for
 * it are rejected at once. Returns false if no load was requested. */
bool models_cancel_load(struct models *m, struct model *a);
/* Unloads a loaded model once its present requests have ended. Returns false if
 * it is not loaded. */
bool models_unload(struct models *m, struct model *a);
/* Removes a model from the load queue after its load ended. Then calls
 * models_dispatch_waiting. */
void models_finish_load(struct models *m, struct model *a);
/* Passes all requests that wait for a model to their handlers if the model is
 * ready. Else rejects them with the error a->why. */
void models_dispatch_waiting(struct models *m, struct model *a);

/* Returns the callbacks by which the model's service reports changes of its
 * number of users, and a device failure, to the table. */
struct service_owner models_owner(struct model *a);

/* The loader thread, in models_loader.c. Runs until models_drain. */
void *models_loader_thread(void *models);

/* ---- models_metrics.c ---------------------------------------------------- */
struct models_text {
    /* `model` is the name of a model, `text` its metrics. */
    const char *model, *text;
};
/* Appends the metrics of n models as one text, with a label that names the
 * model of each sample; if `only`, there is one model, and samples with
 * llama-server's names have no label. Returns false if out of memory. */
bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n, bool only);
/* Appends the metrics text `now` with the totals of `past` added. Each sample
 * becomes the sum of those in `now` and `past`, except in families of type
 * gauge. Returns false if out of memory. */
bool models_add_past(struct text *out, const char *now, const char *past);
/* Appends the metrics text `now` with all gauges set to 0, as is right for an
 * unloaded model. Returns false if out of memory. */
bool models_zero_gauges(struct text *out, const char *now);
/* Returns the metrics text to keep when service `v` is unloaded: the totals of
 * `v` and of `past`, with gauges 0, malloc'ed. NULL if there are none or if out
 * of memory. Caller does not hold the lock. */
char *models_saved_totals(struct service *v, const char *past);
void models_on_metrics(void *models, struct http_request *r);

/* ---- models_routes.c ----------------------------------------------------- */
/* Returns the response of /props to use once service `v` is unloaded,
 * malloc'ed; NULL if out of memory. */
char *models_saved_props(const struct service *v);
void models_on_request(void *models, struct http_request *r);
extern const struct http_route models_own_routes[];
extern const int models_n_own_route;
/* Runs a request of a model at once, makes it wait for its model, or rejects
 * it. Caller does not hold the lock. */
void models_dispatch(struct models *m, struct model *a, struct http_request *r);
/* Rejects a request because its model was not loaded; `why` is the error of the
 * load. */
void models_reject_load(struct http_request *r, const pl_err *why);
/* Calls the handler of a model's route, then ends the use of the model that the
 * caller began with models_use. `model` is a struct model *. An
 * http_handler_fn. */
void models_run(void *model, struct http_request *r);

/* ---- models_ollama.c ----------------------------------------------------- */
extern const struct http_route models_ollama_routes[];
extern const int models_n_ollama_route;
/* Returns true if the path is of Ollama's API, whose requests set how long
 * their model stays loaded (keep_alive). Sets *seconds to that time, below 0
 * for ever, or to NaN for the default of the model. */
bool models_read_keep(const struct http_request *r, double *seconds);
/* Applies the time of models_read_keep to the model that the request used.
 * Caller holds the lock. */
void models_keep(struct models *m, struct model *a, double seconds);

#endif
