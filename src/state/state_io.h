/* Sequences to and from streams of state; pl.h's pl_state_* are forms of these
 * two. */
#ifndef STATE_STATE_IO_H
#define STATE_STATE_IO_H

#include "engine/engine.h"
#include "state/state.h"

/* What an engine says of itself in a state that it alone takes, and all its
 * caches. */
pl_status state_describe(struct state_head *h, struct arena *a, pl_engine *e,
                         pl_err *err);
/* The same in a state that lasts. */
pl_status state_lasts(struct state_head *h, pl_engine *e, pl_err *err);
/* Is a state of `theirs` one for this engine? *convert: only through
 * conversion; without `allowed` that is an error. */
pl_status state_match(const struct state_head *theirs,
                      const struct state_head *ours, bool allowed,
                      bool *convert, pl_err *err);
/* Tells of what changes bits. */
void state_note(const pl_engine *e, const struct state_head *theirs,
                const struct state_head *ours, bool converted);

/* What is to be saved. */
struct state_range {
    int seq;
    int64_t first, n;
    bool aside;       /* for this engine alone */
    const void *note; /* goes with it, [note_bytes] */
    size_t note_bytes;
};

/* As pl_state_save; write == NULL counts bytes only. *bytes may be NULL. */
pl_status state_save(pl_engine *e, const struct state_range *what,
                     pl_state_write_fn *write, void *user, uint64_t *bytes,
                     pl_err *err);

struct state_source {
    pl_state_read_fn *read;
    bool (*rewind)(void *user); /* NULL: cannot be read twice, and may have
                                   more behind the state */
    void *user;
    void **note; /* takes what went with it, malloc'ed; NULL: nobody asks */
    size_t *note_bytes;
};
pl_status state_restore(pl_engine *e, int seq, const struct state_source *from,
                        unsigned flags, pl_err *err);

#endif
