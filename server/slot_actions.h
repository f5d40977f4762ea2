/* POST /slots/{id}?action=save|restore|erase, as in llama-server.
 *
 * The contents of a slot are the tokens of its last task, and the state that
 * the engine computed for them. To save a slot, a task of the loop first
 * computes the part of the state that is no longer cached. Then the tokens and
 * the state are written to a file (slot_file.h). Restoring turns them into a
 * cached prefix, so that for a prompt that begins with these tokens, only the
 * rest is computed. Erasing only forgets the tokens of the slot; cached
 * prefixes stay. Each request runs on a thread of its own, so that no other
 * connection waits for it. */
#ifndef SERVER_SLOT_ACTIONS_H
#define SERVER_SLOT_ACTIONS_H

#include "http.h"
#include "tiers.h"

#include <pthread.h>

struct slots {
    /* Folder of the slot files; borrowed; NULL if slots cannot be saved. */
    const char *dir;
    struct tier_key root;
    /* Held while a slot is saved or restored, so that only one state at a time
     * is in host memory. */
    pthread_mutex_t state_lock;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int n_busy; /* number of requests whose action is in progress */
    atomic_bool stops;
    bool made;
};

/* Initializes *s. If `dir` is not NULL, computes the key that identifies the
 * engine `e` in slot files (tiers_root). The engine is not used after this
 * call. */
pl_status slots_init(struct slots *s, const char *dir, pl_engine *e,
                     pl_err *err);
/* Cancels the actions in progress, waits for them to end, and frees the
 * contents of *s. Called before loop_free. */
void slots_fini(struct slots *s);
/* Handles a request /slots/{id}?action=... An http_handler_fn; `user` is the
 * struct service. */
void slots_act(void *user, struct http_request *r);

#endif
