/* Matrix products with weights that multiply BF16 values (graph_attr.bf16), for
 * CPUs with AVX512_BF16. Weights are 16-bit floats. A vector has, for each of
 * the 16 rows of a panel, a pair of adjacent values. Results have the bits of
 * cpu_panel_bf16_generic. */
#include "device/cpu/cpu_lanes_bf16.h"

enum { WIDE_UNSIGNED = 0 };

#include "device/cpu/cpu_unpack_tmpl.h"

enum {
    /* size in bytes of the 16 weights that a panel has for one k */
    SIZE = 2 * PACK_ROWS,
    AHEAD = 8192,
    /* number of values of each row of activations that are rounded to BF16 at a
     * time */
    RUN = 32,
    /* maximum number of rows of activations whose sums fit in registers */
    MAX_ROWS = 8,
};

/* Returns the weights of a panel's 16 rows at k and k + 1 as sixteen BF16
 * pairs. p points to the weights at k. If `both` is false, the weights at k + 1
 * count as 0. */
TMPL pairs weight_pairs(const uint8_t *p, pl_format f, bool both)
{
    const uint16_t *lower = (const uint16_t *)p;
    const uint16_t *upper = both ? lower + PACK_ROWS : lower;
    pairs w = f == PL_F16
                  ? pairs_of(lanes_from_f16(lower), lanes_from_f16(upper))
                  : pairs_of_bf16(lower, upper);

    return both ? w : pairs_and(w, 0xffff);
}

/* ---- few rows of activations (skinny GEMM) ------------------------------- */

/* Adds the products of n <= RUN values of k to sum[j], for n_tok rows j of
 * activations and a panel's 16 weight rows. `tile` points to the weights, x[j]
 * + i to the activations. n_tok is a compile-time constant, and n should be one
 * as well. */
TMPL void few_sums(const uint8_t *tile, const float *const x[MAX_ROWS],
                   int64_t i, const int n, lanes sum[MAX_ROWS], const int n_tok,
                   pl_format f)
{
    uint32_t pair[MAX_ROWS][RUN / 2];

    UNROLL
    for (int j = 0; j < n_tok; j++)
        pairs_of_row(pair[j], x[j] + i, n);
#pragma GCC unroll 4
    for (int k = 0; k < n; k += 2) {
        const pairs w = weight_pairs(tile + k * SIZE, f, k + 1 < n);

        __builtin_prefetch(tile + k * SIZE + AHEAD);
        UNROLL
        for (int j = 0; j < n_tok; j++)
            sum[j] = lanes_add_pairs(sum[j], w, pairs_set(pair[j][k / 2]));
    }
}

/* Multiplies a panel's weights in chunk *c by rows first .. first + n - 1 of
 * activations. n_tok >= n is a compile-time constant. The n_tok - n excess rows
 * repeat row `first`, and their sums are discarded. */
TMPL void few_rows(const struct cpu_panel_args *s, const struct pack_chunk *c,
                   int first, int n, const int n_tok, pl_format f)
{
    const float *x[MAX_ROWS];

    UNROLL
    for (int j = 0; j < n_tok; j++)
        x[j] = (const float *)s->x[first + (j < n ? j : 0)] + c->k_loc;
    for (int64_t k = 0, end; k < c->n; k = end) {
        lanes sum[MAX_ROWS];

        end = cpu_segment_end(c->k + k) - c->k;
        end = end < c->n ? end : c->n;
        UNROLL
        for (int j = 0; j < n_tok; j++)
            sum[j] = lanes_set(0);
        for (int64_t i = k; i < end; i += RUN) {
            const uint8_t *tile = s->panel + c->off + (size_t)(i * SIZE);

            if (end - i >= RUN)
                few_sums(tile, x, i, RUN, sum, n_tok, f);
            else
                few_sums(tile, x, i, (int)(end - i), sum, n_tok, f);
        }
        UNROLL
        for (int j = 0; j < n_tok; j++) {
            float *acc = j < n ? cpu_panel_acc(s, first + j) : NULL;

            if (acc)
                lanes_store(acc, lanes_add(lanes_load(acc), sum[j]));
        }
    }
}

TMPL void panel(const struct cpu_panel_args *s, pl_format f)
{
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];

        if (c->rank != s->rank)
            continue;
        for (int j = 0, n; j < s->n_tok; j += n) {
            n = s->n_tok - j < MAX_ROWS ? s->n_tok - j : MAX_ROWS;
            if (n == 1)
                few_rows(s, c, j, n, 1, f);
            else if (n == 2)
                few_rows(s, c, j, n, 2, f);
            else if (n <= 4)
                few_rows(s, c, j, n, 4, f);
            else
                few_rows(s, c, j, n, MAX_ROWS, f);
        }
    }
}

static void panel_F16(const struct cpu_panel_args *s)
{
    panel(s, PL_F16);
}

static void panel_BF16(const struct cpu_panel_args *s)
{
    panel(s, PL_BF16);
}

/* ---- many rows of activations (GEMM) ------------------------------------- */

/* A step (cpu_gemm_segments_tmpl.h) is a pair of adjacent values. */
enum { SEGMENT_STEPS = Q8_CHUNK / 2, SEGMENT_MIN_ROWS = 17 };

TMPL vf segment_step(vf sum, vf w, const void *x)
{
    uint32_t v;

    memcpy(&v, x, sizeof v);
    return lanes_add_pairs(sum, (pairs)w, pairs_set(v));
}

#include "device/cpu/cpu_gemm_segments_tmpl.h"

TMPL void segments_unpack(uint8_t *dst, const struct pack *p,
                          const uint8_t *panel, int64_t first, int64_t n,
                          pl_format f)
{
    for (int64_t u = first; u < first + n; u++, dst += SEGMENT_WEIGHTS) {
        const struct gemm_segment s = gemm_segment_at(p, u);
        const uint8_t *src = panel + s.chunk->off + (size_t)(s.first * SIZE);

        for (int64_t k = 0; k < s.n; k += 2) {
            /* prefetches the weights of the segment after this one */
            __builtin_prefetch(src + (s.n + k) * SIZE);
            pairs_store((uint32_t *)dst + k / 2 * PACK_ROWS,
                        weight_pairs(src + k * SIZE, f, k + 1 < s.n));
        }
        for (int64_t i = (s.n + 1) / 2; i < SEGMENT_STEPS; i++)
            pairs_store((uint32_t *)dst + i * PACK_ROWS, pairs_set(0));
    }
}

static void unpack_F16(void *dst, const struct pack *p, const uint8_t *panel,
                       int64_t first, int64_t n)
{
    segments_unpack(dst, p, panel, first, n, PL_F16);
}

static void unpack_BF16(void *dst, const struct pack *p, const uint8_t *panel,
                        int64_t first, int64_t n)
{
    segments_unpack(dst, p, panel, first, n, PL_BF16);
}

static void segments_deal(void *dst, const struct pack *p, const void *const *x,
                          int n)
{
    int64_t n_unit = gemm_units(p);
    uint32_t *to = dst;

    for (int64_t u = 0; u < n_unit; u++, to += SEGMENT_STEPS * SEGMENT_TOK) {
        const struct gemm_segment s = gemm_segment_at(p, u);
        const int64_t k = s.chunk->k_loc + s.first;

        for (int t = 0; t < SEGMENT_TOK; t++) {
            const float *from = (const float *)x[t < n ? t : 0] + k;
            uint32_t pair[SEGMENT_STEPS] = {0};

            pairs_of_row(pair, from, s.n);
            for (int i = 0; i < SEGMENT_STEPS; i++)
                to[i * SEGMENT_TOK + t] = pair[i];
        }
    }
}

/* ---- test of the BF16 instruction ---------------------------------------- */

bool cpu_bf16_agrees(void)
{
    /* Products in which implementations of the instruction may differ: some
     * have sums, factors or an addend s near 2^-126, which are 0 or become 0;
     * others have sums that depend on the order of addition, or values that are
     * rounded. */
    static const struct {
        float s, a[2], b[2];
    } cases[] = {
        {0x1p-126f, {-0x1p-75f, 0}, {0x1p-75f, 0}},
        {0x1p-126f, {-0x1p-75f, 0}, {0x1p-76f, 0}},
        {0x1.000002p-126f, {0, -0x1p-75f}, {0, 0x1p-74f}},
        {0x1p-127f, {0, 0x1p-63f}, {0, 0x1p-62f}},
        {-0x1p-127f, {0, 0}, {0, 0}},
        {0, {-0x1p-100f, 0}, {0x1p-100f, 0}},
        {0x1p30f, {-0x1p15f, 1}, {0x1p15f, 1}},
        {0x1.fffffep0f, {0x1p-12f, -0x1.04p0f}, {0x1.82p-13f, 0x1.fep-23f}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t a = bf16_pair(cases[i].a[0], cases[i].a[1]);
        const uint32_t b = bf16_pair(cases[i].b[0], cases[i].b[1]);
        float got[LANES], want = bf16_pair_add(cases[i].s, a, b);

        lanes_store(got, lanes_add_pairs(lanes_set(cases[i].s), pairs_set(a),
                                         pairs_set(b)));
        for (int k = 0; k < LANES; k++)
            if (float_bits(got[k]) != float_bits(want))
                return false;
    }
    return true;
}

/* ---- tables of panel functions ------------------------------------------- */

static const struct cpu_gemm gemm_table[PL_FORMAT_COUNT] = {
    SEGMENT_ROW(F16) SEGMENT_ROW(BF16)};
static const struct cpu_jobs jobs = {
    .packed = {[PL_F16] = panel_F16, [PL_BF16] = panel_BF16},
    .add = cpu_add_generic,
};
static const struct cpu_matmul_isa isa = {&jobs, gemm_table};

#include "device/cpu/cpu_matmul_ops_template.h"

void cpu_matmul_init_avx512_bf16(struct cpu_kernels *k)
{
    init_entries(k->bf16);
}
