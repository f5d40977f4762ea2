/* A thread pool that repeatedly calls one function on all its threads at the
 * same time. Each such round is a run.
 *
 * Thread 0 is the caller's thread. The pool starts the others, pinned if
 * requested. Between runs a worker thread spins for a moment, then sleeps. The
 * pool has no barriers; flag_wait waits for another thread's counter. */
#ifndef DEVICE_TEAM_H
#define DEVICE_TEAM_H

#include "device/device_ops.h"

struct team; /* the pool; defined in team.c */

typedef void team_fn(void *user, int thread);

/* Creates a pool of n threads. core[n] is the logical core that each thread is
 * pinned to, or -1 for none; a failure to pin is ignored. Thread 0 is pinned
 * during runs only. n_busy is the number of threads in the whole process that
 * are busy at the same time; it decides how long threads spin. */
pl_status team_create(struct team **out, int n, const int *core, int n_busy,
                      pl_err *err);
/* Ends the threads and frees the pool. In a forked copy of the process it only
 * frees memory. */
void team_free(struct team *t);

/* Begins a run: starts fn(user, thread) on all threads but thread 0. */
void team_begin(struct team *t, team_fn *fn, void *user);
/* Ends a run begun with the same fn and user: calls fn(user, 0), then waits
 * until all other threads' calls have returned. */
void team_end(struct team *t, team_fn *fn, void *user);
/* Begins and ends a run. Must not be called from inside a run, nor by two
 * threads at once. */
void team_run(struct team *t, team_fn *fn, void *user);

/* Returns how often a thread should poll a flag before it yields the processor.
 * This is high if each thread has its own processor, low if some share one. */
int team_spins(const struct team *t);

/* State of team_yield(): until when threads sleep instead of yielding. Starts
 * as zero; several threads may use one. */
struct yielding {
    _Atomic int64_t sleep_until; /* by the monotonic clock, in ns */
};

/* Yields the processor between two polls. Returns false, without yielding, in
 * the 0.1 s after a yield that took 4 ms or more. So long a yield shows that
 * other processes want the processor. The scheduler lets all of them run before
 * a thread that yields, but not before one that wakes up. */
bool team_yield(struct yielding *y);
/* Yields, or sleeps for about 0.1 ms where team_yield returns false. */
void team_pause(struct yielding *y);

/* Waits until the flag has reached `target`. Returns false if *stop was set
 * first. Sleeps after n_spin polls. Yielding instead would be unfair, because
 * the scheduler may repeatedly run all other threads of that processor
 * first. */
bool flag_wait(struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);
/* Like flag_wait, but yields instead of sleeping. For flags whose writers do
 * not use device_flag_raise(). */
bool flag_spin(const struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop);

#endif
