/* What a plan has to say to its user: warnings and the like.
 *
 * They are kept with the plan and told when it has been chosen, since many are
 * made that nobody asked for. */
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
    struct note *first, *last; /* in the order in which they were added */
};

/* Adds one, printf-style; one for which there is no memory is lost. */
void diag_add(struct notes *n, pl_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells all of them; `log` may be NULL. */
void diag_emit(const struct notes *n, pl_log_fn *log, void *user);

#endif
