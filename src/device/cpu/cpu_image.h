/* The image of a program: for each of its tensors, the address in this
 * process's memory and the size in this step, with which instructions become
 * calls of kernels. All backends whose kernels run on this machine's processors
 * (cpu, sim, proc) execute their instructions by these functions. The backend
 * decides when an instruction runs and on which threads. The image is the first
 * member of these backends' device states, so that tests find it. */
#ifndef DEVICE_CPU_CPU_IMAGE_H
#define DEVICE_CPU_CPU_IMAGE_H

#include "device/cpu/cpu_kernel.h"
#include "device/device_ops.h"

/* Fills *k with the table of kernels of the kernel set that the options of a
 * device set select. */
static inline void cpu_kernels_choose(struct cpu_kernels *k,
                                      const struct device_options *opt)
{
    if (opt->kernels)
        *k = *opt->kernels;
    else
        cpu_kernels_init(k, opt->kernel_set);
}

struct cpu_image {
    const struct program *prog; /* borrowed; the device's program */
    /* borrowed; table of the kernels to call */
    const struct cpu_kernels *kernels;
    /* borrowed; gives access to the memory of the other devices */
    struct device_set *set;
    /* borrowed; address of each memory region of the device */
    unsigned char *base[REGION_COUNT];
    /* owned, [prog->n_tensor]: address and current size of each tensor of the
     * program */
    struct cpu_tensor *tensor;
    /* Bit i is set if the sizes of micro-batch i differ from those of the last
     * step, so that cpu_image_resolve must compute the dims of its tensors
     * again. */
    uint32_t resize;
    /* [micro-batch]: the current step's numbers of tokens, outputs, sequences
     * and cache slots */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* distance in bytes from one thread's scratch to the next thread's */
    size_t scratch_stride;
};

/* Initializes *m for the program of device `d`, with kernels from `k`. The
 * caller must have set m->base[], the addresses of the device's regions.
 * cpu_image_fini accepts images whose initialization failed half-way. */
pl_status cpu_image_init(struct cpu_image *m, struct device_set *set,
                         const struct device *d, const struct cpu_kernels *k,
                         pl_err *err);
void cpu_image_fini(struct cpu_image *m);

/* Copies a step's sizes (number of tokens and so on, by micro-batch) to the
 * image. Returns true if some changed since the last step, so that
 * cpu_image_resolve must be called before the step. */
bool cpu_image_sizes(struct cpu_image *m, const struct device_run *run);
/* Computes the dims of all tensors whose micro-batch has changed its sizes
 * since the last call. */
void cpu_image_resolve(struct cpu_image *m);

/* Returns true if the kernel set that the options select has a kernel for
 * instruction k. Backends use the function as backend_ops.has_kernel. */
bool cpu_image_has_kernel(const struct device_desc *d,
                          const struct device_options *opt,
                          const struct insn_kernel *k,
                          const struct prog_tensor *t);
/* Return in which form a weight is stored and in which form a matrix product
 * reads its activations: floats or 8-bit integers. Backends use the functions
 * as backend_ops.packing and backend_ops.activations. */
enum packing cpu_image_packing(const struct device_desc *d, pl_format f,
                               enum weight_use use);
enum activations cpu_image_activations(const struct device_desc *d,
                                       const struct device_options *opt,
                                       pl_format f);
/* Returns the scratch size in bytes that each thread needs to execute any
 * instruction of the program, if nth threads execute each instruction
 * together. */
size_t cpu_image_scratch(const struct cpu_kernels *k, const struct program *p,
                         int nth);

/* Maximum number of parts into which a backend divides a kernel if it runs the
 * parts one after another with the same scratch. For such a device
 * cpu_image_parts_scratch() returns the size of that scratch in bytes. */
enum { CPU_PARTS = 3 };
size_t cpu_image_parts_scratch(const struct device_options *opt,
                               const struct program *p);

/* Executes part ith (of nth) of an instruction with the given scratch. Does
 * nothing for a POST or WAIT. `taken` are the counters with which the threads
 * of a kernel steal work, or NULL (cpu_call.taken). */
void cpu_image_insn(const struct cpu_image *m, const struct insn *st,
                    void *scratch, int ith, int nth,
                    struct cpu_steal_counter *taken);
/* Execute part ith (of nth) of an instruction of one type: a kernel, a MERGE, a
 * transfer or PAGES. A backend that handles each type differently calls them
 * instead of cpu_image_insn(). */
void cpu_image_kernel(const struct cpu_image *m, const struct insn *st,
                      void *scratch, int ith, int nth,
                      struct cpu_steal_counter *taken);
void cpu_image_merge(const struct cpu_image *m, const struct insn *st,
                     void *scratch, int ith, int nth);
/* Executes part ith (of nth) of a transfer. For a PULL this is the copy that
 * its i-th copy descriptor describes, for a PUSH all copies to its i-th
 * destination device. */
void cpu_image_transfer(const struct cpu_image *m, const struct insn *st, int i,
                        int ith, int nth);
void cpu_image_pages(const struct cpu_image *m, const struct insn *st, int ith,
                     int nth);

/* Returns the number of bytes that a PULL, PUSH or PAGES copies in this
 * step. */
double cpu_image_copy_bytes(const struct cpu_image *m, const struct insn *st);
/* Returns the time in seconds that a PULL, PUSH or PAGES takes on its slowest
 * link in this step. Returns 0 if its links take no time, or if there is
 * nothing to copy. */
double cpu_image_copy_seconds(const struct cpu_image *m, const struct insn *st);
/* Returns the largest latency, in seconds, of the links that a PULL, PUSH or
 * PAGES uses: the time until the first byte arrives. */
double cpu_image_latency(const struct cpu_image *m, const struct insn *st);
/* Adds the operations and bytes of this execution of an instruction to the
 * device's counters. */
void cpu_image_count(const struct cpu_image *m, struct device *d,
                     const struct insn *st);

/* ---- used only by cpu_image.c, cpu_merge.c and cpu_pages.c - */

/* Returns the address of tensor `tensor` of device `dev`: this device, or one
 * whose memory this device may read in place. */
static inline const unsigned char *cpu_image_source(const struct cpu_image *m,
                                                    int dev, int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return (d->prog == m->prog ? m->base[t->region] : d->at[t->region]) +
           t->offset;
}
/* Returns the address of tensor `tensor` in the inbox of device `dev`, where
 * the caller writes what it pushes to that device. */
static inline unsigned char *cpu_image_inbox(const struct cpu_image *m, int dev,
                                             int tensor)
{
    const struct device *d = device_of(m->set, dev);

    return d->at[REGION_INBOX] + d->prog->tensor[tensor].offset;
}
/* Returns the token table of the instruction's micro-batch, read from tensor
 * `tensor` of this device. Its page table is that of the pool to which `of`, a
 * cache or state, belongs. */
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
