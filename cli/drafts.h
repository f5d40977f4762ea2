/* Creates the drafter of --spec-type with its lookup files and its draft
 * model. */
#ifndef CLI_DRAFTS_H
#define CLI_DRAFTS_H

#include "options.h"

/* A drafter and what it borrows, all owned but the engine of drafts_attach;
 * NULL if there is none. */
struct draft_sources {
    pl_drafter *drafter;
    pl_model *model; /* the draft model */
    pl_engine *engine;
    int mtp_texts; /* texts for which the model's own block drafts, or 0 */
};

/* Creates the drafter for n_seq texts of `m`, if --spec-type names a source or
 * there is a draft model. Loads the draft model before the engine of `m` is
 * created, so that it gets its memory. A file of --lookup-cache-dynamic need
 * not exist. `log` gets warnings of the draft model's engine. The caller calls
 * drafts_close in all cases, before the engine of `m` is freed. */
pl_status drafts_open(struct draft_sources *d, const struct options *o,
                      const pl_model *m, int n_seq, pl_log_fn *log,
                      const volatile int *cancel, pl_err *err);
void drafts_close(struct draft_sources *d);
/* Returns the number of texts for which the block of `m` drafts: n_seq, or 0 if
 * it has none or the options do not ask for it. */
int drafts_mtp_texts(const struct options *o, const pl_model *m, int n_seq);
/* Sets the options of the model's engine that drafts of its own block need. */
void drafts_connect(struct draft_sources *d, pl_options *pl);
/* Lets the drafter use the block of `e`, the engine of `m`, if it has one. */
pl_status drafts_attach(struct draft_sources *d, const pl_model *m,
                        pl_engine *e, pl_err *err);
/* Returns the set of sources that the options name. */
uint32_t drafts_enabled(const struct options *o);
/* Returns the greatest number of rows of logits that a text has in a step. */
int64_t drafts_rows(const struct options *o);
/* Forgets all texts of a drafter and writes the file of --lookup-cache-dynamic,
 * if given. Returns `c`, or on failure the exit code of the error. */
enum exit_code drafts_save(pl_drafter *d, const struct options *o, int n_seq,
                           enum exit_code c);

#endif
