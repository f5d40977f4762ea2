/* Converts the rows of a tensor to another format, many at a time on threads.
 *
 * gguf_writer_save asks for one row after the other. Rows are read and
 * converted in batches of bounded size, so that memory does not grow with the
 * model. Rows are independent of each other, and sums over rows are added in
 * their order, so that results do not depend on the number of threads. */
#ifndef QUANTIZE_QUANTIZE_ROWS_H
#define QUANTIZE_QUANTIZE_ROWS_H

#include "gguf/gguf.h"

struct rows; /* opaque: threads, buffers and the first failure */

struct rows_job {
    struct rows *rows; /* borrowed */
    const struct gguf *g;
    const struct gguf_tensor *t;
    pl_format to;
    bool copy; /* the bytes of the tensor as they are */
    /* [importances] a row for each matrix of the tensor, or NULL */
    const float *importance;
    bool errors, no_search;
    /* Sums over the rows so far: squares of errors and of values, then both
     * with each square multiplied by the importance of its column. */
    double sum[4];
    /* Called after the last row. */
    pl_status (*done)(struct rows_job *job, pl_err *err);
    void *user;
};

/* The progress function and the flag are those of pl_quantize_options, `total`
 * is the number of values of all tensors. */
pl_status rows_create(struct rows **out, int n_threads,
                      pl_progress_fn *progress, void *user,
                      const volatile int *cancel, uint64_t total, pl_err *err);
void rows_free(struct rows *r);

/* A gguf_fill_fn, whose user is a struct rows_job. Rows are asked for in order,
 * each once. Returns false after a failure, which rows_status returns. */
bool rows_fill(void *job, int64_t row, void *dst, size_t bytes);
pl_status rows_status(const struct rows *r, pl_err *err);

#endif
