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
    /* number of packed panels that a GEMM multiplies together, called a
     * block */
    GEMM_PANELS = 2,
    /* number of weight rows in a block of GEMM_PANELS panels */
    GEMM_WIDTH = GEMM_PANELS * PACK_ROWS,
};

/* One pass of a GEMM: multiplies n_unit units (ranges of k) of a block of two
 * panels by n_row rows of activations. to[j] points to the GEMM_WIDTH sums of
 * activation row j, one per weight row. They become the sums at from[j] plus
 * the products; if `from` is NULL, only the products. */
struct gemm_pass {
    /* unpacked weights of the first of the block's two panels, for the n_unit
     * units (ranges of k) of this pass */
    const void *weight;
    /* distance in bytes from the unpacked weights of the block's first panel to
     * those of its second */
    size_t stride;
    /* rows of activations, arranged in the order in which the GEMM reads them,
     * from the first unit (range of k) of this pass */
    const void *act;
    /* Activations are arranged in groups of cpu_gemm.tok rows. This is the
     * distance in bytes from one group to the next. */
    size_t act_step;
    /* [n_row]: for each row of activations, its sums before this pass; NULL if
     * they are 0. Differs from `to` only if cpu_gemm.gathered. */
    float *const *from;
    float *const *to;
    /* [n_row]: where the last pass will write the sums of each row of
     * activations, so that earlier passes can prefetch it */
    float *const *out;
    int64_t n_row, n_unit;
    /* index of this pass, and number of passes over the rank's part of k */
    int64_t index, count;
};

/* The GEMM functions of one weight format in an instruction set. */
struct cpu_gemm {
    /* number of rows of activations that the kernel multiplies together */
    int tok;
    /* with fewer rows of activations than this, panel calls are faster and are
     * used instead */
    int min_rows;
    int pass; /* maximum number of units (ranges of k) in a pass */
    /* Returns the size in bytes of the unpacked weights of one panel and one
     * unit (a range of k that is summed as integers); a multiple of 64. */
    size_t (*weight_bytes)(void);
    /* Returns the size in bytes of `tok` arranged rows of activations for one
     * unit (a range of k that is summed as integers); a multiple of 4. */
    size_t (*act_bytes)(void);
    /* Unpacks units first .. first + n - 1 (ranges of k) of the packed panel
     * `panel` to dst. */
    void (*unpack)(void *dst, const struct pack *p, const uint8_t *panel,
                   int64_t first, int64_t n);
    /* Arranges n rows of activations x[], 1 <= n <= tok, in dst, over all k
     * that the device has. If n < tok, the remaining rows of dst are copies of
     * row 0. */
    void (*arrange)(void *dst, const struct pack *p, const void *const *x,
                    int n);
    void (*run)(const struct gemm_pass *p);
    /* True if the sums between passes are kept contiguous in gemm_work.sum, and
     * only the last pass writes to the result. This pays because the rows of a
     * result are a page or more apart, so that they would compete for a few
     * sets of the cache in every pass. If true, gemm_pass.from, .to and .out
     * have n_row entries, rounded up to a multiple of `tok`. */
    bool gathered;
    /* Functions that prepare the thread's processor state for `run`, such as
     * tile registers, and reset it. A thread calls `begin` before its first
     * `run` of a kernel call, and `end` after its last. NULL if there is
     * nothing to do. */
    void (*begin)(const struct pack *p);
    void (*end)(void);
};

static inline int64_t gemm_chunk_units(const struct pack *p,
                                       const struct pack_chunk *c)
{
    /* a unit of float weights is a segment that ends at a multiple of 256 of
     * the whole row */
    if (p->rule->tile_values == 1)
        return (c->k + c->n - 1) / Q8_CHUNK - c->k / Q8_CHUNK + 1;
    return p->rule->sup == PACK_SUP_NONE ? c->n / 32 : 1;
}

/* Returns into how many units (ranges of k that are summed separately) the k
 * that this device has of a weight row is divided. */
static inline int64_t gemm_units(const struct pack *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_chunk; i++)
        n += gemm_chunk_units(p, &p->chunk[i]);
    return n;
}

/* A range of k of float weights that is summed separately, at most 256 values:
 * values first .. first + n - 1 of a chunk of a packed panel (quant/pack.h). */
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

/* Sets the accumulators acc[0 .. n - 1] to 0. Each row of activations has
 * GEMM_WIDTH, one per weight row of a block. */
static inline void gemm_clear(float *const *acc, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        memset(acc[j], 0, GEMM_WIDTH * sizeof(float));
}

/* ---- the GEMM state of one thread ---------------------------------------- */

struct gemm_work {
    const struct cpu_gemm *gemm;
    const struct pack *pack;
    /* size in bytes of the unpacked weights of one panel and one unit (range of
     * k) */
    size_t unit_bytes;
    /* size in bytes of `tok` arranged rows of activations for one unit (range
     * of k) */
    size_t act_bytes;
    /* unpacked weights of a block of two panels, for one pass */
    unsigned char *weight;
    /* rows of activations, arranged in the order in which the GEMM reads
     * them */
    unsigned char *act;
    /* [n_row of gemm_work_init] pointers to the rows of activations that
     * gemm_arrange is to arrange; its caller sets them. A row is struct
     * q8_block[], or float[] if the weights are floats. */
    const void **x;
    /* [n_row] pointers to the accumulators to which gemm_add adds; its caller
     * sets them */
    float **acc;
    /* [n_row] pointers to sums between passes; used only if
     * cpu_gemm.gathered */
    float **sum;
};

/* Initializes *g for at most n_row rows of activations, with its arrays in
 * `memory`, which must be 64-aligned. Returns the size in bytes that `memory`
 * must have. If `memory` is NULL, only returns the size. */
size_t gemm_work_init(struct gemm_work *g, const struct cpu_gemm *gemm,
                      const struct pack *pack, int64_t n_row, void *memory);
/* A thread calls gemm_begin() before its first gemm_add() in a kernel call, and
 * gemm_end() after its last, because some instruction sets must set up
 * registers. */
void gemm_begin(const struct gemm_work *g);
void gemm_end(const struct gemm_work *g);
/* Copies the rows of activations g->x[0 .. n_row - 1] to g->act, arranged in
 * the order in which the GEMM reads them. */
void gemm_arrange(struct gemm_work *g, int64_t n_row);
/* Multiplies a block of n_panel packed panels, 1 or 2, from `panel`, by the
 * n_row rows of activations in g->act, over the k that `rank` owns. Adds the
 * products to g->acc[0 .. n_row - 1]. If `fresh`, the accumulators are taken as
 * 0, whatever they hold. */
void gemm_add(const struct gemm_work *g, const uint8_t *panel, int n_panel,
              int32_t rank, int64_t n_row, bool fresh);

#endif
