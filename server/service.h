/* The context of a model's request handlers: the model on its devices and the
 * loop that steps it. models.h chooses the model of a request and decides when
 * each is loaded. */
#ifndef SERVER_SERVICE_H
#define SERVER_SERVICE_H

#include "embeddings.h"
#include "grammar_cache.h"
#include "http.h"
#include "loop.h"
#include "metrics.h"
#include "request.h"
#include "slot_actions.h"

#include <stdatomic.h>

/* Counts the users of a service; all zero: they are not counted. */
struct service_owner {
    void (*use)(void *user, int more); /* changes the count by +1 or -1 */
    void (*lost)(void *user, const pl_err *err);
    void *user;
};

struct service {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* the model's */
    pl_template *form;         /* NULL: no usable chat template */
    pl_err no_form;            /* why there is none */
    struct loop *loop;
    struct tiers *tiers; /* the loop's; NULL: none */
    struct slots slots;
    struct grammars grammars;
    struct metrics metrics;
    const char *name;     /* for clients */
    int64_t created;      /* seconds since 1970 */
    pl_sampling sampling; /* defaults for requests */
    int64_t max_tokens;   /* likewise; -1: no limit */
    double time_s;        /* per request; 0: no limit */
    double ping_s;        /* silence after which a stream sends a ping; 0:
                             never */
    bool calls_as_text;   /* see struct request_rules */
    enum embeddings_pooling pooling;
    _Atomic(struct http *) http;     /* for its load in metrics; NULL: not
                                        started yet */
    atomic_uint_fast64_t n_response; /* used in response ids */
    struct service_owner owner;
};

/* A handler may use its service until it returns. Code that uses it longer, for
 * example in a task of the loop, calls service_hold before and service_drop
 * afterwards: a service in use is never unloaded. */
void service_hold(struct service *v);
void service_drop(struct service *v); /* v may have been freed afterwards */
/* Has it unloaded because its devices failed; a later request loads it again. A
 * loop_options.lost callback. */
void service_lost(void *service, const pl_err *err);

/* Answers with an error in the shape of the path's protocol. */
void service_reject(struct http_request *r, const struct api_error *why);
/* Answers with a JSON body, malloc'ed, and frees it; NULL: out of memory. */
void service_respond(struct http_request *r, char *body);

/* generation.c: generates text. */
void generation_start(struct service *v, struct http_request *r,
                      enum request_kind kind);
/* Renders a conversation as a prompt, malloc'ed and terminated; len may be
 * NULL. */
bool service_render(const struct service *v, const struct request *a,
                    char **text, size_t *len, struct api_error *why);

/* A route that needs no model: its handler gets NULL instead of a struct
 * service. */
enum { SERVICE_NONE = 2 };

/* Finishes pending writes of a service without users, so that its counters are
 * final. */
void service_settle(struct service *v);
/* Appends its metrics for Prometheus. Returns false if out of memory. */
bool service_metrics(struct service *v, struct text *out);

/* machine.c: answers with the data of the web UI's machine view. */
void machine_respond(struct service *v, struct http_request *r);

/* Returns the routes of a model, for models_create. */
const struct http_route *service_routes(int *n);

#endif
