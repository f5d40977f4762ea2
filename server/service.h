/* A service: a loaded model, its engine, the loop that runs the engine, and
 * everything else that the request handlers of this model use. models.h decides
 * which service handles a request, and when each is loaded. */
#ifndef SERVER_SERVICE_H
#define SERVER_SERVICE_H

#include "embeddings.h"
#include "grammar_cache.h"
#include "http.h"
#include "loop.h"
#include "metrics.h"
#include "request.h"
#include "response_store.h"
#include "slot_actions.h"

#include <stdatomic.h>

/* Callbacks by which a service reports to its owner. All are NULL if the owner
 * does not count users. */
struct service_owner {
    void (*use)(void *user, int more); /* adds `more`, +1 or -1, to the number
                                          of users */
    void (*lost)(void *user, const pl_err *err);
    void *user;
};

struct service {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* the tokenizer of the model */
    pl_template *form;         /* chat template; NULL if there is no usable
                                  one */
    pl_err no_form;            /* the error, if `form` is NULL */
    struct loop *loop;
    struct tiers *tiers; /* the tiers of the loop; NULL if it has none */
    struct slots slots;
    struct grammars grammars;
    struct metrics metrics;
    struct response_store stored; /* conversations of /v1/responses */
    const char *name;             /* name of the model, as clients see it */
    const char *path;             /* file of the model; NULL if unknown */
    pl_log_fn *log;               /* logs what is ignored in requests; NULL for
                                     no log */
    void *log_user;
    int64_t created;      /* seconds since 1970 */
    pl_sampling sampling; /* defaults of requests */
    json_t *defaults;     /* other defaults, as fields that are added to
                             requests (request_rules.defaults); owned; NULL if
                             none */
    const struct jws_key *sign_key; /* signs receipts; borrowed; NULL if none */
    /* Keeps the receipt of each output, a JSON text; NULL if none is kept. It
     * is called by threads of several models at once. */
    void (*keep_receipt)(void *user, const char *json);
    void *keep_user;
    unsigned keep_flags; /* PL_RECEIPT_* of these */
    int64_t max_tokens;  /* limit of generated tokens for requests that set
                             none; -1 for no limit */
    enum request_reasoning reasoning; /* where reasoning is returned, for
                                         requests that do not say it */
    bool limits_thinking;             /* see request_rules */
    int64_t think_tokens;
    double time_s; /* time limit per request in seconds; 0 if none */
    double ping_s; /* seconds after which a stream that has sent nothing sends a
                      keep-alive; 0 for never */
    enum embeddings_pooling pooling;
    _Atomic(struct http *) http;     /* the HTTP server, whose connections the
                                        metrics count; NULL until it has
                                        started */
    atomic_uint_fast64_t n_response; /* number of responses so far, a part of
                                        their ids */
    _Atomic(int64_t) most_num_ctx;   /* the largest num_ctx of a request that
                                        was logged, because larger than the
                                        context */
    struct service_owner owner;
};

/* A handler may use its service until the handler returns. Code that uses the
 * service longer, for example in a task of the loop, calls service_hold before
 * and service_drop afterwards. A service that is held is never unloaded. */
void service_hold(struct service *v);
void service_drop(struct service *v); /* from here on the owner may free `v` */
/* Reports to the owner that a device failed. The owner unloads the service, and
 * a later request loads it again. A loop_options.lost callback; `service` is a
 * struct service *. */
void service_lost(void *service, const pl_err *err);

/* Adds the tokens of a request to its line in the log: those of the prompt, how
 * many of them were cached, and the generated ones; -1 if it generates none. */
void service_note_tokens(struct http_request *r, int64_t n_prompt,
                         int64_t n_cached, int64_t n_written);

/* Responds with an error, in the form of the protocol of the request's path. */
void service_reject(struct http_request *r, const struct api_error *why);
/* Responds with a malloc'ed JSON body and frees it. If `body` is NULL, responds
 * with an out-of-memory error. */
void service_respond(struct http_request *r, char *body);

/* Handles a request that generates text; in generation.c. The request is
 * answered later, on the loop's thread. */
void generation_start(struct service *v, struct http_request *r,
                      enum request_kind kind);
/* Renders a conversation with the chat template. *text is malloc'ed and
 * NUL-terminated; *len, unless NULL, is its length. Returns false with *why
 * filled on failure. */
bool service_render(const struct service *v, const struct request *a,
                    char **text, size_t *len, struct api_error *why);

/* Value of http_route.flags: the route needs no model. `user` of its handler is
 * NULL instead of the service. */
enum { SERVICE_NONE = 2 };

/* Finishes pending writes to the cache tiers, so that the counters are final.
 * Called when the service has no users. */
void service_settle(struct service *v);
/* Returns the properties of a service, the response of /props; NULL if out of
 * memory. `sleeps`: the response is for the time when the model is unloaded. */
json_t *service_props(const struct service *v, bool sleeps);
/* Checks that the context has space for a prompt of n tokens and a token of
 * output. Returns false with *why filled if it has not. */
bool service_check_length(const struct service *v, int64_t n,
                          struct api_error *why);
/* Appends the metrics of a service in Prometheus's format. Returns false if out
 * of memory. */
bool service_metrics(struct service *v, struct text *out);

/* Responds with the state of the engine, which the machine view of the web UI
 * shows. In machine.c. */
void machine_respond(struct service *v, struct http_request *r);

/* Returns the routes of a service, [*n]. The `user` of their handlers is the
 * service. For models_create. */
const struct http_route *service_routes(int *n);

#endif
