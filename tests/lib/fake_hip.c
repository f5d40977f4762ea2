/* A HIP library for tests, with its compiler: the fake CUDA library with HIP's
 * names, and HIP's own functions. A thread's device is the one that it has set.
 * From a source that requests a kernel, the compiler makes the code
 * "ARCH\n.entry KERNEL(". */
#define FAKE_HIP 1
#include "lib/fake_cuda.c"

/* ---- equal to CUDA's ----------------------------------------------------- */

#define ALIAS(name, cuda, suffix, hip, parameters)                             \
    EXPORT unsigned hip parameters __attribute__((alias(#cuda #suffix)));
STREAM_CALL_MAP(ALIAS)
#undef ALIAS

#define DECLARE(name, parameters) EXPORT unsigned name parameters;
HIP_CALL_MAP(DECLARE)
HIPRTC_CALL_MAP(DECLARE)
#undef DECLARE
EXPORT const char *hipGetErrorName(unsigned code);
EXPORT const char *hipGetErrorString(unsigned code);
EXPORT const char *hiprtcGetErrorString(unsigned code);

const char *hipGetErrorName(unsigned code)
{
    return code == API_OUT_OF_MEMORY ? "hipErrorOutOfMemory"
           : code == API_NO_DEVICE   ? "hipErrorNoDevice"
           : code == LAUNCH_FAILED   ? "hipErrorLaunchFailure"
           : code == 999             ? "hipErrorUnknown"
                                     : NULL;
}

const char *hipGetErrorString(unsigned code)
{
    (void)code;
    return "some text";
}

/* ---- devices ------------------------------------------------------------- */

unsigned hipSetDevice(int device)
{
    TAKE(is_device(call(F_hipSetDevice), device));
    if (!e)
        set_device = device;
    GIVE;
}

unsigned hipGetDevice(int *device)
{
    TAKE(call(F_hipGetDevice));
    if (!e)
        *device = set_device;
    GIVE;
}

unsigned hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    TAKE(is_device(call_inside(F_hipDeviceEnablePeerAccess), peer));
    if (!e)
        e = enable(peer, flags);
    GIVE;
}

unsigned hipExtMallocWithFlags(unsigned long long *out, size_t bytes,
                               unsigned flags)
{
    TAKE(call_inside(F_hipExtMallocWithFlags));
    if (!e && (bytes == 0 || flags != HIP_FINE_GRAINED))
        e = blame(INVALID_VALUE, "memory of flags %x", flags);
    if (!e) {
        struct thing *t = allocate(DEVICE_MEMORY, bytes);

        t->shared = true;
        *out = (uintptr_t)t->p;
    }
    GIVE;
}

/* Fills a struct as long as that of HIP version 6, in which the name of the
 * architecture is at offset ARCH. */
unsigned hipGetDeviceProperties(struct hip_properties *out, int device)
{
    enum { BYTES = 1472, ARCH = 1160 };
    char *p = (char *)out;
    TAKE(is_device(call(F_hipGetDeviceProperties), device));
    if (!e) {
        memset(p, 0, BYTES);
        strcpy(p, "Radeon gfx000 by name");
        strcpy(p + ARCH, devices[device].arch);
    }
    GIVE;
}

/* ---- streams ------------------------------------------------------------- */

unsigned hipMemcpyAsync(void *dst, const void *src, size_t bytes,
                        unsigned direction, struct api_stream *s)
{
    TAKE(call_inside(F_hipMemcpyAsync));
    if (!e && direction != HIP_COPY_TO_DEVICE &&
        direction != HIP_COPY_TO_HOST && direction != HIP_COPY_ANY)
        e = blame(INVALID_VALUE, "a copy of direction %u", direction);
    e = copy(e, dst, src, bytes, direction != HIP_COPY_TO_HOST,
             direction != HIP_COPY_TO_DEVICE, s);
    GIVE;
}

unsigned hipStreamWriteValue64(struct api_stream *s, void *at, uint64_t value,
                               unsigned flags)
{
    TAKE(call_inside(F_hipStreamWriteValue64));
    if (!e && (flags != 0 || !usable(s, STREAM, "a word") ||
               !((struct thing *)s)->fenced))
        e = blame(INVALID_VALUE, "a write without a fence");
    e = word(e, s, WRITE, (uintptr_t)at, value);
    GIVE;
}

unsigned hipStreamWaitValue64(struct api_stream *s, void *at, uint64_t value,
                              unsigned flags, uint64_t mask)
{
    TAKE(call_inside(F_hipStreamWaitValue64));
    if (!e && (flags != HIP_WAIT_AT_LEAST || mask != UINT64_MAX))
        e = blame(INVALID_VALUE, "a wait of flags %x", flags);
    e = word(e, s, WAIT, (uintptr_t)at, value);
    GIVE;
}

unsigned hipStreamBeginCapture(struct api_stream *s, unsigned mode)
{
    struct thing *t = (struct thing *)s;
    TAKE(call_inside(F_hipStreamBeginCapture));
    if (!e && !usable(s, STREAM, "hipStreamBeginCapture"))
        e = INVALID_HANDLE;
    if (!e && (t->captures || mode != HIP_CAPTURE_OF_THREAD))
        e = blame(INVALID_VALUE, "a stream captures already, or not so");
    if (!e)
        t->captures = add(GRAPH);
    GIVE;
}

/* Ends the capture even if it returns an error. A graph that is not returned is
 * freed. */
unsigned hipStreamEndCapture(struct api_stream *s, struct api_graph **out)
{
    struct thing *t = (struct thing *)s;
    TAKE(call_inside(F_hipStreamEndCapture));
    if (!usable(s, STREAM, "hipStreamEndCapture") || !t->captures) {
        e = blame(INVALID_VALUE, "a capture ends that has not begun");
    } else {
        if (e)
            drop(t->captures);
        else
            *out = (struct api_graph *)t->captures;
        t->captures = NULL;
    }
    GIVE;
}

/* ---- the compiler -------------------------------------------------------- */

struct hiprtc_program {
    char *text, *code; /* the source and the code made from it, owned */
};

const char *hiprtcGetErrorString(unsigned code)
{
    return code == 999 ? "HIPRTC_ERROR_UNKNOWN" : "HIPRTC_ERROR_COMPILATION";
}

unsigned hiprtcVersion(int *major, int *minor)
{
    TAKE(count(F_hiprtcVersion));
    *major = 9;
    *minor = 0;
    GIVE;
}

static int n_program;

unsigned hiprtcCreateProgram(struct hiprtc_program **out, const char *text,
                             const char *name, int n_header,
                             const char **header, const char **header_name)
{
    TAKE(count(F_hiprtcCreateProgram));
    (void)name;
    if (!e && (n_header != 0 || header || header_name))
        e = blame(INVALID_VALUE, "a program with headers");
    if (!e) {
        *out = calloc(1, sizeof **out);
        (*out)->text = strdup(text);
        n_program++;
    }
    GIVE;
}

/* Copies the name of the kernel that the first lines of the source request to
 * `name`. Returns false if they request none. */
static bool wanted(const char *text, char name[64])
{
    static const char line[] = "#define SOME_KERNELS\n#define WANT_%63s ~, "
                               "KERNEL_MADE\n";

    return sscanf(text, line, name) == 1 && strstr(text, "KERNEL_LEFT_OUT");
}

unsigned hiprtcCompileProgram(struct hiprtc_program *p, int n_option,
                              const char **option)
{
    static const char offload[] = "--offload-arch=";
    const char *arch = NULL;
    bool exact = false;
    char name[64], code[256];
    TAKE(count(F_hiprtcCompileProgram));
    for (int i = 0; i < n_option; i++) {
        if (strncmp(option[i], offload, sizeof offload - 1) == 0)
            arch = option[i] + sizeof offload - 1;
        exact |= strcmp(option[i], "-ffp-contract=off") == 0;
    }
    if (!e && (!arch || !exact || !wanted(p->text, name)))
        e = blame(INVALID_VALUE, "a text of no kernel, or for no device");
    if (!e) {
        snprintf(code, sizeof code, "%s\n.entry %s(", arch, name);
        p->code = strdup(code);
    }
    GIVE;
}

static const char said[] = "plait.hip:1: a warning\nplait.hip:2: error: that\n";

unsigned hiprtcGetProgramLogSize(struct hiprtc_program *p, size_t *n)
{
    TAKE(count(F_hiprtcGetProgramLogSize));
    (void)p;
    *n = sizeof said;
    GIVE;
}

unsigned hiprtcGetProgramLog(struct hiprtc_program *p, char *out)
{
    TAKE(count(F_hiprtcGetProgramLog));
    (void)p;
    memcpy(out, said, sizeof said);
    GIVE;
}

unsigned hiprtcGetCodeSize(struct hiprtc_program *p, size_t *n)
{
    TAKE(count(F_hiprtcGetCodeSize));
    if (!e)
        *n = strlen(p->code) + 1;
    GIVE;
}

unsigned hiprtcGetCode(struct hiprtc_program *p, char *out)
{
    TAKE(count(F_hiprtcGetCode));
    if (!e)
        strcpy(out, p->code);
    GIVE;
}

unsigned hiprtcDestroyProgram(struct hiprtc_program **p)
{
    TAKE(count(F_hiprtcDestroyProgram));
    n_program--;
    free((*p)->text);
    free((*p)->code);
    free(*p);
    *p = NULL;
    GIVE;
}

/* Counts live objects as n_live does, and programs of the compiler. */
static int n_live_hip(void)
{
    return n_live() + n_program;
}

/* The struct that the test program looks up by its name in the library. */
extern EXPORT const struct fake_cuda fake_hip;
const struct fake_cuda fake_hip = {
    break_at, refuse,  failed, n_live_hip, wrong, n_call,        set_free,
    swallow,  n_loose, hurry,  learn,      lose,  watch_longest, n_longest};
