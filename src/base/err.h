/* Sets error messages. A message is written once, where the cause is known;
 * callers only return the status. Reporting an error allocates no memory. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "pl.h"

/* Writes the printf-style message into `err` (may be NULL) and returns `s`, so
 * that a failure reads `return err_set(err, PL_BAD_FILE, "%s: ...", path);` If
 * a message is too long, its middle is cut out, so that its end, which has the
 * cause, is kept. */
pl_status err_set(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the message for a failed allocation and returns PL_NO_MEMORY. `what`
 * names the purpose of the memory. */
pl_status err_no_memory(pl_err *err, const char *what);

/* Returns PL_CANCELLED and sets the message if *cancel is nonzero, else PL_OK.
 * Another thread may set *cancel at any time. `cancel` may be NULL. */
pl_status err_cancelled(const volatile int *cancel, pl_err *err);

/* err_shown writes the text s[len] to `buf` for a message: replaces characters
 * that are not printable and shortens a long text. Returns `buf`, whose size is
 * ERR_SHOWN bytes. */
enum { ERR_SHOWN = 80 };
const char *err_shown(char buf[ERR_SHOWN], const char *s, size_t len);

/* Sets the message for a thread that could not be started. `what` names the
 * thread; e is the result of pthread_create. Returns PL_NO_MEMORY if there is
 * no memory for a stack, else PL_DEVICE. The system reports both with the same
 * error code, so the function tries to allocate a stack. */
pl_status err_no_thread(pl_err *err, const char *what, int e);

/* Sets the message that NULL was passed for `argument` of a public function,
 * although the function does not allow NULL there. Returns PL_BAD_ARGUMENT. */
pl_status err_null(pl_err *err, const char *function, const char *argument);

/* Public functions begin with these macros, first PL_CLEAR for all results,
 * then PL_NEED. PL_CLEAR sets a result to NULL or 0, the value that it has on
 * every failure. PL_NEED returns an error from the function if an argument is
 * NULL. */
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
/* PL_NEED_ARRAY is like PL_NEED, but allows NULL if n is 0. PL_NEED_TEXT in
 * addition replaces a text that is NULL by "". */
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

/* Returns from the function if a call fails. Use only if there is nothing to
 * free; otherwise use `goto done`. */
#define PL_TRY(call)                                                           \
    do {                                                                       \
        pl_status try_status_ = (call);                                        \
        if (try_status_ != PL_OK)                                              \
            return try_status_;                                                \
    } while (0)

#endif
