/* Draws progress on a terminal, and handles signals that end the process. */
#include "term.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double term_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool term_draws(void)
{
    const char *term = getenv("TERM");

    return isatty(2) && term != NULL && *term != '\0' &&
           strcmp(term, "dumb") != 0;
}

bool term_colors(void)
{
    const char *no = getenv("NO_COLOR");

    return term_draws() && (no == NULL || *no == '\0');
}

/* ---- progress ----------------------------------------------------------- */

void term_progress_end(struct term_progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
    p->what = NULL;
}

void term_progress(void *progress, const char *what, uint64_t done,
                   uint64_t total)
{
    enum { BAR = 30 };
    struct term_progress *p = progress;
    double now = term_seconds();
    double part = total > 0 ? (double)done / (double)total : 1.0;
    int full = (int)(part * BAR);

    if (p->what == NULL || strcmp(p->what, what) != 0) {
        term_progress_end(p);
        p->what = what;
        p->start_s = now;
    }
    if (done >= total) {
        term_progress_end(p);
        return;
    }
    /* Waits 0.3 s, and then draws the bar only if the estimated time of the
     * whole work is over a second. */
    if (now - p->start_s < 0.3 || now - p->start_s < part || !term_draws() ||
        (p->drawn && now - p->drawn_s < 0.1))
        return;
    fprintf(stderr, "\r\033[K%s [%.*s%*s] %3.0f %%", what, full,
            "##############################", BAR - full, "", 100.0 * part);
    p->drawn = true;
    p->drawn_s = now;
}

void term_status(struct term_progress *p, const char *fmt, ...)
{
    va_list ap;

    if (!term_draws())
        return;
    fputs("\r\033[K", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    p->drawn = true;
}

/* ---- Ctrl-C ------------------------------------------------------------- */

volatile int term_interrupts;
static volatile sig_atomic_t interrupts_allowed;
/* number of the last signal that was received; 0 if none */
static volatile sig_atomic_t last;
static volatile sig_atomic_t ends; /* nonzero after SIGTERM or SIGHUP */

/* Counts a signal, or ends the process if the count has reached
 * interrupts_allowed. SIGTERM and SIGHUP are usually sent only once, so one of
 * them raises the count to that limit. */
static void on_interrupt(int sig)
{
    if (term_interrupts >= interrupts_allowed)
        _exit(128 + sig);
    last = sig;
    ends = ends || sig != SIGINT;
    term_interrupts = ends ? interrupts_allowed : term_interrupts + 1;
    if (ends)
        alarm(1);
}

/* Handles SIGALRM, which interrupts a blocking read, and sets the alarm again
 * each second until the process ends. Without it, a read that begins just after
 * a signal would wait for ever. */
static void on_alarm(int sig)
{
    (void)sig;
    alarm(1);
}

/* Opens those of the descriptors 0 to 2 that are closed. Otherwise the next
 * file opened would get such a number, and messages would be written into it.
 * The replacements fail as closed descriptors do: input cannot be read, output
 * cannot be written. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

void term_init(void)
{
    struct sigaction a = {.sa_handler = on_interrupt}, before;

    fill_descriptors();
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* keeps hwloc from printing errors */
    /* SA_RESTART is not set, so that a signal also interrupts waiting for a
     * typed line. */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        /* nohup starts programs with SIGHUP ignored */
        sigaction(SIGHUP, &a, NULL);
    a.sa_handler = on_alarm;
    sigaction(SIGALRM, &a, NULL);
    /* SIGPIPE and SIGXFSZ are ignored, so that writing to a closed pipe or
     * beyond the file size limit fails with an error, which is reported. */
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
    sigaction(SIGXFSZ, &a, NULL);
}

int term_interrupts_count(int limit)
{
    int before = interrupts_allowed;

    interrupts_allowed = limit;
    return before;
}

void term_interrupts_reset(void)
{
    term_interrupts = 0;
    if (ends)
        term_interrupts = interrupts_allowed;
}

void term_interrupts_clear(void)
{
    ends = 0;
    term_interrupts = 0;
}

int term_exit_code(int code)
{
    return code == EXIT_INTERRUPTED && last != 0 ? 128 + last : code;
}
