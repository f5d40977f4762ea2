/* Warnings and other messages of a plan to its user.
 *
 * Messages are stored with a plan and emitted once that plan has been chosen,
 * because many candidate plans are discarded. */
#ifndef PLAN_DIAGNOSTICS_H
#define PLAN_DIAGNOSTICS_H

#include "base/arena.h"
#include "pl.h"

struct note {
    pl_log_level level;
    const char *text;
    struct note *next;
};

struct notes {
    struct arena *a;           /* owns the messages and their texts */
    struct note *first, *last; /* list of messages in the order in which
                                  diag_add added them */
};

/* Adds a message, formatted as by printf. If out of memory, the message is
 * dropped. */
void diag_add(struct notes *n, pl_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Passes all messages to `log` with `user`, in order. Does nothing if `log` is
 * NULL. */
void diag_emit(const struct notes *n, pl_log_fn *log, void *user);

#endif
