/* Reads files of importances ("importance matrix", imatrix), which
 * llama-imatrix writes: for each matrix, the mean square of each of its input
 * activations over a text.
 *
 * Two forms are read, told apart by the first bytes. All numbers are little
 * endian.
 *
 *   GGUF     tensors NAME.in_sum2, F32 [n_expert, n_in], sums of squares, and
 *            NAME.counts, F32 [n_expert, 1], the number of summands; keys
 *            imatrix.datasets, imatrix.chunk_count
 *   binary   i32 n; n times { i32 len; NAME[len]; i32 n_call; i32 n_value;
 *            f32 value[n_value] }; then maybe i32 n_chunk, i32 len, the name
 *            of the dataset. The values are mean squares times n_call.
 *
 * The reader trusts nothing: lengths are checked against the file's size, and
 * values must be finite and not negative. */
#ifndef QUANTIZE_IMATRIX_H
#define QUANTIZE_IMATRIX_H

#include "pl.h"

struct imatrix_entry {
    const char *name; /* name of the matrix */
    int64_t n;        /* number of values: n_expert * n_in */
    /* [n] mean squares; 1 for experts that the text did not use */
    float *value;
};

struct imatrix; /* opaque: the contents of a file */

/* Reads a file, or its contents from memory. `name` stands for the path in
 * errors. */
pl_status imatrix_open(struct imatrix **out, const char *path, pl_err *err);
pl_status imatrix_read(struct imatrix **out, const void *data, size_t size,
                       const char *name, pl_err *err);
void imatrix_free(struct imatrix *m);

int64_t imatrix_count(const struct imatrix *m);
const struct imatrix_entry *imatrix_at(const struct imatrix *m, int64_t i);
/* Returns the entry of a matrix; NULL if there is none. */
const struct imatrix_entry *imatrix_find(const struct imatrix *m,
                                         const char *name);
/* The name of the first dataset, NULL if the file has none, and the number of
 * chunks of text, 0 if it is unknown. */
const char *imatrix_dataset(const struct imatrix *m);
int64_t imatrix_chunks(const struct imatrix *m);

#endif
