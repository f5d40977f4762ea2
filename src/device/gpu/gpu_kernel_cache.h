/* The kernel cache: compiled kernels, kept between processes in
 * cache_path("gpu/"), one file a key:
 *
 *   "plaitgpu", u64 hash of the bytes, u64 n_key, u64 n, key [n_key], bytes [n]
 *
 * A key holds all that decides the compiler's output: its options, the device,
 * the driver version, the kernel source. A file that is incomplete, has another
 * key or belongs to another user is ignored. No code depends on a file being
 * present. The driver checks the contents. */
#ifndef DEVICE_GPU_GPU_KERNEL_CACHE_H
#define DEVICE_GPU_GPU_KERNEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "pl.h"

/* Returns true if files can be kept here, so that making them is not wasted. */
bool gpu_cache_is_there(void);
/* Returns the *n bytes, which the caller frees, or NULL if there are none. */
void *gpu_cache_load(const void *key, size_t n_key, size_t *n);
/* Saves the bytes. Replaces an earlier file as a whole or not at all. */
pl_status gpu_cache_save(const void *key, size_t n_key, const void *bytes,
                         size_t n, pl_err *err);

#endif
