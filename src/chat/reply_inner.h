/* The parser of replies, shared by its files: reply.c has the functions of
 * pl.h, content and reasoning; reply_report.c reports parts; reply_marks.c
 * finds markers; reply_find.c finds calls; reply_channel.c handles messages
 * with headers. Not included elsewhere. */
#ifndef CHAT_REPLY_INNER_H
#define CHAT_REPLY_INNER_H

#include "chat/json_span.h"
#include "chat/reply_call.h"

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
    MARKER_PART, /* text that may be the beginning of a marker */
    MARKER_THINK_OPEN,
    MARKER_THINK_CLOSE,
    MARKER_CONTENT, /* before or after content; not reported */
    MARKER_STRAY,   /* has no meaning where it stands; not reported */
    MARKER_CALL,
    MARKER_BARE, /* a text that may be a call without a marker */
    MARKER_CALL_CLOSE,
    MARKER_NEXT,   /* channels: ends a message; the next one follows */
    MARKER_HEADER, /* channels: begins the header of the next message */
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

struct pl_reply {
    const struct reply_format *f; /* borrowed */
    pl_reply_fn *part;
    void *user;
    json_t *tools;         /* owned; NULL if none */
    struct reply_text raw; /* the whole text so far */
    size_t at;             /* offset in `raw`; all before it is handled */
    size_t seen; /* offset in `raw`; no marker begins between `at` and it */
    enum state state;
    bool begun; /* a marker, or a character that is not a blank, was read */
    /* no content was read since the reply's start or the last call */
    bool fresh;
    /* drop the blanks at `at`, because they belong to the marker before them */
    bool trimmed;
    bool ended;
    bool busy;     /* a pl_reply function, or its callback, is being executed */
    bool finished; /* pl_reply_finish was called */
    int n_bad;
    bool keep; /* reasoning is part of the content, with its markers */
    /* With `keep`: the end of the prompt, from the marker that opened
     * reasoning. */
    struct reply_text lead;
    /* The notation of the current or last call. NULL until a notation is chosen
     * whose marker begins at offset `open` of `raw`. */
    const struct reply_format *form;
    size_t open;
    int n_tried;  /* number of notations that were tried for the current call */
    bool bare;    /* the current call begins without a marker */
    bool cut;     /* in one of them the call's text ended too early */
    bool costly;  /* one of them read more than a marker */
    bool wrapped; /* a fence is around the objects between its markers */
    bool loose;   /* read a call whose last value lacks its closing marker */
    /* IN_CALL, IN_CHANNEL, IN_DOCUMENT: offset in `raw` of the call's,
     * message's or document's text, which begins after its opening marker or
     * header. */
    size_t body;
    struct json_scan scan;
    bool may_document; /* the reply may be a JSON document */
    bool fenced;       /* a line ``` or ```json precedes the document */
    /* IN_CALL, AFTER_CALL, IN_DOCUMENT: the state that follows */
    enum state behind;
    pl_reply_kind channel;
    int n_thought; /* number of headers of messages with reasoning */
    /* Offset in `raw` and length of the recipient of a channel's message. If
     * n_recipient is 0, the message is to the user. */
    size_t recipient, n_recipient;
    bool pieces; /* report arguments in fragments, as they arrive */
    /* The current call's arguments, if they are reported in fragments: the
     * offset in `raw` where they begin, 0 if none was reported; and the offset
     * of the end of the reported part. */
    size_t args, told;
    bool args_whole;
    struct json_scan args_scan, escapes_scan;
    struct reply_text content, reasoning, calls;
    /* The current call: `made` holds its arguments converted to JSON, `name`
     * the function's name, and `id` the call's identifier. */
    struct reply_text made, name, id;
};

/* Returns the text from offset `at` to the end. */
static inline struct span reply_rest(const struct pl_reply *r, size_t at)
{
    return (struct span){r->raw.s + at, r->raw.n - at};
}

static inline struct span reply_piece(const struct pl_reply *r, size_t begin,
                                      size_t end)
{
    return (struct span){r->raw.s + begin, end - begin};
}

/* Returns the offset where the blanks before offset `end` begin. */
static inline size_t reply_before_blanks(const struct pl_reply *r, size_t end)
{
    while (end > r->at && span_blanks(reply_piece(r, end - 1, end)) > 0)
        end--;
    return end;
}

static inline bool reply_ends_with(struct span t, struct span mark)
{
    return mark.n > 0 && mark.n <= t.n &&
           span_equal(span_from(t, t.n - mark.n), mark);
}

/* ---- reported parts ------------------------------------------------------ */

/* Reports `t`, unless it is empty. */
void reply_tell(struct pl_reply *r, pl_reply_kind kind, struct span t);
/* Reports the text from r->at to `end` as `kind`, without leading blanks if
 * r->trimmed. Sets r->at to `end`. */
void reply_give(struct pl_reply *r, pl_reply_kind kind, size_t end);
void reply_tell_call(struct pl_reply *r, const struct reply_call *c);
/* Reports a call whose text was cut. Its arguments break off. */
void reply_tell_begun_call(struct pl_reply *r, const struct reply_call *c);
/* Reports the start of a call whose arguments begin at offset `at`. */
void reply_begin_arguments(struct pl_reply *r, const struct reply_call *c,
                           size_t at);
/* Reports the arguments received since the last report. */
void reply_tell_arguments(struct pl_reply *r);
/* Ends a call of which arguments were reported, but whose text is incomplete or
 * invalid. It remains a call with these arguments. The text after them is
 * parsed as content. */
void reply_leave_arguments(struct pl_reply *r);

/* ---- markers ------------------------------------------------------------- */

/* Returns the i-th notation to try, of 1 + reply_n_known, or NULL. */
const struct reply_format *reply_form_at(const struct pl_reply *r, int i);
/* Returns MARKER_CALL if `t` begins with the marker of a call in notation `f`,
 * and sets *n to its length: the marker of one call, or the marker around all
 * calls, blanks, and the marker of the first call. Returns MARKER_PART if it
 * may once more text has arrived, and `last` is false. */
enum marker reply_try_form(const struct pl_reply *r,
                           const struct reply_format *f, struct span t,
                           bool last, size_t *n);
/* Returns the kind of the marker at the beginning of `t` that is valid in the
 * present state, and sets *n to its length; for MARKER_CALL it does not. */
enum marker reply_marker_at(const struct pl_reply *r, struct span t, bool last,
                            size_t *n);
/* Advances r->seen to the next marker and returns its kind, with its length in
 * *n. Returns MARKER_PART if only the beginning of a marker has arrived.
 * Returns NO_MARKER if there is no marker; r->seen is then the end of the
 * text. */
enum marker reply_next_marker(struct pl_reply *r, bool last, size_t *n);

/* ---- documents ----------------------------------------------------------- */

/* Returns the offset of the first character of the content that is not a blank
 * if a document is allowed to begin there, else the length of the text. */
size_t reply_document_start(const struct pl_reply *r);
/* Begins a document and returns true if offset `at`, where content begins, is
 * the start of a JSON value, or of a fence before one. */
bool reply_take_document(struct pl_reply *r, size_t at);
/* Begins a document and returns true if the content begins with one at
 * r->at. */
bool reply_is_document(struct pl_reply *r, bool last);

/* ---- calls --------------------------------------------------------------- */

/* Begins a call at offset `open`. If `bare`, no marker is there. */
void reply_begin_call(struct pl_reply *r, size_t open, bool bare);
/* Handle the text in the states IN_CALL and AFTER_CALL. `last` means that no
 * more text follows. Return false if they need more text. */
bool reply_go_through_call(struct pl_reply *r, bool last);
bool reply_go_after_call(struct pl_reply *r, bool last);
/* Returns true if `t` is the beginning of a marker that may follow the last
 * call. */
bool reply_is_begun(const struct pl_reply *r, struct span t);
/* Reports the program `t` as a call of a tool that runs programs: of the tool
 * `name`, or if that is empty, of one that is declared. Returns false if there
 * is no such tool. */
bool reply_read_program(struct pl_reply *r, struct span name, struct span t);
/* Reports the call that `t` is with the markers of a notation. Returns false if
 * it is none. */
bool reply_read_marked(struct pl_reply *r, struct span t);
/* Removes a marker, or the beginning of one, from the end of *t. Returns true
 * if the whole marker was there. */
bool reply_leave_out(struct span *t, struct span mark);

/* ---- channels ------------------------------------------------------------ */

bool reply_go_through_header(struct pl_reply *r, bool last);
bool reply_go_through_channel(struct pl_reply *r, bool last);
/* Returns true if the present message is reasoning. */
bool reply_is_thought(const struct pl_reply *r);

#endif
