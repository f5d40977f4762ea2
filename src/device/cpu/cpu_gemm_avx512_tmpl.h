/* Many rows of activations with AVX-512 VNNI: two panels times six rows, the 12
 * sums of integers and the 12 of floats in registers. Included by
 * cpu_matmul_avx512_vnni.c.
 *
 * vpdpbusd multiplies unsigned with signed bytes. Activations are the unsigned
 * ones, q + 128; weights are *lifted* codes, c - lift. A chain of products
 * begins at -128 times the sum of its codes, which stands in the unpacked panel
 * and so costs nothing.
 *
 * Formats with super-blocks: lift is such that the products of a *fold* of 8,
 * 16 or 32 values with one scale sum up to an int16. So vpdpwssd with (S, 0)
 * multiplies them by the scale and adds them to the chunk's sum at once. What
 * the lift took off beyond the format's own bias comes back as
 * (lift - bias) S times the sum of q: two tiles by one vpdpwssd. IQ4_XS, whose
 * levels are too large, is multiplied by 32-bit integers.
 *
 * All of it is exact, so it is the sum that cpu_matmul.h defines. */

enum { TOK = 6, TILE_PASS = 16, CHUNK_PASS = 2 };

/* ---- shapes -------------------------------------------------------------- */

TMPL bool has_chunks(struct shape f)
{
    return f.sup != PACK_SUP_NONE;
}

TMPL int lift_of(struct shape f)
{
    if (f.sub == PACK_SUB_U8_MIN)
        return f.high_bits ? 16 : 8;
    return is_wide(f) ? 128 : f.bias;
}

/* (lift - bias) of formats whose lift is not their bias. */
TMPL int owed_of(struct shape f)
{
    return f.sub == PACK_SUB_U8_MIN ? lift_of(f) : 0;
}

/* Does vpdpwssd multiply by the scale? */
TMPL bool is_folded(struct shape f)
{
    return has_chunks(f) && !f.table;
}

/* Folds a tile. */
TMPL int folds_of(struct shape f)
{
    if (!is_folded(f))
        return 1;
    if (f.sub == PACK_SUB_U8_MIN)
        return f.high_bits ? 2 : 1;
    return f.low_bits + f.high_bits == 6 ? 4 : 2;
}

TMPL bool has_half_min(struct shape f)
{
    return f.sub == PACK_SUB_U8X2_MIN;
}

/* An unpacked unit of a panel: head, then tiles, all of 16 rows.
 *
 *   tiles    float d, [float m]; int32 init; int8 c[8][64]
 *   chunks   float d, [float -dmin], [int16 pairs owed S of two tiles [4]],
 *            [int16 pairs M, of two tiles [4] or of two halves [8]]; 8 tiles of
 *            int32 init [folds], int32 S [1 or 2], int8 c[8][64] */
enum { ROW16 = 64 }; /* bytes of 16 dwords */

TMPL int head_owed(struct shape f)
{
    return ROW16 * (has_min(f) ? 2 : 1);
}

TMPL int head_m(struct shape f)
{
    return head_owed(f) + (owed_of(f) ? 4 * ROW16 : 0);
}

TMPL int head_bytes(struct shape f)
{
    if (!has_chunks(f))
        return head_owed(f);
    return head_m(f) + (has_min(f) ? ROW16 * (has_half_min(f) ? 8 : 4) : 0);
}

TMPL int tile_scale(struct shape f)
{
    return ROW16 * folds_of(f);
}

TMPL int tile_codes(struct shape f)
{
    return tile_scale(f) +
           (has_chunks(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0);
}

TMPL int tile_size(struct shape f)
{
    return tile_codes(f) + 8 * ROW16;
}

TMPL int unit_size(struct shape f)
{
    return head_bytes(f) + (has_chunks(f) ? 8 : 1) * tile_size(f);
}

/* A unit of arranged activations:
 *
 *   tiles    uint32 x[8][TOK]; float d[TOK]; [float sum[TOK]]
 *   chunks   uint32 x[8][8][TOK]; float d[TOK];
 *            [int16 pairs, sums of two tiles [4][TOK] or of halves [8][TOK]] */
enum { TOK4 = 4 * TOK };

TMPL int act_d(struct shape f)
{
    return (has_chunks(f) ? 64 : 8) * TOK4;
}

TMPL int act_sums(struct shape f)
{
    return act_d(f) + TOK4;
}

TMPL int act_size(struct shape f)
{
    if (!has_min(f))
        return act_sums(f);
    if (!has_chunks(f))
        return act_sums(f) + TOK4;
    return act_sums(f) + (has_half_min(f) ? 8 : 4) * TOK4;
}

/* ---- unpacking ----------------------------------------------------------- */

TMPL void put(uint8_t *dst, vi v)
{
    _mm512_store_si512((void *)dst, (__m512i)v);
}

/* The lifted codes, what the folds' chains begin at, and scales. */
TMPL void unpack_tile(uint8_t *dst, const uint8_t *low, const struct scales *w,
                      vu table, struct shape f)
{
    const __m512i ones = _mm512_set1_epi8((char)128);
    const int n = 8 / folds_of(f);
    const int32_t scale_mask = is_folded(f) ? 0xffff : -1;
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
#pragma GCC unroll 4
    for (int i = 0; i < folds_of(f); i++) {
        __m512i sum = _mm512_setzero_si512();

#pragma GCC unroll 8
        for (int j = n * i; j < n * i + n; j++) {
            __m512i c = (__m512i)code[j];

            if (is_wide(f))
                c = _mm512_xor_si512(c, ones);
            else if (lift_of(f) != 0)
                c = _mm512_sub_epi8(c, _mm512_set1_epi8((char)lift_of(f)));
            put(dst + tile_codes(f) + ROW16 * j, (vi)c);
            sum = _mm512_dpbusd_epi32(sum, ones, c);
        }
        put(dst + ROW16 * i, -(vi)sum);
    }
    if (!has_chunks(f))
        return;
    put(dst + tile_scale(f), w->s[0] & scale_mask);
    if (has_halves(f))
        put(dst + tile_scale(f) + ROW16, w->s[1] & scale_mask);
}

/* What a chunk's head has of tile i. */
TMPL void unpack_sums(uint8_t *head, const struct scales *w, int i,
                      struct shape f)
{
    uint8_t *owed = head + head_owed(f) + ROW16 * (i / 2);
    uint8_t *m = head + head_m(f) + ROW16 * (has_half_min(f) ? i : i / 2);
    int to = i % 2 * 16;
    vi before = v_set(0);

    if (!has_min(f))
        return;
    if (has_half_min(f)) {
        put(m, w->m);
        return;
    }
    if (to)
        before = (vi)load(owed);
    put(owed, before | (vi)((vu)(w->s[0] * owed_of(f)) << to));
    before = v_set(0);
    if (to)
        before = (vi)load(m);
    put(m, before | (vi)((vu)(w->m & 0xffff) << to));
}

TMPL void gemm_unpack(uint8_t *dst, const struct pack *p, const uint8_t *panel,
                      int64_t first, int64_t n, struct shape f)
{
    const struct pack_rule *rule = p->rule;
    vu table = f.table ? v_table(rule->table) : (vu)v_set(0);

    for (int64_t u = first; u < first + n; u++, dst += unit_size(f)) {
        const uint8_t *sup =
            panel + (has_chunks(f) ? p->chunk[u].off
                                   : (size_t)u * (size_t)rule->tile_bytes);
        const uint8_t *tile = sup + rule->sup_bytes;
        int n_tile = has_chunks(f) ? p->chunk[u].n / 32 : 1;
        struct scales w = {0};

        if (has_chunks(f) && n_tile < 8)
            memset(dst, 0, (size_t)unit_size(f));
        for (int i = 0; i < n_tile; i++, tile += rule->tile_bytes) {
            scales_read(&w, sup, tile, 0, f);
            unpack_tile(dst + head_bytes(f) + i * tile_size(f),
                        tile + rule->sub_bytes, &w, table, f);
            if (has_chunks(f))
                unpack_sums(dst, &w, i, f);
            __builtin_prefetch(tile + 2048);
            __builtin_prefetch(tile + 2048 + 64);
            __builtin_prefetch(tile + 2048 + 128);
            __builtin_prefetch(tile + 2048 + 192);
        }
        put(dst, (vi)w.d);
        if (has_min(f))
            put(dst + ROW16, (vi)w.dmin);
    }
}

/* ---- activations --------------------------------------------------------- */

/* Dwords 0 .. 7 of six rows to [8][6]. */
TMPL void deal_dwords(uint8_t *dst, const __m256i x[TOK])
{
    /* Where dword i of the result comes from: of rows 0 to 3, 32 of them in two
     * vectors, and of rows 4 and 5, 16 in a third. */
#define FROM(i)   ((i) % 6 < 4 ? (i) % 6 * 8 + (i) / 6 : 0)
#define FROM45(i) ((i) % 6 < 4 ? (i) % 16 : 16 + ((i) % 6 - 4) * 8 + (i) / 6)
#define SIXTEEN(f, i)                                                          \
    f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6),          \
        f(i + 7), f(i + 8), f(i + 9), f(i + 10), f(i + 11), f(i + 12),         \
        f(i + 13), f(i + 14), f(i + 15)
    const __m512i flip = _mm512_set1_epi8((char)128);
    const __m512i x01 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[0]), x[1], 1);
    const __m512i x23 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[2]), x[3], 1);
    const __m512i x45 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[4]), x[5], 1);
#define DEAL(i)                                                                \
    do {                                                                       \
        __m512i v = _mm512_permutex2var_epi32(                                 \
            x01, (__m512i)(vi){SIXTEEN(FROM, i)}, x23);                        \
        v = _mm512_permutex2var_epi32(v, (__m512i)(vi){SIXTEEN(FROM45, i)},    \
                                      x45);                                    \
        _mm512_storeu_si512((void *)(dst + 4 * (i)),                           \
                            _mm512_xor_si512(v, flip));                        \
    } while (0)
    DEAL(0);
    DEAL(16);
    DEAL(32);
#undef DEAL
#undef SIXTEEN
#undef FROM45
#undef FROM
}

TMPL void put_dword(uint8_t *dst, int32_t v)
{
    memcpy(dst, &v, sizeof v);
}

/* Tile i of the unit. */
TMPL void arrange_tile(uint8_t *unit, const struct q8_block *const *x,
                       int64_t block, int i, int n, struct shape f)
{
    __m256i q[TOK];

#pragma GCC unroll 6
    for (int t = 0; t < TOK; t++)
        q[t] = t < n ? _mm256_loadu_si256((const __m256i *)x[t][block].q)
                     : _mm256_setzero_si256();
    deal_dwords(unit + i * 8 * TOK4, q);
    for (int t = 0; has_min(f) && t < TOK; t++) {
        int lo = t < n ? x[t][block].sum[0] : 0;
        int hi = t < n ? x[t][block].sum[1] : 0;
        uint8_t *sums = unit + act_sums(f) + 4 * t;
        int16_t half[2] = {(int16_t)lo, (int16_t)hi};
        int16_t both = (int16_t)(lo + hi);
        float sum = (float)(lo + hi);

        if (!has_chunks(f))
            memcpy(sums, &sum, sizeof sum);
        else if (has_half_min(f))
            memcpy(sums + i * TOK4, half, sizeof half);
        else
            memcpy(sums + i / 2 * TOK4 + i % 2 * 2, &both, sizeof both);
    }
}

TMPL void gemm_deal(uint8_t *dst, const struct pack *p,
                    const struct q8_block *const *x, int n, struct shape f)
{
    int64_t n_unit = gemm_units(p);

    for (int64_t u = 0; u < n_unit; u++, dst += act_size(f)) {
        int64_t block = has_chunks(f) ? p->chunk[u].k_loc / 32 : u;
        int n_tile = has_chunks(f) ? p->chunk[u].n / 32 : 1;

        if (has_chunks(f) && n_tile < 8)
            memset(dst, 0, (size_t)act_size(f));
        for (int i = 0; i < n_tile; i++)
            arrange_tile(dst, x, block + i, i, n, f);
        for (int t = 0; t < TOK; t++) {
            float d = t < n ? x[t][block].d : 0;

            memcpy(dst + act_d(f) + 4 * t, &d, sizeof d);
        }
    }
}

/* ---- products ------------------------------------------------------------ */

TMPL __m512i get(const uint8_t *p)
{
    return _mm512_load_si512((const void *)p);
}

TMPL __m512i dword_at(const uint8_t *p)
{
    return _mm512_set1_epi32(load_dword(p));
}

TMPL __m512 float_at(const uint8_t *p)
{
    return _mm512_castsi512_ps(dword_at(p));
}

/* dot[t][g] = the chain over dwords first .. first + n - 1 of a tile. */
TMPL void chain(__m512i dot[TOK][GEMM_PANELS], const uint8_t *init,
                const uint8_t *codes, const uint8_t *x, size_t stride,
                int first, int n, const int n_tok)
{
    UNROLL for (int t = 0; t < n_tok; t++)
        UNROLL for (int g = 0; g < GEMM_PANELS; g++) dot[t][g] =
            get(init + (size_t)g * stride);
    UNROLL for (int i = first; i < first + n; i++)
    {
        __m512i w[GEMM_PANELS];

        UNROLL for (int g = 0; g < GEMM_PANELS; g++) w[g] =
            get(codes + ROW16 * i + (size_t)g * stride);
        UNROLL for (int t = 0; t < n_tok; t++)
        {
            __m512i v = dword_at(x + i * TOK4 + 4 * t);

            UNROLL for (int g = 0; g < GEMM_PANELS; g++) dot[t][g] =
                _mm512_dpbusd_epi32(dot[t][g], v, w[g]);
        }
    }
}

TMPL void run_tiles(const uint8_t *w, size_t stride, const uint8_t *x,
                    float *const *at, int64_t n_unit, const int n_tok,
                    struct shape f)
{
    __m512 acc[TOK][GEMM_PANELS];

    UNROLL for (int t = 0; t < n_tok; t++)
        UNROLL for (int g = 0; g < GEMM_PANELS; g++) acc[t][g] =
            _mm512_loadu_ps(at[t] + W * g);
    for (int64_t u = 0; u < n_unit; u++) {
        __m512i dot[TOK][GEMM_PANELS];

        chain(dot, w + head_bytes(f), w + head_bytes(f) + tile_codes(f), x,
              stride, 0, 8, n_tok);
        UNROLL for (int t = 0; t < n_tok; t++)
        {
            __m512 d = float_at(x + act_d(f) + 4 * t);

            UNROLL for (int g = 0; g < GEMM_PANELS; g++)
            {
                const uint8_t *wg = w + (size_t)g * stride;

                acc[t][g] = _mm512_fmadd_ps(
                    _mm512_mul_ps(d, _mm512_castsi512_ps(get(wg))),
                    _mm512_cvtepi32_ps(dot[t][g]), acc[t][g]);
                if (has_min(f))
                    acc[t][g] = _mm512_fmadd_ps(
                        _mm512_mul_ps(d, _mm512_castsi512_ps(get(wg + ROW16))),
                        float_at(x + act_sums(f) + 4 * t), acc[t][g]);
            }
        }
        w += unit_size(f);
        x += act_size(f);
    }
    UNROLL for (int t = 0; t < n_tok; t++)
        UNROLL for (int g = 0; g < GEMM_PANELS; g++)
            _mm512_storeu_ps(at[t] + W * g, acc[t][g]);
}

/* isum of the tile i joins isum[][]. */
TMPL void add_tile(__m512i isum[TOK][GEMM_PANELS], const uint8_t *tile,
                   size_t stride, const uint8_t *x, const int n_tok,
                   struct shape f)
{
    const int n = 8 / folds_of(f);

    UNROLL for (int i = 0; i < folds_of(f); i++)
    {
        const uint8_t *scale =
            tile + tile_scale(f) + (has_halves(f) ? ROW16 * (i * n / 4) : 0);
        __m512i dot[TOK][GEMM_PANELS];

        chain(dot, tile + ROW16 * i, tile + tile_codes(f), x, stride, n * i, n,
              n_tok);
        UNROLL for (int g = 0; g < GEMM_PANELS; g++)
        {
            __m512i s = get(scale + (size_t)g * stride);

            UNROLL for (int t = 0; t < n_tok; t++) isum[t][g] =
                is_folded(f)
                    ? _mm512_dpwssd_epi32(isum[t][g], dot[t][g], s)
                    : _mm512_add_epi32(isum[t][g],
                                       _mm512_mullo_epi32(dot[t][g], s));
        }
    }
}

TMPL __m512i pairs_sum(const uint8_t *w, const uint8_t *x, int n)
{
    __m512i v = _mm512_setzero_si512();

    UNROLL for (int i = 0; i < n; i++) v =
        _mm512_dpwssd_epi32(v, dword_at(x + i * TOK4), get(w + ROW16 * i));
    return v;
}

TMPL void run_chunks(const uint8_t *w, size_t stride, const uint8_t *x,
                     float *const *at, int64_t n_unit, const int n_tok,
                     struct shape f)
{
    for (int64_t u = 0; u < n_unit; u++) {
        __m512i isum[TOK][GEMM_PANELS];

        UNROLL for (int t = 0; t < n_tok; t++)
            UNROLL for (int g = 0; g < GEMM_PANELS; g++) isum[t][g] =
                owed_of(f) ? pairs_sum(w + (size_t)g * stride + head_owed(f),
                                       x + act_sums(f) + 4 * t, 4)
                           : _mm512_setzero_si512();
#pragma GCC unroll 1
        for (int i = 0; i < 8; i++)
            add_tile(isum, w + head_bytes(f) + i * tile_size(f), stride,
                     x + i * 8 * TOK4, n_tok, f);
        UNROLL for (int t = 0; t < n_tok; t++)
        {
            __m512 d = float_at(x + act_d(f) + 4 * t);

            UNROLL for (int g = 0; g < GEMM_PANELS; g++)
            {
                const uint8_t *wg = w + (size_t)g * stride;
                __m512 acc = _mm512_loadu_ps(at[t] + W * g);

                acc = _mm512_fmadd_ps(
                    _mm512_mul_ps(d, _mm512_castsi512_ps(get(wg))),
                    _mm512_cvtepi32_ps(isum[t][g]), acc);
                if (has_min(f))
                    acc = _mm512_fmadd_ps(
                        _mm512_mul_ps(d, _mm512_castsi512_ps(get(wg + ROW16))),
                        _mm512_cvtepi32_ps(pairs_sum(wg + head_m(f),
                                                     x + act_sums(f) + 4 * t,
                                                     has_half_min(f) ? 8 : 4)),
                        acc);
                _mm512_storeu_ps(at[t] + W * g, acc);
            }
        }
        w += unit_size(f);
        x += act_size(f);
    }
}

TMPL void gemm_products(const void *w, size_t stride, const void *x,
                        float *const *acc, int n, int64_t n_unit,
                        struct shape f)
{
    float nowhere[GEMM_WIDTH] = {0};
    float *at[TOK];

    for (int t = 0; t < TOK; t++)
        at[t] = t < n ? acc[t] : nowhere;
#define RUN(n_tok)                                                             \
    do {                                                                       \
        if (has_chunks(f))                                                     \
            run_chunks(w, stride, x, at, n_unit, n_tok, f);                    \
        else                                                                   \
            run_tiles(w, stride, x, at, n_unit, n_tok, f);                     \
    } while (0)
    if (n > 4)
        RUN(6);
    else if (n > 2)
        RUN(4);
    else
        RUN(2);
#undef RUN
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
