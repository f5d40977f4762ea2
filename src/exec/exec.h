/* A planned graph with memory on devices: weights in, steps, values out. */
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
    pid_t owner;       /* the process that has its threads and devices */
    uint64_t n_set;    /* how often weights and memories were set */
    atomic_bool busy;  /* between exec_enter and exec_leave */
    atomic_bool lent;  /* callbacks may read meanwhile, */
    pthread_t lent_to; /* on this thread */
    struct device_set *set;
    int last_variant, last_micro;             /* of the last run */
    struct graph_sizes sizes[PROG_MAX_MICRO]; /* of the last run */
    int32_t *zeros;           /* stands in for absent tables, [n_tok] */
    int32_t *seq;             /* [n_tok] rows of its table that a step's tokens
                                 have */
    int32_t *row;             /* [n_seq] those that sequences have, or -1 */
    unsigned char *page;      /* one page of the largest cache of a device */
    int io;                   /* the device of inputs and results */
    int n_micro;              /* most of any script */
    struct exec_async *async; /* owned; NULL: nothing was asynchronous */
    struct exec_trace *trace; /* owned; NULL: none was asked for */
    struct arena arena;       /* owns what follows */
    int **group_dev;          /* [n_group] devices of each group */
    rankset **group_ranks;    /* [n_group] */
};

/* The public calls of an executor, and of the engine that has it, stand between
 * these; inside, only functions of this layer are called. BAD_ARGUMENT, at
 * once: another call is under way, in another thread or around a callback; or
 * this process is a forked copy, which has neither threads nor devices. */
pl_status exec_enter(pl_exec *x, pl_err *err);
void exec_leave(pl_exec *x);
/* In between: callbacks of this call may read tensors, until exec_leave. */
void exec_allow_callback_reads(pl_exec *x);
/* As exec_enter and exec_leave, for reading alone. *lent: a callback does. */
pl_status exec_enter_reading(pl_exec *x, bool *lent, pl_err *err);
void exec_leave_reading(pl_exec *x, bool lent);

/* Returns false while a call is under way. In a forked copy none is. */
bool exec_may_free(pl_exec *x);
/* pl_exec_free, of an engine's executor too. */
void exec_free(pl_exec *x);

/* Who holds weight or cache `num`; n = 0: nobody. */
struct exec_owners exec_owners(const pl_exec *x, int num);

/* `p` is borrowed until pl_exec_free. With "guard" in PL_DEBUG, for tests, a
 * kernel that touches another device's memory dies of it, with "merge" sim
 * devices run their queues as one (device_options). */
pl_status exec_create(pl_exec **out, struct compiled *p, const pl_options *opt,
                      pl_err *err);

/* Rows [row0, row0 + n) of a weight (its last dimension is a row), in the
 * format's own bytes, to every device that stores them. Different rows may be
 * set by several threads at once if no 16 neighbouring rows of a matrix are
 * shared between them. */
pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err);
pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err);

/* A run of up to exec_n_micro() micro-batches, later ones after earlier ones;
 * inputs of micro-batch k were set by exec_set_input. The first one alone is
 * pl_exec_step. */
pl_status exec_run_micro_batches(pl_exec *x, int n, const pl_step_tokens *rows,
                                 pl_err *err);
int exec_n_micro(const pl_exec *x);
/* See pl_engine_devices. */
int exec_devices(const pl_exec *x, pl_device_counters *out, int n, size_t size);
pl_status exec_set_input(pl_exec *x, int micro, pl_tensor t, const void *data,
                         size_t offset, size_t bytes, pl_err *err);
/* pl_tensor_get of an output of one of the last run's micro-batches. */
pl_status exec_get_output(pl_exec *x, int micro, pl_tensor t, void *data,
                          size_t offset, size_t bytes, pl_err *err);

/* Waits for what was begun by pl_tensor_get_async and _set_async; tells the
 * first failure. At once on the thread that does them. */
pl_status exec_wait_async(pl_exec *x, pl_err *err);
void exec_async_free(pl_exec *x);

/* Copies one page of every cache of a pool. */
pl_status exec_copy_page(pl_exec *x, int pool, int from, int to, pl_err *err);

/* Where a weight is: in n *parts* of equally many rows, each of which is in one
 * piece. Most weights are one part; where files have a tensor an expert, each
 * is one. n = 0: it is nowhere, and stays as it is. */
struct exec_parts {
    int64_t n;
    const void *const *data; /* [n] */
};
/* Where weights come from, of each OP_weight node; others are ignored. `check`
 * is asked, by several threads, before a part is read; NULL: nothing is asked.
 */
struct exec_source {
    const struct exec_parts *weight; /* [nodes of the graph] */
    pl_status (*check)(void *user, int node, int64_t part, pl_err *err);
    void *user;
};

/* Loads weights in parallel. */
pl_status exec_load(pl_exec *x, const struct exec_source *from,
                    const pl_options *opt, pl_err *err);

#endif
