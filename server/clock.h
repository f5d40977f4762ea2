/* The monotonic clock, by which the server measures times and waits. The
 * real-time clock may be set meanwhile. */
#ifndef SERVER_CLOCK_H
#define SERVER_CLOCK_H

#include <pthread.h>

double clock_now(void); /* Returns the time in seconds. */
/* Initializes a condition for clock_wait. */
void clock_cond_init(pthread_cond_t *c);
/* Waits until the condition is signalled, but at most until the time `at`.
 * Caller holds the lock. */
void clock_wait(pthread_cond_t *c, pthread_mutex_t *lock, double at);

#endif
