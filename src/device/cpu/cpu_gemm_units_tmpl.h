/* Functions for *units*: the ranges of k into which a GEMM divides the weights
 * (cpu_gemm.h), a tile of 32 values or a chunk of up to 256. Every
 * cpu_gemm_*_tmpl.h includes this file at its top. It needs cpu_unpack_tmpl.h,
 * and TOK, the number of rows of activations that a GEMM multiplies
 * together. */
#include "device/cpu/cpu_gemm.h"

/* Returns the number of 32-value tiles in a full unit: 8 if the format has
 * super-blocks, whose unit is a chunk, else 1. */
TMPL int tiles_of(struct shape f)
{
    return has_chunks(f) ? 8 : 1;
}

/* Location of a unit (a range of k: a tile or a chunk) in a packed panel and in
 * a row of activations. */
struct gemm_unit {
    /* offset in bytes of the unit's packed weights from the start of the
     * panel */
    size_t off;
    /* index of the unit's first struct q8_block in a row of activations */
    int64_t block;
    /* number of 32-value tiles that the unit has; a chunk may have fewer than
     * tiles_of(), because a rank's part can end inside a super-block */
    int n_tile;
};

TMPL struct gemm_unit gemm_unit_at(const struct pack *p, int64_t u,
                                   struct shape f)
{
    if (has_chunks(f))
        return (struct gemm_unit){p->chunk[u].off, p->chunk[u].k_loc / 32,
                                  p->chunk[u].n / 32};
    return (struct gemm_unit){(size_t)(u * p->rule->tile_bytes), u, 1};
}

enum {
    /* size in bytes of one dword (four 8-bit values) of each of 16 weight
     * rows */
    ROW16 = 4 * PACK_ROWS,
    /* size in bytes of one dword (four 8-bit values) of each of TOK rows of
     * activations */
    TOK4 = 4 * TOK,
};

/* The layout of TOK arranged rows of activations for one unit (a range of k):
 * int8 x[tiles][32 TOK], the scales float d[TOK], then sums of activations,
 * which depend on the kernel set. act_d() returns the offset in bytes of d, and
 * act_sums() that of the sums. */
TMPL int act_d(struct shape f)
{
    return tiles_of(f) * 8 * TOK4;
}

TMPL int act_sums(struct shape f)
{
    return act_d(f) + TOK4;
}

TMPL vi get(const void *p)
{
    return (vi)load(p);
}

TMPL vi dword_at(const void *p)
{
    return v_set(load_dword(p));
}

TMPL void put(void *dst, vi v)
{
    memcpy(dst, &v, sizeof v);
}
