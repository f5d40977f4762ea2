/* The response object, and the functions by which each protocol formats it
 * (response_chat.c and others). Not included elsewhere. */
#ifndef SERVER_RESPONSE_INNER_H
#define SERVER_RESPONSE_INNER_H

#include "json_text.h"
#include "response.h"

/* A part of a choice's output that is of one kind: consecutive content,
 * consecutive reasoning, or one tool call. */
struct response_block {
    pl_reply_kind kind;
    /* The text of the content or reasoning; for a tool call, its arguments as
     * JSON text. */
    struct text text;
    /* Name of the tool, and id of the call; owned; NULL unless the block is a
     * tool call. */
    char *name, *id;
};

struct response_choice {
    int index;
    /* Index of the choice's slot. Until response_placed, that of the request
     * (request.slot). */
    int slot;
    /* The blocks of the choice's output so far, [n_block]; owned. */
    struct response_block *block;
    int n_block, cap_block;
    /* Bytes of an incomplete UTF-8 character that follow the text of the last
     * block. */
    struct utf8_tail tail;
    /* The last block is reasoning that will be repeated in the content
     * (REASONING_BOTH). */
    bool thinks;
    /* Probabilities and ids of the generated tokens, as JSON lists. In a
     * stream, only of those tokens that were not sent yet. Owned; NULL if the
     * request does not ask for them. */
    json_t *probs, *ids;
    /* Token ids of the prompt; owned; NULL if the request does not ask for
     * them. */
    json_t *prompt_ids;
    /* For each token in `probs`, its offset in the text, in characters. Owned;
     * NULL if the response has no offsets. */
    json_t *offsets;
    int64_t n_char; /* number of characters of the text so far (`offsets`) */
    int64_t n_prompt, n_cached, n_token;
    /* Number of prompt tokens so far that were computed or found in the
     * cache. */
    int64_t n_done;
    bool begun, ended;
    /* There was no memory for a part of the next event, which then must not be
     * sent. */
    bool lost;
    /* The object "plait" of the choice, which has its receipts; owned; NULL if
     * there are none. */
    json_t *plait;
    /* The way in which the output of the choice ended; end.stop is NULL, or
     * points to the text in `stop`. */
    struct response_end end;
    struct text prompt, stop;
};

struct response {
    const struct response_protocol *protocol;
    const struct request *a;
    /* Properties of the response; its strings are owned. */
    struct response_about about;
    /* Id of the response: about.id after the prefix of the protocol; owned. */
    char *id;
    /* The choices of the response, [n]; owned. */
    struct response_choice *choice;
    int n, n_ended;
    bool streamed, begun, over, failed;
    int64_t n_event; /* number of events of the stream that were sent */
    /* The event that begins the last block was sent, but not the one that ends
     * it. Only used by protocols that have such events. */
    bool open;
};

/* The functions of a protocol. `whole` returns the body of a response that is
 * not streamed; NULL if out of memory. The others are called for streamed
 * responses and write events. A function that is NULL writes nothing. Failures
 * are sticky (response.failed), so the functions do not report them. */
struct response_protocol {
    const char *prefix; /* prefix of the ids of responses */
    /* Each event of a stream is a line of JSON instead of a server-sent
     * event. */
    bool lines;
    bool wants_prompt_ids;
    /* Value of the field "object" in the events of OpenAI's streams, which end
     * with an event of the usage, if the request asks for it, and "data:
     * [DONE]". NULL for other protocols. */
    const char *object;
    /* Name of the event with an error; NULL if it has none. */
    const char *error;
    /* Writes a keep-alive; if NULL, a comment is written as keep-alive. */
    void (*ping)(struct response *w);
    void (*progress)(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds);
    void (*begin)(struct response *w, struct response_choice *c);
    /* Called after `text` was appended to the last block of a choice. */
    void (*text)(struct response *w, struct response_choice *c,
                 const char *text, size_t len);
    /* Called when a tool call begins. The call is the last block of the choice
     * and its call number n, counted from 0. The arguments are passed to the
     * function `text` later. */
    void (*call)(struct response *w, struct response_choice *c, int n);
    /* Called when the last block of a choice is complete: before the next block
     * begins, or before the choice ends. */
    void (*block_end)(struct response *w, struct response_choice *c);
    /* Sends an event with the field "plait", whose value contains the receipts
     * of the choice. Called before the function `end`. Takes ownership of
     * `plait`. If NULL, the event has no choices. */
    void (*receipt)(struct response *w, struct response_choice *c,
                    json_t *plait);
    void (*end)(struct response *w, struct response_choice *c);
    /* Sends the event with an error; if NULL, the error is sent in the shape of
     * the protocol (request_shape). */
    void (*fail)(struct response *w, const struct api_error *why);
    json_t *(*whole)(const struct response *w);
};

extern const struct response_protocol protocol_chat, protocol_completions,
    protocol_llama, protocol_messages, protocol_responses, protocol_ollama;

/* Sends an event whose data is the JSON `j`. Takes ownership of `j`; NULL means
 * out of memory. `name` is the name of the event; NULL if it has none. Sets
 * w->failed if out of memory or if the client has disconnected. */
void response_send_event(struct response *w, const char *name, json_t *j);

const struct response_block *response_last(const struct response_choice *c);
int response_count(const struct response_choice *c, pl_reply_kind kind);
/* Returns the texts of all blocks of one kind, joined to one JSON string; NULL
 * if out of memory. */
json_t *response_joined(const struct response_choice *c, pl_reply_kind kind);
json_t *response_string(const struct text *t);
/* Returns the arguments of a tool call as a JSON object. If the arguments are
 * truncated, they are parsed up to the last complete value, as clients parse a
 * stream; a number at the end may lack digits. If the arguments are not a JSON
 * object, returns an empty object. */
json_t *response_arguments(const struct response_block *b);
/* Return a new list of the probabilities, ids or offsets of the tokens that
 * were not returned yet. NULL if there are no such tokens, if the request does
 * not ask for the list, or if out of memory; in the last case they set
 * c->lost. */
json_t *response_new_probs(struct response_choice *c);
json_t *response_new_ids(struct response_choice *c);
json_t *response_new_offsets(struct response_choice *c);
/* Returns the object "timings" of llama-server; NULL if out of memory. Timings
 * are those of choice `c`; if `c` is NULL, of all choices together. */
json_t *response_timings(const struct response *w,
                         const struct response_choice *c);
/* Adds the object "usage" of OpenAI's API, and "timings", of all choices. */
void response_add_usage(const struct response *w, json_t **event);
/* Returns the outermost object of OpenAI's responses and events. Takes
 * ownership of `choices`, a list. NULL if out of memory. */
json_t *response_around(const struct response *w, json_t *choices,
                        const char *object);
/* Adds the object "timings" with the durations so far to an event about choice
 * `c`, if the request asks for it. */
void response_add_timings(const struct response *w,
                          const struct response_choice *c, json_t **event);
/* Adds the object "prompt_progress" to an event about choice `c`: `done` of the
 * `total` prompt tokens are available after `seconds`. */
void response_add_progress(const struct response_choice *c, json_t **event,
                           int64_t done, int64_t total, double seconds);
/* Adds the object "__verbose" to a response or event, if the request asks for
 * it (request.verbose). Its value is the choice in the form of /completion. */
void response_add_verbose(const struct response *w,
                          const struct response_choice *c, json_t **event);
/* Sums over all choices of a response. A prompt that several choices share is
 * counted once. */
struct response_sums {
    int64_t n_prompt, n_cached, n_written, n_drafted, n_accepted;
    /* Number of engine steps that generated tokens, without the step that ended
     * the prompt; as many as generated tokens after the first of each
     * choice. */
    int64_t n_step;
    struct response_times times;
};
struct response_sums response_sums(const struct response *w);

#endif
