/* Finds the markers in a model's reply; see reply_inner.h. */
#include "chat/reply_inner.h"
#include "chat/reply_known.h"

/* If `t` begins with the marker `mark`, returns its kind `is` and sets *n to
 * its length. If `t` may begin with it once more text has arrived, returns
 * MARKER_PART. Otherwise returns NO_MARKER. `last`: no more text follows. */
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

/* Returns the i-th notation of tool calls to try; NULL if it does not apply.
 * Notation 0 is the template's own. The others are tried only if tools are
 * declared, because without their names a call cannot be told from other
 * text. */
const struct reply_format *reply_form_at(const struct pl_reply *r, int i)
{
    if (i == 0)
        return r->f->calls != CALLS_NONE ? r->f : NULL;
    return r->tools ? &reply_known[i - 1] : NULL;
}

/* Returns true if only blanks separate offset `at` from a marker that ended
 * content, or that began another part of the message. */
static bool begins_part(const struct pl_reply *r, size_t at)
{
    struct span t;

    while (at > 0 && span_blanks(reply_piece(r, at - 1, at)) > 0)
        at--;
    t = reply_piece(r, 0, at);
    return reply_ends_with(t, r->f->content_close) ||
           reply_ends_with(t, r->f->again);
}

/* Returns true if only blanks precede offset `at` in its line, in the content,
 * or in a part of the message. */
static bool begins_line(const struct pl_reply *r, size_t at)
{
    const enum state in = r->state == IN_CALL ? r->behind : r->state;

    if (in == IN_CONTENT && begins_part(r, at))
        return true;
    if ((in == IN_CONTENT ? r->fresh : !r->begun) &&
        reply_before_blanks(r, at) == r->at)
        return true;
    while (at > 0 && (r->raw.s[at - 1] == ' ' || r->raw.s[at - 1] == '\t'))
        at--;
    return at == 0 || r->raw.s[at - 1] == '\n';
}

/* Returns true if the marker `t` of a call is where notation `f` has it. */
static bool is_placed(const struct pl_reply *r, const struct reply_format *f,
                      struct span t)
{
    return !f->line || begins_line(r, (size_t)(t.s - r->raw.s));
}

/* Like match_marker, for the beginning of a call in notation `f`: either the
 * marker of one call, or the marker around all calls, blanks, and the marker of
 * the first call. */
enum marker reply_try_form(const struct pl_reply *r,
                           const struct reply_format *f, struct span t,
                           bool last, size_t *n)
{
    enum marker m;
    size_t outer;

    m = match_marker(t, last, f->call_open, MARKER_CALL, n);
    if (m != NO_MARKER)
        return is_placed(r, f, t) ? m : NO_MARKER;
    m = match_marker(t, last, f->calls_open, MARKER_CALL, &outer);
    if (m != NO_MARKER && !is_placed(r, f, t))
        return NO_MARKER;
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

/* Returns MARKER_CALL if a tool call in any notation may begin with `t`.
 * Returns MARKER_PART if it may once more text has arrived, else NO_MARKER. */
static enum marker try_forms(const struct pl_reply *r, struct span t, bool last)
{
    enum marker found = NO_MARKER;

    if (r->n_bad >= MOST_BAD ||
        !(r->state == IN_CONTENT || (r->state == IN_REASONING && r->tools)))
        return NO_MARKER;
    for (int i = 0; i <= reply_n_known && found != MARKER_CALL; i++) {
        const struct reply_format *f = reply_form_at(r, i);
        size_t n;
        enum marker m = f ? reply_try_form(r, f, t, last, &n) : NO_MARKER;

        found = m != NO_MARKER ? m : found;
    }
    return found;
}

/* Returns true if only blanks precede `t` in the content since the beginning of
 * the reply or the last tool call. */
static bool is_fresh(const struct pl_reply *r, struct span t)
{
    return r->fresh &&
           reply_before_blanks(r, (size_t)(t.s - r->raw.s)) == r->at;
}

/* Returns true if the line before the line of offset `at` begins with a fence,
 * ```. */
static bool is_fenced(const struct pl_reply *r, size_t at)
{
    while (at > 0 && r->raw.s[at - 1] != '\n')
        at--;
    for (at -= at > 0; at > 0 && r->raw.s[at - 1] != '\n';)
        at--;
    return span_begins(reply_rest(r, at), span_of("```"));
}

/* Returns true if the text before offset `at` opens a list. An object there is
 * a part of the list. If the list was cut, or is not a list of calls, the
 * object is not a call without a marker. */
static bool begins_list(const struct pl_reply *r, size_t at)
{
    at = reply_before_blanks(r, at);
    return at > 0 && r->raw.s[at - 1] == '[';
}

/* Returns true if a tool call without a marker may begin with `t`. Such a call
 * is a JSON object or list at the beginning of a line, or begins with the name
 * of a tool at the beginning of the content. */
static bool may_be_bare(const struct pl_reply *r, struct span t)
{
    const size_t at = (size_t)(t.s - r->raw.s);

    if (r->state != IN_CONTENT || !r->tools || r->n_bad >= MOST_BAD)
        return false;
    if (t.s[0] == '{' || t.s[0] == '[')
        return begins_line(r, at) && !begins_list(r, at) &&
               (is_fresh(r, t) || !is_fenced(r, at));
    return span_name((struct span){t.s, 1}) > 0 &&
           (is_fresh(r, t) || begins_part(r, at)) &&
           reply_may_be_tool(r->tools, t);
}

/* Returns true if the marker is spelled like a special token, so that it cannot
 * be a part of ordinary text. */
static bool is_special(struct span mark)
{
    return span_contains(mark, span_of("|")) ||
           span_contains(mark, span_of("\xef\xbd\x9c")) ||
           (mark.n > 0 && mark.s[0] == '[');
}

/* Returns true if only blanks precede `t` in the whole reply. */
static bool is_first(const struct pl_reply *r, struct span t)
{
    return !r->begun &&
           reply_before_blanks(r, (size_t)(t.s - r->raw.s)) == r->at;
}

/* Returns true if `t` may be the marker that ends reasoning although no marker
 * began it: `t` is at the beginning of the reply, except for blanks. */
static bool begins_with_close(const struct pl_reply *r, struct span t)
{
    const struct span close = r->f->think_close;

    return close.n > 0 && t.s[0] == close.s[0] && is_first(r, t);
}

/* A marker, its kind, and the states in which it is valid, bits 1 << enum
 * state. */
struct mark {
    unsigned states;
    struct span mark;
    enum marker is;
};

/* Returns the kind of the first marker in `list` that is valid in the present
 * state and with which `t` begins. Sets *n to its length. NO_MARKER if there is
 * none. */
static enum marker find_mark(const struct pl_reply *r, const struct mark *list,
                             size_t n_list, struct span t, bool last, size_t *n)
{
    enum marker m = NO_MARKER;

    for (size_t i = 0; i < n_list && !m; i++)
        if (list[i].states & 1u << r->state)
            m = match_marker(t, last, list[i].mark, list[i].is, n);
    return m;
}

/* Returns the kind of the marker at the beginning of `t`, as reply_marker_at
 * does, for formats whose messages have headers. */
static enum marker channel_mark_at(const struct pl_reply *r, struct span t,
                                   bool last, size_t *n)
{
    const unsigned in = 1 << IN_CHANNEL;
    const struct span none = {0};
    const struct mark marks[] = {
        {in, span_of("<|end|>"), MARKER_NEXT},
        {in, r->f->addressed ? span_of("<|eom|>") : none, MARKER_NEXT},
        {in, r->f->addressed ? span_of("<|eot|>") : none, MARKER_END},
        {in, span_of("<|call|>"), MARKER_END},
        {in, span_of("<|return|>"), MARKER_END},
        {in, span_of("<|start|>"), MARKER_HEADER},
        {in, span_of("<|channel|>"), MARKER_HEADER},
        {in, span_of("<|message|>"), MARKER_STRAY},
        {in, span_of("<|constrain|>"), MARKER_STRAY},
    };
    const struct mark lines[] = {
        {in, span_of(">>>"), MARKER_NEXT},
        {in, r->f->end[0], MARKER_END},
        {in, r->f->end[1], MARKER_END},
    };

    if (r->f->recipients)
        return find_mark(r, lines, sizeof lines / sizeof lines[0], t, last, n);
    return find_mark(r, marks, sizeof marks / sizeof marks[0], t, last, n);
}

/* Returns true if `t` may begin with a marker of tool calls whose first part is
 * the marker that ends a message. */
static bool is_call_after_end(const struct pl_reply *r, struct span t)
{
    for (int i = 0; i < 2; i++) {
        const struct span end = r->f->end[i];

        if (end.n > 0 && t.s[0] == end.s[0] &&
            (span_begins(r->f->call_open, end) ||
             span_begins(r->f->calls_open, end)))
            return true;
    }
    return false;
}

/* Returns the kind of the marker at the beginning of `t` that is valid in the
 * present state, and sets *n to its length. An earlier row of the table of
 * markers takes precedence over later ones, even if only a part of its marker
 * has arrived. */
enum marker reply_marker_at(const struct pl_reply *r, struct span t, bool last,
                            size_t *n)
{
    const struct reply_format *f = r->f, *c = r->form ? r->form : f;
    const struct span none = {0}, fence = span_of("```");
    const bool repeats = r->state == IN_REASONING && is_first(r, t);
    const struct mark marks[] = {
        {1 << IN_CONTENT, f->think_open, MARKER_THINK_OPEN},
        {repeats ? 1 << IN_REASONING : 0, f->think_open, MARKER_STRAY},
        {1 << IN_REASONING | (begins_with_close(r, t) ? 1 << IN_CONTENT : 0),
         f->think_close, MARKER_THINK_CLOSE},
        {1 << IN_CONTENT, f->again, MARKER_CONTENT},
        {1 << IN_CONTENT, f->content_open, MARKER_CONTENT},
        {1 << IN_CONTENT, f->content_close, MARKER_CONTENT},
        {1 << IN_CONTENT, r->fenced ? fence : none, MARKER_CONTENT},
        {1 << AFTER_CALL, c->call_close, MARKER_CALL_CLOSE},
        {1 << AFTER_CALL, c->calls_close, MARKER_CALL_CLOSE},
        {1 << AFTER_CALL,
         r->wrapped || span_contains(c->args_open, fence) ? fence : none,
         MARKER_CALL_CLOSE},
        {1 << IN_CONTENT | 1 << IN_REASONING, f->end[0], MARKER_END},
        {1 << IN_CONTENT | 1 << IN_REASONING, f->end[1], MARKER_END},
    };
    /* Markers without their counterpart, which are dropped. Once a text has
     * looked like a tool call but was not one, the markers of calls are kept in
     * the text, because they may be a part of it. */
    const unsigned in_text = r->n_bad == 0 ? 1 << IN_CONTENT : 0;
    const size_t n_tag = span_find(f->think_open, span_of(">")) + 1;
    const struct span tag = {f->think_open.s,
                             n_tag < f->think_open.n ? n_tag : 0};
    const struct mark strays[] = {
        {in_text, is_special(tag) ? tag : none, MARKER_STRAY},
        {is_fresh(r, t) ? 1 << IN_CONTENT : 0, f->think_close, MARKER_STRAY},
        {1 << IN_CONTENT, is_special(f->think_close) ? f->think_close : none,
         MARKER_STRAY},
        {in_text, is_special(f->call_close) ? f->call_close : none,
         MARKER_STRAY},
        {in_text, is_special(f->calls_close) ? f->calls_close : none,
         MARKER_STRAY},
    };
    enum marker m;

    if (f->channels)
        return channel_mark_at(r, t, last, n);
    m = is_call_after_end(r, t) ? try_forms(r, t, last) : NO_MARKER;
    if (m == NO_MARKER)
        m = find_mark(r, marks, sizeof marks / sizeof marks[0], t, last, n);
    if (m == NO_MARKER)
        m = try_forms(r, t, last);
    if (m == NO_MARKER && may_be_bare(r, t))
        m = MARKER_BARE;
    if (m == NO_MARKER)
        m = find_mark(r, strays, sizeof strays / sizeof strays[0], t, last, n);
    return m;
}

/* Advances r->seen to the next marker. Returns the kind of the marker and sets
 * *n to its length. Returns MARKER_PART if only the beginning of a marker has
 * arrived. Returns NO_MARKER if there is no marker; r->seen is then the end of
 * the text. */
enum marker reply_next_marker(struct pl_reply *r, bool last, size_t *n)
{
    for (; r->seen < r->raw.n; r->seen++) {
        enum marker m = reply_marker_at(r, reply_rest(r, r->seen), last, n);

        if (m != NO_MARKER)
            return m;
    }
    return NO_MARKER;
}
