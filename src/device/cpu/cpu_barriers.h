/* Flags of each instruction that a cpu device needs to execute it: where the
 * device's threads synchronize, and which instructions only the first thread
 * executes. Derived from a program when it is loaded into the device. */
#ifndef DEVICE_CPU_CPU_BARRIERS_H
#define DEVICE_CPU_CPU_BARRIERS_H

#include "program/program.h"

/* Flags of one instruction of a program, which cpu_barriers() computes and the
 * threads of a device read. */
enum {
    /* The threads of the device synchronize before this instruction. One reason
     * is a conflict with an instruction after the previous barrier: that one
     * wrote memory that this one accesses, or read memory that this one writes.
     * The other reason is that this one is a POST, which tells other devices
     * that all earlier instructions are complete. */
    CPU_BARRIER = 1,
    /* In a step of a single token with at most one row of logits, this
     * instruction is too small to divide. The device's first thread executes it
     * alone, and the other threads skip it. */
    CPU_FIRST_THREAD = 2,
    /* In steps of a single token, the threads of the device synchronize before
     * this instruction. The flag CPU_BARRIER is then ignored. Fewer barriers
     * are needed in such steps, because instructions with CPU_FIRST_THREAD run
     * one after another on one thread. */
    CPU_BARRIER_DECODE = 4,
    /* This instruction is executed in every step, because it belongs to the
     * first micro-batch and has no predicate. */
    CPU_ALWAYS = 8,
    /* The instruction is included in the device's counters of operations and
     * bytes. */
    CPU_COUNTED = 16,
    /* The first thread measures how long the instruction takes, because the
     * report lists this time separately from computing. */
    CPU_TIMED = 32,
};

/* Computes the CPU_... flags of each instruction of variant s and writes them
 * to out[s->n_insn]. `t` are the program's tensors, whose offsets in memory
 * must be final. `dev` is the device's index in the device set. Returns false
 * if out of memory. */
bool cpu_barriers(const struct variant *s, const struct prog_tensor *t, int dev,
                  unsigned char *out);

#endif
