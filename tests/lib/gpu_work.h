/* Uses every function of a GPU's driver once: out = 4 (x + y), one queue after
 * the other, a device graph, and a word in mapped memory. It ends at the first
 * failure. */
#ifndef TEST_GPU_WORK_H
#define TEST_GPU_WORK_H

#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_launch.h"

enum { GPU_WORK_N = 1000 };

struct gpu_work {
    const struct gpu_driver *d;
    struct gpu *g;
    uint64_t at[4], shared_at; /* x, y, out, copy; mapped memory */
    void *pinned;
    float *x, *y, *out;       /* [GPU_WORK_N] */
    _Atomic uint64_t *shared; /* a page */
    struct gpu_graph *graph;
    struct gpu *peer;
    uint64_t peer_at; /* [2 GPU_WORK_N] of the peer's */
    float *met;       /* [2 GPU_WORK_N] what the peer received */
};

extern const bool gpu_work_wanted[GPU_KERNEL_COUNT];

void *test_pages(size_t bytes, int protection);
struct binary_args gpu_work_sum(uint64_t out, uint64_t x, uint64_t y);

void gpu_work_init(struct gpu_work *w, const struct gpu_driver *d);
void gpu_work_fini(struct gpu_work *w);
/* Opens the GPU; maps a page if it can. */
pl_status gpu_work_take(struct gpu_work *w, int index, pl_err *err);
pl_status gpu_work_do(struct gpu_work *w, pl_err *err);
pl_status gpu_work_all(struct gpu_work *w, int index, pl_err *err); /* both of
                                                                     * these */
/* Runs after gpu_work_all: writes out and 2 out into a peer's memory. */
pl_status gpu_work_meet(struct gpu_work *w, int peer, pl_err *err);
void gpu_work_give_back(struct gpu_work *w);
/* Runs all of it on a GPU, from init to fini; the case fails on an error. */
void gpu_work_must_be_right(const struct gpu_driver *d, int index);

#endif
