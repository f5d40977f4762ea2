/* Saves sequences to streams and restores them. The public pl_state_* functions
 * (pl.h) use these. */
#ifndef STATE_STATE_IO_H
#define STATE_STATE_IO_H

#include "engine/engine.h"
#include "state/state.h"

/* Sets *h to the head of a state that only this engine can restore: it
 * describes the engine and all of its caches. `a` owns the list of caches. */
pl_status state_describe(struct state_head *h, struct arena *a, pl_engine *e,
                         pl_err *err);
/* Changes a head of state_describe to that of a persistent state, which other
 * engines with the same model can restore. Reads all weights once to identify
 * the model (engine_sum). */
pl_status state_lasts(struct state_head *h, pl_engine *e, pl_err *err);
/* Sets *out to the hash by which states and receipts identify a model: of its
 * hyper-parameters and all bytes of its weights. Reads all weights once
 * (engine_sum). */
pl_status state_model_hash(uint64_t *out, pl_engine *e, pl_err *err);
/* Checks that an engine with head `ours` can restore a state with head
 * `theirs`. Sets *convert to true if cache formats differ, so that rows must be
 * converted. That is an error unless `allowed`. */
pl_status state_match(const struct state_head *theirs,
                      const struct state_head *ours, bool allowed,
                      bool *convert, pl_err *err);
/* Logs warnings about differences between a restored state and the engine that
 * change results: converted formats, another number of ranks, or other
 * numerics. */
void state_note(const pl_engine *e, const struct state_head *theirs,
                const struct state_head *ours, bool converted);

/* The positions to save, n from position `first` of sequence `seq`. n -1 means
 * up to the end. seq -1 means all sequences. */
struct state_range {
    int seq;
    int64_t first, n;
    bool aside;       /* the state is for this engine only */
    const void *note; /* [note_bytes] data of the caller, stored with the
                         state */
    size_t note_bytes;
};

/* Saves the range `what` to `write`, as pl_state_save describes. Sets *bytes to
 * the size of the stream, unless `bytes` is NULL. If `write` is NULL, writes
 * nothing. */
pl_status state_save(pl_engine *e, const struct state_range *what,
                     pl_state_write_fn *write, void *user, uint64_t *bytes,
                     pl_err *err);

struct state_source {
    pl_state_read_fn *read;
    bool (*rewind)(void *user); /* NULL if the stream cannot be read twice;
                                   other data may then follow the state */
    void *user;
    void **note; /* set to a malloc'ed copy of the stored note; NULL to ignore
                    it */
    size_t *note_bytes;
};
pl_status state_restore(pl_engine *e, int seq, const struct state_source *from,
                        unsigned flags, pl_err *err);

#endif
