/* A service: a loaded model, its engine, the loop that runs the engine, and
 * everything else that the request handlers of this model use. The table of
 * models (models.h) chooses the service for each request, and loads and unloads
 * services. */
#ifndef SERVER_SERVICE_H
#define SERVER_SERVICE_H

#include "embeddings.h"
#include "grammar_cache.h"
#include "http.h"
#include "loop.h"
#include "metrics.h"
#include "model_facts.h"
#include "request.h"
#include "response_store.h"
#include "slot_actions.h"

#include <stdatomic.h>

/* Callbacks by which a service reports to its owner, the table of models. All
 * are NULL if the owner does not count users. */
struct service_owner {
    /* Adds `more`, +1 or -1, to the number of users of the service. */
    void (*use)(void *user, int more);
    void (*lost)(void *user, const pl_err *err);
    void *user;
};

struct service {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* the tokenizer of the model */
    /* The model's chat template; NULL if it has no usable one. */
    pl_template *form;
    /* If `form` is NULL: the reason why the model has no usable chat
     * template. */
    pl_err no_form;
    struct loop *loop;
    /* The drafter that the loop uses; NULL if there are no drafts. */
    pl_drafter *drafter;    /* borrowed */
    uint32_t no_source;     /* set of sources that it lacks */
    pl_draft_limits drafts; /* limits of drafts for requests that set none */
    /* The cache tiers that the loop uses; NULL if there are none. */
    struct tiers *tiers;
    struct slots slots;
    struct grammars grammars;
    struct metrics metrics;
    struct response_store stored; /* kept conversations of /v1/responses */
    const char *name;             /* name of the model, as clients see it */
    const char *path; /* path of the model's file; NULL if unknown */
    struct model_facts facts;
    /* Called with the names of ignored parts of requests; NULL for no log. */
    pl_log_fn *log;
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
    double time_s; /* time limit of each request in seconds; 0 for none */
    /* A stream in which nothing was sent for this many seconds sends a
     * keep-alive; 0 for never. */
    double ping_s;
    enum embeddings_pooling pooling;
    /* The HTTP server, whose connections the metrics count; NULL until it has
     * started. */
    _Atomic(struct http *) http;
    /* Number of responses so far, from which their ids are made. */
    atomic_uint_fast64_t n_response;
    /* The largest Ollama "num_ctx" that was logged because it exceeds the
     * context size. */
    _Atomic(int64_t) most_num_ctx;
    struct service_owner owner;
};

/* A handler may use its service until the handler returns. Code that uses the
 * service longer, for example in a task of the loop, calls service_hold before
 * the handler returns, and service_drop after the last use. Between these calls
 * the service is not unloaded. */
void service_hold(struct service *v);
/* Ends a use that service_hold began; afterwards the owner may free `v`. */
void service_drop(struct service *v);
/* Reports to the owner of the service that a device failed. The owner then
 * unloads the service, and a later request loads it again. A loop_options.lost
 * callback; `service` is a struct service *. */
void service_lost(void *service, const pl_err *err);

/* Adds the numbers of a request's tokens to its line in the log: n_prompt
 * prompt tokens, n_cached of which were cached, and the generated ones; -1 if
 * the request generates none. */
void service_note_tokens(struct http_request *r, int64_t n_prompt,
                         int64_t n_cached, int64_t n_written);

/* Responds to a request with an error, in the form that the protocol of the
 * request's path requires. */
void service_reject(struct http_request *r, const struct api_error *why);
/* Responds to a request with the malloc'ed JSON `body`, and frees it. If `body`
 * is NULL, responds with an out-of-memory error. */
void service_respond(struct http_request *r, char *body);

/* Responds with the JSON `j`, and takes ownership of it. */
void service_respond_json(struct http_request *r, json_t *j);
/* Returns the rules for the requests of a service. They reject no feature. */
struct request_rules service_rules(const struct service *v);
/* Adds the n tasks of a request to the loop, all or none. Sets *gone if the
 * client disconnects. Returns false with *why filled if the loop does not take
 * the tasks. */
bool service_submit(struct service *v, struct http_request *r,
                    const struct task_params *params, int n, atomic_bool *gone,
                    struct api_error *why);

/* Handles a request that generates text, of the protocol http_route_arg (enum
 * request_kind). The response is sent later, from the loop's thread. In
 * generation.c. */
void generation_start(void *service, struct http_request *r);
/* Renders the conversation of a request with the chat template. *text is
 * malloc'ed and NUL-terminated; *len, unless NULL, is its length in bytes.
 * Returns false with *why filled on failure. */
bool service_render(const struct service *v, const struct request *a,
                    char **text, size_t *len, struct api_error *why);

/* Value of http_route.flags: the route needs no model. The argument `user` of
 * its handler is NULL instead of the service. */
enum { SERVICE_NONE = 2 };

/* Finishes pending writes to the cache tiers, so that the service's counters
 * are final. Called when the service has no users. */
void service_settle(struct service *v);
/* Returns the properties of a service as JSON, the response of /props; NULL if
 * out of memory. `sleeps`: the response is kept for the time when the model is
 * unloaded. */
json_t *service_props(const struct service *v, bool sleeps);
/* Checks that the context has space for a prompt of n tokens and one generated
 * token. Returns false with *why filled if it has not. */
bool service_check_length(const struct service *v, int64_t n,
                          struct api_error *why);
/* Appends the metrics of a service to *out in Prometheus's text format. Returns
 * false if out of memory. */
bool service_metrics(struct service *v, struct text *out);

/* Responds with the counters of the engine, which the machine view of the web
 * UI shows. In machine.c. */
void machine_respond(void *service, struct http_request *r);

/* Returns the *n routes of a service, for models_create. The argument `user` of
 * their handlers is the service. */
const struct http_route *service_routes(int *n);

#endif
