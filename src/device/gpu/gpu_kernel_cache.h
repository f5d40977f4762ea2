/* The kernel cache: compiled kernels, stored for later processes in
 * cache_path("gpu/"), one file per key:
 *
 *   "plaitgpu", u64 hash of the bytes, u64 n_key, u64 n, key [n_key], bytes [n]
 *
 * A key contains all that determines the compiler's output: the compiler's
 * options, the device, the driver version, the kernel source. A file is ignored
 * if it is incomplete, has another key or belongs to another user. No code
 * depends on the presence of a file. The bytes are not trusted: the driver
 * checks them. */
#ifndef DEVICE_GPU_GPU_KERNEL_CACHE_H
#define DEVICE_GPU_GPU_KERNEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "pl.h"

/* Returns true if the cache folder is usable. If not, compiling kernels only to
 * store them is useless. */
bool gpu_cache_is_there(void);
/* Returns the bytes stored under key[n_key] and sets *n to their number; the
 * caller frees them. Returns NULL if there are none. */
void *gpu_cache_load(const void *key, size_t n_key, size_t *n);
/* Stores bytes[n] under key[n_key]. An existing file is replaced atomically. */
pl_status gpu_cache_save(const void *key, size_t n_key, const void *bytes,
                         size_t n, pl_err *err);

#endif
