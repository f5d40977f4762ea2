/* Divides the work of a kernel among threads.
 *
 * Each thread has a part of similar size. Another process, an interrupt or the
 * memory traffic of other cores can slow a core down, and all threads would
 * wait for it. So in a long enough instruction a thread computes its part in
 * portions, then steals portions from the parts of a few other threads. An
 * item's bits do not depend on the thread or portion that computes it. */
#ifndef DEVICE_CPU_CPU_STEAL_H
#define DEVICE_CPU_CPU_STEAL_H

#include "device/cpu/cpu_kernel.h"

/* A range lo .. hi - 1 of a kernel's items. cpu_part() returns the range of n
 * items that belongs to thread ith (of nth). Ranges begin and end at multiples
 * of `grain`, except at n. */
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

/* State of one thread in a kernel call, for computing its part of the items,
 * and then items of other threads, in portions. */
struct cpu_steal {
    const struct cpu_call *call;
    /* n: number of items of the call; grain: portions begin at multiples of
     * it */
    int64_t n, grain;
    /* true if threads take portions of each other's parts in this call; false
     * if each computes just its own part */
    bool helps;
    /* the next portion is taken from the part of thread (ith + next) % nth */
    int next;
};

struct cpu_steal cpu_steal(const struct cpu_call *c, int64_t n, int64_t grain);
/* Finds the next range of items that this thread is to compute, writes it to
 * *portion and marks it as taken. Returns false if nothing is left for the
 * thread. */
bool cpu_steal_next(struct cpu_steal *d, struct cpu_part *portion);

#endif
