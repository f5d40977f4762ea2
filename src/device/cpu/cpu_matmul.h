/* Contractions with weights: the parts that instruction sets share, and those
 * that each supplies.
 *
 * matmul, head_matmul, expert_matmul and expert_down differ in which rows of
 * activations are multiplied by which matrix. cpu_matmul.c decides that, and
 * handles threads, token blocks and rank trees. An instruction set supplies
 * only the innermost part, a *panel call*: one rank's k of a panel of 16 weight
 * rows (quant/pack.h), or of a few panels, times a few rows of activations. */
#ifndef DEVICE_CPU_CPU_MATMUL_H
#define DEVICE_CPU_CPU_MATMUL_H

#include "device/cpu/cpu_gemm.h"
#include "device/cpu/cpu_kernel.h"

enum { CPU_PANEL_TOK = 16 }; /* most rows of activations a panel call takes */

struct cpu_panel_args {
    /* The weights: panels of a packed matrix, or rows of a plain one. */
    const struct pack *pack; /* NULL: plain */
    const uint8_t *panel;    /* 16 packed rows each, or n_row plain ones */
    const uint8_t *next;     /* the panels read next, to prefetch */
    /* Packed: 1 .. jobs->panels consecutive panels, with n_panel * n_tok at
     * most CPU_PANEL_TOK. Plain: 1. */
    int n_panel;
    const struct rank_span *span; /* plain: which rank owns which k */
    int n_span;
    int n_row;        /* plain: 1 .. 16 */
    int64_t k;        /* plain: values a row */
    pl_format format; /* plain: F32, F16 or BF16 */
    int32_t rank;     /* only this rank's k is computed */
    /* The activations: n_tok rows of the local k, float or struct q8_block. */
    int n_tok;            /* 1 .. CPU_PANEL_TOK */
    const void *const *x; /* [n_tok] */
    /* Row j of the activations has 16 accumulators, one per weight row, at acc
     * + 16 * at[j]; all at[] differ. Those of panel i lie 16 * n_tok * i
     * further on. */
    float *acc;
    const int32_t *at; /* [n_tok] */
};

/* Adds the products of the call to its accumulators. The definition, for one
 * accumulator, one weight row and one row of activations:
 *
 * Quantized weights: tile by tile of 32 values, k ascending, with the tile's
 * pack_scales and the activation block's d, q and sum:
 *
 *     isum = S0 * sum of L(c) q over the first 16 values
 *          + S1 * the same over the last 16          (exact in int32)
 *     acc  = fmaf(d_w * d, (float)isum, acc)
 *     msum = M0 * sum[0] + M1 * sum[1]               (formats with minima)
 *     acc  = fmaf(-(dmin * d), (float)msum, acc)
 *
 * NVFP4 has one d_w per half of a tile; the halves are added to acc in turn:
 *
 *     acc  = fmaf(d_w[0] * d, (float)sum of L(c) q over the first 16, acc)
 *     acc  = fmaf(d_w[1] * d, (float)the same over the last 16, acc)
 *
 * Formats with super-blocks: isum and msum run over the tiles of a chunk, exact
 * in int32 (at most 256 * 128 * 32 * 127), and are added to acc once, after the
 * chunk. Its activation blocks share one d.
 *
 * Float weights: k in segments that end at multiples of 256 of the whole row;
 * in each s = fmaf(w, x, s), k ascending, from 0; then acc = acc + s.
 *
 * With attr.bf16, weights of 16 bits: w and x are rounded to BF16. A segment's
 * values are taken in pairs from its first one on, s = bf16_pair_add(s, w, x)
 * of base/bf16.h; an odd last value is paired with 0.
 *
 * The kernel set `reference` reads floats in every format and adds the double
 * sum of the call at once. */
typedef void cpu_panel_fn(const struct cpu_panel_args *s);

/* Returns the end of the segment that contains index k of a whole row. Segments
 * end where chunks do. */
static inline int64_t cpu_segment_end(int64_t k)
{
    return (k / Q8_CHUNK + 1) * Q8_CHUNK;
}

static inline float *cpu_panel_acc(const struct cpu_panel_args *s, int j)
{
    return s->acc + PACK_ROWS * (int64_t)s->at[j];
}

struct cpu_jobs {
    cpu_panel_fn *packed[PL_FORMAT_COUNT]; /* by the weight's format */
    cpu_panel_fn *plain;
    bool q8;    /* quantized formats read struct q8_block, else float */
    int panels; /* most panels that a call on packed weights takes */
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

struct cpu_matmul_isa {
    const struct cpu_jobs *jobs;
    /* [PL_FORMAT_COUNT], for GEMM; or NULL. */
    const struct cpu_gemm *gemm;
};

/* The ops, with an instruction set's panel functions. */
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

/* Panel functions in plain C, for sets without a faster one. */
void cpu_panel_generic(const struct cpu_panel_args *s);       /* any packed */
void cpu_panel_plain_generic(const struct cpu_panel_args *s); /* any plain */
void cpu_panel_bf16_generic(const struct cpu_panel_args *s);  /* attr.bf16 */
void cpu_add_generic(float *out, const float *a, const float *b, int64_t n);

/* Encodes in[0] to out in blocks of 8-bit values, with the given encoder. Each
 * block has a scale of its own; if the call has spans of the last dimension,
 * each part of a span between two multiples of 256 has one. */
typedef void cpu_encode_fn(struct q8_block *dst, const float *src, int64_t n,
                           int64_t share);
void cpu_quantize(const struct cpu_call *c, cpu_encode_fn *encode);

/* Panel functions of kernel sets, for sets built on them. `amx` has those of
 * `avx512_vnni`, but takes four panels. */
extern const struct cpu_jobs cpu_jobs_generic, cpu_jobs_avx2, cpu_jobs_avx_vnni,
    cpu_jobs_avx512_vnni, cpu_jobs_amx;

/* Gathers rows of a table by index; the same code in every kernel set. */
void cpu_gather_rows(const struct cpu_call *c);

/* Each writes its functions into the table (cpu_dispatch.c). */
void cpu_matmul_init_reference(struct cpu_kernels *k);
void cpu_matmul_init_generic(struct cpu_kernels *k);
void cpu_matmul_init_avx2(struct cpu_kernels *k);
void cpu_matmul_init_avx_vnni(struct cpu_kernels *k);
void cpu_matmul_init_avx512_vnni(struct cpu_kernels *k);
void cpu_matmul_init_avx512_bf16(struct cpu_kernels *k);
/* Returns true if the processor's BF16 instruction gives the results of
 * base/bf16.h in the cases where implementations may differ. Requires that the
 * processor has the instruction. */
bool cpu_bf16_agrees(void);
void cpu_matmul_init_bf16_generic(struct cpu_kernels *k);
void cpu_matmul_init_amx(struct cpu_kernels *k);
void cpu_matmul_init_neon(struct cpu_kernels *k);
void cpu_matmul_init_dotprod(struct cpu_kernels *k);
void cpu_matmul_init_i8mm(struct cpu_kernels *k);

#endif
