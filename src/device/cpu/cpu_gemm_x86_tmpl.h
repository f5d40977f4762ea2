/* The functions that cpu_gemm_codes_tmpl.h requires and that AVX2 and VNNI have
 * in common. Included by cpu_gemm_{avx2,vnni}_tmpl.h, which define before:
 *
 *   dots_add      acc plus the products of a dword of activations, the same in
 *                 all lanes, with a dword of codes in each lane
 *   dots          the vector type of the sums that dots_add() returns
 *   scaled_add    isum plus the sum of a fold times its scale
 *   HOLD          stops the compiler from reordering additions across this
 *                 point; or nothing */

TMPL void put_codes(uint8_t *dst, uint8_t *start, const vu code[8],
                    struct shape f)
{
    const int lift = bias_of(f) + owed_of(f);

    UNROLL
    for (int i = 0; i < 8; i += fold_of(f)) {
        vi sum = v_set(0);

        UNROLL
        for (int j = i; j < i + fold_of(f); j++) {
            vi c = (vi)((vb)code[j] - (int8_t)lift);

            put(dst + ROW16 * j, c);
            if (is_lifted(f))
                sum = dots_add(sum, v_set((int32_t)0x80808080u), c, f);
        }
        if (is_lifted(f))
            put(start + ROW16 * (i / fold_of(f)), (vi)(-(dots)sum));
    }
}

TMPL void deal_values(uint8_t *dst, const struct q8_block *const x[TOK],
                      int64_t block, struct shape f)
{
    const __m256i lift = _mm256_set1_epi8(is_lifted(f) ? (char)128 : 0);
    __m256i q[TOK];

    UNROLL
    for (int t = 0; t < TOK; t++)
        q[t] = _mm256_loadu_si256((const __m256i *)x[t][block].q) ^ lift;
    deal_dwords(dst, q);
}

/* Returns the integer scales S of a vector of weight rows, which are at p. */
TMPL vi scale_at(const uint8_t *p, struct shape f)
{
    return has_scale(f) ? get(p) : scale_form(v_set(1), f);
}

TMPL void fold_add_dots(vi isum[TOK][VECTORS], const uint8_t *codes,
                        const uint8_t *start, const uint8_t *scale, size_t step,
                        const uint8_t *x, const int n_tok, struct shape f)
{
    vi dot[TOK][VECTORS];

    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            dot[t][g] = is_lifted(f) ? get(start + (size_t)g * step) : v_set(0);
    }
    UNROLL
    for (int i = 0; i < fold_of(f); i++) {
        vi c[VECTORS];

        UNROLL
        for (int g = 0; g < VECTORS; g++)
            c[g] = get(codes + ROW16 * i + (size_t)g * step);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            vi v = dword_at(x + TOK4 * i + 4 * t);

            UNROLL
            for (int g = 0; g < VECTORS; g++) {
                dot[t][g] = dots_add(dot[t][g], v, c[g], f);
                HOLD(dot[t][g]);
            }
        }
    }
    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        const vi s = scale_at(scale + (size_t)g * step, f);

        UNROLL
        for (int t = 0; t < n_tok; t++)
            isum[t][g] = scaled_add(isum[t][g], dot[t][g], s, f);
    }
}
