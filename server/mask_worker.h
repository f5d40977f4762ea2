/* Computes the grammar masks of samplers on a worker thread during an engine
 * step. A mask depends only on tokens sampled before the step and is needed
 * only after the step, so its computation is hidden by the step. */
#ifndef SERVER_MASK_WORKER_H
#define SERVER_MASK_WORKER_H

#include "pl.h"

#include <pthread.h>
#include <stdatomic.h>

struct ahead {
    pthread_t thread;
    bool started, failed; /* failed: the thread cannot be created */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool due, busy, stops; /* guarded by `lock` */
    pl_sampler **sampler;  /* owned, [n], capacity `most`; its elements are
                              borrowed */
    int n, most;
    atomic_int next; /* index of the first sampler that no thread has taken */
};

/* Initializes *a for at most `most` samplers per step. Returns false if out of
 * memory. */
bool ahead_init(struct ahead *a, int most);
void ahead_fini(struct ahead *a); /* called between steps; {0} is allowed */

/* Adds a sampler whose mask is needed after the step. The sampler must not be
 * used until ahead_end. */
void ahead_add(struct ahead *a, pl_sampler *s);
void ahead_begin(struct ahead *a);
/* Called after the step: computes the remaining masks on this thread and waits
 * for the worker. */
void ahead_end(struct ahead *a);

#endif
