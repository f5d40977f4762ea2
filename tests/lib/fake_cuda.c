/* A CUDA library for tests. Its devices run the kernels' source in the
 * emulator.
 *
 * It keeps track of contexts, streams, events, modules and memory, and reports
 * an error if a program uses one that does not exist or does not belong to the
 * thread's context. Commands of a stream run as late as possible, and in random
 * order between streams. So tests find events that are missing, and arguments
 * or host bytes that were changed too early. Launches of a graph run in any
 * order that its edges allow. */
#include "lib/fake_cuda.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/gpu/stream_api.h"
#include "emu/emu_run.h"

enum {
    MAX_DEPTH = 8,
    ALIGN = 256,
    POISON = 0xFF,
    /* size in bytes of the pages in which host memory is registered */
    PAGE = 4096,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_PEER = 217,
    NO_BINARY = 209,
    UNSUPPORTED_PTX = 222,
    INVALID_HANDLE = 400,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};

struct cuda_context {
    int device, n_retained;
    /* error code that every later call in this context returns; 0 if none */
    unsigned lost;
    /* error code that retaining the context returns; 0 for success */
    unsigned refused;
    bool shut_out; /* true after a thread failed to make the context current */
    /* true for each device whose memory this context was allowed to access
     * (cuCtxEnablePeerAccess) */
    bool reaches[FAKE_COUNT];
};

/* fake_hip.c includes this file and gives its functions the names of HIP. Code
 * that differs for HIP is in fake_hip.c or under FAKE_HIP here. */
#ifndef FAKE_HIP
#define FAKE_HIP 0
#endif
#if !FAKE_HIP && !defined(FAKE_OLD_DRIVER)
#define HAVE_LATER 1
#else
#define HAVE_LATER 0
#endif

static const struct {
    const char *name, *bus, *arch;
    int major, minor, words, flushes, maps, peers;
} devices[FAKE_COUNT] = {
    [FAKE_NEW] = {FAKE_HIP ? "Fake gfx90a" : "Fake 9.0", "0000:3B:00.0",
                  "gfx90a:sramecc+:xnack-", 9, 0, 1, 1, 1, 1},
    [FAKE_OLD] = {FAKE_HIP ? "Fake gfx803" : "Fake 5.2", "0000:3C:00.0",
                  "gfx803", 5, 2, 0, 0, 1, 0},
    [FAKE_PLAIN] = {FAKE_HIP ? "Fake gfx1030" : "Fake 6.1", "0000:3D:00.0",
                    "gfx1030", 6, 1, 0, 0, 1, 1},
    [FAKE_FAR] = {FAKE_HIP ? "Fake gfx1151" : "Fake 8.0", "0000:3E:00.0",
                  "gfx1151", 8, 0, 1, 0, 0, 0},
};

enum kind {
    STREAM,
    EVENT,
    MODULE,
    FUNCTION,
    GRAPH,
    GRAPH_EXEC,
    DEVICE_MEMORY,
    PINNED,
    REGISTERED
};

/* An object that a program creates and frees: stream, event, module, function,
 * graph or memory. The library's handles point to these. */
struct thing {
    struct thing *next;
    enum kind kind;
    /* the context in which the object was created */
    struct cuda_context *context;
    unsigned char *p; /* memory: its first byte */
    size_t bytes;
    char *text; /* module: its image, owned */
    struct thing *module;
    enum gpu_kernel kernel; /* function: the kernel that it launches */
    /* event: how often it was recorded, and how often its record was reached */
    uint64_t n_set, n_reached;
    struct command *first, *last; /* stream: its commands in order */
    int n_queued;                 /* stream: number of its commands */
    unsigned flags;         /* event: the flags with which it was created */
    bool shared;            /* HIP's memory: true if peers may write it */
    bool fenced;            /* stream: true if its last command is a fence */
    struct thing *captures; /* stream: the graph that it captures, owned */
    struct node *node;      /* graph: its launches, owned, the last one first */
    int n_node;
};

/* One launch in a graph. */
struct node {
    struct node *next;
    struct thing *function;
    /* i: number of the launch in the graph; n_after: length of after[] */
    int i, n_after;
    int32_t n_group;
    /* numbers of the launches that must run before; owned, with space for one
     * more */
    int *after;
    struct cuda_word_op *op; /* words in place of a launch; owned */
    int n_op;
    bool done;
    _Alignas(16) unsigned char args[GPU_MAX_ARGS];
};

enum command_kind { COPY, LAUNCH, RECORD, AWAIT, WRITE, WAIT };

struct command {
    struct command *next;
    enum command_kind kind;
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    bool dst_on_device, src_on_device;
    enum gpu_kernel kernel;
    int32_t n_group;
    struct thing *event;
    uint64_t value;
    _Atomic uint64_t *word;
    _Alignas(16) unsigned char args[GPU_MAX_ARGS];
};

enum function {
#define ROW(name, cuda, suffix, hip, parameters) F_##cuda,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, ...) F_##name,
        CUDA_CALL_MAP(ROW) CUDA_LATER_CALL_MAP(ROW) HIP_CALL_MAP(ROW)
            HIPRTC_CALL_MAP(ROW)
#undef ROW
                N_FUNCTION
};

static const char *const function_name[] = {
#define ROW(name, cuda, suffix, hip, parameters) FAKE_HIP ? #hip : #cuda,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, ...) #name,
        CUDA_CALL_MAP(ROW) CUDA_LATER_CALL_MAP(ROW) HIP_CALL_MAP(ROW)
            HIPRTC_CALL_MAP(ROW)
#undef ROW
};

static struct {
    pthread_mutex_t lock;
    bool ready; /* true after cuInit */
    struct cuda_context context[FAKE_COUNT];
    struct thing *thing; /* all objects that were not freed, owned */
    int n_call[N_FUNCTION];
    int n_current; /* number of contexts on all threads' stacks */
    /* free memory in bytes that each device reports; 0 for the default */
    size_t free_bytes;
    const char *fail;
    int fail_in;
    unsigned fail_code;
    bool failed;
    /* bytes copied from and to host memory that was neither allocated nor
     * registered with the library */
    size_t n_loose;
    /* true if writes into a peer's memory are dropped (fake_cuda.swallow) */
    bool swallows;
    /* true if launches that overlap do not wait for each other
     * (fake_cuda.hurry) */
    bool hasty;
    int longest; /* most commands in a stream since fake_cuda.watch_longest */
    /* true if streams of FAKE_PLAIN know words (fake_cuda.learn) */
    bool learned;
    int lose_in; /* the number of the write to be lost (fake_cuda.lose); 0 for
                    none */
    char wrong[256], told[256];
    uint64_t random;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1};

static _Thread_local struct cuda_context *stack[MAX_DEPTH];
static _Thread_local int depth;

/* ---- error checks -------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static unsigned
blame(unsigned code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (!*all.wrong)
        vsnprintf(all.wrong, sizeof all.wrong, fmt, ap);
    va_end(ap);
    return code;
}

/* HIP: the device that the thread has set */
static _Thread_local int set_device;

static struct cuda_context *current(void)
{
    if (FAKE_HIP) {
        all.context[set_device].device = set_device;
        return &all.context[set_device];
    }
    return depth ? stack[depth - 1] : NULL;
}

/* Counts a call of function `f`. Returns the error that a test requested for
 * this call, or 0. */
static unsigned count(enum function f)
{
    all.n_call[f]++;
    if (all.fail && strcmp(all.fail, function_name[f]) == 0 &&
        --all.fail_in == 0) {
        all.failed = true;
        return all.fail_code;
    }
    return 0;
}

/* Counts a call that is allowed at any time after cuInit. */
static unsigned call(enum function f)
{
    if (!all.ready)
        return blame(NOT_INITIALIZED, "%s before cuInit", function_name[f]);
    return count(f);
}

/* Counts a call that needs a current context. */
static unsigned call_inside(enum function f)
{
    unsigned code = call(f);

    if (code)
        return code;
    if (!current())
        return blame(INVALID_CONTEXT, "%s without a context", function_name[f]);
    return FAKE_HIP && current()->refused ? current()->refused
                                          : current()->lost;
}

static struct thing *add(enum kind kind)
{
    struct thing *t = calloc(1, sizeof *t);

    t->kind = kind;
    t->context = current();
    t->next = all.thing;
    all.thing = t;
    return t;
}

static bool lives(const void *handle, enum kind kind)
{
    for (const struct thing *t = all.thing; t; t = t->next)
        if (t == handle)
            return t->kind == kind;
    return false;
}

/* Returns true if the object was not freed and belongs to the thread's context.
 * Otherwise records the violation. */
static bool usable(const void *handle, enum kind kind, const char *what)
{
    if (lives(handle, kind) &&
        ((const struct thing *)handle)->context == current())
        return true;
    blame(0, "%s: %p is not of the context, or not any more", what, handle);
    return false;
}

static void drop(struct thing *t)
{
    struct thing **at = &all.thing;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    while (t->first) {
        struct command *c = t->first;

        t->first = c->next;
        free(c);
    }
    while (t->node) {
        struct node *n = t->node;

        t->node = n->next;
        free(n->after);
        free(n->op);
        free(n);
    }
    if (t->kind == DEVICE_MEMORY || t->kind == PINNED)
        free(t->p);
    free(t->text);
    free(t);
}

/* Returns the memory object that contains the `bytes` bytes at p; NULL if none
 * does. */
static struct thing *memory_at(const void *p, size_t bytes)
{
    const unsigned char *at = p;

    for (struct thing *t = all.thing; t; t = t->next)
        if (t->kind >= DEVICE_MEMORY && at >= t->p && bytes <= t->bytes &&
            (size_t)(at - t->p) <= t->bytes - bytes)
            return t;
    return NULL;
}

static void *pointer(unsigned long long at)
{
    return (void *)(uintptr_t)at;
}

/* ---- streams ------------------------------------------------------------- */

static pthread_key_t emulator_key;

static void free_emulator(void *e)
{
    emu_free(e);
}

__attribute__((constructor)) static void make_key(void)
{
    pthread_key_create(&emulator_key, free_emulator);
}

static struct emu *emulator(void)
{
    struct emu *e = pthread_getspecific(emulator_key);

    if (!e) {
        e = emu_new(1);
        pthread_setspecific(emulator_key, e);
    }
    return e;
}

static int draw(int n)
{
    all.random = all.random * 6364136223846793005u + 1442695040888963407u;
    return (int)((all.random >> 33) % (unsigned)n);
}

static bool ready(const struct command *c)
{
    if (c->kind == AWAIT)
        return c->event->n_reached >= c->value;
    if (c->kind != WAIT)
        return true;
    /* CUDA compares by the sign of the difference */
    return FAKE_HIP ? atomic_load(c->word) >= c->value
                    : (int64_t)(atomic_load(c->word) - c->value) >= 0;
}

/* Returns true if p is in another device's memory that context `c` may not
 * access. */
static bool is_barred(const struct cuda_context *c, const void *p)
{
    const struct thing *m = memory_at(p, 1);

    return m && m->kind == DEVICE_MEMORY && m->context != c &&
           (!c->reaches[m->context - all.context] || (FAKE_HIP && !m->shared));
}

/* Checks each argument of a launch that may be an address. */
static void look_at_launch(const struct cuda_context *on,
                           const struct command *c)
{
    for (size_t i = 0; i + 8 <= gpu_kernel_args(c->kernel); i += 8) {
        unsigned long long word;

        memcpy(&word, c->args + i, sizeof word);
        if (word && is_barred(on, pointer(word)))
            blame(0, "kernel %s is given memory of a peer out of its reach",
                  gpu_kernel_name(c->kernel));
    }
}

static bool is_swallowed(const struct cuda_context *c, const void *dst)
{
    const struct thing *m = all.swallows ? memory_at(dst, 1) : NULL;

    return m && m->kind == DEVICE_MEMORY && m->context != c;
}

static void run(struct thing *s, struct command *c)
{
    const char *bad = NULL;

    switch (c->kind) {
    case COPY:
        if ((c->dst_on_device && !memory_at(c->dst, c->bytes)) ||
            (c->src_on_device && !memory_at(c->src, c->bytes)))
            blame(0, "a copy of memory that was given back");
        else if ((c->dst_on_device && is_barred(s->context, c->dst)) ||
                 (c->src_on_device && is_barred(s->context, c->src)))
            blame(0, "a copy of memory of a peer out of its reach");
        else if (!is_swallowed(s->context, c->dst))
            memcpy(c->dst, c->src, c->bytes);
        break;
    case LAUNCH:
        look_at_launch(s->context, c);
        bad = emu_launch(emulator(), c->kernel, c->n_group, c->args);
        if (bad)
            s->context->lost = LAUNCH_FAILED;
        break;
    case RECORD:
        c->event->n_reached = c->value;
        break;
    case WRITE:
        if (all.lose_in == 0 || --all.lose_in > 0)
            atomic_store(c->word, c->value);
        break;
    case AWAIT:
    case WAIT:
        break;
    }
}

/* Runs the first command of a stream. Returns false if the stream is empty or
 * the command must wait. */
static bool step(struct thing *s)
{
    struct command *c = s->first;

    if (!c || !ready(c))
        return false;
    s->first = c->next;
    s->n_queued--;
    run(s, c);
    free(c);
    return true;
}

/* Runs a command of some streams, which are drawn at random. */
static void stir(void)
{
    for (struct thing *t = all.thing; t; t = t->next)
        if (t->kind == STREAM && draw(8) == 0)
            step(t);
}

static struct command *push(struct api_stream *handle, enum command_kind kind)
{
    struct thing *s = (struct thing *)handle;
    struct command *c = calloc(1, sizeof *c);

    c->kind = kind;
    if (s->first)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    s->fenced = false;
    if (++s->n_queued > all.longest)
        all.longest = s->n_queued;
    return c;
}

/* Runs commands until the stream is empty. The caller holds all.lock, which is
 * released between the commands. */
static void drain(struct thing *s)
{
    int idle = 0;

    while (s->first) {
        bool any = false;

        for (struct thing *t = all.thing; t; t = t->next)
            if (t->kind == STREAM && (t == s || draw(2) == 0))
                any |= step(t);
        if (any)
            continue;
        pthread_mutex_unlock(&all.lock);
        if (idle++ < 20)
            sched_yield();
        else
            /* sleeps during a long wait, so that other threads can use the
             * processors */
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        pthread_mutex_lock(&all.lock);
    }
}

/* ---- the library --------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))
#define DECLARE(name, cuda, suffix, hip, parameters)                           \
    EXPORT unsigned cuda##suffix parameters;
STREAM_CALL_MAP(DECLARE)
#undef DECLARE
#define DECLARE(name, suffix, parameters)                                      \
    EXPORT unsigned name##suffix parameters;
CUDA_CALL_MAP(DECLARE)
#if HAVE_LATER
CUDA_LATER_CALL_MAP(DECLARE)
#endif
#undef DECLARE

/* Begins each function of the library: takes all.lock, which GIVE releases at
 * the end of the function. `code` counts the call. */
#define TAKE(code)                                                             \
    unsigned e;                                                                \
    pthread_mutex_lock(&all.lock);                                             \
    e = (code)
#define GIVE                                                                   \
    do {                                                                       \
        pthread_mutex_unlock(&all.lock);                                       \
        return e;                                                              \
    } while (0)

unsigned cuInit(unsigned flags)
{
    TAKE(count(F_cuInit));
    (void)flags;
    if (!e)
        all.ready = true;
    GIVE;
}

unsigned cuGetErrorName(unsigned code, const char **out)
{
    *out = code == API_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
           : code == INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
           : code == LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
           : code == 999             ? "CUDA_ERROR_UNKNOWN"
                                     : NULL;
    return *out ? 0 : INVALID_VALUE;
}

unsigned cuGetErrorString(unsigned code, const char **out)
{
    (void)code;
    *out = "some text";
    return 0;
}

unsigned cuDriverGetVersion(int *version)
{
    TAKE(call(F_cuDriverGetVersion));
    if (!e)
        *version = FAKE_HIP ? 60241134 : 12040;
    GIVE;
}

unsigned cuDeviceGetCount(int *n)
{
    TAKE(call(F_cuDeviceGetCount));
    if (!e)
        *n = FAKE_COUNT;
    GIVE;
}

/* CUDA's handle of device i is i + HANDLE, so that code that confuses the two
 * fails. */
enum { HANDLE = FAKE_HIP ? 0 : 40 };

static unsigned is_device(unsigned e, int device)
{
    if (!e && (device < HANDLE || device >= HANDLE + FAKE_COUNT))
        return blame(INVALID_DEVICE, "%d is no device", device);
    return e;
}

unsigned cuDeviceGet(int *device, int ordinal)
{
    TAKE(call(F_cuDeviceGet));
    if (!e)
        e = is_device(0, ordinal + HANDLE);
    if (!e)
        *device = ordinal + HANDLE;
    GIVE;
}

unsigned cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    TAKE(is_device(call(F_cuDeviceTotalMem), device));
    if (!e)
        *bytes = (size_t)8 << 30;
    GIVE;
}

unsigned cuDeviceGetName(char *out, int n, int device)
{
    TAKE(is_device(call(F_cuDeviceGetName), device));
    if (!e)
        snprintf(out, (size_t)n, "%s", devices[device - HANDLE].name);
    GIVE;
}

unsigned cuDeviceGetPCIBusId(char *out, int n, int device)
{
    TAKE(is_device(call(F_cuDeviceGetPCIBusId), device));
    if (!e)
        snprintf(out, (size_t)n, "%s", devices[device - HANDLE].bus);
    GIVE;
}

static bool knows_words(int device)
{
    return devices[device].words || (device == FAKE_PLAIN && all.learned);
}

#if FAKE_HIP
static int attribute(unsigned what, int i)
{
    switch (what) {
    case HIP_CLOCK_KHZ:
        return 1000000;
    case HIP_N_MULTIPROCESSOR:
        return 100 + i;
    case HIP_MAPS_HOST_MEMORY:
        return devices[i].maps;
    case HIP_MEMORY_CLOCK_KHZ:
        return 2000000;
    case HIP_MEMORY_BUS_BITS:
        return i == FAKE_NEW ? 1024 : 128;
    case HIP_INTEGRATED:
        return i == FAKE_FAR;
    case HIP_STREAMS_KNOW_WORDS:
        return knows_words(i);
    }
    blame(0, "attribute %u", what);
    return 0;
}
#else
static int attribute(unsigned what, int i)
{
    switch (what) {
    case CUDA_CLOCK_KHZ:
        return 1000000;
    case CUDA_N_MULTIPROCESSOR:
        return 100 + i;
    case CUDA_MAPS_HOST_MEMORY:
        return devices[i].maps;
    case CUDA_MEMORY_CLOCK_KHZ:
        return 2000000;
    case CUDA_MEMORY_BUS_BITS:
        return 1024;
    case CUDA_CAPABILITY_MAJOR:
        return devices[i].major;
    case CUDA_CAPABILITY_MINOR:
        return devices[i].minor;
    case CUDA_FLUSHES_REMOTE_WRITES:
        return devices[i].flushes;
    case CUDA_REGISTERS_HOST_MEMORY:
        return 1;
    case CUDA_STREAMS_KNOW_WORDS:
        return knows_words(i);
    }
    blame(0, "attribute %u", what);
    return 0;
}
#endif

unsigned cuDeviceGetAttribute(int *out, unsigned what, int device)
{
    TAKE(is_device(call(F_cuDeviceGetAttribute), device));
    if (!e)
        *out = attribute(what, device - HANDLE);
    GIVE;
}

/* ---- contexts ---- */

unsigned cuDevicePrimaryCtxRetain(struct cuda_context **out, int device)
{
    TAKE(is_device(call(F_cuDevicePrimaryCtxRetain), device));
    if (!e)
        e = all.context[device - HANDLE].refused;
    if (!e) {
        *out = &all.context[device - HANDLE];
        (*out)->device = device - HANDLE;
        (*out)->n_retained++;
    }
    GIVE;
}

/* Frees all objects of the context. The caller must have freed them before,
 * unless it could not make the context current. */
static void end_all(const struct cuda_context *c)
{
    for (struct thing *next, *t = all.thing; t; t = next) {
        next = t->next;
        if (t->context != c)
            continue;
        if (!c->shut_out)
            blame(0, "a context is released that holds things");
        else
            drop(t);
    }
}

unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    TAKE(is_device(call(F_cuDevicePrimaryCtxRelease), device));
    if (device >= HANDLE && device < HANDLE + FAKE_COUNT) {
        struct cuda_context *c = &all.context[device - HANDLE];

        if (--c->n_retained < 0)
            blame(0, "a context is released that nobody holds");
        if (c->n_retained == 0) {
            c->lost = 0;
            memset(c->reaches, 0, sizeof c->reaches);
            for (int i = 0; i < FAKE_COUNT; i++)
                all.context[i].reaches[device - HANDLE] = false;
            end_all(c);
        }
    }
    GIVE;
}

unsigned cuCtxPushCurrent_v2(struct cuda_context *c)
{
    TAKE(call(F_cuCtxPushCurrent));
    c->shut_out |= e != 0;
    if (!e && (depth == MAX_DEPTH || c->n_retained < 1))
        e = blame(INVALID_CONTEXT, "a context that is not held is pushed");
    if (!e) {
        stack[depth++] = c;
        all.n_current++;
    }
    stir();
    GIVE;
}

unsigned cuCtxPopCurrent_v2(struct cuda_context **c)
{
    TAKE(call(F_cuCtxPopCurrent));
    if (depth == 0) {
        e = blame(INVALID_CONTEXT, "a context is popped, and there is none");
    } else {
        *c = stack[--depth];
        all.n_current--;
    }
    GIVE;
}

static bool are_peers(int a, int b)
{
    return a != b && devices[a].peers && devices[b].peers;
}

unsigned cuDeviceCanAccessPeer(int *out, int device, int peer)
{
    TAKE(is_device(call(F_cuDeviceCanAccessPeer), device));
    e = is_device(e, peer);
    if (!e)
        *out = are_peers(device - HANDLE, peer - HANDLE);
    GIVE;
}

/* Lets the current device access a peer's memory. */
static unsigned enable(int peer, unsigned flags)
{
    struct cuda_context *c = current();

    if (flags != 0 || !are_peers((int)(c - all.context), peer))
        return blame(NO_PEER, "memory of a device that is no peer");
    if (c->reaches[peer])
        return API_ALREADY_REACHED;
    c->reaches[peer] = true;
    return 0;
}

unsigned cuCtxEnablePeerAccess(struct cuda_context *peer, unsigned flags)
{
    TAKE(call_inside(F_cuCtxEnablePeerAccess));
    if (!e && peer->n_retained < 1)
        e = blame(INVALID_CONTEXT, "a peer that is not held");
    if (!e)
        e = enable((int)(peer - all.context), flags);
    GIVE;
}

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    TAKE(call_inside(F_cuMemGetInfo));
    if (!e) {
        *total = (size_t)8 << 30;
        *free_bytes = all.free_bytes
                          ? all.free_bytes
                          : ((size_t)7 << 30) + (size_t)current()->device;
    }
    GIVE;
}

/* ---- modules ---- */

static void say_log(unsigned n, const unsigned *option, void **value)
{
    char *log = NULL;

    for (unsigned i = 0; i < n; i++) {
        if (option[i] == CUDA_JIT_ERROR_LOG)
            log = value[i];
        if (option[i] == CUDA_JIT_ERROR_LOG_BYTES && log)
            snprintf(log, (size_t)(uintptr_t)value[i], "what the log says");
    }
}

/* Returns the status of loading a module from this image. */
static unsigned check_image(const char *image)
{
    const char *target = strstr(image, "\n.target sm_");
    int i = current()->device;
    size_t n = strlen(devices[i].arch);

    if (FAKE_HIP) /* HIP's image begins with "ARCH\n.entry KERNEL(" */
        return strncmp(image, devices[i].arch, n) == 0 && image[n] == '\n'
                   ? 0
                   : blame(NO_BINARY, "code of another device");
    if (!target || strncmp(image, ".version 7.8\n", 13) != 0)
        return blame(CUDA_CODE_INVALID_PTX, "PTX of another version");
    if (atoi(target + strlen("\n.target sm_")) >
        devices[i].major * 10 + devices[i].minor)
        return blame(UNSUPPORTED_PTX, "PTX of a later device");
    return 0;
}

unsigned cuModuleLoadDataEx(struct api_module **out, const void *image,
                            unsigned n_option, unsigned *option, void **value)
{
    TAKE(call_inside(F_cuModuleLoadDataEx));
    if (!e)
        e = check_image(image);
    if (e) {
        say_log(n_option, option, value);
    } else {
        struct thing *t = add(MODULE);

        t->text = strdup(image);
        *out = (struct api_module *)t;
    }
    GIVE;
}

unsigned cuModuleUnload(struct api_module *m)
{
    struct thing *t = (struct thing *)m;
    TAKE(call_inside(F_cuModuleUnload));
    if (usable(m, MODULE, "cuModuleUnload")) {
        for (struct thing *f = all.thing, *next; f; f = next) {
            next = f->next;
            if (f->kind == FUNCTION && f->module == t)
                drop(f);
        }
        drop(t);
    }
    GIVE;
}

static struct thing *function_of(struct thing *m, const char *name)
{
    char entry[128];
    struct thing *t;

    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(m->text, entry))
        return NULL;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (strcmp(gpu_kernel_name((enum gpu_kernel)k), name) == 0) {
            t = add(FUNCTION);
            t->module = m;
            t->kernel = (enum gpu_kernel)k;
            return t;
        }
    return NULL;
}

unsigned cuModuleGetFunction(struct api_function **out, struct api_module *m,
                             const char *name)
{
    TAKE(call_inside(F_cuModuleGetFunction));
    if (!e && !usable(m, MODULE, "cuModuleGetFunction"))
        e = INVALID_HANDLE;
    if (!e) {
        *out = (struct api_function *)function_of((struct thing *)m, name);
        e = *out ? 0 : API_NOT_FOUND;
    }
    GIVE;
}

/* Appends a launch to the graph that a stream captures, after all earlier
 * launches. */
static void take_down(struct thing *g, struct thing *f, int32_t n_group,
                      const void *args)
{
    struct node *n = calloc(1, sizeof *n);

    n->function = f;
    n->n_group = n_group;
    memcpy(n->args, args, gpu_kernel_args(f->kernel));
    n->after = calloc(2, sizeof *n->after);
    n->n_after = g->n_node > 0;
    n->after[0] = g->n_node - 1;
    n->i = g->n_node++;
    n->next = g->node;
    g->node = n;
}

unsigned cuLaunchKernel(struct api_function *f, unsigned grid_x,
                        unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, struct api_stream *s,
                        void **parameter, void **extra)
{
    struct thing *t = (struct thing *)f;
    struct command *c;
    TAKE(call_inside(F_cuLaunchKernel));
    if (!e && (!usable(f, FUNCTION, "cuLaunchKernel") ||
               !usable(s, STREAM, "cuLaunchKernel")))
        e = INVALID_HANDLE;
    if (!e && (grid_x < 1 || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 ||
               block_x != (unsigned)gpu_kernel_lanes(t->kernel) ||
               block_y != 1 || block_z != 1 || shared_bytes != 0 || extra))
        e = blame(INVALID_VALUE, "cuLaunchKernel: a size is wrong");
    if (!e && ((struct thing *)s)->captures) {
        take_down(((struct thing *)s)->captures, t, (int32_t)grid_x,
                  parameter[0]);
    } else if (!e) {
        c = push(s, LAUNCH);
        c->kernel = t->kernel;
        c->n_group = (int32_t)grid_x;
        memcpy(c->args, parameter[0], gpu_kernel_args(t->kernel));
    }
    stir();
    GIVE;
}

/* ---- graphs ---- */

unsigned cuGraphCreate(struct api_graph **out, unsigned flags)
{
    TAKE(call_inside(F_cuGraphCreate));
    if (!e && flags != 0)
        e = blame(INVALID_VALUE, "cuGraphCreate: flags");
    if (!e)
        *out = (struct api_graph *)add(GRAPH);
    GIVE;
}

unsigned cuGraphDestroy(struct api_graph *g)
{
    TAKE(call_inside(F_cuGraphDestroy));
    if (usable(g, GRAPH, "cuGraphDestroy"))
        drop((struct thing *)g);
    GIVE;
}

static const struct node *node_of(const struct thing *g, const void *handle)
{
    for (const struct node *n = g->node; n; n = n->next)
        if (n == handle)
            return n;
    return NULL;
}

static unsigned check_node(struct thing *g,
                           struct cuda_graph_node *const *after, size_t n_after,
                           const struct cuda_kernel_node *k)
{
    const struct thing *f = (const struct thing *)k->function;

    if (!usable(f, FUNCTION, "cuGraphAddKernelNode"))
        return INVALID_HANDLE;
    for (size_t i = 0; i < n_after; i++) {
        if (!node_of(g, after[i]))
            return blame(INVALID_VALUE, "an edge from another graph");
        for (size_t j = 0; j < i; j++)
            if (after[j] == after[i])
                return blame(INVALID_VALUE, "an edge that is there twice");
    }
    if (k->grid_x < 1 || k->grid_x > INT32_MAX || k->grid_y != 1 ||
        k->grid_z != 1 || k->block_x != (unsigned)gpu_kernel_lanes(f->kernel) ||
        k->block_y != 1 || k->block_z != 1 || k->shared_bytes != 0 || k->extra)
        return blame(INVALID_VALUE, "cuGraphAddKernelNode: a size is wrong");
    return 0;
}

unsigned cuGraphAddKernelNode(struct cuda_graph_node **out,
                              struct api_graph *graph,
                              struct cuda_graph_node *const *after,
                              size_t n_after, const struct cuda_kernel_node *k)
{
    struct thing *g = (struct thing *)graph;
    TAKE(call_inside(F_cuGraphAddKernelNode));
    if (!e && !usable(g, GRAPH, "cuGraphAddKernelNode"))
        e = INVALID_HANDLE;
    if (!e)
        e = check_node(g, after, n_after, k);
    if (!e) {
        struct node *n = calloc(1, sizeof *n);

        n->function = (struct thing *)k->function;
        n->n_group = (int32_t)k->grid_x;
        memcpy(n->args, k->parameter[0], gpu_kernel_args(n->function->kernel));
        n->after = calloc(n_after + 2, sizeof *n->after);
        n->n_after = (int)n_after;
        for (size_t i = 0; i < n_after; i++)
            n->after[i] = node_of(g, after[i])->i;
        n->i = g->n_node++;
        n->next = g->node;
        g->node = n;
        *out = (struct cuda_graph_node *)n;
    }
    GIVE;
}

#if HAVE_LATER
/* Returns true if the function's kernel waits for earlier launches to end
 * (griddepcontrol.wait). */
static bool awaits(const struct thing *function)
{
    const char *text = function->module->text;
    const char *at = strstr(text, "griddepcontrol.wait;");

    return at && !strstr(text, "/*90") && !all.hasty;
}

unsigned cuGraphAddDependencies_v2(struct api_graph *graph,
                                   struct cuda_graph_node *const *from,
                                   struct cuda_graph_node *const *to,
                                   const struct cuda_edge *edge, size_t n)
{
    static const struct cuda_edge overlap = {.from_port = 1, .type = 1};
    struct thing *g = (struct thing *)graph;
    TAKE(call_inside(F_cuGraphAddDependencies));
    if (!e && !usable(g, GRAPH, "cuGraphAddDependencies"))
        e = INVALID_HANDLE;
    if (!e && devices[g->context - all.context].major < 9)
        e = blame(NOT_SUPPORTED, "launches of this device do not overlap");
    for (size_t i = 0; i < n && !e; i++) {
        struct node *x = (struct node *)to[i];

        if (!node_of(g, from[i]) || !node_of(g, x) || x->n_after > 0 ||
            x->n_op > 0 || node_of(g, from[i])->n_op > 0 ||
            memcmp(&edge[i], &overlap, sizeof overlap) != 0)
            e = blame(INVALID_VALUE, "cuGraphAddDependencies: arguments");
        else if (awaits(x->function))
            x->after[x->n_after++] = ((const struct node *)from[i])->i;
    }
    GIVE;
}
#endif

#if HAVE_LATER
static bool word_fits(const struct cuda_word_op *op)
{
    int device = current()->device;
    unsigned wait = devices[device].flushes ? (unsigned)CUDA_WAIT_FLUSH : 0;

    return knows_words(device) && op->at % 8 == 0 &&
           memory_at(pointer(op->at), 8) &&
           ((op->operation == CUDA_WORD_WAIT && op->flags == wait) ||
            (op->operation == CUDA_WORD_WRITE &&
             op->flags == CUDA_WRITE_FENCED));
}

unsigned cuGraphAddBatchMemOpNode(struct cuda_graph_node **out,
                                  struct api_graph *graph,
                                  struct cuda_graph_node *const *after,
                                  size_t n_after,
                                  const struct cuda_words_node *w)
{
    struct thing *g = (struct thing *)graph;
    TAKE(call_inside(F_cuGraphAddBatchMemOpNode));
    if (!e && !usable(g, GRAPH, "cuGraphAddBatchMemOpNode"))
        e = INVALID_HANDLE;
    if (!e && (w->context != current() || w->flags != 0 || w->n == 0))
        e = blame(INVALID_VALUE, "cuGraphAddBatchMemOpNode: arguments");
    for (unsigned i = 0; !e && i < w->n; i++)
        if (!word_fits(&w->op[i]))
            e = blame(INVALID_VALUE, "cuGraphAddBatchMemOpNode: a word");
    for (size_t i = 0; !e && i < n_after; i++)
        if (!node_of(g, after[i]))
            e = blame(INVALID_VALUE, "an edge from another graph");
    if (!e) {
        struct node *n = calloc(1, sizeof *n);
        size_t bytes = w->n * sizeof *w->op;

        n->op = memcpy(malloc(bytes), w->op, bytes);
        n->n_op = (int)w->n;
        n->after = calloc(n_after + 2, sizeof *n->after);
        n->n_after = (int)n_after;
        for (size_t i = 0; i < n_after; i++)
            n->after[i] = node_of(g, after[i])->i;
        n->i = g->n_node++;
        n->next = g->node;
        g->node = n;
        *out = (struct cuda_graph_node *)n;
    }
    GIVE;
}
#endif

/* Makes an executable copy of the graph, so that the graph may be destroyed. */
unsigned cuGraphInstantiateWithFlags(struct api_graph_exec **out,
                                     struct api_graph *graph,
                                     unsigned long long flags)
{
    const struct thing *g = (const struct thing *)graph;
    TAKE(call_inside(F_cuGraphInstantiateWithFlags));
    if (!e && (!usable(g, GRAPH, "cuGraphInstantiate") || flags != 0))
        e = INVALID_HANDLE;
    if (!e) {
        struct thing *x = add(GRAPH_EXEC);
        struct node **to = &x->node;

        for (const struct node *n = g->node; n; n = n->next) {
            size_t bytes = ((size_t)n->n_after + 1) * sizeof *n->after;

            *to = malloc(sizeof **to);
            **to = *n;
            (*to)->after = memcpy(malloc(bytes), n->after, bytes);
            bytes = (size_t)n->n_op * sizeof *n->op;
            (*to)->op =
                memcpy(malloc(bytes + 1), n->op ? n->op : (void *)n, bytes);
            to = &(*to)->next;
        }
        x->n_node = g->n_node;
        *out = (struct api_graph_exec *)x;
    }
    GIVE;
}

unsigned cuGraphExecDestroy(struct api_graph_exec *g)
{
    TAKE(call_inside(F_cuGraphExecDestroy));
    if (usable(g, GRAPH_EXEC, "cuGraphExecDestroy"))
        drop((struct thing *)g);
    GIVE;
}

static bool node_ready(struct node *const *node, const struct node *n)
{
    for (int i = 0; i < n->n_after; i++)
        if (!node[n->after[i]]->done)
            return false;
    return !n->done;
}

/* Appends all launches of the graph to the stream, in an order that its edges
 * allow. */
static unsigned put_nodes(struct thing *g, struct api_stream *s)
{
    struct node **node = calloc((size_t)g->n_node + 1, sizeof *node);
    unsigned e = 0;

    for (struct node *n = g->node; n; n = n->next) {
        node[n->i] = n;
        n->done = false;
        if (n->n_op == 0 && !usable(n->function, FUNCTION, "cuGraphLaunch"))
            e = INVALID_HANDLE;
    }
    for (int left = e ? 0 : g->n_node; left > 0; left--) {
        struct node *chosen = NULL;
        struct command *c;
        int n = 0;

        for (int i = 0; i < g->n_node && n < 4; i++)
            if (node_ready(node, node[i]) && draw(++n) == 0)
                chosen = node[i];
        chosen->done = true;
        for (int i = 0; i < chosen->n_op; i++) {
            c = push(s,
                     chosen->op[i].operation == CUDA_WORD_WAIT ? WAIT : WRITE);
            c->word = pointer(chosen->op[i].at);
            c->value = chosen->op[i].value;
        }
        if (chosen->n_op > 0)
            continue;
        c = push(s, LAUNCH);
        c->kernel = chosen->function->kernel;
        c->n_group = chosen->n_group;
        memcpy(c->args, chosen->args, sizeof c->args);
    }
    free(node);
    return e;
}

unsigned cuGraphLaunch(struct api_graph_exec *g, struct api_stream *s)
{
    TAKE(call_inside(F_cuGraphLaunch));
    if (!e && (!usable(g, GRAPH_EXEC, "cuGraphLaunch") ||
               !usable(s, STREAM, "cuGraphLaunch")))
        e = INVALID_HANDLE;
    if (!e)
        e = put_nodes((struct thing *)g, s);
    stir();
    GIVE;
}

/* ---- streams and events ---- */

unsigned cuStreamCreate(struct api_stream **out, unsigned flags)
{
    TAKE(call_inside(F_cuStreamCreate));
    if (!e && flags != API_STREAM_NON_BLOCKING)
        e = blame(INVALID_VALUE, "a stream that waits for others");
    if (!e)
        *out = (struct api_stream *)add(STREAM);
    GIVE;
}

unsigned cuStreamDestroy_v2(struct api_stream *s)
{
    TAKE(call_inside(F_cuStreamDestroy));
    if (usable(s, STREAM, "cuStreamDestroy"))
        drop((struct thing *)s);
    GIVE;
}

unsigned cuStreamSynchronize(struct api_stream *s)
{
    TAKE(call_inside(F_cuStreamSynchronize));
    if (!usable(s, STREAM, "cuStreamSynchronize"))
        e = INVALID_HANDLE;
    else
        drain((struct thing *)s);
    if (!e)
        e = current()->lost;
    GIVE;
}

unsigned cuStreamQuery(struct api_stream *s)
{
    TAKE(call_inside(F_cuStreamQuery));
    if (!e && !usable(s, STREAM, "cuStreamQuery"))
        e = INVALID_HANDLE;
    stir();
    if (!e && ((struct thing *)s)->first)
        e = API_NOT_READY;
    GIVE;
}

unsigned cuEventCreate(struct api_event **out, unsigned flags)
{
    TAKE(call_inside(F_cuEventCreate));
    if (!e) {
        struct thing *t = add(EVENT);

        t->flags = flags;
        *out = (struct api_event *)t;
    }
    GIVE;
}

unsigned cuEventDestroy_v2(struct api_event *v)
{
    TAKE(call_inside(F_cuEventDestroy));
    if (usable(v, EVENT, "cuEventDestroy"))
        drop((struct thing *)v);
    GIVE;
}

unsigned cuEventRecord(struct api_event *v, struct api_stream *s)
{
    struct thing *t = (struct thing *)v;
    struct command *c;
    TAKE(call_inside(F_cuEventRecord));
    if (!e && (!usable(v, EVENT, "cuEventRecord") ||
               !usable(s, STREAM, "cuEventRecord")))
        e = INVALID_HANDLE;
    if (!e) {
        c = push(s, RECORD);
        c->event = t;
        c->value = ++t->n_set;
        ((struct thing *)s)->fenced = (t->flags & (unsigned)HIP_EVENT_FENCED);
    }
    stir();
    GIVE;
}

unsigned cuEventQuery(struct api_event *v)
{
    const struct thing *t = (const struct thing *)v;
    TAKE(call_inside(F_cuEventQuery));
    if (!e && !usable(v, EVENT, "cuEventQuery"))
        e = INVALID_HANDLE;
    stir();
    if (!e && t->n_reached < t->n_set)
        e = API_NOT_READY;
    GIVE;
}

unsigned cuStreamWaitEvent(struct api_stream *s, struct api_event *v,
                           unsigned flags)
{
    struct thing *t = (struct thing *)v;
    struct command *c;
    TAKE(call_inside(F_cuStreamWaitEvent));
    if (!e && (!usable(v, EVENT, "cuStreamWaitEvent") ||
               !usable(s, STREAM, "cuStreamWaitEvent")))
        e = INVALID_HANDLE;
    if (!e && (t->n_set == 0 || flags != 0))
        e = blame(INVALID_VALUE, "an event is waited for that was not set");
    if (!e) {
        c = push(s, AWAIT);
        c->event = t;
        c->value = t->n_set;
    }
    stir();
    GIVE;
}

static unsigned word(unsigned e, struct api_stream *s, enum command_kind kind,
                     unsigned long long at, uint64_t value)
{
    struct command *c;

    if (!e && !usable(s, STREAM, "a word"))
        return INVALID_HANDLE;
    if (!e && !knows_words(current()->device))
        return blame(NOT_SUPPORTED, "this device's streams know no words");
    if (!e && (at % 8 != 0 || !memory_at(pointer(at), 8)))
        return blame(INVALID_VALUE, "a word outside of the device's reach");
    if (!e) {
        c = push(s, kind);
        c->word = pointer(at);
        c->value = value;
    }
    stir();
    return e;
}

unsigned cuStreamWriteValue64_v2(struct api_stream *s, unsigned long long at,
                                 uint64_t value, unsigned flags)
{
    TAKE(call_inside(F_cuStreamWriteValue64));
    if (!e && flags != CUDA_WRITE_FENCED)
        e = blame(INVALID_VALUE, "a write without a fence");
    e = word(e, s, WRITE, at, value);
    GIVE;
}

unsigned cuStreamWaitValue64_v2(struct api_stream *s, unsigned long long at,
                                uint64_t value, unsigned flags)
{
    TAKE(call_inside(F_cuStreamWaitValue64));
    if (!e &&
        flags != (devices[current()->device].flushes ? (unsigned)CUDA_WAIT_FLUSH
                                                     : 0))
        e = blame(INVALID_VALUE, "a wait of flags %x", flags);
    e = word(e, s, WAIT, at, value);
    GIVE;
}

/* ---- memory ---- */

static struct thing *allocate(enum kind kind, size_t bytes)
{
    struct thing *t = add(kind);

    t->p = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
    t->bytes = bytes;
    memset(t->p, POISON, bytes);
    return t;
}

/* Returns the object of this kind whose memory begins at p; NULL if none
 * does. */
static struct thing *begins_at(enum kind kind, const void *p)
{
    for (struct thing *t = all.thing; t; t = t->next)
        if (t->kind == kind && t->p == p)
            return t;
    blame(0, "memory is given back that is not there");
    return NULL;
}

/* Frees the memory at p, after running the commands of its context's streams,
 * which may use it. */
static void give_back(enum kind kind, const void *p)
{
    struct thing *m = begins_at(kind, p);

    for (struct thing *t = all.thing; m && t; t = t->next)
        while (t->kind == STREAM && t->context == m->context && step(t))
            ;
    if (m)
        drop(m);
}

unsigned cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
    TAKE(call_inside(F_cuMemAlloc));
    if (!e && bytes == 0)
        e = INVALID_VALUE;
    if (!e && bytes > (size_t)7 << 30)
        e = API_OUT_OF_MEMORY;
    if (!e)
        *out = (uintptr_t)allocate(DEVICE_MEMORY, bytes)->p;
    GIVE;
}

unsigned cuMemFree_v2(unsigned long long at)
{
    TAKE(call_inside(F_cuMemFree));
    give_back(DEVICE_MEMORY, pointer(at));
    GIVE;
}

unsigned cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    TAKE(call_inside(F_cuMemHostAlloc));
    if (!e && (bytes == 0 || flags != (API_HOST_PORTABLE | API_HOST_MAPPED)))
        e = blame(INVALID_VALUE, "cuMemHostAlloc: arguments");
    if (!e)
        *out = allocate(PINNED, bytes)->p;
    GIVE;
}

unsigned cuMemFreeHost(void *p)
{
    TAKE(call_inside(F_cuMemFreeHost));
    give_back(PINNED, p);
    GIVE;
}

/* Returns true if this process may write all bytes of the range. Does not
 * access the memory, because other threads may be using it. */
static bool writable(const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p, end = at + bytes;
    unsigned long from, to;
    char line[512], may[5];
    FILE *maps = fopen("/proc/self/maps", "r");

    if (!maps)
        return false;
    while (at < end && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &from, &to, may) == 3 && from <= at &&
            at < to && may[1] == 'w')
            at = to;
    fclose(maps);
    return at >= end;
}

static uintptr_t page(uintptr_t at)
{
    return at / PAGE;
}

unsigned cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    uintptr_t lo = page((uintptr_t)p), hi = page((uintptr_t)p + bytes - 1);
    TAKE(call_inside(F_cuMemHostRegister));
    for (struct thing *t = all.thing; !e && t; t = t->next)
        if (t->kind == REGISTERED &&
            lo <= page((uintptr_t)t->p + t->bytes - 1) &&
            page((uintptr_t)t->p) <= hi)
            e = API_ALREADY_REGISTERED;
    if (!e &&
        (!writable(p, bytes) || flags != (API_HOST_PORTABLE | API_HOST_MAPPED)))
        e = INVALID_VALUE;
    if (!e) {
        struct thing *t = add(REGISTERED);

        t->p = p;
        t->bytes = bytes;
    }
    GIVE;
}

unsigned cuMemHostUnregister(void *p)
{
    TAKE(call_inside(F_cuMemHostUnregister));
    give_back(REGISTERED, p);
    GIVE;
}

unsigned cuMemHostGetDevicePointer_v2(unsigned long long *out, void *p,
                                      unsigned flags)
{
    TAKE(call_inside(F_cuMemHostGetDevicePointer));
    (void)flags;
    if (!e && !memory_at(p, 1))
        e = INVALID_VALUE;
    if (!e)
        *out = (uintptr_t)p;
    GIVE;
}

static unsigned copy(unsigned e, void *dst, const void *src, size_t bytes,
                     bool dst_on_device, bool src_on_device,
                     struct api_stream *s)
{
    struct command *c;

    if (!e && !usable(s, STREAM, "a copy"))
        return INVALID_HANDLE;
    if (!e && ((dst_on_device && !memory_at(dst, bytes)) ||
               (src_on_device && !memory_at(src, bytes)) || bytes == 0))
        return blame(INVALID_VALUE, "a copy of %zu bytes leaves its memory",
                     bytes);
    if (!e) {
        c = push(s, COPY);
        c->dst = dst;
        c->src = src;
        c->bytes = bytes;
        c->dst_on_device = dst_on_device;
        c->src_on_device = src_on_device;
        if (!memory_at(dst, bytes) || !memory_at(src, bytes))
            all.n_loose += bytes;
    }
    stir();
    return e;
}

unsigned cuMemcpyHtoDAsync_v2(unsigned long long dst, const void *src,
                              size_t bytes, struct api_stream *s)
{
    TAKE(call_inside(F_cuMemcpyHtoDAsync));
    e = copy(e, pointer(dst), src, bytes, true, false, s);
    GIVE;
}

unsigned cuMemcpyDtoHAsync_v2(void *dst, unsigned long long src, size_t bytes,
                              struct api_stream *s)
{
    TAKE(call_inside(F_cuMemcpyDtoHAsync));
    e = copy(e, dst, pointer(src), bytes, false, true, s);
    GIVE;
}

unsigned cuMemcpyAsync(unsigned long long dst, unsigned long long src,
                       size_t bytes, struct api_stream *s)
{
    TAKE(call_inside(F_cuMemcpyAsync));
    e = copy(e, pointer(dst), pointer(src), bytes, true, true, s);
    GIVE;
}

/* ---- for tests ----------------------------------------------------------- */

static void break_at(const char *function, int nth, unsigned code)
{
    pthread_mutex_lock(&all.lock);
    all.fail = function;
    all.fail_in = nth;
    all.fail_code = code;
    all.failed = false;
    for (int i = 0; function && i < FAKE_COUNT; i++)
        all.context[i].shut_out = false;
    pthread_mutex_unlock(&all.lock);
}

static void refuse(int device, unsigned code)
{
    pthread_mutex_lock(&all.lock);
    /* HIP has no context to retain: its calls for this device return the
     * code */
    all.context[device].refused = code;
    pthread_mutex_unlock(&all.lock);
}

static bool failed(void)
{
    return all.failed;
}

static int n_live(void)
{
    int n;

    pthread_mutex_lock(&all.lock);
    n = all.n_current;
    for (int i = 0; i < FAKE_COUNT; i++)
        n += all.context[i].n_retained;
    for (const struct thing *t = all.thing; t; t = t->next)
        n++;
    pthread_mutex_unlock(&all.lock);
    return n;
}

static const char *wrong(void)
{
    pthread_mutex_lock(&all.lock);
    memcpy(all.told, all.wrong, sizeof all.told);
    *all.wrong = '\0';
    pthread_mutex_unlock(&all.lock);
    return *all.told ? all.told : NULL;
}

static int n_call(const char *function)
{
    int n = 0;

    pthread_mutex_lock(&all.lock);
    for (int f = 0; f < N_FUNCTION; f++)
        if (!function || strcmp(function_name[f], function) == 0)
            n += all.n_call[f];
    pthread_mutex_unlock(&all.lock);
    return n;
}

static void swallow(bool on)
{
    pthread_mutex_lock(&all.lock);
    all.swallows = on;
    pthread_mutex_unlock(&all.lock);
}

static size_t n_loose(void)
{
    size_t n;

    pthread_mutex_lock(&all.lock);
    n = all.n_loose;
    pthread_mutex_unlock(&all.lock);
    return n;
}

static void hurry(bool on)
{
    pthread_mutex_lock(&all.lock);
    all.hasty = on;
    pthread_mutex_unlock(&all.lock);
}

static void learn(bool on)
{
    pthread_mutex_lock(&all.lock);
    all.learned = on;
    pthread_mutex_unlock(&all.lock);
}

static void watch_longest(void)
{
    pthread_mutex_lock(&all.lock);
    all.longest = 0;
    pthread_mutex_unlock(&all.lock);
}

static int n_longest(void)
{
    int n;

    pthread_mutex_lock(&all.lock);
    n = all.longest;
    pthread_mutex_unlock(&all.lock);
    return n;
}

static void lose(int nth)
{
    pthread_mutex_lock(&all.lock);
    all.lose_in = nth;
    pthread_mutex_unlock(&all.lock);
}

static void set_free(size_t bytes)
{
    pthread_mutex_lock(&all.lock);
    all.free_bytes = bytes;
    pthread_mutex_unlock(&all.lock);
}

extern EXPORT const struct fake_cuda fake_cuda;
const struct fake_cuda fake_cuda = {
    break_at, refuse,  failed, n_live, wrong, n_call,        set_free,
    swallow,  n_loose, hurry,  learn,  lose,  watch_longest, n_longest};
