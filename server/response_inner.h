/* A response as its protocols see it. */
#ifndef SERVER_RESPONSE_INNER_H
#define SERVER_RESPONSE_INNER_H

#include "json_text.h"
#include "response.h"

/* A run of output of one kind. */
struct response_block {
    pl_reply_kind kind;
    struct text text; /* of a call: its arguments */
    char *name, *id;  /* of a call; owned */
};

struct response_choice {
    int index;
    struct response_block *block; /* [n_block], owned */
    int n_block, cap_block;
    struct utf8_tail tail; /* incomplete character of the last block */
    bool thinks;           /* a reasoning section is open */
    json_t *probs, *ids;   /* of all tokens, or in a stream of those not sent
                              yet; owned, NULL: not requested */
    int64_t n_prompt, n_cached, n_token;
    bool begun, ended;
    struct response_end end; /* its `stop` points to `stop` below */
    struct text prompt, stop;
};

struct response {
    const struct response_protocol *protocol;
    const struct request *a;
    struct response_about about;    /* strings owned */
    char *id;                       /* with the protocol's prefix; owned */
    struct response_choice *choice; /* [n], owned */
    int n, n_ended;
    bool streamed, begun, over, failed;
    int64_t n_event; /* events sent */
    bool open;       /* the last block is open, in protocols with block
                        events */
};

/* A protocol. `whole` makes the body, or returns NULL if out of memory. The
 * others write events and return false as response_send_event does. NULL:
 * nothing to write. */
struct response_protocol {
    const char *prefix;               /* of response ids */
    bool (*ping)(struct response *w); /* NULL: a comment is written, not an
                                         event */
    bool (*progress)(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds);
    bool (*begin)(struct response *w, struct response_choice *c);
    /* `text` was appended to the last block. */
    bool (*text)(struct response *w, struct response_choice *c,
                 const char *text, size_t len);
    /* The last block is a call that begins, the nth of the choice; `text` gets
     * its arguments. */
    bool (*call)(struct response *w, struct response_choice *c, int n);
    /* The last block is complete; called before another one or the end. */
    bool (*block_end)(struct response *w, struct response_choice *c);
    bool (*end)(struct response *w, struct response_choice *c);
    bool (*over)(struct response *w); /* all choices have ended */
    bool (*fail)(struct response *w, const struct api_error *why);
    json_t *(*whole)(const struct response *w);
};

extern const struct response_protocol protocol_chat, protocol_completions,
    protocol_llama, protocol_messages, protocol_responses;

/* Put a value into an object or list and take over its reference. If that fails
 * or the value is NULL, they free the object or list and set it to NULL. */
void response_put(json_t **object, const char *key, json_t *value);
void response_add(json_t **list, json_t *value);
/* Sends one event. Takes over `j`, whose NULL means out of memory. name: NULL
 * for events without a name. */
bool response_send_event(struct response *w, const char *name, json_t *j);
bool response_send_done(struct response *w); /* data: [DONE] */

const struct response_block *response_last(const struct response_choice *c);
int response_count(const struct response_choice *c, pl_reply_kind kind);
/* Returns all texts of a kind as one JSON string; NULL if out of memory. */
json_t *response_joined(const struct response_choice *c, pl_reply_kind kind);
json_t *response_string(const struct text *t);
/* Return a new list of the probabilities or ids of tokens since the last call;
 * NULL if there are none or they were not requested. */
json_t *response_new_probs(struct response_choice *c);
json_t *response_new_ids(struct response_choice *c);
/* Return timings and usage in the forms of llama-server and OpenAI. c: NULL for
 * all choices. */
json_t *response_timings(const struct response *w,
                         const struct response_choice *c);
json_t *response_usage(const struct response *w);
/* Totals of all choices; each prompt is counted once. */
struct response_sums {
    int64_t n_prompt, n_cached, n_written;
    double prompt_s, written_s;
};
struct response_sums response_sums(const struct response *w);

#endif
