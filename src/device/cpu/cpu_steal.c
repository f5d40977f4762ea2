/* Implementation of cpu_steal.h. Each thread owns a part of the kernel's items.
 * A thread takes a quarter of the items that are left of a part at a time,
 * called a portion, so that there are few portions and the last ones are small.
 * A thread that has finished its own part takes portions from the part of the
 * thread after it, then of the threads 2, 4, 8, ... after it. So each of many
 * threads reads only a few counters, and yet the items of a slow thread spread
 * over all threads.
 *
 * Counters need no memory ordering. The inputs of a portion were written before
 * the last barrier, and its results are read after the next barrier. */
#include "device/cpu/cpu_steal.h"

/* If a thread would have fewer than this number of items, counted in multiples
 * of `grain`, threads do not steal. */
enum { LEAST_ITEMS = 4 };

struct cpu_steal cpu_steal(const struct cpu_call *c, int64_t n, int64_t grain)
{
    return (struct cpu_steal){
        .call = c,
        .n = n,
        .grain = grain,
        .helps = c->taken && n >= LEAST_ITEMS * grain * c->nth,
    };
}

/* Takes a portion (some items) from what is left of the part of thread
 * `thread`, and writes its range to *portion. Returns false if nothing is left
 * of that part. */
static bool take(const struct cpu_steal *d, int thread,
                 struct cpu_part *portion)
{
    struct cpu_part part = cpu_part(d->n, d->grain, thread, d->call->nth);
    _Atomic int64_t *taken = &d->call->taken[thread].n;
    int64_t at = atomic_load_explicit(taken, memory_order_relaxed), some;

    do {
        int64_t left = part.hi - part.lo - at;

        if (left <= 0)
            return false;
        some = (left / 4 + d->grain - 1) / d->grain * d->grain;
        some = some < d->grain ? d->grain : some;
        some = some < left ? some : left;
    } while (!atomic_compare_exchange_weak_explicit(
        taken, &at, at + some, memory_order_relaxed, memory_order_relaxed));
    *portion = (struct cpu_part){part.lo + at, part.lo + at + some};
    return true;
}

bool cpu_steal_next(struct cpu_steal *d, struct cpu_part *portion)
{
    int ith = d->call->ith, nth = d->call->nth;

    if (!d->helps) {
        *portion = cpu_part(d->n, d->grain, ith, nth);
        return d->next++ == 0 && portion->lo < portion->hi;
    }
    for (; d->next < nth; d->next = d->next ? 2 * d->next : 1)
        if (take(d, (ith + d->next) % nth, portion))
            return true;
    return false;
}
