/* NVIDIA's CUDA: what differs from HIP.
 *
 * A GPU is represented by the device's primary context, which other code of the
 * process may use too. The kernels are PTX (ptx/), one module each, which CUDA
 * compiles when it is loaded and caches for later processes. A post is a stream
 * write after a system-wide fence: a reader of the word sees all earlier
 * writes. A wait is a stream operation. Where the device supports it, the wait
 * is followed by a flush of remote writes. Later commands then see what a peer
 * wrote to this device before it set the word. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash64.h"
#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_ptx.h"
#include "device/gpu/gpu_rates.h"
#include "device/gpu/gpu_switch.h"

/* ---- the library --------------------------------------------------------- */

static const char *const symbols[STREAM_CALL_COUNT] = {
#define ROW(name, cuda, suffix, hip, parameters) [CALL_##name] = #cuda #suffix,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, suffix, parameters) [CALL_##name] = #name #suffix,
        CUDA_CALL_MAP(ROW) CUDA_LATER_CALL_MAP(ROW)
#undef ROW
};

static const char *const calls[STREAM_CALL_COUNT] = {
#define ROW(name, cuda, suffix, hip, parameters) [CALL_##name] = #cuda,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, suffix, parameters) [CALL_##name] = #name,
        CUDA_CALL_MAP(ROW) CUDA_LATER_CALL_MAP(ROW)
#undef ROW
};

static const char *const paths[] = {"libcuda.so.1", NULL};

static const char *error_name(const struct stream_api *api, unsigned code)
{
    const char *name = NULL;

    return api->cuGetErrorName(code, &name) == API_SUCCESS ? name : NULL;
}

static const char *error_text(const struct stream_api *api, unsigned code)
{
    const char *text = NULL;

    return api->cuGetErrorString(code, &text) == API_SUCCESS ? text : NULL;
}

static bool is_none(unsigned code)
{
    return code == API_NO_DEVICE;
}

static pl_status none(const struct stream_api *api, unsigned code, pl_err *err)
{
    (void)api;
    (void)code;
    (void)err;
    return PL_OK;
}

/* Calls a CUDA function. The error names the device and the function. */
#define CALL(api, d, err, name, ...)                                           \
    stream_check(api, (api)->name(__VA_ARGS__), CALL_##name, (d)->who, err)

/* ---- devices ------------------------------------------------------------- */

static pl_status examine(const struct stream_api *api, struct stream_device *d,
                         pl_err *err)
{
    int major, minor, flushes;
    bool on;

    PL_TRY(CALL(api, d, err, device_attribute, &major, CUDA_CAPABILITY_MAJOR,
                d->handle));
    PL_TRY(CALL(api, d, err, device_attribute, &minor, CUDA_CAPABILITY_MINOR,
                d->handle));
    PL_TRY(CALL(api, d, err, device_attribute, &flushes,
                CUDA_FLUSHES_REMOTE_WRITES, d->handle));
    d->level = major * 10 + minor;
    /* an invalid value of PLAIT_OVERLAP is reported by gpu_pdl.c */
    gpu_switch("PLAIT_OVERLAP", "", &on, NULL);
    d->overlaps =
        on && d->level >= CUDA_OVERLAPS && api->cuGraphAddDependencies;
    d->wait_flags =
        CUDA_WAIT_AT_LEAST | (flushes ? (unsigned)CUDA_WAIT_FLUSH : 0);
    return PL_OK;
}

static bool refuses(const struct stream_device *d, char *why, size_t size)
{
    if (cuda_has_text(d->level))
        return false;
    snprintf(why, size,
             "its compute capability is %d.%d, and the kernels need 6.1",
             d->level / 10, d->level % 10);
    return true;
}

static void show(const struct stream_api *api, const struct stream_device *d,
                 double hz, struct gpu_info *i)
{
    int v = 0;

    if (api->version(&v) != API_SUCCESS || v <= 0)
        snprintf(i->version, sizeof i->version, "compute %d.%d", d->level / 10,
                 d->level % 10);
    else
        snprintf(i->version, sizeof i->version, "CUDA %d.%d, compute %d.%d",
                 v / 1000, v % 1000 / 10, d->level / 10, d->level % 10);
    i->has |= (unsigned)(d->level >= 61) << GPU_DOT4 |
              (unsigned)(d->level >= 80) << GPU_MMA;
    gpu_speeds_cuda(i, d->level, d->overlaps, hz);
}

static int transfers(const struct stream_api *api,
                     const struct stream_device *d, int bus_bits)
{
    (void)api;
    (void)d;
    (void)bus_bits;
    return 2;
}

static pl_status hold(const struct stream_api *api, struct stream_device *d,
                      pl_err *err)
{
    pl_status s =
        CALL(api, d, err, cuDevicePrimaryCtxRetain, &d->context, d->handle);

    if (s != PL_OK)
        d->context = NULL;
    return s;
}

static pl_status drop(const struct stream_api *api, struct stream_device *d,
                      pl_err *err)
{
    if (!d->context)
        return PL_OK;
    d->context = NULL;
    return CALL(api, d, err, cuDevicePrimaryCtxRelease, d->handle);
}

static pl_status enter(const struct stream_api *api,
                       const struct stream_device *d, int *was, pl_err *err)
{
    *was = 0;
    return CALL(api, d, err, cuCtxPushCurrent, d->context);
}

static pl_status leave(const struct stream_api *api,
                       const struct stream_device *d, int was, pl_err *err)
{
    struct cuda_context *c;

    (void)was;
    return CALL(api, d, err, cuCtxPopCurrent, &c);
}

/* Peer access that other code of the process has enabled already is not an
 * error. It is never disabled, because that code may need it. It ends when one
 * of the contexts ends. */
static pl_status reach(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_device *peer, pl_err *err)
{
    unsigned code = api->cuCtxEnablePeerAccess(peer->context, 0);

    return stream_check(api, code == API_ALREADY_REACHED ? API_SUCCESS : code,
                        CALL_cuCtxEnablePeerAccess, d->who, err);
}

/* ---- kernel source ------------------------------------------------------- */

struct stream_text {
    int level;
    pthread_mutex_t lock;
    /* the PTX of all kernels; zeroed until the first kernel is needed */
    struct cuda_text text;
};

static void text_close(struct stream_text *t)
{
    if (!t)
        return;
    cuda_text_fini(&t->text);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Leaves the PTX compressed. Decompressing it takes longer than the rest of
 * opening a device, and devices are often opened only to be listed. */
static pl_status text_open(struct stream_text **out,
                           const struct stream_api *api,
                           const struct stream_device *d, pl_err *err)
{
    struct stream_text *t = calloc(1, sizeof *t);

    (void)api;
    *out = t;
    if (!t)
        return err_no_memory(err, "the source of the CUDA kernels");
    t->level = d->level;
    pthread_mutex_init(&t->lock, NULL);
    return PL_OK;
}

static pl_status text_program(struct stream_text *t, enum gpu_kernel k,
                              const void **image, void **owned, pl_err *err)
{
    pl_status s = PL_OK;
    char *program;

    pthread_mutex_lock(&t->lock);
    if (!t->text.ptx)
        s = cuda_text_init(&t->text, t->level, err);
    pthread_mutex_unlock(&t->lock);
    if (s == PL_OK)
        s = cuda_text_program(&t->text, k, &program, err);
    *image = *owned = s == PL_OK ? program : NULL;
    return s;
}

static uint64_t text_hash(const struct stream_text *t)
{
    (void)t;
    return hash64(0, gpu_ptx.packed, gpu_ptx.n_packed);
}

/* ---- streams ------------------------------------------------------------- */

static pl_status copy(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      enum stream_direction way, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err)
{
    if (way == COPY_TO_DEVICE)
        return CALL(api, d, err, cuMemcpyHtoDAsync, dst,
                    (const void *)(uintptr_t)src, bytes, s);
    if (way == COPY_TO_HOST)
        return CALL(api, d, err, cuMemcpyDtoHAsync, (void *)(uintptr_t)dst, src,
                    bytes, s);
    return CALL(api, d, err, cuMemcpyAsync, dst, src, bytes, s);
}

static pl_status post(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err)
{
    return CALL(api, d, err, cuStreamWriteValue64, s, at, value,
                CUDA_WRITE_FENCED);
}

static pl_status wait(const struct stream_api *api,
                      const struct stream_device *d, struct api_stream *s,
                      uint64_t at, uint64_t value, pl_err *err)
{
    return CALL(api, d, err, cuStreamWaitValue64, s, at, value, d->wait_flags);
}

/* Adds an edge with programmatic dependent launch from the previous node to
 * *node. The nodes form one chain, so each waits only for its predecessor.
 * Earlier nodes that it depends on have ended by then, because the predecessor
 * has waited for its own predecessor. */
static pl_status link(const struct stream_api *api,
                      const struct stream_device *d, struct api_graph *g,
                      struct cuda_graph_node **node, pl_err *err)
{
    static const struct cuda_edge edge = {.from_port = CUDA_PORT_PROGRAMMATIC,
                                          .type = CUDA_EDGE_PROGRAMMATIC};

    return CALL(api, d, err, cuGraphAddDependencies, g, node - 1, node, &edge,
                1);
}

static bool graph_words(const struct stream_api *api)
{
    return api->cuGraphAddBatchMemOpNode != NULL;
}

/* Adds node *made of words, whose addresses are word[n->n_op], after
 * after[n_after]. */
static pl_status
add_words(const struct stream_api *api, const struct stream_device *d,
          struct api_graph *g, const struct gpu_graph_node *n,
          const unsigned long long *word, struct cuda_graph_node **made,
          struct cuda_graph_node *const *after, int n_after, pl_err *err)
{
    struct cuda_word_op *op = calloc((size_t)n->n_op, sizeof *op);
    struct cuda_words_node is = {
        .context = d->context, .n = (unsigned)n->n_op, .op = op};
    pl_status s;

    if (!op)
        return err_no_memory(err, "a graph");
    for (int i = 0; i < n->n_op; i++)
        op[i] = (struct cuda_word_op){
            .operation = n->op[i].wait ? CUDA_WORD_WAIT : CUDA_WORD_WRITE,
            .at = word[i],
            .value = n->op[i].value,
            .flags = n->op[i].wait ? d->wait_flags : CUDA_WRITE_FENCED};
    s = CALL(api, d, err, cuGraphAddBatchMemOpNode, made, g, after,
             (size_t)n_after, &is);
    free(op);
    return s;
}

/* Adds node i to the graph and sets made[i]. made[0] to made[i - 1] are the
 * nodes before it; after[l->n] is scratch; *word is the address of its first
 * word, and advances. If launches overlap, the nodes are one chain. */
static pl_status add_node(const struct stream_api *api,
                          const struct stream_device *d,
                          const struct stream_launches *l, struct api_graph *g,
                          int i, struct cuda_graph_node **made,
                          struct cuda_graph_node **after,
                          const unsigned long long **word, pl_err *err)
{
    const struct gpu_graph_node *n = &l->node[i];
    bool links = d->overlaps && i > 0 && n->n_op == 0 && n[-1].n_op == 0;
    void *parameter[] = {(void *)(uintptr_t)n->args};
    struct cuda_kernel_node is = {.function = l->function[n->kernel],
                                  .grid_x = (unsigned)n->n_group,
                                  .grid_y = 1,
                                  .grid_z = 1,
                                  .block_x =
                                      (unsigned)gpu_kernel_lanes(n->kernel),
                                  .block_y = 1,
                                  .block_z = 1,
                                  .parameter = parameter};

    int n_after = d->overlaps ? i > 0 && !links : n->n_after;

    for (int k = 0; k < n_after; k++)
        after[k] = made[d->overlaps ? i - 1 : n->after[k]];
    if (n->n_op > 0) {
        *word += n->n_op;
        return add_words(api, d, g, n, *word - n->n_op, &made[i], after,
                         n_after, err);
    }
    PL_TRY(stream_check_kernel(
        api, d,
        api->cuGraphAddKernelNode(&made[i], g, after, (size_t)n_after, &is),
        CALL_cuGraphAddKernelNode, n->kernel, err));
    return links ? link(api, d, g, &made[i], err) : PL_OK;
}

static pl_status graph(const struct stream_api *api,
                       const struct stream_device *d,
                       const struct stream_launches *l, struct api_stream *s,
                       struct api_graph **out, pl_err *err)
{
    /* [l->n] the nodes, then [l->n] scratch of add_node() */
    struct cuda_graph_node **made = calloc(2 * (size_t)l->n + 1, sizeof *made);
    const unsigned long long *word = l->word;
    pl_status status;

    (void)s;
    *out = NULL;
    if (!made)
        return err_no_memory(err, "a graph");
    status = CALL(api, d, err, cuGraphCreate, out, 0);
    if (status != PL_OK)
        *out = NULL;
    for (int i = 0; i < l->n && status == PL_OK; i++)
        status = add_node(api, d, l, *out, i, made, made + l->n, &word, err);
    free(made);
    return status;
}

const struct stream_vendor vendor_cuda = {
    .name = "cuda",
    .title = "CUDA",
    .variable = "PLAIT_LIBCUDA",
    .path = paths,
    .remedy = "install NVIDIA's driver",
    .least = "install NVIDIA's driver 520 or later",
    .symbol = symbols,
    .call = calls,
    .later = CALL_cuGraphAddDependencies,
    .attribute =
        {
            [ATTRIBUTE_CLOCK_KHZ] = CUDA_CLOCK_KHZ,
            [ATTRIBUTE_MEMORY_CLOCK_KHZ] = CUDA_MEMORY_CLOCK_KHZ,
            [ATTRIBUTE_MEMORY_BUS_BITS] = CUDA_MEMORY_BUS_BITS,
            [ATTRIBUTE_N_MULTIPROCESSOR] = CUDA_N_MULTIPROCESSOR,
            [ATTRIBUTE_MAPS_HOST_MEMORY] = CUDA_MAPS_HOST_MEMORY,
            [ATTRIBUTE_REGISTERS_HOST_MEMORY] = CUDA_REGISTERS_HOST_MEMORY,
            [ATTRIBUTE_STREAMS_KNOW_WORDS] = CUDA_STREAMS_KNOW_WORDS,
        },
    .logs = true,
    .error_name = error_name,
    .error_text = error_text,
    .is_none = is_none,
    .none = none,
    .examine = examine,
    .refuses = refuses,
    .show = show,
    .transfers = transfers,
    .hold = hold,
    .drop = drop,
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
    .graph_words = graph_words,
    .graph = graph,
};
