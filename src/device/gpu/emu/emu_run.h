/* The emulator of a GPU: the kernels' text compiled as C, a lane a fiber.
 *
 * The lanes of a group run one after another on one thread, each until it comes
 * to a barrier or its end, in an order of chance; so a barrier that is missing,
 * or that some lanes miss, shows. Memory that a group's lanes share is poisoned
 * before each group and, under AddressSanitizer, fenced. A launch is played by
 * a GPU that has the matrix units of one of the vendors' families, or by one
 * that has none. */
#ifndef DEVICE_GPU_EMU_EMU_RUN_H
#define DEVICE_GPU_EMU_EMU_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/gpu/gpu_kernel.h"

struct emu; /* fibers and shared memory of one thread */

struct emu *emu_new(uint64_t seed); /* NULL: no memory */
void emu_free(struct emu *e);       /* takes NULL */

/* Runs all groups. NULL, or what the kernel did that no GPU could: a sentence
 * without its end. Threads may launch side by side, each with an emulator of
 * its own. */
const char *emu_launch(struct emu *e, enum gpu_kernel k, int32_t n_group,
                       const void *args);

/* ---- for the kernels' text ---- */

enum {
    EMU_LOCAL = 32 << 10
}; /* bytes that a group's lanes may share: what
                                  every OpenCL device has at least */

/* The lane that this thread runs now. */
struct emu_lane {
    int32_t lane, group, n_group;
    struct emu *emu;
};
extern _Thread_local struct emu_lane emu_now;

/* The next of the group's arrays. */
void *emu_local(size_t bytes);
void emu_barrier(void);
/* As emu_barrier() for the n lanes of a wave, [n w, n w + n); n: 32 or 64, one
 * for all lanes of a group. */
void emu_wave(int n);
/* A row of 32 bytes for each lane, as waves exchange them between two
 * emu_wave(). */
uint32_t *emu_exchange(int32_t lane);
/* What a kernel does that no GPU could: a sentence without its end. */
void emu_fault(const char *what);
bool emu_shares(uint64_t at); /* it lies in the arrays of emu_local() */

/* The kernels themselves, by the GPU that is played: emu_text.c,
 * emu_text_plain.c; emu_matrix_*.c, where NULL stands for all but the kernels
 * that use matrix units. */
typedef void emu_kernel(const void *args);
extern emu_kernel *const emu_kernels[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_plain[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma32[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma16[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma11[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma12[GPU_KERNEL_COUNT];

#endif
