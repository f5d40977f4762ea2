/* The driver APIs whose queues are called streams, CUDA's and HIP's, declared
 * here under our own names. A library is opened on demand, and no vendor's
 * header is needed. HIP's functions mirror CUDA's, so one driver
 * (driver_stream.c) works with one table of functions. Their differences are in
 * struct stream_vendor: vendor_cuda.c, vendor_hip.c.
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
struct api_graph_exec; /* an instantiated graph */

/* An address on a device. HIP uses a pointer, which is passed and returned like
 * a 64-bit number. */
#ifndef API_ADDRESS
#define API_ADDRESS unsigned long long
#endif

/* Equal in both APIs. */
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

/* name, CUDA's, the suffix of its symbol, HIP's, parameters. All return
 * API_SUCCESS or an error code, which may be that of an earlier command. */
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

/* The library's functions by name; those of the other vendor are NULL. */
struct stream_api {
    void *handle;
    const struct stream_vendor *vendor;
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

/* Opens and initializes the vendor's library. On failure nothing is allocated.
 * Returns PL_UNSUPPORTED if none works. */
pl_status stream_load(struct stream_api *api,
                      const struct stream_vendor *vendor, int *n_device,
                      pl_err *err);
void stream_unload(struct stream_api *api); /* takes a zeroed one */

/* Returns PL_OK for API_SUCCESS, else the error "WHAT: FUNCTION failed: NAME
 * (code, text)". */
pl_status stream_check(const struct stream_api *api, unsigned code,
                       enum stream_call call, const char *what, pl_err *err);

/* The same for a call about a kernel, which the message names. */
pl_status stream_check_kernel(const struct stream_api *api,
                              const struct stream_device *d, unsigned code,
                              enum stream_call call, enum gpu_kernel k,
                              pl_err *err);

/* Opens the library that the environment variable names, else the first one of
 * `path` that opens. Returns NULL if none does. *tried is the last one tried.
 */
void *stream_open_library(const char *variable, const char *const path[],
                          const char **tried);

/* ---- devices ------------------------------------------------------------- */

struct stream_device {
    char who[24]; /* for messages: "cuda:0" */
    int handle;
    int level;           /* of CUDA: compute capability, 61 is 6.1 */
    unsigned wait_flags; /* of CUDA's waits for words */
    bool overlaps; /* of CUDA: graphs may use programmatic dependent launch */
    struct cuda_context *context; /* of CUDA: retained; NULL: not yet */
    char arch[80];                /* of HIP: "gfx90a:sramecc+:xnack-" */
};

/* Finds a device by its ordinal; it is not retained yet. */
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
/* The vendor lacks the attribute because all its devices have the property. */
enum { NO_ATTRIBUTE = -1 };

pl_status stream_attribute(const struct stream_api *api,
                           const struct stream_device *d,
                           enum stream_attribute what, int *value, pl_err *err);

/* ---- vendors
 * -------------------------------------------------------------- */

/* Kernels ready to be loaded by a device, or their source and compiler. */
struct stream_text;

enum stream_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ANY };

/* The launches of a graph to make; their functions are loaded, by kernel. */
struct stream_launches {
    const struct gpu_graph_node *node;
    int n;
    struct api_function *const *function; /* [GPU_KERNEL_COUNT] */
};

struct stream_vendor {
    const char *name, *title; /* "cuda", "CUDA" */
    const char *variable;     /* environment variable that names the library */
    const char *const *path;  /* tried otherwise; NULL ends them */
    const char *remedy, *least; /* "install NVIDIA's driver", "... 520" */
    /* By call; NULL: the vendor has none. Older drivers may lack those from
     * `later` on. */
    const char *const *symbol, *const *call;
    int later;
    int attribute[STREAM_ATTRIBUTE_COUNT]; /* or NO_ATTRIBUTE */
    /* Event flags with which a post makes earlier commands visible to all; 0:
     * the post does so itself. */
    unsigned fence;
    bool logs; /* module_load can return the compiler's log */

    /* NULL: unknown. */
    const char *(*error_name)(const struct stream_api *api, unsigned code);
    const char *(*error_text)(const struct stream_api *api, unsigned code);
    /* Returns true if init's code means that there is no device. none() then
     * returns the result: PL_OK, or an error. */
    bool (*is_none)(unsigned code);
    pl_status (*none)(const struct stream_api *api, unsigned code, pl_err *err);

    /* Sets the level or architecture of the device, whose handle is set. */
    pl_status (*examine)(const struct stream_api *api, struct stream_device *d,
                         pl_err *err);
    /* Returns true if the kernels cannot run on it, and writes why. */
    bool (*refuses)(const struct stream_device *d, char *why, size_t size);
    /* Sets version, features and speeds; n_unit and hz are set. */
    void (*show)(const struct stream_api *api, const struct stream_device *d,
                 double hz, struct gpu_info *i);
    /* Returns the memory transfers per clock. */
    int (*transfers)(const struct stream_api *api,
                     const struct stream_device *d, int bus_bits);

    /* The device is retained from hold() to drop(), and current in the thread
     * from enter() to leave(); leave() restores *was. */
    pl_status (*hold)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*drop)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*enter)(const struct stream_api *api,
                       const struct stream_device *d, int *was, pl_err *err);
    pl_status (*leave)(const struct stream_api *api,
                       const struct stream_device *d, int was, pl_err *err);
    /* Enables peer access from the device, which is current, to `peer`, another
     * retained one. The hardware supports it. */
    pl_status (*reach)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_device *peer, pl_err *err);

    pl_status (*text_open)(struct stream_text **out,
                           const struct stream_api *api,
                           const struct stream_device *d, pl_err *err);
    void (*text_close)(struct stream_text *t); /* takes NULL */
    /* Returns the image for module_load. Threads may call it at the same time.
     * The caller frees *owned, which may be NULL. */
    pl_status (*text_program)(struct stream_text *t, enum gpu_kernel k,
                              const void **image, void **owned, pl_err *err);
    /* Returns the hash of all that the kernels' bits depend on besides the
     * device and the version. */
    uint64_t (*text_hash)(const struct stream_text *t);

    /* Stream commands, as in struct gpu_driver. */
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
    /* *out may be set after a failure too; the caller destroys it. Nothing is
     * added to s, which the vendor's API may need. */
    pl_status (*graph)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_launches *l, struct api_stream *s,
                       struct api_graph **out, pl_err *err);
};

extern const struct stream_vendor vendor_cuda, vendor_hip;

#endif
