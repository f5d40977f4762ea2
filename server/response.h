/* Writes a response: converts the output of a model to text in the form of the
 * request's protocol, streamed or as one body. This code uses neither the
 * engine nor HTTP.
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

struct response; /* a response; only one thread at a time may use it */

/* Sends n bytes of the response to the client. Returns false if the client has
 * disconnected. */
typedef bool response_write_fn(void *user, const void *data, size_t n);

/* Properties of a response that do not depend on its request. response_create
 * copies the strings. */
struct response_about {
    const char *model; /* name of the model in the response */
    /* Id of this response: letters and digits, without the prefix that the
     * protocol adds. */
    const char *id;
    int64_t created; /* time of the response, in seconds since 1970 */
    response_write_fn *write;
    /* Keeps the items of a conversation of /v1/responses, including the items
     * of this response, under the id of the response. NULL if conversations are
     * not kept. */
    void (*keep)(void *user, const char *id, const json_t *items);
    void *user;
};

/* A token of the prompt or of the output, and its alternatives. */
struct response_token {
    int32_t id;
    /* The bytes of the token, [len]; need not be UTF-8; used only if the
     * response has probabilities. */
    const char *text;
    size_t len;
    /* Natural logarithm of the token's probability; NaN if it has none, because
     * it is the first token. */
    double logprob;
    /* The tokenizer has added the token, so that the text of the prompt does
     * not contain it. */
    bool hidden;
    /* Alternatives to the token, [n_top], the likeliest first; in these, `top`
     * and `n_top` are not used. */
    const struct response_token *top;
    int n_top;
};

enum response_end_reason {
    /* The model ended the output, for example by an end-of-text token. */
    RESPONSE_ENDED,
    /* The output contained a stop string, before which it ends. */
    RESPONSE_STOP,
    /* The limit max_tokens is reached, or the context is full. */
    RESPONSE_LENGTH,
};

/* Durations of a choice in seconds: of its prompt, and from its first token
 * on. */
struct response_times {
    double prompt_s, written_s;
};

struct response_end {
    enum response_end_reason why;
    const char *stop; /* the stop string that ended the output; NULL if none */
    /* Numbers of tokens. n_cached: prompt tokens that were found in the cache.
     * n_written: generated tokens. */
    int64_t n_prompt, n_cached, n_written;
    /* Drafted tokens, and how many of them became generated tokens. */
    int64_t n_drafted, n_accepted;
    struct response_times times;
    /* Seconds since the request arrived. load_s: until its model was loaded.
     * total_s: until the output ended. */
    double load_s, total_s;
    bool full; /* the output ended because the context is full */
    /* Receipts of the output and of the prompt, as JSON texts; NULL if there is
     * none. */
    const char *receipt, *prompt_receipt;
};

/* Creates a response. It borrows the request `a` until response_free. Errors:
 * NO_MEMORY. The functions below that return bool return false if memory is
 * short or if the client has disconnected. All later calls then do nothing and
 * return false. */
pl_status response_create(struct response **out, const struct request *a,
                          const struct response_about *about, pl_err *err);
void response_free(struct response *w);
/* Returns the object "generation_settings" for a request: its sampling
 * parameters and limits as JSON. NULL if out of memory. */
json_t *response_settings(const struct request *a);
/* The functions below take the index of a choice. Choice c belongs to prompt c
 * / a->n of the request. */

/* Returns the Content-Type of the response: "text/event-stream",
 * "application/x-ndjson" or "application/json". */
const char *response_type(const struct response *w);
/* Passes the token ids of a choice's prompt. The response contains them if its
 * protocol has them and the request asks for them. */
bool response_prompt_ids(struct response *w, int choice, const int32_t *ids,
                         int64_t n);
/* Writes a keep-alive to a streamed response, because clients and proxies close
 * silent connections. The keep-alive is an event or a comment that does not
 * belong to the response's content. It may be written between any two
 * events. */
bool response_ping(struct response *w);
/* Reports that a choice is generated in this slot of the server. */
void response_placed(struct response *w, int choice, int slot);
/* Reports that `done` of the prompt's `total` tokens are available after
 * `seconds`, n_cached of them from a cached prefix. Written only to a stream
 * whose request asks for the progress (request.progress). */
bool response_progress(struct response *w, int choice, int64_t done,
                       int64_t total, int64_t n_cached, double seconds);
/* Reports that the whole prompt is computed; called before the first part of
 * the output. `text` is the text of the prompt, which is copied; NULL if it is
 * not needed. */
bool response_prompt(struct response *w, int choice, int64_t n_prompt,
                     int64_t n_cached, const char *text);
/* Adds a token of the prompt and its probability, if the request asks for these
 * (request.prompt_probs). */
bool response_prompt_token(struct response *w, int choice,
                           const struct response_token *t);
/* Adds a generated token. Called before response_part passes the text that this
 * token completes. */
bool response_token(struct response *w, int choice,
                    const struct response_token *t,
                    const struct response_times *times);
/* Adds a part of the output of a choice, as pl_reply reports it: content,
 * reasoning or a part of a tool call. */
bool response_part(struct response *w, int choice, const pl_reply_part *part);
bool response_end(struct response *w, int choice,
                  const struct response_end *end);
/* Ends the whole response, with all its choices, because of the error `why`.
 * Writes the error as an event of the stream, or as the body of the
 * response. */
bool response_fail(struct response *w, const struct api_error *why);

#endif
