/* The emulator of a GPU: the kernel source compiled as C, each lane a fiber.
 *
 * The lanes of a group run one after another on one thread, each until it
 * reaches a barrier or its end, in random order. So a barrier that is missing,
 * or that some lanes miss, shows. Memory shared by the lanes of a group is
 * poisoned before each group and, under AddressSanitizer, fenced. A launch is
 * emulated on a GPU with the matrix units of one of the vendors' families, or
 * without any. */
#ifndef DEVICE_GPU_EMU_EMU_RUN_H
#define DEVICE_GPU_EMU_EMU_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/gpu/gpu_kernel.h"

struct emu; /* fibers and shared memory of one thread */

struct emu *emu_new(uint64_t seed); /* NULL: no memory */
void emu_free(struct emu *e);       /* takes NULL */

/* Runs all groups. Returns NULL, or the fault of the kernel that no GPU
 * permits, as a sentence without its end. Threads may launch concurrently, each
 * with its own emulator. */
const char *emu_launch(struct emu *e, enum gpu_kernel k, int32_t n_group,
                       const void *args);

/* ---- for the kernel source ---- */

enum {
    /* Bytes that the lanes of a group may share: the minimum of every OpenCL
     * device. */
    EMU_LOCAL = 32 << 10
};

/* The lane that this thread runs now. */
struct emu_lane {
    int32_t lane, group, n_group;
    struct emu *emu;
};
extern _Thread_local struct emu_lane emu_now;

/* Returns the next of the group's arrays. */
void *emu_local(size_t bytes);
void emu_barrier(void);
/* Like emu_barrier() for the n lanes of a wave, [n w, n w + n). n is 32 or 64,
 * the same for all lanes of a group. */
void emu_wave(int n);
/* Returns a row of 32 bytes for the lane, which waves exchange between two
 * emu_wave(). */
uint32_t *emu_exchange(int32_t lane);
/* Records a fault that no GPU permits: a sentence without its end. */
void emu_fault(const char *what);
bool emu_shares(uint64_t at); /* in the arrays of emu_local() */

/* The kernels, by emulated GPU: emu_text.c, emu_text_plain.c; emu_matrix_*.c,
 * where NULL stands for all kernels except those that use matrix units. */
typedef void emu_kernel(const void *args);
extern emu_kernel *const emu_kernels[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_plain[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma32[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma16[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma11[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma12[GPU_KERNEL_COUNT];

#endif
