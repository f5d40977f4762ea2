/* What the files of models.h share; nobody else includes it. */
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
    struct service *service; /* owned; NULL but in LOADED */
    int n_use;
    bool unload_pending; /* unload it once it is unused: a client asked for
                            it, or its devices failed */
    bool evict_pending;  /* likewise, for a request that waits for its place */
    double used;         /* for the last time, by loop_now */
    uint64_t
        requested; /* who was used last has the greatest: counted when a use
                       begins, since ends of uses may overtake each other */
    uint64_t
        queue_pos;  /* who asked first has the least; 0: nobody asks for it */
    double since;   /* who has asked for it has waited */
    double loaded;  /* since when */
    uint64_t n_try; /* loads that ended, well or not */
    pl_err why;     /* of FAILED, and of a load that was given up */
    char *past;     /* what it did before it was unloaded, as metrics; owned;
                       NULL: nothing */
    int cancel;     /* its load is to end: by atomic operations */
    struct models_waiting *first, *last;
};

struct models {
    struct models_options o;
    struct model *model; /* owned, [n] */
    int n;
    struct http_route *route; /* owned, [n_route]: own, then the services' */
    int n_route, n_own;
    const struct http_route *inner; /* borrowed, [n_route - n_own] */
    int64_t created;                /* seconds since 1970 */

    pthread_t keeper;
    bool has_keeper;
    pthread_mutex_t lock;
    pthread_cond_t come; /* the keeper may have something to do */
    pthread_cond_t told; /* a load has ended */
    struct http *http;   /* guarded */
    bool stops;          /* guarded */
    int n_waiting;       /* guarded: requests */
    uint64_t last_turn;  /* guarded */
    uint64_t n_request;  /* guarded */
    uint64_t n_load;     /* guarded: loads that went well */
};

/* The model of that name, or -1. */
int models_find(const struct models *m, const char *name);
/* Why there is no such model; always false. */
bool models_reject_name(const struct models *m, const char *name,
                        struct api_error *why);

/* The rest is called with the lock held. */

/* Has it loaded at its turn. */
void models_request_load(struct models *m, struct model *a);
/* May its requests run now? */
bool models_is_ready(const struct model *a);
void models_use(struct model *a, int more);
/* Its load, if there is one, is to be given up; those who wait for a model
 * whose turn has not come yet are refused at once. False: nobody asks for it.
 */
bool models_cancel_load(struct models *m, struct model *a);
/* Nobody has it loaded any more: its turn is over, with a->why. */
void models_finish_load(struct models *m, struct model *a);
/* Hands all that wait to their handlers, or refuses them with a->why. */
void models_dispatch_waiting(struct models *m, struct model *a);

/* What its service tells the table. */
struct service_owner models_owner(struct model *a);

/* models_loader.c: the thread. */
void *models_loader_thread(void *models);

/* models_metrics.c */
struct models_text {
    const char *model, *text; /* a name, and what it has to tell */
};
/* Appends the texts of n models as one; false: no memory. */
bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n);
/* Appends `now` with the totals of `past` added: samples of the same name in
 * families that are no gauges. False: no memory. */
bool models_add_past(struct text *out, const char *now, const char *past);
/* Appends `now` as it is when nothing is there: gauges are 0. */
bool models_zero_gauges(struct text *out, const char *now);
/* All that a model has done when `v` is unloaded, malloc'ed; NULL: nothing, or
 * no memory. Without the lock. */
char *models_saved_totals(struct service *v, const char *past);
void models_on_metrics(void *models, struct http_request *r);

/* models_routes.c */
void models_on_request(void *models, struct http_request *r);
extern const struct http_route models_own_routes[];
extern const int models_n_own_route;
/* The answer to a request whose model could not be had. */
void models_reject_load(struct http_request *r, const pl_err *why);
/* Runs the handler that a service has for a request, which uses `model`. */
void models_run(void *model, struct http_request *r);

#endif
