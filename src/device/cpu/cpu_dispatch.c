/* The kernel sets, and how their tables of kernels are filled. Every table
 * starts with the generic C kernels. Each set whose required CPU features are a
 * subset of the chosen set's then overwrites the entries for which it has
 * faster kernels, the chosen set last. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu/cpu_kernel.h"
#include "device/cpu/cpu_matmul.h"
#include "device/cpu/cpu_ops.h"
#include "machine/cpu_features.h"

/* A build with the option plain_kernels, which sanitizers use, has no vector
 * kernels. */
#if defined(__x86_64__) && !defined(PLAIT_PLAIN_KERNELS)
#define X86(init) init
#else
#define X86(init) NULL
#endif
#if defined(__aarch64__) && !defined(PLAIT_PLAIN_KERNELS)
#define ARM64(init) init
#else
#define ARM64(init) NULL
#endif

/* The kernel sets, in ascending order of preference. A set also uses the
 * kernels of earlier sets in this list if they need no CPU feature that it does
 * not need itself. */
static const struct {
    const char *name;
    /* CPU features that the set requires: bits of enum cpu_feature */
    unsigned needs;
    /* Writes the set's kernels other than matrix products with weights into *k.
     * NULL if the set has none of its own. */
    void (*ops)(struct cpu_kernels *k);
    /* Writes the set's kernels of matrix products with weights into *k. NULL if
     * the set has none of its own. */
    void (*matmul)(struct cpu_kernels *k);
} sets[KERNEL_SET_COUNT] = {
    [KERNEL_SET_REFERENCE] = {"reference", 0, NULL, NULL},
    [KERNEL_SET_GENERIC] = {"generic", 0, cpu_ops_init_generic,
                            cpu_matmul_init_generic},
    [KERNEL_SET_AVX2] = {"avx2", CPU_AVX2, X86(cpu_ops_init_avx2),
                         X86(cpu_matmul_init_avx2)},
    [KERNEL_SET_AVX_VNNI] = {"avx_vnni", CPU_AVX2 | CPU_AVX_VNNI, NULL,
                             X86(cpu_matmul_init_avx_vnni)},
    [KERNEL_SET_AVX512] = {"avx512", CPU_AVX2 | CPU_AVX512,
                           X86(cpu_ops_init_avx512), NULL},
    [KERNEL_SET_AVX512_VNNI] = {"avx512_vnni",
                                CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI, NULL,
                                X86(cpu_matmul_init_avx512_vnni)},
    [KERNEL_SET_AVX512_BF16] = {"avx512_bf16",
                                CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI |
                                    CPU_AVX512_BF16,
                                X86(cpu_ops_init_avx512_bf16),
                                X86(cpu_matmul_init_avx512_bf16)},
    [KERNEL_SET_AMX] = {"amx",
                        CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI |
                            CPU_AVX512_BF16 | CPU_AMX_INT8,
                        NULL, X86(cpu_matmul_init_amx)},
    [KERNEL_SET_NEON] = {"neon", CPU_NEON, ARM64(cpu_ops_init_neon),
                         ARM64(cpu_matmul_init_neon)},
    [KERNEL_SET_DOTPROD] = {"dotprod", CPU_NEON | CPU_DOTPROD, NULL,
                            ARM64(cpu_matmul_init_dotprod)},
    [KERNEL_SET_I8MM] = {"i8mm", CPU_NEON | CPU_DOTPROD | CPU_I8MM, NULL,
                         ARM64(cpu_matmul_init_i8mm)},
};

const char *kernel_set_name(enum kernel_set set)
{
    return sets[set].name;
}

/* Returns the extensions that kernels of this build may use. In a virtual
 * machine the question takes tens of microseconds. */
static unsigned usable_features(void)
{
#ifdef PLAIT_PLAIN_KERNELS
    return 0;
#else
    return cpu_features();
#endif
}

bool kernel_set_runs(enum kernel_set set)
{
    return (sets[set].needs & ~usable_features()) == 0;
}

enum kernel_set kernel_set_best(void)
{
    const unsigned has = usable_features();
    int set = KERNEL_SET_COUNT - 1;

    while ((sets[set].needs & ~has) != 0)
        set--;
    return set;
}

bool kernel_set_has_bf16(enum kernel_set set)
{
#if defined(__x86_64__) && !defined(PLAIT_PLAIN_KERNELS)
    if ((sets[set].needs & CPU_AVX512_BF16) && kernel_set_runs(set))
        return cpu_bf16_agrees();
#endif
    return set == KERNEL_SET_GENERIC;
}

/* Writes a list of kernel sets, "a, b, c", to `text`: all if `all`, else those
 * that this machine can run. Returns `text`. */
static const char *list_sets(char *text, size_t size, bool all)
{
    size_t n = 0;

    for (int i = 0; i < KERNEL_SET_COUNT; i++)
        if (all || kernel_set_runs(i))
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "",
                                  sets[i].name);
    return text;
}

pl_status kernel_set_find(enum kernel_set *out, const char *name, bool any,
                          pl_err *err)
{
    char list[256], shown[ERR_SHOWN];
    int set = 0;

    *out = kernel_set_best();
    if (!name || !*name)
        return PL_OK;
    while (set < KERNEL_SET_COUNT && strcmp(sets[set].name, name) != 0)
        set++;
    if (set == KERNEL_SET_COUNT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "unknown kernel set '%s'; known are %s",
                       err_shown(shown, name, strlen(name)),
                       list_sets(list, sizeof list, true));
    if (!any && !kernel_set_runs(set))
        return err_set(
            err, PL_UNSUPPORTED,
            "this processor cannot run the kernel set %s; it can run %s", name,
            list_sets(list, sizeof list, false));
    *out = set;
    return PL_OK;
}

void cpu_kernels_init(struct cpu_kernels *k, enum kernel_set set)
{
    *k = (struct cpu_kernels){.kernel_set = set};
    for (int i = KERNEL_SET_GENERIC; i < KERNEL_SET_COUNT; i++) {
        if ((sets[i].needs & ~sets[set].needs) != 0)
            continue;
        if (sets[i].ops)
            sets[i].ops(k);
        if (sets[i].matmul)
            sets[i].matmul(k);
    }
    if (set == KERNEL_SET_REFERENCE)
        cpu_matmul_init_reference(k);
}

bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight)
{
    return !k->float_activations && format_info(weight)->block > 1 &&
           kernel_is_contraction(kernel);
}
