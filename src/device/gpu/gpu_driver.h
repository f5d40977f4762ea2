/* The interface of a GPU driver: a table of functions, one for each GPU API.
 * All code that uses it is common to the APIs.
 *
 * A GPU has two queues, the compute and the copy queue of programs (enum
 * queue). Queued commands are executed later, in order. Queues synchronize with
 * each other only through fences. One thread issues the commands of a GPU. A
 * device address is a number that kernels convert to a pointer (AT() in their
 * source). An address plus an offset is valid if it stays inside its
 * allocation.
 *
 * A function that fails sets an error; the GPU then cannot be used in this step
 * any more. Any function may report an error of an earlier command. Libraries
 * are opened with dlopen on demand and never linked. If one is missing, list()
 * returns PL_UNSUPPORTED with an error that names it. */
#ifndef DEVICE_GPU_GPU_DRIVER_H
#define DEVICE_GPU_GPU_DRIVER_H

#include "device/gpu/gpu_compile.h"
#include "device/gpu/gpu_kernel.h"
#include "device/listed_gpu.h"

/* A wait until a word is at least `value`, or else a store of `value`, as by
 * wait_word() and signal_word(). */
struct gpu_word_op {
    _Atomic uint64_t *word;
    uint64_t value;
    bool wait;
};

/* A launch in a device graph or, if n_op > 0, waits and stores of words, one
 * after another. It begins when all nodes in after[] have ended. */
struct gpu_graph_node {
    const struct gpu_word_op *op; /* [n_op]; unused in a launch */
    int n_op;

    enum gpu_kernel kernel;
    int32_t n_group;
    /* the kernel's arguments, gpu_kernel_args(kernel) bytes */
    const void *args;
    /* indices of earlier nodes in the graph, ascending, [n_after] */
    const int *after;
    int n_after;
};

struct gpu;       /* an open GPU; each driver defines its own */
struct gpu_graph; /* a device graph; each driver defines its own */

struct gpu_driver {
    const char *name; /* the driver's name: "cuda", "hip", "opencl" */
    /* advice to the user if a kernel that uses matrix units fails the
     * self-test: "set X=0"; NULL if none */
    const char *remedy;
    /* true if the last work group of a launch can go on (HAVE_COUNT in the
     * kernel source) */
    bool counts_groups;
    /* true if the kernels need no self-test when a program is loaded */
    bool no_selftest;

    /* Lists up to `max` GPUs, including unusable ones, and sets *n to their
     * number. Uses only queries that allocate no memory on a GPU. If a query
     * fails for a GPU, sets that GPU's `why` to the reason. */
    pl_status (*list)(struct gpu_info *out, int max, int *n, pl_err *err);
    /* Sets *bytes to the free memory of the GPU with number `index` in list().
     * NULL if list() sets available_bytes. */
    pl_status (*free_memory)(int index, uint64_t *bytes, pl_err *err);
    /* Sets the field `peers` of the usable ones among n GPUs listed by list().
     * Like list(), it allocates no memory on a GPU. The function pointer is
     * NULL if the driver has no peer access. */
    void (*peers)(struct gpu_info *gpu, int n);
    /* Opens the GPU with number `index` in list() and creates its queues. Also
     * makes all kernels ready to launch, unless the driver has
     * compile_kernels(). */
    pl_status (*open)(struct gpu **out, int index, pl_err *err);
    /* Waits until the queues are empty, then frees `g`, which may be NULL. */
    void (*close)(struct gpu *g);
    /* Writes a string that contains all that may affect the bits of the
     * kernels' results: device, driver version, kernel source. A passed
     * self-test is stored under this string, for later processes. NULL if
     * self-tests are not stored. */
    pl_status (*identity)(struct gpu *g, char *out, size_t size, pl_err *err);
    /* Seeds the random order in which an emulated GPU executes the two queues.
     * NULL if the order is not random. */
    void (*seed)(struct gpu *g, uint64_t seed);
    /* Selects GPU `g` for the calling thread's driver calls until leave(). Both
     * are NULL if the driver needs no selection. */
    pl_status (*enter)(struct gpu *g, pl_err *err);
    void (*leave)(struct gpu *g);

    /* Compiles each kernel k with want[k], on up to n_thread threads. Other
     * kernels are compiled at their first launch. Reports progress as
     * gpu_compile() does. NULL if open() makes all kernels ready. */
    pl_status (*compile_kernels)(struct gpu *g, const bool want[], int n_thread,
                                 const struct gpu_progress *p, pl_err *err);

    /* ---- memory ---- */
    pl_status (*alloc)(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err);
    /* Like alloc(), for memory that peers write while kernels of g run. Kernels
     * of g must see a peer's bytes once the peer has posted an event. Fails if
     * g cannot allocate such memory. NULL if peers may write all memory of
     * alloc(). */
    pl_status (*alloc_shared)(struct gpu *g, size_t bytes, uint64_t *at,
                              pl_err *err);
    void (*release)(struct gpu *g, uint64_t at);
    /* Allocates pinned host memory, which queues copy from and to at full
     * speed. */
    pl_status (*host_alloc)(struct gpu *g, size_t bytes, void **p, pl_err *err);
    void (*host_release)(struct gpu *g, void *p);
    /* Maps host memory, so that kernels can access it in place while the CPU
     * and other devices access it too. Sets *at to its device address. Several
     * GPUs of a driver may map the same range; it is unmapped when the last of
     * them unmaps it. If two ranges overlap or share a page, the second one may
     * be rejected. NULL if not supported. */
    pl_status (*map)(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err);
    void (*unmap)(struct gpu *g, void *p);
    /* Allows the commands of g's queues to write memory of `peer`, another open
     * GPU of the driver, until one of the two is closed. The caller must test
     * that written bytes arrive, because on some machines they do not. NULL if
     * not supported. */
    pl_status (*enable_peer_access)(struct gpu *g, struct gpu *peer,
                                    pl_err *err);

    /* ---- commands of a queue ---- */
    /* write() copies host memory to device memory, read() device memory to host
     * memory. The caller keeps the host memory valid, and the source of a write
     * unchanged, until the queue has executed the command. The call may block
     * until the bytes are copied if the host memory is neither from
     * host_alloc() nor mapped by map(). */
    pl_status (*write)(struct gpu *g, enum queue q, uint64_t dst,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct gpu *g, enum queue q, void *dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* Copies between device addresses. Both may be in host memory mapped by
     * map(); dst may also be in the memory of a peer that enable_peer_access()
     * was called for. */
    pl_status (*copy)(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* Launches kernel k with n_group work groups. args[gpu_kernel_args(k)] is
     * copied. */
    pl_status (*launch)(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err);
    /* A device graph is a set of nodes that graph_run() queues together; it
     * can be queued any number of times. Nodes of words are allowed only if
     * has_graph_words() returns true. graph_make() copies all arguments.
     * graph_free() takes NULL or a graph that is not in flight. All three are
     * NULL if the driver has no graphs. */
    pl_status (*graph_make)(struct gpu *g, const struct gpu_graph_node *node,
                            int n, struct gpu_graph **out, pl_err *err);
    pl_status (*graph_run)(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err);
    void (*graph_free)(struct gpu *g, struct gpu_graph *graph);
    /* NULL if no graph of the driver may have nodes of words. */
    bool (*has_graph_words)(const struct gpu *g);
    /* Allows or forbids programmatic dependent launch in graphs created after
     * this call; forbidding it is permanent. Returns true if it is now used: a
     * launch then begins while its predecessor runs, and its kernel waits for
     * the predecessor. NULL if the driver does not support it. */
    bool (*overlap)(struct gpu *g, bool may);
    /* Records fence i, 0 to GPU_MAX_MARKS - 1, at the end of queue q. */
    pl_status (*fence_record)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Sets *yes to true if the queue has reached fence i, which was recorded
     * and flushed before, else to false. NULL if the GPU never hangs; the
     * caller then uses finish(). */
    pl_status (*fence_query)(struct gpu *g, int i, bool *yes, pl_err *err);
    /* Returns true if the host's CPU executes the commands, which then take
     * long. NULL if no GPU of the driver is a CPU. */
    bool (*runs_on_cpu)(const struct gpu *g);
    /* Makes queue q wait until fence i, which was recorded before, is
     * reached. */
    pl_status (*fence_wait)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Returns true if the queues of g support signal_word() and wait_word(). If
     * NULL, the queues of all GPUs support them, provided that the driver has
     * these functions. */
    bool (*has_mem_ops)(const struct gpu *g);
    /* Queues a store of `value` to a word of host memory mapped by map(). A
     * device that reads the value also sees the effects of all earlier commands
     * of the queue. NULL if not supported; the issuing thread must then call
     * finish() and store the value. */
    pl_status (*signal_word)(struct gpu *g, enum queue q,
                             _Atomic uint64_t *word, uint64_t value,
                             pl_err *err);
    /* Makes the queue wait until the word is at least `value`, which a driver
     * may take for the sign of the difference. The queue's commands cannot be
     * removed: if the value never comes, the caller stores a greater one. NULL
     * if not supported; the issuing thread must then wait. */
    pl_status (*wait_word)(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                           uint64_t value, pl_err *err);
    /* Submits the queued commands to the GPU, if they are not submitted yet. */
    pl_status (*flush)(struct gpu *g, enum queue q, pl_err *err);

    /* Waits until the queue is empty. */
    pl_status (*finish)(struct gpu *g, enum queue q, pl_err *err);
};

enum { GPU_MAX_MARKS = 80 };

extern const struct gpu_driver gpu_cuda, gpu_hip, gpu_opencl;

#endif
