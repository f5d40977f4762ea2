/* Shared by the files of the table of models (models.h); not included
 * elsewhere. */
#ifndef SERVER_MODELS_INNER_H
#define SERVER_MODELS_INNER_H

#include "clock.h"
#include "fail.h"
#include "json_text.h"
#include "models.h"

#include <pthread.h>

/* A request that waits until its model is loaded; an item of a list. */
struct models_waiting {
    struct http_request *r;
    struct models_waiting *next;
};

struct model {
    struct models *of;
    struct model_about about;
    /* The model is hidden, because its file is gone (models_hide). */
    atomic_bool hidden;
    /* The fields from here to `cancel` are guarded by models.lock, unless their
     * comments say otherwise. */
    enum model_state state;
    /* The loaded service; owned; NULL unless the model is loaded or being
     * unloaded. */
    struct service *service;
    int n_use;
    /* The model must be unloaded once it has no users, because a client
     * requested that or its devices failed. */
    bool unload_pending;
    /* The model must be unloaded once it has no users, because requests wait
     * for another model. */
    bool evict_pending;
    double
        used; /* time when the model was last used, in seconds by clock_now */
    /* Sequence number of the model's last use, for LRU eviction. A use gets its
     * number when it begins, because uses end in any order. */
    uint64_t requested;
    /* The model's number in the load queue, where lower numbers are loaded
     * first; 0 if no load is requested. Numbers are never reused. */
    uint64_t queue_pos;
    /* Time when the queued load was first requested, in seconds by
     * clock_now. */
    double since;
    double loaded; /* time when the last load ended, in seconds by clock_now */
    /* Number of loads of the model that ended, successful or not. */
    uint64_t n_try;
    pl_err why; /* error of the last load, if it failed or was cancelled */
    /* The model is unloaded after this many seconds without a use; 0 for never.
     * The value is that of `about`, or of the last request that had
     * keep_alive. */
    double idle_s;
    /* Description of the model's file (pl_inspect), valid as long as the file
     * has the modification time file_time and the size file_bytes. Owned; NULL
     * if the file was not read yet. Used only by models_ollama.c. */
    json_t *file;
    int64_t file_time, file_bytes;
    /* Metrics text with the totals of the model's earlier loads; owned; NULL if
     * none. */
    char *past;
    /* Response of /props for the time while the model is not loaded; made at
     * the last load; owned; NULL if the model was never loaded. */
    char *props;
    /* Nonzero cancels the load. The loader thread sets 0 when a load begins;
     * another thread sets 1. Accessed atomically. */
    int cancel;
    struct models_waiting *first; /* the requests that wait for the model */
};

struct models {
    struct models_options o;
    /* The models of the table; owned, with capacity `max`. */
    struct model *model;
    /* Number of models; atomic, because models_add increments it while other
     * threads read it. */
    atomic_int n;
    int max;
    /* Held during calls of models_options.scan, so that two never run at
     * once. */
    pthread_mutex_t scan_lock;
    /* The routes for http_start, [n_route]; owned. The first n_own are the
     * table's own routes; `inner` follows. */
    struct http_route *route;
    int n_route, n_own;
    /* The routes of a service, [n_route - n_own]; borrowed. */
    const struct http_route *inner;
    /* Time when the table was created, in seconds since 1970. */
    int64_t created;

    pthread_t keeper;
    bool has_keeper;
    pthread_mutex_t lock;
    /* Signalled when the loader thread may have something to do. */
    pthread_cond_t wake;
    /* Signalled when the load of a model has ended. */
    pthread_cond_t load_ended;
    /* The HTTP server for the metrics; NULL until models_set_http; guarded by
     * `lock`. */
    struct http *http;
    bool stops; /* models_drain was called; guarded by `lock` */
    /* Number of requests that wait for a model; guarded by `lock`. */
    int n_waiting;
    /* The last number given out in the load queue; guarded by `lock`. */
    uint64_t last_turn;
    /* The last sequence number of a use of a model; guarded by `lock`. */
    uint64_t n_request;
    /* Number of successful loads of all models; guarded by `lock`. */
    uint64_t n_load;
};

/* Returns the index of the model that has this name or alias, or of the only
 * one whose name differs in case alone, or also by what follows a colon, such
 * as ":latest" or a quantization; -1 if there is none. */
int models_find(const struct models *m, const char *name);
/* Finds a model as models_find does. Scans for new models unless the name is
 * exact but for ":latest". */
int models_find_anew(struct models *m, const char *name);
/* Calls models_options.scan, which adds new models and hides removed ones. */
void models_scan(struct models *m);
/* Rejects a model name that is unknown or, if `name` is NULL, missing: fills
 * *why. Returns false. */
bool models_reject_name(const struct models *m, const char *name,
                        struct api_error *why);

/* Callers of the functions from here to models_dispatch_waiting hold
 * models.lock. */

/* Adds the model to the load queue, unless it is in the queue already. */
void models_request_load(struct models *m, struct model *a);
/* Returns true if requests for the model may run now: the model is loaded and
 * will not be unloaded. */
bool models_is_ready(const struct model *a);
void models_use(struct model *a, int more);
/* Cancels the load of a model. If the load has not begun, the requests that
 * wait for the model are rejected at once. Returns false if no load was
 * requested. */
bool models_cancel_load(struct models *m, struct model *a);
/* Requests that a loaded model is unloaded as soon as its present requests have
 * ended. Returns false if the model is not loaded. */
bool models_unload(struct models *m, struct model *a);
/* Removes a model from the load queue after its load has ended. Then calls
 * models_dispatch_waiting for it. */
void models_finish_load(struct models *m, struct model *a);
/* Handles all requests that wait for a model: passes them to their handlers if
 * the model is ready, else rejects them with the error a->why. */
void models_dispatch_waiting(struct models *m, struct model *a);

/* Returns the callbacks for a model's service. By these the service reports to
 * the table that its number of users changed or that a device failed. */
struct service_owner models_owner(struct model *a);

/* The main function of the loader thread, in models_loader.c. Runs until
 * models_drain. */
void *models_loader_thread(void *models);

/* ---- functions of models_metrics.c --------------------------------------- */
struct models_text {
    /* model: name of a model. text: the metrics of this model in Prometheus's
     * format. */
    const char *model, *text;
};
/* Appends the metrics of n models to *out as one text. Each sample gets a label
 * that names its model. `only`: there is one model, and samples with
 * llama-server's names get no label. Returns false if out of memory. */
bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n, bool only);
/* Appends the metrics text `now` to *out, with the totals in `past` added: each
 * sample becomes the sum of its values in `now` and `past`, except in families
 * of type gauge. Returns false if out of memory. */
bool models_add_past(struct text *out, const char *now, const char *past);
/* Appends the metrics text `now` of an unloaded model to *out, with all gauges
 * set to 0. Returns false if out of memory. */
bool models_zero_gauges(struct text *out, const char *now);
/* Returns the metrics text to keep when service `v` is unloaded: the totals of
 * `v` and of `past`, with gauges 0; malloc'ed. NULL if there are no metrics or
 * if out of memory. Caller does not hold models.lock. */
char *models_saved_totals(struct service *v, const char *past);
void models_on_metrics(void *models, struct http_request *r);

/* ---- functions of models_routes.c ---------------------------------------- */
/* Returns the response of /props for the time when service `v` will be
 * unloaded, malloc'ed; NULL if out of memory. */
char *models_saved_props(const struct service *v);
void models_on_request(void *models, struct http_request *r);
extern const struct http_route models_own_routes[];
extern const int models_n_own_route;
/* Handles a request for a model: runs it at once, makes it wait until the model
 * is loaded, or rejects it. Caller does not hold models.lock. */
void models_dispatch(struct models *m, struct model *a, struct http_request *r);
/* Rejects a request because its model could not be loaded. `why` is the error
 * of the load. */
void models_reject_load(struct http_request *r, const pl_err *why);
/* Calls the handler of a request's route in the service of a model. Then ends
 * the use of the model that the caller began with models_use. `model` is a
 * struct model *. An http_handler_fn. */
void models_run(void *model, struct http_request *r);

/* ---- functions of models_ollama.c ---------------------------------------- */
extern const struct http_route models_ollama_routes[];
extern const int models_n_ollama_route;
/* Returns true if the request's path belongs to Ollama's API, in which requests
 * set how long their model stays loaded (keep_alive). Sets *seconds to that
 * time, to a negative value for ever, or to NaN for the default of the
 * model. */
bool models_read_keep(const struct http_request *r, double *seconds);
/* Applies `seconds` from models_read_keep to the model that the request used.
 * Caller holds models.lock. */
void models_keep(struct models *m, struct model *a, double seconds);

#endif
