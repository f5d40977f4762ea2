/* What the files of the CUDA driver share beside cuda_api.h. */
#ifndef DEVICE_GPU_DRIVER_CUDA_H
#define DEVICE_GPU_DRIVER_CUDA_H

#include "device/gpu/gpu_driver.h"

pl_status cuda_list(struct gpu_info *out, int max, int *n, pl_err *err);
/* Of a device that may be taken; it must not be too old. */
pl_status cuda_free_memory(int index, uint64_t *bytes, pl_err *err);

/* ---- cuda_range.c ---- */

struct cuda;       /* cuda_api.h */
struct cuda_range; /* memory of this process that is registered with CUDA */

/* Registers the range for all GPUs of the process, or holds the one that it
 * lies in: it stays registered until the last holder drops it. The thread has a
 * context. `who` is for messages. */
pl_status cuda_range_hold(struct cuda_range **out, const struct cuda *cu,
                          void *p, size_t bytes, const char *who, pl_err *err);
void cuda_range_drop(struct cuda_range *r, const struct cuda *cu);

/* ---- cuda_text.c ---- */

/* The kernels' text for devices of a capability, a program a kernel. */
struct cuda_text {
    char *held[2]; /* owned: gpu_ptx unpacked, a level each */
    const char *program[GPU_KERNEL_COUNT];
};

/* Is there text for devices of this capability? */
bool cuda_has_text(int level);
/* Unpacks it; on failure nothing is held. */
pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err);
void cuda_text_fini(struct cuda_text *t); /* takes one that is all zero */

#endif
