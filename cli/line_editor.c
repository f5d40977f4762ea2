/* Lines that are typed; see line_editor.h. All that knows libedit. */
#include "line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 1000 }; /* that the history remembers */

struct line_editor {
    EditLine *edit;
    History *history;
    const char *prompt; /* borrowed */
};

static char *prompt_of(EditLine *edit)
{
    struct line_editor *e;

    el_get(edit, EL_CLIENTDATA, &e);
    return (char *)e->prompt;
}

struct line_editor *line_editor_open(void)
{
    struct line_editor *e;
    HistEvent event;

    if (!isatty(0) || !isatty(2))
        return NULL;
    e = calloc(1, sizeof(*e));
    if (e == NULL)
        return NULL;
    setlocale(LC_CTYPE, ""); /* what bytes make a character */
    e->history = history_init();
    e->edit = el_init("plait", stdin, stderr, stderr);
    if (e->edit == NULL || e->history == NULL) {
        line_editor_close(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, MOST_LINES);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_PROMPT, prompt_of);
    return e;
}

void line_editor_close(struct line_editor *e)
{
    if (e == NULL)
        return;
    if (e->edit != NULL)
        el_end(e->edit);
    if (e->history != NULL)
        history_end(e->history);
    free(e);
}

const char *line_editor_read(struct line_editor *e, const char *prompt,
                             size_t *len)
{
    HistEvent event;
    const char *line;
    int n = 0;

    e->prompt = prompt;
    errno = 0;
    line = el_gets(e->edit, &n);
    if (line == NULL || n <= 0)
        return NULL;
    if (line[strspn(line, " \t\n")] != '\0')
        history(e->history, &event, H_ENTER, line);
    *len = (size_t)n;
    return line;
}
