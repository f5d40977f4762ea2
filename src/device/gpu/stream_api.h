/* The driver APIs whose queues are called streams, CUDA's and HIP's, in words
 * of our own: a library is opened when it is asked for, and no vendor's header
 * is needed. HIP's functions mirror CUDA's, so that one driver
 * (driver_stream.c) works with one table of functions. What differs is a
 * *make*: vendor_cuda.c, vendor_hip.c.
 *
 * Source: CUDA Driver API reference, 12.0; HIP Runtime API reference, 5.2. */
#ifndef DEVICE_GPU_STREAM_API_H
#define DEVICE_GPU_STREAM_API_H

#include <stdbool.h>

#include "base/err.h"
#include "device/gpu/cuda_api.h"
#include "device/gpu/gpu_driver.h"
#include "device/gpu/hip_api.h"

struct api_module;
struct api_function;
struct api_stream;
struct api_event;
struct api_graph;
struct api_graph_exec; /* one that can be launched */

/* An address of a device. HIP has a pointer there, which is passed and returned
 * as a number of 64 bits is. */
#ifndef API_ADDRESS
#define API_ADDRESS unsigned long long
#endif

/* Equal in both. */
enum {
    API_SUCCESS = 0,
    API_OUT_OF_MEMORY = 2,
    API_NO_DEVICE = 100,
    API_NOT_FOUND = 500,
    API_NOT_READY = 600,
    API_ALREADY_REACHED = 704, /* a peer's memory */
    API_ALREADY_REGISTERED = 712,

    API_STREAM_NON_BLOCKING = 1,
    API_EVENT_NO_TIMING = 2,
    API_HOST_PORTABLE = 1, /* pinned for all contexts */
    API_HOST_MAPPED = 2,
};

/* name, CUDA's, the suffix of its symbol, HIP's, parameters. All return a code,
 * API_SUCCESS or an error, which may be one of an earlier command. */
#define STREAM_CALL_MAP(X)                                                     \
    X(init, cuInit, , hipInit, (unsigned flags))                               \
    X(version, cuDriverGetVersion, , hipDriverGetVersion, (int *out))          \
    X(device_count, cuDeviceGetCount, , hipGetDeviceCount, (int *n))           \
    X(device_get, cuDeviceGet, , hipDeviceGet, (int *device, int ordinal))     \
    X(device_name, cuDeviceGetName, , hipDeviceGetName,                        \
      (char *out, int n, int device))                                          \
    X(device_bus, cuDeviceGetPCIBusId, , hipDeviceGetPCIBusId,                 \
      (char *out, int n, int device))                                          \
    X(device_bytes, cuDeviceTotalMem, _v2, hipDeviceTotalMem,                  \
      (size_t * bytes, int device))                                            \
    X(device_attribute, cuDeviceGetAttribute, , hipDeviceGetAttribute,         \
      (int *out, unsigned what, int device))                                   \
    X(device_reaches, cuDeviceCanAccessPeer, , hipDeviceCanAccessPeer,         \
      (int *out, int device, int peer))                                        \
    X(memory_info, cuMemGetInfo, _v2, hipMemGetInfo,                           \
      (size_t * free_bytes, size_t * total))                                   \
    X(module_load, cuModuleLoadDataEx, , hipModuleLoadDataEx,                  \
      (struct api_module * *out, const void *image, unsigned n_option,         \
       unsigned *option, void **value))                                        \
    X(module_unload, cuModuleUnload, , hipModuleUnload,                        \
      (struct api_module * m))                                                 \
    X(module_function, cuModuleGetFunction, , hipModuleGetFunction,            \
      (struct api_function * *out, struct api_module * m, const char *name))   \
    X(stream_create, cuStreamCreate, , hipStreamCreateWithFlags,               \
      (struct api_stream * *out, unsigned flags))                              \
    X(stream_destroy, cuStreamDestroy, _v2, hipStreamDestroy,                  \
      (struct api_stream * s))                                                 \
    X(stream_synchronize, cuStreamSynchronize, , hipStreamSynchronize,         \
      (struct api_stream * s))                                                 \
    X(stream_query, cuStreamQuery, , hipStreamQuery, (struct api_stream * s))  \
    X(stream_wait_event, cuStreamWaitEvent, , hipStreamWaitEvent,              \
      (struct api_stream * s, struct api_event * e, unsigned flags))           \
    X(event_create, cuEventCreate, , hipEventCreateWithFlags,                  \
      (struct api_event * *out, unsigned flags))                               \
    X(event_destroy, cuEventDestroy, _v2, hipEventDestroy,                     \
      (struct api_event * e))                                                  \
    X(event_query, cuEventQuery, , hipEventQuery, (struct api_event * e))      \
    X(event_record, cuEventRecord, , hipEventRecord,                           \
      (struct api_event * e, struct api_stream * s))                           \
    X(alloc, cuMemAlloc, _v2, hipMalloc, (API_ADDRESS * out, size_t bytes))    \
    X(release, cuMemFree, _v2, hipFree, (API_ADDRESS at))                      \
    X(host_alloc, cuMemHostAlloc, , hipHostMalloc,                             \
      (void **out, size_t bytes, unsigned flags))                              \
    X(host_release, cuMemFreeHost, , hipHostFree, (void *p))                   \
    X(host_register, cuMemHostRegister, _v2, hipHostRegister,                  \
      (void *p, size_t bytes, unsigned flags))                                 \
    X(host_unregister, cuMemHostUnregister, , hipHostUnregister, (void *p))    \
    X(host_address, cuMemHostGetDevicePointer, _v2, hipHostGetDevicePointer,   \
      (API_ADDRESS * out, void *p, unsigned flags))                            \
    X(launch, cuLaunchKernel, , hipModuleLaunchKernel,                         \
      (struct api_function * f, unsigned grid_x, unsigned grid_y,              \
       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,  \
       unsigned shared_bytes, struct api_stream *s, void **parameter,          \
       void **extra))                                                          \
    X(graph_instantiate, cuGraphInstantiateWithFlags, ,                        \
      hipGraphInstantiateWithFlags,                                            \
      (struct api_graph_exec * *out, struct api_graph * g,                     \
       unsigned long long flags))                                              \
    X(graph_destroy, cuGraphDestroy, , hipGraphDestroy,                        \
      (struct api_graph * g))                                                  \
    X(graph_launch, cuGraphLaunch, , hipGraphLaunch,                           \
      (struct api_graph_exec * g, struct api_stream * s))                      \
    X(graph_exec_destroy, cuGraphExecDestroy, , hipGraphExecDestroy,           \
      (struct api_graph_exec * g))

enum stream_call {
#define ROW(name, ...) CALL_##name,
    STREAM_CALL_MAP(ROW) CUDA_CALL_MAP(ROW) HIP_CALL_MAP(ROW)
        CUDA_LATER_CALL_MAP(ROW)
#undef ROW
            STREAM_CALL_COUNT
};

struct stream_vendor;
struct stream_device;

/* The library: its functions by name; those of the other make are NULL. */
struct stream_api {
    void *handle;
    const struct stream_vendor *make;
#define MEMBER(name, cuda, suffix, hip, parameters) unsigned(*name) parameters;
    STREAM_CALL_MAP(MEMBER)
#undef MEMBER
#define MEMBER(name, suffix, parameters) unsigned(*name) parameters;
    CUDA_CALL_MAP(MEMBER)
    CUDA_LATER_CALL_MAP(MEMBER)
#undef MEMBER
#define MEMBER(name, parameters) unsigned(*name) parameters;
    HIP_CALL_MAP(MEMBER)
#undef MEMBER
    const char *(*hipGetErrorName)(unsigned code);
    const char *(*hipGetErrorString)(unsigned code);
};

/* Opens the make's library, and makes it ready. On failure nothing is held.
 * PL_UNSUPPORTED: there is none that works. */
pl_status stream_load(struct stream_api *api, const struct stream_vendor *make,
                      int *n_device, pl_err *err);
void stream_unload(struct stream_api *api); /* takes one that is all zero */

/* PL_OK if the code is that of success, else "WHAT: FUNCTION failed: NAME
 * (code, text)". */
pl_status stream_check(const struct stream_api *api, unsigned code,
                       enum stream_call call, const char *what, pl_err *err);

/* The same of a call for a kernel, which is named. */
pl_status stream_check_kernel(const struct stream_api *api,
                              const struct stream_device *d, unsigned code,
                              enum stream_call call, enum gpu_kernel k,
                              pl_err *err);

/* Opens the library that the environment's variable names, else the first of
 * these that is there. NULL: none. *tried is the last that was tried. */
void *stream_open_library(const char *variable, const char *const path[],
                          const char **tried);

/* ---- devices ------------------------------------------------------------- */

struct stream_device {
    char who[24]; /* for messages: "cuda:0" */
    int handle;
    int level;                    /* of CUDA: 61 is compute capability 6.1 */
    unsigned wait_flags;          /* of CUDA's waits for words */
    bool overlaps;                /* launches of graphs may, of CUDA */
    struct cuda_context *context; /* of CUDA: held; NULL: not yet */
    char arch[80];                /* of HIP: "gfx90a:sramecc+:xnack-" */
};

/* By its ordinal; not held yet. */
pl_status stream_device(const struct stream_api *api, int index,
                        struct stream_device *d, pl_err *err);

enum stream_attribute {
    ATTRIBUTE_CLOCK_KHZ,
    ATTRIBUTE_MEMORY_CLOCK_KHZ,
    ATTRIBUTE_MEMORY_BUS_BITS,
    ATTRIBUTE_N_MULTIPROCESSOR,
    ATTRIBUTE_MAPS_HOST_MEMORY,
    ATTRIBUTE_REGISTERS_HOST_MEMORY,
    ATTRIBUTE_STREAMS_KNOW_WORDS,
    STREAM_ATTRIBUTE_COUNT
};
/* A make that has no such attribute has what it tells of. */
enum { NO_ATTRIBUTE = -1 };

pl_status stream_attribute(const struct stream_api *api,
                           const struct stream_device *d,
                           enum stream_attribute what, int *value, pl_err *err);

/* ---- makes --------------------------------------------------------------- */

/* Kernels ready to be loaded by a device, or the way to them. */
struct stream_text;

enum stream_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ANY };

/* Launches that shall be a graph: their functions by kernel are there. */
struct stream_launches {
    const struct gpu_graph_node *node;
    int n;
    struct api_function *const *function; /* [GPU_KERNEL_COUNT] */
};

struct stream_vendor {
    const char *name, *title;   /* "cuda", "CUDA" */
    const char *variable;       /* of the environment: names the library */
    const char *const *path;    /* else these are tried; NULL ends them */
    const char *remedy, *least; /* "install NVIDIA's driver", "... 520" */
    /* By call; NULL: it has none. Older drivers may lack those from `later`
     * on. */
    const char *const *symbol, *const *call;
    int later;
    int attribute[STREAM_ATTRIBUTE_COUNT]; /* or NO_ATTRIBUTE */
    /* How a post makes what stands before it seen by all: by an event of these
     * flags; 0: it does so itself. */
    unsigned fence;
    bool logs; /* module_load tells what a compiler said, if asked to */

    /* NULL: unknown. */
    const char *(*error_name)(const struct stream_api *api, unsigned code);
    const char *(*error_text)(const struct stream_api *api, unsigned code);
    /* Does init's code say that there is no device? Then what follows of it:
     * PL_OK, or an error. */
    bool (*is_none)(unsigned code);
    pl_status (*none)(const struct stream_api *api, unsigned code, pl_err *err);

    /* What runs on the device, whose handle is known. */
    pl_status (*examine)(const struct stream_api *api, struct stream_device *d,
                         pl_err *err);
    /* Why the kernels cannot run on it; false: they can. */
    bool (*refuses)(const struct stream_device *d, char *why, size_t size);
    /* Version, features and speeds; n_unit and hz are known. */
    void (*show)(const struct stream_api *api, const struct stream_device *d,
                 double hz, struct gpu_info *i);
    /* What its memory transfers a clock. */
    int (*transfers)(const struct stream_api *api,
                     const struct stream_device *d, int bus_bits);

    /* The device is held from hold() to drop(), and the thread's from enter()
     * to leave(); *was is what leave() goes back to. */
    pl_status (*hold)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*drop)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*enter)(const struct stream_api *api,
                       const struct stream_device *d, int *was, pl_err *err);
    pl_status (*leave)(const struct stream_api *api,
                       const struct stream_device *d, int was, pl_err *err);
    /* The device, which is the thread's, reaches memory of `peer`, another one
     * that is held, from now on; it can. */
    pl_status (*reach)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_device *peer, pl_err *err);

    pl_status (*text_open)(struct stream_text **out,
                           const struct stream_api *api,
                           const struct stream_device *d, pl_err *err);
    void (*text_close)(struct stream_text *t); /* takes NULL */
    /* What module_load takes; threads may call it at the same time. *owned is
     * for the caller to free, or NULL. */
    pl_status (*text_program)(struct stream_text *t, enum gpu_kernel k,
                              const void **image, void **owned, pl_err *err);
    /* Of all that the kernels' bits depend on beside the device and the
     * version. */
    uint64_t (*text_hash)(const struct stream_text *t);

    /* What goes into a stream, as struct gpu_driver has it. */
    pl_status (*copy)(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      enum stream_direction way, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err);
    pl_status (*post)(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err);
    pl_status (*wait)(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err);
    /* *out may be there after a failure, too; the caller destroys it. Nothing
     * is put into s, which the make may need. */
    pl_status (*graph)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_launches *l, struct api_stream *s,
                       struct api_graph **out, pl_err *err);
};

extern const struct stream_vendor make_cuda, make_hip;

#endif
