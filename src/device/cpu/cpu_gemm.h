/* Contractions of many rows of activations with packed weights (GEMM).
 *
 * With a few rows the time is that of reading the weights, with many rows that
 * of multiplying. Here the weights of two panels (quant/pack.h) are unpacked
 * once, one *pass* of k at a time that stays in the first-level cache, and
 * multiplied by all rows of activations. Those were arranged before in the
 * order in which they are read. The accumulators of two panels and a few rows
 * stay in registers for the length of a pass.
 *
 * k is divided into *units*. A unit is what a format sums as integers: 32
 * values, or a chunk of up to 256. A unit of a float format is a segment of up
 * to 256. Shorter units are padded with zeros, which add exactly 0. The bits
 * are those of a panel call (cpu_matmul.h): each accumulator gets the units of
 * a rank in the same order. */
#ifndef DEVICE_CPU_CPU_GEMM_H
#define DEVICE_CPU_CPU_GEMM_H

#include <string.h>

#include "device/cpu/cpu_kernel.h"

enum {
    GEMM_PANELS = 2, /* panels multiplied together: a *block* */
    GEMM_WIDTH = GEMM_PANELS * PACK_ROWS, /* weight rows of a block */
};

/* Multiplies n_unit units of a block by n_row rows of activations. The
 * GEMM_WIDTH sums to[j] become from[j], or 0 if `from` is NULL, plus the
 * products of row j. */
struct gemm_pass {
    const void *weight; /* the first panel's units, unpacked */
    size_t stride;      /* bytes to the second panel's units */
    const void *act;    /* arranged rows of activations */
    size_t act_step;    /* bytes from `tok` rows to the next `tok` */
    float *const *from; /* NULL or `to`, unless sums are gathered */
    float *const *to;
    float *const *out; /* `to` of the last pass */
    int64_t n_row, n_unit;
    int64_t index, count; /* number of the pass; count of passes */
};

/* The GEMM of one format in an instruction set. */
struct cpu_gemm {
    int tok;      /* rows of activations multiplied together */
    int min_rows; /* fewer rows use panel calls */
    int pass;     /* units of a pass */
    /* Returns the bytes of a panel's unit, unpacked; a multiple of 64. */
    size_t (*weight_bytes)(void);
    /* Returns the bytes of a unit of `tok` rows of activations, arranged; a
     * multiple of 4. */
    size_t (*act_bytes)(void);
    /* Unpacks units first .. first + n - 1 of a packed panel. */
    void (*unpack)(void *dst, const struct pack *p, const uint8_t *panel,
                   int64_t first, int64_t n);
    /* Arranges all units of n rows of activations, 1 <= n <= tok. The remaining
     * rows repeat the first one. */
    void (*arrange)(void *dst, const struct pack *p, const void *const *x,
                    int n);
    void (*run)(const struct gemm_pass *p);
    /* True if the sums are kept contiguous in gemm_work between passes, and the
     * last pass writes them to their destination. Rows of a result are a page
     * or more apart, so they share a few sets of a cache, which costs more with
     * every pass. `from`, `to` and `out` then have n_row rounded up to a
     * multiple of `tok`. */
    bool gathered;
    /* A thread calls `begin` before it runs units of an op, and `end` after it.
     * NULL if there is nothing to do. */
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

/* Returns the units of a panel that this device holds, over all ranks. */
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

/* Sets n accumulators to 0. */
static inline void gemm_clear(float *const *acc, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        memset(acc[j], 0, GEMM_WIDTH * sizeof(float));
}

/* ---- the state of one thread --------------------------------------------- */

struct gemm_work {
    const struct cpu_gemm *gemm;
    const struct pack *pack;
    size_t unit_bytes;     /* bytes of a panel's unit, unpacked */
    size_t act_bytes;      /* bytes of a unit of tok rows of activations */
    unsigned char *weight; /* one pass of a block, unpacked */
    unsigned char *act;    /* arranged activations */
    /* [most rows], for gemm_arrange: struct q8_block, or float if weights are
     * float. */
    const void **x;
    float **acc; /* [most rows], for gemm_add */
    float **sum; /* [most rows], sums kept between passes if gathered */
};

/* Returns the bytes that the state takes for at most n_row rows of activations,
 * and places its parts in `memory` (64-aligned). If `memory` is NULL, only
 * returns the bytes. */
size_t gemm_work_init(struct gemm_work *g, const struct cpu_gemm *gemm,
                      const struct pack *pack, int64_t n_row, void *memory);
/* Called before and after all gemm_add() calls of an op. */
void gemm_begin(const struct gemm_work *g);
void gemm_end(const struct gemm_work *g);
/* Arranges rows g->x[0 .. n_row - 1] in g->act. */
void gemm_arrange(struct gemm_work *g, int64_t n_row);
/* Adds the rank's part of the block times g->act to g->acc[0 .. n_row - 1].
 * `panel` is the first of n_panel packed ones, 1 or 2. If `fresh`, accumulators
 * start at 0, whatever they hold. */
void gemm_add(const struct gemm_work *g, const uint8_t *panel, int n_panel,
              int32_t rank, int64_t n_row, bool fresh);

#endif
