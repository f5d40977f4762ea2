/* Contractions of many rows of activations with packed weights.
 *
 * A few rows cost the time to read the weights; many, that to multiply. Here
 * the weights of two panels (quant/pack.h) are unpacked once, a *pass* of k at
 * a time that stays in the first cache, and meet all rows of activations, which
 * were arranged before in the order in which they are read. The accumulators of
 * two panels and a few rows stay in registers for the length of a pass.
 *
 * k runs in *units*: what a format sums as integers, so 32 values, or a chunk
 * of up to 256; of float formats a segment of up to 256. A unit that is shorter
 * is filled up with zeros, which add exactly 0. The bits are those of a panel
 * job (cpu_matmul.h): for each accumulator the units of a rank come in the same
 * order. */
#ifndef DEVICE_CPU_CPU_GEMM_H
#define DEVICE_CPU_CPU_GEMM_H

#include <string.h>

#include "device/cpu/cpu_kernel.h"

enum {
    GEMM_PANELS = 2, /* panels that are multiplied together: a *block* */
    GEMM_WIDTH = GEMM_PANELS * PACK_ROWS, /* weight rows of a block */
};

/* n_unit units of a block times n_row rows of activations: GEMM_WIDTH sums
 * to[j] become from[j], or 0 where `from` is NULL, plus what row j comes to. */
struct gemm_pass {
    const void *weight; /* the first panel's units, unpacked */
    size_t stride;      /* bytes from them to the second one's */
    const void *act;    /* arranged rows of activations, */
    size_t act_step;    /* of `tok` and of the next `tok` so far apart */
    float *const *from; /* NULL or `to`, unless sums are gathered */
    float *const *to;
    float *const *out; /* `to` of the last pass */
    int64_t n_row, n_unit;
    int64_t index, count; /* which pass it is, of how many */
};

/* How an instruction set multiplies a format so. */
struct cpu_gemm {
    int tok;      /* rows of activations that are multiplied together */
    int min_rows; /* fewer of them go by jobs */
    int pass;     /* units of a pass */
    size_t (*weight_bytes)(void); /* of a panel's unit, unpacked; a multiple
                                     of 64 */
    size_t (*act_bytes)(void);    /* of a unit of `tok` rows of activations,
                                     arranged; a multiple of 4 */
    /* Units first .. first + n - 1 of a packed panel. */
    void (*unpack)(void *dst, const struct pack *p, const uint8_t *panel,
                   int64_t first, int64_t n);
    /* All units of n rows of activations, 1 <= n <= tok; the others are the
     * first one again. */
    void (*arrange)(void *dst, const struct pack *p, const void *const *x,
                    int n);
    void (*run)(const struct gemm_pass *p);
    /* From one pass to the next the sums lie side by side in gemm_work, and are
     * written where they belong by the last pass. Rows of a result are a page
     * or more apart, so they share a few sets of a cache, which costs the more
     * the more passes there are. `from`, `to` and `out` then have n_row rounded
     * up to a multiple of `tok`. */
    bool gathered;
    /* A thread calls begin before it runs units of an op, and end after it.
     * NULL: there is nothing to do. */
    void (*begin)(const struct pack *p);
    void (*end)(void);
};

static inline int64_t gemm_chunk_units(const struct pack *p,
                                       const struct pack_chunk *c)
{
    if (p->rule->tile_values == 1) /* segments */
        return (c->k + c->n - 1) / Q8_CHUNK - c->k / Q8_CHUNK + 1;
    return p->rule->sup == PACK_SUP_NONE ? c->n / 32 : 1;
}

/* Units of a panel that this device has, of all ranks. */
static inline int64_t gemm_units(const struct pack *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_chunk; i++)
        n += gemm_chunk_units(p, &p->chunk[i]);
    return n;
}

/* A unit of float weights: values first .. first + n - 1 of a chunk. */
struct gemm_segment {
    const struct pack_chunk *chunk;
    int64_t first, n;
};

static inline struct gemm_segment gemm_segment_at(const struct pack *p,
                                                  int64_t u)
{
    const struct pack_chunk *c = p->chunk;
    int64_t k, end;

    for (; u >= gemm_chunk_units(p, c); c++)
        u -= gemm_chunk_units(p, c);
    k = (c->k / Q8_CHUNK + u) * Q8_CHUNK;
    end = k + Q8_CHUNK < c->k + c->n ? k + Q8_CHUNK : c->k + c->n;
    k = k > c->k ? k : c->k;
    return (struct gemm_segment){c, k - c->k, end - k};
}

/* n accumulators become 0. */
static inline void gemm_clear(float *const *acc, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        memset(acc[j], 0, GEMM_WIDTH * sizeof(float));
}

/* ---- the work of one thread ---------------------------------------------- */

struct gemm_work {
    const struct cpu_gemm *gemm;
    const struct pack *pack;
    size_t unit_bytes;     /* of a panel's unit, unpacked */
    size_t act_bytes;      /* of a unit of tok rows of activations */
    unsigned char *weight; /* a pass of a block, unpacked */
    unsigned char *act;    /* arranged activations */
    const void **x; /* [most rows] struct q8_block, or float where weights
                              are; for gemm_arrange */
    float **acc;    /* [most rows], for gemm_add */
    float **sum;    /* [most rows], of passes, where they are gathered */
};

/* Bytes that it takes for at most n_row rows of activations, and where in
 * `memory` (64-aligned) its parts are; memory NULL: bytes alone. */
size_t gemm_work_init(struct gemm_work *g, const struct cpu_gemm *gemm,
                      const struct pack *pack, int64_t n_row, void *memory);
/* Around all calls of gemm_add() of an op. */
void gemm_begin(const struct gemm_work *g);
void gemm_end(const struct gemm_work *g);
/* w->act becomes rows w->x[0 .. n_row - 1]. */
void gemm_arrange(struct gemm_work *g, int64_t n_row);
/* w->acc[0 .. n_row - 1] += the rank's part of the block times w->act. `panel`
 * is the first of n_panel packed ones, 1 or 2. `fresh`: they begin at 0,
 * whatever they hold. */
void gemm_add(const struct gemm_work *g, const uint8_t *panel, int n_panel,
              int32_t rank, int64_t n_row, bool fresh);

#endif
