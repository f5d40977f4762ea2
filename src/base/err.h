/* Statuses and messages. A message is written once, where the facts are known;
 * callers forward the status. Reporting an error allocates nothing. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "pl.h"

/* Writes the printf-style message into `err` (may be NULL) and returns `s`, so
 * that a failure reads `return err_set(err, PL_BAD_FILE, "%s: ...", path);` A
 * message that is too long loses its middle, so that its end, which has the
 * cause, stays. */
pl_status err_set(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the message for a failed allocation; `what` names its purpose. */
pl_status err_no_memory(pl_err *err, const char *what);

/* Returns CANCELLED if *cancel is set, which another thread may do at any time.
 * `cancel` may be NULL. */
pl_status err_cancelled(const volatile int *cancel, pl_err *err);

/* Formats a name or a value for messages: printable ASCII, shortened to fit. */
enum { ERR_SHOWN = 80 };
const char *err_shown(char buf[ERR_SHOWN], const char *s, size_t len);

/* Sets the message for a thread that could not be started. `what` names it; e
 * is the result of pthread_create. Returns PL_NO_MEMORY if there is no space
 * for a stack, else PL_DEVICE. The system reports both alike, so the function
 * tries to allocate. */
pl_status err_no_thread(pl_err *err, const char *what, int e);

/* Reports that NULL was passed for `argument` of a public function, where it is
 * not allowed. */
pl_status err_null(pl_err *err, const char *function, const char *argument);

/* Public functions begin with these, first all PL_CLEAR, then all PL_NEED.
 * PL_CLEAR sets a result to NULL or 0, so that it is that on every failure.
 * PL_NEED checks an argument that must not be NULL, named as in the header. */
#define PL_CLEAR(out)                                                          \
    do {                                                                       \
        if (out)                                                               \
            *(out) = 0;                                                        \
    } while (0)
#define PL_NEED(argument, err)                                                 \
    do {                                                                       \
        if (!(argument))                                                       \
            return err_null(err, __func__, #argument);                         \
    } while (0)
/* The same for an array of n, and for a text, which is replaced by "" if it is
 * empty and NULL. */
#define PL_NEED_ARRAY(argument, n, err)                                        \
    do {                                                                       \
        if (!(argument) && (n) > 0)                                            \
            return err_null(err, __func__, #argument);                         \
    } while (0)
#define PL_NEED_TEXT(argument, n, err)                                         \
    do {                                                                       \
        PL_NEED_ARRAY(argument, n, err);                                       \
        if (!(argument))                                                       \
            (argument) = "";                                                   \
    } while (0)

/* Use only while nothing is held; otherwise use `goto done`. */
#define PL_TRY(call)                                                           \
    do {                                                                       \
        pl_status try_status_ = (call);                                        \
        if (try_status_ != PL_OK)                                              \
            return try_status_;                                                \
    } while (0)

#endif
