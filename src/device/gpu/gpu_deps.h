/* What must wait for what among things that are done one after another, if the
 * bytes that they touch are to stay the same: a thing waits for an earlier one
 * where one of both writes what the other reads or writes. */
#ifndef DEVICE_GPU_GPU_DEPS_H
#define DEVICE_GPU_GPU_DEPS_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a memory that are touched. */
struct gpu_access {
    int memory;      /* any number */
    size_t from, to; /* to > from */
    bool writes;
};

/* Things i and k touch touch[first[i]] .. and touch[first[k]] ..: does one
 * write what the other touches? */
bool gpu_accesses_conflict(const struct gpu_access *touch, const int *first,
                           int i, int k);

struct gpu_deps {
    int n;
    int *first; /* owned, [n + 1] of after[] */
    int *after; /* owned; ascending: thing i waits for after[first[i]] .. */
    int n_max;  /* room in after[] */
};

/* Thing i, 0 .. n - 1, touches touch[first[i]] .. touch[first[i + 1] - 1]. What
 * follows from other waits is left out. False: there is no memory, and nothing
 * to free. */
bool gpu_order_make(struct gpu_deps *o, const struct gpu_access *touch,
                    const int *first, int n);
void gpu_order_free(struct gpu_deps *o); /* takes one that is all zero */

#endif
