/* Computes a hash of all bytes of a model's weights. Saved states contain the
 * hash, so that a state computed with other weights is rejected. */
#ifndef ENGINE_MODEL_SUM_H
#define ENGINE_MODEL_SUM_H

#include "gguf/gguf.h"

/* Size of a model in bytes below which its hash is not cached, because it is
 * quickly computed. */
enum { MODEL_SUM_LEAST = 256 << 20 };

/* Sets *out to a hash of the names, shapes, formats and data of all tensors.
 * The hash does not depend on the order of the tensors or their split over
 * files. Uses up to n_thread threads. The hash of a model of at least `least`
 * bytes is stored in the cache directory (base/cache_place.h), keyed by the
 * device, inode, size and times of the model's files, so that the model is read
 * only once. Returns CANCELLED if *cancel becomes nonzero, as in pl_options. */
pl_status model_sum(uint64_t *out, const struct gguf *g, int n_thread,
                    uint64_t least, const volatile int *cancel, pl_err *err);

#endif
