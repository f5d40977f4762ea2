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

/* Callbacks to the owner of a service. All are NULL if users are not
 * counted. */
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
    struct tiers *tiers; /* those of the loop; NULL if none */
    struct slots slots;
    struct grammars grammars;
    struct metrics metrics;
    struct response_store stored; /* conversations of /v1/responses */
    const char *name;             /* the model's name for clients */
    const char *path;             /* its file; NULL if unknown */
    pl_log_fn *log;               /* for notes on requests; NULL for none */
    void *log_user;
    int64_t created;      /* seconds since 1970 */
    pl_sampling sampling; /* defaults of requests */
    json_t *defaults;     /* the same, as fields of requests; owned, may be
                           NULL */
    int64_t max_tokens;   /* default of requests; -1 for no limit */
    enum request_reasoning reasoning; /* where reasoning is returned; default of
                                         requests */
    bool limits_thinking;             /* see request_rules */
    int64_t think_tokens;
    double time_s; /* time limit per request in seconds; 0 if none */
    double ping_s; /* seconds without output after which a stream sends a
                             ping; 0 for never */
    enum embeddings_pooling pooling;
    _Atomic(struct http *) http;     /* its connections are reported in metrics;
                                        NULL until it has started */
    atomic_uint_fast64_t n_response; /* number of responses, used in their
                                        ids */
    _Atomic(int64_t) most_num_ctx;   /* the largest num_ctx that was logged */
    struct service_owner owner;
};

/* A handler may use its service until the handler returns. Code that uses the
 * service longer, for example in a task of the loop, calls service_hold before
 * and service_drop afterwards. A service that is held is never unloaded. */
void service_hold(struct service *v);
void service_drop(struct service *v); /* `v` may be freed from here on */
/* Requests the owner to unload the service because a device failed; a later
 * request loads it again. A loop_options.lost callback; `service` is a struct
 * service *. */
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

/* A flag of struct http_route: the route needs no model. Its handler's `user`
 * is NULL instead of a struct service. */
enum { SERVICE_NONE = 2 };

/* Finishes pending writes to the cache tiers, so that the counters are final.
 * Called when the service has no users. */
void service_settle(struct service *v);
/* Returns the properties of a service, the response of /props; NULL if out of
 * memory. `sleeps`: its model is about to be unloaded. */
json_t *service_props(const struct service *v, bool sleeps);
/* Checks that a prompt of n tokens fits in the context, with a token of output.
 * Returns false with *why filled if not. */
bool service_check_length(const struct service *v, int64_t n,
                          struct api_error *why);
/* Appends the metrics of a service in Prometheus's format. Returns false if out
 * of memory. */
bool service_metrics(struct service *v, struct text *out);

/* Responds with the data of the web UI's machine view; in machine.c. */
void machine_respond(struct service *v, struct http_request *r);

/* Returns the routes of a service, [*n]. The `user` of their handlers is the
 * service. For models_create. */
const struct http_route *service_routes(int *n);

#endif
