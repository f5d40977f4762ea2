/* Computes grammar masks on a worker thread during a step. A mask depends on
 * tokens sampled before the step and is needed only after it, so the work is
 * hidden. */
#ifndef SERVER_MASK_WORKER_H
#define SERVER_MASK_WORKER_H

#include "pl.h"

#include <pthread.h>
#include <stdatomic.h>

struct ahead {
    pthread_t thread;
    bool started, failed; /* failed: the thread could not be created */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool due, busy, stops; /* guarded */
    pl_sampler **sampler;  /* owned, [n] of [most]; its elements are borrowed */
    int n, most;
    atomic_int next; /* the first one not taken by a thread */
};

/* Prepares for at most `most` samplers a step. Returns false if out of
 * memory. */
bool ahead_init(struct ahead *a, int most);
void ahead_fini(struct ahead *a); /* between steps; takes a zeroed one */

/* Called before a step for each sampler; the sampler must not be used until
 * ahead_end. */
void ahead_add(struct ahead *a, pl_sampler *s);
void ahead_begin(struct ahead *a);
/* Called after the step: computes what is left on this thread and waits for the
 * worker. */
void ahead_end(struct ahead *a);

#endif
