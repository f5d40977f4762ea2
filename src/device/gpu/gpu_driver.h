/* The functions of a GPU driver. There is one table of functions for each API;
 * all code above is common to them.
 *
 * A GPU has two queues, as programs have them (enum queue). Queued commands are
 * executed later, in order. Queues synchronize with each other only through
 * fences. One thread issues the commands of a GPU. An address is a number that
 * kernels take (AT() in their source); adding bytes to it stays inside its
 * allocation.
 *
 * Functions that fail set an error, and the GPU is lost for the step. Any later
 * function may report an error of an earlier command. Libraries are opened with
 * dlopen on demand and never linked. If one is missing, list() returns
 * PL_UNSUPPORTED with an error that names it. */
#ifndef DEVICE_GPU_GPU_DRIVER_H
#define DEVICE_GPU_GPU_DRIVER_H

#include "device/gpu/gpu_compile.h"
#include "device/gpu/gpu_kernel.h"
#include "device/listed_gpu.h"

/* A launch in a device graph. It begins when the nodes in `after` have
 * ended. */
struct gpu_graph_node {
    enum gpu_kernel kernel;
    int32_t n_group;
    const void *args; /* gpu_kernel_args(kernel) bytes */
    const int *after; /* [n_after], ascending, earlier nodes */
    int n_after;
};

struct gpu;       /* an open GPU; each driver defines its own */
struct gpu_graph; /* a device graph; likewise */

struct gpu_driver {
    const char *name; /* "emu", "cuda", "hip", "opencl" */
    /* for a matrix-unit kernel that gives other bits: "set X=0"; NULL: the
     * driver has no such remedy */
    const char *remedy;

    /* Lists up to `max` GPUs, including unusable ones, with queries that
     * allocate nothing on any GPU. A query that fails for one of them sets its
     * `why`. */
    pl_status (*list)(struct gpu_info *out, int max, int *n, pl_err *err);
    /* Returns the bytes that are free on one of them now. NULL: list() reports
     * them. */
    pl_status (*free_memory)(int index, uint64_t *bytes, pl_err *err);
    /* Sets which usable GPUs of list() have peer access to which others, also
     * with queries that allocate nothing. NULL: none has. */
    void (*peers)(struct gpu_info *gpu, int n);
    /* Creates the queues and the kernels. They are compiled unless
     * compile_kernels() does it. */
    pl_status (*open)(struct gpu **out, int index, pl_err *err);
    void (*close)(struct gpu *g); /* takes NULL; waits for the queues */
    /* Writes all that decides the bits of its kernels: device, driver version,
     * kernel source. It is the key under which a passed self-test is remembered
     * between processes. NULL: it is not remembered. */
    pl_status (*identity)(struct gpu *g, char *out, size_t size, pl_err *err);
    /* Seeds the random order of two queues. NULL: the order is not random, or
     * not repeatable. */
    void (*seed)(struct gpu *g, uint64_t seed);
    /* Selects this GPU for the thread's calls until leave(). NULL, both: not
     * needed. */
    pl_status (*enter)(struct gpu *g, pl_err *err);
    void (*leave)(struct gpu *g);

    /* Compiles the kernels that a program launches, on up to n_thread threads.
     * Other kernels are compiled at their first launch. Reports progress as
     * gpu_compile() does. NULL: all are compiled. */
    pl_status (*compile_kernels)(struct gpu *g, const bool want[], int n_thread,
                                 const struct gpu_progress *p, pl_err *err);

    /* ---- memory ---- */
    pl_status (*alloc)(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err);
    /* The same for memory that peers write while kernels of g run, and whose
     * posted bytes these kernels read. Fails if g has none. NULL: all memory is
     * like that. */
    pl_status (*alloc_shared)(struct gpu *g, size_t bytes, uint64_t *at,
                              pl_err *err);
    void (*release)(struct gpu *g, uint64_t at);
    /* Host memory that queues copy from and to at full speed. */
    pl_status (*host_alloc)(struct gpu *g, size_t bytes, void **p, pl_err *err);
    void (*host_release)(struct gpu *g, void *p);
    /* Makes host memory one that kernels access in place while others do too.
     * Several GPUs of a driver may map the same range; it is unmapped when the
     * last of them unmaps it. The second of two ranges that share a page or a
     * part may be rejected. NULL: not supported. */
    pl_status (*map)(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err);
    void (*unmap)(struct gpu *g, void *p);
    /* Lets the commands of g's queues write memory of `peer`, another open GPU
     * of the driver, until one of them is closed. An error says why it cannot.
     * The caller must test that bytes arrive, because on some machines they do
     * not. NULL: not supported. */
    pl_status (*enable_peer_access)(struct gpu *g, struct gpu *peer,
                                    pl_err *err);

    /* ---- commands of a queue ---- */
    /* The host bytes stay valid and unchanged until the queue has executed the
     * command. If they are neither from host_alloc() nor map()'ed, the call may
     * block until they are copied. */
    pl_status (*write)(struct gpu *g, enum queue q, uint64_t dst,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct gpu *g, enum queue q, void *dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* Either may be map()'ed; dst may also be a peer's that g has access to. */
    pl_status (*copy)(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* args: gpu_kernel_args(k) bytes, copied. */
    pl_status (*launch)(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err);
    /* Device graph: launches that are queued together, as often as wanted.
     * graph_make() copies all arguments. graph_free() takes NULL, or a graph
     * that is not in flight. NULL, all three: the driver has no graphs. */
    pl_status (*graph_make)(struct gpu *g, const struct gpu_graph_node *node,
                            int n, struct gpu_graph **out, pl_err *err);
    pl_status (*graph_run)(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err);
    void (*graph_free)(struct gpu *g, struct gpu_graph *graph);
    /* Allows programmatic dependent launch in graphs, or not, from now on.
     * Returns true if a launch then begins while its predecessor runs and waits
     * for it itself. NULL: none does. */
    bool (*overlap)(struct gpu *g, bool may);
    /* Records fence i, 0 .. GPU_MAX_MARKS - 1, at the end of queue q. */
    pl_status (*fence_record)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Sets *yes if the fence, recorded and flushed before, was reached. NULL:
     * the GPU never hangs, and the caller uses finish(). */
    pl_status (*fence_query)(struct gpu *g, int i, bool *yes, pl_err *err);
    /* Returns true if the host's CPU does the work, so that it takes long.
     * NULL: no. */
    bool (*runs_on_cpu)(const struct gpu *g);
    /* Makes queue q wait for a fence recorded before. */
    pl_status (*fence_wait)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Returns true if queues support signal_word() and wait_word(). NULL: if
     * the driver does. */
    bool (*has_mem_ops)(const struct gpu *g);
    /* Stores `value` into a word of map()'ed memory once all earlier commands
     * of the queue are visible to any device that reads the word. NULL: the
     * issuing thread must call finish() and store it. */
    pl_status (*signal_word)(struct gpu *g, enum queue q,
                             _Atomic uint64_t *word, uint64_t value,
                             pl_err *err);
    /* Makes the queue wait until the word is `value` or more. NULL: the issuing
     * thread must wait. */
    pl_status (*wait_word)(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                           uint64_t value, pl_err *err);
    /* Removes all commands that the queue has not begun, because an event they
     * may wait for will not be signalled. NULL: not supported; the issuing
     * thread waits even if wait_word() exists. */
    void (*cancel_queue)(struct gpu *g, enum queue q);
    /* Submits the queued commands, which may have been submitted before. */
    pl_status (*flush)(struct gpu *g, enum queue q, pl_err *err);

    /* Waits until the queue is empty. */
    pl_status (*finish)(struct gpu *g, enum queue q, pl_err *err);
};

enum { GPU_MAX_MARKS = 80 };

extern const struct gpu_driver gpu_emu, gpu_cuda, gpu_hip, gpu_opencl;

#endif
