/* Where a weight lies: one entry for each device and each form that holds some
 * of it, and moves between the host's rows and such a place, slab by slab.
 *
 * A storage is counted in *pieces*, which follow each other in the device's
 * memory: packed panels of 16 rows, or, of plain tensors, rows (values, where
 * rows are cut). The host's side is counted in rows (values) of the whole
 * weight. Pieces and rows ascend together. */
#ifndef EXEC_STORAGE_H
#define EXEC_STORAGE_H

#include "exec/exec.h"

/* Bytes a slab has at most, unless a piece has more. */
enum { STORAGE_SLAB = 2 << 20 };

struct weight_store {
    int node, dev;
    const struct prog_tensor *t;
    int64_t n; /* pieces, > 0 */
    size_t piece_bytes;
    int64_t slab; /* pieces a slab has at most */

    size_t row_bytes;          /* of the host's rows or values */
    int64_t size, inner;       /* one index of the dimension `split` is about
                                  has so many rows; its indices */
    struct layout_local split; /* which of them are held */
    int64_t n_row;             /* rows held of each matrix; packed only */
};

/* All storages of weight `node`, or of all weights if it is -1; ascending node.
 * Of those to be read one form is enough. From the arena. */
pl_status storage_table(const pl_exec *x, int node, bool read, struct arena *a,
                        struct weight_store **out, int *n, pl_err *err);

/* The pieces that hold any of rows [lo, hi). */
void storage_pieces(const struct weight_store *s, int64_t lo, int64_t hi,
                    int64_t *first, int64_t *end);

/* Bytes of host memory that a move of n pieces needs beside the device's. */
size_t storage_staging(const pl_exec *x, const struct weight_store *s,
                       int64_t n);

/* Rows of the host's: those of [lo, hi) lie at `data`. */
struct storage_rows {
    int64_t lo, hi;
    unsigned char *data;
};

/* Asks for the pages of the rows that the pieces hold, all of which the host
 * has. Not where most of what lies between them is others'. */
void weight_store_prefetch(const struct weight_store *s, int64_t first,
                           int64_t n, const struct storage_rows *r);

/* Moves what pieces [first, first + n) have of the rows, at most a slab: to the
 * device if `put`, else to the rows. `staging` is 64-byte aligned and as large
 * as storage_staging says. Any number of threads may move different pieces. */
pl_status weight_store_copy(pl_exec *x, const struct weight_store *s,
                            int64_t first, int64_t n,
                            const struct storage_rows *r, bool put,
                            unsigned char *staging, pl_err *err);

#endif
