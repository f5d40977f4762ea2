/* Tells whether a process and its descendants still make progress, without
 * asking how long they take: a busy or paused machine slows everything, and
 * that says nothing about the code.
 *
 * Progress is output, or processor time that any of their threads used or was
 * ready to use. Where many processes share a processor, threads that hand work
 * to each other wait for it far longer than they have it. The caller ticks
 * about once a second of its own time, so a machine that sleeps counts one
 * tick. */
#ifndef TEST_WATCH_H
#define TEST_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

struct watch {
    pid_t pid;       /* its descendants and its process group belong to it */
    double enough_s; /* seconds that end a silence, used or waited */
    double cpu_s;    /* processor seconds that all of them used so far */
    double waited_s; /* seconds that threads of theirs waited for a processor */
    double quiet_s;  /* the sum of both when the present silence began */
    int quiet;       /* ticks since it began */
    double seen_cpu_s, seen_waited_s; /* what /proc showed at the last tick */
};

/* Begins to watch a process that was just started; w->pid and w->enough_s are
 * set. */
void watch_start(struct watch *w);

/* Reads /proc once for all n of them; those whose pid is 0 are left out. A
 * silence ends when threads have used enough_s of processor time or waited for
 * it. */
void watch_tick(struct watch *const *w, int n);

/* Ends a silence, because the process has printed something. */
void watch_heard(struct watch *w);

#endif
