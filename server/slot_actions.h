/* POST /slots/{id}?action=save|restore|erase, as in llama-server.
 *
 * The contents of a slot are the tokens of its last task and their state.
 * Saving first computes the part of the state that is no longer cached, as a
 * task among others. Then it writes the tokens and the state to a file
 * (slot_file.h). Restoring makes them a cached prefix, so that a prompt that
 * begins with these tokens is not computed again. Erasing only forgets the
 * tokens of the slot; cached prefixes stay. Each request runs on a thread of
 * its own, so that no other connection waits for it. */
#ifndef SERVER_SLOT_ACTIONS_H
#define SERVER_SLOT_ACTIONS_H

#include "http.h"
#include "tiers.h"

#include <pthread.h>

struct slots {
    const char *dir; /* folder of the files; borrowed; NULL if saving is
                        disabled */
    struct tier_key root;
    pthread_mutex_t state_lock; /* held during a save or restore, so that only
                                   one state at a time is in host memory */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int n_busy; /* number of requests in progress */
    atomic_bool stops;
    bool made;
};

/* Initializes *s. If `dir` is not NULL, computes the key that identifies the
 * engine in slot files (tiers_root). The engine is not used later. */
pl_status slots_init(struct slots *s, const char *dir, pl_engine *e,
                     pl_err *err);
/* Cancels and awaits actions in progress, then frees the contents of *s. Called
 * before loop_free. */
void slots_fini(struct slots *s);
/* Handles a request. An http_handler_fn; `user` is the struct service. */
void slots_act(void *user, struct http_request *r);

#endif
