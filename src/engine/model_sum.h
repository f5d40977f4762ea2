/* One number for the weights in a model's files, all of their bytes: what was
 * computed with other weights is never taken for what these compute. */
#ifndef ENGINE_MODEL_SUM_H
#define ENGINE_MODEL_SUM_H

#include "gguf/gguf.h"

/* Sums of smaller files are not kept. */
enum { MODEL_SUM_LEAST = 256 << 20 };

/* The sum of names, shapes, formats and data of all tensors, in whatever order
 * and split they stand in files; by up to n_thread threads. A model of `least`
 * bytes or more is read once: the sum is kept where files are kept that can be
 * made again (base/cache_place.h), under the device, the number, the size and
 * the times of its files. CANCELLED: see pl_options. */
pl_status model_sum(uint64_t *out, const struct gguf *g, int n_thread,
                    uint64_t least, const volatile int *cancel, pl_err *err);

#endif
