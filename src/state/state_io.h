/* Saves sequences to streams and restores them. The public pl_state_* functions
 * (pl.h) use these. */
#ifndef STATE_STATE_IO_H
#define STATE_STATE_IO_H

#include "engine/engine.h"
#include "state/state.h"

/* Sets *h to a head that describes the engine and all of its caches. A state
 * with this head can be restored only by the same engine. `a` owns the list of
 * caches. */
pl_status state_describe(struct state_head *h, struct arena *a, pl_engine *e,
                         pl_err *err);
/* Changes a head of state_describe so that other engines with the same model
 * can restore the state. For that it identifies the model by a hash of all
 * weights, which are read once per engine (engine_sum). */
pl_status state_lasts(struct state_head *h, pl_engine *e, pl_err *err);
/* Sets *out to the hash by which states and receipts identify a model: of its
 * hyper-parameters and all bytes of its weights. The weights are read once per
 * engine (engine_sum). */
pl_status state_model_hash(uint64_t *out, pl_engine *e, pl_err *err);
/* Checks that the engine with head `ours` can restore a state with head
 * `theirs`. Sets *convert if their cache formats differ, so that rows must be
 * converted; that is an error unless `allowed`. */
pl_status state_match(const struct state_head *theirs,
                      const struct state_head *ours, bool allowed,
                      bool *convert, pl_err *err);
/* Logs a warning for each difference between a restored state and the engine
 * that changes later results: cache formats, number of ranks, numerics. */
void state_note(const pl_engine *e, const struct state_head *theirs,
                const struct state_head *ours, bool converted);

/* The positions to save: n of sequence `seq` from position `first` on. If n is
 * -1, all up to the end. If seq is -1, all sequences. */
struct state_range {
    int seq;
    int64_t first, n;
    bool aside; /* only this engine will restore the state */
    /* [note_bytes]: data that the caller wants to be stored in the state. */
    const void *note;
    size_t note_bytes;
};

/* Saves the positions `what` as a state and passes it to `write`; see
 * pl_state_save in pl.h. Sets *bytes to the size of the state, unless `bytes`
 * is NULL. If `write` is NULL, only computes the size. */
pl_status state_save(pl_engine *e, const struct state_range *what,
                     pl_state_write_fn *write, void *user, uint64_t *bytes,
                     pl_err *err);

struct state_source {
    pl_state_read_fn *read;
    /* Begins to read from the start again. NULL if that is impossible; the
     * stream may then continue after the state. */
    bool (*rewind)(void *user);
    void *user;
    /* Where to store a malloc'ed copy of the caller's data in the state. NULL
     * if the data is not wanted. */
    void **note;
    size_t *note_bytes;
};
pl_status state_restore(pl_engine *e, int seq, const struct state_source *from,
                        unsigned flags, pl_err *err);

#endif
