/* The protocol of /v1/messages. The content of a message is a list of blocks.
 * In a stream, named events begin, continue and end each block. */
#include "response_inner.h"

/* Returns the object "usage" for a choice. As the protocol requires,
 * input_tokens does not include cached tokens. */
static json_t *usage(const struct response_choice *c)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens",
                     (json_int_t)(c->n_prompt - c->n_cached),
                     "cache_creation_input_tokens", (json_int_t)0,
                     "cache_read_input_tokens", (json_int_t)c->n_cached,
                     "output_tokens", (json_int_t)c->end.n_written);
}

static const char *reason_of(const struct response_choice *c)
{
    return c->end.why == RESPONSE_LENGTH          ? "max_tokens"
           : response_count(c, PL_REPLY_CALL) > 0 ? "tool_use"
           : c->end.stop != NULL                  ? "stop_sequence"
                                                  : "end_turn";
}

/* Returns the message object of a choice. Takes ownership of `content`. If
 * `ended`, the message has a stop reason. */
static json_t *message(const struct response *w,
                       const struct response_choice *c, json_t *content,
                       bool ended)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", w->id,
                     "type", "message", "role", "assistant", "model",
                     w->about.model, "content", content, "stop_reason",
                     ended ? reason_of(c) : NULL, "stop_sequence",
                     ended ? c->end.stop : NULL, "usage", usage(c));
}

static void ping(struct response *w)
{
    response_send_event(w, "ping", json_pack("{s:s}", "type", "ping"));
}

static void begin(struct response *w, struct response_choice *c)
{
    response_send_event(w, "message_start",
                        json_pack("{s:s, s:o}", "type", "message_start",
                                  "message",
                                  message(w, c, json_array(), false)));
    ping(w);
}

/* Returns a block of the output as JSON: with its contents if `filled`, else
 * empty. */
static json_t *block_json(const struct response_block *b, bool filled)
{
    json_t *text = filled ? response_string(&b->text) : json_string("");

    if (b->kind == PL_REPLY_CONTENT)
        return json_pack("{s:s, s:o}", "type", "text", "text", text);
    if (b->kind == PL_REPLY_REASONING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                         text, "signature", "");
    json_decref(text);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", b->id,
                     "name", b->name, "input",
                     filled ? response_arguments(b) : json_object());
}

static void start(struct response *w, const struct response_choice *c)
{
    w->open = true;
    response_send_event(w, "content_block_start",
                        json_pack("{s:s, s:i, s:o}", "type",
                                  "content_block_start", "index",
                                  c->n_block - 1, "content_block",
                                  block_json(response_last(c), false)));
}

static void delta(struct response *w, const struct response_choice *c,
                  const char *type, const char *key, json_t *text)
{
    response_send_event(
        w, "content_block_delta",
        json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta",
                  "index", c->n_block - 1, "delta", "type", type, key, text));
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    bool thought = response_last(c)->kind == PL_REPLY_REASONING;

    if (response_last(c)->kind == PL_REPLY_CALL) {
        delta(w, c, "input_json_delta", "partial_json", json_text(s, len));
        return;
    }
    if (!w->open)
        start(w, c);
    delta(w, c, thought ? "thinking_delta" : "text_delta",
          thought ? "thinking" : "text", json_text(s, len));
}

static void call(struct response *w, struct response_choice *c, int n)
{
    (void)n;
    start(w, c);
}

static void block_end(struct response *w, struct response_choice *c)
{
    if (!w->open)
        return;
    w->open = false;
    if (response_last(c)->kind == PL_REPLY_REASONING)
        delta(w, c, "signature_delta", "signature", json_string(""));
    response_send_event(w, "content_block_stop",
                        json_pack("{s:s, s:i}", "type", "content_block_stop",
                                  "index", c->n_block - 1));
}

static void receipt(struct response *w, struct response_choice *c,
                    json_t *plait)
{
    (void)c;
    response_send_event(
        w, "plait.receipt",
        json_pack("{s:s, s:o}", "type", "plait.receipt", "plait", plait));
}

static void end(struct response *w, struct response_choice *c)
{
    response_send_event(w, "message_delta",
                        json_pack("{s:s, s:{s:s, s:s?}, s:o}", "type",
                                  "message_delta", "delta", "stop_reason",
                                  reason_of(c), "stop_sequence", c->end.stop,
                                  "usage", usage(c)));
    response_send_event(w, "message_stop",
                        json_pack("{s:s}", "type", "message_stop"));
}

static json_t *whole(const struct response *w)
{
    const struct response_choice *c = &w->choice[0];
    json_t *content = json_array();

    for (int i = 0; i < c->n_block; i++)
        json_text_add(&content, block_json(&c->block[i], true));
    return message(w, c, content, true);
}

const struct response_protocol protocol_messages = {
    .prefix = "msg_",
    .error = "error",
    .ping = ping,
    .begin = begin,
    .text = text,
    .call = call,
    .block_end = block_end,
    .receipt = receipt,
    .end = end,
    .whole = whole,
};
