/* Sequences to and from state streams; pl.h's pl_state_* functions use
 * these. */
#ifndef STATE_STATE_IO_H
#define STATE_STATE_IO_H

#include "engine/engine.h"
#include "state/state.h"

/* Describes an engine and all its caches, for a state that only this engine can
 * restore. */
pl_status state_describe(struct state_head *h, struct arena *a, pl_engine *e,
                         pl_err *err);
/* Makes it a persistent state, valid for other engines. */
pl_status state_lasts(struct state_head *h, pl_engine *e, pl_err *err);
/* Checks that an engine described by `ours` can restore `theirs`. *convert:
 * only after converting formats, which is an error without `allowed`. */
pl_status state_match(const struct state_head *theirs,
                      const struct state_head *ours, bool allowed,
                      bool *convert, pl_err *err);
/* Reports differences that change bits. */
void state_note(const pl_engine *e, const struct state_head *theirs,
                const struct state_head *ours, bool converted);

/* The range to save. */
struct state_range {
    int seq;
    int64_t first, n;
    bool aside;       /* for this engine only */
    const void *note; /* stored with it, [note_bytes] */
    size_t note_bytes;
};

/* Implements pl_state_save. write == NULL only counts bytes. *bytes may be
 * NULL. */
pl_status state_save(pl_engine *e, const struct state_range *what,
                     pl_state_write_fn *write, void *user, uint64_t *bytes,
                     pl_err *err);

struct state_source {
    pl_state_read_fn *read;
    bool (*rewind)(void *user); /* NULL: cannot be read twice, and may have data
                                   after the state */
    void *user;
    void **note; /* receives the stored note, malloc'ed; NULL: skipped */
    size_t *note_bytes;
};
pl_status state_restore(pl_engine *e, int seq, const struct state_source *from,
                        unsigned flags, pl_err *err);

#endif
