/* Skinny GEMM with AVX2: defines panel_quantized for cpu_matmul_tmpl.h.
 * Included by cpu_matmul_avx2.c after cpu_gemm_avx2_tmpl.h, which explains
 * folds and large levels.
 *
 * A *cell* is a pair of a panel and a row of activations. Four cells are
 * computed at a time, with their eight vectors of int16 sums in registers. They
 * are four panels and one row, so that the row is read once for all of them;
 * two panels and two rows; or one panel and four rows, so that weights are
 * unpacked once. Remaining cells are computed one by one.
 *
 * Codes are the unsigned operand here. To make the levels of a table unsigned,
 * a constant is added to them. This constant, or the bias of a format without a
 * table, is the *lift*. A fold's sum starts at minus the lift times the sum of
 * its activations. If the sum of a whole tile cannot overflow, the lift is
 * instead subtracted once from the tile's sum.
 *
 * The including file defines AHEAD, the prefetch distance for one or two rows
 * in bytes of a panel. */

/* CELLS is the number of pairs of a panel and a row of activations that are
 * computed at a time. RUN is the number of consecutive 32-value tiles that are
 * computed for such pairs before the next pairs. A chunk has at most RUN
 * tiles. */
enum { CELLS = 4, RUN = 8 };

/* Returns the lift of a format, the constant that must be subtracted from its
 * unsigned codes to give levels: the bias, or what was added to the levels of a
 * table. 0 if there is none. */
TMPL int lift_of(struct shape f)
{
    return is_large(f) ? 0 : f.table ? greatest_of(f) : f.bias;
}

/* Returns true if the lift (lift_of) is subtracted from the sum of a whole tile
 * instead of each fold's. This requires that a fold is a whole tile and that
 * its sum including the lift fits an int16. */
TMPL bool lift_comes_last(struct shape f)
{
    return lift_of(f) != 0 && !f.table && fold_of(f) == 8 &&
           16 * 127 * ((1 << (f.low_bits + f.high_bits)) - 1) <= INT16_MAX;
}

/* Returns true if the lift (lift_of) is subtracted by the start value of each
 * fold's sum. */
TMPL bool lift_comes_first(struct shape f)
{
    return lift_of(f) != 0 && !lift_comes_last(f);
}

/* ---- integer scales of a tile -------------------------------------------- */

/* The integer scales s[] and minima m[] of a tile, as bytes; index 0 is for the
 * first 16 values of the tile, 1 for the last 16. Each vector has the bytes of
 * the panel's 16 rows twice, once in each 128-bit lane. */
struct row_bytes {
    __m256i s[2], m[2];
};

TMPL __m256i sixteen(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

TMPL struct row_bytes bytes_read(const uint8_t *tile, struct shape f)
{
    const __m256i low = _mm256_set1_epi8(15);
    struct row_bytes b = {0};

    b.s[0] = sixteen(tile);
    b.s[1] = f.sub == PACK_SUB_S8 ? b.s[0] : sixteen(tile + PACK_ROWS);
    if (f.sub == PACK_SUB_U8_MIN) {
        b.m[0] = b.m[1] = b.s[1];
        b.s[1] = b.s[0];
    } else if (f.sub == PACK_SUB_U8X2_MIN) {
        for (int i = 0; i < 2; i++) {
            b.m[i] = _mm256_srli_epi16(b.s[i], 4) & low;
            b.s[i] &= low;
        }
    } else if (f.sub == PACK_SUB_ODD4X2) {
        b.s[1] = _mm256_srli_epi16(b.s[0], 4) & low;
        b.s[0] &= low;
        for (int i = 0; i < 2; i++)
            b.s[i] = _mm256_add_epi8(_mm256_add_epi8(b.s[i], b.s[i]),
                                     _mm256_set1_epi8(1));
    }
    return b;
}

/* `b` has a byte for each of the 16 weight rows. Returns, for each row of
 * vector h, its byte as an int16 pair (x, x), with the sign extended if
 * `is_signed`. */
TMPL __m256i pairs_of(__m256i b, int h, bool is_signed)
{
    /* `at` is the vector's first row; `no` is an index for which the shuffle
     * instruction writes 0 */
    const int at = W * h, no = -128;
#define ROW(r) at + r, no, at + r, no
#define TOP(r) no, at + r, no, at + r

    if (is_signed)
        return _mm256_srai_epi16(
            _mm256_shuffle_epi8(b, _mm256_setr_epi8(TOP(0), TOP(1), TOP(2),
                                                    TOP(3), TOP(4), TOP(5),
                                                    TOP(6), TOP(7))),
            8);
    return _mm256_shuffle_epi8(b, _mm256_setr_epi8(ROW(0), ROW(1), ROW(2),
                                                   ROW(3), ROW(4), ROW(5),
                                                   ROW(6), ROW(7)));
#undef ROW
#undef TOP
}

/* Returns the integer scales S of one half (16 values) of a tile as int16 pairs
 * (S, S), one for each weight row of vector h. */
TMPL __m256i scale_pairs(const struct row_bytes *b, int half, int h,
                         struct shape f)
{
    if (!has_scale(f))
        return _mm256_set1_epi16(1);
    return pairs_of(b->s[half], h,
                    f.sub == PACK_SUB_S8 || f.sub == PACK_SUB_S8X2);
}

/* ---- products of a tile -------------------------------------------------- */

/* sub_bytes() returns the size in bytes of the sub scales of a packed tile,
 * tile_bytes() that of the whole tile. struct pack_rule has both, too, but here
 * they are compile-time constants. */
TMPL int sub_bytes(struct shape f)
{
    switch (f.sub) {
    case PACK_SUB_NONE:
        return 0;
    case PACK_SUB_E8M0:
    case PACK_SUB_S8:
    case PACK_SUB_ODD4X2:
        return PACK_ROWS;
    case PACK_SUB_F16_MIN:
        return 4 * PACK_ROWS;
    default:
        return 2 * PACK_ROWS;
    }
}

TMPL int tile_bytes(struct shape f)
{
    return sub_bytes(f) + 64 * (f.low_bits + f.high_bits);
}

/* Start values of the sums of the folds of a tile, for one row of activations,
 * as int16 pairs: minus the lift times the activations of the fold. at[i] is
 * for the fold that contains dword i (values 4 i .. 4 i + 3). */
struct starts {
    int32_t at[8];
};

TMPL void starts_of(struct starts *o, const struct q8_block *x, struct shape f)
{
    const __m256i q = _mm256_loadu_si256((const __m256i *)x->q);
    __m256i sum = _mm256_setzero_si256();

    sum = _mm256_sub_epi16(
        sum, _mm256_maddubs_epi16(_mm256_set1_epi8((char)lift_of(f)), q));
    if (fold_of(f) >= 2)
        sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0xb1));
    if (fold_of(f) >= 4)
        sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0x4e));
    if (fold_of(f) == 8)
        sum = _mm256_add_epi16(sum, _mm256_permute2x128_si256(sum, sum, 1));
    _mm256_storeu_si256((__m256i *)o->at, sum);
}

/* The tile that is being multiplied: its packed weights in each panel, its
 * scales, its block of activations in each row, and the start values of the
 * sums. */
struct tiles {
    const uint8_t *tile[CELLS];
    /* [panel] address of the data to prefetch while this tile is multiplied */
    const uint8_t *ahead[CELLS];
    const struct q8_block *x[CELLS];
    struct row_bytes bytes[CELLS];
    struct starts start[CELLS];
};

/* Returns dword i (values 4 i .. 4 i + 3) of the codes of a packed tile, for
 * each weight row of vector h. */
TMPL vu code_at(const uint8_t *tile, int i, int h, vu table, struct shape f)
{
    const uint8_t *low = tile + sub_bytes(f) + 4 * W * h;

    return unpack_dword(low, low + 64 * f.low_bits, i, table, f);
}

/* Returns how far ahead of the current tile a panel is prefetched, in bytes.
 * The distance is shorter with four rows of activations. Prefetched data must
 * then stay in the cache longer, while the call's other panels and rows are
 * computed. */
TMPL int ahead_for(const int n_row, struct shape f)
{
    return n_row == CELLS ? RUN * tile_bytes(f) : AHEAD;
}

/* Prefetches the i-th eighth of the cache lines of a packed tile at `ahead`. A
 * caller does so for each dword i that it multiplies, because prefetching whole
 * tiles of four panels at once would delay the loads after it. */
TMPL void few_fetch(const uint8_t *ahead, int i, struct shape f)
{
    const int n = (tile_bytes(f) + 63) / 64;

    UNROLL
    for (int j = i * n / 8; j < (i + 1) * n / 8; j++)
        __builtin_prefetch(ahead + 64 * j);
}

/* Multiplies the fold that begins at dword `first` of the current tile, for
 * n_panel panels times n_row rows of activations. Adds the sums, times the
 * integer scales S, to isum[panel and row][vector of weight rows]. */
TMPL void few_fold(vi isum[CELLS][HALVES], const struct tiles *at, int first,
                   vu table, const int n_panel, const int n_row, struct shape f)
{
    __m256i sum[CELLS][HALVES];

    UNROLL
    for (int i = first; i < first + fold_of(f); i++) {
        UNROLL
        for (int p = 0; p < n_panel; p++) {
            __m256i c[HALVES];

            few_fetch(at->ahead[p], i, f);
            UNROLL
            for (int h = 0; h < HALVES; h++)
                c[h] = (__m256i)code_at(at->tile[p], i, h, table, f);
            UNROLL
            for (int t = 0; t < n_row; t++) {
                const __m256i v = (__m256i)dword_at(at->x[t]->q + 4 * i);
                const int cell = n_row * p + t;

                UNROLL
                for (int h = 0; h < HALVES; h++) {
                    __m256i d = _mm256_maddubs_epi16(c[h], v);

                    if (i > first)
                        d = _mm256_add_epi16(sum[cell][h], d);
                    else if (lift_comes_first(f))
                        d = _mm256_add_epi16(
                            d, (__m256i)dword_at(&at->start[t].at[i]));
                    HOLD(d);
                    sum[cell][h] = d;
                }
            }
        }
    }
    UNROLL
    for (int p = 0; p < n_panel; p++) {
        UNROLL
        for (int h = 0; h < HALVES; h++) {
            const __m256i s = scale_pairs(&at->bytes[p], first / 4, h, f);

            UNROLL
            for (int t = 0; t < n_row; t++)
                isum[n_row * p + t][h] +=
                    (vi)_mm256_madd_epi16(sum[n_row * p + t][h], s);
        }
    }
}

/* Multiplies dwords first .. first + 3 (16 values) of the current tile, for
 * n_panel panels times n_row rows of activations and formats with levels above
 * 64 (is_large). Adds the sums, times the integer scales S, to isum[panel and
 * row][vector of weight rows]. */
TMPL void few_large(vi isum[CELLS][HALVES], const struct tiles *at, int first,
                    vu table, const int n_panel, const int n_row,
                    struct shape f)
{
    __m256i s[CELLS][HALVES];

    UNROLL
    for (int p = 0; p < n_panel; p++) {
        UNROLL
        for (int h = 0; h < HALVES; h++)
            s[p][h] = scale_pairs(&at->bytes[p], first / 4, h, f);
    }
    UNROLL
    for (int i = first; i < first + 4; i++) {
        UNROLL
        for (int p = 0; p < n_panel; p++) {
            __m256i c[HALVES], size[HALVES];

            few_fetch(at->ahead[p], i, f);
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                c[h] = (__m256i)code_at(at->tile[p], i, h, table, f);
                size[h] = _mm256_abs_epi8(c[h]);
            }
            UNROLL
            for (int t = 0; t < n_row; t++) {
                const __m256i v = (__m256i)dword_at(at->x[t]->q + 4 * i);

                UNROLL
                for (int h = 0; h < HALVES; h++) {
                    __m256i d = _mm256_maddubs_epi16(size[h],
                                                     _mm256_sign_epi8(v, c[h]));
                    vi *sum = &isum[n_row * p + t][h];

                    *sum += (vi)_mm256_madd_epi16(d, s[p][h]);
                    HOLD(*sum);
                }
            }
        }
    }
}

/* For formats with lift_comes_last(): subtracts the lift times the sum of the
 * tile's activations from the sums isum[panel and row]. */
TMPL void few_lower(vi isum[CELLS][HALVES], const struct tiles *at,
                    const int n_panel, const int n_row, struct shape f)
{
    UNROLL
    for (int t = 0; t < n_row; t++) {
        const struct q8_block *x = at->x[t];
        const vi excess = v_set(lift_of(f) * (x->sum[0] + x->sum[1]));

        UNROLL
        for (int p = 0; p < n_panel; p++) {
            UNROLL
            for (int h = 0; h < HALVES; h++)
                isum[n_row * p + t][h] -= excess;
        }
    }
}

/* Multiplies n dwords, 4 or 8 (16 or 32 values), from `first` of the current
 * tile, for n_panel panels times n_row rows of activations. Adds the sums,
 * times the integer scales S, to isum[panel and row][vector of weight rows]. */
TMPL void few_products(vi isum[CELLS][HALVES], const struct tiles *at,
                       int first, int n, vu table, const int n_panel,
                       const int n_row, struct shape f)
{
    const int step = is_large(f) ? 4 : fold_of(f);

    UNROLL
    for (int i = first; i < first + n; i += step) {
        if (is_large(f))
            few_large(isum, at, i, table, n_panel, n_row, f);
        else
            few_fold(isum, at, i, table, n_panel, n_row, f);
    }
    if (lift_comes_last(f))
        few_lower(isum, at, n_panel, n_row, f);
}

TMPL void few_clear(vi isum[CELLS][HALVES], int n)
{
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int h = 0; h < HALVES; h++)
            isum[i][h] = v_set(0);
    }
}

/* ---- integer sums, scaled and added to accumulators ---------------------- */

/* Adds the integer sums `isum` of a vector of weight rows, times their float
 * scales d, to the accumulators at `acc`. */
TMPL void few_add(float *acc, vf d, vi isum)
{
    vf a = v_fma(d, v_int_f(isum), (vf)load(acc));

    memcpy(acc, &a, sizeof a);
}

/* Multiplies the current tile for n_panel panels times n_row rows of
 * activations, and adds the products to the accumulators acc[panel and row].
 * For formats whose tiles have float scales. */
TMPL void few_tile(float *const acc[CELLS], const struct tiles *at, vu table,
                   const int n_panel, const int n_row, struct shape f)
{
    const int n = has_two_d(f) ? 4 : 8;

    UNROLL
    for (int first = 0; first < 8; first += n) {
        vi isum[CELLS][HALVES];

        few_clear(isum, n_panel * n_row);
        few_products(isum, at, first, n, table, n_panel, n_row, f);
        UNROLL
        for (int p = 0; p < n_panel; p++) {
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                struct scales k = {0};

                scales_read(&k, NULL, at->tile[p], h, f);
                UNROLL
                for (int t = 0; t < n_row; t++) {
                    const struct q8_block *x = at->x[t];
                    float *a = acc[n_row * p + t] + W * h;

                    few_add(a, (first ? k.d1 : k.d) * v_setf(x->d),
                            isum[n_row * p + t][h]);
                    if (has_min(f))
                        few_add(a, k.dmin * v_setf(x->d),
                                v_set(x->sum[0] + x->sum[1]));
                }
            }
        }
    }
}

/* Computes msum[t], the sum of integer minima times sums of activations
 * (cpu_matmul.h), over n packed tiles from `tile`, for the weight rows of
 * vector h and each row t of activations. */
TMPL void few_minima(vi msum[CELLS], const uint8_t *tile,
                     const struct q8_block *const *x, int n, int h,
                     const int n_row, struct shape f)
{
    UNROLL
    for (int t = 0; t < n_row; t++)
        msum[t] = v_set(0);
    for (int i = 0; i < n; i++, tile += tile_bytes(f)) {
        const struct row_bytes b = bytes_read(tile, f);
        __m256i m = pairs_of(b.m[0], h, false);

        if (has_half_min(f))
            m = _mm256_blend_epi16(m, pairs_of(b.m[1], h, false), 0xaa);
        UNROLL
        for (int t = 0; t < n_row; t++)
            msum[t] += v_pairs(v_set(load_dword(x[t][i].sum)), (vi)m);
    }
}

/* Adds the integer sums isum of a chunk of n tiles, times the float scales, to
 * the accumulators acc[panel and row]. Also adds the sums with minima. `at`
 * points to the chunk's first tile of each panel, and sup[] to the chunk's
 * super scales in each panel. */
TMPL void few_chunk(float *const acc[CELLS], vi isum[CELLS][HALVES],
                    const struct tiles *at, const uint8_t *const sup[CELLS],
                    int n, const int n_panel, const int n_row, struct shape f)
{
    UNROLL
    for (int p = 0; p < n_panel; p++) {
        UNROLL
        for (int h = 0; h < HALVES; h++) {
            struct scales k = {0};
            vi msum[CELLS];

            if (has_min(f))
                few_minima(msum, at->tile[p], at->x, n, h, n_row, f);
            scales_read(&k, sup[p], at->tile[p], h, f);
            UNROLL
            for (int t = 0; t < n_row; t++) {
                const vf d = v_setf(at->x[t]->d);
                float *a = acc[n_row * p + t] + W * h;

                few_add(a, k.d * d, isum[n_row * p + t][h]);
                if (has_min(f))
                    few_add(a, k.dmin * d, msum[t]);
            }
        }
    }
}

/* ---- panel calls: all tiles, panels and rows ----------------------------- */

/* Multiplies tiles first .. first + n - 1 of a chunk for n_panel panels, from
 * `panel`, times n_row rows of activations, from `row`. If the format has
 * super-blocks, these tiles must be all tiles of the chunk, because they are
 * summed as integers. */
TMPL void few_run(const struct cpu_panel_args *s, const struct pack_chunk *c,
                  int64_t first, int n, int panel, int row, vu table,
                  const int n_panel, const int n_row, struct shape f)
{
    const uint8_t *sup[CELLS];
    float *acc[CELLS];
    vi isum[CELLS][HALVES];
    struct tiles at;

    UNROLL
    for (int p = 0; p < n_panel; p++) {
        sup[p] = s->panel + (size_t)(panel + p) * s->pack->panel_bytes + c->off;
        at.tile[p] = sup[p] + s->pack->rule->sup_bytes +
                     (size_t)first * (size_t)tile_bytes(f);
        UNROLL
        for (int t = 0; t < n_row; t++)
            acc[n_row * p + t] =
                cpu_panel_acc(s, row + t) + PACK_ROWS * s->n_tok * (panel + p);
    }
    UNROLL
    for (int t = 0; t < n_row; t++)
        at.x[t] =
            (const struct q8_block *)s->x[row + t] + c->k_loc / 32 + first;
    few_clear(isum, n_panel * n_row);
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int p = 0; p < n_panel; p++) {
            /* Only the pass over the call's first rows of activations
             * prefetches weights. The other rows would prefetch the same
             * data. */
            at.ahead[p] = row == 0 ? ahead_of(s, panel + p, at.tile[p],
                                              ahead_for(n_row, f))
                                   : at.tile[p];
            if (has_scale(f))
                at.bytes[p] = bytes_read(at.tile[p], f);
        }
        UNROLL
        for (int t = 0; t < n_row; t++)
            if (lift_comes_first(f))
                starts_of(&at.start[t], at.x[t], f);
        if (has_chunks(f))
            few_products(isum, &at, 0, 8, table, n_panel, n_row, f);
        else
            few_tile(acc, &at, table, n_panel, n_row, f);
        UNROLL
        for (int p = 0; p < n_panel; p++)
            at.tile[p] += tile_bytes(f);
        UNROLL
        for (int t = 0; t < n_row; t++)
            at.x[t]++;
    }
    if (!has_chunks(f))
        return;
    UNROLL
    for (int p = 0; p < n_panel; p++)
        at.tile[p] -= n * tile_bytes(f);
    UNROLL
    for (int t = 0; t < n_row; t++)
        at.x[t] -= n;
    few_chunk(acc, isum, &at, sup, n, n_panel, n_row, f);
}

/* Multiplies tiles first .. first + n - 1 of a chunk for all panels of the call
 * times n_row rows of activations, from `row`. Calls few_run() for CELLS /
 * n_row panels at a time, and for the remaining panels one by one. */
TMPL void few_panels(const struct cpu_panel_args *s, const struct pack_chunk *c,
                     int64_t first, int n, int row, vu table, const int n_row,
                     struct shape f)
{
    const int n_panel = CELLS / n_row;
    int p = 0;

    for (; p + n_panel <= s->n_panel; p += n_panel)
        few_run(s, c, first, n, p, row, table, n_panel, n_row, f);
    if (n_panel == 1)
        return;
    for (; p < s->n_panel; p++)
        for (int t = 0; t < n_row; t++)
            few_run(s, c, first, n, p, row + t, table, 1, 1, f);
}

TMPL void panel_quantized(const struct cpu_panel_args *s, struct shape f)
{
    vu table = table_of(s->pack->rule, f);

    if (f.table)
        table = (vu)_mm256_add_epi8((__m256i)table,
                                    _mm256_set1_epi8((char)lift_of(f)));
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];

        if (c->rank != s->rank)
            continue;
        for (int64_t k = 0; k < c->n / 32; k += RUN) {
            int n = (int)(c->n / 32 - k < RUN ? c->n / 32 - k : RUN);
            int t = 0;

            for (; t + 4 <= s->n_tok; t += 4)
                few_panels(s, c, k, n, t, table, 4, f);
            if (s->n_tok & 2)
                few_panels(s, c, k, n, t, table, 2, f);
            t += s->n_tok & 2;
            if (s->n_tok & 1)
                few_panels(s, c, k, n, t, table, 1, f);
        }
    }
}
