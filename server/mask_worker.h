/* Computes the grammar masks of samplers on a worker thread during an engine
 * step. A sampler's mask depends only on tokens sampled before the step and is
 * needed only after the step. So computing it takes no extra time. */
#ifndef SERVER_MASK_WORKER_H
#define SERVER_MASK_WORKER_H

#include "pl.h"

#include <pthread.h>
#include <stdatomic.h>

struct ahead {
    pthread_t thread;
    /* started: the worker thread exists. failed: it cannot be created. */
    bool started, failed;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    /* due: the worker has masks to compute and has not begun. busy: it is
     * computing. stops: it must end. All guarded by `lock`. */
    bool due, busy, stops;
    /* Samplers whose masks are computed during this step, [n]; owned, with
     * capacity `most`; the elements are borrowed. */
    pl_sampler **sampler;
    int n, most;
    /* Index of the first sampler that neither thread has taken. */
    atomic_int next;
};

/* Initializes *a for at most `most` samplers in a step. Returns false if out of
 * memory. */
bool ahead_init(struct ahead *a, int most);
/* Ends the worker thread and frees the contents of *a. Called between steps;
 * {0} is allowed. */
void ahead_fini(struct ahead *a);

/* Adds a sampler whose mask is computed during the next step. The caller must
 * not use the sampler until ahead_end. */
void ahead_add(struct ahead *a, pl_sampler *s);
void ahead_begin(struct ahead *a);
/* Called after the step: computes the masks that are left on the calling
 * thread, and waits for the worker thread. */
void ahead_end(struct ahead *a);

#endif
