/* The monotonic clock; see clock.h. */
#include "clock.h"

#include <time.h>

double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t a;

    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

void clock_wait(pthread_cond_t *c, pthread_mutex_t *lock, double at)
{
    struct timespec t = {.tv_sec = (time_t)at};

    t.tv_nsec = (long)((at - (double)t.tv_sec) * 1e9);
    pthread_cond_timedwait(c, lock, &t);
}
