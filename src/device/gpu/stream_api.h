/* The two driver APIs whose queues are called streams, CUDA and HIP, declared
 * under our own names. A library is opened on demand, and no vendor's header is
 * needed. HIP's functions mirror CUDA's, so one driver (driver_stream.c) serves
 * both through one table of functions. The differences are in struct
 * stream_vendor: vendor_cuda.c and vendor_hip.c.
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
struct api_graph_exec; /* a graph that can be launched */

/* The type of a device address. HIP uses a pointer, which is passed and
 * returned like a 64-bit number. */
#ifndef API_ADDRESS
#define API_ADDRESS unsigned long long
#endif

/* Constants with the same values in both APIs. */
enum {
    API_SUCCESS = 0,
    API_OUT_OF_MEMORY = 2,
    API_NO_DEVICE = 100,
    API_NOT_FOUND = 500,
    API_NOT_READY = 600,
    /* error code: peer access has been enabled before */
    API_ALREADY_REACHED = 704,
    API_ALREADY_REGISTERED = 712,

    API_STREAM_NON_BLOCKING = 1,
    API_EVENT_NO_TIMING = 2,
    /* flag: the memory is pinned for all contexts, not only the current one */
    API_HOST_PORTABLE = 1,
    API_HOST_MAPPED = 2,
};

/* Functions that both libraries have: our name, CUDA's name, the suffix of
 * CUDA's symbol, HIP's name, parameters. All return API_SUCCESS or an error
 * code, which may be that of an earlier command. */
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

/* An open library and its functions. Functions of the other vendor are NULL. */
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

/* Opens and initializes the vendor's library and sets *n_device to the number
 * of devices. Returns PL_UNSUPPORTED if there is no usable library. On failure
 * nothing is allocated. */
pl_status stream_load(struct stream_api *api,
                      const struct stream_vendor *vendor, int *n_device,
                      pl_err *err);
/* Closes the library. `api` may be zeroed. */
void stream_unload(struct stream_api *api);

/* Returns PL_OK if `code` is API_SUCCESS. Otherwise sets the error "WHAT:
 * FUNCTION failed: NAME (code, text)". */
pl_status stream_check(const struct stream_api *api, unsigned code,
                       enum stream_call call, const char *what, pl_err *err);

/* Like stream_check, for a call that concerns kernel k, which the message
 * names. */
pl_status stream_check_kernel(const struct stream_api *api,
                              const struct stream_device *d, unsigned code,
                              enum stream_call call, enum gpu_kernel k,
                              pl_err *err);

/* Opens the library that environment variable `variable` names. If it is not
 * set, opens the first library of path[] that can be opened; NULL ends path[].
 * Returns NULL if none can. Sets *tried to the last one tried. */
void *stream_open_library(const char *variable, const char *const path[],
                          const char **tried);

/* ---- devices ------------------------------------------------------------- */

struct stream_device {
    char who[24]; /* the device's name in messages: "cuda:0" */
    int handle;
    int level;           /* CUDA: compute capability, 61 is 6.1 */
    unsigned wait_flags; /* CUDA: flags of cuStreamWaitValue64 */
    bool overlaps;       /* CUDA: graphs use programmatic dependent launch */
    struct cuda_context *context; /* CUDA: the retained primary context; NULL
                                     before hold() */
    char arch[80];                /* HIP: architecture,
                                     "gfx90a:sramecc+:xnack-" */
};

/* Initializes *d for the device with ordinal `index`. Creates no context;
 * hold() does that. */
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
/* Marks an attribute for which the vendor's API has no number, because all its
 * devices have the property; its value is 1. */
enum { NO_ATTRIBUTE = -1 };

pl_status stream_attribute(const struct stream_api *api,
                           const struct stream_device *d,
                           enum stream_attribute what, int *value, pl_err *err);

/* ---- vendors ------------------------------------------------------------- */

/* The kernels for one device: PTX (cuda_text), or a compiler (hip_text). */
struct stream_text;

enum stream_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ANY };

/* The nodes of a graph to be created. The functions of their kernels are
 * already loaded. */
struct stream_launches {
    const struct gpu_graph_node *node;
    int n;
    /* device addresses of the words of all nodes, in their order */
    const unsigned long long *word;
    /* by kernel: its loaded function, [GPU_KERNEL_COUNT] */
    struct api_function *const *function;
};

struct stream_vendor {
    /* name in -dev, and name in messages: "cuda", "CUDA" */
    const char *name, *title;
    /* environment variable that may name the library's path */
    const char *variable;
    /* paths to try otherwise, in this order; NULL ends the list */
    const char *const *path;
    /* advice if the library is missing, and if it is too old: "install NVIDIA's
     * driver", "... 520 or later" */
    const char *remedy, *least;
    /* By enum stream_call: the symbol, and the function's name for messages;
     * NULL if the vendor lacks the function. Old drivers may lack the calls
     * numbered `later` and above. */
    const char *const *symbol, *const *call;
    int later;
    int attribute[STREAM_ATTRIBUTE_COUNT]; /* the vendor's numbers of the
                                              attributes, or NO_ATTRIBUTE */
    /* Flags of an event which, recorded before a post, makes earlier commands
     * visible to all devices; 0 if the post itself does so. */
    unsigned fence;
    bool logs; /* module_load can return the driver's compiler log */

    /* Return the name and the description of an error code, or NULL if it is
     * unknown. */
    const char *(*error_name)(const struct stream_api *api, unsigned code);
    const char *(*error_text)(const struct stream_api *api, unsigned code);
    /* is_none() returns true if `code`, returned by init, means that there is
     * no device. none() then returns the status of stream_load: PL_OK with 0
     * devices, or an error. */
    bool (*is_none)(unsigned code);
    pl_status (*none)(const struct stream_api *api, unsigned code, pl_err *err);

    /* Sets the vendor's own fields of *d, such as `level` or `arch`. d->handle
     * is set. */
    pl_status (*examine)(const struct stream_api *api, struct stream_device *d,
                         pl_err *err);
    /* Returns true if the kernels cannot run on the device, and writes the
     * reason to `why`. */
    bool (*refuses)(const struct stream_device *d, char *why, size_t size);
    /* Sets the version, features and speeds of *i. i->n_unit is set; `hz` is
     * the GPU's clock rate. */
    void (*show)(const struct stream_api *api, const struct stream_device *d,
                 double hz, struct gpu_info *i);
    /* Returns how many bits each line of the memory's bus transfers per cycle
     * of the memory clock that the API reports. The bus has `bus_bits`
     * lines. */
    int (*transfers)(const struct stream_api *api,
                     const struct stream_device *d, int bus_bits);

    /* hold() keeps the device's context alive until drop(), if the API has
     * contexts. enter() makes the device current in the calling thread and
     * stores the previous one in *was; leave() restores it. */
    pl_status (*hold)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*drop)(const struct stream_api *api, struct stream_device *d,
                      pl_err *err);
    pl_status (*enter)(const struct stream_api *api,
                       const struct stream_device *d, int *was, pl_err *err);
    pl_status (*leave)(const struct stream_api *api,
                       const struct stream_device *d, int was, pl_err *err);
    /* Enables peer access from device `d`, which is current, to the retained
     * device `peer`. The driver has reported that the hardware supports it. */
    pl_status (*reach)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_device *peer, pl_err *err);

    pl_status (*text_open)(struct stream_text **out,
                           const struct stream_api *api,
                           const struct stream_device *d, pl_err *err);
    /* Frees `t`, which may be NULL. */
    void (*text_close)(struct stream_text *t);
    /* Sets *image to the PTX or machine code of kernel k, for module_load. Sets
     * *owned to memory that the caller frees after that, or to NULL. Several
     * threads may call this function at once. */
    pl_status (*text_program)(struct stream_text *t, enum gpu_kernel k,
                              const void **image, void **owned, pl_err *err);
    /* Returns a hash of all that may affect the bits of the kernels' results,
     * except the device and the driver's version. */
    uint64_t (*text_hash)(const struct stream_text *t);

    /* Stream commands: copy() implements copy, read and write of struct
     * gpu_driver, post() implements signal_word, and wait() implements
     * wait_word. */
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
    /* Returns true if graphs may have nodes of words; NULL if none may. */
    bool (*graph_words)(const struct stream_api *api);
    /* Creates a graph of the nodes `l`. The caller destroys *out if it is
     * not NULL, even after a failure. Stream `s` is used by APIs that record a
     * graph from a stream; no command is added to it. */
    pl_status (*graph)(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_launches *l, struct api_stream *s,
                       struct api_graph **out, pl_err *err);
};

extern const struct stream_vendor vendor_cuda, vendor_hip;

#endif
