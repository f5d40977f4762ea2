/* A graph planned for a group of devices: everything short of memory.
 *
 * What can be said before anything is allocated: the devices, who carries which
 * rank, the numeric plan, the programs and their exact bytes. Works for paper
 * devices too. */
#ifndef EXEC_PLANNED_H
#define EXEC_PLANNED_H

#include "device/device.h"
#include "exec/lower.h"
#include "plan/group.h"

struct planned {
    struct arena arena;
    const pl_graph *g; /* borrowed */
    struct device_list list;
    struct group group;
    struct cpu_kernels kernels;
    struct numeric *num;
    struct lowered *low;
    struct graph_sizes max;
    int n_seq, page_stride;
    bool paper;
    uint64_t numeric_hash; /* of num, and of the activations' precision */
};

enum {
    PLANNED_N_CTX = 4096, /* defaults of pl_options */
    PLANNED_N_UBATCH = 512,
    PLANNED_N_OUT = 64,
    PLANNED_N_SEQ = 8,
};

/* opt->n_ctx 0 means PLANNED_N_CTX here. Warnings go to opt->log. */
pl_status planned_create(struct planned **out, const pl_graph *g,
                         const pl_options *opt, pl_err *err);
void planned_free(struct planned *p);

void planned_log(const pl_options *opt, pl_log_level level, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

#endif
