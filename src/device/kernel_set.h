/* Kernel sets: the kernels that processors compute with. They run on devices
 * whose memory is the host's, and on those that borrow its kernels. A set needs
 * certain features of the processor (machine/cpu_features.h). For what it has
 * no better kernel, it uses one of the sets that need less. All but `reference`
 * give the same bits. */
#ifndef DEVICE_KERNEL_SET_H
#define DEVICE_KERNEL_SET_H

#include "pl.h"

/* In rising order: if a processor has the features of several, the last one is
 * the best. */
enum kernel_set {
    KERNEL_SET_REFERENCE, /* plain C, float activations; no set builds on it */
    KERNEL_SET_GENERIC,   /* plain C: the specification */
    KERNEL_SET_AVX2,
    KERNEL_SET_AVX_VNNI,
    KERNEL_SET_AVX512,
    KERNEL_SET_AVX512_VNNI,
    KERNEL_SET_AVX512_BF16,
    KERNEL_SET_AMX,
    KERNEL_SET_NEON, /* AArch64's from here on */
    KERNEL_SET_DOTPROD,
    KERNEL_SET_I8MM,
    KERNEL_SET_COUNT
};

/* Returns the best set this machine can run. */
enum kernel_set kernel_set_best(void);
const char *kernel_set_name(enum kernel_set set);
bool kernel_set_runs(enum kernel_set set); /* on this machine */

/* Finds the set of that name, or without one (NULL or "") the best that runs
 * here. A set that does not run here is rejected, unless `any`. */
pl_status kernel_set_find(enum kernel_set *out, const char *name, bool any,
                          pl_err *err);

/* Returns true if it does not quantize activations. This decides bits. */
static inline bool kernel_set_is_float(enum kernel_set set)
{
    return set == KERNEL_SET_REFERENCE;
}

/* Returns true if kernels of the set compute products of BF16 (graph_attr.bf16)
 * here: with instructions of this machine, or, in `generic`, in plain C. */
bool kernel_set_has_bf16(enum kernel_set set);

#endif
