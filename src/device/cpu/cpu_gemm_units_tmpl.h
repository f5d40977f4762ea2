/* Functions for *units*, the ranges of k defined in cpu_gemm.h. Every
 * cpu_gemm_*_tmpl.h includes this file at its top. It needs cpu_unpack_tmpl.h,
 * and TOK, the number of rows of activations that a GEMM multiplies
 * together. */
#include "device/cpu/cpu_gemm.h"

/* Returns the number of tiles of a full unit: 8 of a chunk, else 1. */
TMPL int tiles_of(struct shape f)
{
    return has_chunks(f) ? 8 : 1;
}

/* The position of a unit in a packed panel and in a row of activations. */
struct gemm_unit {
    size_t off;    /* offset in bytes in a packed panel */
    int64_t block; /* index of its first struct q8_block in a row of
                      activations */
    /* number of tiles present; a chunk may have fewer than tiles_of() */
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
    ROW16 = 4 * PACK_ROWS, /* size in bytes of one dword of each of 16 weight
                              rows */
    TOK4 = 4 * TOK,        /* size in bytes of one dword of each of TOK rows of
                              activations */
};

/* The layout of an arranged unit of activations: int8 x[tiles][32 TOK]; float
 * d[TOK]; then data that depends on the kernel set. The functions return the
 * offsets in bytes of d and of that data. */
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
