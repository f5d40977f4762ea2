/* The part of the CUDA driver API that is used here, in words of our own: the
 * library is opened when it is asked for, and no vendor's header is needed.
 * `make check-ptx` compares this with the vendor's.
 *
 * Source: CUDA Driver API reference, 12.0. */
#ifndef DEVICE_GPU_CUDA_API_H
#define DEVICE_GPU_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cuda_context;
struct cuda_module;
struct cuda_function;
struct cuda_stream;
struct cuda_event;
struct cuda_graph;
struct cuda_graph_exec; /* one that can be launched */
struct cuda_graph_node;

/* A launch that is to be a node of a graph. */
struct cuda_kernel_node {
    struct cuda_function *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameter, **extra;
};

enum {
    CUDA_SUCCESS_CODE = 0,
    CUDA_CODE_INVALID_VALUE = 1,
    CUDA_CODE_OUT_OF_MEMORY = 2,
    CUDA_CODE_NO_DEVICE = 100,
    CUDA_CODE_INVALID_PTX = 218,
    CUDA_CODE_NOT_FOUND = 500,
    CUDA_CODE_NOT_READY = 600,
    CUDA_CODE_ALREADY_REGISTERED = 712,
};

/* What cuDeviceGetAttribute tells. */
enum {
    CUDA_CLOCK_KHZ = 13,
    CUDA_N_MULTIPROCESSOR = 16,
    CUDA_MAPS_HOST_MEMORY = 19,
    CUDA_MEMORY_CLOCK_KHZ = 36,
    CUDA_MEMORY_BUS_BITS = 37,
    CUDA_CAPABILITY_MAJOR = 75,
    CUDA_CAPABILITY_MINOR = 76,
    CUDA_FLUSHES_REMOTE_WRITES = 98,
    CUDA_REGISTERS_HOST_MEMORY = 99,
    CUDA_STREAMS_KNOW_WORDS = 122, /* of 64 bits */
};

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_HOST_PORTABLE = 1, /* pinned for all contexts */
    CUDA_HOST_MAPPED = 2,
    CUDA_WRITE_FENCED = 0, /* a system-wide fence stands before the write */
    CUDA_WAIT_AT_LEAST = 0,
    CUDA_WAIT_FLUSH = 1 << 30, /* remote writes before the waited-for one can
                                  be seen by what follows */
    CUDA_JIT_ERROR_LOG = 5,
    CUDA_JIT_ERROR_LOG_BYTES = 6,
};

/* name, suffix of its symbol, parameters. All return a code, CUDA_SUCCESS_CODE
 * or an error, which may be one of an earlier command. */
#define CUDA_CALL_MAP(X)                                                       \
    X(cuInit, , (unsigned flags))                                              \
    X(cuDriverGetVersion, , (int *out))                                        \
    X(cuGetErrorName, , (unsigned code, const char **out))                     \
    X(cuGetErrorString, , (unsigned code, const char **out))                   \
    X(cuDeviceGetCount, , (int *n))                                            \
    X(cuDeviceGet, , (int *device, int ordinal))                               \
    X(cuDeviceGetName, , (char *out, int n, int device))                       \
    X(cuDeviceGetPCIBusId, , (char *out, int n, int device))                   \
    X(cuDeviceTotalMem, _v2, (size_t * bytes, int device))                     \
    X(cuDeviceGetAttribute, , (int *out, unsigned what, int device))           \
    X(cuDevicePrimaryCtxRetain, , (struct cuda_context * *out, int device))    \
    X(cuDevicePrimaryCtxRelease, _v2, (int device))                            \
    X(cuCtxPushCurrent, _v2, (struct cuda_context * c))                        \
    X(cuCtxPopCurrent, _v2, (struct cuda_context * *c))                        \
    X(cuMemGetInfo, _v2, (size_t * free_bytes, size_t * total))                \
    X(cuModuleLoadDataEx, ,                                                    \
      (struct cuda_module * *out, const void *image, unsigned n_option,        \
       unsigned *option, void **value))                                        \
    X(cuModuleUnload, , (struct cuda_module * m))                              \
    X(cuModuleGetFunction, ,                                                   \
      (struct cuda_function * *out, struct cuda_module * m, const char *name)) \
    X(cuStreamCreate, , (struct cuda_stream * *out, unsigned flags))           \
    X(cuStreamDestroy, _v2, (struct cuda_stream * s))                          \
    X(cuStreamSynchronize, , (struct cuda_stream * s))                         \
    X(cuStreamQuery, , (struct cuda_stream * s))                               \
    X(cuStreamWaitEvent, ,                                                     \
      (struct cuda_stream * s, struct cuda_event * e, unsigned flags))         \
    X(cuStreamWriteValue64, _v2,                                               \
      (struct cuda_stream * s, unsigned long long at, uint64_t value,          \
       unsigned flags))                                                        \
    X(cuStreamWaitValue64, _v2,                                                \
      (struct cuda_stream * s, unsigned long long at, uint64_t value,          \
       unsigned flags))                                                        \
    X(cuEventCreate, , (struct cuda_event * *out, unsigned flags))             \
    X(cuEventDestroy, _v2, (struct cuda_event * e))                            \
    X(cuEventQuery, , (struct cuda_event * e))                                 \
    X(cuEventRecord, , (struct cuda_event * e, struct cuda_stream * s))        \
    X(cuMemAlloc, _v2, (unsigned long long *out, size_t bytes))                \
    X(cuMemFree, _v2, (unsigned long long at))                                 \
    X(cuMemHostAlloc, , (void **out, size_t bytes, unsigned flags))            \
    X(cuMemFreeHost, , (void *p))                                              \
    X(cuMemHostRegister, _v2, (void *p, size_t bytes, unsigned flags))         \
    X(cuMemHostUnregister, , (void *p))                                        \
    X(cuMemHostGetDevicePointer, _v2,                                          \
      (unsigned long long *out, void *p, unsigned flags))                      \
    X(cuMemcpyHtoDAsync, _v2,                                                  \
      (unsigned long long dst, const void *src, size_t bytes,                  \
       struct cuda_stream *s))                                                 \
    X(cuMemcpyDtoHAsync, _v2,                                                  \
      (void *dst, unsigned long long src, size_t bytes,                        \
       struct cuda_stream *s))                                                 \
    X(cuMemcpyAsync, ,                                                         \
      (unsigned long long dst, unsigned long long src, size_t bytes,           \
       struct cuda_stream *s))                                                 \
    X(cuLaunchKernel, ,                                                        \
      (struct cuda_function * f, unsigned grid_x, unsigned grid_y,             \
       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,  \
       unsigned shared_bytes, struct cuda_stream *s, void **parameter,         \
       void **extra))                                                          \
    X(cuGraphCreate, , (struct cuda_graph * *out, unsigned flags))             \
    X(cuGraphDestroy, , (struct cuda_graph * g))                               \
    X(cuGraphAddKernelNode, ,                                                  \
      (struct cuda_graph_node * *out, struct cuda_graph * g,                   \
       struct cuda_graph_node *const *after, size_t n_after,                   \
       const struct cuda_kernel_node *node))                                   \
    X(cuGraphInstantiateWithFlags, ,                                           \
      (struct cuda_graph_exec * *out, struct cuda_graph * g,                   \
       unsigned long long flags))                                              \
    X(cuGraphLaunch, , (struct cuda_graph_exec * g, struct cuda_stream * s))   \
    X(cuGraphExecDestroy, , (struct cuda_graph_exec * g))

/* The library: its functions by name. */
struct cuda {
    void *handle;
#define CUDA_MEMBER(name, suffix, parameters) unsigned(*name) parameters;
    CUDA_CALL_MAP(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* Opens libcuda.so.1, or what PLAIT_LIBCUDA names, and makes it ready. On
 * failure nothing is held. PL_UNSUPPORTED: there is none that works. */
pl_status cuda_load(struct cuda *cu, int *n_device, pl_err *err);
void cuda_unload(struct cuda *cu); /* takes one that is all zero */

/* PL_OK if the code is that of success, else "WHAT: FUNCTION failed: NAME
 * (text)". */
pl_status cuda_check(const struct cuda *cu, unsigned code, const char *function,
                     const char *what, pl_err *err);

/* Ordinal to handle, and what runs on it: 61 is compute capability 6.1. */
pl_status cuda_device(const struct cuda *cu, int index, int *device, int *level,
                      pl_err *err);
pl_status cuda_attribute(const struct cuda *cu, int device, unsigned what,
                         int *value, pl_err *err);

#endif
