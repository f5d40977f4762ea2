/* Divides the work of a kernel among threads.
 *
 * Each thread has a part of similar size. Cores do not stay equally fast:
 * another process, an interrupt or a neighbour's memory traffic slows one down,
 * and all threads would wait for it. So in a long enough instruction a thread
 * takes its part portion by portion, then steals portions of a few other
 * threads' parts. Each item is computed alone, so the bits do not depend on the
 * thread that computes it. */
#ifndef DEVICE_CPU_CPU_STEAL_H
#define DEVICE_CPU_CPU_STEAL_H

#include "device/cpu/cpu_kernel.h"

/* Returns the part of n items that thread ith of nth takes, cut at multiples of
 * `grain`. */
struct cpu_part {
    int64_t lo, hi;
};
static inline struct cpu_part cpu_part(int64_t n, int64_t grain, int ith,
                                       int nth)
{
    int64_t g = (n + grain - 1) / grain;
    struct cpu_part p = {g * ith / nth * grain, g * (ith + 1) / nth * grain};

    if (p.hi > n)
        p.hi = n;
    if (p.lo > n)
        p.lo = n;
    return p;
}

/* The items that a thread of a call computes, a portion at a time. */
struct cpu_steal {
    const struct cpu_call *call;
    int64_t n, grain; /* items; portions are cut at multiples of `grain` */
    /* Other threads may take portions of this thread's part, and it of
     * theirs. */
    bool helps;
    /* Distance to the thread whose part the next portion is taken from. */
    int next;
};

struct cpu_steal cpu_steal(const struct cpu_call *c, int64_t n, int64_t grain);
/* Takes the next portion; returns false if nothing is left. */
bool cpu_steal_next(struct cpu_steal *d, struct cpu_part *portion);

#endif
