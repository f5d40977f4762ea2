/* Kernel gather: looks up rows of a table by their ids, in every weight format,
 * with the bits of device/cpu/cpu_gather.c. A lane computes one value at a
 * time. Unpacked blocks are laid out as in quant/block.c and
 * quant/block_grid.c, packed tiles as in quant/pack.h. */

/* The code of a value, and the sub scales and super scales that apply to it
 * (quant/pack.h), as raw bits. */
struct text_lane {
    u32 code, sub[2], sup[2];
};

DEV u32 byte_pair(GLOBAL const u8 *b)
{
    return b[0] | (u32)b[1] << 8;
}

DEV u32 byte_quad(GLOBAL const u8 *b)
{
    return byte_pair(b) | byte_pair(b + 2) << 16;
}

/* Returns nibble v of 16 bytes. The low nibbles are numbers 0 to 15, the high
 * ones 16 to 31. */
DEV u32 nibble(GLOBAL const u8 *b, s32 v)
{
    return b[v % 16] >> v / 16 * 4 & 15u;
}

/* Reads the super scales of a Q4_K or Q5_K block, and the 6-bit scale S and
 * minimum M of its tile t. */
DEV void gather_scales_k(GLOBAL const u8 *b, s32 t, struct text_lane *l)
{
    GLOBAL const u8 *sc = b + 4;

    l->sup[0] = byte_pair(b);
    l->sup[1] = byte_pair(b + 2);
    if (t < 4) {
        l->sub[0] = sc[t] & 63u;
        l->sub[1] = sc[t + 4] & 63u;
    } else {
        l->sub[0] = (sc[t + 4] & 15u) | (sc[t - 4] >> 6 & 3u) << 4;
        l->sub[1] = (sc[t + 4] >> 4 & 15u) | (sc[t] >> 6 & 3u) << 4;
    }
}

/* Returns a stored 6-bit scale as a signed byte. It is stored with 32 added. */
DEV u32 signed_scale(u32 s)
{
    return (s - 32u) & 255u;
}

DEV void gather_q3_k(GLOBAL const u8 *b, s32 t, s32 v, struct text_lane *l)
{
    GLOBAL const u8 *sc = b + 96;

    l->code = (b[32 + 32 * (t / 4) + v] >> 2 * (t % 4) & 3u) | (b[v] >> t & 1u)
                                                                   << 2;
    for (s32 h = 0; h < 2; h++) {
        s32 i = 2 * t + h;

        l->sub[h] = signed_scale((sc[i % 8] >> 4 * (i / 8) & 15u) |
                                 (sc[8 + i % 4] >> 2 * (i / 4) & 3u) << 4);
    }
    l->sup[0] = byte_pair(b + 108);
}

/* Returns digit number `at` of a byte that encodes a fraction in base 3. */
DEV u32 digit3(u32 byte, s32 at)
{
    for (s32 i = 0; i < at; i++)
        byte = byte * 3 & 255u;
    return byte * 3 >> 8;
}

DEV u32 gather_tq1_0(GLOBAL const u8 *b, s32 i)
{
    if (i < 160)
        return digit3(b[i % 32], i / 32);
    if (i < 240)
        return digit3(b[32 + i % 16], i / 16 - 10);
    return digit3(b[48 + i % 4], (i - 240) / 4);
}

/* Returns code k of an entry of a code table, whose codes have `width` bits.
 * The code's sign bit is placed above its magnitude. */
DEV u32 grid_code(GLOBAL const u16 *grid, u32 index, s32 k, s32 width, u32 sign)
{
    s32 top = width == 2 ? 2 : 3;

    return ((u32)grid[index] >> width * k & ((1u << top) - 1)) | sign << top;
}

/* Returns the sign bit of code k of eight. Seven sign bits are stored; the
 * eighth makes the number of negative codes even. */
DEV u32 even_sign(u32 signs, s32 k)
{
    u32 x = (signs & 127u) ^ (signs & 127u) >> 4;

    x ^= x >> 2;
    x ^= x >> 1;
    return k < 7 ? signs >> k & 1u : x & 1u;
}

DEV void gather_iq1(GLOBAL const u8 *b, s32 t, s32 v, s32 m,
                    GLOBAL const u16 *grid, struct text_lane *l)
{
    s32 i = v / 8;

    if (m) {
        GLOBAL const u8 *sc = b + 48;
        u32 qh = b[32 + 2 * t + i / 2] >> i % 2 * 4;
        u32 s = byte_pair(sc + t / 2 * 2) >> 6 * (t % 2);

        l->sub[0] = (s & 7u) | (s >> 3 & 7u) << 4;
        for (s32 k = 0; k < 4; k++)
            l->sup[0] |= (byte_pair(sc + 2 * k) >> 12) << 4 * k;
        l->code = grid_code(grid, b[4 * t + i] | (qh & 7u) << 8, v % 8, 2,
                            qh >> 3 & 1u);
    } else {
        u32 qh = byte_pair(b + 34 + 2 * t), s = 2 * (qh >> 12 & 7u) + 1;

        l->sup[0] = byte_pair(b);
        l->sub[0] = 8 * s;
        l->sub[1] = (qh >> 15 ? 9 : 7) * s;
        l->code = grid_code(grid, b[2 + 4 * t + i] | (qh >> 3 * i & 7u) << 8,
                            v % 8, 2, 0);
    }
}

DEV void gather_iq2(GLOBAL const u8 *b, s32 t, s32 v, s32 format,
                    GLOBAL const u16 *grid, struct text_lane *l)
{
    s32 i = v / 8, k = v % 8;
    u32 index, sign, w;

    l->sup[0] = byte_pair(b);
    if (format == GATHER_IQ2_XXS) {
        w = byte_quad(b + 6 + 8 * t);
        index = b[2 + 8 * t + i];
        sign = even_sign(w >> 7 * i, k);
        l->sub[0] = (w >> 28) * 17;
    } else if (format == GATHER_IQ2_XS) {
        w = byte_pair(b + 2 + 8 * t + 2 * i);
        index = w & 511u;
        sign = even_sign(w >> 9, k);
        l->sub[0] = b[66 + t];
    } else {
        index = b[2 + 4 * t + i] | (b[66 + t] >> 2 * i & 3u) << 8;
        sign = b[34 + 4 * t + i] >> k & 1u;
        l->sub[0] = b[74 + t];
    }
    l->code = grid_code(grid, index, k, 2, sign);
}

DEV void gather_iq3(GLOBAL const u8 *b, s32 t, s32 v, s32 format,
                    GLOBAL const u16 *grid, struct text_lane *l)
{
    s32 i = v / 4;
    u32 index, sign;

    l->sup[0] = byte_pair(b);
    if (format == GATHER_IQ3_XXS) {
        u32 w = byte_quad(b + 66 + 4 * t);

        index = b[2 + 8 * t + i];
        sign = even_sign(w >> 7 * (v / 8), v % 8);
        l->sub[0] = (w >> 28) * 17;
    } else {
        index = b[2 + 8 * t + i] | (b[66 + t] >> i & 1u) << 8;
        sign = b[74 + 4 * t + i / 2] >> (i % 2 * 4 + v % 4) & 1u;
        l->sub[0] = (b[106 + t / 2] >> t % 2 * 4 & 15u) * 17;
    }
    l->code = grid_code(grid, index, v % 4, 4, sign);
}

/* Reads the code and the scales of value v of tile t of a super-block of 256
 * values. */
DEV void gather_super(GLOBAL const u8 *b, s32 t, s32 v, s32 format,
                      GLOBAL const u16 *grid, struct text_lane *l)
{
    u32 s;

    switch (format) {
    case GATHER_Q2_K:
        l->code = b[16 + 32 * (t / 4) + v] >> 2 * (t % 4) & 3u;
        l->sub[0] = b[2 * t];
        l->sub[1] = b[2 * t + 1];
        l->sup[0] = byte_pair(b + 80);
        l->sup[1] = byte_pair(b + 82);
        return;
    case GATHER_Q3_K:
        gather_q3_k(b, t, v, l);
        return;
    case GATHER_Q4_K:
        gather_scales_k(b, t, l);
        l->code = b[16 + 32 * (t / 2) + v] >> 4 * (t % 2) & 15u;
        return;
    case GATHER_Q5_K:
        gather_scales_k(b, t, l);
        l->code = (b[48 + 32 * (t / 2) + v] >> 4 * (t % 2) & 15u) |
                  (b[16 + v] >> t & 1u) << 4;
        return;
    case GATHER_Q6_K:
        l->code =
            (b[64 * (t / 4) + 32 * (t % 2) + v] >> 4 * (t % 4 / 2) & 15u) |
            (b[128 + 32 * (t / 4) + v] >> 2 * (t % 4) & 3u) << 4;
        l->sub[0] = b[192 + 2 * t];
        l->sub[1] = b[193 + 2 * t];
        l->sup[0] = byte_pair(b + 208);
        return;
    case GATHER_IQ4_XS:
        s = (b[4 + t / 2] >> 4 * (t % 2) & 15u) |
            (b[2 + t / 4] >> 2 * (t % 4) & 3u) << 4;
        l->code = nibble(b + 8 + 16 * t, v);
        l->sub[0] = signed_scale(s);
        l->sup[0] = byte_pair(b);
        return;
    case GATHER_IQ1_S:
    case GATHER_IQ1_M:
        gather_iq1(b, t, v, format == GATHER_IQ1_M, grid, l);
        return;
    case GATHER_IQ3_XXS:
    case GATHER_IQ3_S:
        gather_iq3(b, t, v, format, grid, l);
        return;
    case GATHER_TQ1_0:
        l->code = gather_tq1_0(b, 32 * t + v);
        l->sup[0] = byte_pair(b + 52);
        return;
    case GATHER_TQ2_0:
        l->code = b[32 * (t / 4) + v] >> 2 * (t % 4) & 3u;
        l->sup[0] = byte_pair(b + 64);
        return;
    }
    gather_iq2(b, t, v, format, grid, l);
}

/* Reads the code and the scales of value v of a block of 32 values. */
DEV void gather_small(GLOBAL const u8 *b, s32 v, s32 format,
                      struct text_lane *l)
{
    s32 high = format == GATHER_Q5_1 ? 4 : 2;

    l->sub[0] = byte_pair(b);
    if (format == GATHER_Q4_1 || format == GATHER_Q5_1)
        l->sub[1] = byte_pair(b + 2);
    if (format == GATHER_Q8_0) {
        l->code = b[2 + v] ^ 128u;
    } else if (format == GATHER_Q4_1) {
        l->code = nibble(b + 4, v);
    } else if (format == GATHER_Q5_0 || format == GATHER_Q5_1) {
        l->code = nibble(b + high + 4, v) | (b[high + v / 8] >> v % 8 & 1u)
                                                << 4;
    } else if (format == GATHER_MXFP4) {
        l->sub[0] = b[0];
        l->code = nibble(b + 1, v);
    } else {
        l->code = nibble(b + 2, v);
    }
}

/* Reads the code and the scales of value i of an unpacked block. */
DEV void gather_block(GLOBAL const u8 *b, s32 i, s32 format, s32 block,
                      GLOBAL const u16 *grid, struct text_lane *l)
{
    s32 t = i / 32, v = i % 32;

    if (block == 256) {
        gather_super(b, t, v, format, grid, l);
    } else if (block == 32) {
        gather_small(b, v, format, l);
    } else { /* NVFP4, whose blocks have 64 values */
        l->sub[0] = b[2 * t];
        l->sub[1] = b[2 * t + 1];
        b += 4 + 8 * (2 * t + v / 16);
        l->code = b[v % 8] >> v % 16 / 8 * 4 & 15u;
    }
}

/* Returns the bits that a plane of a packed tile has of value v of row `row`.
 * The plane has w bits of each code. */
DEV u32 plane_code(GLOBAL const u8 *plane, s32 row, s32 v, s32 w)
{
    s32 q = v / 4 % w, i = v / 4 / w;

    return plane[64 * q + 4 * row + v % 4] >> w * i & ((1u << w) - 1);
}

DEV u32 scale_at(GLOBAL const u8 *p, s32 i, s32 wide)
{
    return wide ? byte_pair(p + 2 * i) : p[i];
}

/* Returns the chunk of a packed row that contains value k. */
DEV GLOBAL const struct text_chunk *
gather_chunk(GLOBAL const struct text_chunk *c, s32 n, s64 k)
{
    s32 lo = 0, hi = n - 1;

    while (lo < hi) {
        s32 mid = (lo + hi + 1) / 2;

        if (c[mid].k_loc <= k)
            lo = mid;
        else
            hi = mid - 1;
    }
    return c + lo;
}

DEV float e8m0_scale(u32 e)
{
    if (e == 255)
        return float_from_bits(0x7fc00000u);
    return float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

DEV float ue4m3_scale(u32 x)
{
    u32 e = x >> 3 & 15, m = x & 7;

    if (x == 127)
        return 0;
    return e == 0 ? mul_(int_float((s32)m), 0x1p-10f)
                  : float_from_bits((e + 119) << 23 | m << 20);
}

/* Sets *s and *m to the integer factors S and M of half h of a tile
 * (quant/pack.h). */
DEV void lane_factors(const struct text_lane *l, s32 sub, s32 h, s32 *s, s32 *m)
{
    *s = 1;
    *m = 0;
    switch (sub) {
    case TEXT_SUB_F16_MIN:
        *m = 1;
        return;
    case TEXT_SUB_S8:
        *s = (s8)l->sub[0];
        return;
    case TEXT_SUB_S8X2:
        *s = (s8)l->sub[h];
        return;
    case TEXT_SUB_U8_MIN:
        *s = (s32)l->sub[0];
        *m = (s32)l->sub[1];
        return;
    case TEXT_SUB_U8X2_MIN:
        *s = (s32)l->sub[h] & 15;
        *m = (s32)l->sub[h] >> 4;
        return;
    case TEXT_SUB_ODD4X2:
        *s = 2 * ((s32)l->sub[0] >> 4 * h & 15) + 1;
        return;
    }
}

/* Returns the value of a code with level L in half h of a tile: d * S * L -
 * dmin * M (quant/pack.h). */
DEV float lane_value(const struct text_lane *l, s32 sub, s32 sup, s32 h,
                     s32 level)
{
    float d = f16_to_f32((u16)l->sup[0]), dmin = f16_to_f32((u16)l->sup[1]);
    s32 s, m;

    lane_factors(l, sub, h, &s, &m);
    if (sup == TEXT_SUP_D_8TH)
        return mul_(mul_(d, 0.125f), int_float(s * level - m));
    if (sub == TEXT_SUB_F16 || sub == TEXT_SUB_F16_MIN)
        d = f16_to_f32((u16)l->sub[0]);
    if (sub == TEXT_SUB_F16_MIN)
        dmin = -f16_to_f32((u16)l->sub[1]);
    if (sub == TEXT_SUB_E8M0)
        d = e8m0_scale(l->sub[0]);
    if (sub == TEXT_SUB_UE4M3X2)
        d = ue4m3_scale(l->sub[h]);
    return sub_(mul_(mul_(d, int_float(s)), int_float(level)),
                mul_(dmin, int_float(m)));
}

/* Returns the index of the result to which the rank tree adds the addend of
 * `rank`, or -1 if the tree lacks this rank. */
DEV s32 gather_entry(GLOBAL const struct text_item *item, s32 n_item, s32 rank)
{
    s32 n = 0, at = -1;

    for (s32 i = 0; i < n_item; i++) {
        if (item[i].rank == rank)
            at = n;
        n += 1 - item[i].n_add;
        if (at >= n)
            at = n - 1;
    }
    return at;
}

/* Returns the row with this id, as an index in this device's part of the table.
 * Sets *entry to the index of the result to which the rank of this row
 * contributes, or to -1 if the device does not have the row. */
DEV s64 gather_row(GLOBAL const struct text_span *span, s32 n_span,
                   GLOBAL const struct text_item *item, s32 n_item, s64 n_row,
                   s64 id, s32 *entry)
{
    *entry = -1;
    if (n_span == 0 && id >= 0 && id < n_row) {
        *entry = n_item > 0 ? 0 : -1;
        return id;
    }
    for (s32 i = 0; i < n_span; i++) {
        if (id >= span[i].logical && id < span[i].logical + span[i].n) {
            *entry = gather_entry(item, n_item, span[i].rank);
            return span[i].here + id - span[i].logical;
        }
    }
    return 0;
}

DEV float gather_element(GLOBAL const u8 *p, s32 format)
{
    if (format == GATHER_F16)
        return f16_to_f32((u16)byte_pair(p));
    if (format == GATHER_BF16)
        return bf16_float((u16)byte_pair(p));
    return format == GATHER_I32 ? int_float((s32)byte_quad(p))
                                : float_from_bits(byte_quad(p));
}

enum { GATHER_VALUES = 1024 }; /* most values that a work group looks up */

/* Looks up rows of a table by their ids: out [n_id, width] of F32, a table of
 * any format; or both of I32. A work group looks up GATHER_VALUES values of one
 * row, or the rest. No shared memory, no sums. */
KERNEL(gather, struct gather_args, 256)
{
    s32 parts = (s32)((a.width + GATHER_VALUES - 1) / GATHER_VALUES), entry;
    s64 i = GROUP() / parts, first = (s64)(GROUP() % parts) * GATHER_VALUES;
    s64 end = first + GATHER_VALUES < a.width ? first + GATHER_VALUES : a.width;
    s64 row = gather_row(AT(const struct text_span, a.span), a.n_span,
                         AT(const struct text_item, a.item), a.n_item, a.n_row,
                         AT(const s32, a.id)[i], &entry);
    s32 floats = a.format < GATHER_Q8_0 || a.format == GATHER_I32;
    s32 size = a.format == GATHER_F16 || a.format == GATHER_BF16 ? 2 : 4;

    for (s64 k = first + LANE(); k < end; k += 256) {
        struct text_lane l = {0, {0, 0}, {0, 0}};
        float value = 0;

        if (entry >= 0 && a.n_chunk == 0 && floats) {
            GLOBAL const u8 *b = AT(const u8, a.x) + row * a.step;

            value = gather_element(b + k * size, a.format);
        } else if (entry >= 0 && a.n_chunk == 0) {
            GLOBAL const u8 *b = AT(const u8, a.x) + row * a.step;

            gather_block(b + k / a.block * a.tile_bytes, (s32)(k % a.block),
                         a.format, a.block, AT(const u16, a.grid), &l);
        } else if (entry >= 0) {
            GLOBAL const struct text_chunk *c = gather_chunk(
                AT(const struct text_chunk, a.chunk), a.n_chunk, k);
            GLOBAL const u8 *b = AT(const u8, a.x) + row / 16 * a.step + c->off;
            s64 at = k - c->k_loc;
            s32 r = (s32)(row % 16), v = (s32)(at % 32);

            if (floats) {
                value = gather_element(b + (at * 16 + r) * size, a.format);
            } else {
                GLOBAL const u8 *tile =
                    b + a.sup_bytes + at / 32 * a.tile_bytes;
                s32 wide = a.sub == TEXT_SUB_F16 || a.sub == TEXT_SUB_F16_MIN;

                if (a.sup_bytes > 0)
                    l.sup[0] = scale_at(b, r, 1);
                if (a.sup_bytes > 32)
                    l.sup[1] = scale_at(b, 16 + r, 1);
                if (a.sub_bytes > 0)
                    l.sub[0] = scale_at(tile, r, wide);
                if (a.sub_bytes > 16 << wide)
                    l.sub[1] = scale_at(tile, 16 + r, wide);
                tile += a.sub_bytes;
                l.code = plane_code(tile, r, v, a.low);
                if (a.high > 0)
                    l.code |= plane_code(tile + 64 * a.low, r, v, a.high)
                              << a.low;
            }
        }
        if (entry >= 0 && !floats) {
            s32 level = (s32)l.code - a.bias;

            if (a.table)
                level = (s8)(a.level[l.code / 4 & 3] >> l.code % 4 * 8);
            value = lane_value(&l, a.sub, a.sup, (s32)(k % 32) / 16, level);
        }
        for (s32 e = 0; e < a.n_out; e++) {
            GLOBAL float *out =
                (GLOBAL float *)(AT(u8, a.out) + (u64)e * (u64)a.out_stride);

            if (a.ints) {
                ((GLOBAL s32 *)out)[i * a.width + k] =
                    e == entry ? ((GLOBAL const s32 *)(AT(const u8, a.x) +
                                                       row * a.step))[k]
                               : 0;
                continue;
            }
            /* Adding 0 makes -0 to +0, as the sum over several ranks does. */
            out[i * a.width + k] = e == entry ? add_(value, 0.0f) : 0;
        }
    }
}
