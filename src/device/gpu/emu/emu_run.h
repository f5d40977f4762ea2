/* The GPU emulator: executes the kernel source, compiled as C; each lane is a
 * fiber.
 *
 * The lanes of a work group are executed by one thread in random order, each
 * until it reaches a barrier or its end. So a missing barrier, or one that only
 * some lanes reach, causes wrong results or a fault. Memory shared by the lanes
 * of a group is poisoned before each group and, under AddressSanitizer,
 * surrounded by inaccessible bytes. For each launch a random emulated GPU is
 * chosen: one with the matrix units of one of the vendors' families, or one
 * without any. */
#ifndef DEVICE_GPU_EMU_EMU_RUN_H
#define DEVICE_GPU_EMU_EMU_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/gpu/gpu_kernel.h"

struct emu; /* the fibers and shared memory of one thread */

/* Returns an emulator whose random order is seeded by `seed`, or NULL if out of
 * memory. */
struct emu *emu_new(uint64_t seed);
/* `e` may be NULL. */
void emu_free(struct emu *e);

/* Executes all n_group work groups of a launch. Returns NULL, or a sentence
 * without a period that describes a fault, which is an action of a kernel that
 * no GPU permits. Several threads may launch at once, each with its own
 * emulator. */
const char *emu_launch(struct emu *e, enum gpu_kernel k, int32_t n_group,
                       const void *args);

/* ---- for the kernel source ---- */

enum {
    /* size in bytes of the memory that the lanes of a group share; every OpenCL
     * device has at least this much */
    EMU_LOCAL = 32 << 10
};

/* The lane that the calling thread executes. */
struct emu_lane {
    int32_t lane, group, n_group;
    struct emu *emu;
};
extern _Thread_local struct emu_lane emu_now;

/* Returns memory for the next shared array of the group, of `bytes` bytes. All
 * lanes get the same address if they request the same arrays in the same
 * order. */
void *emu_local(size_t bytes);
void emu_barrier(void);
/* Like emu_barrier(), but for a wave: n adjacent lanes of the group, of which
 * the first is a multiple of n. n is 32 or 64, the same for all lanes of a
 * group. */
void emu_wave(int n);
/* Returns 32 bytes of memory of lane `lane`. Lanes of a wave write their own
 * and read those of others, separated by emu_wave(). */
uint32_t *emu_exchange(int32_t lane);
/* Records a fault of the kernel. `what` is a sentence without a period. */
void emu_fault(const char *what);
/* Returns true if address `at` is in the memory that emu_local() returned. */
bool emu_shares(uint64_t at);

/* Tables of the compiled kernels, one per emulated GPU. emu_kernels has
 * NVIDIA's matrix units, emu_kernels_plain has none; both tables are complete.
 * The others are for AMD's matrix units: they have only the kernels that use
 * these, and NULL for the rest. */
typedef void emu_kernel(const void *args);
extern emu_kernel *const emu_kernels[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_plain[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma32[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma16[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma11[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma12[GPU_KERNEL_COUNT];

#endif
