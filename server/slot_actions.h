/* POST /slots/{id}?action=save|restore|erase, as llama-server has it.
 *
 * A slot is what the last job of a place left. Saving it computes what is no
 * longer kept of it, as a job beside the others, and writes tokens and state
 * (slot_file.h); restoring makes them a kept prefix, so that a prompt that
 * begins with them is not computed. Erasing forgets what the slot had, and
 * nothing else: prompts may still begin with what is kept. Each request works
 * on a thread of its own, so that no connection waits for it. */
#ifndef SERVER_SLOT_ACTIONS_H
#define SERVER_SLOT_ACTIONS_H

#include "http.h"
#include "tiers.h"

#include <pthread.h>

struct slots {
    const char *dir; /* borrowed; NULL: nothing is saved */
    struct tier_key root;
    pthread_mutex_t queue_pos; /* of who has a state in memory */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int n_busy; /* requests */
    atomic_bool stops;
    bool made;
};

/* With a folder the engine is asked now, and not later. */
pl_status slots_init(struct slots *s, const char *dir, pl_engine *e,
                     pl_err *err);
/* Waits for requests that are under way; before loop_free. */
void slots_fini(struct slots *s);
/* An http_handler_fn; `user` is the service. */
void slots_act(void *user, struct http_request *r);

#endif
