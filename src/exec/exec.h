/* The executor: a planned graph with its memory on devices. It loads weights,
 * runs steps, and copies tensors to and from the host. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "exec/exec_trace.h"
#include "lower/compile.h"

#include <pthread.h>
#include <stdatomic.h>

/* The devices that hold a weight or cache, and the ranks that each device
 * carries. */
struct exec_owners {
    int n;
    const int *dev;       /* [n] indices of the devices */
    const rankset *ranks; /* [n] ranks that each device carries */
    /* [n] on each device, the tensors of the program that hold the weight or
     * cache */
    const struct lowered_value *v;
};

struct pl_exec {
    struct compiled *plan;
    bool own_plan;
    pid_t owner;      /* process that created the executor's threads and
                         devices; a forked child has neither */
    uint64_t n_set;   /* how often the caller has changed weights or caches
                         (pl_tensor_set) */
    atomic_bool busy; /* true between exec_enter and exec_leave */
    atomic_bool callback_reads; /* true while callbacks that run in
                                   callback_thread may read tensors */
    pthread_t callback_thread;  /* thread of the present public call; valid if
                                   callback_reads */
    struct device_set *set;
    int last_variant, last_micro; /* of the last step: index of its variant, and
                                     number of its micro-batches */
    /* for each micro-batch of the last step, its numbers of tokens, outputs and
     * sequences */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* [n_tok] zeros, used in place of an array that the caller of a step left
     * out */
    int32_t *zeros;
    int32_t *seq; /* [n_tok] for each token of the present micro-batch, the row
                     of its sequence in the token table */
    int32_t *row; /* [n_seq] for each sequence, its row in the token table of
                     the present micro-batch, or -1 if it has no token there */
    /* owned: buffer for one page of the largest cache, as one device stores
     * it */
    unsigned char *page;
    int io;                   /* index of the io device, which holds inputs and
                                 results */
    int n_micro;              /* maximum number of micro-batches of any
                                 variant */
    struct exec_async *async; /* owned: thread and queue of asynchronous
                                 transfers; NULL before the first of them */
    struct exec_trace *trace; /* owned; NULL if the caller requested no trace */
    struct arena arena;       /* owns group_dev and group_ranks */
    int **group_dev; /* [n_group] for each group, the indices of its devices */
    rankset **group_ranks; /* [n_group] for each group, the set of ranks that
                              each of its devices carries */
};

/* Begin and end a public call of an executor or of its engine. Only functions
 * of this layer may be called in between, not public ones. exec_enter never
 * waits. It returns BAD_ARGUMENT if another call is in progress, in another
 * thread or as the caller of this callback. It also returns BAD_ARGUMENT in a
 * forked child process, which has neither the threads nor the devices. */
pl_status exec_enter(pl_exec *x, pl_err *err);
void exec_leave(pl_exec *x);
/* Allows callbacks of the current public call to read tensors until exec_leave,
 * if they run in the calling thread. */
void exec_allow_callback_reads(pl_exec *x);
/* Begin and end a call that only reads tensors. Like exec_enter, but also
 * succeeds inside a callback for which exec_allow_callback_reads was called.
 * *in_callback is then set to true; the caller passes its value to
 * exec_leave_reading. */
pl_status exec_enter_reading(pl_exec *x, bool *in_callback, pl_err *err);
void exec_leave_reading(pl_exec *x, bool in_callback);

/* Returns true if the executor may be freed: no call is in progress, or this is
 * a forked child process. If true, the executor counts as busy from then on, so
 * that no other call begins. */
bool exec_may_free(pl_exec *x);
/* Frees an executor, including one that belongs to an engine, which
 * pl_exec_free ignores. */
void exec_free(pl_exec *x);

/* Returns the devices that hold the weight or cache at node `num` of the
 * numeric plan. n is 0 if no device holds it. */
struct exec_owners exec_owners(const pl_exec *x, int num);

/* Creates an executor for the compiled plan `p`, which is borrowed until the
 * executor is freed. The environment variable PL_DEBUG is for tests. With
 * "guard" a kernel that accesses another device's memory crashes; with "merge"
 * sim devices run their queues as one (device_options). */
pl_status exec_create(pl_exec **out, struct compiled *p, const pl_options *opt,
                      pl_err *err);

/* exec_put_rows copies rows [row0, row0 + n) of a weight to every device that
 * stores them; exec_get_rows reads them back. A row is the last dimension.
 * `data` holds rows in the weight's own format. Several threads may write at
 * once, but not within the same panel of 16 rows of a matrix. */
pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err);
pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err);

/* Runs a step of n micro-batches in order, at most exec_n_micro(). The inputs
 * of each must have been set by exec_set_input. rows[k] describes the tokens of
 * micro-batch k. In contrast, pl_exec_step runs a step of one micro-batch. */
pl_status exec_run_micro_batches(pl_exec *x, int n, const pl_step_tokens *rows,
                                 pl_err *err);
int exec_n_micro(const pl_exec *x);
/* Implements pl_engine_devices: writes the counters of n devices. */
int exec_devices(const pl_exec *x, pl_device_counters *out, int n, size_t size);
/* Implements pl_engine_traffic in the same way. */
int exec_traffic(const pl_exec *x, pl_device_traffic *out, int n, size_t size);
pl_status exec_set_input(pl_exec *x, int micro, pl_tensor t, const void *data,
                         size_t offset, size_t bytes, pl_err *err);
/* Reads an output tensor as pl_tensor_get does, but the values that micro-batch
 * `micro` of the last step computed. */
pl_status exec_get_output(pl_exec *x, int micro, pl_tensor t, void *data,
                          size_t offset, size_t bytes, pl_err *err);

/* Waits for the transfers started by pl_tensor_get_async and
 * pl_tensor_set_async. Returns the status of the first that failed. If called
 * in the thread that makes the transfers, returns without waiting. */
pl_status exec_wait_async(pl_exec *x, pl_err *err);
void exec_async_free(pl_exec *x);

/* Copies the contents of page `from` to page `to`, in every cache of a pool and
 * on every device. */
pl_status exec_copy_page(pl_exec *x, int pool, int from, int to, pl_err *err);

/* Addresses of a weight's data in host memory. The data consists of n *parts*,
 * each a contiguous array with the same number of rows. Most weights have one
 * part. If a file stores one tensor per expert, each of these is a part. If n
 * is 0, there is no data and the weight stays unchanged. */
struct exec_parts {
    int64_t n;
    const void *const *data; /* [n] address of each part */
};
/* The data from which all weights are loaded. `check` is called before a part
 * is read, by several threads at once; it returns an error if the part can no
 * longer be read. It is NULL if the data is always readable. */
struct exec_source {
    /* [n_node of the graph] addresses of each weight's data; unused for nodes
     * that are not weights. */
    const struct exec_parts *weight;
    pl_status (*check)(void *user, int node, int64_t part, pl_err *err);
    void *user;
};

/* Loads all weights from `from` to the devices, with several threads. */
pl_status exec_load(pl_exec *x, const struct exec_source *from,
                    const pl_options *opt, pl_err *err);

#endif
