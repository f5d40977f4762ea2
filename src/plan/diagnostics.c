/* The list of a plan's messages; see diagnostics.h. */
#include "plan/diagnostics.h"

#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>

void diag_add(struct notes *n, pl_log_level level, const char *fmt, ...)
{
    struct note *x = arena_alloc(n->a, 1, sizeof *x);
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!x)
        return;
    x->level = level;
    x->text = arena_strdup(n->a, text);
    if (!x->text)
        return;
    if (n->last)
        n->last->next = x;
    else
        n->first = x;
    n->last = x;
}

void diag_emit(const struct notes *n, pl_log_fn *log, void *user)
{
    for (const struct note *x = n->first; log && x; x = x->next)
        log(user, x->level, x->text);
}
