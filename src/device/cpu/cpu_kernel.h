/* Kernels of CPU devices: one function a kernel, one table a
 * kernel set.
 *
 * All operands are contiguous, in this device's memory, and hold this device's
 * part only: dim[] are local sizes for this step (a split dimension counts what
 * the device's ranks own, and may be 0). Work is divided over threads inside
 * the kernel by ith/nth (cpu_steal.h); threads meet before a step that needs
 * what another one did (cpu_barriers.h). Kernels cannot fail, allocate nothing
 * and read no global state.
 *
 * Bits. Each kernel's order of operations is part of its definition, written
 * at its generic form, and does not depend on nth, on local sizes, on how
 * many tokens are computed together, or on the kernel set: all give the same
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

/* How much of a thread's part of a step is taken, by the thread or by others
 * that help it; alone on its cache lines, as a device_flag is. */
struct cpu_steal_counter {
    _Alignas(128) _Atomic int64_t n;
};

struct cpu_call {
    struct cpu_tensor out;
    struct cpu_tensor in[GRAPH_MAX_IN]; /* absent optional: data == NULL */
    int n_in;
    const struct graph_attr *attr;
    const struct q8_block *q8; /* in[0] quantized, [rows, k/32]; NULL when the
                                  kernel set or the format wants floats */
    const struct token_table *table; /* cache_write, attention; others: NULL */
    const int32_t *head_map; /* attention: local KV head of each local query
                                head; expert and other ops: NULL */
    struct rank_tree tree;   /* contractions */
    const struct rank_span *span; /* gather_rows: rows of the table;
                                     sum: the summed dimension; quantize: the
                                     last dimension, where chunks share a
                                     scale; others: NULL */
    int n_span;
    const struct kernel_custom *custom; /* custom; others: NULL */
    size_t out_stride;                  /* bytes between the tree's results */
    void *scratch; /* this thread's, cpu_entry.scratch bytes, 64-aligned */
    int ith, nth;
    struct cpu_steal_counter
        *taken;            /* [nth] NULL: threads do not help each other */
    size_t scratch_stride; /* bytes from a thread's scratch to the next one's;
                                read with `taken` alone */
};

typedef void cpu_kernel(const struct cpu_call *c);

struct cpu_entry {
    cpu_kernel *run;
    /* Scratch a thread needs for a call of at most these sizes (data pointers
     * and table unset); NULL: none. */
    size_t (*scratch)(const struct cpu_call *c);
};

struct cpu_kernels {
    enum kernel_set kernel_set;
    struct cpu_entry kernel[KERNEL_COUNT]; /* run == NULL: there is none */
    struct cpu_entry bf16[KERNEL_COUNT];   /* of those with attr.bf16 */
    bool float_activations;                /* never wants q8 */
    /* As q8_encode(). */
    void (*q8)(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);
    /* out[i] = a[i] + b[i]; out may be a or b. */
    void (*add)(float *out, const float *a, const float *b, int64_t n);
    cpu_short_conv_fn *short_conv;
    cpu_delta_net_fn *delta_net;
};

/* The entry of a kernel with these attributes; NULL: all are zero. */
static inline const struct cpu_entry *
cpu_entry_of(const struct cpu_kernels *k, enum kernel kernel,
             const struct graph_attr *attr)
{
    return attr && attr->bf16 ? &k->bf16[kernel] : &k->kernel[kernel];
}

/* Fills the table, whether or not this machine runs the set. */
void cpu_kernels_init(struct cpu_kernels *k, enum kernel_set set);

/* True if the kernel with this weight format reads quantized activations. */
bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight);

#endif
