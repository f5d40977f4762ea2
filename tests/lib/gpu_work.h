/* Calls every function of a GPU's driver once: computes out = 4 (x + y), in one
 * queue after the other and with a device graph, and writes a word in mapped
 * memory. Stops at the first failure. */
#ifndef TEST_GPU_WORK_H
#define TEST_GPU_WORK_H

#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_launch.h"

enum { GPU_WORK_N = 1000 };

struct gpu_work {
    const struct gpu_driver *d;
    struct gpu *g;
    /* at: device addresses of x, y, out and a copy of out; shared_at: device
     * address of the mapped page */
    uint64_t at[4], shared_at;
    void *pinned;
    float *x, *y, *out; /* [GPU_WORK_N] each, in host memory */
    /* a page of host memory that the GPU maps if it can */
    _Atomic uint64_t *shared;
    struct gpu_graph *graph;
    struct gpu *peer;
    /* address of [2 GPU_WORK_N] floats in the peer's memory */
    uint64_t peer_at;
    float *met; /* [2 GPU_WORK_N] floats read back from the peer */
};

extern const bool gpu_work_wanted[GPU_KERNEL_COUNT];

void *test_pages(size_t bytes, int protection);
struct binary_args gpu_work_sum(uint64_t out, uint64_t x, uint64_t y);

void gpu_work_init(struct gpu_work *w, const struct gpu_driver *d);
void gpu_work_fini(struct gpu_work *w);
/* Opens GPU `index` and allocates its memory; maps a page if the GPU can. */
pl_status gpu_work_take(struct gpu_work *w, int index, pl_err *err);
pl_status gpu_work_do(struct gpu_work *w, pl_err *err);
/* calls gpu_work_take and gpu_work_do */
pl_status gpu_work_all(struct gpu_work *w, int index, pl_err *err);
/* Called after gpu_work_all: opens GPU `peer` and writes out and 2 out into its
 * memory. */
pl_status gpu_work_meet(struct gpu_work *w, int peer, pl_err *err);
void gpu_work_give_back(struct gpu_work *w);
/* Calls all functions above on a GPU, from gpu_work_init to gpu_work_fini, and
 * checks the results. The case fails on an error. */
void gpu_work_must_be_right(const struct gpu_driver *d, int index);

#endif
