/* How the work of a kernel is dealt to threads.
 *
 * Each thread has a part, of like size. Cores are not alike for long: another
 * process, an interrupt or a neighbour's memory traffic slows one down, and all
 * would wait for it. So where a step is long enough, a thread takes its part
 * portion by portion, and when that is done it helps a few others with theirs.
 * An item is computed alone, so who does it shows in no bit. */
#ifndef DEVICE_CPU_CPU_STEAL_H
#define DEVICE_CPU_CPU_STEAL_H

#include "device/cpu/cpu_kernel.h"

/* The part of n items that thread ith of nth takes, cut at multiples of
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
    bool helps;       /* others may take of this thread's part, it of theirs */
    int next;         /* how many threads further the next portion is sought */
};

struct cpu_steal cpu_steal(const struct cpu_call *c, int64_t n, int64_t grain);
/* The next portion; false: nothing is left. */
bool cpu_steal_next(struct cpu_steal *d, struct cpu_part *portion);

#endif
