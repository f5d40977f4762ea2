/* The driver for NVIDIA's GPUs, over the CUDA driver API.
 *
 * The kernels come as PTX (ptx/), a program each, which CUDA compiles when a
 * program is loaded that launches the kernel, and keeps for later processes. A
 * GPU is the device's primary context, which other parts of the process may use
 * too, with two streams; each function makes the context the thread's for as
 * long as it lasts, so any thread may call, one at a time.
 *
 * A post is a write of the stream, with a system-wide fence before it: whoever
 * reads the word sees what was written before. A wait is the stream's too;
 * where the device can, it is followed by a flush of remote writes, so that
 * what a peer wrote into this device before it raised the word is seen by what
 * follows. CUDA does not know of the order that such words make and may carry
 * out two streams as one: what is waited for must have been issued before, in
 * the process's order of issuing. */
#include "device/gpu/driver_cuda.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash64.h"
#include "device/gpu/cuda_api.h"
#include "device/gpu/gpu_ptx.h"

/* Memory of the host that the device has in its reach. */
struct mapped {
    struct mapped *next;
    unsigned char *p;
    size_t bytes;
    uint64_t at;
    struct cuda_range *range; /* held; NULL: not yet */
};

struct gpu {
    struct cuda cu;
    int device;
    char name[96];
    struct cuda_context *context; /* retained; NULL: not yet */
    atomic_bool entered;          /* it is that of the thread */
    pthread_t thread;
    bool words; /* streams post and wait */
    unsigned wait_flags;
    struct cuda_text text;
    struct cuda_module *module[GPU_KERNEL_COUNT]; /* NULL: not compiled yet */
    struct cuda_function *kernel[GPU_KERNEL_COUNT];
    struct cuda_stream *stream[QUEUE_COUNT];
    struct cuda_event *mark[GPU_MAX_MARKS];
    struct mapped *mapped; /* owned */
};

static pl_status check(const struct gpu *g, unsigned code, const char *function,
                       pl_err *err)
{
    return cuda_check(&g->cu, code, function, g->name, err);
}

/* Calls the function; a failure names it. */
#define CALL(g, err, name, ...) check(g, (g)->cu.name(__VA_ARGS__), #name, err)

/* Has this thread the context, from enter_thread() to leave_thread()? */
static bool inside(const struct gpu *g)
{
    return atomic_load_explicit(&g->entered, memory_order_acquire) &&
           pthread_equal(g->thread, pthread_self());
}

/* The context is this thread's until leave(), which hands on the status of what
 * was done in between. */
static pl_status enter(const struct gpu *g, pl_err *err)
{
    if (inside(g))
        return PL_OK;
    return CALL(g, err, cuCtxPushCurrent, g->context);
}

static pl_status leave(const struct gpu *g, pl_status s, pl_err *err)
{
    struct cuda_context *c;
    pl_status popped;

    if (inside(g))
        return s;
    popped = CALL(g, s == PL_OK ? err : NULL, cuCtxPopCurrent, &c);
    return s == PL_OK ? popped : s;
}

static pl_status enter_thread(struct gpu *g, pl_err *err)
{
    PL_TRY(enter(g, err));
    g->thread = pthread_self();
    atomic_store_explicit(&g->entered, true, memory_order_release);
    return PL_OK;
}

static void leave_thread(struct gpu *g)
{
    atomic_store_explicit(&g->entered, false, memory_order_release);
    leave(g, PL_OK, NULL);
}

#define INSIDE(g, err, name, ...)                                              \
    do {                                                                       \
        PL_TRY(enter(g, err));                                                 \
        return leave(g, CALL(g, err, name, __VA_ARGS__), err);                 \
    } while (0)

/* ---- memory -------------------------------------------------------------- */

static void release(struct gpu *g, uint64_t at)
{
    if (at && enter(g, NULL) == PL_OK) {
        g->cu.cuMemFree(at);
        leave(g, PL_OK, NULL);
    }
}

static pl_status alloc(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err)
{
    unsigned long long a = 0;
    char what[160];
    pl_status s;

    *at = 0;
    snprintf(what, sizeof what, "%s, %zu bytes", g->name, bytes);
    PL_TRY(enter(g, err));
    s = cuda_check(&g->cu, g->cu.cuMemAlloc(&a, bytes ? bytes : 1),
                   "cuMemAlloc", what, err);
    if (s != PL_OK)
        a = 0;
    s = leave(g, s, err);
    if (s == PL_OK)
        *at = a;
    else
        release(g, a);
    return s;
}

static void host_release(struct gpu *g, void *p)
{
    if (p && enter(g, NULL) == PL_OK) {
        g->cu.cuMemFreeHost(p);
        leave(g, PL_OK, NULL);
    }
}

static pl_status host_alloc(struct gpu *g, size_t bytes, void **p, pl_err *err)
{
    void *made = NULL;
    pl_status s;

    *p = NULL;
    PL_TRY(enter(g, err));
    s = CALL(g, err, cuMemHostAlloc, &made, bytes ? bytes : 1,
             CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    if (s == PL_NO_DEVICE_MEMORY) { /* it is not the device's */
        s = PL_NO_MEMORY;
        if (err)
            err->status = s;
    }
    if (s != PL_OK)
        made = NULL;
    s = leave(g, s, err);
    if (s == PL_OK)
        *p = made;
    else
        host_release(g, made);
    return s;
}

/* Has m registered, and finds where the device has it. */
static pl_status reach(struct gpu *g, struct mapped *m, pl_err *err)
{
    unsigned long long at = 0, last = 0;

    PL_TRY(cuda_range_hold(&m->range, &g->cu, m->p, m->bytes, g->name, err));
    PL_TRY(CALL(g, err, cuMemHostGetDevicePointer, &at, m->p, 0));
    PL_TRY(
        CALL(g, err, cuMemHostGetDevicePointer, &last, m->p + m->bytes - 1, 0));
    if (last - at != m->bytes - 1)
        return err_set(err, PL_UNSUPPORTED,
                       "%s, mapping %zu bytes: parts of them are mapped "
                       "already, by themselves; map the whole first",
                       g->name, m->bytes);
    m->at = at;
    return PL_OK;
}

/* Gives m back, which is in no list. */
static void drop_mapped(struct gpu *g, struct mapped *m)
{
    if (m->range && enter(g, NULL) == PL_OK) {
        cuda_range_drop(m->range, &g->cu);
        leave(g, PL_OK, NULL);
    }
    free(m);
}

static void unmap(struct gpu *g, void *p)
{
    struct mapped **at = &g->mapped, *m;

    while (*at && (*at)->p != p)
        at = &(*at)->next;
    m = *at;
    if (!m)
        return;
    *at = m->next;
    drop_mapped(g, m);
}

static pl_status can_map(const struct gpu *g, size_t bytes, pl_err *err)
{
    int maps, registers;

    PL_TRY(
        cuda_attribute(&g->cu, g->device, CUDA_MAPS_HOST_MEMORY, &maps, err));
    PL_TRY(cuda_attribute(&g->cu, g->device, CUDA_REGISTERS_HOST_MEMORY,
                          &registers, err));
    if (maps && registers && bytes > 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "%s cannot reach %zu bytes of this process in place",
                   g->name, bytes);
}

static pl_status map(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err)
{
    struct mapped *m;
    pl_status s;

    *at = 0;
    PL_TRY(can_map(g, bytes, err));
    m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(err, "mapped memory");
    m->p = p;
    m->bytes = bytes;
    s = enter(g, err);
    if (s == PL_OK)
        s = leave(g, reach(g, m, err), err);
    if (s != PL_OK) {
        drop_mapped(g, m);
        return s;
    }
    m->next = g->mapped;
    g->mapped = m;
    *at = m->at;
    return PL_OK;
}

/* Where the device has a word of map()'ed memory. */
static pl_status place_of(const struct gpu *g, _Atomic uint64_t *word,
                          unsigned long long *at, pl_err *err)
{
    uintptr_t w = (uintptr_t)word;

    for (const struct mapped *m = g->mapped; m; m = m->next) {
        uintptr_t p = (uintptr_t)m->p;

        if (w >= p && w - p + sizeof *word <= m->bytes) {
            *at = m->at + (w - p);
            return PL_OK;
        }
    }
    return err_set(err, PL_BAD_ARGUMENT,
                   "%s: a word that is waited for must lie in mapped memory",
                   g->name);
}

/* ---- open and close ------------------------------------------------------ */

static pl_status fill(struct gpu *g, pl_err *err)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        PL_TRY(CALL(g, err, cuStreamCreate, &g->stream[q],
                    CUDA_STREAM_NON_BLOCKING));
    for (int i = 0; i < GPU_MAX_MARKS; i++)
        PL_TRY(CALL(g, err, cuEventCreate, &g->mark[i], CUDA_EVENT_NO_TIMING));
    return PL_OK;
}

/* What the device can do, and the text for it. */
static pl_status examine(struct gpu *g, int index, pl_err *err)
{
    int level, words, flushes;

    snprintf(g->name, sizeof g->name, "cuda:%d", index);
    PL_TRY(cuda_device(&g->cu, index, &g->device, &level, err));
    if (!cuda_has_text(level))
        return err_set(err, PL_UNSUPPORTED,
                       "cuda:%d has compute capability %d.%d, and the kernels "
                       "need 6.1; leave it out of -dev",
                       index, level / 10, level % 10);
    PL_TRY(cuda_attribute(&g->cu, g->device, CUDA_STREAMS_KNOW_WORDS, &words,
                          err));
    PL_TRY(cuda_attribute(&g->cu, g->device, CUDA_FLUSHES_REMOTE_WRITES,
                          &flushes, err));
    g->words = words != 0;
    g->wait_flags =
        CUDA_WAIT_AT_LEAST | (flushes ? (unsigned)CUDA_WAIT_FLUSH : 0);
    return cuda_text_init(&g->text, level, err);
}

static pl_status open_at(struct gpu *g, int index, pl_err *err)
{
    int n_device;

    PL_TRY(cuda_load(&g->cu, &n_device, err));
    if (index < 0 || index >= n_device)
        return err_set(err, PL_NOT_FOUND,
                       "cuda:%d: CUDA has %d devices here, counted from 0; "
                       "`plait devices` lists them",
                       index, n_device);
    PL_TRY(examine(g, index, err));
    PL_TRY(CALL(g, err, cuDevicePrimaryCtxRetain, &g->context, g->device));
    PL_TRY(enter(g, err));
    return leave(g, fill(g, err), err);
}

/* Errors tell nobody anything any more. */
static void release_all(struct gpu *g)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (g->stream[q])
            g->cu.cuStreamSynchronize(g->stream[q]);
    while (g->mapped)
        unmap(g, g->mapped->p);
    for (int i = 0; i < GPU_MAX_MARKS; i++)
        if (g->mark[i])
            g->cu.cuEventDestroy(g->mark[i]);
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (g->stream[q])
            g->cu.cuStreamDestroy(g->stream[q]);
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (g->module[k])
            g->cu.cuModuleUnload(g->module[k]);
}

static void close_gpu(struct gpu *g)
{
    if (!g)
        return;
    if (g->context) {
        if (enter(g, NULL) == PL_OK) {
            release_all(g);
            leave(g, PL_OK, NULL);
        }
        g->cu.cuDevicePrimaryCtxRelease(g->device);
    }
    cuda_unload(&g->cu);
    cuda_text_fini(&g->text);
    free(g);
}

static pl_status open_gpu(struct gpu **out, int index, pl_err *err)
{
    struct gpu *g = calloc(1, sizeof *g);
    pl_status s;

    *out = NULL;
    if (!g)
        return err_no_memory(err, "a device of CUDA");
    s = open_at(g, index, err);
    if (s != PL_OK) {
        close_gpu(g);
        return s;
    }
    *out = g;
    return PL_OK;
}

static pl_status identity(struct gpu *g, char *out, size_t size, pl_err *err)
{
    char name[96] = "";
    int version = 0;
    uint64_t text = 0;

    PL_TRY(CALL(g, err, cuDeviceGetName, name, sizeof name, g->device));
    PL_TRY(CALL(g, err, cuDriverGetVersion, &version));
    for (int i = 0; gpu_ptx[i].packed; i++)
        text = hash64(text, gpu_ptx[i].packed, gpu_ptx[i].n_packed);
    snprintf(out, size, "cuda, %s, driver %d, %016" PRIx64, name, version,
             text);
    return PL_OK;
}

/* ---- queues -------------------------------------------------------------- */

static pl_status write_to(struct gpu *g, enum queue q, uint64_t dst,
                          const void *src, size_t bytes, pl_err *err)
{
    if (bytes == 0)
        return PL_OK;
    INSIDE(g, err, cuMemcpyHtoDAsync, dst, src, bytes, g->stream[q]);
}

static pl_status read_from(struct gpu *g, enum queue q, void *dst, uint64_t src,
                           size_t bytes, pl_err *err)
{
    if (bytes == 0)
        return PL_OK;
    INSIDE(g, err, cuMemcpyDtoHAsync, dst, src, bytes, g->stream[q]);
}

/* Either may be mapped memory of the host. */
static pl_status copy(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err)
{
    if (bytes == 0)
        return PL_OK;
    INSIDE(g, err, cuMemcpyAsync, dst, src, bytes, g->stream[q]);
}

/* Has CUDA compile the kernel; the context is the thread's. */
static pl_status compile(struct gpu *g, enum gpu_kernel k, pl_err *err)
{
    char log[512] = "", what[sizeof g->name + sizeof log + 128];
    unsigned option[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)sizeof log};
    struct cuda_module *m = NULL;
    unsigned code =
        g->cu.cuModuleLoadDataEx(&m, g->text.program[k], 2, option, value);
    pl_status s;

    log[sizeof log - 1] = '\0';
    snprintf(what, sizeof what, "%s, kernel %s%s%s", g->name,
             gpu_kernel_name(k), *log ? ": " : "", log);
    PL_TRY(cuda_check(&g->cu, code, "cuModuleLoadDataEx", what, err));
    s = cuda_check(
        &g->cu, g->cu.cuModuleGetFunction(&g->kernel[k], m, gpu_kernel_name(k)),
        "cuModuleGetFunction", what, err);
    if (s != PL_OK) { /* the next launch tries again */
        g->cu.cuModuleUnload(m);
        m = NULL;
        g->kernel[k] = NULL;
    }
    g->module[k] = m;
    return s;
}

static pl_status check_kernel(const struct gpu *g, unsigned code,
                              const char *function, enum gpu_kernel k,
                              pl_err *err)
{
    char what[160];

    if (code == CUDA_SUCCESS_CODE)
        return PL_OK;
    snprintf(what, sizeof what, "%s, kernel %s", g->name, gpu_kernel_name(k));
    return cuda_check(&g->cu, code, function, what, err);
}

/* ---- compiling by several threads ---- */

enum { MAX_COMPILERS = 16 };

struct compiling {
    struct gpu *g;
    const bool *want; /* [GPU_KERNEL_COUNT] */
    atomic_int next;  /* kernel */
    atomic_bool failed;
    pthread_mutex_t lock; /* of what follows: the first that failed */
    pl_status s;
    pl_err err;
};

static void say_failed(struct compiling *c, pl_status s, const pl_err *err)
{
    pthread_mutex_lock(&c->lock);
    if (c->s == PL_OK) {
        c->s = s;
        c->err = *err;
    }
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->failed, true);
}

static pl_status compile_next(struct compiling *c, pl_err *err)
{
    struct gpu *g = c->g;
    int k;

    while (!atomic_load(&c->failed) &&
           (k = atomic_fetch_add(&c->next, 1)) < GPU_KERNEL_COUNT)
        if (c->want[k] && !g->kernel[k])
            PL_TRY(compile(g, (enum gpu_kernel)k, err));
    return PL_OK;
}

static void *compiler(void *user)
{
    struct compiling *c = user;
    pl_err err = {0};
    pl_status s = enter(c->g, &err);

    if (s == PL_OK)
        s = leave(c->g, compile_next(c, &err), &err);
    if (s != PL_OK)
        say_failed(c, s, &err);
    return NULL;
}

/* Threads that do not start are not missed: this one compiles too. */
static pl_status ready(struct gpu *g, const bool want[], int n_thread,
                       pl_err *err)
{
    struct compiling c = {
        .g = g, .want = want, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread[MAX_COMPILERS];
    int n = 0, n_kernel = 0;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        n_kernel += want[k] && !g->kernel[k];
    n_thread = n_thread < n_kernel ? n_thread : n_kernel;
    n_thread = n_thread < MAX_COMPILERS ? n_thread : MAX_COMPILERS;
    while (n < n_thread - 1 &&
           pthread_create(&thread[n], NULL, compiler, &c) == 0)
        n++;
    compiler(&c);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c.lock);
    if (c.s != PL_OK && err)
        *err = c.err;
    return c.s;
}

static pl_status launch_inside(struct gpu *g, enum queue q, enum gpu_kernel k,
                               int32_t n_group, const void *args, pl_err *err)
{
    void *parameter[] = {(void *)(uintptr_t)args};
    unsigned code;

    if (!g->kernel[k])
        PL_TRY(compile(g, k, err));
    code = g->cu.cuLaunchKernel(g->kernel[k], (unsigned)n_group, 1, 1,
                                (unsigned)gpu_kernel_lanes(k), 1, 1, 0,
                                g->stream[q], parameter, NULL);
    return check_kernel(g, code, "cuLaunchKernel", k, err);
}

static pl_status launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err)
{
    PL_TRY(enter(g, err));
    return leave(g, launch_inside(g, q, k, n_group, args, err), err);
}

/* ---- graphs -------------------------------------------------------------- */

struct gpu_graph {
    struct cuda_graph_exec *exec;
};

/* made: [n_node], those before it are there. */
static pl_status add_node(struct gpu *g, struct cuda_graph *to,
                          const struct gpu_node *node,
                          struct cuda_graph_node **made, int i,
                          struct cuda_graph_node **after, pl_err *err)
{
    const struct gpu_node *n = &node[i];
    void *parameter[] = {(void *)(uintptr_t)n->args};
    struct cuda_kernel_node is = {.grid_x = (unsigned)n->n_group,
                                  .grid_y = 1,
                                  .grid_z = 1,
                                  .block_x =
                                      (unsigned)gpu_kernel_lanes(n->kernel),
                                  .block_y = 1,
                                  .block_z = 1,
                                  .parameter = parameter};
    unsigned code;

    if (!g->kernel[n->kernel])
        PL_TRY(compile(g, n->kernel, err));
    is.function = g->kernel[n->kernel];
    for (int k = 0; k < n->n_after; k++)
        after[k] = made[n->after[k]];
    code = g->cu.cuGraphAddKernelNode(&made[i], to, after, (size_t)n->n_after,
                                      &is);
    return check_kernel(g, code, "cuGraphAddKernelNode", n->kernel, err);
}

static pl_status make_exec(struct gpu *g, const struct gpu_node *node, int n,
                           struct cuda_graph_node **made,
                           struct cuda_graph_exec **out, pl_err *err)
{
    struct cuda_graph *graph;
    pl_status s = CALL(g, err, cuGraphCreate, &graph, 0);

    if (s != PL_OK)
        return s;
    for (int i = 0; i < n && s == PL_OK; i++)
        s = add_node(g, graph, node, made, i, made + n, err);
    if (s == PL_OK)
        s = CALL(g, err, cuGraphInstantiateWithFlags, out, graph, 0);
    if (s != PL_OK)
        *out = NULL;
    g->cu.cuGraphDestroy(graph);
    return s;
}

static void graph_free(struct gpu *g, struct gpu_graph *graph)
{
    if (!graph)
        return;
    if (graph->exec && enter(g, NULL) == PL_OK) {
        g->cu.cuGraphExecDestroy(graph->exec);
        leave(g, PL_OK, NULL);
    }
    free(graph);
}

static pl_status graph_make(struct gpu *g, const struct gpu_node *node, int n,
                            struct gpu_graph **out, pl_err *err)
{
    struct gpu_graph *graph = calloc(1, sizeof *graph);
    /* the nodes, and those that one of them waits for */
    struct cuda_graph_node **made = calloc(2 * (size_t)n + 1, sizeof(void *));
    pl_status s = graph && made ? enter(g, err) : err_no_memory(err, "a graph");

    *out = NULL;
    if (s == PL_OK)
        s = leave(g, make_exec(g, node, n, made, &graph->exec, err), err);
    free(made);
    if (s != PL_OK)
        graph_free(g, graph);
    else
        *out = graph;
    return s;
}

static pl_status graph_run(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err)
{
    INSIDE(g, err, cuGraphLaunch, graph->exec, g->stream[q]);
}

/* ---- marks and words ----------------------------------------------------- */

static pl_status mark(struct gpu *g, enum queue q, int i, pl_err *err)
{
    INSIDE(g, err, cuEventRecord, g->mark[i], g->stream[q]);
}

/* Any code: also that of what has failed before. */
static pl_status reached(struct gpu *g, int i, bool *yes, pl_err *err)
{
    unsigned code;

    PL_TRY(enter(g, err));
    code = g->cu.cuEventQuery(g->mark[i]);
    *yes = code == CUDA_SUCCESS_CODE;
    if (code == CUDA_CODE_NOT_READY)
        code = CUDA_SUCCESS_CODE;
    return leave(g, check(g, code, "cuEventQuery", err), err);
}

static pl_status await(struct gpu *g, enum queue q, int i, pl_err *err)
{
    INSIDE(g, err, cuStreamWaitEvent, g->stream[q], g->mark[i], 0);
}

static pl_status finish(struct gpu *g, enum queue q, pl_err *err)
{
    INSIDE(g, err, cuStreamSynchronize, g->stream[q]);
}

static bool words(const struct gpu *g)
{
    return g->words;
}

/* Where the device has the word, if its streams know words. */
static pl_status find_word(const struct gpu *g, _Atomic uint64_t *word,
                           unsigned long long *at, pl_err *err)
{
    if (!g->words)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: its streams neither post a word nor wait for one; "
                       "the issuing thread must",
                       g->name);
    return place_of(g, word, at, err);
}

static pl_status post(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    unsigned long long at = 0;

    PL_TRY(find_word(g, word, &at, err));
    INSIDE(g, err, cuStreamWriteValue64, g->stream[q], at, value,
           CUDA_WRITE_FENCED);
}

static pl_status wait(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    unsigned long long at = 0;

    PL_TRY(find_word(g, word, &at, err));
    INSIDE(g, err, cuStreamWaitValue64, g->stream[q], at, value, g->wait_flags);
}

/* To ask is to send off. */
static pl_status flush(struct gpu *g, enum queue q, pl_err *err)
{
    unsigned code;

    PL_TRY(enter(g, err));
    code = g->cu.cuStreamQuery(g->stream[q]);
    if (code == CUDA_CODE_NOT_READY)
        code = CUDA_SUCCESS_CODE;
    return leave(g, check(g, code, "cuStreamQuery", err), err);
}

const struct gpu_driver gpu_cuda = {
    .name = "cuda",
    .list = cuda_list,
    .free_memory = cuda_free_memory,
    .open = open_gpu,
    .close = close_gpu,
    .enter = enter_thread,
    .leave = leave_thread,
    .identity = identity,
    .ready = ready,
    .alloc = alloc,
    .release = release,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .map = map,
    .unmap = unmap,
    .write = write_to,
    .read = read_from,
    .copy = copy,
    .launch = launch,
    .graph_make = graph_make,
    .graph_run = graph_run,
    .graph_free = graph_free,
    .mark = mark,
    .reached = reached,
    .await = await,
    .words = words,
    .post = post,
    .wait = wait,
    .flush = flush,
    .finish = finish,
};
