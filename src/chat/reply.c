/* Parses replies; see reply.h. A reply is in one state at a time. Each state
 * has a function that handles text until it needs more or changes the state. */
#include "chat/reply.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/json_span.h"
#include "chat/reply_call.h"
#include "chat/reply_python.h"

#include <stdlib.h>
#include <string.h>

enum state {
    IN_CONTENT,
    IN_REASONING,
    IN_CALL,
    AFTER_CALL,
    IN_HEADER, /* channels: in a message's header, before <|message|> */
    IN_CHANNEL,
    IN_DOCUMENT, /* in a JSON document, which is content even if it contains
                    markers */
};

/* Kinds of markers. */
enum marker {
    NO_MARKER,
    MARKER_PART, /* text that may become a marker */
    MARKER_THINK_OPEN,
    MARKER_THINK_CLOSE,
    MARKER_CONTENT, /* before or after content; not reported */
    MARKER_CALL,
    MARKER_CALL_CLOSE,
    MARKER_NEXT, /* channels: ends a message; the next one follows */
    MARKER_END,
};

enum {
    /* After this number of texts that looked like calls but were not, the
     * parser no longer searches for calls. */
    MOST_BAD = 64,
    /* Maximum length in bytes of a channel's header, and of the text of a call
     * before its arguments. */
    MOST_BETWEEN = 256
};

/* Markers of calls that are tried for models whose templates show none. */
static const struct {
    const char *open, *close;
} usual[] = {{"<tool_call>", "</tool_call>"},
             {"<|tool_call_start|>", "<|tool_call_end|>"}};
enum { N_USUAL = sizeof usual / sizeof usual[0] };

struct pl_reply {
    const struct reply_format *f; /* borrowed, or &own */
    struct reply_format own; /* a format with usual[]; its arena is empty */
    pl_reply_fn *part;
    void *user;
    json_t *tools;         /* owned; NULL if none */
    struct reply_text raw; /* the whole text so far */
    size_t at;             /* offset in `raw`; all before it is handled */
    size_t seen;           /* offset; no marker begins between `at` and it */
    enum state state;
    bool begun;   /* a marker, or a character that is not a blank, was read */
    bool fresh;   /* no content was read since the start or the last call */
    bool trimmed; /* drop blanks at `at`: they belong to a marker */
    bool ended;
    bool busy;     /* a pl_reply function, or its callback, is being executed */
    bool finished; /* pl_reply_finish was called */
    int n_bad;
    /* IN_CALL, IN_CHANNEL, IN_DOCUMENT: offset in `raw` of the call's,
     * message's or document's text, which begins after its opening marker or
     * header. */
    size_t body;
    struct json_scan scan;
    bool may_document; /* the reply may be a JSON document */
    enum state behind; /* IN_DOCUMENT: the state to return to */
    pl_reply_kind channel;
    /* Offset in `raw` and length of the recipient of a channel's message. If
     * n_recipient is 0, the recipient is the user. */
    size_t recipient, n_recipient;
    bool no_calls; /* there are no tools, so that a call is content */
    bool pieces;   /* report arguments in fragments, as they arrive */
    /* The current call's arguments, if they are reported in fragments: the
     * offset in `raw` where they begin, 0 if none was reported; and the offset
     * of the end of the reported part. */
    size_t args, told;
    bool args_whole;
    struct json_scan args_scan;
    struct reply_text content, reasoning, calls;
    /* The current call: `made` holds its arguments converted to JSON, `name`
     * the function's name, and `id` the call's identifier. */
    struct reply_text made, name, id;
};

static struct span from(const struct pl_reply *r, size_t at)
{
    return (struct span){r->raw.s + at, r->raw.n - at};
}

static struct span piece(const struct pl_reply *r, size_t begin, size_t end)
{
    return (struct span){r->raw.s + begin, end - begin};
}

/* Returns the offset where the blanks before offset `end` begin. */
static size_t before_blanks(const struct pl_reply *r, size_t end)
{
    while (end > r->at && span_blanks(piece(r, end - 1, end)) > 0)
        end--;
    return end;
}

/* ---- reported parts ------------------------------------------------------ */

static void tell(struct pl_reply *r, pl_reply_kind kind, struct span t)
{
    struct reply_text *all =
        kind == PL_REPLY_CONTENT ? &r->content : &r->reasoning;

    if (t.n == 0)
        return;
    reply_add(all, t);
    if (r->part)
        r->part(r->user,
                &(pl_reply_part){.kind = kind, .text = t.s, .len = t.n});
}

/* Reports the text from r->at to `end` as `kind`, without leading blanks if
 * r->trimmed. Sets r->at to `end`. */
static void give(struct pl_reply *r, pl_reply_kind kind, size_t end)
{
    struct span t = piece(r, r->at, end);

    if (r->trimmed)
        t = span_from(t, span_blanks(t));
    if (t.n > 0)
        r->trimmed = false;
    if (t.n > 0 && kind == PL_REPLY_CONTENT)
        r->fresh = false;
    if (span_blanks(t) < t.n)
        r->begun = true;
    tell(r, kind, t);
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

/* Appends a call to r->calls, the JSON texts of the message's calls. The
 * arguments become a JSON string if `text`, else an object. */
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

static void tell_call(struct pl_reply *r, const struct reply_call *c)
{
    bool is_told = r->args > 0;

    if (!is_told)
        name_call(r, c);
    keep_call(r, c, r->f->as_text);
    if (!is_told)
        tell_part(r, PL_REPLY_CALL, c->arguments);
    r->args = 0;
}

/* ---- arguments reported in fragments ------------------------------------- */

/* Begins to report the arguments of a call in fragments. The arguments begin at
 * offset `at`. */
static void begin_arguments(struct pl_reply *r, const struct reply_call *c,
                            size_t at)
{
    r->args = r->told = at;
    r->args_whole = false;
    r->args_scan = (struct json_scan){0};
    name_call(r, c);
    tell_part(r, PL_REPLY_CALL, span_of(""));
}

/* Reports the arguments received since the last report. */
static void tell_arguments(struct pl_reply *r)
{
    size_t end;

    if (r->args_whole)
        return;
    r->args_whole = json_scan(&r->args_scan, from(r, r->args));
    end = r->args + r->args_scan.at;
    if (end > r->told)
        tell_part(r, PL_REPLY_CALL_MORE, piece(r, r->told, end));
    r->told = end;
}

/* Ends a call of which arguments were reported, but whose text is incomplete or
 * invalid. It remains a call with these arguments. The text after them is
 * parsed as content. */
static void leave_arguments(struct pl_reply *r)
{
    keep_call(r,
              &(struct reply_call){.name = {r->name.s, r->name.n},
                                   .id = {r->id.s, r->id.n},
                                   .arguments = piece(r, r->args, r->told)},
              true);
    r->at = r->seen = r->told;
    r->args = 0;
}

/* ---- markers ------------------------------------------------------------- */

/* If `t` begins with `mark`, returns `is` and sets *n to the marker's length.
 * Returns MARKER_PART if it may begin with `mark` once more text has arrived;
 * `last` means that no more text follows. Otherwise returns NO_MARKER. */
static enum marker match_marker(struct span t, bool last, struct span mark,
                                enum marker is, size_t *n)
{
    if (mark.n == 0)
        return NO_MARKER;
    if (span_begins(t, mark)) {
        *n = mark.n;
        return is;
    }
    return span_begins(mark, t) && !last ? MARKER_PART : NO_MARKER;
}

/* Like match_marker, for the beginning of a call: either the marker of one
 * call, or the marker around all calls, blanks, and the marker of the first
 * call. */
static enum marker try_call(const struct pl_reply *r, struct span t, bool last,
                            size_t *n)
{
    const struct reply_format *f = r->f;
    enum marker m = match_marker(t, last, f->call_open, MARKER_CALL, n);
    size_t outer;

    for (int i = 0; f == &r->own && i < N_USUAL && m == NO_MARKER; i++)
        m = match_marker(t, last, span_of(usual[i].open), MARKER_CALL, n);
    if (m != NO_MARKER)
        return m;
    m = match_marker(t, last, f->calls_open, MARKER_CALL, &outer);
    if (m == MARKER_CALL) {
        t = span_from(t, outer);
        outer += span_blanks(t);
        t = span_from(t, span_blanks(t));
        if (f->call_open.n > 0)
            m = match_marker(t, last, f->call_open, MARKER_CALL, n);
        else
            *n = 0;
        *n += outer;
    }
    return m;
}

/* Returns true if `t` may begin with the marker that ends reasoning although
 * none began, because only blanks precede it in the reply. */
static bool begins_with_close(const struct pl_reply *r, struct span t)
{
    const struct span close = r->f->think_close;

    return !r->begun && close.n > 0 && t.s[0] == close.s[0] &&
           before_blanks(r, (size_t)(t.s - r->raw.s)) == r->at;
}

/* Returns the kind of the marker at the beginning of `t` that is valid in the
 * present state, and sets *n to its length. A row of the table takes precedence
 * over later ones, even if only a part of its marker has arrived. */
static enum marker marker_at(const struct pl_reply *r, struct span t, bool last,
                             size_t *n)
{
    const struct reply_format *f = r->f;
    const struct {
        unsigned states; /* 1 << each enum state in which it is valid */
        struct span mark;
        enum marker is;
    } marks[] = {
        {1 << IN_CONTENT, f->think_open, MARKER_THINK_OPEN},
        {1 << IN_REASONING | (begins_with_close(r, t) ? 1 << IN_CONTENT : 0),
         f->think_close, MARKER_THINK_CLOSE},
        {1 << IN_CONTENT, f->content_open, MARKER_CONTENT},
        {1 << IN_CONTENT, f->content_close, MARKER_CONTENT},
        {1 << AFTER_CALL, f->call_close, MARKER_CALL_CLOSE},
        {1 << AFTER_CALL, f->calls_close, MARKER_CALL_CLOSE},
        {1 << IN_CONTENT | 1 << IN_REASONING, f->end[0], MARKER_END},
        {1 << IN_CONTENT, f->end[1], MARKER_END},
        {1 << IN_CHANNEL, span_of("<|end|>"), MARKER_NEXT},
        {1 << IN_CHANNEL, span_of("<|call|>"), MARKER_END},
        {1 << IN_CHANNEL, span_of("<|return|>"), MARKER_END},
    };
    enum marker m = NO_MARKER;

    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !m; i++)
        if (marks[i].states & 1u << r->state)
            m = match_marker(t, last, marks[i].mark, marks[i].is, n);
    if (!m && r->state == IN_CONTENT && f->calls && !r->no_calls &&
        r->n_bad < MOST_BAD)
        m = try_call(r, t, last, n);
    return m;
}

/* Advances r->seen to the next marker and returns its kind, with its length in
 * *n. Returns MARKER_PART if only the beginning of a marker has arrived.
 * Returns NO_MARKER if there is no marker; r->seen is then the end of the text.
 */
static enum marker next_marker(struct pl_reply *r, bool last, size_t *n)
{
    for (; r->seen < r->raw.n; r->seen++) {
        enum marker m = marker_at(r, from(r, r->seen), last, n);

        if (m != NO_MARKER)
            return m;
    }
    return NO_MARKER;
}

/* ---- documents ----------------------------------------------------------- */

static void begin_document(struct pl_reply *r, size_t body)
{
    r->behind = r->state;
    r->state = IN_DOCUMENT;
    r->body = r->seen = body;
    r->scan = (struct json_scan){0};
}

/* Begins a document and returns true if documents are expected and the content
 * begins at r->at with a JSON value. */
static bool is_document(struct pl_reply *r, bool last)
{
    struct span t = from(r, r->at);
    size_t at = span_blanks(t), n;

    if (!r->may_document || !r->fresh || r->calls.n > 0 || at == t.n ||
        !memchr("{[\"-0123456789tfn", t.s[at], 17) ||
        marker_at(r, span_from(t, at), last, &n) != NO_MARKER)
        return false;
    begin_document(r, r->at + at);
    return true;
}

static bool go_through_document(struct pl_reply *r, bool last)
{
    struct span t = from(r, r->body);

    (void)last; /* a truncated value is content too */
    if (t.n > 0)
        json_scan(&r->scan, t);
    give(r, PL_REPLY_CONTENT, r->body + r->scan.at);
    if (r->scan.at == 0 || r->scan.depth > 0 || r->scan.in_string)
        return false;
    r->state = r->behind;
    return true;
}

/* ---- calls --------------------------------------------------------------- */

static void begin_call(struct pl_reply *r, size_t body)
{
    r->state = IN_CALL;
    r->body = r->seen = body;
    r->scan = (struct json_scan){0};
}

/* Sets the closing marker that belongs to the usual opening marker at r->seen.
 * Does nothing if the template shows calls. */
static void choose_usual(struct pl_reply *r)
{
    struct reply_format *f = &r->own;

    for (int i = 0; r->f == f && i < N_USUAL; i++)
        if (span_begins(from(r, r->seen), span_of(usual[i].open)))
            f->call_close = span_of(usual[i].close);
}

/* Sets the notation of `t`, a call between usual markers: JSON if it begins
 * with "{" or "[{", else Python. */
static void choose_form(struct pl_reply *r, struct span t)
{
    struct span inner = span_trim(t);

    if (r->f != &r->own)
        return;
    if (span_begins(inner, span_of("[")))
        inner = span_trim(span_from(inner, 1));
    r->own.calls =
        span_begins(inner, span_of("{")) ? CALLS_OBJECT : CALLS_PYTHON;
}

static bool read_call(struct pl_reply *r, struct span t)
{
    struct reply_call c;

    r->made.n = 0;
    if (!reply_call_read(r->f, t, r->tools, &r->made, &c))
        return false;
    tell_call(r, &c);
    return true;
}

/* Parses `t`, an object or a list of objects, as calls. If all objects are
 * calls, reports them and returns true. Otherwise reports none and returns
 * false. */
static bool read_objects(struct pl_reply *r, struct span t)
{
    struct span rest = t;
    struct reply_call c;

    if (t.s[0] == '{')
        return read_call(r, t);
    if (!json_is_valid(t, &r->made.failed))
        return false;
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;

        for (rest = span_from(t, 1); rest.s[0] != ']'; n++) {
            struct json_scan scan = {0};
            struct span one;

            rest = span_from(rest, span_blanks(rest));
            if (n > 0 && rest.s[0] == ',')
                rest = span_from(rest, 1 + span_blanks(span_from(rest, 1)));
            if (rest.s[0] != '{' || !json_scan(&scan, rest))
                return false;
            one = (struct span){rest.s, scan.at};
            r->made.n = 0;
            if (pass == 0 &&
                !reply_call_read(r->f, one, r->tools, &r->made, &c))
                return false;
            if (pass == 1)
                read_call(r, one);
            rest = span_from(rest, scan.at);
            rest = span_from(rest, span_blanks(rest));
        }
        if (n == 0)
            return false;
    }
    return true;
}

static void tell_python(void *reply, const struct reply_call *c)
{
    tell_call(reply, c);
}

/* Searches for the end of the call that begins at r->body, and reports the call
 * if it is complete. Returns NOT_YET if more text is needed. Returns A_CALL
 * after reporting the call, and sets *end to the offset after the call. Returns
 * NO_CALL if the text is not a call. */
enum found { NOT_YET, A_CALL, NO_CALL };
static enum found find_call(struct pl_reply *r, bool last, size_t *end)
{
    const struct reply_format *f = r->f;
    struct span t = from(r, r->body), json;
    bool object = f->calls == CALLS_OBJECT;

    if (f->calls == CALLS_TAGGED || f->calls == CALLS_QUOTED ||
        f->calls == CALLS_PYTHON || f == &r->own) {
        struct span rest = from(r, r->seen);
        size_t at = span_find(rest, f->call_close);

        /* Only a part of the closing marker may have arrived. */
        if (at == rest.n && !last) {
            size_t keep = f->call_close.n - 1;

            r->seen += rest.n > keep ? rest.n - keep : 0;
            return NOT_YET;
        }
        *end = r->seen + at + (at < rest.n ? f->call_close.n : 0);
        t.n = r->seen + at - r->body;
        choose_form(r, t);
        if (f->calls == CALLS_OBJECT)
            return read_objects(r, span_trim(t)) ? A_CALL : NO_CALL;
        if (f->calls == CALLS_PYTHON)
            return python_calls(t, &r->made, tell_python, r) ? A_CALL : NO_CALL;
        return read_call(r, t) ? A_CALL : NO_CALL;
    }
    json = span_from(t, object ? span_blanks(t) : span_find(t, span_of("{")));
    if (!object && t.n - json.n >= MOST_BETWEEN)
        return NO_CALL;
    if (json.n == 0)
        return last ? NO_CALL : NOT_YET;
    if (json.s[0] != '{' && json.s[0] != '[')
        return NO_CALL;
    if (!json_scan(&r->scan, json))
        return last || r->scan.depth <= 0 ? NO_CALL : NOT_YET;
    *end = (size_t)(json.s - r->raw.s) + r->scan.at;
    if (object)
        return read_objects(r, (struct span){json.s, r->scan.at}) ? A_CALL
                                                                  : NO_CALL;
    t.n = *end - r->body;
    return read_call(r, t) ? A_CALL : NO_CALL;
}

static void go_through_arguments(struct pl_reply *r)
{
    struct reply_call c;
    size_t at;

    if (!r->pieces || r->f == &r->own)
        return;
    if (r->args == 0 && reply_call_begins(r->f, from(r, r->body), &c, &at) &&
        reply_is_tool(r->tools, c.name))
        begin_arguments(r, &c, r->body + at);
    if (r->args > 0)
        tell_arguments(r);
}

/* Returns true if the current call is an object and no marker precedes it. */
static bool is_bare(const struct pl_reply *r)
{
    return span_blanks(piece(r, r->at, r->body)) == r->body - r->at;
}

static bool go_through_call(struct pl_reply *r, bool last)
{
    size_t end;

    go_through_arguments(r);
    switch (find_call(r, last, &end)) {
    case NOT_YET:
        return false;
    case A_CALL:
        r->state = AFTER_CALL;
        r->at = r->seen = end;
        return true;
    default:
        r->n_bad++;
        r->state = IN_CONTENT;
        if (r->may_document && r->fresh && r->args == 0 && is_bare(r)) {
            begin_document(r, r->body);
            return true;
        }
        r->fresh = false;
        if (r->args > 0) {
            leave_arguments(r);
            return true;
        }
        r->seen = r->body;
        if (r->body > r->at)
            give(r, PL_REPLY_CONTENT, r->body);
        return true;
    }
}

static bool go_after_call(struct pl_reply *r, bool last)
{
    size_t n = 0;
    enum marker m;

    r->at += span_blanks(from(r, r->at));
    r->seen = r->at;
    if (r->at == r->raw.n)
        return false;
    m = marker_at(r, from(r, r->at), last, &n);
    if (m == MARKER_CALL_CLOSE) {
        r->at += n;
        return true;
    }
    if (m == MARKER_PART)
        return false;
    if (r->f->calls == CALLS_OBJECT && r->f->calls_open.n > 0 &&
        r->f->call_open.n == 0 && r->raw.s[r->at] == '{') {
        begin_call(r, r->at); /* one marker opens all calls */
        return true;
    }
    r->state = IN_CONTENT;
    r->fresh = r->trimmed = true;
    return true;
}

/* ---- content and reasoning ----------------------------------------------- */

/* Begins a call and returns true if tools are declared and the content begins
 * with an object that no marker precedes. */
static bool is_bare_object(struct pl_reply *r)
{
    struct span t = from(r, r->at);
    size_t n = span_blanks(t);

    if (!r->fresh || !r->tools || r->no_calls || r->f == &r->own ||
        r->f->calls != CALLS_OBJECT || r->f->call_open.n > 0 || n == t.n ||
        t.s[n] != '{')
        return false;
    begin_call(r, r->at + n);
    return true;
}

/* Handles content and reasoning: reports the text up to the next marker, then
 * changes the state as the marker demands. */
static bool go_through_text(struct pl_reply *r, bool last)
{
    pl_reply_kind kind =
        r->state == IN_REASONING ? PL_REPLY_REASONING : PL_REPLY_CONTENT;
    size_t n = 0;
    enum marker m;

    if (r->state == IN_CONTENT && (is_bare_object(r) || is_document(r, last)))
        return true;
    m = next_marker(r, last, &n);
    give(r, kind, m == NO_MARKER && last ? r->seen : before_blanks(r, r->seen));
    if (m <= MARKER_PART)
        return false;
    if (m ==
        MARKER_CALL) { /* blanks before it are content if no call follows */
        choose_usual(r);
        begin_call(r, r->seen + n);
        return true;
    }
    r->at = r->seen = r->seen + n;
    r->trimmed = r->begun = true;
    if (m == MARKER_THINK_OPEN)
        r->state = IN_REASONING;
    else if (m == MARKER_THINK_CLOSE)
        r->state = IN_CONTENT;
    r->ended = m == MARKER_END;
    return !r->ended;
}

/* ---- channels ------------------------------------------------------------ */

/* Reads the channel and the recipient of a message from its header, such as
 * "<|channel|>commentary to=functions.f". */
static void read_header(struct pl_reply *r, struct span header)
{
    const struct span channel = span_of("<|channel|>"), to = span_of("to=");
    const struct span functions = span_of("functions.");
    struct span name = span_from(header, span_find(header, channel));
    struct span whom = span_from(header, span_find(header, to));

    name = span_from(name, name.n > 0 ? channel.n : 0);
    r->channel = span_begins(name, span_of("analysis")) ? PL_REPLY_REASONING
                                                        : PL_REPLY_CONTENT;
    whom = span_from(whom, whom.n > 0 ? to.n : 0);
    if (span_begins(whom, functions))
        whom = span_from(whom, functions.n);
    r->recipient = (size_t)(whom.s - r->raw.s);
    r->n_recipient = span_name(whom);
}

static bool go_through_header(struct pl_reply *r, bool last)
{
    const struct span message = span_of("<|message|>");
    struct span t = from(r, r->at), text = span_from(t, span_blanks(t));
    size_t n = span_find(t, message);
    const struct reply_text *all;
    bool header;

    if (text.n == 0)
        return false;
    /* The header may begin with <| or to=. */
    header = text.s[0] == '<' || text.s[0] == 't';
    if (header && n < t.n && n <= MOST_BETWEEN) {
        read_header(r, (struct span){t.s, n});
        r->body = r->seen = r->at + n + message.n;
        if (r->n_recipient == 0)
            r->at = r->body;
        all = r->channel == PL_REPLY_CONTENT ? &r->content : &r->reasoning;
        if (all->n > 0 && r->n_recipient == 0)
            tell(r, r->channel, span_of("\n\n"));
    } else if (!header || last || t.n > MOST_BETWEEN + message.n) {
        r->channel = PL_REPLY_CONTENT;
        r->n_recipient = 0;
        r->seen = r->at;
    } else {
        return false;
    }
    r->state = IN_CHANNEL;
    return true;
}

static void end_message(struct pl_reply *r)
{
    const size_t end = r->seen;
    struct span t = span_trim(piece(r, r->body, r->seen));
    struct reply_call c = {.name = {r->raw.s + r->recipient, r->n_recipient},
                           .arguments = t};

    r->made.n = 0;
    if (!r->no_calls && t.n > 0 && t.s[0] == '{' &&
        json_is_valid(t, &r->made.failed)) {
        tell_call(r, &c);
    } else if (r->args > 0) {
        leave_arguments(r);
        r->at = r->seen = end;
    } else {
        give(r, PL_REPLY_CONTENT, r->seen);
    }
}

static void go_through_channel_arguments(struct pl_reply *r)
{
    struct span t = piece(r, r->body, r->seen);
    const struct reply_call c = {
        .name = {r->raw.s + r->recipient, r->n_recipient}};
    size_t at = span_blanks(t);

    if (r->pieces && r->args == 0 && at < t.n && t.s[at] == '{' &&
        reply_is_tool(r->tools, c.name))
        begin_arguments(r, &c, r->body + at);
    if (r->args > 0)
        tell_arguments(r);
}

static bool go_through_channel(struct pl_reply *r, bool last)
{
    size_t n = 0;
    enum marker m;

    if (r->n_recipient == 0 && r->channel == PL_REPLY_CONTENT &&
        is_document(r, last))
        return true;
    m = next_marker(r, last, &n);
    if (r->n_recipient == 0) {
        give(r, r->channel, r->seen);
    } else {
        go_through_channel_arguments(r);
        if (m > MARKER_PART || last)
            end_message(r);
    }
    if (m <= MARKER_PART)
        return false;
    r->at = r->seen = r->seen + n;
    r->state = IN_HEADER;
    r->ended = m == MARKER_END;
    return !r->ended;
}

/* ---- functions of pl.h --------------------------------------------------- */

static void go_on(struct pl_reply *r, bool last)
{
    static bool (*const go[])(struct pl_reply * r, bool last) = {
        [IN_CONTENT] = go_through_text,      [IN_REASONING] = go_through_text,
        [IN_CALL] = go_through_call,         [AFTER_CALL] = go_after_call,
        [IN_HEADER] = go_through_header,     [IN_CHANNEL] = go_through_channel,
        [IN_DOCUMENT] = go_through_document,
    };

    r->busy = true;
    while (!r->ended && r->raw.n > 0 && go[r->state](r, last))
        ;
    r->busy = false;
}

static pl_status status(const struct pl_reply *r, pl_err *err)
{
    const struct reply_text *all[] = {&r->raw,   &r->content, &r->reasoning,
                                      &r->calls, &r->made,    &r->name,
                                      &r->id};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->failed)
            return err_no_memory(err, "a reply");
    return PL_OK;
}

static pl_status read_tools(struct pl_reply *r, const char *tools, pl_err *err)
{
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};

    r->tools = json_loads(tools, JSON_ALLOW_NUL, &e);
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
    } else if (format->think_open.n > 0 && end.n >= format->think_open.n &&
               span_equal(span_from(end, end.n - format->think_open.n),
                          format->think_open)) {
        r->state = IN_REASONING;
        r->trimmed = true;
    } else {
        r->trimmed = format->led;
    }
    if (tools)
        s = read_tools(r, tools, err);
    r->no_calls = r->tools && json_array_size(r->tools) == 0;
    if (r->tools && !r->no_calls && !format->channels &&
        format->calls == CALLS_NONE) {
        r->own = *format;
        r->own.calls = CALLS_PYTHON;
        r->own.name_key = span_of("name");
        r->own.arguments_key = span_of("arguments");
        r->f = &r->own;
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

const char *pl_reply_text(const pl_reply *r, size_t *len)
{
    if (len)
        *len = r ? r->raw.n : 0;
    return r && r->raw.s ? r->raw.s : "";
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
