/* The terminal: a progress line, colors, and signals that end the process.
 *
 * Progress is written to standard error, only if that is a terminal that can
 * redraw a line, and only for work that takes over a second. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if standard error is a terminal that can redraw a line. An unset
 * TERM or "dumb" means that it cannot. */
bool term_draws(void);
/* Returns true if also NO_COLOR is not set. */
bool term_colors(void);

struct term_progress {
    const char *what; /* borrowed; NULL: nothing in progress */
    double start_s, drawn_s;
    bool drawn;
};

/* A pl_progress_fn; `progress` is a zero-initialised struct term_progress. It
 * detects a new `what` and ends at done = total. */
void term_progress(void *progress, const char *what, uint64_t done,
                   uint64_t total);
/* Clears the line, if there is one. */
void term_progress_end(struct term_progress *p);

/* Replaces the line by this text until term_progress_end. */
void term_status(struct term_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes the process count the first `limit` Ctrl-C; one more ends the process
 * at once. Without this call each does. SIGTERM and SIGHUP count as `limit` of
 * them. The exit code is 128 + the signal's number, 130 for Ctrl-C. */
int term_interrupts_count(int limit); /* returns the previous limit */
/* Forgets Ctrl-C, but neither SIGTERM nor SIGHUP. */
void term_interrupts_reset(void);
/* Forgets all of them, because what is computed from now on must be saved. */
void term_interrupts_clear(void);
/* The number since the reset; nonzero cancels pl_engine_decode. */
extern volatile int term_interrupts;
/* Returns `code`, or for EXIT_INTERRUPTED the signal's code. */
int term_exit_code(int code);

/* Installs handlers for these signals, and lets writes to a closed pipe fail
 * instead of killing the process. A SIGHUP that the parent ignores stays
 * ignored. Descriptors 0 to 2 are open afterwards. */
void term_init(void);

double term_seconds(void); /* of a monotonic clock */

#endif
