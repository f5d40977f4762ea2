/* Warnings and other messages of a plan to its user.
 *
 * They are kept with the plan and emitted when it has been chosen, because many
 * candidate plans are discarded. */
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
    struct arena *a;           /* owns them */
    struct note *first, *last; /* in the order of diag_add() */
};

/* Adds a message, printf-style; it is lost if memory is out. */
void diag_add(struct notes *n, pl_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Emits all messages; `log` may be NULL. */
void diag_emit(const struct notes *n, pl_log_fn *log, void *user);

#endif
