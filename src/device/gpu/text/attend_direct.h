/* Keys and values that lanes read directly, for attend_direct_tmpl.h. */

/* ---- keys ---------------------------------------------------------------- */

/* Adds to the scores s[rows] of position j the products of key values i0 .. i0
 * + n - 1 with the same values of each row's query: s[r] = fma(q[i][r], key[i],
 * s[r]). q is [n][rows]. rows is a constant where this function is inlined. */
DEV void add_keys(float *s, s32 rows, LOCAL const float *q,
                  GLOBAL const u8 *tile, s32 format, s32 d, s32 j, s32 i0,
                  s32 n)
{
    s32 i = 0;

    for (; i + ATTEND_AHEAD <= n; i += ATTEND_AHEAD) {
        float x[ATTEND_AHEAD];
        float scale = tile_scale(tile, format, 0, d, j, i0 + i);

        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++)
            x[k] = tile_value(tile, format, 0, d, j, i0 + i + k, scale);
        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++)
            add_rows(s, rows, q + (i + k) * rows, x[k]);
    }
    for (; i < n; i++)
        add_rows(s, rows, q + i * rows,
                 tile_value(tile, format, 0, d, j, i0 + i,
                            tile_scale(tile, format, 0, d, j, i0 + i)));
}

/* Like add_keys, for a format of codes; n is a multiple of 32. Loads the bytes
 * of a block of 32 values, then takes two codes from each. */
DEV void add_code_keys_of(s32 iq4, float *s, s32 rows, LOCAL const float *q,
                          GLOBAL const u8 *tile, s32 format, s32 d, s32 j,
                          s32 i0, s32 n)
{
    float base = codes_base(format);

    for (s32 i = 0; i < n; i += 32) {
        s32 at = tile_block(0, d, j, i0 + i);
        GLOBAL const u8 *low = tile + codes_low(format, 0, d, j, i0 + i);
        GLOBAL const u8 *high = tile + codes_fifth(format, 0, d, j, i0 + i);
        float scale, least = -0.0f;
        u32 raw[16], fifth = 0;

        UNROLL
        for (s32 k = 0; k < 16; k++)
            raw[k] = low[k * TEXT_PAGE];
        scale = f16_to_f32(((GLOBAL const u16 *)tile)[at]);
        if (codes_have(format, TEXT_CODES_FIFTH)) {
            UNROLL
            for (s32 k = 0; k < 4; k++)
                fifth |= (u32)high[k * TEXT_PAGE] << 8 * k;
        }
        if (codes_have(format, TEXT_CODES_MIN))
            least = f16_to_f32(((GLOBAL const u16 *)(tile + codes_min(d)))[at]);
        for (s32 h = 0; h < 32; h += 16) {
            UNROLL
            for (s32 k = 0; k < 16; k++) {
                u32 c = (raw[k] >> h / 4 & 15) | (fifth >> (h + k) & 1) << 4;

                add_rows(s, rows, q + (i + h + k) * rows,
                         code_value(iq4, c, base, scale, least));
            }
        }
    }
}
DEV void add_code_keys(float *s, s32 rows, LOCAL const float *q,
                       GLOBAL const u8 *tile, s32 format, s32 d, s32 j, s32 i0,
                       s32 n)
{
    if (codes_have(format, TEXT_CODES_IQ4))
        add_code_keys_of(1, s, rows, q, tile, format, d, j, i0, n);
    else
        add_code_keys_of(0, s, rows, q, tile, format, d, j, i0, n);
}

/* ---- latents ------------------------------------------------------------- */

/* A stage of latents is CHUNK, 16, values of each of the span's 256 positions.
 * A lane has value id % 16 of every 16th position. latents_ask() loads them, in
 * the form of the cache; latents_put() stores them as floats, `pitch` floats
 * from one position to the next. Their values i0 .. i0 + n - 1 exist. */
DEV void latents_ask_of(struct stage *g, GLOBAL const u8 *keys, s64 key_bytes,
                        LOCAL const s64 *tile_at, s32 format, s32 d, s32 i0,
                        s32 n, s32 id)
{
    UNROLL
    for (s32 k = 0; k < 16; k++) {
        s32 at = (id / 16 + k % 4 * 16) * d + i0 + id % 16;
        s64 tile = tile_at[k / 4];

        g->word[k] = 0;
        if (tile >= 0 && id % 16 < n)
            g->word[k] = tile_word(keys + tile * key_bytes, format, d, at);
    }
}
DEV void latents_ask(struct stage *g, GLOBAL const u8 *keys, s64 key_bytes,
                     LOCAL const s64 *tile_at, s32 format, s32 d, s32 i0, s32 n,
                     s32 id)
{
    if (format == TEXT_F32)
        latents_ask_of(g, keys, key_bytes, tile_at, TEXT_F32, d, i0, n, id);
    else if (format == TEXT_Q8_0)
        latents_ask_of(g, keys, key_bytes, tile_at, TEXT_Q8_0, d, i0, n, id);
    else
        latents_ask_of(g, keys, key_bytes, tile_at, TEXT_F16, d, i0, n, id);
}
DEV void latents_put(const struct stage *g, LOCAL float *p, s32 pitch,
                     GLOBAL const u8 *keys, s64 key_bytes,
                     LOCAL const s64 *tile_at, s32 format, s32 d, s32 i0, s32 n,
                     s32 id)
{
    UNROLL
    for (s32 k = 0; k < 16; k++) {
        s32 j = id / 16 + k % 4 * 16;
        s64 tile = tile_at[k / 4];
        float x = word_value(format, g->word[k]);

        if (format == TEXT_Q8_0 && tile >= 0 && id % 16 < n)
            x = mul_(x, tile_scale(keys + tile * key_bytes, TEXT_Q8_0, 1, d, j,
                                   i0 + id % 16));
        p[(id / 16 + 16 * k) * pitch + id % 16] = x;
    }
}

/* Like add_keys, but the n values of the key are floats in shared memory. */
DEV void add_latents(float *s, s32 rows, LOCAL const float *q,
                     LOCAL const float *key, s32 n)
{
    for (s32 i = 0; i < n; i++)
        add_rows(s, rows, q + i * rows, key[i]);
}

/* ---- values -------------------------------------------------------------- */

/* Adds the values of column c, weighted by probabilities, to the sums of n
 * rows: acc[r] = fma(p[j][r], value[j][c], acc[r]) for positions j .. hi - 1,
 * ascending. p is [64][rows]. Loads `ahead` values at a time and returns the
 * first j for which fewer are left. ahead, n, rows and format are constants
 * where this function is inlined. */
DEV s32 add_values_by(s32 ahead, float *acc, s32 n, s32 rows,
                      LOCAL const float *p, GLOBAL const u8 *tile, s32 format,
                      s32 d, s32 c, s32 j, s32 hi)
{
    for (; j + ahead <= hi; j += ahead) {
        float x[ATTEND_FAR];

        UNROLL
        for (s32 k = 0; k < ahead; k++)
            x[k] = tile_value(tile, format, 1, d, j + k, c,
                              tile_scale(tile, format, 1, d, j + k, c));
        UNROLL
        for (s32 k = 0; k < ahead; k++)
            add_rows(acc, n, p + (j + k) * rows, x[k]);
    }
    return j;
}
/* The same for positions lo .. hi - 1, at most `far` at a time. */
DEV void add_values(s32 far, float *acc, s32 n, s32 rows, LOCAL const float *p,
                    GLOBAL const u8 *tile, s32 format, s32 d, s32 c, s32 lo,
                    s32 hi)
{
    s32 j = lo;

    if (far > ATTEND_AHEAD)
        j = add_values_by(far, acc, n, rows, p, tile, format, d, c, j, hi);
    j = add_values_by(ATTEND_AHEAD, acc, n, rows, p, tile, format, d, c, j, hi);
    add_values_by(1, acc, n, rows, p, tile, format, d, c, j, hi);
}

/* Like add_values, for a format of codes. Loads the bytes and scales of
 * CODE_AHEAD positions, then takes a code from each. */
DEV void add_code_values_of(s32 iq4, float *acc, s32 n, s32 rows,
                            LOCAL const float *p, GLOBAL const u8 *tile,
                            s32 format, s32 d, s32 c, s32 lo, s32 hi)
{
    GLOBAL const u8 *low = tile + codes_low(format, 1, d, 0, c);
    GLOBAL const u8 *high = tile + codes_fifth(format, 1, d, 0, c);
    GLOBAL const u16 *scales = (GLOBAL const u16 *)tile + c / 32;
    GLOBAL const u16 *mins = (GLOBAL const u16 *)(tile + codes_min(d)) + c / 32;
    float base = codes_base(format);
    s32 j = lo;

    for (; j + CODE_AHEAD <= hi; j += CODE_AHEAD) {
        u32 raw[CODE_AHEAD], fifth[CODE_AHEAD];
        u16 scale[CODE_AHEAD], least[CODE_AHEAD];

        UNROLL
        for (s32 k = 0; k < CODE_AHEAD; k++) {
            raw[k] = low[(j + k) * (d / 2)];
            scale[k] = scales[(j + k) * (d / 32)];
            fifth[k] = 0;
            least[k] = 0x8000; /* -0 in the format F16 */
        }
        if (codes_have(format, TEXT_CODES_FIFTH)) {
            UNROLL
            for (s32 k = 0; k < CODE_AHEAD; k++)
                fifth[k] = high[(j + k) * (d / 8)];
        }
        if (codes_have(format, TEXT_CODES_MIN)) {
            UNROLL
            for (s32 k = 0; k < CODE_AHEAD; k++)
                least[k] = mins[(j + k) * (d / 32)];
        }
        UNROLL
        for (s32 k = 0; k < CODE_AHEAD; k++) {
            u32 code = (raw[k] >> c / 16 % 2 * 4 & 15) | (fifth[k] >> c % 8 & 1)
                                                             << 4;

            add_rows(acc, n, p + (j + k) * rows,
                     code_value(iq4, code, base, f16_to_f32(scale[k]),
                                f16_to_f32(least[k])));
        }
    }
    for (; j < hi; j++)
        add_rows(acc, n, p + j * rows,
                 tile_value(tile, format, 1, d, j, c,
                            tile_scale(tile, format, 1, d, j, c)));
}
DEV void add_code_values(float *acc, s32 n, s32 rows, LOCAL const float *p,
                         GLOBAL const u8 *tile, s32 format, s32 d, s32 c,
                         s32 lo, s32 hi)
{
    if (codes_have(format, TEXT_CODES_IQ4))
        add_code_values_of(1, acc, n, rows, p, tile, format, d, c, lo, hi);
    else
        add_code_values_of(0, acc, n, rows, p, tile, format, d, c, lo, hi);
}

/* Like add_values, but row r skips the positions of the span before see_lo[r]
 * and from see_hi[r] on. The block begins at position j0 of the span. */
DEV void add_some(float *acc, s32 n, s32 rows, LOCAL const float *p,
                  GLOBAL const u8 *tile, s32 format, s32 d, s32 c, s32 lo,
                  s32 hi, s32 j0, LOCAL const s32 *see_lo,
                  LOCAL const s32 *see_hi)
{
    for (s32 j = lo; j < hi; j++) {
        float x = tile_value(tile, format, 1, d, j, c,
                             tile_scale(tile, format, 1, d, j, c));

        for (s32 r = 0; r < n; r++)
            if (j0 + j >= see_lo[r] && j0 + j < see_hi[r])
                acc[r] = fma_(p[j * rows + r], x, acc[r]);
    }
}
