/* The kernels other than matrix products with weights: norms, RoPE, attention
 * and its cache, routers, elementwise ops, moves. One source (cpu_*_template.h)
 * is compiled once for each instruction set; all give the same bits. */
#ifndef DEVICE_CPU_CPU_OPS_H
#define DEVICE_CPU_CPU_OPS_H

#include "device/cpu/cpu_steal.h"

/* Each function writes one instruction set's kernels into the kernel table *k.
 * Called by cpu_dispatch.c. */
void cpu_ops_init_generic(struct cpu_kernels *k);
void cpu_ops_init_avx2(struct cpu_kernels *k);
void cpu_ops_init_avx512(struct cpu_kernels *k);
void cpu_ops_init_avx512_bf16(struct cpu_kernels *k);
void cpu_ops_init_neon(struct cpu_kernels *k);

/* Writes the kernels of ops that only move bytes, and of custom ops, into the
 * kernel table *k. All kernel sets use the same ones. */
void cpu_move_init(struct cpu_kernels *k);

/* Calls the kernel function of a custom op, which a caller of the library
 * defined (pl_custom). */
void cpu_custom_run(const struct cpu_call *c);

/* Encodes d floats x to `row` in the cache format f, with the same bytes as the
 * kernel cache_write. They are the same in every kernel set. */
void cpu_cache_encode_row(pl_format f, void *row, const float *x, int64_t d);

/* cpu_count() returns the number of values of a tensor, cpu_last() the size of
 * its last dimension, and cpu_rows() the product of its other dimensions. */
static inline int64_t cpu_count(const struct cpu_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}
static inline int64_t cpu_last(const struct cpu_tensor *t)
{
    return t->n_dim > 0 ? t->dim[t->n_dim - 1] : 1;
}
static inline int64_t cpu_rows(const struct cpu_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

#endif
