/* The notation in which a model writes reasoning and tool calls, learned from
 * its chat template. Messages with known strings are rendered; the markers are
 * the text around these strings. Used by chat/ and by code that creates
 * templates. */
#ifndef CHAT_REPLY_FORMAT_H
#define CHAT_REPLY_FORMAT_H

#include "base/arena.h"
#include "pl.h"

/* A part of a text, not terminated. A marker with n = 0 is absent. */
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

/* The notation of a template. Markers have no blanks at their ends. In a reply,
 * blanks around a marker are not reported. The markers are allocated in
 * `arena`. */
struct reply_format {
    /* each message is <|channel|>NAME<|message|>...<|end|>, as in gpt-oss */
    bool channels;
    /* CALLS_NONE, channels: a message is >>>NAME, a line break and the text */
    bool recipients;
    /* CALLS_NONE, channels: a message is to=NAME<|message|>...<|eom|>, to=self
     * for reasoning. The text to a tool is a call in a notation of its own. */
    bool addressed;
    /* the template reads message.thinking instead of
     * message.reasoning_content */
    bool thinking;
    /* the template accepts arguments only as JSON text, not as objects */
    bool as_text;
    bool led; /* blanks, not a marker, separate the prompt from the content */
    bool id_named; /* CALLS_NAMED: the name is an identifier such as
                      functions.f:0 */
    bool no_id;    /* CALLS_NAMED: a server, not an identifier, is before
                      name_open */
    bool listed;   /* CALLS_OBJECT: all calls are in one JSON list */
    bool each;     /* calls_open and calls_close are around each call */
    /* Texts that are not calls may look like calls, so only calls of declared
     * tools count. */
    bool guess;
    bool line; /* the marker of a call begins a line */
    /* CALLS_NAMED: args_open, or nothing but blanks, directly follows the name
     */
    bool exact;
    /* CALLS_TAGGED: name and key end at a quote, and attributes follow, up to
     * name_close and value_open: " type="string"> */
    bool attributes;
    struct span think_open, think_close;
    /* the text that ends reasoning: think_close with the blanks around it */
    struct span think_end;
    struct span content_open, content_close; /* markers before and after all
                                                content */
    /* begins another part of the message, after content_close or think_close */
    struct span again;
    /* The marker after a message, and after one that ends with a call. */
    struct span end[2];

    enum reply_calls calls;
    /* Markers around all calls, or around each call if `each`. */
    struct span calls_open, calls_close;
    struct span call_open, call_close;
    /* CALLS_OBJECT, CALLS_NAMED: keys of name and arguments; absent for {"f":
     * {...}} and f[ARGS]{...} */
    struct span name_key, arguments_key;
    struct span id_open;    /* CALLS_NAMED: marker before the identifier */
    struct span name_open;  /* CALLS_NAMED: marker between the identifier, or
                               the server, and the name */
    struct span args_open;  /* CALLS_NAMED: marker before the arguments, with
                               its blanks */
    struct span name_close; /* CALLS_TAGGED: marker after the name */
    /* CALLS_TAGGED: markers around keys and values. CALLS_NESTED: a key follows
     * key_open and value_close, and value_open follows the key. */
    struct span key_open, value_open, value_close;
    /* CALLS_TAGGED: marker before a value that is not a string. Absent if it is
     * the same as value_open. */
    struct span json_open;
    /* CALLS_TAGGED: markers around the type of a value, which is between key
     * and value */
    struct span type_open, type_close;
    /* CALLS_TAGGED: blanks before and after a value */
    struct span value_lead, value_tail;
    struct span quote; /* CALLS_QUOTED: marker around strings */

    /* markers of published models in the template's source: bit i for
     * reply_pairs[i] */
    unsigned mentioned;
    struct arena arena;
};

/* Renders a conversation with a template. `user` is the pointer that was given
 * to reply_format_learn. *text is malloc'ed, and the caller frees it. */
typedef pl_status reply_render_fn(void *user, const pl_conversation *c,
                                  char **text, pl_err *err);

/* Notes which markers of published models a template's source [len] contains.
 * reply_format_learn uses them if the rendered conversations do not show any.
 * Call it for each source before reply_format_learn. */
void reply_format_scan(struct reply_format *f, const char *source, size_t len);
/* Learns the notation of a template. Renders test conversations by calling
 * `render` with `user`. *f must be zero, except for the notes of
 * reply_format_scan. A marker is absent if the template refuses to render the
 * messages that show it. Fails only with PL_NO_MEMORY. The caller calls
 * reply_format_fini in any case. */
pl_status reply_format_learn(struct reply_format *f, reply_render_fn *render,
                             void *user, pl_err *err);
void reply_format_fini(struct reply_format *f);

/* ---- spans -------------------------------------------------------------- */

struct span span_of(const char *s); /* the span of a NUL-terminated string */
/* the span without its first `from` bytes */
struct span span_from(struct span t, size_t from);
struct span span_trim(struct span t);
bool span_equal(struct span a, struct span b);
bool span_begins(struct span t, struct span with);
/* Returns the first position of `part` in t, or t.n if it is absent or
 * empty. */
size_t span_find(struct span t, struct span part);
bool span_contains(struct span t, struct span part);
/* Returns the length of `mark` at the beginning of `t`, where blanks between
 * the mark's tags may differ. Returns 0 if `t` does not begin with it. */
size_t span_begins_loosely(struct span t, struct span mark);
/* Returns the number of blanks at the beginning of `t`. */
size_t span_blanks(struct span t);
/* Returns the length of the name at the beginning of `t`: letters, digits and
 * any of _-.:/ */
size_t span_name(struct span t);

#endif
