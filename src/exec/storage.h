/* Copies weights between the host and devices. A *store* is the memory of one
 * device that holds a part of a weight, packed or plain. Data is copied in
 * slabs, which are ranges of a store of at most STORAGE_SLAB bytes.
 *
 * A store is an array of *pieces*. In a packed store a piece is a panel of 16
 * rows. In a plain store a piece is one row, or one value if rows are split.
 * Data of the host is counted in rows (or values) of the whole weight.
 * Ascending pieces contain ascending rows. */
#ifndef EXEC_STORAGE_H
#define EXEC_STORAGE_H

#include "exec/exec.h"

/* Maximum size of a slab in bytes. A larger piece is a slab of its own. */
enum { STORAGE_SLAB = 2 << 20 };

struct weight_store {
    int node, dev;
    const struct prog_tensor *t;
    int64_t n; /* number of pieces (panels or single rows) in the store, at
                  least 1 */
    size_t piece_bytes;
    int64_t slab; /* maximum number of pieces in a slab */

    size_t row_bytes; /* size in bytes of a row on the host, or of a value if
                         rows are split */
    /* `size` is the number of indices of the split dimension; `inner` is the
     * number of rows for each of these indices (of values if rows are split) */
    int64_t size, inner;
    struct layout_local split; /* the indices of the split dimension that this
                                  store holds */
    /* For packed stores: number of rows that this store holds of each matrix,
     * of which an expert weight has several. */
    int64_t n_row;
};

/* Sets *out to an array with the *n stores of weight `node`, or of all weights
 * if `node` is -1, in order of weights. A weight may have several stores with
 * the same rows: on several devices, packed and plain, or in several layouts.
 * If `read`, lists only those stores that together hold each row of the weight
 * once. The array is allocated from `a`. */
pl_status storage_table(const pl_exec *x, int node, bool read, struct arena *a,
                        struct weight_store **out, int *n, pl_err *err);

/* Sets [*first, *end) to the pieces that hold any of the weight's rows [lo,
 * hi). */
void storage_pieces(const struct weight_store *s, int64_t lo, int64_t hi,
                    int64_t *first, int64_t *end);

/* Returns the size in bytes of the staging buffer that a copy of n pieces
 * needs. It is 0 if the host can access the device's memory. */
size_t storage_staging(const pl_exec *x, const struct weight_store *s,
                       int64_t n);

/* Rows [lo, hi) of a weight, in host memory at `data`. */
struct storage_rows {
    int64_t lo, hi;
    unsigned char *data;
};

/* Prefetches the host's memory pages that contain the rows of pieces [first,
 * first + n). `r` must contain all of these rows. Does nothing if more than
 * half of the bytes between the first and the last row belong to other
 * stores. */
void weight_store_prefetch(const struct weight_store *s, int64_t first,
                           int64_t n, const struct storage_rows *r);

/* Copies the rows of `r` that pieces [first, first + n) hold, at most one slab:
 * to the device if `put`, else to the host. `staging` is a 64-byte aligned
 * buffer of the size that storage_staging returns. Threads may copy different
 * pieces at once. */
pl_status weight_store_copy(pl_exec *x, const struct weight_store *s,
                            int64_t first, int64_t n,
                            const struct storage_rows *r, bool put,
                            unsigned char *staging, pl_err *err);

#endif
