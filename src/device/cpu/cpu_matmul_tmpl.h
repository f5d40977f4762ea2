/* Slices with vectors: the text of the AVX2 and AVX-512 families. Included once
 * by each; a vector lane is a weight row, so the steps are those of
 * cpu_slice_generic for W rows at a time and the bits are its bits.
 *
 * The includer defines, for its instruction set:
 *
 *   W, vi, vu, vf      lanes a vector; vectors of int32, uint32, float
 *   SLICE_FLOAT_TOK    rows of activations whose accumulators fit registers
 *   WIDE_UNSIGNED      v_dot takes codes to 255; else wide ones are signed
 *   v_set, v_setf      one value in all lanes
 *   v_fma              a * b + c, rounded once
 *   v_int_f            int32 to float
 *   v_f16              W f16 in memory to float
 *   v_u16 v_u8 v_s8    W integers in memory to int32
 *   v_table            16 bytes in memory for v_lookup
 *   v_lookup           every byte c < 16 replaced by table[c]
 *   v_pairs            for each lane, the dot product of two int16 pairs
 *   v_dot              acc + for each lane the dot product of 4 n codes with
 *                      4 n bytes q, |q| <= 127; codes <= max */
#include <stdbool.h>
#include <string.h>

#include "device/cpu/cpu_matmul.h"

#define TMPL static inline __attribute__((always_inline))

enum {
    HALVES = PACK_ROWS / W,
    /* Hardware streams stop at pages; a page ahead of the tile in work we fetch
     * ourselves. Measured on one core of a server with AVX-512: 4-bit formats
     * read 30 % more a second than without, 10 % more than at a quarter. */
    AHEAD = 4096,
};

TMPL vu load(const void *p)
{
    vu v;

    memcpy(&v, p, sizeof(v));
    return v;
}

TMPL int32_t load_dword(const void *p)
{
    int32_t x;

    memcpy(&x, p, sizeof(x));
    return x;
}

/* Fetches n bytes AHEAD of p, which lies in the slice's panel; what would be
 * beyond it, from the panel to come. */
TMPL void fetch(const struct cpu_slice *s, const uint8_t *p, int n)
{
    const uint8_t *end = s->panel + s->pack->panel_bytes;

    p = end - p > AHEAD ? p + AHEAD : s->next + (AHEAD - (end - p));
    for (int i = 0; i < n; i += 64)
        __builtin_prefetch(p + i);
}

/* ---- quantized ----------------------------------------------------------- */

/* What the compiler knows of a format; the same as its pack_rule. */
struct shape {
    int low_bits, high_bits;
    int bias;
    bool table;
    enum pack_sub sub;
    enum pack_sup sup;
};

/* The `bits` of every byte that start at bit `from`, moved to bit `to`. */
TMPL vu bits_moved(vu v, int bits, int from, int to)
{
    uint32_t mask = ((1u << bits) - 1) * 0x01010101u << to;

    return (to > from ? v << (to - from) : v >> (from - to)) & mask;
}

/* Dword i of the `bits`-wide plane, i = 0..7 in order of k, at bit `to`. */
TMPL vu plane_dword(const uint8_t *plane, int bits, int i, int to)
{
    if (bits == 8)
        return load(plane + 64 * i);
    return bits_moved(load(plane + 64 * (i % bits)), bits, i / bits * bits, to);
}

/* Codes of formats with 8 bits or a table: signed, or unsigned by a bias of
 * 128; which one v_dot wants. */
TMPL bool is_wide(struct shape f)
{
    return f.low_bits == 8 || f.table;
}

TMPL int bias_of(struct shape f)
{
    return is_wide(f) ? (WIDE_UNSIGNED ? 128 : 0) : f.bias;
}

TMPL void unpack(vu code[8], const uint8_t *low, const uint8_t *high, vu table,
                 struct shape f)
{
    const vu flip = (vu)v_set((int32_t)0x80808080u);

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        code[i] = plane_dword(low, f.low_bits, i, 0);
        if (f.high_bits > 0)
            code[i] |= plane_dword(high, f.high_bits, i, f.low_bits);
        if (f.table)
            code[i] = v_lookup(table, code[i]);
        if (f.table ? WIDE_UNSIGNED : f.low_bits == 8 && !WIDE_UNSIGNED)
            code[i] ^= flip;
    }
}

/* Two int16 in every lane. */
TMPL vi pair(vi lo, vi hi)
{
    return (vi)(((vu)hi << 16) | ((vu)lo & 0xffff));
}

/* 2^(e-128), bits by hand; e = 255 is NaN, e < 2 are subnormal. */
TMPL vf e8m0_half(vi e)
{
    vi small = e < 2, nan = e == 255; /* masks */
    vi bits = ((e + 1) << 21 & small) | ((e - 1) << 23 & ~small);

    return (vf)((v_set(0x7fc00000) & nan) | (bits & ~nan));
}

struct scales {
    vf d, dmin;
    vi s[2], m; /* m: the pair (M0, M1) */
};

/* Rows W * h and on. */
TMPL void scales_read(struct scales *o, const uint8_t *sup, const uint8_t *tile,
                      int h, struct shape f)
{
    const uint8_t *b = tile + W * h;
    vi u, v;

    if (f.sup != PACK_SUP_NONE)
        o->d = v_f16(sup + 2 * W * h);
    if (f.sup == PACK_SUP_D_DMIN)
        o->dmin = -v_f16(sup + 2 * PACK_ROWS + 2 * W * h);
    switch (f.sub) {
    case PACK_SUB_NONE:
        break;
    case PACK_SUB_F16:
        o->d = v_f16(tile + 2 * W * h);
        break;
    case PACK_SUB_F16_MIN:
        o->d = v_f16(tile + 2 * W * h);
        o->dmin = v_f16(tile + 2 * PACK_ROWS + 2 * W * h);
        o->m = v_set(0x00010001);
        break;
    case PACK_SUB_E8M0:
        o->d = e8m0_half(v_u8(b));
        break;
    case PACK_SUB_S8:
        o->s[0] = v_s8(b);
        break;
    case PACK_SUB_S8X2:
        o->s[0] = v_s8(b);
        o->s[1] = v_s8(b + PACK_ROWS);
        break;
    case PACK_SUB_U8_MIN:
        o->s[0] = v_u8(b);
        u = v_u8(b + PACK_ROWS);
        o->m = pair(u, u);
        break;
    case PACK_SUB_U8X2_MIN:
        u = v_u8(b);
        v = v_u8(b + PACK_ROWS);
        o->s[0] = u & 15;
        o->s[1] = v & 15;
        o->m = pair(u >> 4, v >> 4);
        break;
    }
}

TMPL bool has_min(struct shape f)
{
    return f.sub == PACK_SUB_F16_MIN || f.sub == PACK_SUB_U8_MIN ||
           f.sub == PACK_SUB_U8X2_MIN;
}

TMPL bool has_halves(struct shape f)
{
    return f.sub == PACK_SUB_S8X2 || f.sub == PACK_SUB_U8X2_MIN;
}

TMPL bool has_scale(struct shape f)
{
    return has_halves(f) || f.sub == PACK_SUB_S8 || f.sub == PACK_SUB_U8_MIN;
}

/* isum of the tile against one block. With L(c) = c - B the sum of L q is the
 * sum of c q less B times the sum of q, which the block carries. `bias` is the
 * pair -B (S0, S1), or -B (1, 1) where both halves have one scale. */
TMPL vi tile_dot(const vu code[8], const struct scales *w, vi bias,
                 const struct q8_block *x, struct shape f)
{
    int max = is_wide(f) ? 255 : (1 << (f.low_bits + f.high_bits)) - 1;
    vi shift = v_set(0);
    vi isum;

    if (bias_of(f) != 0)
        shift = v_pairs(v_set(load_dword(x->sum)), bias);
    if (has_halves(f)) {
        isum = v_dot(v_set(0), code, x->q, 4, max) * w->s[0];
        isum += v_dot(v_set(0), code + 4, x->q + 16, 4, max) * w->s[1];
        return isum + shift;
    }
    isum = v_dot(shift, code, x->q, 8, max);
    if (has_scale(f))
        isum *= w->s[0];
    return isum;
}

/* Rows W * h and on of one tile against a block of each row of activations. */
TMPL void tile_half(const struct cpu_slice *s, const uint8_t *sup,
                    const uint8_t *tile, int64_t block, int h, vu table,
                    struct shape f)
{
    const uint8_t *low = tile + s->pack->rule->sub_bytes + 4 * W * h;
    struct scales w = {0};
    vu code[8];
    vi bias;

    unpack(code, low, low + 64 * f.low_bits, table, f);
    scales_read(&w, sup, tile, h, f);
    if (has_halves(f))
        bias = pair(w.s[0] * -bias_of(f), w.s[1] * -bias_of(f));
    else
        bias = pair(v_set(-bias_of(f)), v_set(-bias_of(f)));
    for (int j = 0; j < s->n_tok; j++) {
        const struct q8_block *x = (const struct q8_block *)s->x[j] + block;
        float *at = cpu_slice_acc(s, j) + W * h;
        vf d = v_setf(x->d);
        vf acc;

        memcpy(&acc, at, sizeof(acc));
        acc = v_fma(w.d * d, v_int_f(tile_dot(code, &w, bias, x, f)), acc);
        if (has_min(f))
            acc = v_fma(w.dmin * d,
                        v_int_f(v_pairs(v_set(load_dword(x->sum)), w.m)), acc);
        memcpy(at, &acc, sizeof(acc));
    }
}

TMPL void slice_quantized(const struct cpu_slice *s, struct shape f)
{
    const struct pack_rule *rule = s->pack->rule;
    vu table = f.table ? v_table(rule->table) : (vu)v_set(0);

    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];
        const uint8_t *sup = s->panel + c->off;
        const uint8_t *tile = sup + rule->sup_bytes;

        if (c->rank != s->rank)
            continue;
        for (int64_t b = c->k_loc / 32; b < (c->k_loc + c->n) / 32; b++) {
            fetch(s, tile, rule->tile_bytes);
            for (int h = 0; h < HALVES; h++)
                tile_half(s, sup, tile, b, h, table, f);
            tile += rule->tile_bytes;
        }
    }
}

/* ---- floats -------------------------------------------------------------- */

TMPL vf float_load(const uint8_t *p, pl_format f)
{
    vf v;

    if (f == PL_F16)
        return v_f16(p);
    if (f == PL_BF16)
        return (vf)((vu)v_u16(p) << 16);
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Rows of activations first .. first+n_tok-1, their accumulators in registers:
 * n_tok <= SLICE_FLOAT_TOK is known to the compiler. */
TMPL void float_block(const struct cpu_slice *s, const struct pack_chunk *c,
                      int first, int n_tok, pl_format f)
{
    const int size = f == PL_F32 ? 4 : 2;
    const uint8_t *tile = s->panel + c->off;
    const float *x[SLICE_FLOAT_TOK];
    vf acc[SLICE_FLOAT_TOK][HALVES];

#pragma GCC unroll 8
    for (int j = 0; j < n_tok; j++) {
        x[j] = (const float *)s->x[first + j] + c->k_loc;
        memcpy(acc[j], cpu_slice_acc(s, first + j), sizeof(acc[j]));
    }
    for (int64_t k = 0; k < c->n; k++) {
        vf w[HALVES];

        if (k % 32 == 0)
            fetch(s, tile, 32 * PACK_ROWS * size);
#pragma GCC unroll 8
        for (int h = 0; h < HALVES; h++)
            w[h] = float_load(tile + h * W * size, f);
#pragma GCC unroll 8
        for (int j = 0; j < n_tok; j++) {
#pragma GCC unroll 8
            for (int h = 0; h < HALVES; h++)
                acc[j][h] = v_fma(w[h], v_setf(x[j][k]), acc[j][h]);
        }
        tile += PACK_ROWS * size;
    }
#pragma GCC unroll 8
    for (int j = 0; j < n_tok; j++)
        memcpy(cpu_slice_acc(s, first + j), acc[j], sizeof(acc[j]));
}

TMPL void slice_float(const struct cpu_slice *s, pl_format f)
{
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];
        int j = 0;

        if (c->rank != s->rank)
            continue;
        for (; j + SLICE_FLOAT_TOK <= s->n_tok; j += SLICE_FLOAT_TOK)
            float_block(s, c, j, SLICE_FLOAT_TOK, f);
        if (s->n_tok - j >= SLICE_FLOAT_TOK / 2) {
            float_block(s, c, j, SLICE_FLOAT_TOK / 2, f);
            j += SLICE_FLOAT_TOK / 2;
        }
        for (; j < s->n_tok; j++)
            float_block(s, c, j, 1, f);
    }
}

/* ---- the family ---------------------------------------------------------- */

/* format, bits low, high, bias, table, sub scales, super scales */
#define SHAPES(X)                                                              \
    X(Q8_0, 8, 0, 128, false, F16, NONE)                                       \
    X(Q4_0, 4, 0, 8, false, F16, NONE)                                         \
    X(Q4_1, 4, 0, 0, false, F16_MIN, NONE)                                     \
    X(Q5_0, 4, 1, 16, false, F16, NONE)                                        \
    X(Q5_1, 4, 1, 0, false, F16_MIN, NONE)                                     \
    X(Q2_K, 2, 0, 0, false, U8X2_MIN, D_DMIN)                                  \
    X(Q3_K, 2, 1, 4, false, S8X2, D)                                           \
    X(Q4_K, 4, 0, 0, false, U8_MIN, D_DMIN)                                    \
    X(Q5_K, 4, 1, 0, false, U8_MIN, D_DMIN)                                    \
    X(Q6_K, 4, 2, 32, false, S8X2, D)                                          \
    X(IQ4_NL, 4, 0, 0, true, F16, NONE)                                        \
    X(IQ4_XS, 4, 0, 0, true, S8, D)                                            \
    X(MXFP4, 4, 0, 0, true, E8M0, NONE)
#define FLOATS(X) X(F32) X(F16) X(BF16)

#define SLICE_Q(name, low, high, bias, table, sub, sup)                        \
    static void slice_##name(const struct cpu_slice *s)                        \
    {                                                                          \
        slice_quantized(s, (struct shape){low, high, bias, table,              \
                                          PACK_SUB_##sub, PACK_SUP_##sup});    \
    }
SHAPES(SLICE_Q)
#define SLICE_F(name)                                                          \
    static void slice_##name(const struct cpu_slice *s)                        \
    {                                                                          \
        slice_float(s, PL_##name);                                             \
    }
FLOATS(SLICE_F)

static void add(float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W) {
        vf sum = (vf)load(a + i) + (vf)load(b + i);

        memcpy(out + i, &sum, sizeof(sum));
    }
    for (; i < n; i++)
        out[i] = a[i] + b[i];
}

#define ENTRY(name, ...) [PL_##name] = slice_##name,
static const struct cpu_matmul_isa isa = {
    .packed = {SHAPES(ENTRY) FLOATS(ENTRY)},
    .plain = cpu_slice_plain_generic,
    .q8 = true,
    .add = add,
};

#include "device/cpu/cpu_matmul_family_template.h"
