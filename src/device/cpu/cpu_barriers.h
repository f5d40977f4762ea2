/* Flags of each instruction that a cpu device needs to execute it: where the
 * device's threads synchronize, and which instructions only the first thread
 * executes. Derived from a program when it is loaded into the device. */
#ifndef DEVICE_CPU_CPU_BARRIERS_H
#define DEVICE_CPU_CPU_BARRIERS_H

#include "program/program.h"

/* Flags of an instruction. */
enum {
    /* The threads synchronize before the instruction. Since the last barrier,
     * an earlier instruction wrote memory that this one reads, or accessed
     * memory that this one writes; or this one tells other devices that all
     * earlier instructions are complete. */
    CPU_BARRIER = 1,
    /* In a step of a single token and at most one output, the instruction is
     * too small to share. The first thread executes it; the others skip it. */
    CPU_FIRST_THREAD = 2,
    /* Replaces CPU_BARRIER in steps of a single token. Fewer barriers are
     * needed in these, because CPU_FIRST_THREAD instructions run one after
     * another on one thread. */
    CPU_BARRIER_DECODE = 4,
    /* The instruction is executed in every step, because it belongs to the
     * first micro-batch and has no predicate. */
    CPU_ALWAYS = 8,
    /* The device's counters include the instruction. */
    CPU_COUNTED = 16,
    /* The instruction's time is reported separately from computing. */
    CPU_TIMED = 32,
};

/* Writes the flags of the variant's instructions to out[s->n_insn]. `t` are the
 * program's tensors, whose offsets must be final; `dev` is the device's index
 * in the set. Returns false if out of memory. */
bool cpu_barriers(const struct variant *s, const struct prog_tensor *t, int dev,
                  unsigned char *out);

#endif
