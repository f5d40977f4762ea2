/* Kernels of CPU devices: one function per kernel, one table per kernel set.
 *
 * All operands are contiguous, in this device's memory, and hold only this
 * device's part. dim[] are local sizes for this step: a split dimension counts
 * what the device's ranks own, and may be 0. Kernels divide their work over
 * threads by ith/nth (cpu_steal.h). Threads synchronize before an instruction
 * that needs results of another one (cpu_barriers.h). Kernels cannot fail,
 * allocate nothing and read no global state.
 *
 * Bits. Each kernel's order of operations is part of its definition, written at
 * its generic form. It does not depend on nth, on local sizes, on how many
 * tokens are computed together, or on the kernel set: all sets give the same
 * bits (no reassociation, FMA exactly where the generic form calls fmaf).
 * `reference` has float activations and its own bits. */
#ifndef DEVICE_CPU_CPU_KERNEL_H
#define DEVICE_CPU_CPU_KERNEL_H

#include <stdatomic.h>

#include "device/cpu/cpu_recurrent.h"
#include "device/kernel_set.h"
#include "program/cache_tile.h"
#include "program/kernel.h"
#include "quant/pack.h"
#include "quant/q8.h"

/* A local tensor. Packed weights: data is the first matrix (expert 0), pack
 * its shape, dim[] the local logical shape. */
struct cpu_tensor {
    void *data;
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    const struct pack *pack; /* NULL for plain tensors */
};

/* Counts how much of a thread's part of an instruction is taken, by the thread
 * itself or by threads that help it. Alone on its cache lines, as a device_flag
 * is. */
struct cpu_steal_counter {
    _Alignas(128) _Atomic int64_t n;
};

struct cpu_call {
    struct cpu_tensor out;
    struct cpu_tensor in[GRAPH_MAX_IN]; /* absent optional: data == NULL */
    int n_in;
    const struct graph_attr *attr;
    /* in[0] quantized, [rows, k/32]; NULL if the kernel set or the format reads
     * floats. */
    const struct q8_block *q8;
    const struct token_table *table; /* cache_write, attention; others: NULL */
    /* Attention: local KV head of each local query head. Expert and other ops:
     * NULL. */
    const int32_t *head_map;
    struct rank_tree tree; /* contractions */
    /* gather_rows: rows of the table; sum: the summed dimension; quantize: the
     * last dimension, where chunks share a scale; others: NULL. */
    const struct rank_span *span;
    int n_span;
    const struct kernel_custom *custom; /* custom; others: NULL */
    size_t out_stride;                  /* bytes between the tree's results */
    void *scratch; /* this thread's, cpu_entry.scratch bytes, 64-aligned */
    int ith, nth;
    /* [nth], or NULL if threads do not help each other. */
    struct cpu_steal_counter *taken;
    /* Bytes from a thread's scratch to the next one's; read only with
     * `taken`. */
    size_t scratch_stride;
};

typedef void cpu_kernel(const struct cpu_call *c);

struct cpu_entry {
    cpu_kernel *run;
    /* Returns the scratch that a thread needs for a call of at most these sizes
     * (data pointers and table unset). NULL if the kernel needs none. */
    size_t (*scratch)(const struct cpu_call *c);
};

struct cpu_kernels {
    enum kernel_set kernel_set;
    struct cpu_entry kernel[KERNEL_COUNT]; /* run == NULL: not in the set */
    struct cpu_entry bf16[KERNEL_COUNT];   /* for calls with attr.bf16 */
    bool float_activations;                /* never wants q8 */
    /* Like q8_encode(). */
    void (*q8)(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);
    /* out[i] = a[i] + b[i]; out may be a or b. */
    void (*add)(float *out, const float *a, const float *b, int64_t n);
    cpu_short_conv_fn *short_conv;
    cpu_delta_net_fn *delta_net;
};

/* Returns the entry of a kernel with these attributes. If `attr` is NULL, all
 * attributes are zero. */
static inline const struct cpu_entry *
cpu_entry_of(const struct cpu_kernels *k, enum kernel kernel,
             const struct graph_attr *attr)
{
    return attr && attr->bf16 ? &k->bf16[kernel] : &k->kernel[kernel];
}

/* Fills the table, even if this machine cannot run the set. */
void cpu_kernels_init(struct cpu_kernels *k, enum kernel_set set);

/* Returns true if the kernel with this weight format reads quantized
 * activations. */
bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight);

#endif
