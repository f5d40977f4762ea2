/* A planned graph with memory on devices: loads weights, runs steps, transfers
 * values. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "exec/exec_trace.h"
#include "lower/compile.h"

#include <pthread.h>
#include <stdatomic.h>

/* The devices that hold a weight or cache. */
struct exec_owners {
    int n;
    const int *dev;                /* [n] */
    const rankset *ranks;          /* [n] */
    const struct lowered_value *v; /* [n] */
};

struct pl_exec {
    struct compiled *plan;
    bool own_plan;
    pid_t owner;      /* the process that owns its threads and devices */
    uint64_t n_set;   /* number of changes to weights and caches */
    atomic_bool busy; /* between exec_enter and exec_leave */
    atomic_bool callback_reads; /* callbacks may read meanwhile, */
    pthread_t callback_thread;  /* on this thread */
    struct device_set *set;
    int last_variant, last_micro;             /* of the last step */
    struct graph_sizes sizes[PROG_MAX_MICRO]; /* of the last step */
    int32_t *zeros;                           /* used for absent tables,
                                                 [n_tok] */
    int32_t *seq;                             /* [n_tok] table rows of a step's
                                                 tokens */
    int32_t *row;                             /* [n_seq] table rows of
                                                 sequences, or -1 */
    unsigned char *page;                      /* buffer for one page of a
                                                 device's largest cache */
    int io;                   /* the device of inputs and results */
    int n_micro;              /* the most of any variant */
    struct exec_async *async; /* owned; NULL: no asynchronous transfer so far */
    struct exec_trace *trace; /* owned; NULL: not requested */
    struct arena arena;       /* owns what follows */
    int **group_dev;          /* [n_group] devices of each group */
    rankset **group_ranks;    /* [n_group] */
};

/* Bracket the public calls of an executor, and of its engine; inside, only
 * functions of this layer are called. exec_enter returns BAD_ARGUMENT at once
 * in two cases. Another call is in progress, in another thread or around a
 * callback; or this process is a forked copy, which has neither threads nor
 * devices. */
pl_status exec_enter(pl_exec *x, pl_err *err);
void exec_leave(pl_exec *x);
/* Allows callbacks of the current call to read tensors, until exec_leave. */
void exec_allow_callback_reads(pl_exec *x);
/* The same for reading only. *in_callback: true if a callback reads. */
pl_status exec_enter_reading(pl_exec *x, bool *in_callback, pl_err *err);
void exec_leave_reading(pl_exec *x, bool in_callback);

/* Returns false while a call is in progress; true in a forked copy. */
bool exec_may_free(pl_exec *x);
/* Implements pl_exec_free, also for an engine's executor. */
void exec_free(pl_exec *x);

/* Returns the devices that hold weight or cache `num`; n = 0: none. */
struct exec_owners exec_owners(const pl_exec *x, int num);

/* `p` is borrowed until pl_exec_free. The environment variable PL_DEBUG is for
 * tests. With "guard" a kernel that accesses another device's memory crashes;
 * with "merge" sim devices run their queues as one (device_options). */
pl_status exec_create(pl_exec **out, struct compiled *p, const pl_options *opt,
                      pl_err *err);

/* Copies rows [row0, row0 + n) of a weight (its last dimension is a row), in
 * the format's own bytes, to every device that stores them. Several threads may
 * set different rows at once if they share no 16 neighbouring rows of a
 * matrix. */
pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err);
pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err);

/* Runs a step of up to exec_n_micro() micro-batches, in order. exec_set_input
 * has set the inputs of micro-batch k. pl_exec_step runs only the first one. */
pl_status exec_run_micro_batches(pl_exec *x, int n, const pl_step_tokens *rows,
                                 pl_err *err);
int exec_n_micro(const pl_exec *x);
/* See pl_engine_devices. */
int exec_devices(const pl_exec *x, pl_device_counters *out, int n, size_t size);
pl_status exec_set_input(pl_exec *x, int micro, pl_tensor t, const void *data,
                         size_t offset, size_t bytes, pl_err *err);
/* Implements pl_tensor_get for an output of one of the last step's
 * micro-batches. */
pl_status exec_get_output(pl_exec *x, int micro, pl_tensor t, void *data,
                          size_t offset, size_t bytes, pl_err *err);

/* Waits for transfers started by pl_tensor_get_async and _set_async, and
 * reports the first failure. Returns at once on the transfer thread. */
pl_status exec_wait_async(pl_exec *x, pl_err *err);
void exec_async_free(pl_exec *x);

/* Copies one page of every cache of a pool. */
pl_status exec_copy_page(pl_exec *x, int pool, int from, int to, pl_err *err);

/* The location of a weight: n *parts* of equally many rows, each of which is
 * contiguous. Most weights have one part. In files with a tensor an expert,
 * each is a part. n = 0: no data, the weight stays unchanged. */
struct exec_parts {
    int64_t n;
    const void *const *data; /* [n] */
};
/* The sources of weights, for each OP_weight node; other nodes are ignored.
 * Several threads call `check` before a part is read; NULL: no check. */
struct exec_source {
    const struct exec_parts *weight; /* [nodes of the graph] */
    pl_status (*check)(void *user, int node, int64_t part, pl_err *err);
    void *user;
};

/* Loads weights in parallel. */
pl_status exec_load(pl_exec *x, const struct exec_source *from,
                    const pl_options *opt, pl_err *err);

#endif
