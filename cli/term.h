/* The terminal: a progress line, colors, and signals that end the process.
 *
 * Progress is written to standard error if that is a terminal that can redraw a
 * line, and if the work takes more than a second. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if standard error is a terminal that can redraw a line. An unset
 * TERM or "dumb" means that it cannot. */
bool term_draws(void);
/* Returns true if standard error can show colours: term_draws() is true, and
 * the variable NO_COLOR is unset or empty. */
bool term_colors(void);

struct term_progress {
    /* name of the work, borrowed; NULL if none is in progress */
    const char *what;
    double start_s, drawn_s;
    bool drawn;
};

/* A pl_progress_fn that draws a progress bar. `progress` points to a
 * zero-initialised struct term_progress. A new `what` starts a new bar; done ==
 * total removes it. */
void term_progress(void *progress, const char *what, uint64_t done,
                   uint64_t total);
/* Removes the progress bar or status text, if one is drawn. */
void term_progress_end(struct term_progress *p);

/* Draws this text in place of the progress bar, until term_progress_end. */
void term_status(struct term_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets how many presses of Ctrl-C are only counted. The next press ends the
 * process at once. The initial limit is 0, so every press ends the process.
 * SIGTERM and SIGHUP raise the count to `limit`. The exit code is 128 plus the
 * signal's number, 130 for Ctrl-C. */
int term_interrupts_count(int limit); /* returns the previous limit */
/* Sets the count of signals to 0. If a SIGTERM or SIGHUP was received, sets it
 * to the limit instead. */
void term_interrupts_reset(void);
/* Sets the count of signals to 0 even after a SIGTERM or SIGHUP, so that the
 * last work before the end, such as running requests, is not cancelled. */
void term_interrupts_clear(void);
/* Number of signals counted since the last reset. pl_engine_decode polls it as
 * `cancel`. */
extern volatile int term_interrupts;
/* Returns `code`. For EXIT_INTERRUPTED returns the exit code of the last signal
 * instead, if there was one. */
int term_exit_code(int code);

/* Installs handlers for SIGINT, SIGTERM and SIGHUP. Writes to a closed pipe
 * then fail instead of ending the process. A SIGHUP that the parent process
 * ignores stays ignored. Descriptors 0 to 2 are open afterwards. */
void term_init(void);

double term_seconds(void); /* monotonic clock, in seconds */

#endif
