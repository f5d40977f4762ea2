/* Facts of each instruction that a cpu device needs before it runs it: where
 * its threads synchronize, and which instructions the first thread executes
 * alone. Derived from a program when it is loaded into the device. */
#ifndef DEVICE_CPU_CPU_BARRIERS_H
#define DEVICE_CPU_CPU_BARRIERS_H

#include "program/program.h"

/* Flags of an instruction. */
enum {
    /* The threads synchronize before the instruction. It reads what an earlier
     * one wrote, or writes what an earlier one accessed, since the last
     * barrier; or it tells other devices that all earlier work is complete. */
    CPU_BARRIER = 1,
    /* In a step of a single token and at most one output, the instruction is
     * too small to share. The first thread executes it; the others skip it. */
    CPU_FIRST_THREAD = 2,
    /* Replaces CPU_BARRIER in such steps, because instructions of the first
     * thread alone are ordered among themselves. */
    CPU_BARRIER_DECODE = 4,
    /* It is executed in every step: its micro-batch is the first and it has no
     * predicate. */
    CPU_ALWAYS = 8,
    /* The device's counters include it. */
    CPU_COUNTED = 16,
    /* Its time is reported apart from computing. */
    CPU_TIMED = 32,
};

/* Fills out[s->n_insn]. t: the program's tensors, whose offsets are final; dev:
 * the device's index in the set. Returns false if out of memory. */
bool cpu_barriers(const struct variant *s, const struct prog_tensor *t, int dev,
                  unsigned char *out);

#endif
