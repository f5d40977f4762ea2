/* Copy descriptors (copy_desc) whose symbolic sizes have been replaced by the
 * numbers of a step. */
#ifndef PROGRAM_COPY_LOOPS_H
#define PROGRAM_COPY_LOOPS_H

#include "program/program.h"

struct copy_extent {
    /* offset in bytes in the source tensor and in the destination tensor;
     * number of adjacent bytes that the innermost loop copies */
    int64_t src, dst, bytes;
    int64_t n0, src_s0, dst_s0;
    int64_t n1, src_s1, dst_s1;
};

/* Replaces the symbolic sizes of descriptor `p` by those of a step, `z`. If the
 * bytes that successive iterations copy are adjacent, merges these iterations
 * into one. */
static inline void copy_loops_resolve(struct copy_extent *l,
                                      const struct copy_desc *p,
                                      const struct graph_sizes *z)
{
    l->src = dim_value(p->src_off, z) + p->src_const;
    l->dst = dim_value(p->dst_off, z) + p->dst_const;
    l->bytes = dim_value(p->bytes, z);
    l->n0 = dim_value(p->n0, z);
    l->src_s0 = dim_value(p->src_s0, z);
    l->dst_s0 = dim_value(p->dst_s0, z);
    l->n1 = dim_value(p->n1, z);
    l->src_s1 = dim_value(p->src_s1, z);
    l->dst_s1 = dim_value(p->dst_s1, z);
    if (l->n1 > 0 && l->src_s1 == l->bytes && l->dst_s1 == l->bytes) {
        l->bytes *= l->n1;
        l->n1 = 1;
    }
    if (l->n0 > 0 && l->n1 == 1 && l->src_s0 == l->bytes &&
        l->dst_s0 == l->bytes) {
        l->bytes *= l->n0;
        l->n0 = 1;
    }
}

static inline int64_t copy_loops_bytes(const struct copy_extent *l)
{
    return l->bytes * l->n0 * l->n1;
}

/* Divides a copy into *n0 * *n1 parts, each of which is contiguous in one of
 * the two tensors: the one in which the outer and inner loop have the strides
 * s0 and s1 in bytes. *n0 is the outer loop's count or 1, *n1 the inner loop's
 * count or 1. The copy must not be empty. */
static inline void copy_loops_apart(const struct copy_extent *l, int64_t s0,
                                    int64_t s1, int64_t *n0, int64_t *n1)
{
    bool dense1 = l->n1 == 1 || s1 == l->bytes;
    bool dense0 = dense1 && (l->n0 == 1 || s0 == l->n1 * l->bytes);

    *n0 = dense0 ? 1 : l->n0;
    *n1 = dense1 ? 1 : l->n1;
}

/* Returns part i of the n0 * n1 parts into which copy_loops_apart divides a
 * copy. */
static inline struct copy_extent
copy_loops_part(const struct copy_extent *l, int64_t n0, int64_t n1, int64_t i)
{
    struct copy_extent part = *l;

    part.src += i / n1 * l->src_s0 + i % n1 * l->src_s1;
    part.dst += i / n1 * l->dst_s0 + i % n1 * l->dst_s1;
    part.n0 = l->n0 / n0;
    part.n1 = l->n1 / n1;
    return part;
}

#endif
