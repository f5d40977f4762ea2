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

/* The part of a tensor that this device holds. For packed weights, `data` is
 * the first matrix (expert 0), `pack` describes its packed form, and dim[] is
 * the shape before packing. */
struct cpu_tensor {
    void *data;
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    const struct pack *pack; /* NULL if not packed */
};

/* Counts how many items of a thread's part of an instruction have been taken,
 * by the thread itself or by threads that steal them. The alignment keeps other
 * data off its cache lines, as for a device_flag. */
struct cpu_steal_counter {
    _Alignas(128) _Atomic int64_t n;
};

struct cpu_call {
    struct cpu_tensor out;
    struct cpu_tensor in[GRAPH_MAX_IN]; /* operands; data is NULL if absent */
    int n_in;
    const struct graph_attr *attr;
    /* in[0] quantized to 8 bits, [rows, k/32]; NULL if the kernel reads in[0]
     * as floats. */
    const struct q8_block *q8;
    /* the token table, for kernels that access caches or states; else NULL */
    const struct token_table *table;
    /* For attention: the local KV head of each local query head. For delta_net:
     * the local key head of each local value head. NULL for other kernels. */
    const int32_t *head_map;
    struct rank_tree tree; /* for a contraction, gather_rows or sum: the ranks
                              whose addends the call computes, and how they are
                              summed */
    /* [n_span] intervals that this device holds of a split dimension: of the
     * table's rows for gather_rows, of the summed dimension for sum, and of the
     * last dimension for quantize, whose chunks then share a scale. NULL for
     * other kernels. */
    const struct rank_span *span;
    int n_span;
    const struct kernel_custom *custom; /* definition of a custom op, else
                                           NULL */
    size_t out_stride; /* bytes from one result of `tree` to the next */
    void *scratch;     /* scratch of this thread, cpu_entry.scratch() bytes,
                          64-aligned */
    int ith, nth;
    /* [nth] counters for cpu_steal.h, or NULL if threads do not steal work. */
    struct cpu_steal_counter *taken;
    /* Distance in bytes from a thread's scratch to the next thread's; read only
     * if `taken` is not NULL. */
    size_t scratch_stride;
};

typedef void cpu_kernel(const struct cpu_call *c);

struct cpu_entry {
    cpu_kernel *run;
    /* Returns the scratch size in bytes that a thread needs for calls whose
     * sizes are at most those of *c. Data pointers and the token table in *c
     * are not set yet. NULL if the kernel needs no scratch. */
    size_t (*scratch)(const struct cpu_call *c);
};

struct cpu_kernels {
    enum kernel_set kernel_set;
    struct cpu_entry kernel[KERNEL_COUNT]; /* run is NULL if the set lacks the
                                              kernel */
    struct cpu_entry bf16[KERNEL_COUNT];   /* for calls with attr.bf16 */
    bool float_activations;                /* all kernels read activations as
                                              floats, not as q8 blocks */
    /* Quantizes activations, with the same bits as q8_encode(). */
    void (*q8)(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);
    /* Computes out[i] = a[i] + b[i] for i < n; out may be a or b. */
    void (*add)(float *out, const float *a, const float *b, int64_t n);
    cpu_short_conv_fn *short_conv;
    cpu_delta_net_fn *delta_net;
};

/* Returns the table entry of a kernel for an op with the attributes `attr`, or
 * with default attributes if NULL. attr->bf16 selects the BF16 kernels. */
static inline const struct cpu_entry *
cpu_entry_of(const struct cpu_kernels *k, enum kernel kernel,
             const struct graph_attr *attr)
{
    return attr && attr->bf16 ? &k->bf16[kernel] : &k->kernel[kernel];
}

/* Fills the table of a kernel set. Does not check that this machine can run the
 * set. */
void cpu_kernels_init(struct cpu_kernels *k, enum kernel_set set);

/* Returns true if `kernel` reads activations quantized to 8 bits when its
 * weight has the format `weight`. */
bool cpu_wants_q8(const struct cpu_kernels *k, enum kernel kernel,
                  pl_format weight);

#endif
