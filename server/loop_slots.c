/* Remembers the tokens of the last task of each slot, so that a client can save
 * and restore the contents of a slot. Between tasks a slot has no sequence; the
 * state that its last task computed remains as a cached prefix (pl_seq_share).
 * See loop.h. */
#include "loop_inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the tokens that are remembered for a slot, and takes ownership of
 * `token`. Caller holds the lock. */
static void set_slot_tokens(struct loop *l, int slot, int32_t *token, int64_t n)
{
    free(l->last[slot].token);
    l->last[slot] = (struct last){token, n};
}

void loop_leave_slot(struct loop *l, struct task *w)
{
    struct loop_slot *slot = &l->slot[w->seq];

    pthread_mutex_lock(&l->lock);
    if (slot->id_task == w->id) {
        slot->n_done = w->n_done;
        slot->n_written = w->n_written;
    }
    slot->id_task = 0;
    if (w->n_done > 0 && !w->params.keep) {
        set_slot_tokens(l, w->seq, w->text, w->n_done);
        w->text = NULL;
    }
    pthread_mutex_unlock(&l->lock);
}

static bool copy(const int32_t *token, int64_t n, int32_t **out)
{
    *out = malloc(((size_t)n + 1) * sizeof(**out));
    if (*out && n > 0)
        memcpy(*out, token, (size_t)n * sizeof(**out));
    return *out != NULL;
}

bool loop_slot_tokens(struct loop *l, int slot, int32_t **token, int64_t *n)
{
    bool ok;

    pthread_mutex_lock(&l->lock);
    *n = l->last[slot].n;
    ok = copy(l->last[slot].token, *n, token);
    pthread_mutex_unlock(&l->lock);
    return ok;
}

int64_t loop_slot_erase(struct loop *l, int slot)
{
    int64_t n;

    pthread_mutex_lock(&l->lock);
    n = l->last[slot].n;
    set_slot_tokens(l, slot, NULL, 0);
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- restoring the contents of a slot ------------------------------------ */

struct restore {
    struct loop *l;
    const int32_t *token;
    int64_t n;
    const void *state;
    size_t bytes;
};

/* Restores a saved state into a free sequence, and then empties the sequence,
 * so that the state becomes a cached prefix. A callback of
 * loop_run_between_steps; `user` is a struct restore. */
static pl_status restore(void *user, pl_engine *e, pl_err *err)
{
    const struct restore *r = user;
    int seq = 0;
    pl_status s;

    while (seq < r->l->o.n_seq && r->l->taken[seq])
        seq++;
    if (seq == r->l->o.n_seq)
        return server_fail(err, PL_FULL,
                           "all %d slots are busy; try again later", seq);
    s = pl_state_restore_memory(e, seq, r->state, r->bytes, 0, err);
    if (s == PL_OK)
        s = pl_seq_set_tokens(e, seq, r->token, r->n, err);
    pl_seq_trim(e, seq, 0, NULL, NULL);
    return s;
}

pl_status loop_slot_restore(struct loop *l, int slot, const int32_t *token,
                            int64_t n, const void *state, size_t bytes,
                            pl_err *err)
{
    struct restore r = {l, token, n, state, bytes};
    int32_t *own;
    pl_status s;

    if (!copy(token, n, &own))
        return server_fail(err, PL_NO_MEMORY,
                           "out of memory for a slot's tokens");
    s = loop_run_between_steps(l, restore, &r, err);
    if (s != PL_OK) {
        free(own);
        return s;
    }
    pthread_mutex_lock(&l->lock);
    set_slot_tokens(l, slot, own, n);
    pthread_mutex_unlock(&l->lock);
    return PL_OK;
}
