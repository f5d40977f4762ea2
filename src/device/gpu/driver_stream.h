/* Declarations shared by the files of the driver for CUDA and HIP. The API
 * itself is declared in stream_api.h. */
#ifndef DEVICE_GPU_DRIVER_STREAM_H
#define DEVICE_GPU_DRIVER_STREAM_H

#include "device/gpu/stream_api.h"

/* ---- stream_list.c ---- */

pl_status stream_list(const struct stream_vendor *vendor, struct gpu_info *out,
                      int max, int *n, pl_err *err);
/* Sets *bytes to the free memory of device `index`. Creates a context on it for
 * a moment, so the device must be usable. */
pl_status stream_free_memory(const struct stream_vendor *vendor, int index,
                             uint64_t *bytes, pl_err *err);
/* Sets the bits `peers` of gpu[n], which stream_list() has listed. If the query
 * for a pair of devices fails, the bit stays 0. */
void stream_peers(const struct stream_vendor *vendor, struct gpu_info *gpu,
                  int n);

/* ---- stream_range.c ---- */

struct stream_range; /* a range of host memory registered with a driver */

/* Registers the host memory p[bytes] for all GPUs of a vendor, or references a
 * registered range that contains it. A range stays registered until its last
 * reference is dropped. The calling thread must have a current context. `who`
 * names the device in messages. */
pl_status stream_range_hold(struct stream_range **out,
                            const struct stream_api *api, void *p, size_t bytes,
                            const char *who, pl_err *err);
void stream_range_drop(struct stream_range *r, const struct stream_api *api);
/* Returns false if code outside this library had already registered the memory
 * or a part of it. */
bool stream_range_is_ours(const struct stream_range *r);

/* ---- cuda_source.c ---- */

/* The PTX of all kernels, decompressed, for devices of one compute
 * capability. */
struct cuda_text {
    char *ptx; /* the decompressed PTX, NUL-terminated; owned */
};

/* Returns true if there is PTX for devices of compute capability `level` (61 is
 * 6.1). */
bool cuda_has_text(int level);
/* Decompresses the PTX for compute capability `level`; cuda_has_text() must be
 * true. On failure nothing is allocated. */
pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err);
/* Frees the PTX. `t` may be zeroed. */
void cuda_text_fini(struct cuda_text *t);
/* Sets *out to a PTX program that contains only kernel k, terminated; the
 * caller frees it. */
pl_status cuda_text_program(const struct cuda_text *t, enum gpu_kernel k,
                            char **out, pl_err *err);

/* ---- hip_source.c ---- */

/* The compiler of kernels for one HIP device, and what it adds to the kernel
 * source. */
struct hip_text {
    void *handle; /* library of the compiler; NULL if it is part of HIP's
                     library */
    char who[24], arch[80];
    char version[64]; /* versions of the compiler and the driver */
    /* #define lines that are put before the kernel source; static */
    const char *told;
#define MEMBER(name, parameters) unsigned(*name) parameters;
    HIPRTC_CALL_MAP(MEMBER)
#undef MEMBER
    const char *(*hiprtcGetErrorString)(unsigned code);
};

/* Opens the compiler for device `d`. `hip` is the handle of HIP's library,
 * `version` the driver's version. On failure nothing is allocated. */
pl_status hip_text_init(struct hip_text *t, void *hip, int version,
                        const struct stream_device *d, pl_err *err);
/* Closes the compiler. `t` may be zeroed. */
void hip_text_fini(struct hip_text *t);
/* Sets *out to the machine code of kernel k, from the kernel cache or compiled
 * now. The caller frees it. */
pl_status hip_text_compile(const struct hip_text *t, enum gpu_kernel k,
                           void **out, pl_err *err);
/* Returns a hash of the kernel source, the lines put before it and the compiler
 * options. */
uint64_t hip_text_hash(const struct hip_text *t);
/* Returns false if the environment variable PLAIT_HIP_MATRIX turns matrix units
 * off, or is neither 0 nor 1. */
bool hip_text_may_have_matrix(void);

#endif
