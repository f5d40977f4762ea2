/* A thread pool that runs one function on all threads together, repeatedly.
 *
 * Thread 0 is the caller's thread. The others are the pool's, pinned if
 * requested. A worker between runs spins for a moment, then sleeps. Threads
 * synchronize among themselves as they like; flag_wait waits for a peer's
 * counter. */
#ifndef DEVICE_TEAM_H
#define DEVICE_TEAM_H

#include "device/device_ops.h"

struct team; /* opaque */

typedef void team_fn(void *user, int thread);

/* core[n]: the system's number of each thread's processor, -1: not pinned; a
 * failed pinning is ignored. Thread 0 is pinned during runs only. n_busy:
 * threads that want to run at once, of other pools too. */
pl_status team_create(struct team **out, int n, const int *core, int n_busy,
                      pl_err *err);
/* Also allowed in a forked copy of the process, where it only frees memory. */
void team_free(struct team *t);

/* Starts fn(user, thread) on all threads but the first. */
void team_begin(struct team *t, team_fn *fn, void *user);
/* Makes the first thread's call; returns when all calls have returned. */
void team_end(struct team *t, team_fn *fn, void *user);
/* Begins and ends. Not from inside a run, nor from two threads at once. */
void team_run(struct team *t, team_fn *fn, void *user);

/* Returns how often to poll a flag before yielding the processor: many times if
 * each thread has a processor, few if they share. */
int team_spins(const struct team *t);

/* Returns true when the flag has reached `target`, false when *stop was set
 * before. Sleeps after n_spin polls. Only yielding would be unfair: the
 * scheduler may run all other threads of that processor first, again and
 * again. */
bool flag_wait(struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);
/* The same for a flag whose writer wakes no sleepers: it never sleeps. */
bool flag_spin(const struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);

#endif
