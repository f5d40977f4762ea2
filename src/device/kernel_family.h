/* Families of kernels that this machine's processors have. Devices whose memory
 * is the host's and those that borrow its kernels run them; all but `reference`
 * give the same bits. */
#ifndef DEVICE_KERNEL_FAMILY_H
#define DEVICE_KERNEL_FAMILY_H

#include "pl.h"

enum cpu_family {
    CPU_REFERENCE, /* plain C, float activations */
    CPU_GENERIC,   /* plain C: the specification */
    CPU_AVX2,
    CPU_AVX512, /* with VNNI */
    CPU_FAMILY_COUNT
};

/* The best family this machine has. */
enum cpu_family cpu_family_best(void);
/* "reference", "generic", "avx2", "avx512"; CPU_FAMILY_COUNT if unknown. */
enum cpu_family cpu_family_from_name(const char *name);
const char *cpu_family_name(enum cpu_family f);
bool cpu_family_runs(enum cpu_family f); /* on this machine */

/* Does it quantize no activations? This decides bits. */
static inline bool cpu_family_is_float(enum cpu_family f)
{
    return f == CPU_REFERENCE;
}

#endif
