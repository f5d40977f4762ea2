/* Finds out whether a process and its descendants still make progress, without
 * asking how long they take: a busy or paused machine slows everything, which
 * says nothing about the code.
 *
 * Progress is output, or processor time that any of their threads used or
 * waited for while ready to run. Waiting counts because threads that hand work
 * to each other on a crowded processor wait far longer than they run. The
 * caller ticks about once a second of its own time, so a machine that sleeps
 * counts as one tick. */
#ifndef TEST_WATCH_H
#define TEST_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

struct watch {
    /* the watched process; its descendants and its process group count, too */
    pid_t pid;
    /* processor seconds, used or waited for, that end a silence */
    double enough_s;
    double cpu_s; /* processor seconds that these processes have used so far */
    /* seconds that their threads have waited for a processor so far */
    double waited_s;
    /* sum of cpu_s and waited_s when the present silence began */
    double quiet_s;
    int quiet; /* number of ticks since the present silence began */
    /* the two times in /proc at the last tick */
    double seen_cpu_s, seen_waited_s;
};

/* Begins to watch a process that was just started. The caller has set w->pid
 * and w->enough_s. */
void watch_start(struct watch *w);

/* Reads /proc once for all n watched processes; skips those whose pid is 0.
 * Ends the silence of a process whose threads have used or waited for enough_s
 * seconds of processor time. */
void watch_tick(struct watch *const *w, int n);

/* Ends the silence of a process, because it has printed something. */
void watch_heard(struct watch *w);

#endif
