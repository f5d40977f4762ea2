/* Writes a response: converts a model's output to the bytes of the request's
 * protocol, streamed or whole. Uses neither engine nor HTTP.
 *
 * The calls for a choice come in this order: any number of response_progress,
 * then texts, calls and tokens, then one response_end. Choices may be
 * interleaved. A streamed response writes events immediately; any other writes
 * its body when its last choice has ended. Texts may be cut anywhere;
 * ill-formed UTF-8 in them becomes U+FFFD. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "request.h"

struct response; /* opaque; used by one thread at a time */

/* Returns false if the client is gone. */
typedef bool response_write_fn(void *user, const void *data, size_t n);

/* Properties of a response. Strings are copied. */
struct response_about {
    const char *model; /* the model's name for clients */
    const char *id;    /* of this response, without the protocol's prefix:
                          letters and digits */
    int64_t created;   /* seconds since 1970 */
    response_write_fn *write;
    void *user;
};

/* A generated token and its alternatives. */
struct response_token {
    int32_t id;
    const char *text; /* [len], any bytes */
    size_t len;
    double logprob;
    const struct response_token *top; /* [n_top], the likeliest first; their own
                                         n_top is ignored */
    int n_top;
};

enum response_end_reason {
    RESPONSE_ENDED,  /* the model ended its text */
    RESPONSE_STOP,   /* a stop string was generated */
    RESPONSE_LENGTH, /* max_tokens, or the context is full */
};

struct response_end {
    enum response_end_reason why;
    const char *stop;                      /* the string; NULL: none */
    int64_t n_prompt, n_cached, n_written; /* tokens; n_cached: prompt tokens
                                              that were not computed */
    double prompt_s, written_s;
    bool full; /* the context is full */
};

/* Creates a response; it borrows `a` until response_free. The following return
 * false if out of memory or the client is gone; all later calls then do
 * nothing. */
pl_status response_create(struct response **out, const struct request *a,
                          const struct response_about *about, pl_err *err);
void response_free(struct response *w);
/* Returns the number of choices: prompts times n. Choice c belongs to prompt c
 * / n. */
int response_choices(const struct response *w);
/* Returns "text/event-stream" or "application/json". */
const char *response_type(const struct response *w);
/* Returns true if anything was written: it is then too late for another HTTP
 * status. */
bool response_begun(const struct response *w);

/* Writes a keep-alive to a stream, for the client and proxies: an event or
 * comment outside the response's content, between two events or before all. */
bool response_ping(struct response *w);
/* Reports that `done` of the prompt's tokens are processed, n_cached of them
 * from a cache. Written only if requested. */
bool response_progress(struct response *w, int choice, int64_t done,
                       int64_t total, int64_t n_cached, double seconds);
/* Reports that the prompt is processed, before the first text. text: the
 * prompt's, which is copied, for /completion and for "echo"; NULL: unknown. */
bool response_prompt(struct response *w, int choice, int64_t n_prompt,
                     int64_t n_cached, const char *text);
bool response_token(struct response *w, int choice,
                    const struct response_token *t);
/* Adds a part, as pl_reply passes it. */
bool response_part(struct response *w, int choice, const pl_reply_part *part);
bool response_end(struct response *w, int choice,
                  const struct response_end *end);
/* Ends the whole response with an error: as an event of the stream, or as the
 * body. */
bool response_fail(struct response *w, const struct api_error *why);

#endif
