/* What drivers' compilers made of the kernels' text, kept from one process to
 * the next in cache_path("gpu/"), a file for each key:
 *
 *   "plaitgpu", u64 hash of the bytes, u64 n_key, u64 n, key [n_key], bytes [n]
 *
 * A key says all that decides what a compiler makes: its options, the device,
 * the driver's version, the text. A file that is not whole, of another key or
 * of another user counts for nothing, and nothing depends on there being one;
 * what is in it is for the driver to refuse or take. */
#ifndef DEVICE_GPU_GPU_KERNEL_CACHE_H
#define DEVICE_GPU_GPU_KERNEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "pl.h"

/* Files can be kept here; so what would be kept need not be made in vain. */
bool gpu_cache_is_there(void);
/* The bytes, *n of them, which the caller frees; NULL: there are none. */
void *gpu_cache_load(const void *key, size_t n_key, size_t *n);
/* Keeps them, in place of what was there as a whole or not at all. */
pl_status gpu_cache_save(const void *key, size_t n_key, const void *bytes,
                         size_t n, pl_err *err);

#endif
