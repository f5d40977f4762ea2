/* Instruction set extensions that the processors of this machine support and
 * that the system lets a process use. */
#ifndef MACHINE_CPU_FEATURES_H
#define MACHINE_CPU_FEATURES_H

/* Instruction set extensions, as bits of a set. */
enum cpu_feature {
    CPU_AVX2 = 1 << 0,   /* AVX2 with FMA and F16C: Haswell, Zen and later */
    CPU_AVX512 = 1 << 1, /* AVX-512 F, BW, VL and DQ: Skylake-X, Zen 4 and
                            later */
    CPU_AVX512_VNNI = 1 << 2, /* dot products of bytes, 512 bits: Cascade Lake,
                                 Zen 4 and later */
    CPU_AVX_VNNI = 1 << 3,    /* dot products of bytes, 256 bits: Alder Lake,
                                 Zen 5 and later */
    CPU_AMX_INT8 = 1 << 4,    /* products of tiles of bytes: Sapphire Rapids and
                                 later */
    CPU_NEON = 1 << 5,        /* 128-bit vectors: every AArch64 processor that
                                 runs Linux */
    CPU_DOTPROD = 1 << 6,     /* SDOT, dot products of bytes: Cortex-A76,
                                 Neoverse N1 and later */
    CPU_I8MM = 1 << 7,        /* SMMLA, matrix products of bytes: Cortex-X2,
                                 Neoverse V1 and later */
    CPU_AVX512_BF16 = 1 << 8, /* dot products of BF16: Cooper Lake, Zen 4 and
                                 later */
};

/* Returns the set of extensions. If the processors have AMX, first requests
 * permission for its registers from the system. From then on, signal handlers
 * of this process need a stack of at least 11 KiB. */
unsigned cpu_features(void);

#endif
