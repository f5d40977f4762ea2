/* Parses replies of a model; see reply.h. The parser is in one state at a time
 * (enum state). For each state a function handles the text, until it needs more
 * text or changes the state. */
#include "chat/reply.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/wide_json.h"
#include "chat/reply_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- replies that are a JSON document ------------------------------------ */

static void begin_document(struct pl_reply *r, size_t body)
{
    r->behind = r->state;
    r->state = IN_DOCUMENT;
    r->body = r->seen = body;
    r->scan = (struct json_scan){0};
}

/* Returns true if there is a fence, a line ``` or ```json, at offset *at. If
 * so, advances *at past the line and the blanks after it. */
static bool skip_fence(const struct pl_reply *r, size_t *at)
{
    struct span t = reply_rest(r, *at);

    if (!span_begins(t, span_of("```")))
        return false;
    t = span_from(t, 3);
    if (span_begins(t, span_of("json")))
        t = span_from(t, 4);
    *at = r->raw.n - t.n + span_blanks(t);
    return true;
}

/* If a JSON value, or a fence (a line ``` or ```json) before one, begins at
 * offset `at`, where content begins, changes the state to IN_DOCUMENT and
 * returns true. */
bool reply_take_document(struct pl_reply *r, size_t at)
{
    bool fenced = r->state == IN_CONTENT && skip_fence(r, &at);

    if (at == r->raw.n || !memchr("{[\"-0123456789tfn", r->raw.s[at], 17))
        return false;
    if (fenced) {
        r->fenced = true;
        r->at = at;
    }
    begin_document(r, at);
    return true;
}

/* Returns true if the text from offset `at` on is only a part of a fence (a
 * line ```json), or a fence and blanks, so that more text is needed. */
static bool is_part_of_fence(const struct pl_reply *r, size_t at)
{
    return span_begins(span_of("```json"), reply_rest(r, at)) ||
           (skip_fence(r, &at) && at == r->raw.n);
}

/* Returns the offset of the first character of the content that is not a blank,
 * if a JSON document is allowed to begin there; else the length of the text. */
size_t reply_document_start(const struct pl_reply *r)
{
    struct span t = reply_rest(r, r->at);

    return r->may_document && r->fresh && r->calls.n == 0
               ? r->at + span_blanks(t)
               : r->raw.n;
}

/* If the content at r->at begins with a JSON document, changes the state to
 * IN_DOCUMENT and returns true. */
bool reply_is_document(struct pl_reply *r, bool last)
{
    size_t at = reply_document_start(r), n;

    return at < r->raw.n &&
           reply_marker_at(r, reply_rest(r, at), last, &n) == NO_MARKER &&
           reply_take_document(r, at);
}

static bool go_through_document(struct pl_reply *r, bool last)
{
    struct span t = reply_rest(r, r->body);

    /* `last` is not needed: a truncated document is content, too */
    (void)last;
    if (t.n > 0)
        json_scan(&r->scan, t);
    reply_give(r, PL_REPLY_CONTENT, r->body + r->scan.at);
    if (r->scan.at == 0 || r->scan.depth > 0 || r->scan.in_string)
        return false;
    r->state = r->behind;
    return true;
}

/* ---- the states for content and reasoning -------------------------------- */

/* Handles the marker `m` at r->seen, of n bytes: passes over it, and changes
 * the state of the parser if the marker requires it. */
static void pass_marker(struct pl_reply *r, enum marker m, size_t n)
{
    const bool thought = m == MARKER_THINK_OPEN || m == MARKER_THINK_CLOSE;
    const size_t next = r->seen + n;

    if (r->keep && thought)
        reply_give(r, PL_REPLY_CONTENT, next);
    r->at = r->seen = next;
    r->trimmed = m == MARKER_STRAY ? r->trimmed : !(r->keep && thought);
    r->begun = true;
    if (m == MARKER_THINK_OPEN)
        r->state = IN_REASONING;
    else if (m == MARKER_THINK_CLOSE)
        r->state = IN_CONTENT;
    if (m == MARKER_THINK_CLOSE && r->keep)
        r->fresh = true;
    r->ended = m == MARKER_END;
}

/* Returns true if only the beginning of a marker follows the last tool call,
 * which may be there because the reply was cut off. */
static bool is_cut_after_call(const struct pl_reply *r)
{
    struct span t = reply_rest(r, r->at);

    return r->fresh && r->calls.n > 0 && r->form &&
           reply_is_begun(r, span_from(t, span_blanks(t)));
}

/* Handles text in the states IN_CONTENT and IN_REASONING: reports the text up
 * to the next marker, then handles the marker. */
static bool go_through_text(struct pl_reply *r, bool last)
{
    pl_reply_kind kind =
        r->state == IN_REASONING ? PL_REPLY_REASONING : PL_REPLY_CONTENT;
    size_t n = 0, at = reply_document_start(r);
    enum marker m;

    if (last && is_cut_after_call(r)) {
        r->at = r->seen = r->raw.n;
        return false;
    }
    if (r->state == IN_CONTENT && !last && at < r->raw.n &&
        is_part_of_fence(r, at))
        return false;
    if (r->state == IN_CONTENT && reply_is_document(r, last))
        return true;
    m = reply_next_marker(r, last, &n);
    reply_give(r, kind,
               (m == NO_MARKER && last) || m == MARKER_STRAY
                   ? r->seen
                   : reply_before_blanks(r, r->seen));
    if (m <= MARKER_PART)
        return false;
    /* Blanks before the marker have not been reported. They are content only if
     * no tool call follows. */
    if (m == MARKER_CALL || m == MARKER_BARE)
        reply_begin_call(r, r->seen, m == MARKER_BARE);
    else
        pass_marker(r, m, n);
    return !r->ended;
}

/* ---- functions that pl.h declares ---------------------------------------- */

static void go_on(struct pl_reply *r, bool last)
{
    static bool (*const go[])(struct pl_reply * r, bool last) = {
        [IN_CONTENT] = go_through_text,
        [IN_REASONING] = go_through_text,
        [IN_CALL] = reply_go_through_call,
        [AFTER_CALL] = reply_go_after_call,
        [IN_HEADER] = reply_go_through_header,
        [IN_CHANNEL] = reply_go_through_channel,
        [IN_DOCUMENT] = go_through_document,
    };

    r->busy = true;
    if (r->keep && r->lead.n > 0)
        reply_tell(r, PL_REPLY_CONTENT, (struct span){r->lead.s, r->lead.n});
    r->lead.n = 0;
    while (!r->ended && r->raw.n > 0 && go[r->state](r, last))
        ;
    r->busy = false;
}

static pl_status status(const struct pl_reply *r, pl_err *err)
{
    const struct reply_text *all[] = {&r->raw,   &r->content, &r->reasoning,
                                      &r->calls, &r->made,    &r->name,
                                      &r->id,    &r->closed};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->failed)
            return err_no_memory(err, "a reply");
    return PL_OK;
}

static pl_status read_tools(struct pl_reply *r, const char *tools, pl_err *err)
{
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};

    r->tools = wide_json(tools, strlen(tools), JSON_ALLOW_NUL, &e);
    numeral_end(before);
    if (json_is_array(r->tools))
        return PL_OK;
    if (!r->tools && json_error_code(&e) == json_error_out_of_memory)
        return err_no_memory(err, "tools");
    return err_set(
        err, PL_BAD_ARGUMENT,
        "tools: '%.20s' is not a JSON list; give [...] with an object for each",
        tools);
}

pl_status reply_create(pl_reply **out, const struct reply_format *format,
                       const char *prompt, size_t len, const char *tools,
                       pl_reply_fn *part, void *user, pl_err *err)
{
    struct pl_reply *r = calloc(1, sizeof *r);
    struct span end = span_trim((struct span){prompt, len});
    pl_status s = PL_OK;

    *out = NULL;
    if (!r)
        return err_no_memory(err, "a reply");
    r->f = format;
    r->part = part;
    r->user = user;
    r->fresh = true;
    if (format->channels) {
        r->state = IN_HEADER;
    } else if (reply_ends_with(end, format->think_open)) {
        r->state = IN_REASONING;
        r->trimmed = true;
        reply_add(&r->lead, span_from((struct span){prompt, len},
                                      (size_t)(end.s - prompt) + end.n -
                                          format->think_open.n));
    } else {
        r->trimmed = format->led || reply_ends_with(end, format->think_close);
    }
    if (r->lead.failed)
        s = err_no_memory(err, "a reply");
    if (s == PL_OK && tools)
        s = read_tools(r, tools, err);
    /* With an empty list of tools, nothing is a tool call. */
    if (r->tools && json_array_size(r->tools) == 0) {
        json_decref(r->tools);
        r->tools = NULL;
        r->n_bad = MOST_BAD;
    }
    if (s == PL_OK)
        *out = r;
    else
        pl_reply_free(r);
    return s;
}

void pl_reply_in_pieces(pl_reply *r)
{
    if (r)
        r->pieces = true;
}

void pl_reply_of_document(pl_reply *r)
{
    if (r)
        r->may_document = true;
}

void pl_reply_keep_reasoning(pl_reply *r)
{
    if (!r)
        return;
    r->keep = true;
    r->trimmed = r->trimmed && r->lead.n == 0;
}

void pl_reply_uncut(pl_reply *r)
{
    if (r)
        r->uncut = true;
}

void pl_reply_free(pl_reply *r)
{
    if (!r || r->busy)
        return;
    json_decref(r->tools);
    free(r->raw.s);
    free(r->content.s);
    free(r->reasoning.s);
    free(r->calls.s);
    free(r->made.s);
    free(r->name.s);
    free(r->id.s);
    free(r->lead.s);
    free(r->closed.s);
    free(r);
}

static pl_status check_open(const struct pl_reply *r, pl_err *err)
{
    if (r->busy)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the reply is in its callback: add to it after the "
                       "callback has returned");
    if (r->finished)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "the reply is finished: create another for the next message");
    return status(r, err);
}

pl_status pl_reply_add(pl_reply *r, const char *text, size_t len, pl_err *err)
{
    PL_NEED(r, err);
    PL_NEED_TEXT(text, len, err);
    PL_TRY(check_open(r, err));
    reply_add(&r->raw, (struct span){text, len});
    if (!r->raw.failed)
        go_on(r, false);
    return status(r, err);
}

pl_status pl_reply_finish(pl_reply *r, pl_err *err)
{
    PL_NEED(r, err);
    PL_TRY(check_open(r, err));
    go_on(r, true);
    r->ended = r->finished = true;
    return status(r, err);
}

bool pl_reply_ended(const pl_reply *r)
{
    return r && r->ended;
}

bool pl_reply_in_content(const pl_reply *r)
{
    if (!r)
        return false;
    return r->state == IN_CONTENT || r->state == IN_DOCUMENT ||
           (r->state == IN_CHANNEL && r->channel == PL_REPLY_CONTENT &&
            r->n_recipient == 0);
}

const char *pl_reply_end_of_reasoning(const pl_reply *r)
{
    static const char next[] = "<|end|><|start|>assistant";
    static const char answer[] =
        "<|end|><|start|>assistant<|channel|>final<|message|>";

    if (!r || (r->state != IN_REASONING &&
               (r->state != IN_CHANNEL || !reply_is_thought(r))))
        return NULL;
    if (!r->f->channels)
        return r->f->think_end.s;
    if (r->f->addressed)
        return "<|eom|><|start|>assistant";
    return r->tools && r->n_thought < 2 ? next : answer;
}

const char *pl_reply_text(const pl_reply *r, size_t *len)
{
    if (len)
        *len = r ? r->raw.n : 0;
    return r && r->raw.s ? r->raw.s : "";
}

static void add(struct reply_text *t, const char *s)
{
    reply_add(t, span_of(s));
}

pl_status pl_reply_message(const pl_reply *r, char **json, pl_err *err)
{
    struct reply_text t = {0};
    struct span content, reasoning;

    PL_CLEAR(json);
    PL_NEED(r, err);
    PL_NEED(json, err);
    content = (struct span){r->content.s, r->content.n};
    reasoning = (struct span){r->reasoning.s, r->reasoning.n};
    add(&t, "{\"role\": \"assistant\", \"content\": ");
    reply_add_string(&t, content);
    if (reasoning.n > 0) {
        add(&t, ", \"reasoning_content\": ");
        reply_add_string(&t, reasoning);
    }
    if (reasoning.n > 0 && r->f->thinking) {
        add(&t, ", \"thinking\": ");
        reply_add_string(&t, reasoning);
    }
    if (r->calls.n > 0) {
        add(&t, ", \"tool_calls\": [");
        reply_add(&t, (struct span){r->calls.s, r->calls.n});
        add(&t, "]");
    }
    add(&t, "}");
    if (!t.failed) {
        *json = t.s;
        return PL_OK;
    }
    free(t.s);
    return err_no_memory(err, "a message");
}
