/* A hash of all bytes of the weights in a model's files. It keeps results of
 * other weights from being mistaken for this model's. */
#ifndef ENGINE_MODEL_SUM_H
#define ENGINE_MODEL_SUM_H

#include "gguf/gguf.h"

/* Sums of smaller files are not cached. */
enum { MODEL_SUM_LEAST = 256 << 20 };

/* Sums the names, shapes, formats and data of all tensors, in any order and
 * split over files, by up to n_thread threads. A model of `least` bytes or more
 * is read once. Its sum is then cached in the cache directory
 * (base/cache_place.h), keyed by the device, inode, size and times of its
 * files. CANCELLED: see pl_options. */
pl_status model_sum(uint64_t *out, const struct gguf *g, int n_thread,
                    uint64_t least, const volatile int *cancel, pl_err *err);

#endif
