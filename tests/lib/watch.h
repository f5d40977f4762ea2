/* Tells whether a process and its descendants still make progress, without
 * asking how long they take: a busy or paused machine slows everything, and
 * says nothing about the code.
 *
 * Progress is processor time used, by any of them, or output. The caller ticks
 * about once a second of its own time, so a machine that sleeps counts one
 * tick. */
#ifndef TEST_WATCH_H
#define TEST_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

struct watch {
    pid_t pid;       /* its descendants and its process group belong to it */
    double enough_s; /* processor seconds that end a silence */
    double cpu_s;    /* processor seconds that all of them used so far */
    double seen_s;   /* what /proc showed at the last tick */
    double quiet_s;  /* cpu_s when the present silence began */
    int quiet;       /* ticks of it */
};

/* Begins to watch a process that was just started; w->pid and w->enough_s are
 * set. */
void watch_start(struct watch *w);

/* Reads /proc once for all n of them and leaves out those whose pid is 0. A
 * silence ends when a process has used enough_s of processor time. */
void watch_tick(struct watch *const *w, int n);

/* Ends a silence, because the process has printed something. */
void watch_heard(struct watch *w);

#endif
