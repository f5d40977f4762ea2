/* Lists OpenCL devices and their properties, and checks that a device can run
 * the kernels with the required bits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/gpu/driver_opencl.h"
#include "device/gpu/gpu_rates.h"
#include "device/gpu/opencl_api.h"

enum { MAX_PLATFORM = 16 };

pl_status opencl_devices(const struct opencl *cl, struct opencl_devices *out,
                         pl_err *err)
{
    struct cl_platform *platform[MAX_PLATFORM];
    uint32_t n_platform = 0;
    int32_t e = cl->clGetPlatformIDs(MAX_PLATFORM, platform, &n_platform);

    pl_status s = PL_OK;

    out->n = 0;
    if (e == CL_ERROR_NO_PLATFORM)
        return PL_OK;
    PL_TRY(opencl_check(e, "clGetPlatformIDs", "opencl", err));
    for (uint32_t p = 0; p < n_platform && p < MAX_PLATFORM; p++) {
        struct cl_device *device[OPENCL_MAX_DEVICE];
        uint32_t n = 0;

        e = cl->clGetDeviceIDs(platform[p], (uint64_t)CL_KIND_ALL & UINT32_MAX,
                               OPENCL_MAX_DEVICE, device, &n);
        if (e == CL_ERROR_NO_DEVICE)
            continue;
        /* leaves out the platform, but lists the devices of others */
        if (e != CL_OK) {
            s = opencl_check(e, "clGetDeviceIDs", "opencl", err);
            continue;
        }
        for (uint32_t i = 0; i < n && out->n < OPENCL_MAX_DEVICE; i++)
            out->item[out->n++] =
                (struct opencl_device){platform[p], device[i]};
    }
    return out->n > 0 ? PL_OK : s;
}

/* Reads property `what` to out[size]. Returns false, and sets out[] to zeros,
 * if the device lacks the property. */
static bool ask(const struct opencl *cl, struct cl_device *d, uint32_t what,
                void *out, size_t size)
{
    memset(out, 0, size);
    return cl->clGetDeviceInfo(d, what, size, out, NULL) == CL_OK;
}

/* Returns a numeric property of four or eight bytes, or 0 if the device lacks
 * it. */
static uint64_t number(const struct opencl *cl, struct cl_device *d,
                       uint32_t what)
{
    union {
        uint32_t u32;
        uint64_t u64;
    } x = {.u64 = 0};
    size_t n = 0;

    if (cl->clGetDeviceInfo(d, what, sizeof x, &x, &n) != CL_OK)
        return 0;
    return n == sizeof x.u32 ? x.u32 : x.u64;
}

void opencl_text(const struct opencl *cl, struct cl_device *d, uint32_t what,
                 char *out, size_t size)
{
    char text[4096];

    if (!ask(cl, d, what, text, sizeof text - 1))
        text[0] = '\0';
    text[sizeof text - 1] = '\0';
    snprintf(out, size, "%s", text);
}

bool opencl_on_cores(const struct opencl *cl, struct cl_device *d)
{
    return (number(cl, d, CL_DEVICE_KIND) & CL_KIND_CPU) != 0;
}

/* Returns true if the device has the extension `word`. */
static bool extends(const struct opencl *cl, struct cl_device *d,
                    const char *word)
{
    char list[4096];
    size_t n = strlen(word);

    opencl_text(cl, d, CL_DEVICE_EXTENSIONS_TEXT, list, sizeof list);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

/* ---- list of devices ----------------------------------------------------- */

/* Writes the PCI address, which the vendors' extensions report, or "" if it is
 * unknown. */
static void pci_address(const struct opencl *cl, struct cl_device *d,
                        char out[24])
{
    uint32_t khr[4], bus, slot, domain;
    struct {
        uint32_t type;
        unsigned char unused[17], bus, device, function;
    } amd;

    if (extends(cl, d, "cl_khr_pci_bus_info") &&
        ask(cl, d, CL_DEVICE_PCI, khr, sizeof khr)) {
        snprintf(out, 24, "%04x:%02x:%02x.%x", khr[0] & 0xffff, khr[1] & 0xff,
                 khr[2] & 0xff, khr[3] & 7);
    } else if (extends(cl, d, "cl_nv_device_attribute_query") &&
               ask(cl, d, CL_DEVICE_NV_PCI_BUS, &bus, sizeof bus) &&
               ask(cl, d, CL_DEVICE_NV_PCI_SLOT, &slot, sizeof slot)) {
        ask(cl, d, CL_DEVICE_NV_PCI_DOMAIN, &domain, sizeof domain);
        snprintf(out, 24, "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff,
                 slot >> 3 & 0xff, slot & 7);
    } else if (extends(cl, d, "cl_amd_device_attribute_query") &&
               ask(cl, d, CL_DEVICE_AMD_PCI, &amd, sizeof amd) &&
               amd.type == 1) {
        snprintf(out, 24, "0000:%02x:%02x.%x", amd.bus, amd.device,
                 amd.function & 7);
    } else {
        out[0] = '\0';
    }
}

/* Writes the versions in the form "OpenCL 3.0, driver 580.82", without further
 * text that the vendor adds. */
static void version_text(const struct opencl *cl, struct cl_device *d,
                         char *out, size_t size)
{
    char version[96], driver[64];
    int n = 0;

    opencl_text(cl, d, CL_DEVICE_VERSION_TEXT, version, sizeof version);
    opencl_text(cl, d, CL_DEVICE_DRIVER_TEXT, driver, sizeof driver);
    sscanf(version, "OpenCL %*d.%*d%n", &n);
    snprintf(out, size, "%.*s%s%s", n > 0 ? n : 24, version,
             *driver ? ", driver " : "", driver);
}

static struct gpu_info info_of(const struct opencl *cl, struct cl_device *d,
                               int index)
{
    struct gpu_info g = {.index = index};
    bool amd = extends(cl, d, "cl_amd_device_attribute_query");
    size_t kib[2];
    pl_err why;

    if (amd)
        opencl_text(cl, d, CL_DEVICE_AMD_TITLE, g.title, sizeof g.title);
    if (!g.title[0])
        opencl_text(cl, d, CL_DEVICE_NAME_TEXT, g.title, sizeof g.title);
    pci_address(cl, d, g.bus);
    version_text(cl, d, g.version, sizeof g.version);
    g.total_bytes = number(cl, d, CL_DEVICE_BYTES);
    g.available_bytes = g.total_bytes;
    g.largest_bytes = number(cl, d, CL_DEVICE_MOST_BYTES);
    if (amd && ask(cl, d, CL_DEVICE_AMD_FREE, kib, sizeof kib) && kib[0])
        g.available_bytes = (uint64_t)kib[0] << 10;
    g.n_unit = (int)number(cl, d, CL_DEVICE_UNITS);
    g.on_cores = opencl_on_cores(cl, d);
    gpu_speeds_opencl(&g, (uint32_t)number(cl, d, CL_DEVICE_VENDOR),
                      (double)number(cl, d, CL_DEVICE_MHZ) * 1e6,
                      number(cl, d, CL_DEVICE_SHARES_MEMORY) != 0);
    if (opencl_demands(cl, d, &why) != PL_OK)
        snprintf(g.why, sizeof g.why, "%.*s", (int)sizeof g.why - 1,
                 why.message);
    return g;
}

pl_status opencl_list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    struct opencl cl;
    struct opencl_devices all;
    pl_status s;

    *n = 0;
    PL_TRY(opencl_load(&cl, err));
    s = opencl_devices(&cl, &all, err);
    for (; s == PL_OK && *n < all.n && *n < max; ++*n)
        out[*n] = info_of(&cl, all.item[*n].device, *n);
    opencl_unload(&cl);
    return s;
}

/* ---- requirements of the kernels ----------------------------------------- */

static const struct demand {
    uint32_t what;
    /* the property must have all bits of `bits` set and be at least `least` */
    uint64_t bits, least;
    const char *lacks;
} demands[] = {
    {CL_DEVICE_IS_THERE, 0, 1, "is not available now"},
    {CL_DEVICE_HAS_COMPILER, 0, 1, "has no compiler"},
    {CL_DEVICE_LITTLE_ENDIAN, 0, 1, "is big-endian"},
    {CL_DEVICE_FLOATS, CL_FLOATS_NEAREST | CL_FLOATS_INF_NAN, 0,
     "does not round floats to the nearest"},
    {CL_DEVICE_FLOATS, CL_FLOATS_SUBNORMAL, 0,
     "flushes subnormal floats to zero"},
    {CL_DEVICE_FLOATS, CL_FLOATS_DIVIDE_SQRT, 0,
     "does not round float division and square roots correctly"},
    {CL_DEVICE_DOUBLES, CL_FLOATS_NEAREST | CL_FLOATS_SUBNORMAL, 0,
     "has no double precision"},
    {CL_DEVICE_GROUP_SIZE, 0, GPU_MAX_LANES,
     "limits work-groups to less than 256 work-items"},
    {CL_DEVICE_LOCAL_BYTES, 0, 32 << 10,
     "has less than 32 KiB of local memory"},
    {CL_DEVICE_PARAMETER_BYTES, 0, GPU_MAX_ARGS + OPENCL_MAX_MEMORY * 8,
     "limits kernel arguments to fewer bytes than the kernels need"},
};

pl_status opencl_demands(const struct opencl *cl, struct cl_device *d,
                         pl_err *err)
{
    char name[96], version[96];
    int major = 0, minor = 0;

    opencl_text(cl, d, CL_DEVICE_NAME_TEXT, name, sizeof name);
    opencl_text(cl, d, CL_DEVICE_VERSION_TEXT, version, sizeof version);
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 ||
        major * 10 + minor < 12)
        return err_set(
            err, PL_UNSUPPORTED,
            "%s has \"%s\", not OpenCL 1.2 or later; use another device", name,
            version);
    for (size_t i = 0; i < sizeof demands / sizeof *demands; i++) {
        const struct demand *q = &demands[i];
        uint64_t has = number(cl, d, q->what);

        if ((has & q->bits) != q->bits || has < q->least)
            return err_set(err, PL_UNSUPPORTED,
                           "%s %s, so its results would not have the bits that "
                           "all devices must agree on; use another device",
                           name, q->lacks);
    }
    return PL_OK;
}
