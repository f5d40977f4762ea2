/* The protocol of /v1/completions. A streamed response consists of JSON objects
 * with parts of the text, called chunks. */
#include "response_inner.h"

/* Adds the name and probability of token t to *top, the alternatives at a
 * position. Two tokens that are parts of characters may have the same name.
 * Then only the one that was added first is kept, which is the likelier one. */
static void add_top(json_t **top, const json_t *t)
{
    const char *name = json_string_value(json_object_get(t, "token"));

    if (json_object_get(*top, name) == NULL)
        json_text_put(top, name, json_incref(json_object_get(t, "logprob")));
}

/* Returns the alternatives to token t, a JSON object from name to probability;
 * null if t has no probability. The object contains t itself: if t is not among
 * the likeliest tokens, the object has one more member than the request asks
 * for. */
static json_t *top_json(const json_t *t)
{
    json_t *top = json_object(), *other;
    size_t i;

    if (json_is_null(json_object_get(t, "logprob"))) {
        json_decref(top);
        return json_null();
    }
    json_array_foreach (json_object_get(t, "top_logprobs"), i, other) {
        add_top(&top, other);
    }
    add_top(&top, t);
    return top;
}

/* Returns the object "logprobs". It has the probabilities twice: as the
 * parallel lists of OpenAI's completions, and as llama-server's list "content".
 * `list` has the tokens with their probabilities, `offsets` their positions in
 * the text; takes ownership of both. If `list` is NULL, returns a JSON null. */
static json_t *probs_json(json_t *list, json_t *offsets)
{
    json_t *tokens, *probs, *tops, *t;
    size_t i;

    if (list == NULL) {
        json_decref(offsets);
        return json_null();
    }
    tokens = json_array();
    probs = json_array();
    tops = json_array();
    json_array_foreach (list, i, t) {
        json_text_add(&tokens, json_incref(json_object_get(t, "token")));
        json_text_add(&probs, json_incref(json_object_get(t, "logprob")));
        json_text_add(&tops, top_json(t));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "tokens", tokens,
                     "token_logprobs", probs, "top_logprobs", tops,
                     "text_offset", offsets, "content", list);
}

static const char *finish_of(const struct response_choice *c)
{
    return c->end.why == RESPONSE_LENGTH ? "length" : "stop";
}

static json_t *choice_json(const struct response_choice *c, json_t *text,
                           json_t *probs, const char *finish)
{
    return json_pack("{s:o, s:i, s:o, s:s?}", "text", text, "index", c->index,
                     "logprobs", probs, "finish_reason", finish);
}

static json_t *chunk(const struct response *w, struct response_choice *c,
                     json_t *text, const char *finish)
{
    json_t *probs = probs_json(response_new_probs(c), response_new_offsets(c));

    return response_around(
        w, json_pack("[o]", choice_json(c, text, probs, finish)),
        w->protocol->object);
}

static void progress(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds)
{
    json_t *j = chunk(w, c, json_string(""), NULL);

    response_add_timings(w, c, &j);
    response_add_progress(c, &j, done, total, seconds);
    response_send_event(w, NULL, j);
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    json_t *j = chunk(w, c, json_text(s, len), NULL);

    response_add_timings(w, c, &j);
    response_send_event(w, NULL, j);
}

static void end(struct response *w, struct response_choice *c)
{
    json_t *j = chunk(w, c, json_string(""), finish_of(c));

    json_text_put(&j, "timings", response_timings(w, c));
    response_add_verbose(w, c, &j);
    response_send_event(w, NULL, j);
}

static json_t *whole(const struct response *w)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < w->n; i++) {
        const struct response_choice *c = &w->choice[i];

        json_text_add(&choices,
                      choice_json(c, response_joined(c, PL_REPLY_CONTENT),
                                  probs_json(json_incref(c->probs),
                                             json_incref(c->offsets)),
                                  finish_of(c)));
    }
    j = response_around(w, choices, w->protocol->object);
    response_add_verbose(w, &w->choice[0], &j);
    response_add_usage(w, &j);
    return j;
}

const struct response_protocol protocol_completions = {
    .prefix = "cmpl-",
    .object = "text_completion",
    .progress = progress,
    .text = text,
    .end = end,
    .whole = whole,
};
