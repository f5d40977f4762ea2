/* The protocol of /v1/chat/completions. A streamed response consists of JSON
 * objects with parts of the message, called chunks. Responses include
 * llama-server's additional fields: timings, progress and reasoning_content. */
#include "response_inner.h"

/* Returns the object "logprobs", {"content": [...]}, for the tokens that were
 * not sent yet; NULL if there are none. */
static json_t *new_probs(struct response_choice *c)
{
    json_t *probs = response_new_probs(c);
    json_t *all = probs != NULL ? json_pack("{s:o}", "content", probs) : NULL;

    c->lost = c->lost || (probs != NULL && all == NULL);
    return all;
}

/* Returns a chunk of a streamed response for one choice. Takes ownership of
 * `delta`, the part of the message. `finish` is the finish reason; NULL if the
 * choice has not ended. */
static json_t *chunk(const struct response *w, struct response_choice *c,
                     json_t *delta, const char *finish)
{
    return response_around(w,
                           json_pack("[{s:s?, s:i, s:o*, s:o}]",
                                     "finish_reason", finish, "index", c->index,
                                     "logprobs", new_probs(c), "delta", delta),
                           w->protocol->object);
}

static void begin(struct response *w, struct response_choice *c)
{
    response_send_event(
        w, NULL,
        chunk(w, c, json_pack("{s:s, s:n}", "role", "assistant", "content"),
              NULL));
}

/* Sends a chunk. Adds the timings so far, if the request asks for them. */
static void send_chunk(struct response *w, const struct response_choice *c,
                       json_t *j)
{
    response_add_timings(w, c, &j);
    response_send_event(w, NULL, j);
}

static void progress(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds)
{
    json_t *j = chunk(w, c, json_object(), NULL);

    response_add_progress(c, &j, done, total, seconds);
    send_chunk(w, c, j);
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    int n = response_count(c, PL_REPLY_CALL) - 1;
    const char *key = response_last(c)->kind == PL_REPLY_REASONING
                          ? "reasoning_content"
                          : "content";

    json_t *delta =
        response_last(c)->kind != PL_REPLY_CALL
            ? json_pack("{s:o}", key, json_text(s, len))
        : w->a->functions
            ? json_pack("{s:{s:o}}", "function_call", "arguments",
                        json_text(s, len))
            : json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", n,
                        "function", "arguments", json_text(s, len));

    send_chunk(w, c, chunk(w, c, delta, NULL));
}

/* Returns a tool call as JSON. If `index` is -1, this is a whole call with its
 * arguments, for a response that is not streamed. Otherwise it begins call
 * number `index` of a stream, and its arguments are empty. */
static json_t *call_json(const struct response_block *b, int index)
{
    json_t *j =
        json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", b->id, "type", "function",
                  "function", "name", b->name, "arguments",
                  index < 0 ? response_string(&b->text) : json_string(""));

    if (index >= 0)
        json_text_put(&j, "index", json_integer(index));
    return j;
}

/* Puts the tool calls `list` into *to, a message or a part of one: as
 * "tool_calls" or as the older "function_call", according to the request. Takes
 * ownership of `list`. */
static void put_calls(const struct response *w, json_t **to, json_t *list)
{
    if (!w->a->functions) {
        json_text_put(to, "tool_calls", list);
        return;
    }
    json_text_put(
        to, "function_call",
        json_incref(json_object_get(json_array_get(list, 0), "function")));
    json_decref(list);
}

static void call(struct response *w, struct response_choice *c, int n)
{
    json_t *delta = json_object();

    put_calls(w, &delta, json_pack("[o]", call_json(response_last(c), n)));
    send_chunk(w, c, chunk(w, c, delta, NULL));
}

static const char *finish_of(const struct response *w,
                             const struct response_choice *c)
{
    return c->end.why == RESPONSE_LENGTH           ? "length"
           : response_count(c, PL_REPLY_CALL) == 0 ? "stop"
           : w->a->functions                       ? "function_call"
                                                   : "tool_calls";
}

static void end(struct response *w, struct response_choice *c)
{
    json_t *j = chunk(w, c, json_object(), finish_of(w, c));

    json_text_put(&j, "timings", response_timings(w, c));
    response_add_verbose(w, c, &j);
    response_send_event(w, NULL, j);
}

static json_t *message_of(const struct response *w,
                          const struct response_choice *c)
{
    bool calls = response_count(c, PL_REPLY_CALL) > 0;
    bool says = response_count(c, PL_REPLY_CONTENT) > 0 || !calls;
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content",
                  says ? response_joined(c, PL_REPLY_CONTENT) : json_null());
    json_t *list = calls ? json_array() : NULL;

    if (response_count(c, PL_REPLY_REASONING) > 0)
        json_text_put(&m, "reasoning_content",
                      response_joined(c, PL_REPLY_REASONING));
    for (int i = 0; i < c->n_block; i++)
        if (c->block[i].kind == PL_REPLY_CALL)
            json_text_add(&list, call_json(&c->block[i], -1));
    if (calls)
        put_calls(w, &m, list);
    return m;
}

static json_t *whole(const struct response *w)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < w->n; i++) {
        const struct response_choice *c = &w->choice[i];
        json_t *probs = c->probs != NULL
                            ? json_pack("{s:O}", "content", c->probs)
                            : json_null();

        json_text_add(&choices,
                      json_pack("{s:s, s:i, s:o, s:o}", "finish_reason",
                                finish_of(w, c), "index", i, "message",
                                message_of(w, c), "logprobs", probs));
    }
    j = response_around(w, choices, "chat.completion");
    response_add_usage(w, &j);
    response_add_verbose(w, &w->choice[0], &j);
    return j;
}

const struct response_protocol protocol_chat = {
    .prefix = "chatcmpl-",
    .object = "chat.completion.chunk",
    .progress = progress,
    .begin = begin,
    .text = text,
    .call = call,
    .end = end,
    .whole = whole,
};
