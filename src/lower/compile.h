/* A graph compiled for groups of devices: all that is known before device
 * memory is allocated. That is the devices, the ranks that each carries in its
 * groups, the numeric plan, the placement, the programs and their exact size in
 * bytes. Paper devices (those of --device-spec) work too. */
#ifndef LOWER_COMPILE_H
#define LOWER_COMPILE_H

#include "device/device.h"
#include "lower/lower.h"
#include "lower/variants.h"
#include "plan/place.h"

struct compiled {
    struct arena arena;
    struct notes notes;
    const pl_graph *g;       /* borrowed */
    struct device_list list; /* the host's come last, then "io" */
    struct placement place;
    int *home; /* [g->n_node] group of weights and caches, else -1 */
    enum kernel_set kernel_set;
    struct numeric *num;
    struct lowered *low;
    struct lower_options lowering; /* those from which *low was lowered */
    struct variants variants;
    int variant[VARIANT_COUNT]; /* its index in a program; -1 if none */
    struct graph_sizes max;     /* of one micro-batch */
    int n_checkpoint;           /* states to which a sequence can roll back */
    int page_stride;            /* entries of a sequence in a table of pages */
    bool paper;
    uint64_t numeric_hash; /* of num, and of the activations' precision */
};

/* Devices of the plan but "io", which is the last of its list. */
static inline int compiled_devices(const struct compiled *p)
{
    return p->list.n - 1;
}

/* Compiles a plan config. Its warnings are in notes. */
pl_status compile_config(struct compiled **out, const struct plan_config *in,
                         pl_err *err);
/* Compiles a graph with options. Those left open have their defaults. Warnings
 * go to the options' log. */
pl_status compile_graph(struct compiled **out, const pl_graph *g,
                        const pl_options *opt, pl_err *err);
/* Compiles a graph for devices that were found before. Ignores opt->devices and
 * opt->device_spec. */
pl_status compile_graph_for(struct compiled **out, const pl_graph *g,
                            const struct device_list *l, const pl_options *opt,
                            pl_err *err);
void compiled_free(struct compiled *p);

/* Prints what the pass dump->pass makes; lowers again for it, unless that is
 * "specialize". */
pl_status compiled_dump(const struct compiled *p, const struct lower_dump *dump,
                        pl_err *err);

/* Checks that each device has the kernels that its programs name. Returns the
 * error that loading them would give. */
pl_status compiled_check_kernels(const struct compiled *p, pl_err *err);

/* Returns the properties of device d that lowering needs. */
struct lower_device compiled_device(const struct compiled *p, int d);

/* Returns the ranks that device d carries in its widest group. *n_rank is 0 if
 * it is idle. */
void compiled_ranks(const struct compiled *p, int d, int *rank0, int *n_rank);

#endif
