/* The arguments of one launch from those of two, for each rewrite. */
#ifndef DEVICE_GPU_GPU_FUSE_ARGS_H
#define DEVICE_GPU_GPU_FUSE_ARGS_H

#include "device/gpu/gpu_fuse.h"
#include "device/gpu/gpu_launch.h"

/* A launch and one that joins it. */
struct gpu_fold {
    struct gpu_fold_launch {
        enum gpu_kernel kernel;
        int64_t n_group;
        union { /* the arguments; `kernel` tells which member is valid */
            struct binary_args binary;
            struct rms_norm_args norm;
            struct quantize_args blocks;
            struct rope_args rope;
            struct cache_write_args write;
            struct attend_args attend;
            struct attend_merge_args merge;
            struct router_topk_args choice;
            struct router_weights_args weights;
            struct gather_args rows;
            struct contract_args matrix;
        } a;
    } first, second;
    /* device address of the result of the rewrite's first instruction */
    uint64_t result;
    /* device address of TAIL_COUNTERS counters of work groups, all 0, that only
     * this launch uses; 0 if the device has none */
    uint64_t count;
    /* the second instruction's result lies over what the launch reads: it may
     * be written only after all of that has been read */
    bool alone;
};

/* Replaces the arguments f->first.a by those of a launch that does both.
 * Returns its number of work groups, or 0 if one launch cannot do both. Clears
 * f->alone if the launch heeds it in spite of several work groups. */
typedef int64_t gpu_fold_fn(struct gpu_fold *f);

gpu_fold_fn gpu_fold_sum_norm, gpu_fold_norms, gpu_fold_norm_blocks,
    gpu_fold_product, gpu_fold_blocks, gpu_fold_norm_rope, gpu_fold_norm_rope_2,
    gpu_fold_ropes, gpu_fold_writes, gpu_fold_attend_blocks, gpu_fold_weights,
    gpu_fold_matrices, gpu_fold_matrix_rows, gpu_fold_matrix_sum,
    gpu_fold_rows_sum, gpu_fold_residual, gpu_fold_last_norm,
    gpu_fold_last_blocks, gpu_fold_last_values, gpu_fold_last_product,
    gpu_fold_last_parts, gpu_fold_last_choice, gpu_fold_last_weights;

#endif
