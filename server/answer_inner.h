/* An answer as its protocols see it. */
#ifndef SERVER_ANSWER_INNER_H
#define SERVER_ANSWER_INNER_H

#include "answer.h"
#include "json_text.h"

/* What follows each other in an answer. */
struct answer_block {
    pl_reply_kind kind;
    struct text text; /* of a call: its arguments */
    char *name, *id;  /* of a call; owned */
};

struct answer_choice {
    int index;
    struct answer_block *block; /* [n_block], owned */
    int n_block, cap_block;
    struct utf8_tail tail; /* of the last block */
    bool thinks;           /* reasoning is open */
    json_t *probs, *ids;   /* of all tokens, in streams those that are not told
                              yet; owned, NULL: not asked for */
    int64_t n_prompt, n_cached, n_token;
    bool begun, ended;
    struct answer_end end; /* its string is not kept */
    struct text prompt, stop;
};

struct answer {
    const struct answer_protocol *protocol;
    const struct ask *a;
    struct answer_about about;    /* strings owned */
    char *id;                     /* with the protocol's prefix; owned */
    struct answer_choice *choice; /* [n], owned */
    int n, n_ended;
    bool streamed, begun, over, failed;
    int64_t n_event; /* that were sent */
    bool open;       /* the last block is open, in protocols that have such */
};

/* A protocol. `whole` makes the body, NULL: no memory; the others write events
 * and return false as answer_sent does. NULL: nothing to tell. */
struct answer_protocol {
    const char *prefix;             /* of ids */
    bool (*ping)(struct answer *w); /* NULL: a comment, which is no event */
    bool (*progress)(struct answer *w, struct answer_choice *c, int64_t done,
                     int64_t total, double seconds);
    bool (*begin)(struct answer *w, struct answer_choice *c);
    /* `text` is new at the end of the last block. */
    bool (*text)(struct answer *w, struct answer_choice *c, const char *text,
                 size_t len);
    /* The last block is a call that begins, the n-th of the choice; `text` has
     * its arguments. */
    bool (*call)(struct answer *w, struct answer_choice *c, int n);
    /* The last block is whole; before another or the end. */
    bool (*block_end)(struct answer *w, struct answer_choice *c);
    bool (*end)(struct answer *w, struct answer_choice *c);
    bool (*over)(struct answer *w); /* all choices have ended */
    bool (*fail)(struct answer *w, const struct refusal *why);
    json_t *(*whole)(const struct answer *w);
};

extern const struct answer_protocol answer_chat, answer_text, answer_completion,
    answer_messages, answer_responses;

/* Put a value, which is given away, into an object or list. Where that fails,
 * or the value is NULL, nothing is left of it: NULL. */
void answer_put(json_t **object, const char *key, json_t *value);
void answer_add(json_t **list, json_t *value);
/* Sends one event; `j` is given away, and NULL means no memory. name: NULL,
 * where events have none. */
bool answer_send(struct answer *w, const char *name, json_t *j);
bool answer_send_done(struct answer *w); /* data: [DONE] */

const struct answer_block *answer_last(const struct answer_choice *c);
int answer_count(const struct answer_choice *c, pl_reply_kind kind);
/* All texts of a kind, as one JSON string; NULL: no memory. */
json_t *answer_joined(const struct answer_choice *c, pl_reply_kind kind);
json_t *answer_string(const struct text *t);
/* Probabilities, ids of tokens that are new since the last call, a new list;
 * NULL: none, or not asked for. */
json_t *answer_new_probs(struct answer_choice *c);
json_t *answer_new_ids(struct answer_choice *c);
/* timings and usage, as llama-server and OpenAI have them. c: NULL: of all
 * choices. */
json_t *answer_timings(const struct answer *w, const struct answer_choice *c);
json_t *answer_usage(const struct answer *w);
/* Of all choices; each prompt counted once. */
struct answer_sums {
    int64_t n_prompt, n_cached, n_written;
    double prompt_s, written_s;
};
struct answer_sums answer_sums(const struct answer *w);

#endif
