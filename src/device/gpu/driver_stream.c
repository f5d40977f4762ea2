/* The driver for GPUs of NVIDIA and AMD, through CUDA and HIP (stream_api.h).
 *
 * Each kernel is a module of its own. It is compiled, or loaded from a cache,
 * when a program that launches it is loaded. A GPU has two streams, its queues.
 * Each function makes the device current for its duration, so any thread may
 * call it, but only one at a time.
 *
 * signal_word() is a stream write: a device that reads the word sees all
 * earlier writes. wait_word() is a stream operation too. Neither API knows the
 * order that such words imply, and both may execute two streams as one. So
 * within the process, a post must be issued before the wait for it. */
#include "device/gpu/driver_stream.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* A range of host memory that is mapped for the device. */
struct mapped {
    struct mapped *next;
    unsigned char *p;
    size_t bytes;
    uint64_t at;
    /* registration that contains the range, a counted reference; NULL before
     * find() */
    struct stream_range *range;
};

struct gpu {
    struct stream_api api;
    struct stream_device device;
    bool held;
    /* `thread` is between enter_thread() and leave_thread() */
    atomic_bool entered;
    pthread_t thread;
    /* device that was current before enter_thread(); leave_thread() restores
     * it */
    int was;
    bool words;               /* streams support signal_word() and
                                 wait_word() */
    struct stream_text *text; /* the kernels' PTX or compiler; owned */
    /* by kernel: its module; NULL if not loaded yet */
    struct api_module *module[GPU_KERNEL_COUNT];
    struct api_function *kernel[GPU_KERNEL_COUNT];
    struct api_stream *stream[QUEUE_COUNT];
    /* event that is recorded before a post, so that other devices see all
     * earlier writes; NULL if the vendor's post needs none */
    struct api_event *fence[QUEUE_COUNT];
    struct api_event *mark[GPU_MAX_MARKS];
    struct mapped *mapped; /* list of mapped host memory; owned */
};

static pl_status check(const struct gpu *g, unsigned code,
                       enum stream_call call, pl_err *err)
{
    return stream_check(&g->api, code, call, g->device.who, err);
}

/* Calls an API function. The error names the device and the function. */
#define CALL(g, err, name, ...)                                                \
    check(g, (g)->api.name(__VA_ARGS__), CALL_##name, err)
/* Calls a function of the vendor table (struct stream_vendor) of GPU g. */
#define MAKE(g, name, ...)                                                     \
    (g)->api.vendor->name(&(g)->api, &(g)->device, __VA_ARGS__)

/* Returns true if this thread is between enter_thread() and leave_thread(). */
static bool inside(const struct gpu *g)
{
    return atomic_load_explicit(&g->entered, memory_order_acquire) &&
           pthread_equal(g->thread, pthread_self());
}

/* Makes the device current in this thread until leave(). Sets *was to what
 * leave() restores. */
static pl_status enter(const struct gpu *g, int *was, pl_err *err)
{
    *was = 0;
    if (inside(g))
        return PL_OK;
    return MAKE(g, enter, was, err);
}

/* Like enter(), but retries once after a failure. Used to release memory, which
 * would leak otherwise. */
static bool enter_to_release(const struct gpu *g, int *was)
{
    return enter(g, was, NULL) == PL_OK || enter(g, was, NULL) == PL_OK;
}

static pl_status leave(const struct gpu *g, int was, pl_status s, pl_err *err)
{
    pl_status left;

    if (inside(g))
        return s;
    left = MAKE(g, leave, was, s == PL_OK ? err : NULL);
    return s == PL_OK ? left : s;
}

static pl_status enter_thread(struct gpu *g, pl_err *err)
{
    int was;

    PL_TRY(enter(g, &was, err));
    g->was = was;
    g->thread = pthread_self();
    atomic_store_explicit(&g->entered, true, memory_order_release);
    return PL_OK;
}

static void leave_thread(struct gpu *g)
{
    atomic_store_explicit(&g->entered, false, memory_order_release);
    leave(g, g->was, PL_OK, NULL);
}

/* Evaluates an expression of type pl_status with the device current, and
 * returns its value from the enclosing function. */
#define DO_INSIDE(g, err, expression)                                          \
    do {                                                                       \
        int was_;                                                              \
                                                                               \
        PL_TRY(enter(g, &was_, err));                                          \
        return leave(g, was_, expression, err);                                \
    } while (0)
#define INSIDE(g, err, name, ...)                                              \
    DO_INSIDE(g, err, CALL(g, err, name, __VA_ARGS__))

/* ---- memory -------------------------------------------------------------- */

static void release(struct gpu *g, uint64_t at)
{
    int was;

    if (at && enter_to_release(g, &was)) {
        g->api.release(at);
        leave(g, was, PL_OK, NULL);
    }
}

static pl_status allocate(struct gpu *g, bool shared, size_t bytes,
                          uint64_t *at, pl_err *err)
{
    const enum stream_call call =
        shared ? CALL_hipExtMallocWithFlags : CALL_alloc;
    int was;
    unsigned long long a = 0;
    char what[160];
    pl_status s;

    *at = 0;
    snprintf(what, sizeof what, "%s, %zu bytes", g->device.who, bytes);
    PL_TRY(enter(g, &was, err));
    bytes += bytes == 0;
    s = stream_check(
        &g->api,
        shared ? g->api.hipExtMallocWithFlags(&a, bytes, HIP_FINE_GRAINED)
               : g->api.alloc(&a, bytes),
        call, what, err);
    if (s != PL_OK)
        a = 0;
    s = leave(g, was, s, err);
    if (s == PL_OK)
        *at = a;
    else
        release(g, a);
    return s;
}

static pl_status alloc(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err)
{
    return allocate(g, false, bytes, at, err);
}

/* Allocates memory that peers may write, with HIP only. A running kernel may
 * miss what a peer has written to memory from alloc(), because the GPU's caches
 * still have the old contents. */
static pl_status alloc_shared(struct gpu *g, size_t bytes, uint64_t *at,
                              pl_err *err)
{
    return allocate(g, true, bytes, at, err);
}

static void host_release(struct gpu *g, void *p)
{
    int was;

    if (p && enter_to_release(g, &was)) {
        g->api.host_release(p);
        leave(g, was, PL_OK, NULL);
    }
}

static pl_status host_alloc(struct gpu *g, size_t bytes, void **p, pl_err *err)
{
    int was;
    void *made = NULL;
    pl_status s;

    *p = NULL;
    PL_TRY(enter(g, &was, err));
    s = CALL(g, err, host_alloc, &made, bytes ? bytes : 1,
             API_HOST_PORTABLE | API_HOST_MAPPED);
    /* the API has one code for both kinds of memory; in this call it means that
     * host memory is exhausted */
    if (s == PL_NO_DEVICE_MEMORY) {
        s = PL_NO_MEMORY;
        if (err)
            err->status = s;
    }
    if (s != PL_OK)
        made = NULL;
    s = leave(g, was, s, err);
    if (s == PL_OK)
        *p = made;
    else
        host_release(g, made);
    return s;
}

/* Registers the range m->p[m->bytes] and sets its device address. */
static pl_status find(struct gpu *g, struct mapped *m, pl_err *err)
{
    unsigned long long at = 0, last = 0;

    PL_TRY(stream_range_hold(&m->range, &g->api, m->p, m->bytes, g->device.who,
                             err));
    PL_TRY(CALL(g, err, host_address, &at, m->p, 0));
    m->at = at;
    if (at == (uintptr_t)m->p && stream_range_is_ours(m->range))
        /* the range is in one registration, and mapped at the same addresses as
         * on the CPU, so it is contiguous for the device */
        return PL_OK;
    PL_TRY(CALL(g, err, host_address, &last, m->p + m->bytes - 1, 0));
    if (last - at != m->bytes - 1)
        return err_set(err, PL_UNSUPPORTED,
                       "%s, mapping %zu bytes: parts of the range are already "
                       "mapped; map the whole range first",
                       g->device.who, m->bytes);
    return PL_OK;
}

/* Unregisters and frees m, which is not in the list of mapped ranges. */
static void drop_mapped(struct gpu *g, struct mapped *m)
{
    int was;

    if (m->range && enter_to_release(g, &was)) {
        stream_range_drop(m->range, &g->api);
        leave(g, was, PL_OK, NULL);
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

    PL_TRY(stream_attribute(&g->api, &g->device, ATTRIBUTE_MAPS_HOST_MEMORY,
                            &maps, err));
    PL_TRY(stream_attribute(&g->api, &g->device,
                            ATTRIBUTE_REGISTERS_HOST_MEMORY, &registers, err));
    if (maps && registers && bytes > 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "%s cannot map %zu bytes of this process", g->device.who,
                   bytes);
}

static pl_status map(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err)
{
    int was;
    struct mapped *m;
    pl_status s;

    *at = 0;
    PL_TRY(can_map(g, bytes, err));
    m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(err, "mapped memory");
    m->p = p;
    m->bytes = bytes;
    s = enter(g, &was, err);
    if (s == PL_OK)
        s = leave(g, was, find(g, m, err), err);
    if (s != PL_OK) {
        drop_mapped(g, m);
        return s;
    }
    m->next = g->mapped;
    g->mapped = m;
    *at = m->at;
    return PL_OK;
}

static pl_status reach_peer(struct gpu *g, const struct gpu *peer, pl_err *err)
{
    int can = 0;

    PL_TRY(CALL(g, err, device_reaches, &can, g->device.handle,
                peer->device.handle));
    if (!can)
        return err_set(err, PL_UNSUPPORTED, "%s cannot access memory of %s",
                       g->device.who, peer->device.who);
    return MAKE(g, reach, &peer->device, err);
}

/* Enables access from g to the memory of `peer`. Does nothing if both are on
 * the same GPU. */
static pl_status reach_gpu(struct gpu *g, struct gpu *peer, pl_err *err)
{
    if (g->device.handle == peer->device.handle)
        return PL_OK;
    DO_INSIDE(g, err, reach_peer(g, peer, err));
}

/* Sets *at to the device address of a word in mapped host memory. */
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
                   "%s: a word to wait for must be in mapped memory",
                   g->device.who);
}

/* Sets *at to the device address of a word, or returns an error if streams do
 * not support words. */
static pl_status find_word(const struct gpu *g, _Atomic uint64_t *word,
                           unsigned long long *at, pl_err *err)
{
    if (!g->words)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: its streams have no memory operations; signal and "
                       "wait on the issuing thread",
                       g->device.who);
    return place_of(g, word, at, err);
}

/* ---- open and close ------------------------------------------------------ */

static pl_status fill(struct gpu *g, pl_err *err)
{
    const unsigned fence = g->api.vendor->fence;

    for (int q = 0; q < QUEUE_COUNT; q++) {
        PL_TRY(CALL(g, err, stream_create, &g->stream[q],
                    API_STREAM_NON_BLOCKING));
        if (fence)
            PL_TRY(CALL(g, err, event_create, &g->fence[q],
                        fence | API_EVENT_NO_TIMING));
    }
    for (int i = 0; i < GPU_MAX_MARKS; i++)
        PL_TRY(CALL(g, err, event_create, &g->mark[i], API_EVENT_NO_TIMING));
    return PL_OK;
}

/* Initializes g->device, rejects a device that cannot run the kernels, and
 * opens the kernels' PTX or compiler. */
static pl_status examine(struct gpu *g, int index, pl_err *err)
{
    char why[160];
    int words;

    PL_TRY(stream_device(&g->api, index, &g->device, err));
    if (g->api.vendor->refuses(&g->device, why, sizeof why))
        return err_set(err, PL_UNSUPPORTED, "%s: %s; leave it out of -dev",
                       g->device.who, why);
    PL_TRY(stream_attribute(&g->api, &g->device, ATTRIBUTE_STREAMS_KNOW_WORDS,
                            &words, err));
    g->words = words != 0;
    return g->api.vendor->text_open(&g->text, &g->api, &g->device, err);
}

static pl_status open_at(struct gpu *g, const struct stream_vendor *vendor,
                         int index, pl_err *err)
{
    int n_device;

    PL_TRY(stream_load(&g->api, vendor, &n_device, err));
    if (index < 0 || index >= n_device)
        return err_set(err, PL_NOT_FOUND,
                       "%s:%d: %s has %d devices on this machine, counted from "
                       "0; `plait devices` lists them",
                       vendor->name, index, vendor->title, n_device);
    PL_TRY(examine(g, index, err));
    PL_TRY(g->api.vendor->hold(&g->api, &g->device, err));
    g->held = true;
    DO_INSIDE(g, err, fill(g, err));
}

/* Frees all objects of the GPU. Ignores errors, because the caller cannot
 * handle them. */
static void release_all(struct gpu *g)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (g->stream[q])
            g->api.stream_synchronize(g->stream[q]);
    while (g->mapped)
        unmap(g, g->mapped->p);
    for (int i = 0; i < GPU_MAX_MARKS; i++)
        if (g->mark[i])
            g->api.event_destroy(g->mark[i]);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (g->fence[q])
            g->api.event_destroy(g->fence[q]);
        if (g->stream[q])
            g->api.stream_destroy(g->stream[q]);
    }
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (g->module[k])
            g->api.module_unload(g->module[k]);
}

static void close_gpu(struct gpu *g)
{
    int was;

    if (!g)
        return;
    if (g->held) {
        if (enter_to_release(g, &was)) {
            release_all(g);
            leave(g, was, PL_OK, NULL);
        }
        g->api.vendor->drop(&g->api, &g->device, NULL);
    }
    if (g->text)
        g->api.vendor->text_close(g->text);
    stream_unload(&g->api);
    free(g);
}

static pl_status open_gpu(struct gpu **out, const struct stream_vendor *vendor,
                          int index, pl_err *err)
{
    struct gpu *g = calloc(1, sizeof *g);
    pl_status s;

    *out = NULL;
    if (!g)
        return err_no_memory(err, "a CUDA or HIP device");
    s = open_at(g, vendor, index, err);
    if (s != PL_OK) {
        close_gpu(g);
        return s;
    }
    *out = g;
    return PL_OK;
}

static pl_status identity(struct gpu *g, char *out, size_t size, pl_err *err)
{
    const struct stream_vendor *vendor = g->api.vendor;
    char name[96] = "";
    int version = 0;

    PL_TRY(CALL(g, err, device_name, name, sizeof name, g->device.handle));
    PL_TRY(CALL(g, err, version, &version));
    snprintf(out, size, "%s, %s%s%s, driver %d, %016" PRIx64, vendor->name,
             name, g->device.arch[0] ? ", " : "", g->device.arch, version,
             vendor->text_hash(g->text));
    return PL_OK;
}

/* ---- queues -------------------------------------------------------------- */

static pl_status copy_bytes(struct gpu *g, enum queue q,
                            enum stream_direction way, uint64_t dst,
                            uint64_t src, size_t bytes, pl_err *err)
{
    if (bytes == 0)
        return PL_OK;
    DO_INSIDE(g, err, MAKE(g, copy, g->stream[q], way, dst, src, bytes, err));
}

static pl_status write_to(struct gpu *g, enum queue q, uint64_t dst,
                          const void *src, size_t bytes, pl_err *err)
{
    return copy_bytes(g, q, COPY_TO_DEVICE, dst, (uintptr_t)src, bytes, err);
}

static pl_status read_from(struct gpu *g, enum queue q, void *dst, uint64_t src,
                           size_t bytes, pl_err *err)
{
    return copy_bytes(g, q, COPY_TO_HOST, (uintptr_t)dst, src, bytes, err);
}

/* Both addresses may be in mapped host memory; dst may also be in a peer's
 * memory. */
static pl_status copy(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err)
{
    return copy_bytes(g, q, COPY_ANY, dst, src, bytes, err);
}

/* Loads `image`, the PTX or machine code of kernel k, as a module. */
static pl_status load(struct gpu *g, enum gpu_kernel k, const void *image,
                      struct api_module **m, pl_err *err)
{
    char log[512] = "", what[sizeof g->device.who + sizeof log + 128];
    unsigned option[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)sizeof log};
    unsigned code = g->api.module_load(m, image, g->api.vendor->logs ? 2 : 0,
                                       option, value);

    log[sizeof log - 1] = '\0';
    snprintf(what, sizeof what, "%s, kernel %s%s%s", g->device.who,
             gpu_kernel_name(k), *log ? ": " : "", log);
    return stream_check(&g->api, code, CALL_module_load, what, err);
}

/* Compiles kernel k, or loads its stored code, and sets g->module[k] and
 * g->kernel[k]. The device must be current. */
static pl_status compile(struct gpu *g, enum gpu_kernel k, pl_err *err)
{
    const void *image = NULL;
    void *owned = NULL;
    struct api_module *m = NULL;
    pl_status s = g->api.vendor->text_program(g->text, k, &image, &owned, err);

    if (s == PL_OK)
        s = load(g, k, image, &m, err);
    free(owned);
    if (s != PL_OK)
        return s;
    s = stream_check_kernel(
        &g->api, &g->device,
        g->api.module_function(&g->kernel[k], m, gpu_kernel_name(k)),
        CALL_module_function, k, err);
    /* unloads the module, so that the next launch loads it again */
    if (s != PL_OK) {
        g->api.module_unload(m);
        m = NULL;
        g->kernel[k] = NULL;
    }
    g->module[k] = m;
    return s;
}

/* The kernels that ready() must compile. */
struct compiling {
    struct gpu *g;
    enum gpu_kernel kernel[GPU_KERNEL_COUNT];
    int n;
};

static pl_status compile_one(void *user, int i, pl_err *err)
{
    const struct compiling *c = user;

    DO_INSIDE(c->g, err, compile(c->g, c->kernel[i], err));
}

static pl_status ready(struct gpu *g, const bool want[], int n_thread,
                       const struct gpu_progress *p, pl_err *err)
{
    struct compiling c = {.g = g};

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (want[k] && !g->kernel[k])
            c.kernel[c.n++] = (enum gpu_kernel)k;
    return gpu_compile(p, c.n, n_thread, compile_one, &c, err);
}

static pl_status launch_inside(struct gpu *g, enum queue q, enum gpu_kernel k,
                               int32_t n_group, const void *args, pl_err *err)
{
    void *parameter[] = {(void *)(uintptr_t)args};
    unsigned code;

    if (!g->kernel[k])
        PL_TRY(compile(g, k, err));
    code = g->api.launch(g->kernel[k], (unsigned)n_group, 1, 1,
                         (unsigned)gpu_kernel_lanes(k), 1, 1, 0, g->stream[q],
                         parameter, NULL);
    return stream_check_kernel(&g->api, &g->device, code, CALL_launch, k, err);
}

static pl_status launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err)
{
    DO_INSIDE(g, err, launch_inside(g, q, k, n_group, args, err));
}

/* ---- device graphs ------------------------------------------------------- */

struct gpu_graph {
    struct api_graph_exec *exec;
};

/* Sets *out to the device addresses of the words of all nodes; the caller
 * frees it. */
static pl_status find_words(const struct gpu *g,
                            const struct gpu_graph_node *node, int n,
                            unsigned long long **out, pl_err *err)
{
    int all = 0;

    for (int i = 0; i < n; i++)
        all += node[i].n_op;
    *out = calloc((size_t)all + 1, sizeof **out);
    if (!*out)
        return err_no_memory(err, "a graph");
    all = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < node[i].n_op; k++)
            PL_TRY(find_word(g, node[i].op[k].word, &(*out)[all++], err));
    return PL_OK;
}

static pl_status make_exec(struct gpu *g, const struct gpu_graph_node *node,
                           int n, struct api_graph_exec **out, pl_err *err)
{
    struct stream_launches l = {.node = node, .n = n, .function = g->kernel};
    struct api_graph *graph = NULL;
    unsigned long long *word = NULL;
    pl_status s = find_words(g, node, n, &word, err);

    l.word = word;
    for (int i = 0; i < n && s == PL_OK; i++)
        if (node[i].n_op == 0 && !g->kernel[node[i].kernel])
            s = compile(g, node[i].kernel, err);
    if (s == PL_OK)
        s = MAKE(g, graph, &l, g->stream[QUEUE_COMPUTE], &graph, err);
    if (s == PL_OK)
        s = CALL(g, err, graph_instantiate, out, graph, 0);
    if (s != PL_OK)
        *out = NULL;
    if (graph)
        g->api.graph_destroy(graph);
    free(word);
    return s;
}

static bool graph_words(const struct gpu *g)
{
    return g->words && g->api.vendor->graph_words &&
           g->api.vendor->graph_words(&g->api);
}

static void graph_free(struct gpu *g, struct gpu_graph *graph)
{
    int was;

    if (!graph)
        return;
    if (graph->exec && enter_to_release(g, &was)) {
        g->api.graph_exec_destroy(graph->exec);
        leave(g, was, PL_OK, NULL);
    }
    free(graph);
}

static pl_status graph_make(struct gpu *g, const struct gpu_graph_node *node,
                            int n, struct gpu_graph **out, pl_err *err)
{
    struct gpu_graph *graph = calloc(1, sizeof *graph);
    int was;
    pl_status s = graph ? enter(g, &was, err) : err_no_memory(err, "a graph");

    *out = NULL;
    if (s == PL_OK)
        s = leave(g, was, make_exec(g, node, n, &graph->exec, err), err);
    if (s != PL_OK)
        graph_free(g, graph);
    else
        *out = graph;
    return s;
}

static pl_status graph_run(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err)
{
    INSIDE(g, err, graph_launch, graph->exec, g->stream[q]);
}

static bool overlap(struct gpu *g, bool may)
{
    g->device.overlaps = g->device.overlaps && may;
    return g->device.overlaps;
}

/* ---- fences and memory words --------------------------------------------- */

static pl_status mark(struct gpu *g, enum queue q, int i, pl_err *err)
{
    INSIDE(g, err, event_record, g->mark[i], g->stream[q]);
}

/* The query may return the error of an earlier command. Only API_NOT_READY
 * means that the fence is not reached. */
static pl_status reached(struct gpu *g, int i, bool *yes, pl_err *err)
{
    int was;
    unsigned code;

    PL_TRY(enter(g, &was, err));
    code = g->api.event_query(g->mark[i]);
    *yes = code == API_SUCCESS;
    if (code == API_NOT_READY)
        code = API_SUCCESS;
    return leave(g, was, check(g, code, CALL_event_query, err), err);
}

static pl_status await(struct gpu *g, enum queue q, int i, pl_err *err)
{
    INSIDE(g, err, stream_wait_event, g->stream[q], g->mark[i], 0);
}

static pl_status finish(struct gpu *g, enum queue q, pl_err *err)
{
    INSIDE(g, err, stream_synchronize, g->stream[q]);
}

static pl_status post_inside(struct gpu *g, enum queue q, uint64_t at,
                             uint64_t value, pl_err *err)
{
    if (g->fence[q])
        PL_TRY(CALL(g, err, event_record, g->fence[q], g->stream[q]));
    return MAKE(g, post, g->stream[q], at, value, err);
}

static bool words(const struct gpu *g)
{
    return g->words;
}

static pl_status post(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    unsigned long long at = 0;

    PL_TRY(find_word(g, word, &at, err));
    DO_INSIDE(g, err, post_inside(g, q, at, value, err));
}

static pl_status wait(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    unsigned long long at = 0;

    PL_TRY(find_word(g, word, &at, err));
    DO_INSIDE(g, err, MAKE(g, wait, g->stream[q], at, value, err));
}

/* Submits the queued commands: a query of the stream does so. */
static pl_status flush(struct gpu *g, enum queue q, pl_err *err)
{
    int was;
    unsigned code;

    PL_TRY(enter(g, &was, err));
    code = g->api.stream_query(g->stream[q]);
    if (code == API_NOT_READY)
        code = API_SUCCESS;
    return leave(g, was, check(g, code, CALL_stream_query, err), err);
}

/* ---- driver tables of CUDA and HIP --------------------------------------- */

static pl_status cuda_open(struct gpu **out, int index, pl_err *err)
{
    return open_gpu(out, &vendor_cuda, index, err);
}

static pl_status cuda_list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    return stream_list(&vendor_cuda, out, max, n, err);
}

static pl_status cuda_free_memory(int index, uint64_t *bytes, pl_err *err)
{
    return stream_free_memory(&vendor_cuda, index, bytes, err);
}

static void cuda_peers(struct gpu_info *gpu, int n)
{
    stream_peers(&vendor_cuda, gpu, n);
}

static pl_status hip_open(struct gpu **out, int index, pl_err *err)
{
    return open_gpu(out, &vendor_hip, index, err);
}

static pl_status hip_list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    return stream_list(&vendor_hip, out, max, n, err);
}

static pl_status hip_free_memory(int index, uint64_t *bytes, pl_err *err)
{
    return stream_free_memory(&vendor_hip, index, bytes, err);
}

static void hip_peers(struct gpu_info *gpu, int n)
{
    stream_peers(&vendor_hip, gpu, n);
}

/* The functions that are the same for both APIs. */
#define STREAM_ROWS                                                            \
    .counts_groups = true, .close = close_gpu, .enter = enter_thread,          \
    .leave = leave_thread, .identity = identity, .compile_kernels = ready,     \
    .alloc = alloc, .release = release, .host_alloc = host_alloc,              \
    .host_release = host_release, .map = map, .unmap = unmap,                  \
    .enable_peer_access = reach_gpu, .write = write_to, .read = read_from,     \
    .copy = copy, .launch = launch, .graph_make = graph_make,                  \
    .graph_run = graph_run, .graph_free = graph_free,                          \
    .has_graph_words = graph_words, .overlap = overlap, .fence_record = mark,  \
    .fence_query = reached, .fence_wait = await, .has_mem_ops = words,         \
    .signal_word = post, .wait_word = wait, .flush = flush, .finish = finish

const struct gpu_driver gpu_cuda = {.name = "cuda",
                                    .list = cuda_list,
                                    .free_memory = cuda_free_memory,
                                    .peers = cuda_peers,
                                    .open = cuda_open,
                                    STREAM_ROWS};

const struct gpu_driver gpu_hip = {.name = "hip",
                                   .remedy = "set PLAIT_HIP_MATRIX=0",
                                   .list = hip_list,
                                   .free_memory = hip_free_memory,
                                   .peers = hip_peers,
                                   .open = hip_open,
                                   .alloc_shared = alloc_shared,
                                   STREAM_ROWS};
