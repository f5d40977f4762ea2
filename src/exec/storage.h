/* Where weights are stored: one entry for each device and each packing that
 * holds some of a weight. Copies slabs between the host's rows and such a
 * store.
 *
 * A store consists of *pieces*, which are adjacent in the device's memory. They
 * are packed panels of 16 rows, or, in plain tensors, rows (values, if rows are
 * split). The host's side is counted in rows (values) of the whole weight.
 * Pieces and rows ascend together. */
#ifndef EXEC_STORAGE_H
#define EXEC_STORAGE_H

#include "exec/exec.h"

/* The most bytes of a slab, unless one piece has more. */
enum { STORAGE_SLAB = 2 << 20 };

struct weight_store {
    int node, dev;
    const struct prog_tensor *t;
    int64_t n; /* pieces, > 0 */
    size_t piece_bytes;
    int64_t slab; /* the most pieces of a slab */

    size_t row_bytes; /* of the host's rows or values */
    /* indices of the split dimension; inner: rows (values) in one of them */
    int64_t size, inner;
    struct layout_local split; /* the indices that are held */
    int64_t n_row;             /* rows held of each matrix; packed only */
};

/* Lists the stores of weight `node`, or of all weights if it is -1, by
 * ascending node. To read, one packing of each is listed. Allocated from the
 * arena. */
pl_status storage_table(const pl_exec *x, int node, bool read, struct arena *a,
                        struct weight_store **out, int *n, pl_err *err);

/* Returns the pieces that hold any of rows [lo, hi). */
void storage_pieces(const struct weight_store *s, int64_t lo, int64_t hi,
                    int64_t *first, int64_t *end);

/* Returns the bytes of host memory that a copy of n pieces needs besides the
 * device's. */
size_t storage_staging(const pl_exec *x, const struct weight_store *s,
                       int64_t n);

/* Rows of the host: [lo, hi) are at `data`. */
struct storage_rows {
    int64_t lo, hi;
    unsigned char *data;
};

/* Prefetches the host's pages with the rows of the pieces; the host must have
 * all of these rows. Does nothing if most of the bytes in between belong to
 * other devices. */
void weight_store_prefetch(const struct weight_store *s, int64_t first,
                           int64_t n, const struct storage_rows *r);

/* Copies the rows that pieces [first, first + n) hold, at most a slab: to the
 * device if `put`, else to the host. `staging` is 64-byte aligned and as large
 * as storage_staging returns. Any number of threads may copy different
 * pieces. */
pl_status weight_store_copy(pl_exec *x, const struct weight_store *s,
                            int64_t first, int64_t n,
                            const struct storage_rows *r, bool put,
                            unsigned char *staging, pl_err *err);

#endif
