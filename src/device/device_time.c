/* The clock of devices, and sleeping until a time. It is a separate file
 * because tests link another clock instead. */
#include <time.h>

#include "device/device_ops.h"

double device_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void device_sleep(double end, const atomic_bool *stop)
{
    double left;

    while ((left = end - device_now()) > 0 && !(stop && atomic_load(stop))) {
        double nap = left < 0.1 ? left - 1e-4 : 0.1;
        struct timespec t = {0, (long)(nap * 1e9)};

        /* Sleeps for most of the time, then spins, because the system wakes
         * threads about 50 us late. */
        if (left > 2e-4)
            nanosleep(&t, NULL);
    }
}
