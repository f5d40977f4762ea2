/* What a cpu device knows of each step before it runs: where its threads meet,
 * which steps the first thread does alone, which it must look at more closely.
 * Derived from a program when the device is given it. */
#ifndef DEVICE_CPU_CPU_BARRIERS_H
#define DEVICE_CPU_CPU_BARRIERS_H

#include "program/program.h"

/* Of a step, by bit. */
enum {
    /* The threads meet before the step: it reads what an earlier one wrote, or
     * writes what an earlier one touched, since they met last; or it tells
     * others that all before is done. */
    CPU_BARRIER = 1,
    /* In a run of a single token and at most one output: it is too small to
     * share, and the first thread's alone; the others pass it by. */
    CPU_FIRST_THREAD = 2,
    /* There instead of CPU_BARRIER, since what the first thread does alone is
     * in order by itself. */
    CPU_BARRIER_DECODE = 4,
    /* It is in every run: its micro-batch is the first and it has no guard. */
    CPU_ALWAYS = 8,
    /* The device's counters want to know of it. */
    CPU_COUNTED = 16,
    /* What it takes is told apart from computing. */
    CPU_TIMED = 32,
};

/* out[s->n_step]; t: the program's tensors, whose places are final; dev: the
 * device's index in the set. False: out of memory. */
bool cpu_barriers(const struct variant *s, const struct prog_tensor *t, int dev,
                  unsigned char *out);

#endif
