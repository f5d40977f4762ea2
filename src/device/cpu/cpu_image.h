/* A program laid out in memory that this process addresses: where each tensor
 * lies, how large it is in this run, and what kernels need beside. The kinds
 * whose kernels are this machine's processors' go through their steps with it:
 * which step runs when, and on which threads, is theirs. It comes first in what
 * such a kind keeps of a device, where tests find it. */
#ifndef DEVICE_CPU_CPU_IMAGE_H
#define DEVICE_CPU_CPU_IMAGE_H

#include "device/cpu/cpu_kernel.h"
#include "device/device_ops.h"

/* The kernels of a set's options. */
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
    struct device_set *set;            /* borrowed: whose memory is read */
    unsigned char *base[REGION_COUNT]; /* borrowed: the owner's allocation */
    struct cpu_tensor *tensor;         /* owned, [prog->n_tensor] */
    uint32_t resize; /* micro-batches whose tensors' dims must be made anew */
    struct graph_sizes sizes[PROG_MAX_MICRO]; /* for which they are made */
    size_t scratch_stride; /* bytes from a thread's scratch to the next one's */
};

/* Sets up the image of d's program; base[] is set. image_fini takes half-made
 * ones. */
pl_status cpu_image_init(struct cpu_image *m, struct device_set *set,
                         const struct device *d, const struct cpu_kernels *k,
                         pl_err *err);
void cpu_image_fini(struct cpu_image *m);

/* Takes over the sizes of a run; true if tensors must be resolved. */
bool cpu_image_sizes(struct cpu_image *m, const struct device_run *run);
/* Fills in dims for the sizes of a run; sizes hold for it from here on. */
void cpu_image_resolve(struct cpu_image *m);

/* Returns true if the kernel set of these options has the kernel, as
 * backend_ops.has_kernel does. */
bool cpu_image_has_kernel(const struct device_desc *d,
                          const struct device_options *opt,
                          const struct insn_kernel *k,
                          const struct prog_tensor *t);
/* As backend_ops.packing and activations. */
enum packing cpu_image_packing(const struct device_desc *d, pl_format f,
                               enum weight_use use);
enum activations cpu_image_activations(const struct device_desc *d,
                                       const struct device_options *opt,
                                       pl_format f);
/* Scratch bytes a thread needs, of nth that share a step. */
size_t cpu_image_scratch(const struct cpu_kernels *k, const struct program *p,
                         int nth);

/* Of a device that cuts a kernel into up to CPU_PARTS parts and runs them one
 * after another, all with the same scratch. */
enum { CPU_PARTS = 3 };
size_t cpu_image_parts_scratch(const struct device_options *opt,
                               const struct program *p);

/* Of any step that touches memory, the part ith of nth. taken: of a kernel, see
 * cpu_call. */
void cpu_image_insn(const struct cpu_image *m, const struct insn *st,
                    void *scratch, int ith, int nth,
                    struct cpu_steal_counter *taken);
/* The same for those who do more by kind of step. */
void cpu_image_kernel(const struct cpu_image *m, const struct insn *st,
                      void *scratch, int ith, int nth,
                      struct cpu_steal_counter *taken);
void cpu_image_merge(const struct cpu_image *m, const struct insn *st,
                     void *scratch, int ith, int nth);
/* Piece i of a PULL, or what a PUSH brings to its i-th destination. */
void cpu_image_transfer(const struct cpu_image *m, const struct insn *st, int i,
                        int ith, int nth);
void cpu_image_pages(const struct cpu_image *m, const struct insn *st, int ith,
                     int nth);

/* Bytes that a transfer moves in this run. */
double cpu_image_copy_bytes(const struct cpu_image *m, const struct insn *st);
/* Seconds that the slower of the links takes for it; 0 where links are free. */
double cpu_image_copy_seconds(const struct cpu_image *m, const struct insn *st);
/* Of that, what passes until the first byte has come. */
double cpu_image_latency(const struct cpu_image *m, const struct insn *st);
/* Tells the device what the step does, for its counters. */
void cpu_image_count(const struct cpu_image *m, struct device *d,
                     const struct insn *st);

/* ---- of these files alone ---- */

/* Where a tensor of a device in the set lies, which may be read in place. */
static inline const unsigned char *cpu_image_source(const struct cpu_image *m,
                                                    int dev, int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return (d->prog == m->prog ? m->base[t->region] : d->at[t->region]) +
           t->offset;
}
/* Where a tensor in the inbox of another device lies. */
static inline unsigned char *cpu_image_inbox(const struct cpu_image *m, int dev,
                                             int tensor)
{
    const struct device *d = device_of(m->set, dev);

    return d->at[REGION_INBOX] + d->prog->tensor[tensor].offset;
}
/* The table of the step's micro-batch that lies in a tensor of this device,
 * with the pages of memory `of`. */
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
