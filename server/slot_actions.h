/* POST /slots/{id}?action=save|restore|erase, as in llama-server.
 *
 * A slot's contents are what its last task left. Saving computes what is no
 * longer cached, as a task among the others, and writes tokens and state
 * (slot_file.h). Restoring makes them a cached prefix, so that a prompt that
 * begins with them is not computed again. Erasing only forgets the slot's
 * tokens: prompts may still begin with what is cached. Each request runs on a
 * thread of its own, so that no connection waits for it. */
#ifndef SERVER_SLOT_ACTIONS_H
#define SERVER_SLOT_ACTIONS_H

#include "http.h"
#include "tiers.h"

#include <pthread.h>

struct slots {
    const char *dir; /* borrowed; NULL: saving is disabled */
    struct tier_key root;
    pthread_mutex_t state_lock; /* held by the request that has a state in
                                  memory */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int n_busy; /* requests in progress */
    atomic_bool stops;
    bool made;
};

/* Initializes it. With a folder it reads the engine's properties now; the
 * engine is not used later. */
pl_status slots_init(struct slots *s, const char *dir, pl_engine *e,
                     pl_err *err);
/* Waits for requests in progress; called before loop_free. */
void slots_fini(struct slots *s);
/* An http_handler_fn; `user` is the service. */
void slots_act(void *user, struct http_request *r);

#endif
