/* The protocol of /v1/responses. The output is a list of items. Each block of
 * the model's output is an item: reasoning, a message, or a tool call. In a
 * stream, each item has its own events. */
#include "response_inner.h"

#include <stdio.h>
#include <stdlib.h>

/* Returns the value of field `name` of the request, because the response
 * repeats it. If the request does not have the field, returns `otherwise`.
 * Takes ownership of `otherwise`. */
static json_t *requested(const struct response *w, const char *name,
                         json_t *otherwise)
{
    json_t *v = json_object_get(w->a->body, name);

    if (v == NULL || json_is_null(v))
        return otherwise;
    json_decref(otherwise);
    return json_incref(v);
}

static json_t *usage(const struct response *w)
{
    struct response_sums s = response_sums(w);

    return json_pack("{s:I, s:{s:I, s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                     (json_int_t)s.n_prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)s.n_cached,
                     "cache_write_tokens", (json_int_t)0, "output_tokens",
                     (json_int_t)s.n_written, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)0, "total_tokens",
                     (json_int_t)(s.n_prompt + s.n_written));
}

/* ---- making output items ------------------------------------------------- */

static void item_id(const struct response *w, int i, char id[64])
{
    static const char *const prefix[] = {[PL_REPLY_CONTENT] = "msg",
                                         [PL_REPLY_REASONING] = "rs",
                                         [PL_REPLY_CALL] = "fc"};

    snprintf(id, 64, "%s_%.40s_%d", prefix[w->choice[0].block[i].kind],
             w->about.id, i);
}

/* Returns the content part of an item that is a message or reasoning. Takes
 * ownership of `text`. */
static json_t *part_json(const struct response_block *b, json_t *text)
{
    if (b->kind == PL_REPLY_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                     text, "annotations", "logprobs");
}

/* Returns output item i as JSON: with its contents if `filled`, else empty. */
static json_t *item_json(const struct response *w, int i, bool filled,
                         const char *status)
{
    const struct response_block *b = &w->choice[0].block[i];
    json_t *text = filled ? response_string(&b->text) : json_string("");
    const char *space = NULL, *name;
    json_t *content;
    char id[64];

    item_id(w, i, id);
    if (b->kind == PL_REPLY_CALL) {
        if (!request_split_name(w->a, b->name, &space, &name)) {
            space = NULL;
            name = b->name;
        }
        return json_pack("{s:s, s:s, s:s, s:s*, s:s, s:o, s:s}", "type",
                         "function_call", "id", id, "call_id", b->id,
                         "namespace", space, "name", name, "arguments", text,
                         "status", status);
    }
    content = json_array();
    if (filled)
        json_text_add(&content, part_json(b, text));
    else
        json_decref(text);
    if (b->kind == PL_REPLY_REASONING)
        return json_pack("{s:s, s:s, s:[], s:o, s:s}", "type", "reasoning",
                         "id", id, "summary", "content", content, "status",
                         status);
    return json_pack("{s:s, s:s, s:s, s:o, s:s}", "type", "message", "id", id,
                     "role", "assistant", "content", content, "status", status);
}

/* ---- making the response object ------------------------------------------ */

/* Sets the fields of the response *j that repeat fields of the request. */
static void repeat(const struct response *w, json_t **j)
{
    const pl_sampling *s = &w->a->sampling;
    const struct {
        const char *name;
        json_t *otherwise;
    } row[] = {
        {"instructions", json_null()},
        {"max_output_tokens", json_null()},
        {"metadata", json_object()},
        {"parallel_tool_calls", json_true()},
        {"previous_response_id", json_null()},
        {"reasoning", json_pack("{s:n, s:n}", "effort", "summary")},
        {"temperature", json_real((double)s->temperature)},
        {"text", json_pack("{s:{s:s}}", "format", "type", "text")},
        {"tool_choice", json_string("auto")},
        {"tools", json_array()},
        {"top_p", json_real((double)s->top_p)},
        {"truncation", json_string("disabled")},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        json_text_put(j, row[i].name,
                      requested(w, row[i].name, row[i].otherwise));
}

/* Returns the response object. `status` is "in_progress", "completed",
 * "incomplete" or "failed". `why` is the error of a failed response; NULL for
 * none. */
static json_t *response(const struct response *w, const char *status,
                        const struct api_error *why)
{
    const struct response_choice *c = &w->choice[0];
    bool cut = strcmp(status, "incomplete") == 0;
    json_t *output = json_array(), *j, *error = json_null();

    for (int i = 0; c->ended && i < c->n_block; i++)
        json_text_add(
            &output,
            item_json(w, i, true,
                      cut && i == c->n_block - 1 ? "incomplete" : "completed"));
    if (why != NULL)
        error =
            json_pack("{s:s, s:o}", "code",
                      why->n_ctx > 0       ? why->code
                      : why->status == 429 ? "rate_limit_exceeded"
                                           : "server_error",
                      "message", json_text(why->message, strlen(why->message)));
    j = json_pack(
        "{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:o, s:o}", "id", w->id, "object",
        "response", "created_at", (json_int_t)w->about.created, "status",
        status, "error", error, "incomplete_details",
        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
        "model", w->about.model, "output", output, "usage",
        c->ended ? usage(w) : json_null());
    repeat(w, &j);
    return j;
}

/* ---- sending events of a stream ------------------------------------------ */

/* Sends an event of the stream after adding its type and sequence number to
 * `j`. Takes ownership of `j`. */
static void event(struct response *w, const char *type, json_t *j)
{
    json_text_put(&j, "type", json_string(type));
    json_text_put(&j, "sequence_number", json_integer((json_int_t)w->n_event));
    response_send_event(w, type, j);
}

/* Sends an event about the last output item, with `value` in field `key`. Takes
 * ownership of `value`. */
static void item_event(struct response *w, const char *type, const char *key,
                       json_t *value)
{
    const struct response_choice *c = &w->choice[0];
    bool call = response_last(c)->kind == PL_REPLY_CALL;
    json_t *j;
    char id[64];

    item_id(w, c->n_block - 1, id);
    j = json_pack("{s:s, s:i, s:o}", "item_id", id, "output_index",
                  c->n_block - 1, key, value);
    if (!call)
        json_text_put(&j, "content_index", json_integer(0));
    if (strncmp(type, "response.output_text", 20) == 0)
        json_text_put(&j, "logprobs", json_array());
    response_add_timings(w, c, &j);
    event(w, type, j);
}

/* Sends an event that contains the last output item itself. `type` is
 * "response.output_item.added" or "response.output_item.done". */
static void about_item(struct response *w, const char *type, bool filled,
                       const char *status)
{
    int i = w->choice[0].n_block - 1;

    event(w, type,
          json_pack("{s:i, s:o}", "output_index", i, "item",
                    item_json(w, i, filled, status)));
}

/* Sends the first events of the stream, unless the function `progress` has sent
 * them. */
static void begin(struct response *w, struct response_choice *c)
{
    (void)c;
    if (w->n_event > 0)
        return;
    event(w, "response.created",
          json_pack("{s:o}", "response", response(w, "in_progress", NULL)));
    event(w, "response.in_progress",
          json_pack("{s:o}", "response", response(w, "in_progress", NULL)));
}

static void progress(struct response *w, struct response_choice *c,
                     int64_t done, int64_t total, double seconds)
{
    json_t *j;

    begin(w, c);
    j = json_pack("{s:o}", "response", response(w, "in_progress", NULL));
    response_add_timings(w, c, &j);
    response_add_progress(c, &j, done, total, seconds);
    event(w, "response.in_progress", j);
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    static const char *const deltas[] = {
        [PL_REPLY_CONTENT] = "response.output_text.delta",
        [PL_REPLY_REASONING] = "response.reasoning_text.delta",
        [PL_REPLY_CALL] = "response.function_call_arguments.delta"};
    const struct response_block *b = response_last(c);

    if (b->kind != PL_REPLY_CALL && !w->open) {
        w->open = true;
        about_item(w, "response.output_item.added", false, "in_progress");
        item_event(w, "response.content_part.added", "part",
                   part_json(b, json_string("")));
    }
    item_event(w, deltas[b->kind], "delta", json_text(s, len));
}

static void call(struct response *w, struct response_choice *c, int n)
{
    (void)c;
    (void)n;
    w->open = true;
    about_item(w, "response.output_item.added", false, "in_progress");
}

/* Returns the "status" of the response once its choice has ended. The last
 * output item has the same status. */
static const char *status_of(const struct response_choice *c)
{
    return c->end.why == RESPONSE_LENGTH ? "incomplete" : "completed";
}

static void block_end(struct response *w, struct response_choice *c)
{
    static const struct {
        const char *type, *key;
    } ends[] = {[PL_REPLY_CONTENT] = {"response.output_text.done", "text"},
                [PL_REPLY_REASONING] = {"response.reasoning_text.done", "text"},
                [PL_REPLY_CALL] = {"response.function_call_arguments.done",
                                   "arguments"}};
    const struct response_block *b = response_last(c);

    if (!w->open)
        return;
    w->open = false;
    item_event(w, ends[b->kind].type, ends[b->kind].key,
               response_string(&b->text));
    if (b->kind != PL_REPLY_CALL)
        item_event(w, "response.content_part.done", "part",
                   part_json(b, response_string(&b->text)));
    about_item(w, "response.output_item.done", true, status_of(c));
}

/* Passes the items of the conversation, including those of this response, to
 * the callback about.keep, unless the request has "store": false. */
static void keep(const struct response *w)
{
    const json_t *body = w->a->body, *input = json_object_get(body, "input");
    json_t *items;

    if (w->about.keep == NULL || json_is_false(json_object_get(body, "store")))
        return;
    items = w->a->earlier ? json_text_copy(w->a->earlier) : json_array();
    if (json_is_array(input)) {
        if (json_array_extend(items, (json_t *)input) != 0) {
            json_decref(items);
            items = NULL;
        }
    } else {
        json_text_add(&items, json_pack("{s:s, s:O}", "role", "user", "content",
                                        (json_t *)input));
    }
    for (int i = 0; i < w->choice[0].n_block; i++)
        json_text_add(&items, item_json(w, i, true, "completed"));
    if (items != NULL)
        w->about.keep(w->about.user, w->id, items);
    json_decref(items);
}

static void receipt(struct response *w, struct response_choice *c,
                    json_t *plait)
{
    (void)c;
    event(w, "plait.receipt", json_pack("{s:o}", "plait", plait));
}

static void end(struct response *w, struct response_choice *c)
{
    json_t *j = json_pack("{s:o}", "response", response(w, status_of(c), NULL));
    char type[32];

    keep(w);
    snprintf(type, sizeof(type), "response.%s", status_of(c));
    json_text_put(&j, "timings", response_timings(w, c));
    event(w, type, j);
}

static void fail(struct response *w, const struct api_error *why)
{
    event(w, "response.failed",
          json_pack("{s:o}", "response", response(w, "failed", why)));
}

static json_t *whole(const struct response *w)
{
    keep(w);
    return response(w, status_of(&w->choice[0]), NULL);
}

const struct response_protocol protocol_responses = {
    .prefix = "resp_",
    .progress = progress,
    .begin = begin,
    .text = text,
    .call = call,
    .block_end = block_end,
    .receipt = receipt,
    .end = end,
    .fail = fail,
    .whole = whole,
};
