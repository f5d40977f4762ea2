/* Functions for *units*: the ranges of k into which a GEMM divides the weights
 * (cpu_gemm.h), a tile of 32 values or a chunk of up to 256. Every
 * cpu_gemm_*_tmpl.h includes this file at its top. It needs cpu_unpack_tmpl.h,
 * and TOK, the number of rows of activations that a GEMM multiplies
 * together. */
#include "device/cpu/cpu_gemm_rows_tmpl.h"

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

/* Returns the number of int16 pairs of integer minima M that a chunk has for
 * each weight row: one for two tiles, or one for the two halves of a tile. 0 if
 * the format has none. */
TMPL int minima_of(struct shape f)
{
    return !has_chunks(f) || !has_min(f) ? 0 : has_half_min(f) ? 8 : 4;
}

/* Stores v, an int16 in each lane, as that of tile i in an array of pairs of
 * two tiles. Tiles are stored in ascending order. */
TMPL void put_int16(uint8_t *pairs, int i, vi v)
{
    uint8_t *dst = pairs + ROW16 * (i / 2);

    if (i % 2 == 0)
        put(dst, v);
    else
        put(dst, get(dst) | (vi)((vu)v << 16));
}

/* Stores the integer minima M (quant/pack.h) of tile i at `m`, where those of
 * an unpacked chunk are. */
TMPL void unpack_minima(uint8_t *m, const struct scales *w, int i,
                        struct shape f)
{
    if (has_half_min(f))
        put(m + ROW16 * i, w->m);
    else
        put_int16(m, i, w->m & 0xffff);
}
