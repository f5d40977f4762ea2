/* Chat templates: render a list of messages to the text that a model continues.
 * The template language is that of the metadata key tokenizer.chat_template in
 * GGUF files: Jinja as Hugging Face configures it.
 *
 * A template is part of a file of unknown origin, so its steps, depth, output
 * and memory are limited. It can read only its variables and the clock, and it
 * cannot change anything outside.
 *
 * A template does not change after its creation, so threads may share it. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "pl.h"

struct chat_template; /* a parsed template; the struct is opaque */

/* Limits of one rendering of a template. A step is the evaluation of a node of
 * the syntax tree, an iteration of a loop, or the reading of 64 bytes. */
struct chat_limits {
    uint64_t steps;
    int depth; /* maximum nesting of statements, expressions and values */
    /* Limit of the output in bytes, including strings that are being built. */
    size_t output_bytes;
    size_t memory_bytes; /* limit of the memory of all values, in bytes */
};
extern const struct chat_limits chat_usual_limits;

/* A variable for a template: its name, and its value as a string or a JSON
 * text. */
struct chat_variable {
    const char *name;
    const char *s; /* the value, [len] */
    size_t len;
    /* `s` is a JSON text that is parsed; else it is a plain string. */
    bool json;
};

/* Parses the template text[0 .. len), which may be freed afterwards.
 * PL_BAD_FILE if it is not a template; PL_UNSUPPORTED if it uses an unsupported
 * feature. The error message names the line. */
pl_status chat_template_create(struct chat_template **out, const char *text,
                               size_t len, pl_err *err);
void chat_template_free(struct chat_template *t);

/* Renders the template with var[n_var]. *out is malloc'ed and terminated; *len
 * excludes the terminator. A later variable replaces an earlier one of the same
 * name. A variable without a name is a JSON object of variables. `now` is the
 * time that strftime_now shows, in seconds since 1970. PL_BAD_ARGUMENT if a
 * variable is invalid JSON, or if the template raises an exception or fails
 * with these variables or nests too deeply. PL_FULL if another limit is
 * reached. */
pl_status chat_template_render(const struct chat_template *t,
                               const struct chat_variable *var, int n_var,
                               int64_t now, const struct chat_limits *limits,
                               char **out, size_t *len, pl_err *err);

#endif
