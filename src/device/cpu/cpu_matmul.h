/* Matrix products with weights: the functions that instruction sets share, and
 * those that each instruction set supplies.
 *
 * matmul, head_matmul, expert_matmul and expert_down differ in which rows of
 * activations are multiplied by which matrix. cpu_matmul.c decides that, and
 * handles threads, blocks of tokens and the sums over ranks (rank trees). An
 * instruction set supplies only the innermost function, a *panel call*. It
 * multiplies one or a few panels of 16 weight rows (quant/pack.h) by a few rows
 * of activations, over the indices k that one rank owns. */
#ifndef DEVICE_CPU_CPU_MATMUL_H
#define DEVICE_CPU_CPU_MATMUL_H

#include "device/cpu/cpu_gemm.h"
#include "device/cpu/cpu_kernel.h"

/* maximum number of rows of activations that a panel call multiplies */
enum { CPU_PANEL_TOK = 16 };

struct cpu_panel_args {
    /* The weights of a panel call: consecutive panels of a packed matrix, or up
     * to 16 rows of a matrix that is not packed. */
    /* packed form of the matrix; NULL if it is not packed */
    const struct pack *pack;
    /* address of the call's first panel or, if the matrix is not packed, of its
     * first row */
    const uint8_t *panel;
    /* address of the weights that the next call will multiply, so that this
     * call can prefetch them */
    const uint8_t *next;
    /* Number of consecutive packed panels: 1 to cpu_jobs.panels, and n_panel *
     * n_tok is at most CPU_PANEL_TOK. For a matrix that is not packed it is
     * 1. */
    int n_panel;
    /* [n_span] for a matrix that is not packed: the intervals of k that this
     * device holds, with the rank that owns each */
    const struct rank_span *span;
    int n_span;
    /* for a matrix that is not packed: number of rows of the call, 1 .. 16 */
    int n_row;
    int64_t k; /* for a matrix that is not packed: number of values in a row */
    /* for a matrix that is not packed: format of its elements, F32, F16 or
     * BF16 */
    pl_format format;
    /* the call multiplies only the values of k that this rank owns */
    int32_t rank;
    /* The activations of a panel call: n_tok rows of float or struct q8_block.
     * Each row has all k that this device holds. */
    /* number of rows of activations, 1 .. CPU_PANEL_TOK */
    int n_tok;
    const void *const *x; /* [n_tok] pointers to the rows of activations */
    /* The accumulators of a panel call. Row j of activations has 16
     * accumulators for the 16 weight rows of panel i, at acc + 16 * (at[j] +
     * n_tok * i). */
    float *acc;
    /* [n_tok] for each row of activations, the position of its accumulators in
     * `acc`, in units of 16 floats; all positions differ */
    const int32_t *at;
};

/* Adds the products of the call to its accumulators. The following defines the
 * operations for one accumulator, that is, one weight row and one row of
 * activations.
 *
 * Quantized weights: for each tile of 32 values, in order of k. L(c) is the
 * level of code c, S and M are the tile's integer scales and minima, and d_w
 * and dmin its float scales (quant/pack.h). d, q and sum are those of the block
 * of activations (quant/q8.h).
 *
 *     isum = S0 * sum of L(c) q over the first 16 values
 *          + S1 * the same over the last 16          (exact in int32)
 *     acc  = fmaf(d_w * d, (float)isum, acc)
 *     msum = M0 * sum[0] + M1 * sum[1]               (formats with minima)
 *     acc  = fmaf(-(dmin * d), (float)msum, acc)
 *
 * NVFP4 has one d_w per half of a tile; the first half is added to acc before
 * the second:
 *
 *     acc  = fmaf(d_w[0] * d, (float)sum of L(c) q over the first 16, acc)
 *     acc  = fmaf(d_w[1] * d, (float)the same over the last 16, acc)
 *
 * Formats with super-blocks: isum and msum are summed over the tiles of a
 * chunk, exact in int32 (at most 256 * 128 * 32 * 127), and are added to acc
 * once, after the chunk. The chunk's activation blocks share one d.
 *
 * Float weights: k is divided into segments that end at multiples of 256,
 * counted from the start of the whole row. In each segment s = fmaf(w, x, s)
 * for ascending k, starting with s = 0; then acc = acc + s.
 *
 * 16-bit weights with attr.bf16: w and x are rounded to BF16. The values of a
 * segment form pairs, and s = bf16_pair_add(s, w, x) of base/bf16.h for each
 * pair; an odd last value is paired with 0.
 *
 * The kernel set `reference` reads float activations with weights of every
 * format. It sums the products of a call in double and adds the sum to acc
 * once. */
typedef void cpu_panel_fn(const struct cpu_panel_args *s);

/* Float weights are summed in segments, ranges of k that end at multiples of
 * 256. Returns the end of the segment that contains index k of a whole row.
 * Chunks of formats with super-blocks end at the same indices. */
static inline int64_t cpu_segment_end(int64_t k)
{
    return (k / Q8_CHUNK + 1) * Q8_CHUNK;
}

static inline float *cpu_panel_acc(const struct cpu_panel_args *s, int j)
{
    return s->acc + PACK_ROWS * (int64_t)s->at[j];
}

struct cpu_jobs {
    /* by weight format: the panel function for packed weights */
    cpu_panel_fn *packed[PL_FORMAT_COUNT];
    cpu_panel_fn *plain;
    /* The panel functions read activations as struct q8_block if the weights
     * are quantized. If false, they always read floats. */
    bool q8;
    /* maximum number of packed panels that a panel call multiplies */
    int panels;
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

struct cpu_matmul_isa {
    const struct cpu_jobs *jobs;
    /* [PL_FORMAT_COUNT]: the GEMM functions for each weight format; NULL if the
     * instruction set has no GEMM. */
    const struct cpu_gemm *gemm;
};

/* The kernels of the four matrix products with weights. Each is called with the
 * panel functions and the GEMMs of an instruction set. */
void cpu_matmul(const struct cpu_call *c, const struct cpu_matmul_isa *isa);
void cpu_head_matmul(const struct cpu_call *c,
                     const struct cpu_matmul_isa *isa);
void cpu_expert_matmul(const struct cpu_call *c,
                       const struct cpu_matmul_isa *isa);
void cpu_expert_down(const struct cpu_call *c,
                     const struct cpu_matmul_isa *isa);

size_t cpu_matmul_scratch(const struct cpu_call *c,
                          const struct cpu_matmul_isa *isa);
size_t cpu_head_matmul_scratch(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa);
size_t cpu_expert_matmul_scratch(const struct cpu_call *c,
                                 const struct cpu_matmul_isa *isa);
size_t cpu_expert_down_scratch(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa);

/* Panel functions in plain C, which kernel sets without a faster one use. */
/* panel function in plain C for packed weights of any format */
void cpu_panel_generic(const struct cpu_panel_args *s);
/* panel function in plain C for weights of any format that are not packed */
void cpu_panel_plain_generic(const struct cpu_panel_args *s);
/* panel function in plain C that multiplies BF16 values, for 16-bit weights
 * with attr.bf16 */
void cpu_panel_bf16_generic(const struct cpu_panel_args *s);
void cpu_add_generic(float *out, const float *a, const float *b, int64_t n);

/* An encoder quantizes n activations to blocks of 32 8-bit values; `share`
 * values share a scale. cpu_quantize() runs KERNEL_quantize with an encoder: it
 * encodes in[0] to out, each block with its own scale. If the call has spans of
 * the last dimension, the values of a span between two multiples of 256 share a
 * scale instead. */
typedef void cpu_encode_fn(struct q8_block *dst, const float *src, int64_t n,
                           int64_t share);
void cpu_quantize(const struct cpu_call *c, cpu_encode_fn *encode);

/* The panel functions of kernel sets that files of other sets use too. Those of
 * `amx` are the functions of `avx512_vnni`, but called with up to four
 * panels. */
extern const struct cpu_jobs cpu_jobs_generic, cpu_jobs_avx2, cpu_jobs_avx_vnni,
    cpu_jobs_avx512_vnni, cpu_jobs_amx;

/* Runs KERNEL_gather_rows: copies rows of a table that are selected by index.
 * Every kernel set uses this function. */
void cpu_gather_rows(const struct cpu_call *c);

/* Each function writes the matrix products of one kernel set into the kernel
 * table *k. Called by cpu_dispatch.c. */
void cpu_matmul_init_reference(struct cpu_kernels *k);
void cpu_matmul_init_generic(struct cpu_kernels *k);
void cpu_matmul_init_avx2(struct cpu_kernels *k);
void cpu_matmul_init_avx_vnni(struct cpu_kernels *k);
void cpu_matmul_init_avx512_vnni(struct cpu_kernels *k);
void cpu_matmul_init_avx512_bf16(struct cpu_kernels *k);
/* Returns true if the processor's BF16 instruction gives the same bits as
 * base/bf16.h in the cases where implementations may differ. The processor must
 * have the instruction. */
bool cpu_bf16_agrees(void);
void cpu_matmul_init_bf16_generic(struct cpu_kernels *k);
void cpu_matmul_init_amx(struct cpu_kernels *k);
void cpu_matmul_init_neon(struct cpu_kernels *k);
void cpu_matmul_init_dotprod(struct cpu_kernels *k);
void cpu_matmul_init_i8mm(struct cpu_kernels *k);

#endif
