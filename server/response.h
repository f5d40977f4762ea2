/* Writes a response: converts the output of a model to the bytes of the
 * request's protocol, streamed or as one body. Uses neither the engine nor
 * HTTP.
 *
 * The order of calls for one choice: any number of response_progress and
 * response_prompt_token; response_prompt; any number of response_part and
 * response_token; one response_end. Calls for several choices may be
 * interleaved. A streamed response writes events immediately. Any other
 * response writes its body when its last choice has ended. Texts may be split
 * anywhere, even within a character; ill-formed UTF-8 becomes U+FFFD. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "request.h"

struct response; /* may be used by one thread at a time */

/* Sends n bytes to the client. Returns false if the client has disconnected. */
typedef bool response_write_fn(void *user, const void *data, size_t n);

/* Properties of a response that do not depend on its request. Strings are
 * copied by response_create. */
struct response_about {
    const char *model; /* name of the model that clients see */
    const char *id;    /* id of this response, of letters and digits, without
                          the protocol's prefix */
    int64_t created;   /* seconds since 1970 */
    response_write_fn *write;
    /* Keeps the items of a conversation of /v1/responses, including those of
     * this response, under the response's id. NULL if they are not kept. */
    void (*keep)(void *user, const char *id, const json_t *items);
    void *user;
};

/* A token of the prompt or of the output, and its alternatives. */
struct response_token {
    int32_t id;
    const char *text; /* [len], any bytes; needed only for probabilities */
    size_t len;
    double logprob; /* natural logarithm of the token's probability; NaN if it
                       has none, because no token precedes it */
    bool hidden;    /* the tokenizer added the token, so its text is not part of
                       the prompt's text */
    const struct response_token *top; /* alternatives, [n_top], the likeliest
                                         first; their own `top` and `n_top` are
                                         unused */
    int n_top;
};

enum response_end_reason {
    RESPONSE_ENDED,  /* the model ended its text, for example by an end-of-text
                        token */
    RESPONSE_STOP,   /* a stop string was generated */
    RESPONSE_LENGTH, /* max_tokens is reached, or the context is full */
};

/* Seconds that a choice took so far: for its prompt, and from its first token
 * on. */
struct response_times {
    double prompt_s, written_s;
};

struct response_end {
    enum response_end_reason why;
    const char *stop; /* the stop string; NULL if none */
    /* in tokens; n_cached: prompt tokens found in the cache; n_written:
     * generated tokens */
    int64_t n_prompt, n_cached, n_written;
    struct response_times times;
    /* Seconds from the request's arrival: load_s until its model was loaded,
     * total_s until its end. */
    double load_s, total_s;
    bool full;           /* the output ended because the context is full */
    const char *receipt; /* of the choice, as JSON; NULL if none */
};

/* Creates a response, which borrows `a` until response_free. Errors: NO_MEMORY.
 * The functions below that return bool return false if out of memory or if the
 * client has disconnected. All later calls then do nothing and return false. */
pl_status response_create(struct response **out, const struct request *a,
                          const struct response_about *about, pl_err *err);
void response_free(struct response *w);
/* Returns the "generation_settings" of a request; NULL if out of memory. */
json_t *response_settings(const struct request *a);
/* Returns the number of choices: the number of prompts times a->n. Choice c
 * belongs to prompt c / a->n. */
int response_choices(const struct response *w);
/* Returns the Content-Type: "text/event-stream", "application/x-ndjson" or
 * "application/json". */
const char *response_type(const struct response *w);
/* Returns true if anything was written, so that the HTTP status can no longer
 * change. */
bool response_begun(const struct response *w);

/* Passes the token ids of a choice's prompt, which the response returns if its
 * protocol and request want them. */
bool response_prompt_ids(struct response *w, int choice, const int32_t *ids,
                         int64_t n);
/* Writes a keep-alive to a stream, because clients and proxies close silent
 * connections. It is an event or a comment outside of the response's content.
 * It may be written between any two events. */
bool response_ping(struct response *w);
/* Reports that `done` of the prompt's `total` tokens are computed after
 * `seconds`, n_cached of them by a cached prefix. Written only to streams, if
 * the request wants progress (request.progress). */
bool response_progress(struct response *w, int choice, int64_t done,
                       int64_t total, int64_t n_cached, double seconds);
/* Reports that the whole prompt is computed; called before the first text.
 * `text` is the text of the prompt, which is copied; NULL if unknown. */
bool response_prompt(struct response *w, int choice, int64_t n_prompt,
                     int64_t n_cached, const char *text);
/* Adds a token of the prompt and its probability, if the request wants these
 * (request.prompt_probs). */
bool response_prompt_token(struct response *w, int choice,
                           const struct response_token *t);
/* Adds a generated token. Called before response_part passes the text that the
 * token completes. */
bool response_token(struct response *w, int choice,
                    const struct response_token *t,
                    const struct response_times *times);
/* Adds a part of the output, as pl_reply passes it. */
bool response_part(struct response *w, int choice, const pl_reply_part *part);
bool response_end(struct response *w, int choice,
                  const struct response_end *end);
/* Ends the whole response, with all its choices, because of an error. Writes
 * the error as an event of the stream, or as the body. */
bool response_fail(struct response *w, const struct api_error *why);

#endif
