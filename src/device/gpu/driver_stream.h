/* What the files of the driver for CUDA and HIP share beside stream_api.h. */
#ifndef DEVICE_GPU_DRIVER_STREAM_H
#define DEVICE_GPU_DRIVER_STREAM_H

#include "device/gpu/stream_api.h"

/* ---- stream_list.c ---- */

pl_status stream_list(const struct stream_vendor *make, struct gpu_info *out,
                      int max, int *n, pl_err *err);
/* Of a device that may be taken; it must not be too old. */
pl_status stream_free_memory(const struct stream_vendor *make, int index,
                             uint64_t *bytes, pl_err *err);
/* Which of those that were listed reach which; what fails, does not. */
void stream_peers(const struct stream_vendor *make, struct gpu_info *gpu,
                  int n);

/* ---- stream_range.c ---- */

struct stream_range; /* memory of this process that is registered */

/* Registers the range for all GPUs of a make, or holds the one that it
 * lies in: it stays registered until the last holder drops it. The thread has a
 * context. `who` is for messages. */
pl_status stream_range_hold(struct stream_range **out,
                            const struct stream_api *api, void *p, size_t bytes,
                            const char *who, pl_err *err);
void stream_range_drop(struct stream_range *r, const struct stream_api *api);
/* False: it was registered already, by others and maybe in parts. */
bool stream_range_is_ours(const struct stream_range *r);

/* ---- cuda_source.c ---- */

/* The kernels' text for devices of a capability. */
struct cuda_text {
    char *ptx; /* owned: all kernels, terminated */
};

/* Is there text for devices of this capability? */
bool cuda_has_text(int level);
/* Unpacks it; there is. On failure nothing is held. */
pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err);
void cuda_text_fini(struct cuda_text *t); /* takes one that is all zero */
/* *out: a kernel as a program of its own, terminated; the caller frees it. */
pl_status cuda_text_program(const struct cuda_text *t, enum gpu_kernel k,
                            char **out, pl_err *err);

/* ---- hip_source.c ---- */

/* The kernels' text for a device of HIP, and its compiler. */
struct hip_text {
    void *handle; /* NULL: the compiler is a part of HIP's library */
    char who[24], arch[80];
    char version[64]; /* of the compiler and the driver */
    const char *told; /* what stands before the text */
#define MEMBER(name, parameters) unsigned(*name) parameters;
    HIPRTC_CALL_MAP(MEMBER)
#undef MEMBER
    const char *(*hiprtcGetErrorString)(unsigned code);
};

/* Opens the compiler; `hip` is HIP's library, `version` the driver's. On
 * failure nothing is held. */
pl_status hip_text_init(struct hip_text *t, void *hip, int version,
                        const struct stream_device *d, pl_err *err);
void hip_text_fini(struct hip_text *t); /* takes one that is all zero */
/* The code of a kernel, kept or made now, which the caller frees. */
pl_status hip_text_compile(const struct hip_text *t, enum gpu_kernel k,
                           void **out, pl_err *err);
/* Of the text, what stands before it, and how it is compiled. */
uint64_t hip_text_hash(const struct hip_text *t);
/* False: PLAIT_HIP_MATRIX says that kernels use no matrix units. */
bool hip_text_may_have_matrix(void);

#endif
