/* Creates the drafter of --spec-type with its lookup files. */
#ifndef CLI_DRAFTS_H
#define CLI_DRAFTS_H

#include "options.h"

/* Sets *out to a drafter for n_seq texts of `m`, or to NULL if --spec-type
 * names no source. A file of --lookup-cache-dynamic need not exist. */
pl_status drafts_create(pl_drafter **out, const struct options *o,
                        const pl_model *m, int n_seq, pl_err *err);
/* Returns the greatest number of rows of logits that a text has in a step. */
int64_t drafts_rows(const struct options *o);
/* Forgets all texts of a drafter and writes the file of --lookup-cache-dynamic,
 * if given. Returns `c`, or on failure the exit code of the error. */
enum exit_code drafts_save(pl_drafter *d, const struct options *o, int n_seq,
                           enum exit_code c);

#endif
