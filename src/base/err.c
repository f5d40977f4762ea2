/* Status names and message formatting. */
#include "base/err.h"

#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define ROW(name, text) #name,
    PL_STATUS_MAP(ROW)
#undef ROW
};

static const char *const texts[] = {
#define ROW(name, text) text,
    PL_STATUS_MAP(ROW)
#undef ROW
};

enum { N_STATUS = sizeof names / sizeof names[0] };

const char *pl_status_name(pl_status s)
{
    return (unsigned)s < N_STATUS ? names[s] : "unknown status";
}

const char *pl_status_text(pl_status s)
{
    return (unsigned)s < N_STATUS ? texts[s] : "unknown status";
}

/* The beginning and the end of a text that does not fit. */
static void cut_middle(char *out, size_t size, const char *text, size_t len)
{
    static const char gap[] = " ... ";
    size_t tail = size / 2, head = size - 1 - strlen(gap) - tail;

    snprintf(out, size, "%.*s%s%s", (int)head, text, gap, text + len - tail);
}

pl_status err_set(pl_err *err, pl_status s, const char *fmt, ...)
{
    enum { LONGEST = 6144 }; /* a path of PATH_MAX and what is said of it */
    const size_t size = sizeof err->message;
    char text[LONGEST];
    va_list ap;
    int n;

    if (!err)
        return s;
    err->status = s;
    va_start(ap, fmt);
    n = numeral_vprint(text, LONGEST, fmt, ap);
    va_end(ap);
    if (n < 0)
        n = 0;
    text[n < LONGEST ? n : LONGEST - 1] = '\0';
    if ((size_t)n < size)
        memcpy(err->message, text, (size_t)n + 1);
    else
        cut_middle(err->message, size, text, strlen(text));
    return s;
}

const char *err_shown(char buf[ERR_SHOWN], const char *s, size_t len)
{
    size_t n = 0, room = ERR_SHOWN - 4;

    for (; n < len && n < room; n++)
        buf[n] = s[n] >= ' ' && s[n] <= '~' ? s[n] : '?';
    strcpy(buf + n, n < len ? "..." : "");
    return buf;
}

pl_status err_no_memory(pl_err *err, const char *what)
{
    return err_set(err, PL_NO_MEMORY, "out of host memory while allocating %s",
                   what);
}
