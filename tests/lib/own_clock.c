/* Replaces device_now and device_sleep by -Wl,--wrap; own_clock.h describes the
 * functions. */
#include "lib/own_clock.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

double __real_device_now(void);
void __real_device_sleep(double end, const atomic_bool *stop);
double __wrap_device_now(void);
void __wrap_device_sleep(double end, const atomic_bool *stop);

static atomic_bool owned;
/* largest time in nanoseconds that any thread has read */
static _Atomic int64_t latest_ns;

void own_clock(bool on)
{
    owned = on;
}

/* Returns the processor time of this process, but never less than an earlier
 * reading. Linux adds the time of a process's other threads only at their
 * ticks, so readings of two threads may differ by milliseconds. */
double __wrap_device_now(void)
{
    struct timespec t;
    int64_t before = latest_ns, ns;

    if (!owned)
        return __real_device_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    ns = t.tv_sec * 1000000000LL + t.tv_nsec;
    while (ns > before &&
           !atomic_compare_exchange_weak(&latest_ns, &before, ns))
        ;
    return 1e-9 * (double)(ns > before ? ns : before);
}

void __wrap_device_sleep(double end, const atomic_bool *stop)
{
    const struct timespec nap = {.tv_nsec = 20000};

    if (!owned)
        __real_device_sleep(end, stop);
    while (owned && __wrap_device_now() < end && !(stop && atomic_load(stop)))
        nanosleep(&nap, NULL);
}
