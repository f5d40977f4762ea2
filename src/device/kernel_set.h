/* Kernel sets: the CPU kernels, in versions for different instruction sets. The
 * devices of the backends cpu, sim and proc compute with them. A set needs
 * certain features of the processor (machine/cpu_features.h). If a set has no
 * kernel of its own for an operation, it uses that of a set which needs fewer
 * features. All sets but `reference` give the same bits. */
#ifndef DEVICE_KERNEL_SET_H
#define DEVICE_KERNEL_SET_H

#include "pl.h"

/* In ascending order: the best set of a processor is the last one whose
 * features it has. */
enum kernel_set {
    KERNEL_SET_REFERENCE, /* plain C, float activations; no other set uses its
                             kernels */
    KERNEL_SET_GENERIC,   /* plain C; defines the exact results of all sets
                             after it */
    KERNEL_SET_AVX2,
    KERNEL_SET_AVX_VNNI,
    KERNEL_SET_AVX512,
    KERNEL_SET_AVX512_VNNI,
    KERNEL_SET_AVX512_BF16,
    KERNEL_SET_AMX,
    KERNEL_SET_NEON, /* this set and the following ones are for AArch64 */
    KERNEL_SET_DOTPROD,
    KERNEL_SET_I8MM,
    KERNEL_SET_COUNT
};

/* Returns the best set this machine can run. */
enum kernel_set kernel_set_best(void);
const char *kernel_set_name(enum kernel_set set);
/* Returns true if this machine has the processor features that the set
 * needs. */
bool kernel_set_runs(enum kernel_set set);

/* Sets *out to the set named `name`, or to kernel_set_best() if `name` is NULL
 * or "". Returns an error if the name is unknown or, unless `any`, if this
 * machine lacks features that the set needs. */
pl_status kernel_set_find(enum kernel_set *out, const char *name, bool any,
                          pl_err *err);

/* Returns true if the set's kernels do not quantize activations. This affects
 * the bits of results. */
static inline bool kernel_set_is_float(enum kernel_set set)
{
    return set == KERNEL_SET_REFERENCE;
}

/* Returns true if the set has kernels that multiply BF16 (graph_attr.bf16) and
 * this machine can run them. `generic` always has them, in plain C. The other
 * sets need BF16 instructions that pass a comparison with `generic`. */
bool kernel_set_has_bf16(enum kernel_set set);

#endif
