/* The entries of the kernel table for the four matrix products with weights.
 * Each calls a function of cpu_matmul.c with the panel functions and GEMMs of
 * one instruction set, `isa`. The including file defines `static const struct
 * cpu_matmul_isa isa` before. init_ops() writes the entries to
 * cpu_kernels.kernel, init_entries() to a given array, such as
 * cpu_kernels.bf16. */

static void run_matmul(const struct cpu_call *c)
{
    cpu_matmul(c, &isa);
}

static size_t matmul_scratch(const struct cpu_call *c)
{
    return cpu_matmul_scratch(c, &isa);
}

static void run_head_matmul(const struct cpu_call *c)
{
    cpu_head_matmul(c, &isa);
}

static size_t head_matmul_scratch(const struct cpu_call *c)
{
    return cpu_head_matmul_scratch(c, &isa);
}

static void run_expert_matmul(const struct cpu_call *c)
{
    cpu_expert_matmul(c, &isa);
}

static size_t expert_matmul_scratch(const struct cpu_call *c)
{
    return cpu_expert_matmul_scratch(c, &isa);
}

static void run_expert_down(const struct cpu_call *c)
{
    cpu_expert_down(c, &isa);
}

static size_t expert_down_scratch(const struct cpu_call *c)
{
    return cpu_expert_down_scratch(c, &isa);
}

static inline void init_entries(struct cpu_entry entry[KERNEL_COUNT])
{
    entry[KERNEL_matmul] = (struct cpu_entry){run_matmul, matmul_scratch};
    entry[KERNEL_head_matmul] =
        (struct cpu_entry){run_head_matmul, head_matmul_scratch};
    entry[KERNEL_expert_matmul] =
        (struct cpu_entry){run_expert_matmul, expert_matmul_scratch};
    entry[KERNEL_expert_down] =
        (struct cpu_entry){run_expert_down, expert_down_scratch};
}

static inline void init_ops(struct cpu_kernels *k)
{
    init_entries(k->kernel);
    k->add = isa.jobs->add;
}
