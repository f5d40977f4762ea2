/* An answer on its way to a client: what a model writes, as the bytes of the
 * protocol that it was asked in, streamed or whole. No engine and no HTTP here.
 *
 * What is told of a choice comes in this order: answer_progress as often as it
 * likes, then texts, calls and tokens, and answer_end once. Choices may take
 * turns. A streamed answer writes events as they come; another one writes its
 * body when its last choice has ended. Texts may be cut anywhere; what is no
 * UTF-8 in them becomes U+FFFD. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "ask.h"

struct answer; /* opaque; one thread at a time */

/* False: the client is gone. */
typedef bool answer_write_fn(void *user, const void *data, size_t n);

/* Of all answers of a server. Strings are copied. */
struct answer_about {
    const char *model; /* the name that it has for clients */
    const char *id;    /* of this answer, without the protocol's prefix: letters
                          and digits */
    int64_t created;   /* seconds since 1970 */
    answer_write_fn *write;
    void *user;
};

/* A token that was written, and those that might have been. */
struct answer_token {
    int32_t id;
    const char *text; /* [len], any bytes */
    size_t len;
    double logprob;
    const struct answer_token *top; /* [n_top], the likeliest first; their own
                                       n_top is not read */
    int n_top;
};

enum answer_why {
    ANSWER_ENDED,  /* the model ended its text */
    ANSWER_STOP,   /* a stop string came */
    ANSWER_LENGTH, /* max_tokens, or the context is full */
};

struct answer_end {
    enum answer_why why;
    const char *stop;                      /* the string; NULL: none */
    int64_t n_prompt, n_cached, n_written; /* tokens; cached: of the prompt's,
                                              those not computed */
    double prompt_s, written_s;
    bool full; /* it was the context */
};

/* Borrowed until answer_free: a. False from any of these: no memory, or the
 * client is gone; all that follow do nothing then. */
pl_status answer_create(struct answer **out, const struct ask *a,
                        const struct answer_about *about, pl_err *err);
void answer_free(struct answer *w);
/* How many choices it has: prompts times n. Choice c is of prompt c / n. */
int answer_choices(const struct answer *w);
/* "text/event-stream" or "application/json". */
const char *answer_type(const struct answer *w);
/* Has anything been written? Then it is too late for another HTTP status. */
bool answer_begun(const struct answer *w);

/* A stream tells its client, and whatever stands between, that it is alive:
 * something that is none of the answer, between two events or before all. */
bool answer_ping(struct answer *w);
/* Of the prompt's tokens `done` are there, n_cached of them from a cache. Is
 * only told where it was asked for. */
bool answer_progress(struct answer *w, int choice, int64_t done, int64_t total,
                     int64_t n_cached, double seconds);
/* The prompt is read; before the first text. text: the prompt's, which is
 * copied, for /completion and where the request says "echo"; NULL: not told. */
bool answer_prompt(struct answer *w, int choice, int64_t n_prompt,
                   int64_t n_cached, const char *text);
bool answer_token(struct answer *w, int choice, const struct answer_token *t);
/* As pl_reply tells it. */
bool answer_part(struct answer *w, int choice, const pl_reply_part *part);
bool answer_end(struct answer *w, int choice, const struct answer_end *end);
/* Ends all of it: as an event of the stream, or as the body. */
bool answer_fail(struct answer *w, const struct refusal *why);

#endif
