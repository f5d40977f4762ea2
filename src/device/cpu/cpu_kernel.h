/* Kernels of CPU devices: one function per kernel, one table per kernel set.
 *
 * All operands are contiguous, in this device's memory, and hold only this
 * device's part of a tensor. dim[] are the sizes of that part in this step: the
 * size of a split dimension counts only the indices that the device's ranks
 * own, and may be 0. Kernels divide their work over threads by ith/nth
 * (cpu_steal.h). Threads synchronize before an instruction that needs results
 * of another one (cpu_barriers.h). Kernels cannot fail, allocate nothing and
 * read no global state.
 *
 * Bits. Each kernel's order of operations is part of its definition, which is
 * in a comment at its generic C code. It does not depend on nth, on local
 * sizes, on how many tokens are computed together, or on the kernel set: all
 * sets give the same bits (no reassociation, FMA exactly where the generic form
 * calls fmaf). The set `reference` has float activations and results of its
 * own. */
#ifndef DEVICE_CPU_CPU_KERNEL_H
#define DEVICE_CPU_CPU_KERNEL_H

#include <stdatomic.h>

#include "device/cpu/cpu_recurrent.h"
#include "device/kernel_set.h"
#include "program/cache_tile.h"
#include "program/kernel.h"
#include "quant/pack.h"
#include "quant/q8.h"

/* The part of a tensor that this device holds, as an argument of a kernel. For
 * packed weights, `data` points to the first matrix (of several experts),
 * `pack` describes the packed form, and dim[] is the shape before packing. */
struct cpu_tensor {
    void *data;
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    /* packed form of the weights; NULL if the tensor is not packed */
    const struct pack *pack;
};

/* Counts how many items of one thread's part of an instruction have been taken,
 * by that thread or by others that steal them. It is aligned to 128 bytes, so
 * that writing it does not invalidate the cache lines of other data. */
struct cpu_steal_counter {
    _Alignas(128) _Atomic int64_t n;
};

struct cpu_call {
    struct cpu_tensor out;
    /* the operands; `data` is NULL for an optional operand that is absent */
    struct cpu_tensor in[GRAPH_MAX_IN];
    int n_in;
    const struct graph_attr *attr;
    /* in[0] quantized to 8 bits, as [rows, k/32] blocks of 32 values. NULL if
     * the kernel reads in[0] as floats. */
    const struct q8_block *q8;
    /* positions, sequences and page tables of the tokens, for kernels that
     * access caches or states; else NULL */
    const struct token_table *table;
    /* For attention: the index on this device of the KV head that each query
     * head on this device reads. For delta_net: likewise the key head of each
     * value head. NULL for other kernels. */
    const int32_t *head_map;
    /* For a contraction, gather_rows or sum: the ranks whose addends the call
     * computes, and the order in which they are summed. */
    struct rank_tree tree;
    /* [n_span] intervals of a split dimension that this device holds, with
     * their ranks: of the table's rows for gather_rows, of the summed dimension
     * for sum. For quantize they are intervals of the last dimension, and the
     * values in each part of an interval between multiples of 256 share a
     * scale. NULL for other kernels. */
    const struct rank_span *span;
    int n_span;
    /* definition of the custom op, if the kernel is one; else NULL */
    const struct kernel_custom *custom;
    /* A call that sums ranks writes one result for each complete subtree of
     * ranks. This is the distance in bytes from one result to the next. */
    size_t out_stride;
    /* memory for intermediate values of this thread: as many bytes as
     * cpu_entry.scratch() returns, 64-aligned */
    void *scratch;
    int ith, nth;
    /* [nth]: how many items of each thread's part have been taken
     * (cpu_steal.h). NULL if threads do not steal work in this call. */
    struct cpu_steal_counter *taken;
    /* Distance in bytes from one thread's scratch to the next thread's. It is
     * read only if `taken` is not NULL. */
    size_t scratch_stride;
};

typedef void cpu_kernel(const struct cpu_call *c);

struct cpu_entry {
    cpu_kernel *run;
    /* Returns the scratch size in bytes that each thread needs for calls whose
     * sizes are at most those in *c. Data pointers and the token table in *c
     * are not set yet. NULL if the kernel needs no scratch. */
    size_t (*scratch)(const struct cpu_call *c);
};

struct cpu_kernels {
    enum kernel_set kernel_set;
    /* by kernel: its functions; .run is NULL if the kernel set lacks the
     * kernel */
    struct cpu_entry kernel[KERNEL_COUNT];
    /* by kernel: its functions for calls with attr.bf16, which multiply BF16
     * values */
    struct cpu_entry bf16[KERNEL_COUNT];
    /* all matrix products read activations as floats, even with quantized
     * weights, and not as 8-bit blocks */
    bool float_activations;
    /* Quantizes n activations to blocks of 32 8-bit values; `share` values
     * share a scale. Gives the same bits as q8_encode(). */
    void (*q8)(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);
    /* Computes out[i] = a[i] + b[i] for i < n; out may be a or b. */
    void (*add)(float *out, const float *a, const float *b, int64_t n);
    cpu_short_conv_fn *short_conv;
    cpu_delta_net_fn *delta_net;
    cpu_ssm_scan_fn *ssm_scan;
};

/* Returns the functions of a kernel for an op with the attributes `attr`; NULL
 * means default attributes. If attr->bf16, these are the kernels that multiply
 * BF16 values. */
static inline const struct cpu_entry *
cpu_entry_of(const struct cpu_kernels *k, enum kernel kernel,
             const struct graph_attr *attr)
{
    return attr && attr->bf16 ? &k->bf16[kernel] : &k->kernel[kernel];
}

/* Fills *k with the kernels of kernel set `set`. Does not check that this
 * machine can run the set. */
void cpu_kernels_init(struct cpu_kernels *k, enum kernel_set set);

/* Returns true if `kernel` is a matrix product that reads its activations as
 * 8-bit integers when its weight has the format `weight`. */
bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight);

#endif
