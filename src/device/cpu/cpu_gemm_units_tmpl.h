/* Common code for the units of all cpu_gemm_*_tmpl.h. Included at their top,
 * after cpu_unpack_tmpl.h and the definition of TOK. */
#include "device/cpu/cpu_gemm.h"

/* Returns the tiles of a unit. */
TMPL int tiles_of(struct shape f)
{
    return has_chunks(f) ? 8 : 1;
}

/* Location of a unit. */
struct gemm_unit {
    size_t off;    /* offset in a packed panel */
    int64_t block; /* its first one in a row of activations */
    int n_tile;    /* tiles present: a chunk may lack some of tiles_of() */
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
    ROW16 = 4 * PACK_ROWS, /* bytes of a dword of each of 16 rows of weights */
    TOK4 = 4 * TOK,        /* the same of a block's rows of activations */
};

/* An arranged unit: int8 x[tiles][32 TOK]; float d[TOK]; then data that a
 * kernel set adds. */
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
