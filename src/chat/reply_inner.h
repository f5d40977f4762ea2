/* The parser of a model's replies, shared by its files. reply.c has the
 * functions of pl.h, and parses content and reasoning. reply_report.c reports
 * parts, reply_marks.c finds markers, reply_find.c finds tool calls,
 * reply_channel.c parses messages with headers. Not included elsewhere. */
#ifndef CHAT_REPLY_INNER_H
#define CHAT_REPLY_INNER_H

#include "chat/json_span.h"
#include "chat/reply_call.h"

enum state {
    IN_CONTENT,
    IN_REASONING,
    IN_CALL,
    AFTER_CALL,
    /* Formats with channels: in the header of a message, before <|message|>. */
    IN_HEADER,
    IN_CHANNEL,
    /* In a JSON document, all of which is content, even if it contains
     * markers. */
    IN_DOCUMENT,
};

/* The kinds of markers that the parser distinguishes. */
enum marker {
    NO_MARKER,
    /* The text may be the beginning of a marker, so more text is needed. */
    MARKER_PART,
    MARKER_THINK_OPEN,
    MARKER_THINK_CLOSE,
    MARKER_CONTENT, /* marker before or after content; not reported */
    MARKER_STRAY,   /* marker that has no meaning where it is; not reported */
    MARKER_CALL,
    /* Not a marker, but a text that may be a tool call without a marker. */
    MARKER_BARE,
    MARKER_CALL_CLOSE,
    /* Formats with channels: ends a message, after which another one
     * follows. */
    MARKER_NEXT,
    /* Formats with channels: begins the header of the next message. */
    MARKER_HEADER,
    MARKER_END,
};

enum {
    /* After this number of texts that looked like tool calls but were not, the
     * parser no longer searches for tool calls. */
    MOST_BAD = 64,
    /* Maximum length in bytes of the header of a message, and of the text of a
     * tool call before its arguments. */
    MOST_BETWEEN = 256
};

struct pl_reply {
    const struct reply_format *f; /* the notation of the template; borrowed */
    pl_reply_fn *part;
    void *user;
    /* The tools that may be called, as a JSON list; owned; NULL if unknown. */
    json_t *tools;
    struct reply_text raw; /* the whole text of the reply so far */
    size_t at; /* offset in `raw`; all text before it has been handled */
    /* Offset in `raw`; no marker begins between `at` and this offset. */
    size_t seen;
    enum state state;
    /* The reply has had a marker, or a character that is not a blank. */
    bool begun;
    /* No content was read since the beginning of the reply or the last tool
     * call. */
    bool fresh;
    /* Blanks at offset `at` are dropped, because they belong to the marker
     * before them. */
    bool trimmed;
    bool ended;
    bool busy;     /* a pl_reply function or its callback is running */
    bool finished; /* pl_reply_finish was called */
    bool uncut;    /* the model ended the reply, so its last call is whole */
    int n_bad;
    /* number of calls read without their closing marker, each after a search
     * to the end of the reply; after MOST_BAD, n_bad is MOST_BAD, too */
    int n_unclosed;
    bool keep; /* reasoning is reported as content, together with its markers */
    /* If `keep`: the end of the prompt, from the marker on that opened the
     * reasoning. */
    struct reply_text lead;
    /* The notation of the current or last tool call. While a notation is being
     * chosen, NULL; the marker of the call then begins at offset `open` of
     * `raw`. */
    const struct reply_format *form;
    size_t open;
    int n_tried;  /* number of notations that were tried for the current call */
    bool bare;    /* the current call begins without a marker */
    bool cut;     /* in one of them the call's text ended too early */
    bool costly;  /* one of them read more than a marker */
    bool wrapped; /* a fence is around the objects between its markers */
    bool loose;   /* read a call whose last value lacks its closing marker */
    /* A marker that closes the call follows a value that is closed before other
     * text, so both markers may be parts of the value. */
    bool doubtful;
    /* A call that ends at a marker: its text before offset `counted` of `raw`
     * was searched for markers of values. n_value: markers that open a value,
     * less those that close one. n_failed: number of times that the text was
     * read, but was not a call. */
    size_t counted;
    int64_t n_value;
    int n_failed;
    /* The text of a call in JSON with the brackets that it lacked. */
    struct reply_text closed;
    /* IN_CALL, IN_CHANNEL, IN_DOCUMENT: offset in `raw` of the call's,
     * message's or document's text, which begins after its opening marker or
     * header. */
    size_t body;
    struct json_scan scan;
    /* The content of the reply may be a JSON document, in which markers have no
     * meaning. */
    bool may_document;
    /* a fence, a line ``` or ```json, precedes the JSON document. */
    bool fenced;
    /* In the states IN_CALL, AFTER_CALL and IN_DOCUMENT: the state after the
     * call or document. */
    enum state behind;
    pl_reply_kind channel;
    int n_thought; /* number of headers of messages with reasoning so far */
    /* Offset in `raw` and length of the recipient's name in the header of a
     * message. If n_recipient is 0, the message is for the user. */
    size_t recipient, n_recipient;
    /* The arguments of tool calls are reported in fragments, as they arrive. */
    bool pieces;
    /* For a tool call whose arguments are reported in fragments, offsets in
     * `raw`. args: where the arguments begin, 0 if nothing was reported yet.
     * told: the end of the part that was reported. */
    size_t args, told;
    size_t n_told; /* number of bytes of JSON that were reported for them */
    bool args_whole;
    struct json_scan args_scan, escapes_scan;
    struct reply_text content, reasoning, calls;
    /* The parts of the current tool call. made: its arguments, converted to
     * JSON. name: the name of the tool. id: the identifier of the call. */
    struct reply_text made, name, id;
};

/* Returns the text of the reply from offset `at` to the end. */
static inline struct span reply_rest(const struct pl_reply *r, size_t at)
{
    return (struct span){r->raw.s + at, r->raw.n - at};
}

static inline struct span reply_piece(const struct pl_reply *r, size_t begin,
                                      size_t end)
{
    return (struct span){r->raw.s + begin, end - begin};
}

/* Returns the offset at which the blanks before offset `end` begin. */
static inline size_t reply_before_blanks(const struct pl_reply *r, size_t end)
{
    while (end > r->at && span_blanks(reply_piece(r, end - 1, end)) > 0)
        end--;
    return end;
}

static inline bool reply_ends_with(struct span t, struct span mark)
{
    return mark.n > 0 && span_ends(t, mark);
}

/* ---- reporting parts of the reply ---------------------------------------- */

/* Reports the text `t` as content or reasoning (`kind`), unless it is empty. */
void reply_tell(struct pl_reply *r, pl_reply_kind kind, struct span t);
/* Reports the text from r->at to offset `end` as content or reasoning (`kind`),
 * without blanks at its beginning if r->trimmed. Sets r->at to `end`. */
void reply_give(struct pl_reply *r, pl_reply_kind kind, size_t end);
void reply_tell_call(struct pl_reply *r, const struct reply_call *c);
/* Reports a call whose text was cut. Its arguments break off. */
void reply_tell_begun_call(struct pl_reply *r, const struct reply_call *c);
/* Reports the start of a call whose arguments begin at offset `at`. */
void reply_begin_arguments(struct pl_reply *r, const struct reply_call *c,
                           size_t at);
/* Reports the arguments of the current tool call from where the last report
 * ended, in the text up to offset `end`. */
void reply_tell_arguments(struct pl_reply *r, size_t end);
/* Ends a tool call whose text is incomplete or invalid, but whose arguments
 * were already reported in part. It remains a call with these arguments. The
 * text after them is parsed as content. */
void reply_leave_arguments(struct pl_reply *r);

/* ---- finding markers ----------------------------------------------------- */

/* Returns the i-th notation of tool calls to try, 0 <= i <= reply_n_known; NULL
 * if it does not apply to this reply. */
const struct reply_format *reply_form_at(const struct pl_reply *r, int i);
/* If `t` begins with the marker of a tool call in notation `f`, returns
 * MARKER_CALL and sets *n to the length of the marker. This is either the
 * marker of one call, or the marker around all calls, blanks, and the marker of
 * the first call. Returns MARKER_PART if `t` may begin with such a marker once
 * more text has arrived, and `last` is false. */
enum marker reply_try_form(const struct pl_reply *r,
                           const struct reply_format *f, struct span t,
                           bool last, size_t *n);
/* Returns the kind of the marker at the beginning of `t`, if the marker is
 * valid in the present state. Sets *n to the length of the marker, except for
 * MARKER_CALL. `last`: no more text follows. */
enum marker reply_marker_at(const struct pl_reply *r, struct span t, bool last,
                            size_t *n);
/* Advances r->seen to the next marker. Returns the kind of the marker and sets
 * *n to its length. Returns MARKER_PART if only the beginning of a marker has
 * arrived. Returns NO_MARKER if there is no marker; r->seen is then the end of
 * the text. `last`: no more text follows. */
enum marker reply_next_marker(struct pl_reply *r, bool last, size_t *n);

/* ---- replies that are a JSON document ------------------------------------ */

/* Returns the offset of the first character of the content that is not a blank,
 * if a JSON document is allowed to begin there; else the length of the text. */
size_t reply_document_start(const struct pl_reply *r);
/* If a JSON value, or a fence (a line ``` or ```json) before one, begins at
 * offset `at`, where content begins, changes the state to IN_DOCUMENT and
 * returns true. */
bool reply_take_document(struct pl_reply *r, size_t at);
/* If the content at r->at begins with a JSON document, changes the state to
 * IN_DOCUMENT and returns true. */
bool reply_is_document(struct pl_reply *r, bool last);

/* ---- finding and parsing tool calls -------------------------------------- */

/* Begins a tool call at offset `open`, the offset of its marker. `bare`: the
 * call has no marker. */
void reply_begin_call(struct pl_reply *r, size_t open, bool bare);
/* Handle the text of the reply in the states IN_CALL and AFTER_CALL. Return
 * false if they need more text. `last`: no more text follows. */
bool reply_go_through_call(struct pl_reply *r, bool last);
bool reply_go_after_call(struct pl_reply *r, bool last);
/* Returns true if `t` is the beginning of a marker that may follow the last
 * tool call, and has nothing else. */
bool reply_is_begun(const struct pl_reply *r, struct span t);
/* Reports the program `t` as a call of a tool that runs programs: the tool
 * `name` or, if that is empty, one that is declared. Returns false if there is
 * no such tool. */
bool reply_read_program(struct pl_reply *r, struct span name, struct span t);
/* If `t` is a tool call with the markers of a known notation, reports it and
 * returns true. Otherwise returns false. */
bool reply_read_marked(struct pl_reply *r, struct span t);
/* Removes the marker `mark`, or a beginning of it, from the end of *t. Returns
 * true if the whole marker was there. */
bool reply_leave_out(struct span *t, struct span mark);

/* ---- messages with headers (channels) ------------------------------------ */

bool reply_go_through_header(struct pl_reply *r, bool last);
bool reply_go_through_channel(struct pl_reply *r, bool last);
/* Returns true if the present message, in a format with channels, is
 * reasoning. */
bool reply_is_thought(const struct pl_reply *r);

#endif
