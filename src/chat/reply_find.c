/* Finds the tool calls in a reply, in any of several notations; see
 * reply_inner.h. Where the marker of a call is found, the notations that have
 * this marker are tried one by one. The first notation in which the text is a
 * call, or may become one with more text, is used. */
#include "chat/reply_inner.h"
#include "chat/reply_known.h"
#include "chat/reply_python.h"

#include <limits.h>
#include <string.h>

void reply_begin_call(struct pl_reply *r, size_t open, bool bare)
{
    r->behind = r->state;
    r->state = IN_CALL;
    r->open = r->body = r->seen = open;
    r->form = NULL;
    r->n_tried = 0;
    r->bare = bare;
    r->cut = r->costly = r->wrapped = false;
    r->scan = (struct json_scan){.to_marker = true};
}

/* Result of a search for a tool call. NOT_YET: more text is needed. NO_CALL:
 * the text is not a call in this notation. */
enum found { NOT_YET, A_CALL, NO_CALL };

/* Returns true if a tool call in notation `f` may begin without a marker. */
static bool is_unmarked(const struct pl_reply *r, const struct reply_format *f)
{
    return f->call_open.n == 0 &&
           (f == r->f ? f->calls == CALLS_OBJECT || f->guess
                      : f->calls_open.n == 0);
}

/* Sets r->form to the next notation whose marker is at offset r->open. If the
 * call begins without a marker (r->bare), takes the next notation that allows
 * this. Returns NO_CALL if no notation is left. */
static enum found choose_form(struct pl_reply *r, bool last)
{
    for (; r->n_tried <= reply_n_known; r->n_tried++) {
        const struct reply_format *f = reply_form_at(r, r->n_tried);
        enum marker m = NO_MARKER;
        size_t n = 0;

        if (f && r->bare)
            m = is_unmarked(r, f) ? MARKER_CALL : NO_MARKER;
        else if (f)
            m = reply_try_form(r, f, reply_rest(r, r->open), last, &n);
        if (m == MARKER_PART)
            return NOT_YET;
        if (m != MARKER_CALL)
            continue;
        r->n_tried++;
        r->form = f;
        r->body = r->seen = r->counted = r->open + n;
        r->n_value = r->n_failed = 0;
        r->doubtful = false;
        r->scan = (struct json_scan){.to_marker = true};
        return A_CALL;
    }
    return NO_CALL;
}

/* Returns true if a text that looks like a call of the tool `name` is a call:
 * the notation is certain, or the tool is declared. */
static bool is_believed(const struct pl_reply *r, struct span name)
{
    bool certain = !r->form->guess && r->behind != IN_REASONING &&
                   (r->form == r->f || r->f->calls == CALLS_NONE);

    return certain || reply_is_tool(r->tools, name);
}

/* Removes from the end of *name the word of a marker that lacks its first
 * bracket, as in fARGS], if a tool is declared with the rest. */
static void leave_out_marker(const struct pl_reply *r, struct span *name)
{
    const struct span marks[] = {r->form->args_open, r->form->id_open};

    for (size_t i = 0; i < 2 && !reply_is_tool(r->tools, *name); i++) {
        struct span word = span_from(span_trim(marks[i]), 1), rest = *name;

        word.n = span_name(word);
        if (word.n == 0 || !span_ends(rest, word))
            continue;
        rest.n -= word.n;
        if (reply_is_tool(r->tools, rest))
            *name = rest;
    }
}

/* Reads the text `t` of a call. Drops a namespace before its name if the tool
 * is declared without it. Returns false if `t` is not a call. */
static bool understand(struct pl_reply *r, struct span t, struct reply_call *c)
{
    const struct span functions = span_of("functions.");
    struct span name;

    r->made.n = 0;
    if (!reply_call_read(r->form, t, r->tools, r->loose, &r->made, c))
        return false;
    leave_out_marker(r, &c->name);
    name = span_from(c->name, functions.n);
    if (span_begins(c->name, functions) && !reply_is_tool(r->tools, c->name) &&
        reply_is_tool(r->tools, name))
        c->name = name;
    return is_believed(r, c->name);
}

static bool read_call(struct pl_reply *r, struct span t)
{
    struct reply_call c;

    if (!understand(r, t, &c))
        return false;
    reply_tell_call(r, &c);
    return true;
}

/* Removes a JSON object from the beginning of *list, after blanks and, unless
 * `first`, a comma. Sets *object to it. Returns false if there is no complete
 * object. */
static bool take_object(struct span *list, bool first, struct span *object)
{
    struct json_scan scan = {0};
    struct span t = span_from(*list, span_blanks(*list));

    if (!first && t.n > 0 && t.s[0] == ',')
        t = span_from(t, 1 + span_blanks(span_from(t, 1)));
    if (t.n == 0 || t.s[0] != '{' || !json_scan(&scan, t))
        return false;
    *object = (struct span){t.s, scan.at};
    *list = span_from(t, scan.at);
    return true;
}

/* Parses `t`, a JSON object or a list of objects, as tool calls. If all objects
 * are calls, reports them and returns true. `cut`: the list is cut off, and its
 * complete objects are enough. Otherwise reports no call and returns false. */
static bool read_objects(struct pl_reply *r, struct span t, bool cut)
{
    struct reply_call c;
    int n_call = 0;

    if (t.s[0] == '{')
        return !cut && read_call(r, t);
    for (int pass = 0; pass < 2; pass++) {
        struct span rest = span_from(t, 1), one;
        int n = 0;

        for (; (pass == 0 || n < n_call) && take_object(&rest, n == 0, &one);
             n++) {
            if (pass == 0 && !understand(r, one, &c))
                return false;
            if (pass == 1)
                read_call(r, one);
        }
        rest = span_from(rest, span_blanks(rest));
        if (rest.n > 0 && rest.s[0] == ',') /* needless, if ] follows it */
            rest = span_from(rest, 1 + span_blanks(span_from(rest, 1)));
        if (n == 0 || (pass == 0 && !cut && (rest.n == 0 || rest.s[0] != ']')))
            return false;
        n_call = n;
    }
    return true;
}

/* Returns the name of the tool in `name`, which has the form f.call, or an
 * incomplete f.call; else returns `name`. */
static struct span without_call(struct span name)
{
    for (size_t n = name.n; n-- > 1;)
        if (name.s[n] == '.' &&
            span_begins(span_of(".call"), span_from(name, n)))
            return (struct span){name.s, n};
    return name;
}

/* Reports a tool call in Python's notation, f(...) or f.call(...). If `check`,
 * only returns true if it counts as a call. A python_take_fn. */
static bool take_python(void *reply, const struct reply_call *c, bool check)
{
    struct pl_reply *r = reply;
    struct reply_call own = *c;

    if (!reply_is_tool(r->tools, own.name))
        own.name = without_call(own.name);
    if (check)
        return is_believed(r, own.name);
    reply_tell_call(r, &own);
    return true;
}

bool reply_read_program(struct pl_reply *r, struct span name, struct span t)
{
    static const char *const names[] = {"python", "ipython",
                                        "code_interpreter"};
    struct reply_call c = {0};

    for (int i = 0; i < 3 && c.name.n == 0; i++)
        if (name.n > 0 ? span_equal(name, span_of(names[i]))
                       : reply_is_tool(r->tools, span_of(names[i])))
            c.name = span_of(names[i]);
    if (c.name.n == 0 || t.n == 0)
        return false;
    r->made.n = 0;
    reply_add(&r->made, span_of("{\"code\": "));
    reply_add_string(&r->made, t);
    reply_add(&r->made, span_of("}"));
    c.arguments = (struct span){r->made.s, r->made.n};
    if (!r->made.failed)
        reply_tell_call(r, &c);
    return true;
}

static bool read_delimited(struct pl_reply *r, struct span t, bool cut)
{
    switch (r->form->calls) {
    case CALLS_PYTHON:
        return python_calls(t, cut, &r->made, take_python, r);
    case CALLS_CODE:
        /* If the text was cut off, it may be the beginning of a call in another
         * notation. */
        return !r->cut && reply_read_program(r, (struct span){0}, span_trim(t));
    default:
        return read_call(r, t);
    }
}

bool reply_read_marked(struct pl_reply *r, struct span t)
{
    for (int i = 1; i <= reply_n_known; i++) {
        const struct reply_format *f = reply_form_at(r, i);
        size_t n = 0;
        struct span body;

        if (!f || f->call_close.n == 0 ||
            reply_try_form(r, f, t, true, &n) != MARKER_CALL)
            continue;
        body = span_from(t, n);
        body.n = span_find(body, f->call_close);
        r->form = f;
        if (read_delimited(r, body, false))
            return true;
    }
    return false;
}

/* Returns true if `t`, the beginning of a tool call's text, may become a call
 * with more text. This is so if it is a part of a tool's name, or begins with
 * such a name. */
static bool may_continue(const struct pl_reply *r, struct span t)
{
    struct span name = span_trim(t);
    size_t n;

    if (r->form->calls == CALLS_PYTHON && name.n > 0 && name.s[0] == '[')
        name = span_trim(span_from(name, 1));
    n = span_name(name);
    if (n == name.n && (!r->tools || reply_begins_tool(r->tools, name)))
        return true;
    t = span_trim(span_from(name, n));
    name.n = n;
    return (r->form->calls != CALLS_PYTHON || t.n == 0 || t.s[0] == '(') &&
           (reply_is_tool(r->tools, name) ||
            reply_is_tool(r->tools, without_call(name)));
}

/* Returns the text from r->body to the marker that ends the message, or to the
 * end of the text. */
static struct span until_end(const struct pl_reply *r)
{
    struct span t = reply_rest(r, r->body);

    for (int i = 0; i < 2; i++)
        t.n = span_find(t, r->f->end[i]);
    return t;
}

bool reply_leave_out(struct span *t, struct span mark)
{
    bool whole;

    *t = span_trim(*t);
    whole = reply_ends_with(*t, mark);
    while (mark.n > 0 && !reply_ends_with(*t, mark))
        mark.n--;
    t->n -= mark.n;
    return whole;
}

/* Returns true if the text of a tool call in notation `f` looks complete when
 * it is cut off after an argument. */
static bool is_open(const struct reply_format *f)
{
    return f->calls == CALLS_TAGGED || f->calls == CALLS_NESTED;
}

/* Returns the length of the text `t` of a call whose last value is not closed:
 * up to the markers that close a call and all calls, if another call or nothing
 * follows them. Calls that share the marker after all calls need not have it
 * before another call. Before the end of the text, the last of the markers must
 * be that after all calls or, in a notation without it, at the end of the value
 * or of a line, because a reply may be cut in a value that has a marker.
 * Otherwise returns t.n. */
static size_t unclosed_length(const struct pl_reply *r, struct span t)
{
    const struct reply_format *f = r->form;
    const size_t n = span_find(t, f->call_close);
    struct span rest = span_trim(span_from(t, n + f->call_close.n));
    bool outer = f->calls_close.n > 0 && span_begins(rest, f->calls_close);

    if (outer)
        rest = span_trim(span_from(rest, f->calls_close.n));
    if (f->calls_close.n == 0)
        outer = n > 0 && n < t.n && !strchr(" \t", t.s[n - 1]);
    if (rest.n == 0)
        return outer ? n : t.n;
    return (outer || !f->each) &&
                   (span_begins(rest, f->call_open) ||
                    (f->calls_open.n > 0 && span_begins(rest, f->calls_open)))
               ? n
               : t.n;
}

/* Reads the text `t` of a call that lacks a marker or brackets at its end. */
static bool read_loosely(struct pl_reply *r, struct span t)
{
    bool found;

    r->loose = true;
    found = read_delimited(r, t, false);
    r->loose = false;
    return found;
}

/* Reads the call at the beginning of `t`, the text from r->body on, if its
 * closing marker is missing before another call. Sets *end to its end. */
static bool read_before_next(struct pl_reply *r, struct span t, size_t *end)
{
    const size_t n = reply_call_length(r->form, t, r->tools, &r->made);

    if (n == t.n || !read_delimited(r, (struct span){t.s, n}, false))
        return false;
    *end = r->body + n;
    return true;
}

/* Reads the text of a call up to offset `at` of the reply, where a closing
 * marker is; *end is the offset after it. *inside: the marker is a part of a
 * value. To take linear time, reads again only what may be a call, and only so
 * many times. */
static bool read_until(struct pl_reply *r, size_t at, size_t *end, bool *inside)
{
    const struct reply_format *f = r->form;
    const struct span t = reply_piece(r, r->body, at);
    const struct span more = reply_piece(r, r->counted, at);
    const bool next = span_contains(more, f->call_open) ||
                      span_contains(more, f->calls_close);

    r->n_value += reply_count_values(f, more);
    r->counted = at;
    *inside = f->calls == CALLS_QUOTED ? r->n_value % 2 > 0 : r->n_value > 0;
    r->costly = true;
    if (!next && !reply_call_may_end(f, t)) {
        r->doubtful =
            r->doubtful || (!*inside && reply_call_has_value(f, t, r->tools));
        *inside = *inside || r->doubtful;
        return false;
    }
    if (next && r->doubtful)
        return false;
    if (r->n_failed == MOST_BAD) {
        *inside = *inside && f->calls == CALLS_QUOTED;
        return false;
    }
    r->n_failed++;
    return read_delimited(r, t, false) ||
           (next && read_before_next(r, t, end)) ||
           (f->calls == CALLS_QUOTED && !*inside && read_loosely(r, t));
}

/* Returns true if `t`, the last text of a call, has arguments, ends after one
 * or within its value, and has no marker that closes a call. Else it may be
 * prose. */
static bool ends_in_argument(const struct reply_format *f, struct span t)
{
    return !span_contains(t, f->call_close) &&
           (span_contains(t, f->key_open) || span_contains(t, f->quote)) &&
           (reply_count_values(f, t) > 0 || reply_call_may_end(f, t));
}

/* Reads the last text of a call, `t`, which lacks its closing marker, or in
 * which the last value lacks it. `all` has the markers at the end of `t`, too.
 * `ended` says that one of them shows that the text was not cut. Sets *end
 * unless all of `t` is the call. */
static bool read_unclosed(struct pl_reply *r, struct span t, struct span all,
                          bool ended, size_t *end)
{
    const struct reply_format *f = r->form;
    const size_t n = unclosed_length(r, all);
    const bool loosely = is_open(f) || f->calls == CALLS_QUOTED;

    if (n < all.n && loosely && read_loosely(r, (struct span){all.s, n})) {
        *end = r->body + n + f->call_close.n;
        return true;
    }
    if (!is_open(f) && read_delimited(r, t, true))
        return true;
    return read_before_next(r, all, end) ||
           (ended && loosely && read_loosely(r, t));
}

/* Searches for the end of a call whose text ends at a marker, and reports it as
 * find_call does. A marker inside a value is a part of it. */
static enum found find_delimited(struct pl_reply *r, bool last, size_t *end)
{
    const struct reply_format *f = r->form;

    for (;;) {
        struct span rest = reply_rest(r, r->seen), t;
        size_t at = span_find(rest, f->call_close);
        size_t keep = f->call_close.n > 0 ? f->call_close.n - 1 : 0;
        bool inside;

        if (at == rest.n && !last) {
            if (f->guess && f->call_close.n == 0 &&
                !may_continue(r, reply_rest(r, r->body)))
                return NO_CALL;
            r->seen += rest.n > keep ? rest.n - keep : 0;
            return NOT_YET;
        }
        /* Without a closing marker: the model left it out, or the reply was cut
         * off. */
        if (at == rest.n) {
            bool ended, closed;
            struct span all;

            all = t = until_end(r);
            *end = r->body + t.n;
            ended = *end < r->raw.n;
            ended |= reply_leave_out(&t, f->calls_close);
            closed = reply_leave_out(&t, f->call_close);
            ended |= r->uncut && (closed || ends_in_argument(f, t));
            r->costly = true;
            if (read_unclosed(r, t, all, ended, end)) {
                if (++r->n_unclosed == MOST_BAD)
                    r->n_bad = MOST_BAD;
                return A_CALL;
            }
            return may_continue(r, t) ? NOT_YET : NO_CALL;
        }
        *end = r->seen + at + f->call_close.n;
        if (read_until(r, r->seen + at, end, &inside))
            return A_CALL;
        if (!inside)
            return NO_CALL;
        r->seen = *end;
    }
}

/* Returns true if `t` may become the beginning of a tool call in notation `f`,
 * the name and args_open. The name has n bytes so far; only args_open and
 * blanks may follow it. */
static bool may_be_head(const struct reply_format *f, struct span t, size_t n)
{
    struct span args = span_trim(f->args_open);

    t = span_from(t, n + span_blanks(span_from(t, n)));
    if (span_begins(args, t))
        return true;
    t = span_from(t, span_begins(t, args) ? args.n : 0);
    t = span_from(t, span_blanks(t));
    return t.n == 0 || t.s[0] == '{';
}

/* Returns the length of the fence at the beginning of `t`, such as ```json and
 * a line break, or 0 if there is none. Sets *part if it may be one once more
 * text has arrived. */
static size_t fence_length(struct span t, bool *part)
{
    const struct span fence = span_of("```");
    size_t n = fence.n;

    *part = span_begins(fence, t);
    if (!span_begins(t, fence))
        return 0;
    while (n < t.n && n < 16 && t.s[n] >= 'a' && t.s[n] <= 'z')
        n++;
    *part = n == t.n;
    return n < t.n && t.s[n] == '\n' ? n + 1 : 0;
}

/* Returns MARKER_CALL_CLOSE if `t` begins with a marker that may follow the
 * JSON of a call, and MARKER_PART if it may begin with one once more text has
 * arrived. Otherwise returns NO_MARKER. */
static enum marker marker_after_json(const struct pl_reply *r, struct span t,
                                     bool last)
{
    const struct reply_format *f = r->form;
    const struct span fence = span_of("```");
    const bool fenced = r->wrapped || span_contains(f->args_open, fence);
    const struct span marks[] = {f->call_close,
                                 f->calls_close,
                                 f->call_open,
                                 f->calls_open,
                                 r->f->end[0],
                                 r->f->end[1],
                                 {fence.s, fenced ? fence.n : 0}};
    bool part = false;

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        part = part || span_begins(marks[i], t);
        if (marks[i].n > 0 && span_begins(t, marks[i]))
            return MARKER_CALL_CLOSE;
    }
    return !part ? NO_MARKER : last ? MARKER_CALL_CLOSE : MARKER_PART;
}

/* Reads the call with the JSON text `json`, which lacks closing brackets; not
 * more than `most` of them. */
static bool read_closed(struct pl_reply *r, struct span json, int most)
{
    const bool object = r->form->calls == CALLS_OBJECT;
    const size_t at = (size_t)(json.s - r->raw.s);
    int n;

    r->closed.n = 0;
    if (!object)
        reply_add(&r->closed, reply_piece(r, r->body, at));
    n = reply_add_closed(&r->closed, json);
    if (n < 0 || n > most)
        return false;
    json = (struct span){r->closed.s, r->closed.n};
    return object ? read_objects(r, json, false) : read_call(r, json);
}

/* Searches for the end of a call whose JSON text at the beginning of `t` lacks
 * closing brackets, and reports it as find_call does: at a marker, which shows
 * that the model left them out, or at the end of the reply, if the model ended
 * it, or no more than the last bracket after the arguments may be missing. */
static enum found find_unclosed(struct pl_reply *r, struct span t, bool last,
                                size_t *end)
{
    const struct span rest = span_from(t, r->scan.at);
    struct span json = {t.s, r->scan.at};
    enum marker m;

    *end = (size_t)(rest.s - r->raw.s);
    if (r->scan.depth <= 0)
        return NO_CALL;
    if (rest.n > 0) {
        m = marker_after_json(r, rest, last);
        if (m == MARKER_PART)
            return NOT_YET;
        r->costly = true;
        return m == MARKER_CALL_CLOSE && (read_closed(r, json, INT_MAX) ||
                                          read_objects(r, json, true))
                   ? A_CALL
                   : NO_CALL;
    }
    if (!last || (r->form->calls != CALLS_OBJECT && !r->uncut))
        return NOT_YET;
    json = span_trim(json);
    r->costly |= r->uncut;
    if (r->uncut && read_closed(r, json, INT_MAX))
        return A_CALL;
    if (r->form->calls != CALLS_OBJECT)
        return NOT_YET;
    return read_objects(r, json, true) ||
                   (json.s[0] == '{' && r->scan.depth == 1 &&
                    json.s[json.n - 1] == '}' && read_closed(r, json, 1))
               ? A_CALL
               : NOT_YET;
}

/* Reports the arguments of a call in the text up to offset `end`. More text is
 * not looked at, because the JSON of the call ends there, or lacks brackets. So
 * the same is reported whether text arrives at once or in pieces. */
static void go_through_arguments(struct pl_reply *r, size_t end)
{
    struct reply_call c;
    size_t at;

    if (!r->pieces)
        return;
    if (r->args == 0 &&
        reply_call_begins(r->form, reply_piece(r, r->body, end), &c, &at) &&
        reply_is_tool(r->tools, c.name))
        reply_begin_arguments(r, &c, r->body + at);
    if (r->args > 0)
        reply_tell_arguments(r, end);
}

/* Searches for the end of a call whose text ends where its JSON does, and
 * reports it as find_call does. */
static enum found find_json(struct pl_reply *r, bool last, size_t *end)
{
    const struct reply_format *f = r->form;
    bool object = f->calls == CALLS_OBJECT;
    struct span t = reply_rest(r, r->body), json, name;
    bool part = false, whole;

    t = span_from(t, span_blanks(t));
    if (object && t.n > 0 && !last && span_begins(f->call_open, t))
        return NOT_YET;
    if (object && t.n > 0 && f->call_open.n > 0)
        fence_length(t, &part);
    if (part && !last)
        return NOT_YET;
    json = object ? t : span_from(t, span_find(t, span_of("{")));
    name = reply_name_at(t);
    if (!object &&
        (t.n - json.n >= MOST_BETWEEN || (name.n == 0 && name.s < t.s + t.n)))
        return NO_CALL;
    if (!object && f->guess &&
        (name.s > t.s || !may_be_head(f, t, name.n) ||
         !reply_may_be_tool(r->tools, t)))
        return NO_CALL;
    if (json.n == 0)
        return NOT_YET;
    if (!(object ? reply_may_be_object(f, json) : json.s[0] == '{'))
        return NO_CALL;
    whole = json_scan(&r->scan, json);
    go_through_arguments(r, (size_t)(json.s - r->raw.s) + r->scan.at);
    if (!whole)
        return find_unclosed(r, json, last, end);
    *end = (size_t)(json.s - r->raw.s) + r->scan.at;
    r->costly = true;
    if (object)
        return read_objects(r, (struct span){json.s, r->scan.at}, false)
                   ? A_CALL
                   : NO_CALL;
    return read_call(r, reply_piece(r, r->body, *end)) ? A_CALL : NO_CALL;
}

/* Searches for the end of the tool call that begins at r->body. If the call is
 * complete, reports it and sets *end to the offset after it. */
static enum found find_call(struct pl_reply *r, bool last, size_t *end)
{
    if (r->form->calls == CALLS_OBJECT || r->form->calls == CALLS_NAMED)
        return find_json(r, last, end);
    return find_delimited(r, last, end);
}

/* Skips further copies of a JSON call's opening marker, which some models
 * repeat, and a fence. */
static void skip_repeated(struct pl_reply *r)
{
    const struct span open = r->form->call_open;
    struct span t = reply_rest(r, r->body);
    bool part;
    size_t n;

    if (r->form->calls != CALLS_OBJECT || open.n == 0 || r->wrapped)
        return;
    while (t = span_from(t, span_blanks(t)), span_begins(t, open)) {
        t = span_from(t, open.n);
        r->body = r->seen = r->raw.n - t.n;
    }
    n = fence_length(t, &part);
    if (n > 0) {
        r->body = r->seen = r->raw.n - t.n + n;
        r->wrapped = true;
    }
}

bool reply_is_begun(const struct pl_reply *r, struct span t)
{
    const struct reply_format *c = r->form ? r->form : r->f;
    const struct span marks[] = {
        c->call_close, c->calls_close,     c->call_open,     c->calls_open,
        r->f->end[0],  r->f->end[1],       r->f->think_open, r->f->think_close,
        r->f->again,   r->f->content_open, span_of("```")};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (span_begins(marks[i], t))
            return true;
    if (c->calls_open.n == 0 || !span_begins(t, c->calls_open))
        return false;
    t = span_from(t, c->calls_open.n);
    return span_begins(c->call_open, span_from(t, span_blanks(t)));
}

/* Handles text that is not a tool call in any notation. The text becomes
 * content, reasoning if it is within reasoning, or a JSON document if one may
 * begin here. After a first call, text that is only the beginning of another
 * call at the end of the reply is dropped. */
static void reject_call(struct pl_reply *r, bool last)
{
    const struct span before = reply_piece(r, r->at, r->open);

    r->n_bad += r->costly;
    r->state = r->behind;
    if (r->calls.n > 0 &&
        (r->cut || (last && reply_is_begun(r, reply_rest(r, r->open))))) {
        r->at = r->seen = r->raw.n;
        return;
    }
    if (r->state == IN_CONTENT && span_blanks(before) == before.n &&
        reply_document_start(r) == r->open && reply_take_document(r, r->open))
        return;
    if (r->state == IN_CONTENT)
        r->fresh = false;
    r->seen = r->open + 1;
    reply_give(r,
               r->state == IN_CONTENT ? PL_REPLY_CONTENT : PL_REPLY_REASONING,
               r->seen);
}

/* Reports a call that the end of the reply cuts, as far as it was written.
 * Returns false if calls are reported whole, or if no tool has its name. */
static bool tell_begun(struct pl_reply *r)
{
    struct reply_call c;

    r->made.n = 0;
    if (!r->pieces || !r->tools ||
        !reply_call_read_begun(r->form, reply_rest(r, r->body), r->tools,
                               &r->made, &c) ||
        !reply_is_tool(r->tools, c.name))
        return false;
    reply_tell_begun_call(r, &c);
    r->at = r->seen = r->raw.n;
    return true;
}

bool reply_go_through_call(struct pl_reply *r, bool last)
{
    enum found found = r->form ? A_CALL : choose_form(r, last);
    size_t end;

    if (found == NOT_YET)
        return false;
    if (found == NO_CALL) {
        reject_call(r, last);
        return true;
    }
    skip_repeated(r);
    found = find_call(r, last, &end);
    if (found == A_CALL) {
        r->state = AFTER_CALL;
        r->at = r->seen = end;
        return true;
    }
    if (found == NOT_YET && !last)
        return false;
    r->cut |= found == NOT_YET;
    if (found == NOT_YET && r->args == 0 && tell_begun(r)) {
        r->state = AFTER_CALL;
        return true;
    }
    if (r->args > 0) {
        r->state = r->args_whole ? AFTER_CALL : r->behind;
        r->fresh = false;
        reply_leave_arguments(r);
    }
    if (r->state != AFTER_CALL)
        r->form = NULL;
    return true;
}

/* Returns true if only blanks separate r->at from the JSON object before it, a
 * tool call. */
static bool follows_object(const struct pl_reply *r)
{
    struct span t = span_trim(reply_piece(r, r->open, r->at));

    return t.n > 0 && t.s[t.n - 1] == '}';
}

/* If another JSON object follows a tool call in JSON without a marker of its
 * own, begins the next call and returns true. A comma or semicolon may precede
 * the object. No marker may have closed the last call. Sets *part if only a
 * comma or semicolon has arrived. */
static bool begin_next_object(struct pl_reply *r, struct span t, bool *part)
{
    const struct reply_format *f = r->form;
    const enum state behind = r->behind;
    const bool wrapped = r->wrapped;
    size_t n = 0;

    if (f->calls != CALLS_OBJECT || (f->call_open.n > 0 && !follows_object(r)))
        return false;
    if (t.s[0] == ',' || t.s[0] == ';')
        n = 1 + span_blanks(span_from(t, 1));
    *part = n == t.n;
    if (n == t.n || t.s[n] != '{')
        return false;
    reply_begin_call(r, r->at + n, false);
    r->behind = behind;
    r->wrapped = wrapped;
    r->form = f;
    r->n_tried = reply_n_known + 1;
    return true;
}

bool reply_go_after_call(struct pl_reply *r, bool last)
{
    bool part = false;
    struct span t;
    size_t n = 0;
    enum marker m;

    r->at += span_blanks(reply_rest(r, r->at));
    r->seen = r->at;
    t = reply_rest(r, r->at);
    if (t.n == 0)
        return false;
    m = reply_marker_at(r, t, last, &n);
    if (m == MARKER_CALL_CLOSE) {
        r->at += n;
        return true;
    }
    if (m == MARKER_PART)
        return false;
    if ((t.s[0] == '}' || t.s[0] == ']') && r->form->calls == CALLS_OBJECT &&
        r->form->call_close.n + r->form->calls_close.n > 0) {
        /* Skips a closing bracket too many before the closing marker. */
        r->at++;
        return true;
    }
    if (begin_next_object(r, t, &part))
        return true;
    if (part && !last)
        return false;
    if (last && (part || reply_is_begun(r, t))) {
        r->at = r->seen = r->raw.n;
        return false;
    }
    r->state = r->behind;
    r->fresh = r->trimmed = true;
    return true;
}
