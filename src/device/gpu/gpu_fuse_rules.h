/* Two launches as one, by their arguments alone. What a launch of two does is
 * what both did, operation by operation: all that they wrote is written. */
#ifndef DEVICE_GPU_GPU_FUSE_RULES_H
#define DEVICE_GPU_GPU_FUSE_RULES_H

#include "device/gpu/gpu_kernel.h"

enum gpu_fusion {
    PAIR_NONE,
    FUSE_HORIZONTAL, /* groups of both, in any order: neither may touch what the
                    other writes, which is not looked at */
    FUSE_VERTICAL,   /* a group does the first, then the second; that it may has
                    been looked at */
    FUSE_VERTICAL_LOCAL /* the same, of what the group has made itself; the
                           second may not write what the first touches, which
                           is not looked at */
};

struct gpu_pair {
    enum gpu_kernel kernel;
    int64_t n_group;
    _Alignas(16) unsigned char args[GPU_MAX_ARGS];
};

/* Launches a and b of a list, b later; fills *out unless there is none. */
enum gpu_fusion gpu_pair(const struct launch_list *l, int a, int b,
                         struct gpu_pair *out);

#endif
