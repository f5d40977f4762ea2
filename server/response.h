/* An answer on its way to a client: what a model writes, as the bytes of the
 * protocol that it was asked in, streamed or whole. No engine and no HTTP here.
 *
 * What is told of a choice comes in this order: response_progress as often as
 * it likes, then texts, calls and tokens, and response_end once. Choices may
 * take turns. A streamed answer writes events as they come; another one writes
 * its body when its last choice has ended. Texts may be cut anywhere; what is
 * no UTF-8 in them becomes U+FFFD. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "request.h"

struct response; /* opaque; one thread at a time */

/* False: the client is gone. */
typedef bool response_write_fn(void *user, const void *data, size_t n);

/* Of all answers of a server. Strings are copied. */
struct response_about {
    const char *model; /* the name that it has for clients */
    const char *id;    /* of this answer, without the protocol's prefix: letters
                          and digits */
    int64_t created;   /* seconds since 1970 */
    response_write_fn *write;
    void *user;
};

/* A token that was written, and those that might have been. */
struct response_token {
    int32_t id;
    const char *text; /* [len], any bytes */
    size_t len;
    double logprob;
    const struct response_token *top; /* [n_top], the likeliest first; their own
                                       n_top is not read */
    int n_top;
};

enum response_end_reason {
    RESPONSE_ENDED,  /* the model ended its text */
    RESPONSE_STOP,   /* a stop string came */
    RESPONSE_LENGTH, /* max_tokens, or the context is full */
};

struct response_end {
    enum response_end_reason why;
    const char *stop;                      /* the string; NULL: none */
    int64_t n_prompt, n_cached, n_written; /* tokens; cached: of the prompt's,
                                              those not computed */
    double prompt_s, written_s;
    bool full; /* it was the context */
};

/* Borrowed until response_free: a. False from any of these: no memory, or the
 * client is gone; all that follow do nothing then. */
pl_status response_create(struct response **out, const struct request *a,
                          const struct response_about *about, pl_err *err);
void response_free(struct response *w);
/* How many choices it has: prompts times n. Choice c is of prompt c / n. */
int response_choices(const struct response *w);
/* "text/event-stream" or "application/json". */
const char *response_type(const struct response *w);
/* Has anything been written? Then it is too late for another HTTP status. */
bool response_begun(const struct response *w);

/* A stream tells its client, and whatever stands between, that it is alive:
 * something that is none of the answer, between two events or before all. */
bool response_ping(struct response *w);
/* Of the prompt's tokens `done` are there, n_cached of them from a cache. Is
 * only told where it was asked for. */
bool response_progress(struct response *w, int choice, int64_t done,
                       int64_t total, int64_t n_cached, double seconds);
/* The prompt is read; before the first text. text: the prompt's, which is
 * copied, for /completion and where the request says "echo"; NULL: not told. */
bool response_prompt(struct response *w, int choice, int64_t n_prompt,
                     int64_t n_cached, const char *text);
bool response_token(struct response *w, int choice,
                    const struct response_token *t);
/* As pl_reply tells it. */
bool response_part(struct response *w, int choice, const pl_reply_part *part);
bool response_end(struct response *w, int choice,
                  const struct response_end *end);
/* Ends all of it: as an event of the stream, or as the body. */
bool response_fail(struct response *w, const struct api_error *why);

#endif
