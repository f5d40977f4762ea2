/* The image of a program: the address of each tensor in this process's memory,
 * its size in this step, and other arguments of kernels. All backends whose
 * kernels run on this machine's processors (cpu, sim, proc) execute their
 * instructions by these functions. The backend decides when an instruction runs
 * and on which threads. The image is the first member of these backends' device
 * states, so that tests find it. */
#ifndef DEVICE_CPU_CPU_IMAGE_H
#define DEVICE_CPU_CPU_IMAGE_H

#include "device/cpu/cpu_kernel.h"
#include "device/device_ops.h"

/* Fills *k with the kernels that the options of a device set select. */
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
    struct device_set *set; /* borrowed; gives access to the memory of other
                               devices */
    unsigned char *base[REGION_COUNT]; /* borrowed; address of each region of
                                          the device */
    struct cpu_tensor *tensor;         /* owned, [prog->n_tensor] */
    /* Bit i is set if the sizes of micro-batch i have changed, so that the dims
     * of its tensors must be computed again. */
    uint32_t resize;
    /* By micro-batch, the sizes for which the tensors' dims were computed. */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* Distance in bytes from a thread's scratch to the next thread's. */
    size_t scratch_stride;
};

/* Sets up the image of the program of `d`. The caller must have set m->base[].
 * cpu_image_fini accepts partly initialized images. */
pl_status cpu_image_init(struct cpu_image *m, struct device_set *set,
                         const struct device *d, const struct cpu_kernels *k,
                         pl_err *err);
void cpu_image_fini(struct cpu_image *m);

/* Copies the sizes of a step to the image. Returns true if they have changed,
 * so that cpu_image_resolve must be called before the step. */
bool cpu_image_sizes(struct cpu_image *m, const struct device_run *run);
/* Computes the dims of all tensors for the sizes of the step. */
void cpu_image_resolve(struct cpu_image *m);

/* Returns true if the kernel set that the options select has the kernel.
 * Backends use it as backend_ops.has_kernel. */
bool cpu_image_has_kernel(const struct device_desc *d,
                          const struct device_options *opt,
                          const struct insn_kernel *k,
                          const struct prog_tensor *t);
/* Backends use these as backend_ops.packing and backend_ops.activations. */
enum packing cpu_image_packing(const struct device_desc *d, pl_format f,
                               enum weight_use use);
enum activations cpu_image_activations(const struct device_desc *d,
                                       const struct device_options *opt,
                                       pl_format f);
/* Returns the scratch size in bytes that each of nth threads needs to execute
 * any instruction of the program. */
size_t cpu_image_scratch(const struct cpu_kernels *k, const struct program *p,
                         int nth);

/* For a device that divides a kernel into at most CPU_PARTS parts and runs them
 * one after another with the same scratch: returns the size of that scratch in
 * bytes. */
enum { CPU_PARTS = 3 };
size_t cpu_image_parts_scratch(const struct device_options *opt,
                               const struct program *p);

/* Executes part ith of nth of an instruction; does nothing for a POST or WAIT.
 * `taken` is for kernels; see cpu_call. */
void cpu_image_insn(const struct cpu_image *m, const struct insn *st,
                    void *scratch, int ith, int nth,
                    struct cpu_steal_counter *taken);
/* Execute part ith of nth of an instruction of one type: a kernel, a MERGE, a
 * transfer or PAGES. For backends that handle each type differently. */
void cpu_image_kernel(const struct cpu_image *m, const struct insn *st,
                      void *scratch, int ith, int nth,
                      struct cpu_steal_counter *taken);
void cpu_image_merge(const struct cpu_image *m, const struct insn *st,
                     void *scratch, int ith, int nth);
/* Executes part ith of nth of copy descriptor i of a PULL, or of the transfer
 * of a PUSH to its i-th destination. */
void cpu_image_transfer(const struct cpu_image *m, const struct insn *st, int i,
                        int ith, int nth);
void cpu_image_pages(const struct cpu_image *m, const struct insn *st, int ith,
                     int nth);

/* Returns the number of bytes that a PULL or PUSH moves in this step. */
double cpu_image_copy_bytes(const struct cpu_image *m, const struct insn *st);
/* Returns the time in seconds that a PULL or PUSH takes on its slowest link; 0
 * if the links take no time. */
double cpu_image_copy_seconds(const struct cpu_image *m, const struct insn *st);
/* Returns the latency in seconds until the first byte of a PULL or PUSH
 * arrives. */
double cpu_image_latency(const struct cpu_image *m, const struct insn *st);
/* Adds the instruction's operations and bytes to the device's counters. */
void cpu_image_count(const struct cpu_image *m, struct device *d,
                     const struct insn *st);

/* ---- used only by cpu_image.c, cpu_merge.c and cpu_pages.c - */

/* Returns the address of a tensor of device `dev`, whose memory this device may
 * read in place. */
static inline const unsigned char *cpu_image_source(const struct cpu_image *m,
                                                    int dev, int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return (d->prog == m->prog ? m->base[t->region] : d->at[t->region]) +
           t->offset;
}
/* Returns the address of a tensor in the inbox of device `dev`, to write to
 * it. */
static inline unsigned char *cpu_image_inbox(const struct cpu_image *m, int dev,
                                             int tensor)
{
    const struct device *d = device_of(m->set, dev);

    return d->at[REGION_INBOX] + d->prog->tensor[tensor].offset;
}
/* Returns the token table of the instruction's micro-batch, read from tensor
 * `tensor` of this device, with the page table of the pool of `of`, a cache or
 * state. */
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
