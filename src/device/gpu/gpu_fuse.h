/* Takes launches out of a list whose results are there already: sorting the
 * routes of tokens to experts, where the launches before have sorted the same
 * ones and nothing has touched them since. */
#ifndef DEVICE_GPU_GPU_FUSE_H
#define DEVICE_GPU_GPU_FUSE_H

#include "device/gpu/gpu_kernel.h"

/* Routes that are sorted now. */
struct gpu_sorted {
    int launch;    /* the first of those that did it; -1: none are */
    uint64_t from; /* bytes of their ids: from .. to - 1 */
    uint64_t to;
};

/* The list's launches from `first` on are a step's: do they sort, and for
 * nothing, they are taken out; else *s is of them. False: they do not sort. */
bool gpu_fuse_routes(struct gpu_sorted *s, struct gpu_list *l, int first);
/* Bytes that are written. */
void gpu_fuse_written(struct gpu_sorted *s, uint64_t from, uint64_t to);

#endif
