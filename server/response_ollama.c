/* The protocol of Ollama's /api/chat and /api/generate. A streamed response
 * consists of lines, each a JSON object with a part of the message. The last
 * object has "done": true, the reason, numbers of tokens, and durations in
 * nanoseconds. If the response is not streamed, it is this last object, with
 * the whole message. A tool call is sent only when it is complete, because its
 * arguments are a JSON object. */
#include "ollama.h"
#include "response_inner.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

void ollama_time(char out[OLLAMA_TIME], double t)
{
    time_t whole = (time_t)floor(t);
    struct tm tm;
    char date[24];

    if (gmtime_r(&whole, &tm) == NULL)
        memset(&tm, 0, sizeof(tm));
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, OLLAMA_TIME, "%s.%06dZ", date,
             (int)((t - floor(t)) * 1e6) % 1000000);
}

double ollama_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns a JSON object with a part of a message: for /api/chat if `chats`,
 * else for /api/generate. Takes ownership of `content`, `thinking` and `calls`;
 * the last two are NULL if the part has none. */
static json_t *said(bool chats, const char *model, json_t *content,
                    json_t *thinking, json_t *calls)
{
    char now[OLLAMA_TIME];

    ollama_time(now, ollama_now());
    if (chats)
        return json_pack("{s:s, s:s, s:{s:s, s:o, s:o*, s:o*}, s:b}", "model",
                         model, "created_at", now, "message", "role",
                         "assistant", "content", content, "thinking", thinking,
                         "tool_calls", calls, "done", 0);
    return json_pack("{s:s, s:s, s:o, s:o*, s:o*, s:b}", "model", model,
                     "created_at", now, "response", content, "thinking",
                     thinking, "tool_calls", calls, "done", 0);
}

char *ollama_empty_body(bool chats, const char *model, const char *why)
{
    json_t *j = said(chats, model, json_string(""), NULL, NULL);
    char *body;

    json_text_put(&j, "done", json_true());
    json_text_put(&j, "done_reason", json_string(why));
    body = json_text_dump(j, JSON_COMPACT);
    json_decref(j);
    return body;
}

/* Returns an object of a stream, made by said(), and adds the probabilities of
 * the tokens that were not sent yet. */
static json_t *piece(const struct response *w, struct response_choice *c,
                     json_t *content, json_t *thinking, json_t *calls)
{
    const char *model = w->a->model != NULL ? w->a->model : w->about.model;
    json_t *j = said(w->a->kind == REQUEST_OLLAMA_CHAT, model, content,
                     thinking, calls);
    json_t *probs = c != NULL ? response_new_probs(c) : NULL;

    if (probs != NULL)
        json_text_put(&j, "logprobs", probs);
    return j;
}

static json_t *call_json(const struct response_block *b, int n)
{
    return json_pack("{s:s, s:{s:i, s:s, s:o}}", "id", b->id, "function",
                     "index", n, "name", b->name, "arguments",
                     response_arguments(b));
}

static json_t *nanoseconds(double seconds)
{
    return json_integer((json_int_t)(1e9 * seconds));
}

/* Returns the field "context": the tokens of the prompt and the output, which a
 * later request may send to continue the text. NULL if the request does not ask
 * for it. */
static json_t *context(struct response_choice *c)
{
    json_t *all = c->prompt_ids != NULL ? json_text_copy(c->prompt_ids) : NULL;

    c->lost = c->lost || (c->prompt_ids != NULL && all == NULL);
    if (all != NULL && c->ids != NULL && json_array_extend(all, c->ids) != 0) {
        c->lost = true;
        json_decref(all);
        return NULL;
    }
    return all;
}

/* Adds the fields that only the last object of a choice has: reason, durations,
 * numbers of tokens and context. */
static void finish(json_t **j, struct response_choice *c)
{
    const struct response_end *e = &c->end;
    json_t *tokens = context(c);

    json_text_put(j, "done", json_true());
    json_text_put(j, "done_reason",
                  json_string(e->why == RESPONSE_LENGTH ? "length" : "stop"));
    json_text_put(j, "total_duration", nanoseconds(e->total_s));
    json_text_put(j, "load_duration", nanoseconds(e->load_s));
    json_text_put(j, "prompt_eval_count", json_integer(e->n_prompt));
    json_text_put(j, "prompt_eval_duration", nanoseconds(e->times.prompt_s));
    json_text_put(j, "eval_count", json_integer(e->n_written));
    json_text_put(j, "eval_duration", nanoseconds(e->times.written_s));
    if (tokens != NULL)
        json_text_put(j, "context", tokens);
}

/* Sends an object without text as a keep-alive, because a stream of JSON lines
 * cannot have comments. */
static void ping(struct response *w)
{
    response_send_event(w, NULL, piece(w, NULL, json_string(""), NULL, NULL));
}

static void text(struct response *w, struct response_choice *c, const char *s,
                 size_t len)
{
    json_t *part;

    if (response_last(c)->kind == PL_REPLY_CALL)
        return; /* block_end sends the call when it is complete */
    part = json_text(s, len);
    w->failed = w->failed || part == NULL;
    response_send_event(w, NULL,
                        response_last(c)->kind == PL_REPLY_REASONING
                            ? piece(w, c, json_string(""), part, NULL)
                            : piece(w, c, part, NULL, NULL));
}

static void block_end(struct response *w, struct response_choice *c)
{
    const struct response_block *b = response_last(c);
    json_t *calls;

    if (b->kind != PL_REPLY_CALL)
        return;
    calls =
        json_pack("[o]", call_json(b, response_count(c, PL_REPLY_CALL) - 1));
    w->failed = w->failed || calls == NULL;
    response_send_event(w, NULL, piece(w, c, json_string(""), NULL, calls));
}

static void receipt(struct response *w, struct response_choice *c,
                    json_t *plait)
{
    json_t *j = piece(w, c, json_string(""), NULL, NULL);

    json_text_put(&j, "plait", plait);
    response_send_event(w, NULL, j);
}

static void end(struct response *w, struct response_choice *c)
{
    json_t *j = piece(w, c, json_string(""), NULL, NULL);

    finish(&j, c);
    response_send_event(w, NULL, j);
}

static json_t *whole(const struct response *w)
{
    struct response_choice *c = &w->choice[0];
    bool thinks = response_count(c, PL_REPLY_REASONING) > 0;
    json_t *calls = NULL, *thinking = NULL, *j;
    int n = 0;

    if (thinks && (thinking = response_joined(c, PL_REPLY_REASONING)) == NULL)
        return NULL;
    for (int i = 0; i < c->n_block; i++) {
        if (c->block[i].kind != PL_REPLY_CALL)
            continue;
        if (n == 0)
            calls = json_array();
        json_text_add(&calls, call_json(&c->block[i], n++));
    }
    j = piece(w, c, response_joined(c, PL_REPLY_CONTENT), thinking, calls);
    if (n > 0 && calls == NULL) {
        json_decref(j);
        return NULL;
    }
    finish(&j, c);
    return j;
}

const struct response_protocol protocol_ollama = {
    .prefix = "",
    .lines = true,
    .wants_prompt_ids = true,
    .ping = ping,
    .text = text,
    .block_end = block_end,
    .receipt = receipt,
    .end = end,
    .whole = whole,
};
