/* The devices' clock and naps by it. It is a file of its own so that tests can
 * put another clock in its place wherever it is read. */
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

        if (left >
            2e-4) /* the system is late by some 50 us: the rest is spun */
            nanosleep(&t, NULL);
    }
}
