/* Kernel sets: what processors compute with. Devices whose memory is the host's
 * and those that borrow its kernels run them. A set needs certain features of
 * the processor (machine/cpu_features.h); what it has no better kernel for it
 * takes from the sets that need less. All but `reference` give the same
 * bits. */
#ifndef DEVICE_KERNEL_SET_H
#define DEVICE_KERNEL_SET_H

#include "pl.h"

/* In rising order: where a processor has the features of several, the last one
 * is the best. */
enum kernel_set {
    KERNEL_SET_REFERENCE, /* plain C, float activations; no set stands on it */
    KERNEL_SET_GENERIC,   /* plain C: the specification */
    KERNEL_SET_AVX2,
    KERNEL_SET_AVX_VNNI,
    KERNEL_SET_AVX512,
    KERNEL_SET_AVX512_VNNI,
    KERNEL_SET_AVX512_BF16,
    KERNEL_SET_AMX,
    KERNEL_SET_NEON, /* from here on AArch64's */
    KERNEL_SET_DOTPROD,
    KERNEL_SET_I8MM,
    KERNEL_SET_COUNT
};

/* The best set this machine has. */
enum kernel_set kernel_set_best(void);
const char *kernel_set_name(enum kernel_set set);
bool kernel_set_runs(enum kernel_set set); /* on this machine */

/* The set of that name; without one (NULL or "") the best that runs here. One
 * that does not run here is refused, unless any will do. */
pl_status kernel_set_find(enum kernel_set *out, const char *name, bool any,
                          pl_err *err);

/* Does it quantize no activations? This decides bits. */
static inline bool kernel_set_is_float(enum kernel_set set)
{
    return set == KERNEL_SET_REFERENCE;
}

/* Has it products of BF16 (graph_attr.bf16) of its own, on this machine; or, as
 * generic, in plain C? */
bool kernel_set_has_bf16(enum kernel_set set);

#endif
