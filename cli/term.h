/* The terminal: a line that shows progress, colors, and signals that end.
 *
 * Progress goes to standard error, only where that is a terminal that can take
 * a line back, and only for what takes over a second. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>

/* True if standard error is a terminal that knows more than lines, which
 * TERM=dumb or none denies. */
bool term_draws(void);
/* The same, and NO_COLOR is not set. */
bool term_colors(void);

struct term_progress {
    const char *what; /* borrowed; NULL: nothing is under way */
    double start_s, drawn_s;
    bool drawn;
};

/* A pl_progress_fn; `progress` is a zero-initialised struct term_progress. It
 * notices by itself when something new begins, and ends at done = total. */
void term_progress(void *progress, const char *what, uint64_t done,
                   uint64_t total);
/* Wipes the line, if there is one. */
void term_progress_end(struct term_progress *p);

/* Replaces the line by this text until term_progress_end. */
void term_status(struct term_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* From now on the first `limit` Ctrl-C are counted; one more ends the process
 * at once. Without this call each does. SIGTERM and SIGHUP count as `limit` of
 * them. The exit code is 128 + the signal's number, 130 for Ctrl-C. */
int term_interrupts_count(int limit); /* gives the limit before */
/* Forgets Ctrl-C, but neither SIGTERM nor SIGHUP. */
void term_interrupts_reset(void);
/* Forgets all: what is computed from here on is to be saved. */
void term_interrupts_clear(void);
/* How many came since the reset; nonzero cancels pl_engine_decode. */
extern volatile int term_interrupts;
/* Gives `code` back, or in place of EXIT_INTERRUPTED that of the signal. */
int term_exit_code(int code);

/* Handles these signals, and lets writes to a closed pipe fail instead of
 * killing the process. A SIGHUP that the parent has ignored stays ignored.
 * Descriptors 0 to 2 are open from here on. */
void term_init(void);

double term_seconds(void); /* of a clock that only runs forward */

#endif
