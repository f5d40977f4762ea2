/* An answer as its protocols see it. */
#ifndef SERVER_RESPONSE_INNER_H
#define SERVER_RESPONSE_INNER_H

#include "json_text.h"
#include "response.h"

/* What follows each other in an answer. */
struct response_block {
    pl_reply_kind kind;
    struct text text; /* of a call: its arguments */
    char *name, *id;  /* of a call; owned */
};

struct response_choice {
    int index;
    struct response_block *block; /* [n_block], owned */
    int n_block, cap_block;
    struct utf8_tail tail; /* of the last block */
    bool thinks;           /* reasoning is open */
    json_t *probs, *ids;   /* of all tokens, in streams those that are not told
                              yet; owned, NULL: not asked for */
    int64_t n_prompt, n_cached, n_token;
    bool begun, ended;
    struct response_end end; /* its string is not kept */
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
    int64_t n_event; /* that were sent */
    bool open;       /* the last block is open, in protocols that have such */
};

/* A protocol. `whole` makes the body, NULL: no memory; the others write events
 * and return false as answer_sent does. NULL: nothing to tell. */
struct response_protocol {
    const char *prefix;               /* of ids */
    bool (*ping)(struct response *w); /* NULL: a comment, not an event */
    bool (*progress)(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds);
    bool (*begin)(struct response *w, struct response_choice *c);
    /* `text` is new at the end of the last block. */
    bool (*text)(struct response *w, struct response_choice *c,
                 const char *text, size_t len);
    /* The last block is a call that begins, the n-th of the choice; `text` has
     * its arguments. */
    bool (*call)(struct response *w, struct response_choice *c, int n);
    /* The last block is whole; before another or the end. */
    bool (*block_end)(struct response *w, struct response_choice *c);
    bool (*end)(struct response *w, struct response_choice *c);
    bool (*over)(struct response *w); /* all choices have ended */
    bool (*fail)(struct response *w, const struct api_error *why);
    json_t *(*whole)(const struct response *w);
};

extern const struct response_protocol protocol_chat, protocol_completions,
    protocol_llama, protocol_messages, protocol_responses;

/* Put a value, which is given away, into an object or list. Where that fails,
 * or the value is NULL, nothing is left of it: NULL. */
void response_put(json_t **object, const char *key, json_t *value);
void response_add(json_t **list, json_t *value);
/* Sends one event; `j` is given away, and NULL means no memory. name: NULL,
 * where events have none. */
bool response_send_event(struct response *w, const char *name, json_t *j);
bool response_send_done(struct response *w); /* data: [DONE] */

const struct response_block *response_last(const struct response_choice *c);
int response_count(const struct response_choice *c, pl_reply_kind kind);
/* All texts of a kind, as one JSON string; NULL: no memory. */
json_t *response_joined(const struct response_choice *c, pl_reply_kind kind);
json_t *response_string(const struct text *t);
/* Probabilities, ids of tokens that are new since the last call, a new list;
 * NULL: none, or not asked for. */
json_t *response_new_probs(struct response_choice *c);
json_t *response_new_ids(struct response_choice *c);
/* timings and usage, as llama-server and OpenAI have them. c: NULL: of all
 * choices. */
json_t *response_timings(const struct response *w,
                         const struct response_choice *c);
json_t *response_usage(const struct response *w);
/* Of all choices; each prompt counted once. */
struct response_sums {
    int64_t n_prompt, n_cached, n_written;
    double prompt_s, written_s;
};
struct response_sums response_sums(const struct response *w);

#endif
