/* Which families this machine runs, and the table of each: generic C fills it,
 * then each instruction set overwrites what it does better, oldest first. */
#include <string.h>

#include "device/cpu/cpu_kernel.h"
#include "device/cpu/cpu_matmul.h"
#include "device/cpu/cpu_ops.h"

static const char *const names[CPU_FAMILY_COUNT] = {
    [CPU_REFERENCE] = "reference",
    [CPU_GENERIC] = "generic",
    [CPU_AVX2] = "avx2",
    [CPU_AVX512] = "avx512",
};

const char *cpu_family_name(enum cpu_family f)
{
    return names[f];
}

enum cpu_family cpu_family_from_name(const char *name)
{
    int f = 0;

    while (f < CPU_FAMILY_COUNT && strcmp(names[f], name) != 0)
        f++;
    return (enum cpu_family)f;
}

bool cpu_family_runs(enum cpu_family f)
{
    if (f == CPU_REFERENCE || f == CPU_GENERIC)
        return true;
#ifdef __x86_64__
    /* Every CPU with AVX2 also has F16C, which clang 14 cannot ask for. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return false;
    if (f == CPU_AVX2)
        return true;
    return f == CPU_AVX512 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

enum cpu_family cpu_family_best(void)
{
    if (cpu_family_runs(CPU_AVX512))
        return CPU_AVX512;
    return cpu_family_runs(CPU_AVX2) ? CPU_AVX2 : CPU_GENERIC;
}

void cpu_kernels_init(struct cpu_kernels *k, enum cpu_family f)
{
    *k = (struct cpu_kernels){.family = f};
    cpu_ops_init_generic(k);
    cpu_matmul_init_generic(k);
    if (f == CPU_REFERENCE)
        cpu_matmul_init_reference(k);
#ifdef __x86_64__
    if (f < CPU_AVX2)
        return;
    cpu_ops_init_avx2(k);
    cpu_matmul_init_avx2(k);
    if (f < CPU_AVX512)
        return;
    cpu_ops_init_avx512(k);
    cpu_matmul_init_avx512(k);
#endif
}

bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight)
{
    return !k->float_activations && format_info(weight)->block > 1 &&
           kernel_is_contraction(kernel);
}
