/* Reads lines typed on a terminal, with cursor keys and a history (libedit).
 * Pasted text is one line, even if it contains newlines. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor; /* opaque */

/* Creates an editor. Returns NULL if standard input is not a terminal, if
 * standard error cannot redraw a line (term_draws), or if out of memory. */
struct line_editor *line_editor_open(void);
void line_editor_close(struct line_editor *e); /* NULL is allowed */

/* Writes the prompt to standard error and reads a line. Returns it with its
 * newline, *len bytes, valid until the next call. Newlines before the last one
 * were pasted. Returns NULL at the end of the input; also after a Ctrl-C, and
 * then errno is EINTR. */
const char *line_editor_read(struct line_editor *e, const char *prompt,
                             size_t *len);

#endif
