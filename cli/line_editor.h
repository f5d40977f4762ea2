/* Lines that are typed on a terminal, with cursor keys and a history (libedit).
 */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor; /* opaque */

/* NULL: standard input or standard error is no terminal, or memory is out. */
struct line_editor *line_editor_open(void);
void line_editor_close(struct line_editor *e); /* takes NULL */

/* A line with its newline, [*len], until the next call; NULL at the end, or
 * after a Ctrl-C, with errno EINTR. The prompt goes to standard error. */
const char *line_editor_read(struct line_editor *e, const char *prompt,
                             size_t *len);

#endif
