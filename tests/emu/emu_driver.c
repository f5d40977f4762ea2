/* The driver of the emulator: a GPU without hardware, for tests.
 *
 * The GPU's memory is host memory. New memory is filled with poison bytes. A
 * queued command is stored, and executed when its queue is finished or,
 * sometimes, flushed. Then the commands of both queues are executed in a random
 * order that the fences allow. The launches of a device graph are executed in a
 * random order that its edges allow. So a missing fence or edge causes wrong
 * results. So does a host buffer that is changed before a queued copy has read
 * it. Kernels run on the issuing thread. */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "emu/emu_driver.h"
#include "emu/emu_run.h"

enum { POISON = 0xFF, ALIGN = 256 };

enum command_kind { COPY, LAUNCH, MARK, AWAIT, POST, WAIT };

struct command {
    enum command_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            size_t bytes;
        } copy; /* COPY: dst and src may each be host or device memory */
        struct {
            enum gpu_kernel kernel;
            int32_t n_group;
        } launch;
        struct {
            int i;
            /* MARK: how often the fence has been recorded, with this record;
             * AWAIT: the record to wait for, by the same count */
            uint64_t n;
        } mark;
        struct {
            _Atomic uint64_t *word;
            uint64_t value;
        } word;
    };
    /* LAUNCH: the kernel's arguments */
    _Alignas(16) unsigned char args[GPU_MAX_ARGS];
};

struct pending {
    int head, n, n_max;
    struct command *command; /* the commands of the queue; owned */
};

struct gpu {
    struct emu *emu; /* the emulator that executes the kernels; owned */
    uint64_t random;
    struct pending queue[QUEUE_COUNT];
    /* by fence: how often a record of it was queued */
    uint64_t set[GPU_MAX_MARKS];
    /* by fence, the number of the latest record that was executed */
    uint64_t reached[GPU_MAX_MARKS];
    enum queue marked[GPU_MAX_MARKS];
    /* number of flushes that execute nothing, until the next random one */
    int n_idle;
    enum gpu_kernel bad; /* the kernel that set `wrong` */
    /* a kernel's fault, after which all calls fail; NULL if none */
    const char *wrong;
};

static int draw(struct gpu *g, int n)
{
    g->random = g->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((g->random >> 33) % (unsigned)n);
}

/* ---- queues -------------------------------------------------------------- */

static bool can_run(const struct gpu *g, const struct pending *p)
{
    const struct command *c;

    if (p->head == p->n)
        return false;
    c = &p->command[p->head];
    if (c->kind == AWAIT)
        return g->reached[c->mark.i] >= c->mark.n;
    /* by the sign of the difference, as CUDA has it */
    return c->kind != WAIT ||
           (int64_t)(atomic_load_explicit(c->word.word, memory_order_acquire) -
                     c->word.value) >= 0;
}

static void run_command(struct gpu *g, const struct command *c)
{
    switch (c->kind) {
    case COPY:
        memcpy(c->copy.dst, c->copy.src, c->copy.bytes);
        break;
    case LAUNCH:
        g->wrong =
            emu_launch(g->emu, c->launch.kernel, c->launch.n_group, c->args);
        g->bad = c->launch.kernel;
        break;
    /* The number never decreases: the other queue may have executed a later
     * record of this fence already. */
    case MARK:
        if (g->reached[c->mark.i] < c->mark.n)
            g->reached[c->mark.i] = c->mark.n;
        break;
    case POST:
        atomic_store_explicit(c->word.word, c->word.value,
                              memory_order_release);
        break;
    case AWAIT:
    case WAIT:
        break;
    }
}

static void run_head(struct gpu *g, struct pending *p)
{
    run_command(g, &p->command[p->head++]);
    if (p->head == p->n)
        p->head = p->n = 0;
}

/* Executes n commands, or fewer if queue q becomes empty. These are commands of
 * q, and of the other queue if q must wait for them, or by chance. Returns
 * false if neither queue can continue now, or a kernel has a fault. */
static bool drive(struct gpu *g, enum queue q, int n)
{
    struct pending *own = &g->queue[q], *other = &g->queue[!q];
    /* queue that goes first: 0 for q, 1 for the other, 2 for a new draw before
     * each command */
    int lean = draw(g, 3);

    for (; own->head < own->n && !g->wrong && n > 0; n--) {
        bool theirs = lean == 1 || (lean == 2 && draw(g, 2) == 0);

        if (can_run(g, own) && !(theirs && can_run(g, other)))
            run_head(g, own);
        else if (can_run(g, other))
            run_head(g, other);
        else
            return false;
    }
    return !g->wrong;
}

static pl_status told(const struct gpu *g, pl_err *err)
{
    return err_set(err, PL_DEVICE, "kernel %s: %s", gpu_kernel_name(g->bad),
                   g->wrong);
}

/* Appends a command to queue q and returns it. Returns NULL and sets *s if out
 * of memory, or if a kernel had a fault. */
static struct command *put(struct gpu *g, enum queue q, enum command_kind kind,
                           pl_status *s, pl_err *err)
{
    struct pending *p = &g->queue[q];
    struct command *c;

    *s = g->wrong ? told(g, err) : PL_OK;
    if (g->wrong)
        return NULL;
    if (p->n == p->n_max) {
        int n = p->n_max * 2 + 64;
        void *more = NULL;

        if (posix_memalign(&more, 64, (size_t)n * sizeof *c) != 0) {
            *s = err_no_memory(err, "the emulator's queues");
            return NULL;
        }
        if (p->n > 0)
            memcpy(more, p->command, (size_t)p->n * sizeof *c);
        free(p->command);
        p->command = more;
        p->n_max = n;
    }
    c = &p->command[p->n++];
    c->kind = kind;
    return c;
}

/* ---- open and close ------------------------------------------------------ */

static pl_status list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    (void)err;
    *n = 0;
    if (max > 0) {
        out[0] = (struct gpu_info){.title = "emulator", .n_unit = 1};
        *n = 1;
    }
    return PL_OK;
}

static void close_gpu(struct gpu *g)
{
    if (!g)
        return;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        drive(g, (enum queue)q, INT_MAX);
        free(g->queue[q].command);
    }
    emu_free(g->emu);
    free(g);
}

static pl_status open_gpu(struct gpu **out, int index, pl_err *err)
{
    struct gpu *g = calloc(1, sizeof *g);

    *out = NULL;
    if (!g)
        return err_no_memory(err, "an emulator");
    g->random = (uint64_t)index;
    g->emu = emu_new(g->random);
    if (!g->emu) {
        close_gpu(g);
        return err_no_memory(err, "an emulator");
    }
    *out = g;
    return PL_OK;
}

static void seed_gpu(struct gpu *g, uint64_t seed)
{
    g->random = seed;
}

/* ---- memory -------------------------------------------------------------- */

static void *poisoned(size_t bytes)
{
    void *p;

    bytes += bytes == 0;
    if (posix_memalign(&p, ALIGN, bytes) != 0)
        return NULL;
    return memset(p, POISON, bytes);
}

static pl_status alloc_memory(struct gpu *g, size_t bytes, uint64_t *at,
                              pl_err *err)
{
    void *p = poisoned(bytes);

    (void)g;
    *at = (uint64_t)(uintptr_t)p;
    return p ? PL_OK : err_no_memory(err, "an emulator's memory");
}

static void release(struct gpu *g, uint64_t at)
{
    (void)g;
    free((void *)(uintptr_t)at);
}

static pl_status host_alloc(struct gpu *g, size_t bytes, void **p, pl_err *err)
{
    (void)g;
    *p = poisoned(bytes);
    return *p ? PL_OK : err_no_memory(err, "an emulator's staging");
}

static void host_release(struct gpu *g, void *p)
{
    (void)g;
    free(p);
}

static pl_status map(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err)
{
    (void)g;
    (void)bytes;
    (void)err;
    *at = (uint64_t)(uintptr_t)p;
    return PL_OK;
}

static void unmap(struct gpu *g, void *p)
{
    (void)g;
    (void)p;
}

/* Denies peer access in one of four cases, at random, so that tests also cover
 * pushes through host memory. */
static pl_status reach(struct gpu *g, struct gpu *peer, pl_err *err)
{
    (void)peer;
    return draw(g, 4) > 0 ? PL_OK
                          : err_set(err, PL_UNSUPPORTED, "it is too far away");
}

/* ---- commands of a queue ------------------------------------------------- */

static pl_status put_copy(struct gpu *g, enum queue q, void *dst,
                          const void *src, size_t bytes, pl_err *err)
{
    pl_status s;
    struct command *c = put(g, q, COPY, &s, err);

    if (c) {
        c->copy.dst = dst;
        c->copy.src = src;
        c->copy.bytes = bytes;
    }
    return s;
}

static pl_status write_bytes(struct gpu *g, enum queue q, uint64_t dst,
                             const void *src, size_t bytes, pl_err *err)
{
    return put_copy(g, q, (void *)(uintptr_t)dst, src, bytes, err);
}

static pl_status read_bytes(struct gpu *g, enum queue q, void *dst,
                            uint64_t src, size_t bytes, pl_err *err)
{
    return put_copy(g, q, dst, (const void *)(uintptr_t)src, bytes, err);
}

static pl_status copy_bytes(struct gpu *g, enum queue q, uint64_t dst,
                            uint64_t src, size_t bytes, pl_err *err)
{
    return put_copy(g, q, (void *)(uintptr_t)dst, (const void *)(uintptr_t)src,
                    bytes, err);
}

static pl_status launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err)
{
    pl_status s;
    struct command *c = put(g, q, LAUNCH, &s, err);

    if (c) {
        c->launch.kernel = k;
        c->launch.n_group = n_group;
        memcpy(c->args, args, gpu_kernel_args(k));
    }
    return s;
}

/* ---- device graphs ------------------------------------------------------- */

struct gpu_graph {
    int n;
    struct emu_node {
        enum gpu_kernel kernel;
        int32_t n_group;
        struct gpu_word_op *op; /* words, [n_op]; owned */
        int n_op;
        /* nodes that must have ended before this one, [n_after]; owned */
        int *after;
        int n_after;
        _Alignas(16) unsigned char args[GPU_MAX_ARGS];
    } * node; /* the launches of the graph, [n]; owned */
    /* owned, [n]: the node was queued in the graph_run() in progress */
    bool *done;
};

static void graph_free(struct gpu *g, struct gpu_graph *graph)
{
    (void)g;
    if (!graph)
        return;
    for (int i = 0; graph->node && i < graph->n; i++) {
        free(graph->node[i].after);
        free(graph->node[i].op);
    }
    free(graph->node);
    free(graph->done);
    free(graph);
}

static bool take_node(struct emu_node *to, const struct gpu_graph_node *from)
{
    to->kernel = from->kernel;
    to->n_group = from->n_group;
    to->n_after = from->n_after;
    to->n_op = from->n_op;
    to->op = calloc((size_t)from->n_op + 1, sizeof *to->op);
    if (!to->op)
        return false;
    if (from->n_op > 0)
        memcpy(to->op, from->op, (size_t)from->n_op * sizeof *to->op);
    else
        memcpy(to->args, from->args, gpu_kernel_args(from->kernel));
    to->after = calloc((size_t)from->n_after + 1, sizeof *to->after);
    if (to->after && from->n_after > 0)
        memcpy(to->after, from->after,
               (size_t)from->n_after * sizeof *to->after);
    if (!to->after)
        free(to->op);
    return to->after != NULL;
}

static pl_status graph_make(struct gpu *g, const struct gpu_graph_node *node,
                            int n, struct gpu_graph **out, pl_err *err)
{
    struct gpu_graph *graph = calloc(1, sizeof *graph);
    void *room = NULL;

    *out = NULL;
    if (!graph)
        return err_no_memory(err, "an emulator's graph");
    graph->done = calloc((size_t)n + 1, sizeof *graph->done);
    if (posix_memalign(&room, 64, ((size_t)n + 1) * sizeof *graph->node) == 0)
        graph->node = room;
    for (; graph->node && graph->done && graph->n < n; graph->n++)
        if (!take_node(&graph->node[graph->n], &node[graph->n]))
            break;
    if (!graph->node || !graph->done || graph->n < n) {
        graph_free(g, graph);
        return err_no_memory(err, "an emulator's graph");
    }
    *out = graph;
    return PL_OK;
}

static bool node_can_run(const struct gpu_graph *graph, int i)
{
    const struct emu_node *n = &graph->node[i];

    for (int k = 0; k < n->n_after; k++)
        if (!graph->done[n->after[k]])
            return false;
    return !graph->done[i];
}

/* Returns a random node that is not done but whose predecessors all are.
 * Considers only NEXT nodes from `first`, the first that is not done. */
static int draw_node(struct gpu *g, const struct gpu_graph *graph, int first)
{
    enum { NEXT = 100 };
    int n = 0, chosen = first;

    for (int i = first; i < graph->n && i < first + NEXT; i++)
        if (node_can_run(graph, i) && draw(g, ++n) == 0)
            chosen = i;
    return chosen;
}

static pl_status put_word(struct gpu *g, enum queue q, enum command_kind kind,
                          _Atomic uint64_t *word, uint64_t value, pl_err *err);

static pl_status graph_run(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err)
{
    int first = 0; /* index of the first node that is not done */

    memset(graph->done, 0, (size_t)graph->n * sizeof *graph->done);
    for (int n = 0; n < graph->n; n++) {
        int i = draw_node(g, graph, first);
        const struct emu_node *at = &graph->node[i];

        if (at->n_op == 0)
            PL_TRY(launch(g, q, at->kernel, at->n_group, at->args, err));
        for (int k = 0; k < at->n_op; k++)
            PL_TRY(put_word(g, q, at->op[k].wait ? WAIT : POST, at->op[k].word,
                            at->op[k].value, err));
        graph->done[i] = true;
        while (first < graph->n && graph->done[first])
            first++;
    }
    return PL_OK;
}

static bool has_graph_words(const struct gpu *g)
{
    (void)g;
    return true;
}

static pl_status mark(struct gpu *g, enum queue q, int i, pl_err *err)
{
    pl_status s;
    struct command *c = put(g, q, MARK, &s, err);

    if (c) {
        c->mark.i = i;
        c->mark.n = ++g->set[i];
        g->marked[i] = q;
    }
    return s;
}

/* Sets *yes to whether fence i is reached. If it is not, executes its queue
 * first in two of three cases, so that callers see both answers. The queue may
 * wait for another device. */
static pl_status reached(struct gpu *g, int i, bool *yes, pl_err *err)
{
    *yes = g->reached[i] == g->set[i];
    if (*yes || draw(g, 3) == 0)
        return PL_OK;
    drive(g, g->marked[i], INT_MAX);
    *yes = g->reached[i] == g->set[i];
    return g->wrong ? told(g, err) : PL_OK;
}

static bool on_cores(const struct gpu *g)
{
    (void)g;
    return true;
}

static pl_status await(struct gpu *g, enum queue q, int i, pl_err *err)
{
    pl_status s;
    struct command *c = put(g, q, AWAIT, &s, err);

    if (c) {
        c->mark.i = i;
        c->mark.n = g->set[i];
    }
    return s;
}

static pl_status put_word(struct gpu *g, enum queue q, enum command_kind kind,
                          _Atomic uint64_t *word, uint64_t value, pl_err *err)
{
    pl_status s;
    struct command *c = put(g, q, kind, &s, err);

    if (c) {
        c->word.word = word;
        c->word.value = value;
    }
    return s;
}

static pl_status post(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    return put_word(g, q, POST, word, value, err);
}

static pl_status wait(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                      uint64_t value, pl_err *err)
{
    return put_word(g, q, WAIT, word, value, err);
}

/* Executes the whole queue, up to 8 commands, or nothing, at random. Nothing
 * may last for many flushes, so that the host gets far ahead of the GPU. */
static pl_status flush(struct gpu *g, enum queue q, pl_err *err)
{
    static const int most[] = {INT_MAX, 8, 0};
    int k;

    if (g->n_idle > 0) {
        g->n_idle--;
        return PL_OK;
    }
    k = draw(g, 3);
    if (most[k] == 0)
        g->n_idle = draw(g, 24);
    drive(g, q, most[k]);
    return g->wrong ? told(g, err) : PL_OK;
}

static pl_status finish(struct gpu *g, enum queue q, pl_err *err)
{
    if (drive(g, q, INT_MAX))
        return PL_OK;
    if (g->wrong)
        return told(g, err);
    return err_set(err, PL_DEVICE,
                   "deadlock: a queue waits for an event that is never posted");
}

const struct gpu_driver gpu_emu = {
    .name = "emu",
    /* because tests compare its kernels with plain C */
    .counts_groups = true,
    .no_selftest = true,
    .list = list,
    .open = open_gpu,
    .close = close_gpu,
    .seed = seed_gpu,
    .alloc = alloc_memory,
    .release = release,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .map = map,
    .unmap = unmap,
    .enable_peer_access = reach,
    .write = write_bytes,
    .read = read_bytes,
    .copy = copy_bytes,
    .launch = launch,
    .graph_make = graph_make,
    .graph_run = graph_run,
    .graph_free = graph_free,
    .has_graph_words = has_graph_words,
    .fence_record = mark,
    .fence_query = reached,
    .runs_on_cpu = on_cores,
    .fence_wait = await,
    .signal_word = post,
    .wait_word = wait,
    .flush = flush,
    .finish = finish,
};
