/* The notation in which a model writes reasoning and tool calls, learned from
 * its chat template. Messages with known strings are rendered; the text around
 * these strings is the markers. For chat/ and for code that creates
 * templates. */
#ifndef CHAT_REPLY_FORMAT_H
#define CHAT_REPLY_FORMAT_H

#include "base/arena.h"
#include "pl.h"

/* A part of a text. n 0: absent. */
struct span {
    const char *s;
    size_t n;
};

enum reply_calls {
    CALLS_NONE,
    CALLS_OBJECT, /* {"name": "f", "arguments": {...}}, or {"f": {...}}, or a
                     list of them */
    CALLS_NAMED,  /* f[ARGS]{...} */
    CALLS_TAGGED, /* f<key>k</key><value>v</value> */
    CALLS_PYTHON, /* [f(k='v', n=1), g()] */
    CALLS_QUOTED, /* f{k:<|"|>v<|"|>}: JSON with other quotes and bare keys */
};

/* Markers have no blanks at their ends; in a reply, blanks around a marker
 * belong to it. Allocated in the arena. */
struct reply_format {
    bool channels; /* gpt-oss: all is <|channel|>NAME<|message|>...<|end|> */
    /* The template reads message.thinking instead of
     * message.reasoning_content. */
    bool thinking;
    bool as_text;  /* the template accepts arguments only as a JSON text */
    bool led;      /* blanks separate a prompt from content */
    bool id_named; /* NAMED: the name is an identifier, functions.f:0 */
    bool listed;   /* OBJECT: one list has all calls */
    bool each;     /* calls_open and calls_close enclose each call */
    struct span think_open, think_close;
    struct span content_open, content_close; /* around all content */
    struct span end[2]; /* of a message; of one that ends with a call */

    enum reply_calls calls;
    struct span calls_open, calls_close; /* around all calls, or each */
    struct span call_open, call_close;
    struct span name_key, arguments_key; /* OBJECT; n 0: {"f": {...}} */
    struct span id_open;                 /* NAMED: before an identifier */
    struct span name_open;  /* NAMED: between identifier and name */
    struct span args_open;  /* NAMED: before the arguments, with blanks */
    struct span name_close; /* TAGGED: after the name */
    struct span key_open, value_open, value_close; /* TAGGED */
    /* TAGGED: value_open of values that are not strings. n 0: the same. */
    struct span json_open;
    struct span value_lead, value_tail; /* TAGGED: blanks around a value */
    struct span quote;                  /* QUOTED */

    struct arena arena;
};

/* Renders a conversation for `user`; *text is malloc'ed. */
typedef pl_status reply_render_fn(void *user, const pl_conversation *c,
                                  char **text, pl_err *err);

/* *f must be zeros. A marker is absent if the template refuses to render the
 * messages that show it. Fails only with PL_NO_MEMORY. In all cases the caller
 * calls reply_format_fini. */
pl_status reply_format_learn(struct reply_format *f, reply_render_fn *render,
                             void *user, pl_err *err);
void reply_format_fini(struct reply_format *f);

/* ---- spans -------------------------------------------------------------- */

struct span span_of(const char *s);                /* of a terminated text */
struct span span_from(struct span t, size_t from); /* empty if t ends there */
struct span span_trim(struct span t); /* without blanks at its ends */
bool span_equal(struct span a, struct span b);
bool span_begins(struct span t, struct span with);
/* Returns the first position of `part` in t, or t.n if it is absent or
 * empty. */
size_t span_find(struct span t, struct span part);
/* Counts the blanks that t begins with. */
size_t span_blanks(struct span t);
/* Returns the length of the name that t begins with: letters, digits and any of
 * _-.:/ */
size_t span_name(struct span t);

#endif
