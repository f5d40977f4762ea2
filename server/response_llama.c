/* The protocol of /completion, llama-server's own. A streamed response consists
 * of JSON objects, each with a part of the text. There is no final [DONE].
 * Instead the last object has "stop": true, and also contains the settings, the
 * prompt, the stop reason and the timings. If the response is not streamed, its
 * body is this last object, with the whole text. */
#include "response_inner.h"
#include "sampler_names.h"

#include <math.h>

/* Returns an item of the list "logit_bias". A banned token has the bias null,
 * because JSON has no infinity. */
static json_t *bias_json(int32_t id, float bias)
{
    return json_pack("{s:o, s:I}", "bias",
                     isfinite(bias) ? json_real((double)bias) : json_null(),
                     "token", (json_int_t)id);
}

static json_t *biases_json(const struct request *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->sampling.n_bias; i++)
        json_text_add(&list,
                      bias_json(a->sampling.bias_id[i], a->sampling.bias[i]));
    for (int64_t id = 0; a->ignore_end && id < pl_tokenizer_n_vocab(a->words);
         id++)
        if (pl_token_is_eog(a->words, (int32_t)id))
            json_text_add(&list, bias_json((int32_t)id, -INFINITY));
    return list;
}

/* Returns the names of the sources of drafts, separated by commas. */
static json_t *types_json(const struct request *a)
{
    char names[128] = "";

    for (int i = 0; i < PL_DRAFT_N_SOURCE; i++)
        if (a->drafts.sources >> i & 1)
            snprintf(names + strlen(names), sizeof names - strlen(names),
                     "%s%s", names[0] ? "," : "", pl_draft_source_name(i));
    return json_string(names[0] ? names : "none");
}

json_t *response_settings(const struct request *a)
{
    static const char *const formats[] = {[REASONING_APART] = "deepseek",
                                          [REASONING_WITHIN] = "none",
                                          [REASONING_BOTH] = "deepseek-legacy"};
    json_t *all = sampler_json(&a->sampling), *stop = json_array();

    for (int i = 0; i < a->n_stop; i++)
        json_text_add(&stop, json_string(a->stop[i]));
    if (json_object_update_new(
            all,
            json_pack("{s:o, s:I, s:I, s:b, s:b, s:i, s:s, s:o, s:i, s:i, s:i,"
                      " s:b, s:[], s:[], s:s, s:b, s:s, s:o, s:b, s:b, s:b,"
                      " s:[]}",
                      "stop", stop, "max_tokens", (json_int_t)a->max_tokens,
                      "n_predict", (json_int_t)a->max_tokens, "ignore_eos",
                      (int)a->ignore_end, "stream", (int)a->stream, "n_probs",
                      a->probs ? a->n_top : 0, "grammar",
                      a->grammar != NULL ? a->grammar : "", "logit_bias",
                      biases_json(a), "n_keep", 0, "n_discard", 0, "min_keep",
                      0, "grammar_lazy", 0, "grammar_triggers",
                      "preserved_tokens", "reasoning_format",
                      formats[a->reasoning], "reasoning_in_content",
                      a->reasoning == REASONING_BOTH, "generation_prompt", "",
                      "speculative.types", types_json(a), "timings_per_token",
                      (int)a->timings, "post_sampling_probs", 0,
                      "backend_sampling", 0, "lora")) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* Returns an object of a stream, but not the last one. Takes ownership of
 * `text`, the part of the text for this object. */
static json_t *piece(const struct response *w, struct response_choice *c,
                     json_t *text)
{
    json_t *ids = response_new_ids(c), *j;

    j = json_pack("{s:i, s:o, s:o, s:b, s:i, s:I, s:I, s:o*}", "index",
                  c->index, "content", text, "tokens",
                  ids != NULL ? ids : json_array(), "stop", 0, "id_slot",
                  c->slot, "tokens_predicted", (json_int_t)c->n_token,
                  "tokens_evaluated", (json_int_t)c->n_prompt,
                  "completion_probabilities", response_new_probs(c));
    response_add_timings(w, c, &j);
    return j;
}

static const char *stop_type(const struct response_choice *c)
{
    static const char *const types[] = {[RESPONSE_ENDED] = "eos",
                                        [RESPONSE_STOP] = "word",
                                        [RESPONSE_LENGTH] = "limit"};

    return types[c->end.why];
}

/* Returns an object with those fields of `all` that the request's
 * "response_fields" lists. `all` is the last object of a response. A nested
 * field such as "timings/prompt_n" becomes a field with this whole name. If the
 * request has no "response_fields", returns `all`. Takes ownership of `all`. */
static json_t *chosen(const struct response *w, json_t *all)
{
    const json_t *names = json_object_get(w->a->body, "response_fields");
    json_t *some, *name;
    size_t i;

    if (json_array_size(names) == 0 || all == NULL)
        return all;
    some = json_object();
    json_array_foreach (names, i, name) {
        const char *at = json_string_value(name);
        json_t *v = all;

        for (; at != NULL && *at != '\0' && v != NULL; at += *at == '/') {
            size_t n = strcspn(at, "/");

            v = json_object_getn(v, at, n);
            at += n;
        }
        if (at != NULL && v != NULL)
            json_text_put(&some, json_string_value(name), json_incref(v));
    }
    json_decref(all);
    return some;
}

/* Returns the last object of the response for a choice. Takes ownership of
 * `text`, `ids` and `probs`. */
static json_t *last(const struct response *w, const struct response_choice *c,
                    json_t *text, json_t *ids, json_t *probs)
{
    bool lines = false;

    for (int i = 0; i < c->n_block; i++)
        lines = lines ||
                (c->block[i].text.n > 0 &&
                 memchr(c->block[i].text.s, '\n', c->block[i].text.n) != NULL);
    return chosen(
        w,
        json_pack(
            "{s:i, s:o, s:o, s:i, s:b, s:s, s:I, s:I, s:o, s:o, s:b, s:b, s:s,"
            " s:s, s:I, s:o, s:o*}",
            "index", c->index, "content", text, "tokens",
            ids != NULL ? ids : json_array(), "id_slot", c->slot, "stop", 1,
            "model", w->about.model, "tokens_predicted",
            (json_int_t)c->end.n_written, "tokens_evaluated",
            (json_int_t)c->n_prompt, "generation_settings",
            response_settings(w->a), "prompt", response_string(&c->prompt),
            "has_new_line", (int)lines, "truncated", (int)c->end.full,
            "stop_type", stop_type(c), "stopping_word",
            c->end.stop != NULL ? c->end.stop : "", "tokens_cached",
            (json_int_t)(c->n_prompt + c->end.n_written), "timings",
            response_timings(w, c), "completion_probabilities", probs));
}

void response_add_verbose(const struct response *w,
                          const struct response_choice *c, json_t **event)
{
    if (w->a->verbose)
        json_text_put(event, "__verbose",
                      last(w, c, response_joined(c, PL_REPLY_CONTENT),
                           json_incref(c->ids), NULL));
}

static void progress(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds)
{
    json_t *j = piece(w, c, json_string(""));

    response_add_progress(c, &j, done, total, seconds);
    response_send_event(w, NULL, j);
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    response_send_event(w, NULL, piece(w, c, json_text(s, len)));
}

static void receipt(struct response *w, struct response_choice *c,
                    json_t *plait)
{
    json_t *j = piece(w, c, json_string(""));

    json_text_put(&j, "plait", plait);
    response_send_event(w, NULL, j);
}

static void end(struct response *w, struct response_choice *c)
{
    response_send_event(w, NULL,
                        last(w, c, json_string(""), response_new_ids(c),
                             response_new_probs(c)));
}

/* Returns the body of a response that is not streamed: the object of the only
 * choice, or a list of the objects of several choices. */
static json_t *whole(const struct response *w)
{
    json_t *list = json_array(), *only;

    for (int i = 0; i < w->n; i++) {
        const struct response_choice *c = &w->choice[i];

        json_text_add(&list, last(w, c, response_joined(c, PL_REPLY_CONTENT),
                                  json_incref(c->ids), json_incref(c->probs)));
    }
    if (w->n > 1)
        return list;
    only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

const struct response_protocol protocol_llama = {
    .prefix = "",
    .progress = progress,
    .text = text,
    .receipt = receipt,
    .end = end,
    .whole = whole,
};
