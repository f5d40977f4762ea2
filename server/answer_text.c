/* /v1/completions: chunks of plain text. */
#include "answer_inner.h"

/* Probabilities as completions have them, lists side by side, and as
 * llama-server has them, in "content". `list` is given away; NULL: null. */
static json_t *probs_json(json_t *list)
{
    json_t *tokens = json_array(), *probs = json_array(), *tops = json_array();
    size_t i, k;
    json_t *t, *other;

    json_array_foreach (list, i, t) {
        json_t *top = json_object();

        answer_add(&tokens, json_incref(json_object_get(t, "token")));
        answer_add(&probs, json_incref(json_object_get(t, "logprob")));
        json_array_foreach (json_object_get(t, "top_logprobs"), k, other) {
            answer_put(&top, json_string_value(json_object_get(other, "token")),
                       json_incref(json_object_get(other, "logprob")));
        }
        answer_add(&tops, top);
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

static const char *finish_of(const struct answer_choice *c)
{
    return c->end.why == ANSWER_LENGTH ? "length" : "stop";
}

static json_t *choice_json(const struct answer_choice *c, json_t *text,
                           json_t *probs, const char *finish)
{
    return json_pack("{s:o, s:i, s:o, s:s?}", "text", text, "index", c->index,
                     "logprobs", probs_json(probs), "finish_reason", finish);
}

/* `choices` is given away. */
static json_t *around(const struct answer *w, json_t *choices)
{
    return json_pack("{s:o, s:I, s:s, s:s, s:s, s:s}", "choices", choices,
                     "created", (json_int_t)w->about.created, "model",
                     w->about.model, "system_fingerprint", pl_version(),
                     "object", "text_completion", "id", w->id);
}

static json_t *chunk(const struct answer *w, struct answer_choice *c,
                     json_t *text, const char *finish)
{
    return around(
        w, json_pack("[o]", choice_json(c, text, answer_new_probs(c), finish)));
}

static bool progress(struct answer *w, struct answer_choice *c, int64_t done,
                     int64_t total, double seconds)
{
    json_t *j;

    if (!w->a->progress)
        return true;
    j = chunk(w, c, json_string(""), NULL);
    answer_put(&j, "prompt_progress",
               json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)total,
                         "cache", (json_int_t)c->n_cached, "processed",
                         (json_int_t)done, "time_ms",
                         (json_int_t)(1e3 * seconds)));
    return answer_send(w, NULL, j);
}

static bool text(struct answer *w, struct answer_choice *c, const char *s,
                 size_t len)
{
    return answer_send(w, NULL, chunk(w, c, json_text(s, len), NULL));
}

/* There are no tools here. */
static bool call(struct answer *w, struct answer_choice *c, int n)
{
    (void)w;
    (void)c;
    (void)n;
    return true;
}

static bool end(struct answer *w, struct answer_choice *c)
{
    json_t *j = chunk(w, c, json_string(""), finish_of(c));

    answer_put(&j, "timings", answer_timings(w, c));
    return answer_send(w, NULL, j);
}

static bool over(struct answer *w)
{
    if (w->a->usage) {
        json_t *j = around(w, json_array());

        answer_put(&j, "usage", answer_usage(w));
        answer_put(&j, "timings", answer_timings(w, NULL));
        if (!answer_send(w, NULL, j))
            return false;
    }
    return answer_send_done(w);
}

static bool fail(struct answer *w, const struct refusal *why)
{
    return answer_chat.fail(w, why);
}

static json_t *whole(const struct answer *w)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < w->n; i++) {
        const struct answer_choice *c = &w->choice[i];

        answer_add(&choices, choice_json(c, answer_joined(c, PL_REPLY_CONTENT),
                                         json_incref(c->probs), finish_of(c)));
    }
    j = around(w, choices);
    answer_put(&j, "usage", answer_usage(w));
    answer_put(&j, "timings", answer_timings(w, NULL));
    return j;
}

const struct answer_protocol answer_text = {
    .prefix = "cmpl-",
    .progress = progress,
    .text = text,
    .call = call,
    .end = end,
    .over = over,
    .fail = fail,
    .whole = whole,
};
