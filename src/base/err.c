/* Status names and message formatting. */
#include "base/err.h"

#include "base/numeral.h"
#include "base/version.h" /* made by the build */

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

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

pl_status err_null(pl_err *err, const char *function, const char *argument)
{
    return err_set(err, PL_BAD_ARGUMENT,
                   "%s: %s is NULL; only what the header says may be", function,
                   argument);
}

/* Is there room for a thread's stack? */
static bool fits_stack(size_t *bytes)
{
    pthread_attr_t usual;
    void *p;

    *bytes = 0;
    if (pthread_attr_init(&usual) != 0)
        return false;
    pthread_attr_getstacksize(&usual, bytes);
    pthread_attr_destroy(&usual);
    p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    if (p == MAP_FAILED)
        return false;
    munmap(p, *bytes);
    return true;
}

pl_status err_no_thread(pl_err *err, const char *what, int e)
{
    size_t bytes;

    if (!fits_stack(&bytes))
        return err_set(err, PL_NO_MEMORY,
                       "%s could not be started: there is no room for its "
                       "stack of %zu bytes; ask for fewer threads (-t) or "
                       "devices (-dev), raise the limit of memory (ulimit -v) "
                       "or lower that of stacks (ulimit -s)",
                       what, bytes);
    return err_set(err, PL_DEVICE,
                   "%s could not be started: %s; ask for fewer threads (-t) or "
                   "devices (-dev), or raise the limit (ulimit -u, or the "
                   "container's)",
                   what, strerror(e));
}

pl_status err_cancelled(const volatile int *cancel, pl_err *err)
{
    if (!cancel || __atomic_load_n(cancel, __ATOMIC_RELAXED) == 0)
        return PL_OK;
    return err_set(err, PL_CANCELLED, "loading was stopped on request");
}

const char *pl_version(void)
{
    return PLAIT_VERSION;
}
