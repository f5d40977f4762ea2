/* Reads and writes the paged cache. A cache tile is one head of a page; its
 * layout is defined in program/cache_tile.h. In all functions j is a position
 * in the page, i one of the head's d values at this position, and `values` is
 * true for a cache of V, whose tiles are not transposed. `format` is a constant
 * where speed matters. */

/* Returns the address of the signed bytes of a Q8_0 tile. The F16 scales before
 * them are [d / 32][64] in a tile of keys, [64][d / 32] in one of values. */
DEV GLOBAL const s8 *tile_q8(GLOBAL const u8 *tile, s32 d)
{
    return (GLOBAL const s8 *)(tile + d / 32 * (TEXT_PAGE * 2));
}

/* Returns the index in a tile of the block of 32 values that contains value i
 * of position j. */
DEV s32 tile_block(s32 values, s32 d, s32 j, s32 i)
{
    return values ? j * (d / 32) + i / 32 : i / 32 * TEXT_PAGE + j;
}

/* Returns the scale of value i of position j, or 0 if the format has no
 * blocks. */
DEV float tile_scale(GLOBAL const u8 *tile, s32 format, s32 values, s32 d,
                     s32 j, s32 i)
{
    if (format < TEXT_Q8_0)
        return 0;
    return f16_to_f32(((GLOBAL const u16 *)tile)[tile_block(values, d, j, i)]);
}

/* ---- codes of 4 or 5 bits ------------------------------------------------ */

DEV s32 codes_have(s32 format, s32 what)
{
    return (format & what) != 0;
}

/* Returns the offset in bytes, in a cache tile, of the blocks' minima, for
 * formats that have minima. */
DEV s32 codes_min(s32 d)
{
    return d / 32 * (TEXT_PAGE * 2);
}

/* Returns the offset in bytes, in a cache tile, of the byte whose bit i % 8 is
 * the fifth bit of the code of value i of position j. */
DEV s32 codes_fifth(s32 format, s32 values, s32 d, s32 j, s32 i)
{
    return codes_min(d) * (1 + codes_have(format, TEXT_CODES_MIN)) +
           (values ? j * (d / 8) + i / 8 : i / 8 * TEXT_PAGE + j);
}

/* Returns the offset in bytes, in a cache tile, of the byte with the lower four
 * bits of the code of value i of position j. They are the byte's low nibble if
 * i % 32 < 16, else its high nibble. */
DEV s32 codes_low(s32 format, s32 values, s32 d, s32 j, s32 i)
{
    s32 k = i / 32 * 16 + i % 16;

    return codes_min(d) * (1 + codes_have(format, TEXT_CODES_MIN) +
                           2 * codes_have(format, TEXT_CODES_FIFTH)) +
           (values ? j * (d / 2) + k : k * TEXT_PAGE + j);
}

DEV s32 codes_bias(s32 format)
{
    return codes_have(format, TEXT_CODES_MIN)     ? 0
           : codes_have(format, TEXT_CODES_FIFTH) ? 16
                                                  : 8;
}

DEV s32 iq4_level(s32 c)
{
    return (s8)look16((u32)c, IQ4_LEVEL0, IQ4_LEVEL1, IQ4_LEVEL2, IQ4_LEVEL3);
}

/* Returns value i of position j: the level of its code times `scale`, an exact
 * product, plus the block's minimum if the format has minima. */
DEV float codes_value(GLOBAL const u8 *tile, s32 format, s32 values, s32 d,
                      s32 j, s32 i, float scale)
{
    s32 c = tile[codes_low(format, values, d, j, i)] >> i / 16 % 2 * 4 & 15;
    float x;

    if (codes_have(format, TEXT_CODES_FIFTH))
        c |= (tile[codes_fifth(format, values, d, j, i)] >> i % 8 & 1) << 4;
    c = codes_have(format, TEXT_CODES_IQ4) ? iq4_level(c)
                                           : c - codes_bias(format);
    x = mul_(int_float(c), scale);
    if (codes_have(format, TEXT_CODES_MIN))
        x = add_(x, f16_to_f32(
                        ((GLOBAL const u16 *)(tile + codes_min(d)))[tile_block(
                            values, d, j, i)]));
    return x;
}

/* Returns the float that code_value() subtracts from a code: 2^23 + bias. */
DEV float codes_base(s32 format)
{
    return int_float((1 << 23) + codes_bias(format));
}

/* Returns the value of code c, like codes_value(): 2^23 + c as a float, less
 * `base`, is the code's level, exact. `least` is the block's minimum, or -0,
 * whose addition changes nothing. */
DEV float code_value(s32 iq4, u32 c, float base, float scale, float least)
{
    float level = iq4 ? int_float(iq4_level((s32)c))
                      : sub_(float_from_bits(0x4b000000u | c), base);

    return add_(mul_(level, scale), least);
}

/* Returns element `at` of a tile as it lies there, and the value of such a word
 * without its scale, in a format without codes. */
DEV u32 tile_word(GLOBAL const u8 *tile, s32 format, s32 d, s32 at)
{
    if (format == TEXT_F32)
        return ((GLOBAL const u32 *)tile)[at];
    if (format == TEXT_Q8_0)
        return (u32)tile_q8(tile, d)[at];
    return ((GLOBAL const u16 *)tile)[at];
}
DEV float word_value(s32 format, u32 word)
{
    if (format == TEXT_F32)
        return float_from_bits(word);
    if (format == TEXT_F16)
        return f16_to_f32((u16)word);
    if (format == TEXT_BF16)
        return bf16_float((u16)word);
    return int_float((s32)word);
}

/* Returns value i of position j in any format. `scale` is tile_scale() of this
 * value. */
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
    if (format >= TEXT_CODES)
        return codes_value(tile, format, values, d, j, i, scale);
    return mul_(int_float(tile_q8(tile, d)[at]), scale);
}

/* ---- cache write --------------------------------------------------------- */

/* Returns the F16 scale of a Q8_0 block, whose 32 values are `step` floats
 * apart. Sets *inverse to the factor that converts the values to integers. If
 * the scale is 0 in F16, the factor is 0, so all integers become 0. */
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
    else /* the low byte of the float's bits is the integer */
        tile[d / 32 * (TEXT_PAGE * 2) + at] =
            (u8)float_bits(add_(mul_(x, inverse), 0x1.8p23f));
}

/* Returns a scale as F16. -0 becomes +0. */
DEV u16 codes_scale(float d)
{
    u16 h = f32_to_f16(d);

    return h & 0x7fff ? h : 0;
}

/* Returns the code of the IQ4_NL level nearest to x; of two equally near
 * levels, that of the upper one. */
DEV s32 iq4_code(float x)
{
    s32 c = 0;

    for (s32 k = 0; k < 15; k++)
        c += x >= mul_(int_float(iq4_level(k) + iq4_level(k + 1)), 0.5f);
    return c;
}

/* Returns the integer part of x, at most `last`. Returns 0 if x is negative. */
DEV s32 code_of(float x, s32 last)
{
    float whole;

    x = min_(max_(x, 0.0f), int_float(last));
    whole = round_(x);
    return float_int(whole > x ? sub_(whole, 1.0f) : whole);
}

/* Returns the code of the value x in a block with scale 1 / inverse and minimum
 * `base`. `last` is the greatest code of the format. */
DEV s32 codes_code(s32 format, float x, float base, float inverse, s32 last)
{
    if (codes_have(format, TEXT_CODES_IQ4))
        return iq4_code(mul_(x, inverse));
    return code_of(add_(mul_(sub_(x, base), inverse),
                        add_(int_float(codes_bias(format)), 0.5f)),
                   last);
}

/* Encodes 32 values, which are `step` floats apart from x on, as one block:
 * values i .. i + 31 of position j. The operations are those of to_block in
 * device/cpu/cpu_cache_template.h. */
DEV void codes_put(GLOBAL u8 *tile, s32 format, s32 values, s32 d, s32 j, s32 i,
                   LOCAL const float *x, s32 step)
{
    s32 has_min = codes_have(format, TEXT_CODES_MIN);
    s32 last = codes_have(format, TEXT_CODES_FIFTH) ? 31 : 15;
    s32 at = tile_block(values, d, j, i);
    float least = x[0], most = x[0], top = 0, extreme = 0, base = 0, scale;
    float inverse;
    u32 fifth = 0;
    u16 h;

    for (s32 k = 0; k < 32; k++) {
        float y = x[k * step];

        least = min_(y, least);
        most = max_(y, most);
        extreme = abs_(y) > top ? y : extreme;
        top = max_(abs_(y), top);
    }
    if (has_min && least != 0)
        base = least;
    scale = has_min ? div_(sub_(most, base), int_float(last))
            : codes_have(format, TEXT_CODES_IQ4)
                ? div_(extreme, int_float(iq4_level(0)))
                : div_(extreme, int_float(-codes_bias(format)));
    h = codes_scale(scale);
    inverse = h ? div_(1.0f, scale) : 0.0f;
    if (codes_have(format, TEXT_CODES_IQ4) && h) {
        float above = 0, below = 0;

        for (s32 k = 0; k < 32; k++) {
            float y = x[k * step];
            float l = int_float(iq4_level(iq4_code(mul_(y, inverse))));
            float w = mul_(mul_(y, y), l);

            above = fma_(w, y, above);
            below = fma_(w, l, below);
        }
        h = codes_scale(below > 0 ? div_(above, below) : scale);
    }
    ((GLOBAL u16 *)tile)[at] = h;
    if (has_min)
        ((GLOBAL u16 *)(tile + codes_min(d)))[at] = f32_to_f16(base);
    for (s32 k = 0; k < 16; k++) {
        s32 lo = codes_code(format, x[k * step], base, inverse, last);
        s32 hi = codes_code(format, x[(k + 16) * step], base, inverse, last);

        tile[codes_low(format, values, d, j, i + k)] =
            (u8)((lo & 15) | (hi & 15) << 4);
        fifth |= (u32)(lo >> 4) << k | (u32)(hi >> 4) << (k + 16);
    }
    for (s32 k = 0; k < 32 && codes_have(format, TEXT_CODES_FIFTH); k += 8)
        tile[codes_fifth(format, values, d, j, i + k)] = (u8)(fifth >> k);
}

enum { PUT_VALUES = 512, PUT_HELD = PUT_VALUES + PUT_VALUES / 32 };

/* Writes n heads of a token, x [n, d], into position `slot` of n adjacent cache
 * tiles, with the bits that the kernel cache_write gives. The 64 lanes of a
 * work group call this function. hold [PUT_HELD] and inverse [PUT_VALUES / 32]
 * are scratch in shared memory. */
DEV void tiles_put(GLOBAL u8 *tile, s64 tile_bytes, s32 format, s32 values,
                   s32 slot, GLOBAL const float *x, s32 n, s32 d, s32 lane,
                   LOCAL float *hold, LOCAL float *inverse)
{
    for (s32 from = 0; from < n * d; from += PUT_VALUES) {
        s32 m = n * d - from < PUT_VALUES ? n * d - from : PUT_VALUES;

        for (s32 k = lane; k < m; k += 64)
            hold[k + k / 32] = x[from + k];
        BARRIER();
        if (format >= TEXT_Q8_0 && lane < m / 32) {
            s32 i = from + lane * 32, h = i / d;
            float f = 0;

            i -= h * d;
            if (format >= TEXT_CODES)
                codes_put(tile + h * tile_bytes, format, values, d, slot, i,
                          hold + lane * 33, 1);
            else
                ((GLOBAL u16 *)(tile + h * tile_bytes))[tile_block(
                    values, d, slot, i)] = q8_0_scale(hold + lane * 33, 1, &f);
            inverse[lane] = f;
        }
        BARRIER();
        for (s32 k = lane; k < m && format < TEXT_CODES; k += 64) {
            s32 h = (from + k) / d;

            tile_put(tile + h * tile_bytes, format, values, d, slot,
                     from + k - h * d, hold[k + k / 32],
                     format == TEXT_Q8_0 ? inverse[k / 32] : 0.0f);
        }
        BARRIER();
    }
}

/* Writes new keys or values, x [n_tok, n_head, d], into the cache, transposing
 * them in shared memory. A work group has CACHE_VALUES values of one head of
 * CACHE_TOKENS tokens; blocks are encoded as tiles_put() does.
 * Lanes read adjacent values of a token. They write adjacent elements of a
 * tile: neighbouring positions if it has keys, neighbouring values
 * otherwise. */
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
    if (format >= TEXT_Q8_0 && id / CACHE_TOKENS < n / 32 &&
        id % CACHE_TOKENS < n_tok) {
        s32 t = id % CACHE_TOKENS, b = id / CACHE_TOKENS, i = i0 + b * 32;
        LOCAL const float *y = x + b * 32 * (CACHE_TOKENS + 1) + t;
        float f = 0;

        if (format >= TEXT_CODES)
            codes_put(cache + page[t], format, values, d, slot[t], i, y,
                      CACHE_TOKENS + 1);
        else
            ((GLOBAL u16 *)(cache +
                            page[t]))[tile_block(values, d, slot[t], i)] =
                q8_0_scale(y, CACHE_TOKENS + 1, &f);
        inverse[b * CACHE_TOKENS + t] = f;
    }
    BARRIER();
    if (format >= TEXT_CODES)
        return;
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
