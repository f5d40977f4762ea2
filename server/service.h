/* What handlers of a model's requests have at hand: the model on its devices
 * and the loop that steps it. Which of several models a request means, and when
 * each is loaded, is decided in models.h. */
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

/* Who counts the users of a service; all zeros: nobody does. */
struct service_owner {
    void (*use)(void *user, int more); /* by so many, +1 or -1 */
    void (*lost)(void *user, const pl_err *err);
    void *user;
};

struct service {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* the model's */
    pl_template *form;         /* NULL: the file has none */
    pl_err no_form;            /* why it has none */
    struct loop *loop;
    struct tiers *tiers; /* the loop's; NULL: none */
    struct slots slots;
    struct grammars grammars;
    struct metrics metrics;
    const char *name;     /* for clients */
    int64_t created;      /* seconds since 1970 */
    pl_sampling sampling; /* where requests say nothing */
    int64_t max_tokens;   /* likewise; -1: no limit */
    double time_s;        /* for a request; 0: any */
    double ping_s;        /* silence after which a stream pings; 0: never */
    bool calls_as_text;   /* see struct request_rules */
    enum embeddings_pooling pooling;
    _Atomic(struct http *) http;     /* for its load; NULL: not there yet */
    atomic_uint_fast64_t n_response; /* names answers */
    struct service_owner owner;
};

/* A handler may use its service until it returns. Whoever goes on with it then,
 * for a job of the loop say, holds it before, and drops it when that is done:
 * nobody unloads a model that is held. */
void service_hold(struct service *v);
void service_drop(struct service *v); /* v may be gone then */
/* Its devices failed: it will be unloaded, and loaded anew for who asks then.
 * What a loop is told to call. */
void service_lost(void *service, const pl_err *err);

/* Answers with an error in the shape that the path's protocol has. */
void service_reject(struct http_request *r, const struct api_error *why);
/* A body that is JSON, malloc'ed, which is freed; NULL: there was no memory. */
void service_respond(struct http_request *r, char *body);

/* generation.c: answers with text. */
void generation_start(struct service *v, struct http_request *r,
                      enum request_kind kind);
/* A conversation as a prompt, malloc'ed and terminated; len may be NULL. */
bool service_render(const struct service *v, const struct request *a,
                    char **text, size_t *len, struct api_error *why);

enum {
    SERVICE_NONE = 2
}; /* a route whose handler asks no model: it gets NULL,
                              in place of a struct service */

/* Nobody asks it any more: what it still does, it does now, so that its figures
 * are those of all that it has done. */
void service_settle(struct service *v);
/* Appends what it has done, for Prometheus; false: no memory. */
bool service_metrics(struct service *v, struct text *out);

/* machine.c: what the page's view of the machine shows. */
void machine_respond(struct service *v, struct http_request *r);

/* The table of what a model serves, for models_create. */
const struct http_route *service_routes(int *n);

#endif
