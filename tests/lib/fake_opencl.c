/* An OpenCL library whose devices are rows of a table, for cases that no real
 * device at hand shows: PCI addresses in each vendor's form, devices that lack
 * something, functions that fail. It computes nothing. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/opencl_api.h"

enum {
    GOOD = CL_FLOATS_SUBNORMAL | CL_FLOATS_INF_NAN | CL_FLOATS_NEAREST |
           CL_FLOATS_DIVIDE_SQRT,
    N_DEVICE = 10,
    NO_RESOURCES = -5,
    BUILD_FAILED = -11,
};

struct cl_device {
    const char *name, *version, *extensions;
    uint64_t floats, doubles, local;
    size_t group;
    int32_t context; /* status that clCreateContext returns for this device */
};

static struct cl_device device[N_DEVICE] = {
    {"khr", "OpenCL 3.0 x", "cl_x cl_khr_pci_bus_info", GOOD, GOOD, 65536, 1024,
     NO_RESOURCES},
    {"nv", "OpenCL 3.0 x", "cl_nv_device_attribute_query cl_y", GOOD, GOOD,
     65536, 1024, CL_OK},
    {"amd", "OpenCL 2.0 x", "cl_amd_device_attribute_query", GOOD, GOOD, 65536,
     1024, CL_OK},
    {"old", "OpenCL 1.1 x", "", GOOD, GOOD, 65536, 1024, CL_OK},
    {"flushes", "OpenCL 1.2 x", "cl_khr_pci_bus_info_not", GOOD & ~1, GOOD,
     65536, 1024, CL_OK},
    {"divides", "OpenCL 1.2 x", "", GOOD & ~CL_FLOATS_DIVIDE_SQRT, GOOD, 65536,
     1024, CL_OK},
    {"floats", "OpenCL 1.2 x", "", GOOD, 0, 65536, 1024, CL_OK},
    {"small", "OpenCL 1.2 x", "", GOOD, GOOD, 16384, 1024, CL_OK},
    {"narrow", "OpenCL 1.2 x", "", GOOD, GOOD, 65536, 64, CL_OK},
    {"twin", "OpenCL 3.0 x", "cl_khr_pci_bus_info", GOOD, GOOD, 65536, 1024,
     CL_OK}, /* has the PCI address of the first device of fake_cuda.c */
};

/* The devices that report a PCI address by cl_khr_pci_bus_info: domain, bus,
 * device and function. */
static const struct gpu {
    const struct cl_device *device;
    uint32_t pci[4];
} gpu[] = {{&device[0], {1, 0x3b, 2, 3}}, {&device[9], {0, 0x3b, 0, 0}}};

static const struct gpu *gpu_of(const struct cl_device *d)
{
    for (size_t i = 0; i < sizeof gpu / sizeof *gpu; i++)
        if (gpu[i].device == d)
            return &gpu[i];
    return NULL;
}

int32_t clGetPlatformIDs(uint32_t max, struct cl_platform **out, uint32_t *n)
{
    (void)max;
    if (getenv("FAKE_OPENCL_ABORTS"))
        abort();
    if (getenv("FAKE_OPENCL_EXITS"))
        exit(0);
    *out = NULL;
    *n = 1;
    return CL_OK;
}

int32_t clGetDeviceIDs(struct cl_platform *p, uint64_t kinds, uint32_t max,
                       struct cl_device **out, uint32_t *n)
{
    (void)p;
    (void)kinds;
    for (*n = 0; *n < N_DEVICE && *n < max; ++*n)
        out[*n] = &device[*n];
    return CL_OK;
}

static int32_t give(const void *value, size_t size, size_t max, void *out,
                    size_t *n)
{
    if (n)
        *n = size;
    if (out && max < size)
        return -30;
    if (out)
        memcpy(out, value, size);
    return CL_OK;
}

static const char *text_of(const struct cl_device *d, uint32_t what)
{
    bool amd = strstr(d->extensions, "cl_amd_") != NULL;

    switch (what) {
    case CL_DEVICE_NAME_TEXT:
        return d->name;
    case CL_DEVICE_VERSION_TEXT:
        return d->version;
    case CL_DEVICE_EXTENSIONS_TEXT:
        return d->extensions;
    case CL_DEVICE_DRIVER_TEXT:
        return "fake";
    case CL_DEVICE_AMD_TITLE:
        return amd ? "Board" : NULL;
    }
    return NULL;
}

/* Writes the device's value of property `what` to *out. Returns its size in
 * bytes, or 0 if the device lacks the property. */
static size_t value_of(const struct cl_device *d, uint32_t what, uint64_t *out)
{
    static const uint64_t free_kib[] = {4096, 1024};
    static const unsigned char topology[24] = {1, [21] = 0x83, 4, 1};

    switch (what) {
    case CL_DEVICE_KIND:
        *out = gpu_of(d) ? CL_KIND_GPU : CL_KIND_CPU;
        return 8;
    case CL_DEVICE_UNITS:
        *out = 7;
        return 4;
    case CL_DEVICE_IS_THERE:
    case CL_DEVICE_HAS_COMPILER:
    case CL_DEVICE_LITTLE_ENDIAN:
        *out = 1;
        return 4;
    case CL_DEVICE_BYTES:
        *out = (uint64_t)8 << 30;
        return 8;
    case CL_DEVICE_MOST_BYTES:
        *out = (uint64_t)2 << 30;
        return 8;
    case CL_DEVICE_FLOATS:
        *out = d->floats;
        return 8;
    case CL_DEVICE_DOUBLES:
        *out = d->doubles;
        return 8;
    case CL_DEVICE_LOCAL_BYTES:
        *out = d->local;
        return 8;
    case CL_DEVICE_GROUP_SIZE:
        *out = d->group;
        return sizeof(size_t);
    case CL_DEVICE_PARAMETER_BYTES:
        *out = 1024;
        return sizeof(size_t);
    case CL_DEVICE_PCI:
        if (!gpu_of(d))
            return 0;
        memcpy(out, gpu_of(d)->pci, sizeof gpu_of(d)->pci);
        return sizeof gpu_of(d)->pci;
    case CL_DEVICE_NV_PCI_BUS:
        *out = 0xc1;
        return 4;
    case CL_DEVICE_NV_PCI_SLOT:
        *out = 5 * 8 + 1;
        return 4;
    case CL_DEVICE_AMD_FREE:
        memcpy(out, free_kib, sizeof free_kib);
        return sizeof free_kib;
    case CL_DEVICE_AMD_PCI:
        memcpy(out, topology, sizeof topology);
        return sizeof topology;
    }
    return 0;
}

int32_t clGetDeviceInfo(struct cl_device *d, uint32_t what, size_t max,
                        void *out, size_t *n)
{
    const char *text = text_of(d, what);
    uint64_t value[4] = {0};
    size_t size;

    if (text)
        return give(text, strlen(text) + 1, max, out, n);
    size = value_of(d, what, value);
    return size > 0 ? give(value, size, max, out, n) : -30;
}

struct cl_context *clCreateContext(const intptr_t *properties, uint32_t n,
                                   struct cl_device *const *d,
                                   cl_notify *notify, void *user,
                                   int32_t *error)
{
    (void)properties;
    (void)n;
    *error = d[0]->context;
    if (*error != CL_OK)
        notify("the fan is off", NULL, 0, user);
    return NULL;
}

int32_t clBuildProgram(struct cl_program *p, uint32_t n,
                       struct cl_device *const *d, const char *options,
                       void (*done)(struct cl_program *, void *), void *user)
{
    (void)p;
    (void)n;
    (void)d;
    (void)options;
    (void)done;
    (void)user;
    return BUILD_FAILED;
}

int32_t clGetProgramBuildInfo(struct cl_program *p, struct cl_device *d,
                              uint32_t what, size_t max, void *out, size_t *n)
{
    static const char log[] = "a note\nk.cl:7: error: no such word\n";

    (void)p;
    (void)d;
    (void)what;
    return give(log, sizeof log, max, out, n);
}

/* Defines a function of OpenCL that does nothing and succeeds. */
#define NOTHING(name)                                                          \
    void *name(void)                                                           \
    {                                                                          \
        return NULL;                                                           \
    }
NOTHING(clGetPlatformInfo)
NOTHING(clReleaseContext)
NOTHING(clCreateCommandQueue)
NOTHING(clReleaseCommandQueue)
NOTHING(clFlush)
NOTHING(clFinish)
NOTHING(clCreateBuffer)
NOTHING(clReleaseMemObject)
NOTHING(clCreateProgramWithSource)
NOTHING(clCreateProgramWithBinary)
NOTHING(clGetProgramInfo)
NOTHING(clReleaseProgram)
NOTHING(clCreateKernel)
NOTHING(clReleaseKernel)
NOTHING(clSetKernelArg)
NOTHING(clEnqueueNDRangeKernel)
NOTHING(clEnqueueWriteBuffer)
NOTHING(clEnqueueReadBuffer)
NOTHING(clEnqueueCopyBuffer)
NOTHING(clEnqueueMapBuffer)
NOTHING(clEnqueueUnmapMemObject)
NOTHING(clEnqueueMigrateMemObjects)
NOTHING(clEnqueueMarkerWithWaitList)
NOTHING(clEnqueueBarrierWithWaitList)
NOTHING(clGetEventInfo)
NOTHING(clReleaseEvent)
