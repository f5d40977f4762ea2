/* AMD's HIP: what differs from CUDA.
 *
 * HIP has no contexts. Calls of a thread go to the device that the thread has
 * set, so the previous device is restored afterwards. hiprtc compiles the
 * kernels from source (hip_source.c). A graph is captured from a stream, in
 * which launches are in order, so nodes that could run in parallel do not. HIP
 * does not guarantee that a stream write makes earlier commands visible to
 * other devices. So it is preceded by an event that does.
 *
 * This file has not been run on hardware. It follows AMD's documentation, and
 * tests run it with a stub of the library. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_rates.h"

/* ---- the library --------------------------------------------------------- */

static const char *const symbols[STREAM_CALL_COUNT] = {
#define ROW(name, cuda, suffix, hip, parameters) [CALL_##name] = #hip,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, parameters) [CALL_##name] = #name,
        HIP_CALL_MAP(ROW)
#undef ROW
};

/* The library's names, the newest version first. Normally only development
 * packages install the name without a number, so it comes after them. */
static const char *const paths[] = {"libamdhip64.so.7",
                                    "libamdhip64.so.6",
                                    "libamdhip64.so.5",
                                    "libamdhip64.so",
                                    "/opt/rocm/lib/libamdhip64.so",
                                    NULL};

static const char *error_name(const struct stream_api *api, unsigned code)
{
    return api->hipGetErrorName ? api->hipGetErrorName(code) : NULL;
}

static const char *error_text(const struct stream_api *api, unsigned code)
{
    return api->hipGetErrorString ? api->hipGetErrorString(code) : NULL;
}

static bool is_none(unsigned code)
{
    return code == API_NO_DEVICE || code == HIP_CODE_INVALID_DEVICE;
}

/* Called if HIP finds no GPU. Returns PL_OK if this user may open the device
 * file through which HIP finds GPUs, because then there are none. Otherwise
 * returns an error with the reason. */
static pl_status none(const struct stream_api *api, unsigned code, pl_err *err)
{
    static const char door[] = "/dev/kfd";
    const char *name = error_name(api, code);

    if (access(door, R_OK | W_OK) == 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "no HIP GPU found: hipInit failed (%u, %s), and this user "
                   "cannot open %s (%s); load AMD's kernel driver, and add the "
                   "user to its groups, video or render",
                   code, name ? name : "an unknown error", door,
                   strerror(errno));
}

/* Calls a HIP function. The error names the device and the function. */
#define CALL(api, d, err, name, ...)                                           \
    stream_check(api, (api)->name(__VA_ARGS__), CALL_##name, (d)->who, err)

/* ---- devices ------------------------------------------------------------- */

/* Writes the architecture to out[size]: the first text in the properties, after
 * the device's name, that begins with "gfx" and consists of lower-case letters,
 * digits and "+-:". */
static void find_arch(const char *properties, char *out, size_t size)
{
    const char *end = properties + HIP_PROPERTIES_BYTES - 4;
    size_t n = 0;

    out[0] = '\0';
    for (const char *p = properties + HIP_NAME_BYTES; p < end; p++)
        if (memcmp(p, "gfx", 3) == 0) {
            n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789+-:");
            snprintf(out, size, "%.*s", n < size ? (int)n : (int)size - 1, p);
            return;
        }
}

static pl_status examine(const struct stream_api *api, struct stream_device *d,
                         pl_err *err)
{
    char *properties = calloc(1, HIP_PROPERTIES_BYTES);
    pl_status s;

    if (!properties)
        return err_no_memory(err, "a device's properties");
    s = CALL(api, d, err, hipGetDeviceProperties, (void *)properties,
             d->handle);
    if (s == PL_OK) {
        properties[HIP_PROPERTIES_BYTES - 1] = '\0';
        find_arch(properties, d->arch, sizeof d->arch);
    }
    free(properties);
    return s;
}

/* Returns the major version of an architecture: 9 for gfx90a, 11 for gfx1100, 0
 * if unknown. The last two characters are minor version and stepping. */
static int generation(const char *arch)
{
    size_t n =
        strncmp(arch, "gfx", 3) == 0 ? strspn(arch + 3, "0123456789abcdef") : 0;
    int g = 0;

    for (size_t i = 3; n > 2 && i < 3 + n - 2; i++)
        g = arch[i] >= '0' && arch[i] <= '9' && g < 100
                ? g * 10 + (arch[i] - '0')
                : 100;
    return g < 100 ? g : 0;
}

static bool is_arch(const struct stream_device *d, const char *name)
{
    size_t n = strlen(name);

    return strncmp(d->arch, name, n) == 0 &&
           (d->arch[n] == '\0' || d->arch[n] == ':');
}

static bool refuses(const struct stream_device *d, char *why, size_t size)
{
    if (generation(d->arch) >= 9)
        return false;
    snprintf(why, size,
             "its architecture is %s, and the kernels need gfx900 or later",
             d->arch[0] ? d->arch : "unknown");
    return true;
}

/* has_dot4() returns true if text/prelude_hip.h uses dot products of four bytes
 * on this architecture; has_mma(), if it uses matrix units. */
static bool has_dot4(const struct stream_device *d)
{
    static const char *const arch[] = {"gfx906", "gfx908", "gfx90a",
                                       "gfx942", "gfx950", "gfx1030"};

    for (size_t i = 0; i < sizeof arch / sizeof *arch; i++)
        if (is_arch(d, arch[i]))
            return true;
    return generation(d->arch) >= 11;
}

static bool has_mma(const struct stream_device *d)
{
    static const char *const arch[] = {"gfx908", "gfx90a",  "gfx942",
                                       "gfx950", "gfx1200", "gfx1201"};

    if (!hip_text_may_have_matrix())
        return false;
    for (size_t i = 0; i < sizeof arch / sizeof *arch; i++)
        if (is_arch(d, arch[i]))
            return true;
    return generation(d->arch) == 11;
}

static void show(const struct stream_api *api, const struct stream_device *d,
                 double hz, struct gpu_info *i)
{
    int v = 0, n = (int)strcspn(d->arch, ":");

    if (api->version(&v) != API_SUCCESS || v <= 0)
        snprintf(i->version, sizeof i->version, "%.*s", n, d->arch);
    else /* HIP's number of version 5.2.21153 is 50221153 */
        snprintf(i->version, sizeof i->version, "HIP %d.%d, %.*s", v / 10000000,
                 v / 100000 % 100, n, d->arch);
    i->has |= (unsigned)has_dot4(d) << GPU_DOT4 | (unsigned)has_mma(d)
                                                      << GPU_MMA;
    gpu_speeds_hip(i, generation(d->arch),
                   is_arch(d, "gfx90a") || is_arch(d, "gfx942"), hz);
}

/* HIP reports the command clock of the memory. Per clock and data line, HBM
 * transfers two bits, GDDR6 sixteen, and host memory shared with the GPU eight.
 * HBM is recognized by its wide bus. */
static int transfers(const struct stream_api *api,
                     const struct stream_device *d, int bus_bits)
{
    int shared = 0;

    if (bus_bits >= 1024)
        return 2;
    if (api->device_attribute(&shared, HIP_INTEGRATED, d->handle) !=
        API_SUCCESS)
        shared = 0;
    return shared ? 8 : 16;
}

/* hold() and drop() are empty, because HIP itself retains devices. */
static pl_status hold(const struct stream_api *api, struct stream_device *d,
                      pl_err *err)
{
    (void)api;
    (void)d;
    (void)err;
    return PL_OK;
}

static pl_status enter(const struct stream_api *api,
                       const struct stream_device *d, int *was, pl_err *err)
{
    PL_TRY(CALL(api, d, err, hipGetDevice, was));
    return *was == d->handle ? PL_OK
                             : CALL(api, d, err, hipSetDevice, d->handle);
}

static pl_status leave(const struct stream_api *api,
                       const struct stream_device *d, int was, pl_err *err)
{
    return was == d->handle ? PL_OK : CALL(api, d, err, hipSetDevice, was);
}

/* Peer access that other code of the process has enabled already is not an
 * error. It is never disabled, because that code may need it. */
static pl_status reach(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_device *peer, pl_err *err)
{
    unsigned code = api->hipDeviceEnablePeerAccess(peer->handle, 0);

    return stream_check(api, code == API_ALREADY_REACHED ? API_SUCCESS : code,
                        CALL_hipDeviceEnablePeerAccess, d->who, err);
}

/* ---- kernel source ------------------------------------------------------- */

struct stream_text {
    struct hip_text hip;
};

static void text_close(struct stream_text *t)
{
    if (t)
        hip_text_fini(&t->hip);
    free(t);
}

static pl_status text_open(struct stream_text **out,
                           const struct stream_api *api,
                           const struct stream_device *d, pl_err *err)
{
    struct stream_text *t = calloc(1, sizeof *t);
    int version = 0;
    pl_status s;

    *out = NULL;
    if (!t)
        return err_no_memory(err, "the source of the HIP kernels");
    s = CALL(api, d, err, version, &version);
    if (s == PL_OK)
        s = hip_text_init(&t->hip, api->handle, version, d, err);
    if (s == PL_OK)
        *out = t;
    else
        free(t);
    return s;
}

static pl_status text_program(struct stream_text *t, enum gpu_kernel k,
                              const void **image, void **owned, pl_err *err)
{
    PL_TRY(hip_text_compile(&t->hip, k, owned, err));
    *image = *owned;
    return PL_OK;
}

static uint64_t text_hash(const struct stream_text *t)
{
    return hip_text_hash(&t->hip);
}

/* ---- streams ------------------------------------------------------------- */

static void *pointer(uint64_t at)
{
    return (void *)(uintptr_t)at;
}

static pl_status copy(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      enum stream_direction way, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err)
{
    static const unsigned direction[] = {[COPY_TO_DEVICE] = HIP_COPY_TO_DEVICE,
                                         [COPY_TO_HOST] = HIP_COPY_TO_HOST,
                                         [COPY_ANY] = HIP_COPY_ANY};

    return CALL(api, d, err, hipMemcpyAsync, pointer(dst), pointer(src), bytes,
                direction[way], s);
}

static pl_status post(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err)
{
    return CALL(api, d, err, hipStreamWriteValue64, s, pointer(at), value, 0);
}

static pl_status wait(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err)
{
    return CALL(api, d, err, hipStreamWaitValue64, s, pointer(at), value,
                HIP_WAIT_AT_LEAST, UINT64_MAX);
}

static pl_status take_down(const struct stream_api *api,
                           const struct stream_device *d,
                           const struct stream_launches *l,
                           struct api_stream *s, pl_err *err)
{
    for (int i = 0; i < l->n; i++) {
        const struct gpu_graph_node *n = &l->node[i];
        void *parameter[] = {(void *)(uintptr_t)n->args};
        unsigned code = api->launch(
            l->function[n->kernel], (unsigned)n->n_group, 1, 1,
            (unsigned)gpu_kernel_lanes(n->kernel), 1, 1, 0, s, parameter, NULL);

        PL_TRY(stream_check_kernel(api, d, code, CALL_launch, n->kernel, err));
    }
    return PL_OK;
}

/* Captures a graph from stream `s`: issues the launches between the begin and
 * end of a capture. Ends the capture even after a failure, because the stream
 * would be unusable otherwise. */
static pl_status graph(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_launches *l, struct api_stream *s,
                       struct api_graph **out, pl_err *err)
{
    pl_status status, ended;

    *out = NULL;
    PL_TRY(CALL(api, d, err, hipStreamBeginCapture, s, HIP_CAPTURE_OF_THREAD));
    status = take_down(api, d, l, s, err);
    ended =
        CALL(api, d, status == PL_OK ? err : NULL, hipStreamEndCapture, s, out);
    if (ended != PL_OK)
        *out = NULL;
    return status == PL_OK ? ended : status;
}

const struct stream_vendor vendor_hip = {
    .name = "hip",
    .title = "HIP",
    .variable = "PLAIT_LIBHIP",
    .path = paths,
    .remedy = "install AMD's ROCm",
    .least = "install AMD's ROCm 5.2 or later",
    .symbol = symbols,
    .call = symbols,
    .later = STREAM_CALL_COUNT,
    .attribute =
        {
            [ATTRIBUTE_CLOCK_KHZ] = HIP_CLOCK_KHZ,
            [ATTRIBUTE_MEMORY_CLOCK_KHZ] = HIP_MEMORY_CLOCK_KHZ,
            [ATTRIBUTE_MEMORY_BUS_BITS] = HIP_MEMORY_BUS_BITS,
            [ATTRIBUTE_N_MULTIPROCESSOR] = HIP_N_MULTIPROCESSOR,
            [ATTRIBUTE_MAPS_HOST_MEMORY] = HIP_MAPS_HOST_MEMORY,
            [ATTRIBUTE_REGISTERS_HOST_MEMORY] = NO_ATTRIBUTE,
            [ATTRIBUTE_STREAMS_KNOW_WORDS] = HIP_STREAMS_KNOW_WORDS,
        },
    .fence = (unsigned)HIP_EVENT_FENCED,
    .error_name = error_name,
    .error_text = error_text,
    .is_none = is_none,
    .none = none,
    .examine = examine,
    .refuses = refuses,
    .show = show,
    .transfers = transfers,
    .hold = hold,
    .drop = hold,
    .enter = enter,
    .leave = leave,
    .reach = reach,
    .text_open = text_open,
    .text_close = text_close,
    .text_program = text_program,
    .text_hash = text_hash,
    .copy = copy,
    .post = post,
    .wait = wait,
    .graph = graph,
};
