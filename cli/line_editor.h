/* Reads lines typed on a terminal, with cursor keys and a history (libedit).
 * Pasted text is one line, even if it contains newlines. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor; /* opaque */

/* Returns NULL if standard input is not a terminal, if standard error cannot
 * draw, or if memory is out. */
struct line_editor *line_editor_open(void);
void line_editor_close(struct line_editor *e); /* takes NULL */

/* Returns a line with its newline, [*len], valid until the next call. Returns
 * NULL at the end, or after a Ctrl-C, with errno EINTR. Newlines before the
 * last were pasted. The prompt is written to standard error. */
const char *line_editor_read(struct line_editor *e, const char *prompt,
                             size_t *len);

#endif
