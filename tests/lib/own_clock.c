/* The other end of -Wl,--wrap for device_now and device_sleep. */
#include "lib/own_clock.h"

#include <stdatomic.h>
#include <time.h>

double __real_device_now(void);
void __real_device_sleep(double end, const atomic_bool *stop);
double __wrap_device_now(void);
void __wrap_device_sleep(double end, const atomic_bool *stop);

static atomic_bool owned;

void own_clock(bool on)
{
    owned = on;
}

double __wrap_device_now(void)
{
    struct timespec t;

    if (!owned)
        return __real_device_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void __wrap_device_sleep(double end, const atomic_bool *stop)
{
    const struct timespec nap = {.tv_nsec = 20000};

    if (!owned)
        __real_device_sleep(end, stop);
    while (owned && __wrap_device_now() < end && !(stop && atomic_load(stop)))
        nanosleep(&nap, NULL);
}
