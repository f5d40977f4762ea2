/* Products of many rows of activations with packed weights (GEMM).
 *
 * With few rows the time is spent on reading the weights, with many rows on
 * multiplying. Here two panels of weights (quant/pack.h), a *block*, are
 * processed together. k is divided into *passes* that fit the first-level
 * cache. For each pass, the block's weights are unpacked once and multiplied by
 * all rows of activations, which were arranged before in the order in which
 * they are read. The accumulators of a block and a few rows stay in registers
 * during a pass.
 *
 * k is divided into *units*. A unit is the range of k that a format sums as
 * integers: 32 values, or a chunk of up to 256. A unit of a float format is a
 * segment of up to 256 values. Shorter units are padded with zeros, which add
 * exactly 0. The results have the bits of a panel call (cpu_matmul.h), because
 * each accumulator adds a rank's units in the same order. */
#ifndef DEVICE_CPU_CPU_GEMM_H
#define DEVICE_CPU_CPU_GEMM_H

#include <string.h>

#include "device/cpu/cpu_kernel.h"

enum {
    GEMM_PANELS = 2,                      /* number of panels of a block */
    GEMM_WIDTH = GEMM_PANELS * PACK_ROWS, /* number of weight rows of a block */
};

/* One pass of a block: multiplies n_unit units of k of its weights by n_row
 * rows of activations. The GEMM_WIDTH sums of row j, to[j], become from[j] (0
 * if `from` is NULL) plus the products. */
struct gemm_pass {
    const void *weight; /* unpacked units of the block's first panel */
    size_t stride;      /* distance in bytes to those of the second panel */
    const void *act;    /* rows of activations, arranged for the pass */
    size_t act_step;    /* distance in bytes from `tok` rows to the next `tok`
                           rows */
    /* [n_row] the sums before the pass; NULL for 0. Equal to `to` unless
     * cpu_gemm.gathered. */
    float *const *from;
    float *const *to;
    float *const *out; /* [n_row] destinations of the last pass, for
                          prefetching */
    int64_t n_row, n_unit;
    int64_t index, count; /* of the pass: its index, and the number of passes */
};

/* The GEMM functions of one weight format in an instruction set. */
struct cpu_gemm {
    int tok;      /* number of rows of activations multiplied together */
    int min_rows; /* with fewer rows, panel calls are used */
    int pass;     /* maximum number of units of k in a pass */
    /* Returns the size in bytes of an unpacked unit of one panel; a multiple of
     * 64. */
    size_t (*weight_bytes)(void);
    /* Returns the size in bytes of one unit of `tok` arranged rows of
     * activations; a multiple of 4. */
    size_t (*act_bytes)(void);
    /* Unpacks units first .. first + n - 1 of a packed panel to dst. A unit is
     * a range of k, see the top. */
    void (*unpack)(void *dst, const struct pack *p, const uint8_t *panel,
                   int64_t first, int64_t n);
    /* Arranges all units of n rows of activations x[], 1 <= n <= tok. If n <
     * tok, the other rows are copies of the first one. */
    void (*arrange)(void *dst, const struct pack *p, const void *const *x,
                    int n);
    void (*run)(const struct gemm_pass *p);
    /* True if sums are kept contiguous in gemm_work.sum between passes, and
     * only the last pass writes them to their destination. This pays because
     * the rows of a result are a page or more apart, so that they compete for a
     * few sets of the cache in every pass. If true, `from`, `to` and `out` have
     * n_row entries, rounded up to a multiple of `tok`. */
    bool gathered;
    /* A thread calls `begin` before its first `run` of an op, and `end` after
     * the last. NULL if there is nothing to do. */
    void (*begin)(const struct pack *p);
    void (*end)(void);
};

static inline int64_t gemm_chunk_units(const struct pack *p,
                                       const struct pack_chunk *c)
{
    if (p->rule->tile_values == 1) /* float formats: segments */
        return (c->k + c->n - 1) / Q8_CHUNK - c->k / Q8_CHUNK + 1;
    return p->rule->sup == PACK_SUP_NONE ? c->n / 32 : 1;
}

/* Returns the number of units of k that a panel has on this device, over all
 * ranks. */
static inline int64_t gemm_units(const struct pack *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_chunk; i++)
        n += gemm_chunk_units(p, &p->chunk[i]);
    return n;
}

/* The unit of float weights, a segment of k: values first .. first + n - 1 of a
 * chunk (quant/pack.h). */
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

/* Sets the GEMM_WIDTH accumulators of n rows to 0. */
static inline void gemm_clear(float *const *acc, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        memset(acc[j], 0, GEMM_WIDTH * sizeof(float));
}

/* ---- the state of one thread --------------------------------------------- */

struct gemm_work {
    const struct cpu_gemm *gemm;
    const struct pack *pack;
    size_t unit_bytes;     /* size of an unpacked unit of a panel, in bytes */
    size_t act_bytes;      /* size of an arranged unit of tok rows, in bytes */
    unsigned char *weight; /* unpacked weights of one pass of a block */
    unsigned char *act;    /* arranged activations */
    /* [n_row of gemm_work_init] rows of activations, set by the caller of
     * gemm_arrange: struct q8_block, or float if weights are float. */
    const void **x;
    float **acc; /* [n_row] accumulators of gemm_add, set by its caller */
    float **sum; /* [n_row] sums between passes, if `gathered` */
};

/* Sets up *g for at most n_row rows of activations, with its arrays in `memory`
 * (64-aligned). Returns the size in bytes that `memory` must have. If `memory`
 * is NULL, only returns the size. */
size_t gemm_work_init(struct gemm_work *g, const struct cpu_gemm *gemm,
                      const struct pack *pack, int64_t n_row, void *memory);
/* A thread calls gemm_begin() before its first gemm_add() of an op, and
 * gemm_end() after the last. */
void gemm_begin(const struct gemm_work *g);
void gemm_end(const struct gemm_work *g);
/* Arranges the rows g->x[0 .. n_row - 1] of activations, in g->act. */
void gemm_arrange(struct gemm_work *g, int64_t n_row);
/* Multiplies the part of k that `rank` owns of a block by the activations in
 * g->act and adds the products to g->acc[0 .. n_row - 1]. `panel` is the first
 * of the block's n_panel packed panels, 1 or 2. If `fresh`, the accumulators
 * are taken as 0, whatever they hold. */
void gemm_add(const struct gemm_work *g, const uint8_t *panel, int n_panel,
              int32_t rank, int64_t n_row, bool fresh);

#endif
