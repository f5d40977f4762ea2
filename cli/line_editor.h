/* Lines that are typed on a terminal, with cursor keys and a history (libedit).
 * What is pasted is one line, whatever newlines it has. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor; /* opaque */

/* NULL: standard input is not a terminal, standard error not one that draws, or
 * memory is out. */
struct line_editor *line_editor_open(void);
void line_editor_close(struct line_editor *e); /* takes NULL */

/* A line with its newline, [*len], until the next call; NULL at the end, or
 * after a Ctrl-C, with errno EINTR. Newlines before the last were pasted. The
 * prompt goes to standard error. */
const char *line_editor_read(struct line_editor *e, const char *prompt,
                             size_t *len);

#endif
