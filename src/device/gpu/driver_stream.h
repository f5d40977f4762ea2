/* Declarations shared by the files of the driver for CUDA and HIP, besides
 * stream_api.h. */
#ifndef DEVICE_GPU_DRIVER_STREAM_H
#define DEVICE_GPU_DRIVER_STREAM_H

#include "device/gpu/stream_api.h"

/* ---- stream_list.c ---- */

pl_status stream_list(const struct stream_vendor *vendor, struct gpu_info *out,
                      int max, int *n, pl_err *err);
/* Returns the free memory of a usable device, which must not be too old. */
pl_status stream_free_memory(const struct stream_vendor *vendor, int index,
                             uint64_t *bytes, pl_err *err);
/* Finds the peer access between the listed devices. A query that fails counts
 * as no access. */
void stream_peers(const struct stream_vendor *vendor, struct gpu_info *gpu,
                  int n);

/* ---- stream_range.c ---- */

struct stream_range; /* registered memory of this process */

/* Registers the range for all GPUs of a vendor, or takes a reference to the
 * registered range that contains it. A range stays registered until its last
 * reference is dropped. The thread has a current context. `who` is for
 * messages. */
pl_status stream_range_hold(struct stream_range **out,
                            const struct stream_api *api, void *p, size_t bytes,
                            const char *who, pl_err *err);
void stream_range_drop(struct stream_range *r, const struct stream_api *api);
/* Returns false if others registered the range before, maybe in parts. */
bool stream_range_is_ours(const struct stream_range *r);

/* ---- cuda_source.c ---- */

/* The kernels' PTX for devices of one compute capability. */
struct cuda_text {
    char *ptx; /* owned: all kernels, terminated */
};

/* Returns true if there is PTX for devices of this capability. */
bool cuda_has_text(int level);
/* Unpacks the PTX, which must exist. On failure nothing is allocated. */
pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err);
void cuda_text_fini(struct cuda_text *t); /* takes a zeroed one */
/* Sets *out to one kernel as a program of its own, terminated; the caller frees
 * it. */
pl_status cuda_text_program(const struct cuda_text *t, enum gpu_kernel k,
                            char **out, pl_err *err);

/* ---- hip_source.c ---- */

/* The kernel source for a device of HIP, and its compiler. */
struct hip_text {
    void *handle; /* NULL: the compiler is part of HIP's library */
    char who[24], arch[80];
    char version[64]; /* of the compiler and the driver */
    const char *told; /* the lines before the source */
#define MEMBER(name, parameters) unsigned(*name) parameters;
    HIPRTC_CALL_MAP(MEMBER)
#undef MEMBER
    const char *(*hiprtcGetErrorString)(unsigned code);
};

/* Opens the compiler; `hip` is HIP's library, `version` the driver's. On
 * failure nothing is allocated. */
pl_status hip_text_init(struct hip_text *t, void *hip, int version,
                        const struct stream_device *d, pl_err *err);
void hip_text_fini(struct hip_text *t); /* takes a zeroed one */
/* Loads a kernel's code from the cache or compiles it. The caller frees it. */
pl_status hip_text_compile(const struct hip_text *t, enum gpu_kernel k,
                           void **out, pl_err *err);
/* Returns the hash of the source, the lines before it, and the compiler
 * options. */
uint64_t hip_text_hash(const struct hip_text *t);
/* Returns false if PLAIT_HIP_MATRIX turns matrix units off. */
bool hip_text_may_have_matrix(void);

#endif
