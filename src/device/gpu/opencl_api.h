/* The objects, constants and functions of OpenCL 1.2 that the driver uses.
 * Source: Khronos, "The OpenCL Specification", version 1.2, and the registry of
 * extensions. The library is opened on demand. */
#ifndef DEVICE_GPU_OPENCL_API_H
#define DEVICE_GPU_OPENCL_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cl_platform;
struct cl_device;
struct cl_context;
struct cl_queue;
struct cl_memory;
struct cl_program;
struct cl_kernel;
struct cl_event;

enum {
    CL_OK = 0,
    CL_NO = 0, /* the value CL_FALSE: the call does not wait */
    CL_YES = 1,
    CL_ERROR_NO_DEVICE = -1,
    CL_ERROR_ALLOCATION = -4,
    /* no platform; only ICD loaders return it (cl_khr_icd) */
    CL_ERROR_NO_PLATFORM = -1001,
};

/* Parameters of clGetPlatformInfo and clGetDeviceInfo. */
enum {
    CL_PLATFORM_VERSION_TEXT = 0x0901,
    CL_PLATFORM_NAME_TEXT = 0x0902,

    CL_DEVICE_KIND = 0x1000,   /* u64: bits CL_KIND_* of the type of device */
    CL_DEVICE_VENDOR = 0x1001, /* the PCI vendor id */
    CL_DEVICE_UNITS = 0x1002,
    CL_DEVICE_MHZ = 0x100c,
    CL_DEVICE_GROUP_SIZE = 0x1004,      /* size_t: most work items of a work
                                           group */
    CL_DEVICE_MOST_BYTES = 0x1010,      /* u64: largest allocation */
    CL_DEVICE_PARAMETER_BYTES = 0x1017, /* size_t: maximum size of a kernel's
                                           arguments in bytes */
    /* u64: bits CL_FLOATS_* of the device's support of floats */
    CL_DEVICE_FLOATS = 0x101b,
    CL_DEVICE_BYTES = 0x101f, /* u64: size of the device's memory in bytes */
    /* u64: size in bytes of the memory that a work group shares */
    CL_DEVICE_LOCAL_BYTES = 0x1023,
    CL_DEVICE_LITTLE_ENDIAN = 0x1026,
    CL_DEVICE_IS_THERE = 0x1027,
    CL_DEVICE_HAS_COMPILER = 0x1028,
    CL_DEVICE_NAME_TEXT = 0x102b,
    CL_DEVICE_SHARES_MEMORY = 0x1035, /* 1 if device memory is the host's */
    CL_DEVICE_DRIVER_TEXT = 0x102d,   /* the driver's version */
    CL_DEVICE_VERSION_TEXT = 0x102f,
    CL_DEVICE_EXTENSIONS_TEXT = 0x1030,
    /* u64: bits CL_FLOATS_* of the device's support of doubles; 0 if it has no
     * doubles */
    CL_DEVICE_DOUBLES = 0x1032,

    /* u32[4]: PCI domain, bus, device, function (cl_khr_pci_bus_info) */
    CL_DEVICE_PCI = 0x410f,
    /* PCI bus number (cl_nv_device_attribute_query) */
    CL_DEVICE_NV_PCI_BUS = 0x4008,
    /* PCI device number * 8 + function number */
    CL_DEVICE_NV_PCI_SLOT = 0x4009,
    /* PCI domain; old drivers lack this property */
    CL_DEVICE_NV_PCI_DOMAIN = 0x400a,
    /* PCI address (cl_amd_device_attribute_query) */
    CL_DEVICE_AMD_PCI = 0x4037,
    CL_DEVICE_AMD_TITLE = 0x4038,
    /* size_t[2]: all free memory and its largest block, in KiB */
    CL_DEVICE_AMD_FREE = 0x4039,
};

enum { CL_KIND_CPU = 1 << 1, CL_KIND_GPU = 1 << 2, CL_KIND_ALL = -1 };

enum {
    CL_FLOATS_SUBNORMAL = 1 << 0,
    CL_FLOATS_INF_NAN = 1 << 1,
    CL_FLOATS_NEAREST = 1 << 2,
    /* division and square root are correctly rounded if a compiler option
     * requests it */
    CL_FLOATS_DIVIDE_SQRT = 1 << 7,
};

enum {
    CL_MEMORY_READ_WRITE = 1 << 0,
    /* flag: the buffer is in host memory, which the host can map */
    CL_MEMORY_OF_HOST = 1 << 4,
    CL_MAP_READ_WRITE = 3,
    /* flag: the migration need not preserve the buffer's contents */
    CL_MIGRATE_UNDEFINED = 1 << 1,
};

enum {
    CL_PROGRAM_DEVICES = 0x1162,
    CL_PROGRAM_BINARY_BYTES = 0x1165,
    CL_PROGRAM_BINARY = 0x1166,
    CL_PROGRAM_LOG = 0x1183,
};

enum {
    CL_EVENT_STATUS = 0x11D3,
    /* positive values mean that the command is not complete, negative ones are
     * errors */
    CL_STATUS_COMPLETE = 0,
};

typedef void cl_notify(const char *what, const void *detail, size_t n,
                       void *user);

/* Functions of the library: result, name, parameters. */
#define OPENCL_CALL_MAP(X)                                                     \
    X(int32_t, clGetPlatformIDs,                                               \
      (uint32_t max, struct cl_platform * *out, uint32_t * n))                 \
    X(int32_t, clGetPlatformInfo,                                              \
      (struct cl_platform * p, uint32_t what, size_t max, void *out,           \
       size_t *n))                                                             \
    X(int32_t, clGetDeviceIDs,                                                 \
      (struct cl_platform * p, uint64_t kinds, uint32_t max,                   \
       struct cl_device * *out, uint32_t * n))                                 \
    X(int32_t, clGetDeviceInfo,                                                \
      (struct cl_device * d, uint32_t what, size_t max, void *out, size_t *n)) \
    X(struct cl_context *, clCreateContext,                                    \
      (const intptr_t *properties, uint32_t n, struct cl_device *const *d,     \
       cl_notify *notify, void *user, int32_t *error))                         \
    X(int32_t, clReleaseContext, (struct cl_context * c))                      \
    X(struct cl_queue *, clCreateCommandQueue,                                 \
      (struct cl_context * c, struct cl_device * d, uint64_t properties,       \
       int32_t * error))                                                       \
    X(int32_t, clReleaseCommandQueue, (struct cl_queue * q))                   \
    X(int32_t, clFlush, (struct cl_queue * q))                                 \
    X(int32_t, clFinish, (struct cl_queue * q))                                \
    X(struct cl_memory *, clCreateBuffer,                                      \
      (struct cl_context * c, uint64_t flags, size_t bytes, void *host,        \
       int32_t *error))                                                        \
    X(int32_t, clReleaseMemObject, (struct cl_memory * m))                     \
    X(struct cl_program *, clCreateProgramWithSource,                          \
      (struct cl_context * c, uint32_t n, const char *const *text,             \
       const size_t *bytes, int32_t *error))                                   \
    X(struct cl_program *, clCreateProgramWithBinary,                          \
      (struct cl_context * c, uint32_t n, struct cl_device *const *d,          \
       const size_t *bytes, const unsigned char *const *binary,                \
       int32_t *status, int32_t *error))                                       \
    X(int32_t, clBuildProgram,                                                 \
      (struct cl_program * p, uint32_t n, struct cl_device *const *d,          \
       const char *options, void (*done)(struct cl_program *, void *),         \
       void *user))                                                            \
    X(int32_t, clGetProgramBuildInfo,                                          \
      (struct cl_program * p, struct cl_device * d, uint32_t what, size_t max, \
       void *out, size_t *n))                                                  \
    X(int32_t, clGetProgramInfo,                                               \
      (struct cl_program * p, uint32_t what, size_t max, void *out,            \
       size_t *n))                                                             \
    X(int32_t, clReleaseProgram, (struct cl_program * p))                      \
    X(struct cl_kernel *, clCreateKernel,                                      \
      (struct cl_program * p, const char *name, int32_t *error))               \
    X(int32_t, clReleaseKernel, (struct cl_kernel * k))                        \
    X(int32_t, clSetKernelArg,                                                 \
      (struct cl_kernel * k, uint32_t i, size_t bytes, const void *value))     \
    X(int32_t, clEnqueueNDRangeKernel,                                         \
      (struct cl_queue * q, struct cl_kernel * k, uint32_t n_dim,              \
       const size_t *first, const size_t *lanes, const size_t *of_group,       \
       OPENCL_EVENTS))                                                         \
    X(int32_t, clEnqueueWriteBuffer,                                           \
      (struct cl_queue * q, struct cl_memory * m, uint32_t block, size_t at,   \
       size_t bytes, const void *host, OPENCL_EVENTS))                         \
    X(int32_t, clEnqueueReadBuffer,                                            \
      (struct cl_queue * q, struct cl_memory * m, uint32_t block, size_t at,   \
       size_t bytes, void *host, OPENCL_EVENTS))                               \
    X(int32_t, clEnqueueCopyBuffer,                                            \
      (struct cl_queue * q, struct cl_memory * src, struct cl_memory * dst,    \
       size_t src_at, size_t dst_at, size_t bytes, OPENCL_EVENTS))             \
    X(void *, clEnqueueMapBuffer,                                              \
      (struct cl_queue * q, struct cl_memory * m, uint32_t block,              \
       uint64_t flags, size_t at, size_t bytes, OPENCL_EVENTS,                 \
       int32_t * error))                                                       \
    X(int32_t, clEnqueueUnmapMemObject,                                        \
      (struct cl_queue * q, struct cl_memory * m, void *mapped,                \
       OPENCL_EVENTS))                                                         \
    X(int32_t, clEnqueueMigrateMemObjects,                                     \
      (struct cl_queue * q, uint32_t n, struct cl_memory *const *m,            \
       uint64_t flags, OPENCL_EVENTS))                                         \
    X(int32_t, clEnqueueMarkerWithWaitList,                                    \
      (struct cl_queue * q, OPENCL_EVENTS))                                    \
    X(int32_t, clEnqueueBarrierWithWaitList,                                   \
      (struct cl_queue * q, OPENCL_EVENTS))                                    \
    X(int32_t, clGetEventInfo,                                                 \
      (struct cl_event * e, uint32_t what, size_t max, void *out, size_t *n))  \
    X(int32_t, clReleaseEvent, (struct cl_event * e))
/* Parameters of commands: the events that the command waits for, and its own
 * event, which may be NULL. */
#define OPENCL_EVENTS                                                          \
    uint32_t n_wait, struct cl_event *const *wait, struct cl_event **event

struct opencl {
    void *handle;
#define OPENCL_MEMBER(result, name, parameters) result(*name) parameters;
    OPENCL_CALL_MAP(OPENCL_MEMBER)
#undef OPENCL_MEMBER
};

/* Returns PL_DEVICE if the library `path` or one of its drivers ends the
 * process while devices are listed. Tests this in a forked process, unless the
 * last call was for `path` too. */
pl_status opencl_probe(const char *path, pl_err *err);

/* Opens the library named by the environment variable PLAIT_LIBOPENCL, by
 * default libOpenCL.so.1. Returns PL_UNSUPPORTED if it is missing or lacks a
 * function, which the message names, or PL_DEVICE if opencl_probe() fails. */
pl_status opencl_load(struct opencl *cl, pl_err *err);
/* Closes the library. `cl` may be zeroed. */
void opencl_unload(struct opencl *cl);

/* Returns the name of an error code, such as "CL_OUT_OF_RESOURCES", or "an
 * unknown error". */
const char *opencl_error(int32_t code);
/* Returns PL_OK if `code` is CL_OK. Otherwise sets the error "WHAT: FUNCTION
 * failed: CL_.. (-n)". */
pl_status opencl_check(int32_t code, const char *function, const char *what,
                       pl_err *err);

/* ---- devices (opencl_list.c) --------------------------------------------- */

enum { OPENCL_MAX_DEVICE = 64 };

struct opencl_devices {
    int n;
    struct opencl_device {
        struct cl_platform *platform;
        struct cl_device *device;
    } item[OPENCL_MAX_DEVICE];
};

/* Sets *out to all devices of all platforms, in the library's order. If a
 * platform fails, its devices are left out; returns its error only if *out is
 * empty. */
pl_status opencl_devices(const struct opencl *cl, struct opencl_devices *out,
                         pl_err *err);
/* Writes the string property `what` of device `d` to out[size], terminated; ""
 * if the device lacks it. */
void opencl_text(const struct opencl *cl, struct cl_device *d, uint32_t what,
                 char *out, size_t size);
/* Returns true if the device is the host's CPU. */
bool opencl_on_cores(const struct opencl *cl, struct cl_device *d);
/* Returns PL_OK if the device has all features that the kernels need, else an
 * error that names the missing feature. */
pl_status opencl_demands(const struct opencl *cl, struct cl_device *d,
                         pl_err *err);

/* ---- the kernels (opencl_program.c) -------------------------------------- */

struct opencl_source {
    const char *text;
    int n_kernel;
    const char *const *name; /* names of the kernels, [n_kernel] */
    bool keep; /* the compiled binary is to be stored in the kernel cache */
};

/* Compiles the source, or loads the binary that an earlier call stored in the
 * kernel cache. Sets *out and kernel[n_kernel], which the caller has zeroed. On
 * failure nothing is allocated. */
pl_status opencl_program(const struct opencl *cl, struct cl_context *c,
                         const struct opencl_device *d,
                         const struct opencl_source *src,
                         struct cl_program **out, struct cl_kernel **kernel,
                         pl_err *err);
void opencl_program_free(const struct opencl *cl, struct cl_program *p,
                         struct cl_kernel **kernel, int n_kernel);

#endif
