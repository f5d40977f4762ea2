/* Statuses and messages. A message is written once, where the facts are known;
 * callers forward the status. Failing allocates nothing. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "pl.h"

/* Writes the printf-style message into `err` (may be NULL) and returns `s`, so
 * that a failure reads `return err_set(err, PL_BAD_FILE, "%s: ...", path);`
 * What is too long loses its middle: it ends with what was wrong. */
pl_status err_set(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The usual message for a failed allocation; `what` names what it was for. */
pl_status err_no_memory(pl_err *err, const char *what);

/* CANCELLED if *cancel is set, which another thread may do meanwhile; `cancel`
 * may be NULL. */
pl_status err_cancelled(const volatile int *cancel, pl_err *err);

/* A name or a value as messages show it: printable ASCII, shortened to fit. */
enum { ERR_SHOWN = 80 };
const char *err_shown(char buf[ERR_SHOWN], const char *s, size_t len);

/* The usual message for a thread that could not be started; `what` is which, e
 * what pthread_create returned. PL_NO_MEMORY where a stack finds no room, else
 * PL_DEVICE: the system says the same of both, so room is tried. */
pl_status err_no_thread(pl_err *err, const char *what, int e);

/* NULL was given for `argument` of a public function, where it must not be. */
pl_status err_null(pl_err *err, const char *function, const char *argument);

/* Public functions begin with these, first all PL_CLEAR, then all PL_NEED: what
 * they would give back is NULL or 0 whenever they fail; and an argument that
 * must not be NULL, named as in the header, is there. */
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
/* The same of an array of n, and of a text, which is "" from here on if it is
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

/* Only where nothing is held; with something held, use `goto done`. */
#define PL_TRY(call)                                                           \
    do {                                                                       \
        pl_status try_status_ = (call);                                        \
        if (try_status_ != PL_OK)                                              \
            return try_status_;                                                \
    } while (0)

#endif
