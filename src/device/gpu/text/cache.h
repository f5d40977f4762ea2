/* The paged cache: one element of a tile, and writing rows. Tiles are those of
 * program/cache_tile.h. `format` is a constant where speed matters. */

/* q8_0: scales lie before the values, [d / 32][64] or [64][d / 32]. */
DEV GLOBAL const s8 *tile_q8(GLOBAL const u8 *tile, s32 d)
{
    return (GLOBAL const s8 *)(tile + d / 32 * (TEXT_PAGE * 2));
}

/* The scale of value i of position j; of other formats 0. */
DEV float tile_scale(GLOBAL const u8 *tile, s32 format, s32 values, s32 d,
                     s32 j, s32 i)
{
    if (format != TEXT_Q8_0)
        return 0;
    return f16_to_f32(
        ((GLOBAL const u16 *)
             tile)[values ? j * (d / 32) + i / 32 : i / 32 * TEXT_PAGE + j]);
}

/* Value i of position j, with its scale. */
DEV float tile_value(GLOBAL const u8 *tile, s32 format, s32 values, s32 d,
                     s32 j, s32 i, float scale)
{
    s32 at = values ? j * d + i : i * TEXT_PAGE + j;

    if (format == TEXT_F32)
        return ((GLOBAL const float *)tile)[at];
    if (format == TEXT_F16)
        return f16_to_f32(((GLOBAL const u16 *)tile)[at]);
    if (format == TEXT_BF16)
        return bf16_float(((GLOBAL const u16 *)tile)[at]);
    return mul_(int_float(tile_q8(tile, d)[at]), scale);
}

/* ---- cache write --------------------------------------------------------- */

/* The scale of 32 values that lie `step` apart, as f16, and what they are
 * multiplied by. A scale that is 0 as f16 makes all of them 0. */
DEV u16 q8_0_scale(LOCAL const float *x, s32 step, float *inverse)
{
    float top = 0;
    u16 d;

    for (s32 i = 0; i < 32; i++)
        top = max_(abs_(x[i * step]), top);
    d = f32_to_f16(div_(top, 127.0f));
    *inverse = d ? div_(127.0f, top) : 0.0f;
    return d;
}

DEV void tile_put(GLOBAL u8 *tile, s32 format, s32 values, s32 d, s32 j, s32 i,
                  float x, float inverse)
{
    s32 at = values ? j * d + i : i * TEXT_PAGE + j;

    if (format != TEXT_Q8_0)
        value_put(tile, format, at, x);
    else /* the integer is in the low bits */
        tile[d / 32 * (TEXT_PAGE * 2) + at] =
            (u8)float_bits(add_(mul_(x, inverse), 0x1.8p23f));
}

enum { PUT_VALUES = 512, PUT_HELD = PUT_VALUES + PUT_VALUES / 32 };

/* n heads of a token, x [n, d], into a position of their tiles by 64 lanes,
 * bit for bit as cache_write does it; hold [PUT_HELD], inverse [PUT_VALUES /
 * 32]. */
DEV void tiles_put(GLOBAL u8 *tile, s64 tile_bytes, s32 format, s32 values,
                   s32 slot, GLOBAL const float *x, s32 n, s32 d, s32 lane,
                   LOCAL float *hold, LOCAL float *inverse)
{
    for (s32 from = 0; from < n * d; from += PUT_VALUES) {
        s32 m = n * d - from < PUT_VALUES ? n * d - from : PUT_VALUES;

        for (s32 k = lane; k < m; k += 64)
            hold[k + k / 32] = x[from + k];
        BARRIER();
        if (format == TEXT_Q8_0 && lane < m / 32) {
            s32 b = from / 32 + lane, h = b / (d / 32);
            float f;
            u16 scale = q8_0_scale(hold + lane * 33, 1, &f);

            b -= h * (d / 32);
            inverse[lane] = f;
            ((GLOBAL u16 *)(tile +
                            h * tile_bytes))[values ? slot * (d / 32) + b
                                                    : b * TEXT_PAGE + slot] =
                scale;
        }
        BARRIER();
        for (s32 k = lane; k < m; k += 64) {
            s32 h = (from + k) / d;

            tile_put(tile + h * tile_bytes, format, values, d, slot,
                     from + k - h * d, hold[k + k / 32],
                     format == TEXT_Q8_0 ? inverse[k / 32] : 0.0f);
        }
        BARRIER();
    }
}

/* Read along a token's values and written along a tile's rows: positions side
 * by side for keys, values for values. */
KERNEL(cache_write, struct cache_write_args, 256)
{
    LOCAL_ARRAY(float, x, CACHE_VALUES *(CACHE_TOKENS + 1));
    LOCAL_ARRAY(float, inverse, CACHE_VALUES / 32 * CACHE_TOKENS);
    LOCAL_ARRAY(s64, page, CACHE_TOKENS);
    LOCAL_ARRAY(s32, slot, CACHE_TOKENS);
    s32 second = a.n_head_2 > 0 && GROUP() >= a.first_2;
    s32 n_head = second ? a.n_head_2 : a.n_head, d = second ? a.d_2 : a.d;
    s32 format = second ? a.format_2 : a.format;
    s32 values = second ? a.values_2 : a.values;
    s64 tile_bytes = second ? a.tile_bytes_2 : a.tile_bytes;
    s32 id = LANE(), g = GROUP() - (second ? a.first_2 : 0);
    s32 n_part = (d + CACHE_VALUES - 1) / CACHE_VALUES;
    s32 i0 = g % n_part * CACHE_VALUES, h = g / n_part % n_head;
    s32 t0 = g / n_part / n_head * CACHE_TOKENS;
    s32 n = d - i0 < CACHE_VALUES ? d - i0 : CACHE_VALUES;
    s32 n_tok = a.n_tok - t0 < CACHE_TOKENS ? a.n_tok - t0 : CACHE_TOKENS;
    GLOBAL const float *from = AT_HELD(const float, second ? a.x_2 : a.x);
    GLOBAL u8 *cache = AT_HELD(u8, second ? a.cache_2 : a.cache);

    if (id < n_tok) {
        s32 u = AT(const s32, a.pos)[t0 + id];
        s64 row = AT(const s32, a.seq)[t0 + id] * a.page_stride;

        slot[id] = u % TEXT_PAGE;
        page[id] =
            (AT(const s32, a.pages)[row + u / TEXT_PAGE] * (s64)n_head + h) *
            tile_bytes;
    }
    for (s32 k = id; k < n_tok * CACHE_VALUES; k += 256) {
        s32 t = k / CACHE_VALUES, i = k % CACHE_VALUES;

        if (i < n)
            x[i * (CACHE_TOKENS + 1) + t] =
                from[((s64)(t0 + t) * n_head + h) * d + i0 + i];
    }
    BARRIER();
    if (format == TEXT_Q8_0 && id / CACHE_TOKENS < n / 32 &&
        id % CACHE_TOKENS < n_tok) {
        s32 t = id % CACHE_TOKENS, b = id / CACHE_TOKENS;
        float f;
        u16 scale = q8_0_scale(x + b * 32 * (CACHE_TOKENS + 1) + t,
                               CACHE_TOKENS + 1, &f);
        s32 at = values ? slot[t] * (d / 32) + i0 / 32 + b
                        : (i0 / 32 + b) * TEXT_PAGE + slot[t];

        inverse[b * CACHE_TOKENS + t] = f;
        ((GLOBAL u16 *)(cache + page[t]))[at] = scale;
    }
    BARRIER();
    for (s32 k = id; k < CACHE_TOKENS * CACHE_VALUES; k += 256) {
        s32 t = values ? k / CACHE_VALUES : k % CACHE_TOKENS;
        s32 i = values ? k % CACHE_VALUES : k / CACHE_TOKENS;

        if (t < n_tok && i < n)
            tile_put(cache + page[t], format, values, d, slot[t], i0 + i,
                     x[i * (CACHE_TOKENS + 1) + t],
                     format == TEXT_Q8_0 ? inverse[i / 32 * CACHE_TOKENS + t]
                                         : 0.0f);
    }
}
