/* Reports the parts of a reply to the callback of pl_reply, and collects them
 * for the whole message; see reply_inner.h. */
#include "chat/reply_inner.h"

#include <string.h>

/* ---- reporting content, reasoning and whole calls ------------------------ */

void reply_tell(struct pl_reply *r, pl_reply_kind kind, struct span t)
{
    struct reply_text *all;

    if (t.n == 0)
        return;
    if (r->keep)
        kind = PL_REPLY_CONTENT;
    all = kind == PL_REPLY_CONTENT ? &r->content : &r->reasoning;
    reply_add(all, t);
    if (r->part)
        r->part(r->user,
                &(pl_reply_part){.kind = kind, .text = t.s, .len = t.n});
}

/* Reports the text from r->at to offset `end` as content or reasoning (`kind`),
 * without blanks at its beginning if r->trimmed. Sets r->at to `end`. */
void reply_give(struct pl_reply *r, pl_reply_kind kind, size_t end)
{
    struct span t = reply_piece(r, r->at, end);

    if (r->trimmed)
        t = span_from(t, span_blanks(t));
    if (t.n > 0)
        r->trimmed = false;
    if (t.n > 0 && kind == PL_REPLY_CONTENT)
        r->fresh = false;
    if (span_blanks(t) < t.n)
        r->begun = true;
    reply_tell(r, kind, t);
    r->at = end;
    r->seen = r->seen > end ? r->seen : end;
}

static void add(struct reply_text *t, const char *s)
{
    reply_add(t, span_of(s));
}

static void tell_part(struct pl_reply *r, pl_reply_kind kind, struct span t)
{
    if (r->part && !r->name.failed && !r->id.failed)
        r->part(r->user, &(pl_reply_part){.kind = kind,
                                          .text = t.s,
                                          .len = t.n,
                                          .name = r->name.s,
                                          .id = r->id.n ? r->id.s : NULL});
}

static void name_call(struct pl_reply *r, const struct reply_call *c)
{
    r->name.n = r->id.n = 0;
    reply_add(&r->name, c->name);
    reply_add(&r->id, c->id);
}

/* Appends a tool call to r->calls, the JSON texts of all calls of the reply. If
 * `text`, the arguments become a JSON string, else an object. */
static void keep_call(struct pl_reply *r, const struct reply_call *c, bool text)
{
    add(&r->calls, r->calls.n > 0 ? ", " : "");
    add(&r->calls, "{\"type\": \"function\", ");
    if (c->id.n > 0) {
        add(&r->calls, "\"id\": ");
        reply_add_string(&r->calls, c->id);
        add(&r->calls, ", ");
    }
    add(&r->calls, "\"function\": {\"name\": ");
    reply_add_string(&r->calls, c->name);
    add(&r->calls, ", \"arguments\": ");
    if (text)
        reply_add_string(&r->calls, c->arguments);
    else
        reply_add(&r->calls, c->arguments);
    add(&r->calls, "}}");
}

void reply_tell_call(struct pl_reply *r, const struct reply_call *c)
{
    bool is_told = r->args > 0;

    if (!is_told)
        name_call(r, c);
    keep_call(r, c, r->f->as_text);
    if (!is_told)
        tell_part(r, PL_REPLY_CALL, c->arguments);
    else if (!r->args_whole && c->arguments.n > r->n_told)
        /* the closing brackets that the model left out */
        tell_part(r, PL_REPLY_CALL_MORE, span_from(c->arguments, r->n_told));
    r->args = 0;
}

void reply_tell_begun_call(struct pl_reply *r, const struct reply_call *c)
{
    name_call(r, c);
    keep_call(r, c, true);
    tell_part(r, PL_REPLY_CALL, c->arguments);
}

/* ---- arguments reported in fragments ------------------------------------- */

/* Begins to report the arguments of a tool call in fragments. The arguments
 * begin at offset `at` of the reply. */
void reply_begin_arguments(struct pl_reply *r, const struct reply_call *c,
                           size_t at)
{
    r->args = r->told = at;
    r->n_told = 0;
    r->args_whole = false;
    r->args_scan = (struct json_scan){.to_marker = true};
    r->escapes_scan = (struct json_scan){0};
    name_call(r, c);
    tell_part(r, PL_REPLY_CALL, span_of(""));
}

/* Reports the arguments of the current tool call up to offset `end`. */
static void tell_until(struct pl_reply *r, size_t end)
{
    if (end <= r->told)
        return;
    r->made.n = 0;
    reply_add_escaped(&r->made, reply_piece(r, r->told, end), &r->escapes_scan);
    if (r->made.n > 0)
        tell_part(r, PL_REPLY_CALL_MORE, (struct span){r->made.s, r->made.n});
    r->n_told += r->made.n;
    r->told = end;
}

/* Returns n less the number of blanks before offset n of `t`. */
static size_t before_blanks(struct span t, size_t n)
{
    while (n > 0 && span_blanks((struct span){t.s + n - 1, 1}) > 0)
        n--;
    return n;
}

/* Returns the offset in `t`, the arguments that are not reported yet, of the
 * word at their end, if a colon may follow it and make it a key without quotes;
 * else t.n. */
static size_t before_word(const struct pl_reply *r, struct span t)
{
    const size_t last = before_blanks(t, t.n);
    size_t at = last, open;
    bool part = false;
    char before;

    while (at > 0 && last - at < JSON_BARE && !strchr("{, \t\r\n", t.s[at - 1]))
        at--;
    open = before_blanks(t, at);
    before = open > 0 ? t.s[open - 1] : r->escapes_scan.before;
    if (before == '{' || before == ',')
        json_bare_key(span_from(t, at), &part);
    return part ? at : t.n;
}

/* Returns the offset before which the arguments that end at offset `end` can be
 * converted. A comma and blanks at their end are held back, because a bracket
 * may follow, before which the comma is left out. A word that may be a key is
 * held back, too. */
static size_t before_held(const struct pl_reply *r, size_t end)
{
    struct span t = reply_piece(r, r->told, end);

    if (r->args_whole || r->args_scan.in_string)
        return end;
    if (r->args_scan.before != ',')
        return r->told + before_word(r, t);
    if (t.n > 0 && t.s[0] == ',') /* it was found before */
        return r->told;
    t.n = before_blanks(t, t.n);
    return t.n > 0 && t.s[t.n - 1] == ',' ? r->told + t.n - 1 : end;
}

void reply_tell_arguments(struct pl_reply *r, size_t end)
{
    if (r->args_whole)
        return;
    r->args_whole = json_scan(&r->args_scan, reply_piece(r, r->args, end));
    tell_until(r, before_held(r, r->args + r->args_scan.at));
}

/* Ends a tool call whose text is incomplete or invalid, but whose arguments
 * were already reported in part. It remains a call with these arguments. The
 * text after them is parsed as content. */
void reply_leave_arguments(struct pl_reply *r)
{
    struct json_scan at = {0};

    tell_until(r, r->args + r->args_scan.at);
    r->made.n = 0;
    reply_add_escaped(&r->made, reply_piece(r, r->args, r->told), &at);
    keep_call(r,
              &(struct reply_call){.name = {r->name.s, r->name.n},
                                   .id = {r->id.s, r->id.n},
                                   .arguments = {r->made.s, r->made.n}},
              true);
    r->at = r->seen = r->told;
    r->args = 0;
}
