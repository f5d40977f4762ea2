/* The protocol of /v1/completions. A stream consists of chunks of plain
 * text. */
#include "response_inner.h"

/* Returns the "logprobs" object. It contains the probabilities twice: as the
 * parallel lists of OpenAI's completions, and as llama-server's "content".
 * Takes ownership of `list`; if NULL, returns a JSON null. */
static json_t *probs_json(json_t *list)
{
    json_t *tokens = json_array(), *probs = json_array(), *tops = json_array();
    size_t i, k;
    json_t *t, *other;

    json_array_foreach (list, i, t) {
        json_t *top = json_object();

        response_add(&tokens, json_incref(json_object_get(t, "token")));
        response_add(&probs, json_incref(json_object_get(t, "logprob")));
        json_array_foreach (json_object_get(t, "top_logprobs"), k, other) {
            response_put(&top,
                         json_string_value(json_object_get(other, "token")),
                         json_incref(json_object_get(other, "logprob")));
        }
        response_add(&tops, top);
    }
    if (list == NULL) {
        json_decref(tokens);
        json_decref(probs);
        json_decref(tops);
        return json_null();
    }
    return json_pack("{s:o, s:o, s:o, s:[], s:o}", "tokens", tokens,
                     "token_logprobs", probs, "top_logprobs", tops,
                     "text_offset", "content", list);
}

static const char *finish_of(const struct response_choice *c)
{
    return c->end.why == RESPONSE_LENGTH ? "length" : "stop";
}

static json_t *choice_json(const struct response_choice *c, json_t *text,
                           json_t *probs, const char *finish)
{
    return json_pack("{s:o, s:i, s:o, s:s?}", "text", text, "index", c->index,
                     "logprobs", probs_json(probs), "finish_reason", finish);
}

/* Returns the outer object of a response or chunk; takes ownership of
 * `choices`. */
static json_t *around(const struct response *w, json_t *choices)
{
    return json_pack("{s:o, s:I, s:s, s:s, s:s, s:s}", "choices", choices,
                     "created", (json_int_t)w->about.created, "model",
                     w->about.model, "system_fingerprint", pl_version(),
                     "object", "text_completion", "id", w->id);
}

static json_t *chunk(const struct response *w, struct response_choice *c,
                     json_t *text, const char *finish)
{
    return around(
        w,
        json_pack("[o]", choice_json(c, text, response_new_probs(c), finish)));
}

static bool progress(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds)
{
    json_t *j;

    if (!w->a->progress)
        return true;
    j = chunk(w, c, json_string(""), NULL);
    response_put(&j, "prompt_progress",
                 json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)total,
                           "cache", (json_int_t)c->n_cached, "processed",
                           (json_int_t)done, "time_ms",
                           (json_int_t)(1e3 * seconds)));
    return response_send_event(w, NULL, j);
}

static bool text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    return response_send_event(w, NULL, chunk(w, c, json_text(s, len), NULL));
}

/* Writes nothing, because this protocol has no tool calls. */
static bool call(struct response *w, struct response_choice *c, int n)
{
    (void)w;
    (void)c;
    (void)n;
    return true;
}

static bool end(struct response *w, struct response_choice *c)
{
    json_t *j = chunk(w, c, json_string(""), finish_of(c));

    response_put(&j, "timings", response_timings(w, c));
    return response_send_event(w, NULL, j);
}

static bool over(struct response *w)
{
    if (w->a->usage) {
        json_t *j = around(w, json_array());

        response_put(&j, "usage", response_usage(w));
        response_put(&j, "timings", response_timings(w, NULL));
        if (!response_send_event(w, NULL, j))
            return false;
    }
    return response_send_done(w);
}

static bool fail(struct response *w, const struct api_error *why)
{
    return protocol_chat.fail(w, why);
}

static json_t *whole(const struct response *w)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < w->n; i++) {
        const struct response_choice *c = &w->choice[i];

        response_add(&choices,
                     choice_json(c, response_joined(c, PL_REPLY_CONTENT),
                                 json_incref(c->probs), finish_of(c)));
    }
    j = around(w, choices);
    response_put(&j, "usage", response_usage(w));
    response_put(&j, "timings", response_timings(w, NULL));
    return j;
}

const struct response_protocol protocol_completions = {
    .prefix = "cmpl-",
    .progress = progress,
    .text = text,
    .call = call,
    .end = end,
    .over = over,
    .fail = fail,
    .whole = whole,
};
