/* A program laid out in memory that this process addresses: the address of each
 * tensor, its size in this step, and what else kernels need. Backends whose
 * kernels run on this machine's processors execute their instructions with it.
 * They decide when an instruction runs and on which threads. An image is the
 * first member of such a backend's device state, where tests find it. */
#ifndef DEVICE_CPU_CPU_IMAGE_H
#define DEVICE_CPU_CPU_IMAGE_H

#include "device/cpu/cpu_kernel.h"
#include "device/device_ops.h"

/* Returns the kernels that a set's options select. */
static inline void cpu_kernels_choose(struct cpu_kernels *k,
                                      const struct device_options *opt)
{
    if (opt->kernels)
        *k = *opt->kernels;
    else
        cpu_kernels_init(k, opt->kernel_set);
}

struct cpu_image {
    const struct program *prog;        /* borrowed */
    const struct cpu_kernels *kernels; /* borrowed */
    struct device_set *set;            /* borrowed: its memory is read */
    unsigned char *base[REGION_COUNT]; /* borrowed: the owner's allocations */
    struct cpu_tensor *tensor;         /* owned, [prog->n_tensor] */
    /* Micro-batches whose tensors' dims must be resolved again. */
    uint32_t resize;
    /* Sizes for which dims are resolved. */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* Bytes from a thread's scratch to the next one's. */
    size_t scratch_stride;
};

/* Sets up the image of d's program; base[] must be set. cpu_image_fini takes
 * partly initialized images. */
pl_status cpu_image_init(struct cpu_image *m, struct device_set *set,
                         const struct device *d, const struct cpu_kernels *k,
                         pl_err *err);
void cpu_image_fini(struct cpu_image *m);

/* Copies the sizes of a step. Returns true if tensors must be resolved. */
bool cpu_image_sizes(struct cpu_image *m, const struct device_run *run);
/* Resolves dims for the sizes of a step. */
void cpu_image_resolve(struct cpu_image *m);

/* Returns true if the kernel set of these options has the kernel, as
 * backend_ops.has_kernel does. */
bool cpu_image_has_kernel(const struct device_desc *d,
                          const struct device_options *opt,
                          const struct insn_kernel *k,
                          const struct prog_tensor *t);
/* Like backend_ops.packing and activations. */
enum packing cpu_image_packing(const struct device_desc *d, pl_format f,
                               enum weight_use use);
enum activations cpu_image_activations(const struct device_desc *d,
                                       const struct device_options *opt,
                                       pl_format f);
/* Returns the scratch bytes of one of nth threads that share an instruction. */
size_t cpu_image_scratch(const struct cpu_kernels *k, const struct program *p,
                         int nth);

/* For a device that cuts a kernel into up to CPU_PARTS parts and runs them one
 * after another, all with the same scratch. */
enum { CPU_PARTS = 3 };
size_t cpu_image_parts_scratch(const struct device_options *opt,
                               const struct program *p);

/* Executes part ith of nth of any instruction that accesses memory. taken: for
 * kernels, see cpu_call. */
void cpu_image_insn(const struct cpu_image *m, const struct insn *st,
                    void *scratch, int ith, int nth,
                    struct cpu_steal_counter *taken);
/* The same by kind of instruction, for backends that do more themselves. */
void cpu_image_kernel(const struct cpu_image *m, const struct insn *st,
                      void *scratch, int ith, int nth,
                      struct cpu_steal_counter *taken);
void cpu_image_merge(const struct cpu_image *m, const struct insn *st,
                     void *scratch, int ith, int nth);
/* Executes copy descriptor i of a PULL, or the transfer of a PUSH to its i-th
 * destination. */
void cpu_image_transfer(const struct cpu_image *m, const struct insn *st, int i,
                        int ith, int nth);
void cpu_image_pages(const struct cpu_image *m, const struct insn *st, int ith,
                     int nth);

/* Returns the bytes that a transfer moves in this step. */
double cpu_image_copy_bytes(const struct cpu_image *m, const struct insn *st);
/* Returns the seconds that the slowest link takes for it; 0 if links are
 * free. */
double cpu_image_copy_seconds(const struct cpu_image *m, const struct insn *st);
/* Returns the part of that time until the first byte arrives. */
double cpu_image_latency(const struct cpu_image *m, const struct insn *st);
/* Adds the instruction's work to the device's counters. */
void cpu_image_count(const struct cpu_image *m, struct device *d,
                     const struct insn *st);

/* ---- internal to these files - */

/* Returns the address of a tensor of a device in the set, which may be read in
 * place. */
static inline const unsigned char *cpu_image_source(const struct cpu_image *m,
                                                    int dev, int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return (d->prog == m->prog ? m->base[t->region] : d->at[t->region]) +
           t->offset;
}
/* Returns the address of a tensor in the inbox of another device. */
static inline unsigned char *cpu_image_inbox(const struct cpu_image *m, int dev,
                                             int tensor)
{
    const struct device *d = device_of(m->set, dev);

    return d->at[REGION_INBOX] + d->prog->tensor[tensor].offset;
}
/* Returns the token table of the instruction's micro-batch, read from a tensor
 * of this device, with the pages of memory `of`. */
static inline struct token_table
cpu_image_token_table(const struct cpu_image *m, const struct insn *st,
                      int tensor, const struct prog_tensor *of)
{
    return program_token_table(m->prog, m->tensor[tensor].data,
                               &m->sizes[st->micro], prog_tensor_pool(of));
}
size_t cpu_merge_scratch(const struct insn *st);
double cpu_pages_bytes(const struct cpu_image *m, const struct insn *st);

#endif
