/* Executes launches in the emulator: the kernel source compiled as C, with a
 * fiber for each lane.
 *
 * One thread executes the lanes of a work group in random order, each until it
 * reaches a barrier or its end. So a missing barrier, or one that only some
 * lanes reach, causes wrong results or a fault. The memory that the lanes of a
 * group share is poisoned before each group. Under AddressSanitizer it is also
 * surrounded by inaccessible bytes. Each launch draws an emulated GPU: one with
 * NVIDIA's matrix units, one with those of an AMD family, or one without. */
#ifndef TEST_EMU_RUN_H
#define TEST_EMU_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/gpu/gpu_kernel.h"

struct emu; /* an emulator: the fibers and shared memory of one thread */

/* Returns an emulator whose random order is seeded by `seed`, or NULL if out of
 * memory. */
struct emu *emu_new(uint64_t seed);
/* Frees the emulator; `e` may be NULL. */
void emu_free(struct emu *e);

/* Executes all n_group work groups of a launch. Returns NULL, or a message
 * about a fault: an action of the kernel that no GPU permits. The message is a
 * sentence without a period. Several threads may launch at once, each with its
 * own emulator. */
const char *emu_launch(struct emu *e, enum gpu_kernel k, int32_t n_group,
                       const void *args);

/* ---- for the kernel source ---- */

enum {
    /* size in bytes of the memory that the lanes of a group share; every OpenCL
     * device has at least this much */
    EMU_LOCAL = 32 << 10
};

/* The lane that the calling thread executes, and its work group. */
struct emu_lane {
    int32_t lane, group, n_group;
    struct emu *emu;
};
extern _Thread_local struct emu_lane emu_now;

/* Allocates `bytes` bytes for the group's next shared array. Each lane of the
 * group must make the same calls in the same order, and gets the same
 * addresses. */
void *emu_local(size_t bytes);
void emu_barrier(void);
/* Like emu_barrier(), but only for the lanes of a wave: n adjacent lanes of the
 * group, from a multiple of n. n is 32 or 64, the same for all lanes of a
 * group. */
void emu_wave(int n);
/* Returns 32 bytes through which lane `lane` passes values to other lanes of
 * its wave. A lane writes its own bytes, calls emu_wave(), and reads those of
 * other lanes. */
uint32_t *emu_exchange(int32_t lane);
/* Copies 4, 8 or 16 bytes from global to shared memory, at once or when the
 * lane calls emu_copy_wait(), by chance. The lane must call that before it
 * ends. */
void emu_copy(void *to, const void *from, size_t bytes);
void emu_copy_wait(void);
/* Records a fault of the kernel. `what` is a sentence without a period. */
void emu_fault(const char *what);
/* Returns true if address `at` is in the shared memory of the group that the
 * calling thread executes. */
bool emu_shares(uint64_t at);

/* The kernels compiled for each emulated GPU, by enum gpu_kernel. emu_kernels
 * has NVIDIA's matrix units, emu_kernels_plain has none; both have all kernels.
 * The others have AMD's matrix units: they have only the kernels that use
 * these, and NULL for the rest. */
typedef void emu_kernel(const void *args);
extern emu_kernel *const emu_kernels[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_plain[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma32[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_mfma16[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma11[GPU_KERNEL_COUNT];
extern emu_kernel *const emu_kernels_wmma12[GPU_KERNEL_COUNT];

#endif
