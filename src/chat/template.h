/* Chat templates: render a list of messages to the text that a model continues.
 * The language is that of tokenizer.chat_template: Jinja as Hugging Face
 * configures it.
 *
 * A template comes from a file of unknown origin, so steps, depth, output and
 * memory are bounded. It reads only its variables and the clock, and changes
 * nothing.
 *
 * A template never changes once created, so threads may share it. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "pl.h"

struct chat_template; /* opaque */

/* A step is a node of the tree, an item of a loop, or 64 bytes read. */
struct chat_limits {
    uint64_t steps;
    int depth;           /* nesting of statements, expressions and values */
    size_t output_bytes; /* including intermediate texts */
    size_t memory_bytes; /* of values */
};
extern const struct chat_limits chat_usual_limits;

/* A variable: a string or a JSON text. */
struct chat_variable {
    const char *name;
    const char *s; /* [len] */
    size_t len;
    bool json; /* else a plain string */
};

/* `text` may be freed afterwards. PL_BAD_FILE: not a template; PL_UNSUPPORTED:
 * an unsupported feature. The message names the line. */
pl_status chat_template_create(struct chat_template **out, const char *text,
                               size_t len, pl_err *err);
void chat_template_free(struct chat_template *t);

/* *out is malloc'ed and terminated; *len excludes the terminator. Later
 * variables replace earlier ones of the same name. One without a name is a JSON
 * object of variables. `now`: seconds since 1970, as strftime_now shows.
 * PL_BAD_ARGUMENT: invalid JSON, or the template raises or makes a mistake with
 * these variables. PL_FULL: a limit is reached. */
pl_status chat_template_render(const struct chat_template *t,
                               const struct chat_variable *var, int n_var,
                               int64_t now, const struct chat_limits *limits,
                               char **out, size_t *len, pl_err *err);

#endif
