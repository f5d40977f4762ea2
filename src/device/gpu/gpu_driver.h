/* What a driver of GPUs must do. There is one row of functions for each API;
 * everything above is the same for all.
 *
 * A GPU has two queues, as programs have them (enum queue). What is put into a
 * queue is done in order, later; queues know of each other only through marks.
 * One thread issues what a GPU does. An address is a number that kernels take
 * (AT() of the text); adding bytes to it stays inside its allocation.
 *
 * Functions that fail say why, and the GPU is lost for the run; an error of an
 * earlier command may be told by any later function. Libraries are opened by
 * dlopen when they are asked for and never linked; a missing one is an error of
 * list() that names it, PL_UNSUPPORTED. */
#ifndef DEVICE_GPU_GPU_DRIVER_H
#define DEVICE_GPU_GPU_DRIVER_H

#include "device/gpu/gpu_compile.h"
#include "device/gpu/gpu_kernel.h"
#include "device/listed_gpu.h"

/* A launch of a graph, which begins when some before it have ended. */
struct gpu_graph_node {
    enum gpu_kernel kernel;
    int32_t n_group;
    const void *args; /* gpu_kernel_args(kernel) bytes */
    const int *after; /* [n_after], ascending, nodes that stand before it */
    int n_after;
};

struct gpu;       /* an open one; each driver has its own */
struct gpu_graph; /* and of graphs */

struct gpu_driver {
    const char *name;   /* "emu", "cuda", "hip", "opencl" */
    const char *remedy; /* where a kernel for matrix units gives other bits:
                           "set X=0". NULL: there is none of its own */

    /* The GPUs that it shows, up to `max`, those that cannot be used among
     * them, by questions that take nothing of any GPU. What fails for one of
     * them is said in its `why`. */
    pl_status (*list)(struct gpu_info *out, int max, int *n, pl_err *err);
    /* Bytes that are free on one of them now. NULL: list() has told. */
    pl_status (*free_memory)(int index, uint64_t *bytes, pl_err *err);
    /* Fills in which reach which, of what list() gave and can be used, by
     * questions that take nothing of them either. NULL: none does. */
    void (*peers)(struct gpu_info *gpu, int n);
    /* Queues, and the kernels of the text, compiled unless ready() does it. */
    pl_status (*open)(struct gpu **out, int index, pl_err *err);
    void (*close)(struct gpu *g); /* takes NULL; waits for the queues */
    /* What decides which bits its kernels give: the device, the driver's
     * version, the text. That it passed its self test is kept from process to
     * process; NULL: it is not. */
    pl_status (*identity)(struct gpu *g, char *out, size_t size, pl_err *err);
    /* Where the order of two queues is one of chance: of which. NULL: it is
     * not, or not to be repeated. */
    void (*seed)(struct gpu *g, uint64_t seed);
    /* What this thread calls until leave() is for this GPU and no other. NULL,
     * both: it makes no difference. */
    pl_status (*enter)(struct gpu *g, pl_err *err);
    void (*leave)(struct gpu *g);

    /* Has the kernels compiled that a program launches, by up to n_thread
     * threads; others are when they are launched first. Tells how far it is, by
     * what gpu_compile() does. NULL: all are. */
    pl_status (*compile_kernels)(struct gpu *g, const bool want[], int n_thread,
                                 const struct gpu_progress *p, pl_err *err);

    /* ---- memory ---- */
    pl_status (*alloc)(struct gpu *g, size_t bytes, uint64_t *at, pl_err *err);
    /* The same of memory that peers write while g's kernels go on, and read
     * what has been posted. An error if g has none. NULL: all is so. */
    pl_status (*alloc_shared)(struct gpu *g, size_t bytes, uint64_t *at,
                              pl_err *err);
    void (*release)(struct gpu *g, uint64_t at);
    /* Memory of this process that queues copy from and to at full speed. */
    pl_status (*host_alloc)(struct gpu *g, size_t bytes, void **p, pl_err *err);
    void (*host_release)(struct gpu *g, void *p);
    /* Makes memory of this process one that kernels read and write in place,
     * while others do, too. Several GPUs of a driver may map the same range; it
     * is unmapped when none of them works on it any more. Of two ranges that
     * share a page, or a part, the second may be refused. NULL: the driver
     * cannot. */
    pl_status (*map)(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err);
    void (*unmap)(struct gpu *g, void *p);
    /* What goes into g's queues may write memory of `peer`, another open GPU of
     * the driver, as it does its own, until one of them is closed. An error
     * says why it cannot. That the bytes come there is for the caller to try:
     * machines are known where they do not. NULL: the driver cannot. */
    pl_status (*enable_peer_access)(struct gpu *g, struct gpu *peer,
                                    pl_err *err);

    /* ---- what goes into a queue ---- */
    /* The host's bytes stay as they are, and where they are, until the queue
     * has come there. Where they are neither host_alloc()'s nor map()'ed the
     * thread may be kept until they have been copied. */
    pl_status (*write)(struct gpu *g, enum queue q, uint64_t dst,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct gpu *g, enum queue q, void *dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* Either may be map()'ed, dst also a peer's that g reaches. */
    pl_status (*copy)(struct gpu *g, enum queue q, uint64_t dst, uint64_t src,
                      size_t bytes, pl_err *err);
    /* args: gpu_kernel_args(k) bytes, taken over. */
    pl_status (*launch)(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err);
    /* Launches that go into a queue together, as often as wanted; all is taken
     * over. free: of none that is under way; takes NULL. NULL, all three: the
     * driver has no graphs. */
    pl_status (*graph_make)(struct gpu *g, const struct gpu_graph_node *node,
                            int n, struct gpu_graph **out, pl_err *err);
    pl_status (*graph_run)(struct gpu *g, enum queue q,
                           const struct gpu_graph *graph, pl_err *err);
    void (*graph_free)(struct gpu *g, struct gpu_graph *graph);
    /* Does a launch of a graph begin while the one before it is under way, and
     * wait for it itself? Only if it may, from now on. NULL: none does. */
    bool (*overlap)(struct gpu *g, bool may);
    /* Mark i, 0 .. GPU_MAX_MARKS - 1, is where queue q is now. */
    pl_status (*fence_record)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Has the mark, set and sent off before, been reached? NULL: the GPU never
     * hangs, and finish() is waited for. */
    pl_status (*fence_query)(struct gpu *g, int i, bool *yes, pl_err *err);
    /* Do this machine's processors its work? So it takes long. NULL: no. */
    bool (*runs_on_cpu)(const struct gpu *g);
    /* Queue q goes on when the mark, set before, has been reached. */
    pl_status (*fence_wait)(struct gpu *g, enum queue q, int i, pl_err *err);
    /* Can queues post() and wait()? NULL: they can, where the driver can. */
    bool (*has_mem_ops)(const struct gpu *g);
    /* Stores `value` into a word of map()'ed memory when all that stands before
     * in the queue can be seen by whoever reads the word, on any device.
     * NULL: the issuing thread must finish() and store it. */
    pl_status (*signal_word)(struct gpu *g, enum queue q,
                             _Atomic uint64_t *word, uint64_t value,
                             pl_err *err);
    /* The queue goes on when the word is `value` or more. NULL: the issuing
     * thread must wait. */
    pl_status (*wait_word)(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                           uint64_t value, pl_err *err);
    /* Takes out of the queue all that it has not begun: something failed that
     * it may wait for. NULL: nothing can be taken out, so the issuing thread
     * waits, though wait() be there. */
    void (*cancel_queue)(struct gpu *g, enum queue q);
    /* Sends off what has been put into the queue; it may have been before. */
    pl_status (*flush)(struct gpu *g, enum queue q, pl_err *err);

    /* Waits until the queue is empty. */
    pl_status (*finish)(struct gpu *g, enum queue q, pl_err *err);
};

enum { GPU_MAX_MARKS = 80 };

extern const struct gpu_driver gpu_emu, gpu_cuda, gpu_hip, gpu_opencl;

#endif
