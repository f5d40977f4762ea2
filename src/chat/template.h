/* Chat templates: a list of messages to the text that a model is to go on with,
 * in the language of tokenizer.chat_template, Jinja as Hugging Face sets it up.
 *
 * A template comes from a file that anybody may have written, so everything is
 * bounded: steps, depth, output, memory. It reads nothing but what it is given
 * and the clock, and can change nothing.
 *
 * A template never changes once created: threads may share it. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "pl.h"

struct chat_template; /* opaque */

/* A step is a node of the tree, an item of a loop, or 64 bytes looked at. */
struct chat_limits {
    uint64_t steps;
    int depth;           /* of statements, expressions and values within each
                            other */
    size_t output_bytes; /* with what is put together on the way */
    size_t memory_bytes; /* of values */
};
extern const struct chat_limits chat_usual_limits;

/* A variable: a string or a JSON text. */
struct chat_variable {
    const char *name;
    const char *s; /* [len] */
    size_t len;
    bool json; /* else it is the string itself */
};

/* `text` may be freed afterwards. PL_BAD_FILE: it is no template;
 * PL_UNSUPPORTED: it has what is not supported; the message names the line. */
pl_status chat_template_create(struct chat_template **out, const char *text,
                               size_t len, pl_err *err);
void chat_template_free(struct chat_template *t);

/* *out is malloc'ed, terminated, *len its length without the end. Later
 * variables replace earlier ones of the same name; one without a name is a JSON
 * object of variables. `now`: seconds since 1970, what strftime_now shows.
 * PL_BAD_ARGUMENT: a JSON text is none, or the template raises or makes a
 * mistake with these variables; PL_FULL: a limit is reached. */
pl_status chat_template_render(const struct chat_template *t,
                               const struct chat_variable *var, int n_var,
                               int64_t now, const struct chat_limits *limits,
                               char **out, size_t *len, pl_err *err);

#endif
