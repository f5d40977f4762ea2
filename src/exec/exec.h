/* A planned graph with memory on devices: weights in, steps, values out. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "exec/planned.h"

struct pl_exec {
    struct planned *plan;
    bool own_plan, has_cache;
    struct device_set *set;
    struct graph_sizes last;     /* of the last step */
    int32_t *zeros;              /* stands in for absent tables, [n_tok] */
    unsigned char *page;         /* one page of the largest cache of a device */
    struct arena arena;          /* owns what follows */
    int n_active;                /* devices that carry ranks */
    int *active;                 /* [n_active] their indices */
    rankset *ranks;              /* [n_active] */
    struct layout_local **local; /* [n_node] tables [n_active] of the values
                                    that the host may reach; else NULL */
};

/* `p` is borrowed until pl_exec_free. */
pl_status exec_create(pl_exec **out, struct planned *p, const pl_options *opt,
                      pl_err *err);

/* Rows [row0, row0 + n) of a weight (its last dimension is a row), in the
 * format's own bytes, to every device that stores them. Different rows may be
 * set by several threads at once if no 16 neighbouring rows of a matrix are
 * shared between them. */
pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err);
pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err);

/* Copies one page of every cache. */
pl_status exec_copy_page(pl_exec *x, int from, int to, pl_err *err);

/* Loads weights in parallel: data[node] is the whole weight of each OP_weight
 * node; others are ignored. */
pl_status exec_load(pl_exec *x, const void *const *data, const pl_options *opt,
                    pl_err *err);

#endif
