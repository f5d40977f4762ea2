/* A graph planned for groups of devices: everything short of memory.
 *
 * What can be said before anything is allocated: the devices, who carries which
 * rank in which group, the numeric plan, where everything is, the programs and
 * their exact bytes. Works for paper devices too. */
#ifndef EXEC_PLANNED_H
#define EXEC_PLANNED_H

#include "device/device.h"
#include "exec/lower.h"
#include "plan/place.h"

/* What the programs' scripts are for. */
enum planned_way {
    WAY_PLAIN,    /* one micro-batch; everything computed where it lives */
    WAY_STREAM,   /* one; leaves of the host streamed to the devices */
    WAY_PIPELINE, /* several; everything computed where it lives */
    WAY_COUNT
};

struct planned {
    struct arena arena;
    const pl_graph *g;       /* borrowed */
    struct device_list list; /* the host's come last, then "io" */
    struct placement place;
    int *home; /* [g->n_node] group of weights and caches, else -1 */
    enum cpu_family family; /* of kernels */
    struct numeric *num;
    struct lowered *low;
    int way[WAY_COUNT];     /* its script, -1: there is none */
    int64_t stream_from;    /* least tokens of a step for WAY_STREAM */
    struct graph_sizes max; /* of one micro-batch */
    int page_stride;        /* pages of a sequence */
    bool paper;
    uint64_t numeric_hash; /* of num, and of the activations' precision */
};

/* Devices of the plan but "io", which is the last of its list. */
static inline int planned_devices(const struct planned *p)
{
    return p->list.n - 1;
}

enum {
    PLANNED_N_CTX = 4096, /* defaults of pl_options */
    PLANNED_N_UBATCH = 512,
    PLANNED_N_OUT = 64,
    PLANNED_N_SEQ = 8,
    PLANNED_PIPELINE = 8, /* micro-batches of a pipeline */
};

/* opt->n_ctx 0 means PLANNED_N_CTX here. Warnings go to opt->log. */
pl_status planned_create(struct planned **out, const pl_graph *g,
                         const pl_options *opt, pl_err *err);
void planned_free(struct planned *p);

/* What lowering asks of device d. */
struct lower_device planned_device(const struct planned *p, int d);

/* Ranks that device d carries in its widest group; *n_rank 0: it is idle. */
void planned_ranks(const struct planned *p, int d, int *rank0, int *n_rank);

#endif
