/* The entries of the kernel table for the four matrix products with weights.
 * Each calls a function of cpu_matmul.c with the panel functions and GEMMs of
 * one instruction set, `isa`. The including file defines `static const struct
 * cpu_matmul_isa isa` before. init_ops() writes the entries to
 * cpu_kernels.kernel, init_entries() to a given array, such as
 * cpu_kernels.bf16. */

#define MATMUL_KERNELS(X)                                                      \
    X(matmul) X(head_matmul) X(expert_matmul) X(expert_down)

#define MATMUL_KERNEL(name)                                                    \
    static void run_##name(const struct cpu_call *c)                           \
    {                                                                          \
        cpu_##name(c, &isa);                                                   \
    }                                                                          \
    static size_t name##_scratch(const struct cpu_call *c)                     \
    {                                                                          \
        return cpu_##name##_scratch(c, &isa);                                  \
    }
MATMUL_KERNELS(MATMUL_KERNEL)

static inline void init_entries(struct cpu_entry entry[KERNEL_COUNT])
{
#define MATMUL_ENTRY(name)                                                     \
    entry[KERNEL_##name] = (struct cpu_entry){run_##name, name##_scratch};
    MATMUL_KERNELS(MATMUL_ENTRY)
}

static inline void init_ops(struct cpu_kernels *k)
{
    init_entries(k->kernel);
    k->add = isa.jobs->add;
}
