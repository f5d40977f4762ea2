/* Threads that run one function together, again and again.
 *
 * Member 0 is the caller's thread; the others are ours, pinned where asked. A
 * worker between runs watches for the next one for a moment, then sleeps. What
 * members do with each other is theirs; cpu_wait is the way to wait for a
 * counter of a peer. */
#ifndef DEVICE_CPU_CPU_TEAM_H
#define DEVICE_CPU_CPU_TEAM_H

#include <stdatomic.h>

#include "pl.h"

/* A counter with one writer, alone on its cache lines (two, since processors
 * fetch them in pairs). It only grows: a reader waits for a value or more. */
struct cpu_flag {
    _Alignas(128) _Atomic uint64_t v;
};

struct cpu_team; /* opaque */

typedef void cpu_team_fn(void *user, int member);

/* core[n]: the system's number of each member's processor, -1 to leave it
 * alone; what cannot be pinned is left alone too. Member 0 is pinned during
 * runs only. */
pl_status cpu_team_create(struct cpu_team **out, int n, const int *core,
                          pl_err *err);
void cpu_team_free(struct cpu_team *t);

/* Calls fn(user, member) on all members and returns when all have. Not from
 * inside a run, nor from two threads at once. */
void cpu_team_run(struct cpu_team *t, cpu_team_fn *fn, void *user);

/* Looks at a flag cpu_team_spins() times before giving up the processor: many
 * where each member has its own, few where they share. */
int cpu_team_spins(const struct cpu_team *t);

/* True when the flag has reached `target`, false when *stop was set before. */
bool cpu_wait(const struct cpu_flag *f, uint64_t target, int n_spin,
              const atomic_bool *stop);

#endif
