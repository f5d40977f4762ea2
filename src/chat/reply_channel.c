/* Parses replies whose messages have headers, such as
 * <|channel|>final<|message|>text<|end|>, or a line with the recipient's name
 * before the text. See reply_inner.h. */
#include "chat/reply_inner.h"

bool reply_is_thought(const struct pl_reply *r)
{
    return r->channel == PL_REPLY_REASONING && r->n_recipient == 0;
}

/* Reads the channel and the recipient of a message from its header, such as
 * "<|channel|>commentary to=functions.f", and sets r->channel and
 * r->recipient. */
static void read_header(struct pl_reply *r, struct span header)
{
    const struct span channel = span_of("<|channel|>"), to = span_of("to=");
    const struct span functions = span_of("functions.");
    struct span name = span_from(header, span_find(header, channel));
    struct span whom = span_from(header, span_find(header, to));

    name = span_from(name, name.n > 0 ? channel.n : 0);
    whom = span_from(whom, whom.n > 0 ? to.n : 0);
    r->channel = span_begins(name, span_of("analysis")) ||
                         (r->f->addressed && span_begins(whom, span_of("self")))
                     ? PL_REPLY_REASONING
                     : PL_REPLY_CONTENT;
    r->n_thought += r->channel == PL_REPLY_REASONING;
    if (span_begins(whom, functions))
        whom = span_from(whom, functions.n);
    r->recipient = (size_t)(whom.s - r->raw.s);
    r->n_recipient = span_name(whom);
    whom.n = r->n_recipient;
    if (span_equal(whom, span_of("assistant")) ||
        span_equal(whom, span_of("user")) || span_equal(whom, span_of("self")))
        r->n_recipient = 0;
}

/* Reads a message's header that is a line with the name of the recipient, such
 * as "all". */
static bool go_through_line(struct pl_reply *r, bool last)
{
    struct span t = reply_rest(r, r->at), name;
    size_t n = span_blanks(t);

    if (span_begins(span_from(t, n), span_of(">>>")))
        n += 3;
    name = span_from(t, n);
    name.n = span_find(name, span_of("\n"));
    n += name.n;
    if (n == t.n && !last && name.n <= MOST_BETWEEN)
        return false;
    if (n == t.n && last &&
        (r->calls.n > 0 || span_begins(span_of("all"), name))) {
        /* The reply was cut off inside a header, so drop it. */
        r->at = r->seen = r->raw.n;
        return false;
    }
    if (name.n > MOST_BETWEEN)
        name.n = 0;
    name = span_trim(name);
    r->channel = PL_REPLY_CONTENT;
    r->n_recipient = 0;
    r->state = IN_CHANNEL;
    r->seen = r->body = r->at;
    if (name.n == 0 || span_name(name) < name.n)
        return true;
    r->seen = r->body = r->at + n;
    if (span_equal(name, span_of("all"))) {
        r->at = r->body;
        r->trimmed = true;
        return true;
    }
    r->recipient = (size_t)(name.s - r->raw.s);
    r->n_recipient = name.n;
    return true;
}

bool reply_go_through_header(struct pl_reply *r, bool last)
{
    const struct span message = span_of("<|message|>");
    struct span t = reply_rest(r, r->at), text = span_from(t, span_blanks(t));
    size_t n = span_find(t, message);
    const struct reply_text *all;
    bool header;

    if (r->f->recipients)
        return go_through_line(r, last);
    if (text.n == 0)
        return false;
    if (n == t.n && last &&
        (span_begins(text, span_of("<|")) || span_equal(text, span_of("<")) ||
         span_begins(text, span_of("to=")) ||
         span_begins(span_of("to="), text))) {
        /* The reply was cut off inside a header, so drop it. */
        r->at = r->seen = r->raw.n;
        return false;
    }
    /* a header begins with <| or to= */
    header = text.s[0] == '<' || text.s[0] == 't';
    if (header && n < t.n && n <= MOST_BETWEEN) {
        read_header(r, (struct span){t.s, n});
        r->body = r->seen = r->at + n + message.n;
        if (r->n_recipient == 0 && !(r->keep && reply_is_thought(r)))
            r->at = r->body;
        all = r->channel == PL_REPLY_CONTENT ? &r->content : &r->reasoning;
        if (all->n > 0 && r->n_recipient == 0 && !r->keep)
            reply_tell(r, r->channel, span_of("\n\n"));
    } else if (!header || last || t.n > MOST_BETWEEN + message.n) {
        r->channel = PL_REPLY_CONTENT;
        r->n_recipient = 0;
        /* Without a header, a marker at the beginning is a part of the text, so
         * skip it. */
        r->seen = r->at + header;
    } else {
        return false;
    }
    r->state = IN_CHANNEL;
    return true;
}

/* Adds the closing brackets that the JSON object *t lacks. Returns false if it
 * is not an object. */
static bool close_brackets(struct pl_reply *r, struct span *t)
{
    r->made.n = r->closed.n = 0;
    if (reply_add_closed(&r->closed, *t) <= 0)
        return false;
    *t = (struct span){r->closed.s, r->closed.n};
    return reply_is_object(t, &r->made);
}

/* Reports a message that is addressed to a tool as a tool call, or as content
 * if it is not a call. `last`: the reply ends here, so the message may be cut
 * off. */
static void end_message(struct pl_reply *r, bool last)
{
    const struct span name = {r->raw.s + r->recipient, r->n_recipient};
    const size_t end = r->seen;
    struct span t = span_trim(reply_piece(r, r->body, end));
    struct reply_call c = {.name = name};

    if (last) {
        const struct span marks[] = {span_of("<|end|>"), span_of("<|call|>"),
                                     span_of(">>>"), r->f->end[0]};

        for (int i = 0; i < 4; i++)
            reply_leave_out(&t, marks[i]);
        t = span_trim(t);
    }
    r->made.n = 0;
    if (r->n_bad >= MOST_BAD) {
        reply_give(r, PL_REPLY_CONTENT, end);
    } else if (reply_is_object(&t, &r->made) ||
               ((!last || r->uncut) && close_brackets(r, &t))) {
        c.arguments = t;
        reply_tell_call(r, &c);
    } else if (r->f->addressed && reply_read_marked(r, t)) {
        r->at = end;
    } else if (r->args > 0) {
        reply_leave_arguments(r);
        r->at = r->seen = end;
    } else if ((!last || r->calls.n == 0) &&
               !((r->f->recipients || reply_is_tool(r->tools, name)) &&
                 reply_read_program(r, name, t))) {
        reply_give(r, PL_REPLY_CONTENT, end);
    }
    if (last)
        r->at = r->seen = end;
}

static void go_through_channel_arguments(struct pl_reply *r)
{
    struct span t = reply_piece(r, r->body, r->seen);
    const struct reply_call c = {
        .name = {r->raw.s + r->recipient, r->n_recipient}};
    size_t at = span_blanks(t);

    if (r->pieces && r->args == 0 && at < t.n && t.s[at] == '{' &&
        reply_is_tool(r->tools, c.name))
        reply_begin_arguments(r, &c, r->body + at);
    if (r->args > 0)
        reply_tell_arguments(r, r->seen);
}

bool reply_go_through_channel(struct pl_reply *r, bool last)
{
    size_t n = 0, next;
    enum marker m;

    if (r->n_recipient == 0 && r->channel == PL_REPLY_CONTENT &&
        reply_is_document(r, last))
        return true;
    m = reply_next_marker(r, last, &n);
    next = r->seen + (m == MARKER_HEADER ? 0 : n);
    if (r->n_recipient == 0) {
        reply_give(r, r->channel,
                   r->keep && reply_is_thought(r) && m == MARKER_NEXT
                       ? next
                       : r->seen);
    } else if (m != MARKER_STRAY) {
        go_through_channel_arguments(r);
        if (m > MARKER_PART || last)
            end_message(r, m <= MARKER_PART);
    }
    if (m <= MARKER_PART)
        return false;
    r->seen = next;
    if (m == MARKER_STRAY && r->n_recipient > 0)
        return true;
    r->at = next;
    if (m != MARKER_STRAY)
        r->state = IN_HEADER;
    r->ended = m == MARKER_END;
    return !r->ended;
}
