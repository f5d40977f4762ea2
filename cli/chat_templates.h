/* Chat templates that have a name, as in llama.cpp. */
#ifndef CLI_CHAT_TEMPLATES_H
#define CLI_CHAT_TEMPLATES_H

#include "input.h"

/* Reads the template of --template or --chat-template into *in, nothing if
 * neither is given. Prints an error and returns its code on failure. The caller
 * frees *in. */
enum exit_code chat_template_read(struct input *in, const struct options *o);
/* Renders the conversation of --messages and --tools with the template of the
 * options or of the model. `m` may be NULL; then the model's file is read.
 * Prints an error and returns its code on failure. The caller frees *out. In
 * cmd_render.c. */
enum exit_code render_prompt(struct input *out, const struct options *o,
                             pl_model *m);
/* Returns true if an option names a template. */
bool chat_template_given(const struct options *o);
/* Returns the Jinja text of a template, or NULL for an unknown name. */
const char *chat_template_named(const char *name);

#endif
