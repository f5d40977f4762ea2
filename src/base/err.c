/* Status names and message formatting. */
#include "base/err.h"

#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>

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

pl_status err_set(pl_err *err, pl_status s, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return s;
    err->status = s;
    va_start(ap, fmt);
    numeral_vprint(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return s;
}

pl_status err_no_memory(pl_err *err, const char *what)
{
    return err_set(err, PL_NO_MEMORY, "out of host memory while allocating %s",
                   what);
}
