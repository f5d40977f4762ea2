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
    /* All guarded by the table's lock. */
    enum model_state state;
    struct service *service; /* owned; NULL unless LOADED */
    int n_use;
    bool unload_pending; /* unload it once it is unused: a client asked for
                            that, or its devices failed */
    bool evict_pending;  /* likewise, because a request waits for its place */
    double used;         /* time of the last use, by loop_now */
    /* Sequence number of the last use, for LRU. Taken when a use begins,
     * because uses end in any order. */
    uint64_t requested;
    /* position in the load queue; 0: not requested */
    uint64_t queue_pos;
    double since;   /* when it was first requested */
    double loaded;  /* time of loading */
    uint64_t n_try; /* loads that ended, successful or not */
    pl_err why;     /* of FAILED, or of a cancelled load */
    char *past;     /* metrics text with the totals of earlier loads; owned;
                       NULL: none */
    int cancel;     /* cancels its load; accessed atomically */
    struct models_waiting *first, *last;
};

struct models {
    struct models_options o;
    struct model *model; /* owned, [n] */
    int n;
    struct http_route *route; /* owned, [n_route]: its own, then the
                                 services' */
    int n_route, n_own;
    const struct http_route *inner; /* borrowed, [n_route - n_own] */
    int64_t created;                /* seconds since 1970 */

    pthread_t keeper;
    bool has_keeper;
    pthread_mutex_t lock;
    pthread_cond_t wake;       /* the loader may have something to do */
    pthread_cond_t load_ended; /* a load has ended */
    struct http *http;         /* guarded */
    bool stops;                /* guarded */
    int n_waiting;             /* guarded: requests */
    uint64_t last_turn;        /* guarded */
    uint64_t n_request;        /* guarded */
    uint64_t n_load;           /* guarded: successful loads */
};

/* Returns the index of the model of that name, or -1. */
int models_find(const struct models *m, const char *name);
/* Fills *why for an unknown name; returns false. */
bool models_reject_name(const struct models *m, const char *name,
                        struct api_error *why);

/* Callers of the following hold the lock. */

/* Queues a load of it. */
void models_request_load(struct models *m, struct model *a);
/* Returns true if its requests may run now. */
bool models_is_ready(const struct model *a);
void models_use(struct model *a, int more);
/* Cancels its load. If the load is only queued, requests that wait for it are
 * rejected at once. Returns false if it was not requested. */
bool models_cancel_load(struct models *m, struct model *a);
/* Takes it out of the load queue: waiting requests run, or are rejected with
 * a->why. */
void models_finish_load(struct models *m, struct model *a);
/* Passes all waiting requests to their handlers, or rejects them with
 * a->why. */
void models_dispatch_waiting(struct models *m, struct model *a);

/* Returns the callbacks by which its service reports to the table. */
struct service_owner models_owner(struct model *a);

/* models_loader.c: the thread. */
void *models_loader_thread(void *models);

/* models_metrics.c */
struct models_text {
    const char *model, *text; /* a name, and its metrics */
};
/* Appends the metrics of n models as one text. Returns false if out of
 * memory. */
bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n);
/* Appends `now` with the totals of `past` added: samples of the same name in
 * families other than gauges. Returns false if out of memory. */
bool models_add_past(struct text *out, const char *now, const char *past);
/* Appends `now` with all gauges 0, as for an unloaded model. */
bool models_zero_gauges(struct text *out, const char *now);
/* Returns the totals of a model for when `v` is unloaded, malloc'ed; NULL if
 * there are none or out of memory. Caller does not hold the lock. */
char *models_saved_totals(struct service *v, const char *past);
void models_on_metrics(void *models, struct http_request *r);

/* models_routes.c */
void models_on_request(void *models, struct http_request *r);
extern const struct http_route models_own_routes[];
extern const int models_n_own_route;
/* Answers a request whose model could not be loaded. */
void models_reject_load(struct http_request *r, const pl_err *why);
/* Runs the service's handler for a request, which uses `model`. */
void models_run(void *model, struct http_request *r);

#endif
