/* The kernels that do not contract weights: norms, RoPE, attention and its
 * cache, routers, elementwise ops, moves. One source (cpu_*_template.h),
 * compiled once for each instruction set; all give the same bits. */
#ifndef DEVICE_CPU_CPU_OPS_H
#define DEVICE_CPU_CPU_OPS_H

#include "device/cpu/cpu_steal.h"

/* Each writes its ops' entries into the table (cpu_dispatch.c). */
void cpu_ops_init_generic(struct cpu_kernels *k);
void cpu_ops_init_avx2(struct cpu_kernels *k);
void cpu_ops_init_avx512(struct cpu_kernels *k);
void cpu_ops_init_avx512_bf16(struct cpu_kernels *k);
void cpu_ops_init_neon(struct cpu_kernels *k);

/* The ops that only move bytes, and custom ops; one form for all kernel
 * sets. */
void cpu_move_init(struct cpu_kernels *k);

/* Calls the kernel of a caller-defined op (pl_custom). */
void cpu_custom_run(const struct cpu_call *c);

/* Copies one row (position j = 0 .. 63 of a page, one head) of a cache tile to
 * and from the format's own bytes, format_row_bytes(f, d) of them: elements, or
 * for q8_0 blocks of an f16 scale and 32 signed bytes. `values` selects a tile
 * of values instead of keys. For tests; other code uses
 * program/cache_tile.h. */
void cpu_cache_read_row(pl_format f, int64_t d, bool values, const void *tile,
                        int j, void *row);
void cpu_cache_write_row(pl_format f, int64_t d, bool values, void *tile, int j,
                         const void *row);
/* Encodes d floats as a row of a cache, as cache_write does; every kernel set
 * gives the same bytes. */
void cpu_cache_encode_row(pl_format f, void *row, const float *x, int64_t d);

/* Return the number of values of a tensor, the size of its last dimension, and
 * its number of rows. */
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
