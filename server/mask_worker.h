/* Work that is done beside a step: which tokens the grammars of those who write
 * allow next. It is known before the step what they have written, and needed
 * only behind it, so that it takes no time of the loop's. */
#ifndef SERVER_MASK_WORKER_H
#define SERVER_MASK_WORKER_H

#include "pl.h"

#include <pthread.h>
#include <stdatomic.h>

struct ahead {
    pthread_t thread;
    bool started, failed; /* failed: there is no thread */
    pthread_mutex_t lock;
    pthread_cond_t come, done;
    bool due, busy, stops; /* guarded */
    pl_sampler **sampler;  /* owned, [n] of [most]; borrowed ones */
    int n, most;
    atomic_int next; /* the first that nobody has taken */
};

/* Of up to `most` samplers a step. False: no memory. */
bool ahead_init(struct ahead *a, int most);
void ahead_fini(struct ahead *a); /* between steps; takes a zeroed one */

/* Before a step, for each: nobody else uses the sampler up to ahead_end. */
void ahead_add(struct ahead *a, pl_sampler *s);
void ahead_begin(struct ahead *a);
/* Behind it: what is left is done here and now, and nothing is under way any
 * more. */
void ahead_end(struct ahead *a);

#endif
