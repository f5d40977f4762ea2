/* The response object, and the interface of the protocols that format it
 * (response_chat.c and others). Not included elsewhere. */
#ifndef SERVER_RESPONSE_INNER_H
#define SERVER_RESPONSE_INNER_H

#include "json_text.h"
#include "response.h"

/* A block: consecutive output of one kind, that is content, reasoning, or one
 * tool call. */
struct response_block {
    pl_reply_kind kind;
    struct text text; /* the text of content or reasoning; the arguments of a
                         call, as JSON */
    char *name, *id;  /* owned; NULL unless the block is a call */
};

struct response_choice {
    int index;
    struct response_block *block; /* [n_block], owned */
    int n_block, cap_block;
    struct utf8_tail tail; /* bytes of an incomplete character that follow the
                              text of the last block */
    bool thinks;           /* the last block is reasoning that will be repeated
                              in the content (REASONING_BOTH) */
    /* Probabilities and ids of the tokens, as JSON lists: of all tokens or, in
     * a stream, of those not sent yet. Owned; NULL if not requested. */
    json_t *probs, *ids;
    json_t *prompt_ids; /* token ids of the prompt; owned; NULL if not
                           requested */
    /* For each token of `probs`, the number of characters of the text before
     * it. Owned; NULL if not requested. */
    json_t *offsets;
    int64_t n_char; /* number of characters of the text so far */
    int64_t n_prompt, n_cached, n_token;
    int64_t n_done; /* number of prompt tokens that are computed or cached so
                       far */
    bool begun, ended;
    bool lost;               /* there was no memory for a part of the next
                                event, which then must not be sent */
    json_t *receipt;         /* owned; NULL if none */
    struct response_end end; /* end.stop points to `stop` below, or is NULL */
    struct text prompt, stop;
};

struct response {
    const struct response_protocol *protocol;
    const struct request *a;
    struct response_about about;    /* its strings are owned */
    char *id;                       /* about.id with the protocol's prefix
                                       before it; owned */
    struct response_choice *choice; /* [n], owned */
    int n, n_ended;
    bool streamed, begun, over, failed;
    int64_t n_event; /* number of events sent */
    bool open;       /* the start event of the last block was sent, but not its
                        end event; only in protocols with such events */
};

/* The functions of a protocol. `whole` returns the body of a response that is
 * not streamed, NULL if out of memory. The others write events of a stream and
 * return the result of response_send_event. A function that is NULL writes
 * nothing. */
struct response_protocol {
    const char *prefix; /* prefix of response ids */
    bool lines;         /* each event of a stream is a line of JSON, instead of
                           a server-sent event */
    bool wants_prompt_ids;
    bool (*ping)(struct response *w); /* if NULL, a keep-alive is a comment
                                         instead of an event */
    bool (*progress)(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds);
    bool (*begin)(struct response *w, struct response_choice *c);
    /* Called after `text` was appended to the last block. */
    bool (*text)(struct response *w, struct response_choice *c,
                 const char *text, size_t len);
    /* Called when a tool call begins, which is the last block and call number n
     * of the choice, from 0. Its arguments are passed to `text` later. */
    bool (*call)(struct response *w, struct response_choice *c, int n);
    /* Called when the last block is complete: before the next block begins, or
     * before the end of the choice. */
    bool (*block_end)(struct response *w, struct response_choice *c);
    /* Sends an event with the field "plait", which has the receipt of the
     * choice. Called before `end`. Takes ownership of `plait`. */
    bool (*receipt)(struct response *w, struct response_choice *c,
                    json_t *plait);
    bool (*end)(struct response *w, struct response_choice *c);
    bool (*over)(struct response *w); /* called when all choices have ended */
    bool (*fail)(struct response *w, const struct api_error *why);
    json_t *(*whole)(const struct response *w);
};

extern const struct response_protocol protocol_chat, protocol_completions,
    protocol_llama, protocol_messages, protocol_responses, protocol_ollama;

/* Sends one event with JSON data. Takes ownership of `j`; NULL means out of
 * memory. `name` is NULL for events without a name. Returns false if out of
 * memory or the client has disconnected. */
bool response_send_event(struct response *w, const char *name, json_t *j);
bool response_send_done(struct response *w); /* sends "data: [DONE]" */

const struct response_block *response_last(const struct response_choice *c);
int response_count(const struct response_choice *c, pl_reply_kind kind);
/* Returns the texts of all blocks of a kind as one JSON string; NULL if out of
 * memory. */
json_t *response_joined(const struct response_choice *c, pl_reply_kind kind);
json_t *response_string(const struct text *t);
/* Returns the arguments of a call as an object. Truncated JSON is parsed up to
 * its last complete value, as clients do with a stream; a number at its end may
 * be incomplete. Anything but a JSON object becomes an empty object. */
json_t *response_arguments(const struct response_block *b);
/* Return a new list of the probabilities, ids or offsets of the tokens since
 * the last call. NULL if there are none, if they were not requested, or if out
 * of memory; in the last case they set c->lost. */
json_t *response_new_probs(struct response_choice *c);
json_t *response_new_ids(struct response_choice *c);
json_t *response_new_offsets(struct response_choice *c);
/* Return the "timings" of llama-server and the "usage" of OpenAI as JSON; NULL
 * if out of memory. Timings are those of choice `c`; if `c` is NULL, of all
 * choices together. Usage is that of all choices. */
json_t *response_timings(const struct response *w,
                         const struct response_choice *c);
json_t *response_usage(const struct response *w);
/* Adds the timings so far to an event about choice `c`, if the request asks for
 * them. */
void response_add_timings(const struct response *w,
                          const struct response_choice *c, json_t **event);
/* Adds "prompt_progress" to an event about choice `c`: `done` of `total` prompt
 * tokens are computed after `seconds`. */
void response_add_progress(const struct response_choice *c, json_t **event,
                           int64_t done, int64_t total, double seconds);
/* Adds "__verbose" to a response or event if the request wants it
 * (request.verbose). The value is the choice in the form of /completion. */
void response_add_verbose(const struct response *w,
                          const struct response_choice *c, json_t **event);
/* Totals of all choices. A prompt that several choices share is counted
 * once. */
struct response_sums {
    int64_t n_prompt, n_cached, n_written;
    int64_t n_step; /* number of generated tokens without the first of each
                       choice, which the step that ended the prompt generated */
    struct response_times times;
};
struct response_sums response_sums(const struct response *w);

#endif
