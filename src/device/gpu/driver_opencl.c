/* The driver for OpenCL 1.2 and later, of any vendor.
 *
 * A device address consists of the number of an allocation, from 1, in the top
 * byte, and an offset. Each kernel gets all allocations as arguments. Fences
 * are OpenCL events.
 *
 * There is no map(). OpenCL may copy a host buffer (CL_MEM_USE_HOST_PTR) to the
 * device and back at any time, so writes of other devices would be lost. Only
 * devices with fine-grained system memory, which is rare, could support it. So
 * the issuing thread waits for other devices' events and posts the device's own
 * events. */
#include "device/gpu/driver_opencl.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash64.h"
#include "device/gpu/gpu_text.h"
#include "device/gpu/opencl_api.h"

enum { N_QUEUE = QUEUE_COUNT, SHIFT = 56 };

/* Pinned host memory: an OpenCL buffer that stays mapped. */
struct pinned {
    struct pinned *next;
    void *p;
    struct cl_memory *memory;
};

struct gpu {
    struct opencl cl;
    struct opencl_device at;
    char name[96];
    struct cl_context *context;
    struct cl_queue *queue[N_QUEUE];
    /* allocations of the device, by number; NULL if the number is free */
    struct cl_memory *memory[OPENCL_MAX_MEMORY];
    size_t bytes[OPENCL_MAX_MEMORY];
    uint64_t change; /* counts allocations and releases; starts at 1 */
    struct cl_program *program;
    struct cl_kernel *kernel[GPU_KERNEL_COUNT];
    /* by kernel: value of `change` when the allocations were last set as its
     * arguments; 0 if never */
    uint64_t has[GPU_KERNEL_COUNT];
    struct cl_event *mark[GPU_MAX_MARKS];
    /* by fence: queue in which it was recorded */
    enum queue marked[GPU_MAX_MARKS];
    struct pinned *pinned; /* list of pinned host memory; owned */
    /* protects `said`, because the driver may call notice() on any thread */
    pthread_mutex_t lock;
    /* the driver's last message, from notice(); "" if none */
    char said[256];
};

/* Keeps a message of the driver about an error. The driver may call this on any
 * thread. */
static void notice(const char *what, const void *detail, size_t n, void *user)
{
    struct gpu *g = user;

    (void)detail;
    (void)n;
    pthread_mutex_lock(&g->lock);
    snprintf(g->said, sizeof g->said, "%s", what ? what : "");
    pthread_mutex_unlock(&g->lock);
}

static pl_status check(struct gpu *g, int32_t code, const char *function,
                       const char *what, pl_err *err)
{
    char said[sizeof g->said + 2] = "", whole[512];

    if (code == CL_OK)
        return PL_OK;
    pthread_mutex_lock(&g->lock);
    if (g->said[0])
        snprintf(said, sizeof said, ", %s", g->said);
    pthread_mutex_unlock(&g->lock);
    snprintf(whole, sizeof whole, "%s%s%s%s", g->name, what ? ", " : "",
             what ? what : "", said);
    return opencl_check(code, function, whole, err);
}

/* Calls an OpenCL function. The error names the function and `what`. */
#define CALL(g, err, what, name, ...)                                          \
    check(g, (g)->cl.name(__VA_ARGS__), #name, what, err)

/* ---- open and close ------------------------------------------------------ */

/* Extends hash h by the environment variables that affect the code which PoCL
 * compiles. */
static uint64_t with_variables(uint64_t h)
{
    for (char **v = environ; v && *v; v++)
        if (strncmp(*v, "POCL_", 5) == 0)
            h = hash64(h, *v, strlen(*v));
    return h;
}

static pl_status identity(struct gpu *g, char *out, size_t size, pl_err *err)
{
    char driver[64], version[64];
    uint64_t text =
        with_variables(hash64(gpu_text.hash, &gpu_prelude_opencl.hash,
                              sizeof gpu_prelude_opencl.hash));

    opencl_text(&g->cl, g->at.device, CL_DEVICE_DRIVER_TEXT, driver,
                sizeof driver);
    opencl_text(&g->cl, g->at.device, CL_DEVICE_VERSION_TEXT, version,
                sizeof version);
    snprintf(out, size, "opencl, %s, %s, %s, %016" PRIx64, g->name, version,
             driver, text);
    (void)err;
    return PL_OK;
}

static void close_gpu(struct gpu *g)
{
    if (!g)
        return;
    for (int q = 0; q < N_QUEUE; q++)
        if (g->queue[q])
            g->cl.clFinish(g->queue[q]);
    for (int i = 0; i < GPU_MAX_MARKS; i++)
        if (g->mark[i])
            g->cl.clReleaseEvent(g->mark[i]);
    while (g->pinned)
        gpu_opencl.host_release(g, g->pinned->p);
    for (int i = 0; i < OPENCL_MAX_MEMORY; i++)
        if (g->memory[i])
            g->cl.clReleaseMemObject(g->memory[i]);
    if (g->cl.handle)
        opencl_program_free(&g->cl, g->program, g->kernel, GPU_KERNEL_COUNT);
    for (int q = 0; q < N_QUEUE; q++)
        if (g->queue[q])
            g->cl.clReleaseCommandQueue(g->queue[q]);
    if (g->context)
        g->cl.clReleaseContext(g->context);
    opencl_unload(&g->cl);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Opens the library, finds device `index` and checks that it can run the
 * kernels. */
static pl_status find(struct gpu *g, int index, pl_err *err)
{
    struct opencl_devices all;

    PL_TRY(opencl_load(&g->cl, err));
    PL_TRY(opencl_devices(&g->cl, &all, err));
    if (index < 0 || index >= all.n)
        return err_set(err, PL_NOT_FOUND,
                       "opencl:%d: this machine has %d OpenCL devices, counted "
                       "from 0; clinfo lists them",
                       index, all.n);
    g->at = all.item[index];
    opencl_text(&g->cl, g->at.device, CL_DEVICE_NAME_TEXT, g->name,
                sizeof g->name);
    return opencl_demands(&g->cl, g->at.device, err);
}

static pl_status open_at(struct gpu *g, int index, pl_err *err)
{
    int32_t e = CL_OK;

    PL_TRY(find(g, index, err));
    g->context = g->cl.clCreateContext(NULL, 1, &g->at.device, notice, g, &e);
    PL_TRY(check(g, e, "clCreateContext", NULL, err));
    for (int q = 0; q < N_QUEUE; q++) {
        g->queue[q] =
            g->cl.clCreateCommandQueue(g->context, g->at.device, 0, &e);
        PL_TRY(check(g, e, "clCreateCommandQueue", NULL, err));
    }
    return PL_OK;
}

static pl_status open_gpu(struct gpu **out, int index, pl_err *err)
{
    struct gpu *g = calloc(1, sizeof *g);
    pl_status s;

    *out = NULL;
    if (!g)
        return err_no_memory(err, "an OpenCL device");
    pthread_mutex_init(&g->lock, NULL);
    g->change = 1;
    s = open_at(g, index, err);
    if (s == PL_OK)
        *out = g;
    else
        close_gpu(g);
    return s;
}

/* ---- compiling ----------------------------------------------------------- */

/* Creates all kernels. The binary is not stored for CPU devices: their
 * compilers, such as PoCL's, compile a kernel at its first launch and have
 * their own cache. Requesting the binary would make them compile all
 * kernels. */
static pl_status make_kernels(struct gpu *g, pl_err *err)
{
    const char *name[GPU_KERNEL_COUNT];
    struct opencl_source src = {
        .n_kernel = GPU_KERNEL_COUNT,
        .name = name,
        .keep = !opencl_on_cores(&g->cl, g->at.device),
    };

    char *text;
    pl_status s;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        name[k] = gpu_kernel_name((enum gpu_kernel)k);
    PL_TRY(gpu_text_unpack("", &gpu_prelude_opencl, &text, err));
    src.text = text;
    s = opencl_program(&g->cl, g->context, &g->at, &src, &g->program, g->kernel,
                       err);
    free(text);
    return s;
}

/* The gpu_compile_fn of this driver: all kernels are in one OpenCL program. */
static pl_status make_program(void *user, int i, pl_err *err)
{
    (void)i;
    return make_kernels(user, err);
}

static pl_status ready(struct gpu *g, const bool want[], int n_thread,
                       const struct gpu_progress *p, pl_err *err)
{
    (void)want;
    return gpu_compile(p, !g->program, n_thread, make_program, g, err);
}

/* ---- memory -------------------------------------------------------------- */

/* Returns the allocation that contains device address `at`, or NULL if there is
 * none. Sets *offset to the offset in it. */
static struct cl_memory *memory_of(const struct gpu *g, uint64_t at,
                                   size_t *offset)
{
    uint64_t i = (at >> SHIFT) - 1;

    *offset = (size_t)(at & (((uint64_t)1 << SHIFT) - 1));
    return i < OPENCL_MAX_MEMORY ? g->memory[i] : NULL;
}

static pl_status too_much(const struct gpu *g, size_t bytes, int32_t e,
                          pl_err *err)
{
    uint64_t most = 0;
    char want[24], have[24];

    g->cl.clGetDeviceInfo(g->at.device, CL_DEVICE_MOST_BYTES, sizeof most,
                          &most, NULL);
    return err_set(err, PL_NO_DEVICE_MEMORY,
                   "%s: clCreateBuffer failed: %s (%d): %s requested, and the "
                   "driver guarantees %s per allocation; split the model over "
                   "more devices or use a smaller context",
                   g->name, opencl_error(e), e, bytes_text(want, bytes),
                   bytes_text(have, most));
}

/* Makes the driver allocate buffer `m` now, so that an allocation that is too
 * large fails here. Drivers may otherwise defer it until the first use. */
static pl_status take_now(struct gpu *g, struct cl_memory *m, size_t bytes,
                          pl_err *err)
{
    int32_t e = g->cl.clEnqueueMigrateMemObjects(
        g->queue[0], 1, &m, CL_MIGRATE_UNDEFINED, 0, NULL, NULL);

    if (e == CL_OK)
        e = g->cl.clFinish(g->queue[0]);
    return e == CL_OK ? PL_OK : too_much(g, bytes, e, err);
}

static pl_status alloc(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err)
{
    int i = 0;
    int32_t e = CL_OK;
    struct cl_memory *m;
    pl_status s;

    *at = 0;
    while (i < OPENCL_MAX_MEMORY && g->memory[i])
        i++;
    if (i == OPENCL_MAX_MEMORY)
        return err_set(err, PL_FULL,
                       "%s: kernels can access at most %d allocations; use a "
                       "smaller model or context",
                       g->name, OPENCL_MAX_MEMORY);
    bytes = bytes > 0 ? bytes : 1;
    m = g->cl.clCreateBuffer(g->context, CL_MEMORY_READ_WRITE, bytes, NULL, &e);
    if (!m || e != CL_OK)
        return too_much(g, bytes, e, err);
    s = take_now(g, m, bytes, err);
    if (s != PL_OK) {
        g->cl.clReleaseMemObject(m);
        return s;
    }
    g->memory[i] = m;
    g->bytes[i] = bytes;
    g->change++;
    *at = (uint64_t)(i + 1) << SHIFT;
    return PL_OK;
}

static void release(struct gpu *g, uint64_t at)
{
    size_t offset;
    struct cl_memory *m = memory_of(g, at, &offset);

    if (!m)
        return;
    g->cl.clReleaseMemObject(m);
    g->memory[(at >> SHIFT) - 1] = NULL;
    g->change++;
}

static pl_status host_alloc(struct gpu *g, size_t bytes, void **p, pl_err *err)
{
    struct pinned *n = calloc(1, sizeof *n);
    int32_t e = CL_OK;
    pl_status s;

    *p = NULL;
    if (!n)
        return err_no_memory(err, "memory for copies");
    bytes = bytes > 0 ? bytes : 1;
    n->memory = g->cl.clCreateBuffer(
        g->context, CL_MEMORY_READ_WRITE | CL_MEMORY_OF_HOST, bytes, NULL, &e);
    s = check(g, e, "clCreateBuffer", "host memory", err);
    if (s == PL_OK) {
        n->p = g->cl.clEnqueueMapBuffer(g->queue[0], n->memory, CL_YES,
                                        CL_MAP_READ_WRITE, 0, bytes, 0, NULL,
                                        NULL, &e);
        s = check(g, e, "clEnqueueMapBuffer", "host memory", err);
    }
    if (s != PL_OK) {
        if (n->memory)
            g->cl.clReleaseMemObject(n->memory);
        free(n);
        return s;
    }
    n->next = g->pinned;
    g->pinned = n;
    *p = n->p;
    return PL_OK;
}

static void host_release(struct gpu *g, void *p)
{
    for (struct pinned **at = &g->pinned; *at; at = &(*at)->next) {
        struct pinned *n = *at;

        if (n->p != p)
            continue;
        *at = n->next;
        g->cl.clEnqueueUnmapMemObject(g->queue[0], n->memory, p, 0, NULL, NULL);
        g->cl.clFinish(g->queue[0]);
        g->cl.clReleaseMemObject(n->memory);
        free(n);
        return;
    }
}

/* ---- commands of a queue ------------------------------------------------- */

/* Finds the allocation that contains `bytes` bytes at address `at`, or returns
 * an error. */
static pl_status reach(struct gpu *g, uint64_t at, size_t bytes,
                       struct cl_memory **m, size_t *offset, pl_err *err)
{
    *m = memory_of(g, at, offset);
    if (*m && *offset + bytes <= g->bytes[(at >> SHIFT) - 1])
        return PL_OK;
    return err_set(err, PL_DEVICE,
                   "%s: %zu bytes at %#llx are outside its allocations",
                   g->name, bytes, (unsigned long long)at);
}

static pl_status write_to(struct gpu *g, enum queue q, uint64_t dst,
                          const void *src, size_t bytes, pl_err *err)
{
    struct cl_memory *m;
    size_t at;

    if (bytes == 0)
        return PL_OK;
    PL_TRY(reach(g, dst, bytes, &m, &at, err));
    return CALL(g, err, NULL, clEnqueueWriteBuffer, g->queue[q], m, CL_NO, at,
                bytes, src, 0, NULL, NULL);
}

static pl_status read_from(struct gpu *g, enum queue q, void *dst, uint64_t src,
                           size_t bytes, pl_err *err)
{
    struct cl_memory *m;
    size_t at;

    if (bytes == 0)
        return PL_OK;
    PL_TRY(reach(g, src, bytes, &m, &at, err));
    return CALL(g, err, NULL, clEnqueueReadBuffer, g->queue[q], m, CL_NO, at,
                bytes, dst, 0, NULL, NULL);
}

static pl_status copy(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err)
{
    struct cl_memory *from, *to;
    size_t from_at, to_at;

    if (bytes == 0)
        return PL_OK;
    PL_TRY(reach(g, src, bytes, &from, &from_at, err));
    PL_TRY(reach(g, dst, bytes, &to, &to_at, err));
    return CALL(g, err, NULL, clEnqueueCopyBuffer, g->queue[q], from, to,
                from_at, to_at, bytes, 0, NULL, NULL);
}

/* Sets all allocations as arguments of kernel k, if they have changed since its
 * last launch. */
static pl_status give_memory(struct gpu *g, enum gpu_kernel k, pl_err *err)
{
    if (g->has[k] == g->change)
        return PL_OK;
    for (uint32_t i = 0; i < OPENCL_MAX_MEMORY; i++)
        PL_TRY(CALL(g, err, gpu_kernel_name(k), clSetKernelArg, g->kernel[k], i,
                    sizeof g->memory[i], &g->memory[i]));
    g->has[k] = g->change;
    return PL_OK;
}

static pl_status launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err)
{
    size_t lanes = (size_t)gpu_kernel_lanes(k);
    size_t all = (size_t)n_group * lanes;

    if (n_group <= 0)
        return PL_OK;
    if (!g->program)
        PL_TRY(make_kernels(g, err));
    PL_TRY(give_memory(g, k, err));
    PL_TRY(CALL(g, err, gpu_kernel_name(k), clSetKernelArg, g->kernel[k],
                OPENCL_MAX_MEMORY, gpu_kernel_args(k), args));
    return CALL(g, err, gpu_kernel_name(k), clEnqueueNDRangeKernel, g->queue[q],
                g->kernel[k], 1, NULL, &all, &lanes, 0, NULL, NULL);
}

static pl_status mark(struct gpu *g, enum queue q, int i, pl_err *err)
{
    if (g->mark[i])
        g->cl.clReleaseEvent(g->mark[i]);
    g->mark[i] = NULL;
    g->marked[i] = q;
    return CALL(g, err, NULL, clEnqueueMarkerWithWaitList, g->queue[q], 0, NULL,
                &g->mark[i]);
}

static pl_status reached(struct gpu *g, int i, bool *yes, pl_err *err)
{
    int32_t status = CL_STATUS_COMPLETE;

    PL_TRY(CALL(g, err, NULL, clGetEventInfo, g->mark[i], CL_EVENT_STATUS,
                sizeof status, &status, NULL));
    *yes = status == CL_STATUS_COMPLETE;
    return check(g, status < 0 ? status : CL_OK, "a command", NULL, err);
}

static bool on_cores(const struct gpu *g)
{
    return opencl_on_cores(&g->cl, g->at.device);
}

/* Makes queue q wait for fence i. First flushes the fence's queue, because a
 * fence that is not submitted is never reached. */
static pl_status await(struct gpu *g, enum queue q, int i, pl_err *err)
{
    if (!g->mark[i] || g->marked[i] == q)
        return PL_OK;
    PL_TRY(CALL(g, err, NULL, clFlush, g->queue[g->marked[i]]));
    return CALL(g, err, NULL, clEnqueueBarrierWithWaitList, g->queue[q], 1,
                &g->mark[i], NULL);
}

static pl_status flush(struct gpu *g, enum queue q, pl_err *err)
{
    return CALL(g, err, NULL, clFlush, g->queue[q]);
}

static pl_status finish(struct gpu *g, enum queue q, pl_err *err)
{
    return CALL(g, err, NULL, clFinish, g->queue[q]);
}

const struct gpu_driver gpu_opencl = {
    .name = "opencl",
    .list = opencl_list,
    .open = open_gpu,
    .close = close_gpu,
    .identity = identity,
    .compile_kernels = ready,
    .alloc = alloc,
    .release = release,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .write = write_to,
    .read = read_from,
    .copy = copy,
    .launch = launch,
    .fence_record = mark,
    .fence_query = reached,
    .runs_on_cpu = on_cores,
    .fence_wait = await,
    .flush = flush,
    .finish = finish,
};
