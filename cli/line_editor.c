/* Reads typed lines; see line_editor.h. Only this file uses libedit. */
#include "line_editor.h"
#include "term.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum {
    MOST_LINES = 1000,    /* greatest number of lines in the history */
    MOST_PASTE = 1 << 22, /* greatest number of characters in one paste */
};

/* Escape sequences that make the terminal put markers around pasted text
 * (bracketed paste), and that end this mode. */
static const char asks_for_marks[] = "\033[?2004h";
static const char wants_no_marks[] = "\033[?2004l";
static const char paste_begins[] = "\033[200~";
static const wchar_t paste_ends[] = L"\033[201~";
enum { N_END = sizeof(paste_ends) / sizeof(*paste_ends) - 1 };

struct line_editor {
    EditLine *edit;
    History *history;
    const char *prompt; /* borrowed during line_editor_read */
};

static char *prompt_of(EditLine *edit)
{
    struct line_editor *e;

    el_get(edit, EL_CLIENTDATA, &e);
    return (char *)e->prompt;
}

/* Replaces the terminal's line ends by newlines and removes newlines at the end
 * of the text, because only the Enter key must send it. Returns the new
 * length. */
static size_t unify_lines(wchar_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == L'\r')
            s[i] = L'\n';
    while (n > 0 && s[n - 1] == L'\n')
        n--;
    return n;
}

/* Called after the first marker of a paste: reads up to the second marker and
 * inserts the text between them. A text that is too long is read and dropped,
 * so that its lines are not executed as commands. */
static unsigned char take_paste(EditLine *edit, int key)
{
    wchar_t *s = NULL, c;
    /* n: characters in `s`; room: capacity of `s`; ended: length of the
     * beginning of the end marker with which `s` ends */
    size_t n = 0, room = 0, ended = 0;
    bool fits = true;

    (void)key;
    while (ended < N_END && el_wgetc(edit, &c) == 1) {
        ended = c == paste_ends[ended] ? ended + 1 : c == paste_ends[0];
        if (n + 1 >= room && fits) {
            wchar_t *more = NULL;

            room = room > 0 ? 2 * room : 256;
            if (room <= MOST_PASTE)
                more = realloc(s, room * sizeof(*s));
            fits = more != NULL;
            s = fits ? more : s;
        }
        if (fits)
            s[n++] = c;
    }
    fits = fits && ended == N_END;
    n = fits ? unify_lines(s, n - N_END) : 0;
    if (n > 0) {
        s[n] = L'\0';
        fits = el_winsertstr(edit, s) == 0;
    }
    free(s);
    return fits ? CC_REFRESH : CC_ERROR;
}

struct line_editor *line_editor_open(void)
{
    struct line_editor *e;
    HistEvent event;

    if (!isatty(0) || !term_draws())
        return NULL;
    e = calloc(1, sizeof(*e));
    if (e == NULL)
        return NULL;
    /* libedit then reads multibyte characters in the user's encoding */
    setlocale(LC_CTYPE, "");
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
    el_set(e->edit, EL_ADDFN, "plait-paste", "Insert a paste", take_paste);
    el_set(e->edit, EL_BIND, paste_begins, "plait-paste", NULL);
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
    int n = 0, error;

    e->prompt = prompt;
    fputs(asks_for_marks, stderr);
    errno = 0;
    line = el_gets(e->edit, &n);
    error = errno;
    fputs(wants_no_marks, stderr);
    errno = error;
    if (line == NULL || n <= 0)
        return NULL;
    if (line[strspn(line, " \t\n")] != '\0')
        history(e->history, &event, H_ENTER, line);
    *len = (size_t)n;
    return line;
}
