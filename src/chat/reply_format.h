/* How a model writes reasoning and calls of tools into its replies, learned
 * from its chat template: messages with known strings are rendered, and what
 * surrounds the strings are the marks. For chat/ and who creates templates. */
#ifndef CHAT_REPLY_FORMAT_H
#define CHAT_REPLY_FORMAT_H

#include "base/arena.h"
#include "pl.h"

/* A part of a text. n 0: there is none. */
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

/* Marks have no blanks at their ends: where they stand, blanks around them are
 * part of them. In the arena. */
struct reply_format {
    bool channels; /* gpt-oss: all is <|channel|>NAME<|message|>...<|end|> */
    bool thinking; /* the template reads message.thinking, where others read
                      message.reasoning_content */
    bool as_text;  /* the template takes arguments as a JSON text alone */
    bool led;      /* blanks stand between a prompt and content */
    bool id_named; /* NAMED: the name is an identifier, functions.f:0 */
    bool listed;   /* OBJECT: a list has all calls */
    bool each;     /* calls_open and calls_close stand around each call */
    struct span think_open, think_close;
    struct span content_open, content_close; /* around all content */
    struct span end[2]; /* of a message; of one that ends with a call */

    enum reply_calls calls;
    struct span calls_open, calls_close; /* around all calls, or each */
    struct span call_open, call_close;
    struct span name_key, arguments_key; /* OBJECT; n 0: {"f": {...}} */
    struct span id_open;                 /* NAMED: before an identifier */
    struct span name_open;  /* NAMED: between an identifier and the name */
    struct span args_open;  /* NAMED: before the arguments, blanks and all */
    struct span name_close; /* TAGGED: behind the name */
    struct span key_open, value_open, value_close; /* TAGGED */
    struct span json_open; /* TAGGED: value_open of what is no string; n 0: the
                              same */
    struct span value_lead, value_tail; /* TAGGED: blanks around a value */
    struct span quote;                  /* QUOTED */

    struct arena arena;
};

/* Renders a conversation for `user`; *text is malloc'ed. */
typedef pl_status reply_render_fn(void *user, const pl_conversation *c,
                                  char **text, pl_err *err);

/* *f is zeros. A template that refuses to render what shows a mark has none.
 * Fails only with PL_NO_MEMORY. reply_format_fini takes *f in all cases. */
pl_status reply_format_learn(struct reply_format *f, reply_render_fn *render,
                             void *user, pl_err *err);
void reply_format_fini(struct reply_format *f);

/* ---- spans -------------------------------------------------------------- */

struct span span_of(const char *s);                /* a terminated text */
struct span span_from(struct span t, size_t from); /* empty: t ends there */
struct span span_trim(struct span t); /* without blanks at its ends */
bool span_equal(struct span a, struct span b);
bool span_begins(struct span t, struct span with);
/* Where `part` first is in t; t.n: nowhere, or part is empty. */
size_t span_find(struct span t, struct span part);
/* Blanks that t begins with. */
size_t span_blanks(struct span t);
/* Bytes of the name that t begins with: letters, digits and _ - . : / */
size_t span_name(struct span t);

#endif
