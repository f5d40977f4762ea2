/* The notation in which a model writes reasoning and tool calls, learned from
 * its chat template. To learn it, messages with known texts are rendered; the
 * markers are the text around the known texts. Used by chat/ and by the code
 * that creates templates. */
#ifndef CHAT_REPLY_FORMAT_H
#define CHAT_REPLY_FORMAT_H

#include "base/arena.h"
#include "pl.h"

/* A part of a text, n bytes from s on, not NUL-terminated. A marker with n = 0
 * is absent. */
struct span {
    const char *s;
    size_t n;
};

enum reply_calls {
    CALLS_NONE,
    CALLS_OBJECT, /* {"name": "f", "arguments": {...}}, or {"f": {...}}, or a
                     list of them */
    CALLS_NAMED,  /* f[ARGS]{...}, or with name_key f[ARGS]{"name": "f", "args":
                     {...}} */
    CALLS_TAGGED, /* f<key>k</key><value>v</value> */
    CALLS_PYTHON, /* [f(k='v', n=1), g()] */
    CALLS_QUOTED, /* f{k:<|"|>v<|"|>}: JSON with other quotes and bare keys */
    CALLS_NESTED, /* f<k>v</k><list><item>1</item></list>: a tag a value */
    CALLS_CODE,   /* a program, the argument of a tool that runs programs */
};

/* The notation of a template's replies. The markers have no blanks at their
 * ends; blanks around a marker in a reply are not reported. The markers are in
 * `arena`. A field whose comment begins with "only for" has a meaning in that
 * notation of tool calls only. */
struct reply_format {
    /* Each message has a header, as in gpt-oss:
     * <|channel|>NAME<|message|>...<|end|>. */
    bool channels;
    /* With CALLS_NONE and `channels`: a message is >>>NAME, a line break and
     * the text. */
    bool recipients;
    /* With CALLS_NONE and `channels`: a message is
     * to=NAME<|message|>...<|eom|>; to=self is reasoning. The text of a message
     * to a tool is a tool call in another notation. */
    bool addressed;
    /* The template reads reasoning from the message field "thinking", not from
     * "reasoning_content". */
    bool thinking;
    /* The template accepts the arguments of tool calls only as JSON text, not
     * as objects. */
    bool as_text;
    /* Only blanks, no marker, separate the prompt from the content of the
     * reply. */
    bool led;
    /* Only for CALLS_NAMED: the name of the tool is an identifier of the call,
     * such as functions.f:0. */
    bool id_named;
    /* Only for CALLS_NAMED: the name of a server, not an identifier, precedes
     * name_open. */
    bool no_id;
    /* Only for CALLS_OBJECT: all tool calls are in one JSON list. */
    bool listed;
    /* calls_open and calls_close are around each tool call, not around all of
     * them. */
    bool each;
    /* Texts that are not tool calls may look like calls in this notation. So
     * only calls of declared tools count as calls. */
    bool guess;
    bool line; /* the marker of a tool call is at the beginning of a line */
    /* Only for CALLS_NAMED: only args_open or blanks may be between the name
     * and the arguments. */
    bool exact;
    /* Only for CALLS_TAGGED: the name and each key end at a quote. Attributes
     * follow, up to name_close or value_open: " type="string">. */
    bool attributes;
    struct span think_open, think_close;
    /* The text that ends reasoning: think_close and the blanks around it. */
    struct span think_end;
    /* Markers before and after the content. */
    struct span content_open, content_close;
    /* Marker that begins another part of the message, after content_close or
     * think_close. */
    struct span again;
    /* end[0]: the marker after a message. end[1]: the marker after a message
     * that ends with a tool call. */
    struct span end[2];

    enum reply_calls calls;
    /* Markers around all tool calls together, or around each call if `each`. */
    struct span calls_open, calls_close;
    struct span call_open, call_close;
    /* CALLS_OBJECT, CALLS_NAMED: keys of name and arguments; absent for {"f":
     * {...}} and f[ARGS]{...} */
    struct span name_key, arguments_key;
    /* Only for CALLS_NAMED: marker before the identifier of the call. */
    struct span id_open;
    /* Only for CALLS_NAMED: marker between the identifier (or the server's
     * name) and the tool's name. */
    struct span name_open;
    /* Only for CALLS_NAMED: marker before the arguments, with the blanks around
     * it. */
    struct span args_open;
    /* Only for CALLS_TAGGED: marker after the tool's name. */
    struct span name_close;
    /* Only for CALLS_TAGGED: markers before a key, between key and value, and
     * after a value. CALLS_NESTED: beginning of an opening tag, end of a tag,
     * and beginning of a closing tag. */
    struct span key_open, value_open, value_close;
    /* Only for CALLS_TAGGED: marker before a value that is not a string. Absent
     * if the marker is value_open. */
    struct span json_open;
    /* CALLS_TAGGED: markers around the type of a value, which is between key
     * and value */
    struct span type_open, type_close;
    /* CALLS_TAGGED: blanks before and after a value */
    struct span value_lead, value_tail;
    /* Only for CALLS_QUOTED: marker before and after strings. */
    struct span quote;

    /* Markers of published models that the source of the template contains: bit
     * i for reply_pairs[i]. */
    unsigned mentioned;
    struct arena arena;
};

/* Renders a conversation with a template. `user` is the pointer that was passed
 * to reply_format_learn. Sets *text to the malloc'ed text, which the caller
 * frees. */
typedef pl_status reply_render_fn(void *user, const pl_conversation *c,
                                  char **text, pl_err *err);

/* Records in f->mentioned which markers of published models (reply_pairs) the
 * source [len] of a template contains. reply_format_learn uses these markers if
 * the rendered conversations show no markers of reasoning. Called for each
 * source of a template before reply_format_learn. */
void reply_format_scan(struct reply_format *f, const char *source, size_t len);
/* Learns the notation of a template's replies. Renders test conversations by
 * calling `render` with `user`. *f must be zero, except for what
 * reply_format_scan has recorded. If the template refuses to render the
 * messages that would show a marker, this marker is absent. Fails only with
 * PL_NO_MEMORY. The caller calls reply_format_fini in any case. */
pl_status reply_format_learn(struct reply_format *f, reply_render_fn *render,
                             void *user, pl_err *err);
void reply_format_fini(struct reply_format *f);

/* ---- functions of spans ------------------------------------------------- */

/* Returns the span of a whole NUL-terminated string. */
struct span span_of(const char *s);
/* Returns the span without its first `from` bytes. */
struct span span_from(struct span t, size_t from);
struct span span_trim(struct span t);
bool span_equal(struct span a, struct span b);
bool span_begins(struct span t, struct span with);
bool span_ends(struct span t, struct span with);
/* Returns the offset of the first occurrence of `part` in t; t.n if `part` is
 * empty or does not occur. */
size_t span_find(struct span t, struct span part);
bool span_contains(struct span t, struct span part);
/* Returns the length of the text at the beginning of `t` that matches the
 * marker `mark`, where blanks between the marker's tags may differ. Returns 0
 * if `t` does not begin with the marker. */
size_t span_begins_loosely(struct span t, struct span mark);
/* Returns the number of blanks (whitespace bytes) at the beginning of `t`. */
size_t span_blanks(struct span t);
/* Returns the length of the tool name at the beginning of `t`, which consists
 * of letters, digits and the characters _-.:/ */
size_t span_name(struct span t);

#endif
