/* Threads that run one function together, again and again.
 *
 * Thread 0 is the caller's thread; the others are ours, pinned where asked. A
 * worker between runs watches for the next one for a moment, then sleeps. What
 * threads do with each other is theirs; flag_wait is the way to wait for a
 * counter of a peer. */
#ifndef DEVICE_TEAM_H
#define DEVICE_TEAM_H

#include "device/device_ops.h"

struct team; /* opaque */

typedef void team_fn(void *user, int thread);

/* core[n]: the system's number of each thread's processor, -1 to leave it
 * alone; what cannot be pinned is left alone too. Thread 0 is pinned during
 * runs only. n_busy: threads that want to work at once, others' too. */
pl_status team_create(struct team **out, int n, const int *core, int n_busy,
                      pl_err *err);
/* In a forked copy of the process too, where it frees memory alone. */
void team_free(struct team *t);

/* Begins a call of fn(user, thread) on all threads but the first. */
void team_begin(struct team *t, team_fn *fn, void *user);
/* Makes the first thread's call and returns when all have returned. */
void team_end(struct team *t, team_fn *fn, void *user);
/* Both. Not from inside a run, nor from two threads at once. */
void team_run(struct team *t, team_fn *fn, void *user);

/* Looks at a flag team_spins() times before giving up the processor: many
 * where each thread has its own, few where they share. */
int team_spins(const struct team *t);

/* True when the flag has reached `target`, false when *stop was set before.
 * After n_spin looks it sleeps: who only gave up the processor would come last
 * among all that wants to run there, again and again. */
bool flag_wait(struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);
/* The same for a flag whose writer rings nobody: it never sleeps. */
bool flag_spin(const struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);

#endif
