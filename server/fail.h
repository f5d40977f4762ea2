/* Errors and log lines of the server. */
#ifndef SERVER_FAIL_H
#define SERVER_FAIL_H

#include "pl.h"

/* Sets *err, which may be NULL, to a status and a formatted message. Returns
 * `s`. */
pl_status server_fail(pl_err *err, pl_status s, const char *form, ...)
    __attribute__((format(printf, 3, 4)));
/* Calls `log`, unless it is NULL, with a formatted line of at most 1,399
 * bytes. */
void server_log(pl_log_fn *log, void *user, pl_log_level level,
                const char *form, ...) __attribute__((format(printf, 4, 5)));

#endif
