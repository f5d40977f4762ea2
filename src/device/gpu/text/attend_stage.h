/* Keys and values on their way through shared memory, for attend_tmpl.h. */

/* A stage is what a work group computes with at a time, in the form of the
 * cache:
 *
 *   keys    [4 blocks][n values][64 positions], scales [n / 32][256]
 *   values  [n positions][STAGE_WIDE columns], scales [n][STAGE_WIDE / 32]
 *
 * A lane loads units of 16 bytes of the next stage into registers before it
 * computes with the one in shared memory, and stores them afterwards. So all
 * lanes have loads in flight while they compute: of 16 KiB stages, 64 bytes
 * each. */
struct stage {
    u32 word[16], scale[2];
    float q[4]; /* values of queries */
};

/* Returns the binary logarithm of a cache element's size in bytes. */
DEV s32 element_shift(s32 format)
{
    return format == TEXT_F32 ? 2 : format == TEXT_Q8_0 ? 0 : 1;
}

/* Returns the offset in bytes of the first element of a tile. */
DEV s32 tile_elements(s32 format, s32 d)
{
    return format == TEXT_Q8_0 ? d / 32 * (TEXT_PAGE * 2) : 0;
}

/* Loads a lane's units of the stage of keys from value i0 on. block_bytes are
 * those of a block in a stage, a constant where this function is inlined;
 * key_at[b] is the offset of block b's tile, or -1. */
DEV void keys_ask(struct stage *g, s32 block_bytes, GLOBAL const u8 *keys,
                  LOCAL const s64 *key_at, s32 format, s32 d, s32 i0, s32 id)
{
    s32 shift = element_shift(format) + 6, most = block_bytes / 16;
    s32 n = (d - i0) << shift; /* bytes that are left of a block */
    s32 first = tile_elements(format, d) + (i0 << shift);

    UNROLL
    for (s32 k = 0; k < ATTEND_BLOCKS * block_bytes / 4096; k++) {
        s32 u = id + 256 * k, at = u % most * 16;
        s64 tile = key_at[u / most];

        g->word[4 * k] = g->word[4 * k + 1] = 0;
        g->word[4 * k + 2] = g->word[4 * k + 3] = 0;
        if (tile >= 0 && at < n)
            dwords_fetch(g->word + 4 * k,
                         (GLOBAL const u32 *)(keys + tile + first + at));
    }
    if (format == TEXT_Q8_0) {
        s64 tile = key_at[id / TEXT_PAGE];

        UNROLL
        for (s32 k = 0; k < block_bytes / 2048; k++) {
            g->scale[k] = 0;
            if (tile >= 0 && i0 + 32 * k < d)
                g->scale[k] = ((GLOBAL const u16 *)(keys + tile))[tile_block(
                    0, d, id % TEXT_PAGE, i0 + 32 * k)];
        }
    }
}

/* Loads a lane's part of the queries' values i0 .. i0 + n - 1, at most `most`,
 * for all rows. Values that do not exist become zeros. */
DEV void queries_ask(struct stage *g, s32 most, s32 rows,
                     GLOBAL const float *query, LOCAL const s64 *row_q, s32 d,
                     s32 i0, s32 n, s32 id)
{
    UNROLL
    for (s32 k = 0; k < (most * rows + 255) / 256; k++) {
        s32 r = (id + 256 * k) / most, i = (id + 256 * k) % most;

        g->q[k] = 0;
        if (r < rows && row_q[r] >= 0 && i < n && i0 + i < d)
            g->q[k] = query[row_q[r] * d + i0 + i];
    }
}
DEV void queries_put(const struct stage *g, s32 most, s32 rows, LOCAL float *q,
                     s32 id)
{
    UNROLL
    for (s32 k = 0; k < (most * rows + 255) / 256; k++) {
        s32 r = (id + 256 * k) / most, i = (id + 256 * k) % most;

        if (r < rows)
            q[i * rows + r] = g->q[k];
    }
}

/* Loads a lane's units of the stage of values: columns from c0 on, positions of
 * the span from j0 on, of which lo .. hi - 1 are needed. bytes are those of a
 * stage, a constant where this function is inlined. */
DEV void values_ask(struct stage *g, s32 bytes, GLOBAL const u8 *values,
                    LOCAL const s64 *value_at, s32 format, s32 e, s32 c0,
                    s32 j0, s32 lo, s32 hi, s32 id)
{
    s32 shift = element_shift(format), row = (STAGE_WIDE << shift) - 1;
    s32 n = (e - c0) << shift; /* bytes that are left of a position */
    s32 first = tile_elements(format, e) + (c0 << shift);

    UNROLL
    for (s32 k = 0; k < bytes / 4096; k++) {
        s32 at = (id + 256 * k) * 16, i = at & row;
        s32 j = j0 + (at >> (7 + shift));

        g->word[4 * k] = g->word[4 * k + 1] = 0;
        g->word[4 * k + 2] = g->word[4 * k + 3] = 0;
        if (j >= lo && j < hi && i < n)
            dwords_fetch(
                g->word + 4 * k,
                (GLOBAL const u32 *)(values + value_at[j / TEXT_PAGE] + first +
                                     (j % TEXT_PAGE * e << shift) + i));
    }
    if (format == TEXT_Q8_0) {
        UNROLL
        for (s32 k = 0; k < bytes / 8192; k++) {
            s32 u = id + 256 * k, j = j0 + u / 4, c = c0 + u % 4 * 32;

            g->scale[k] = 0;
            if (j >= lo && j < hi && c < e)
                g->scale[k] =
                    ((GLOBAL const u16 *)(values + value_at[j / TEXT_PAGE]))
                        [tile_block(1, e, j % TEXT_PAGE, c)];
        }
    }
}

/* Stores a lane's units and scales of a stage. */
DEV void stage_hold(const struct stage *g, s32 bytes, s32 format,
                    LOCAL u8 *held, LOCAL u16 *scales, s32 id)
{
    UNROLL
    for (s32 k = 0; k < bytes / 4096; k++)
        dwords_put((LOCAL u32 *)(held + (id + 256 * k) * 16), g->word[4 * k],
                   g->word[4 * k + 1], g->word[4 * k + 2], g->word[4 * k + 3]);
    if (format == TEXT_Q8_0) {
        UNROLL
        for (s32 k = 0; k < bytes / 8192; k++)
            scales[id + 256 * k] = (u16)g->scale[k];
    }
}

/* Returns the address of element `at` of a stage. */
DEV LOCAL const u8 *held_at(LOCAL const u8 *held, s32 format, s32 at)
{
    return held + (at << element_shift(format));
}

/* Returns element `at` of a stage, without its scale. */
DEV float held_value(LOCAL const u8 *held, s32 format, s32 at)
{
    if (format == TEXT_F32)
        return ((LOCAL const float *)held)[at];
    if (format == TEXT_F16)
        return f16_to_f32(((LOCAL const u16 *)held)[at]);
    if (format == TEXT_BF16)
        return bf16_float(((LOCAL const u16 *)held)[at]);
    return int_float(((LOCAL const s8 *)held)[at]);
}

/* Adds to the scores s[rows] of position j of a block the products of the n key
 * values of a stage with the same values of each row's query: s[r] =
 * fma(q[i][r], key[i], s[r]). q is [n][rows]. `scales` are those of the
 * position. rows and format are constants where this function is inlined. */
DEV void add_keys_of(float *s, s32 rows, LOCAL const float *q,
                     LOCAL const u8 *held, LOCAL const u16 *scales, s32 format,
                     s32 j, s32 n)
{
    LOCAL const u8 *key = held_at(held, format, j);
    s32 i = 0;

    for (; i + ATTEND_AHEAD <= n; i += ATTEND_AHEAD) {
        float x[ATTEND_AHEAD], scale = 0;

        if (format == TEXT_Q8_0)
            scale = f16_to_f32(scales[i / 32 * TEXT_SPAN]);
        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++) {
            x[k] = held_value(key, format, k * TEXT_PAGE);
            if (format == TEXT_Q8_0)
                x[k] = mul_(x[k], scale);
        }
        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++)
            add_rows(s, rows, q + k * rows, x[k]);
        key = held_at(key, format, ATTEND_AHEAD * TEXT_PAGE);
        q += ATTEND_AHEAD * rows;
    }
    UNROLL_NONE
    for (; i < n; i++) { /* Q8_0 has no such values */
        add_rows(s, rows, q, held_value(key, format, 0));
        key = held_at(key, format, TEXT_PAGE);
        q += rows;
    }
}
DEV void add_held_keys(float *s, s32 rows, LOCAL const float *q,
                       LOCAL const u8 *held, LOCAL const u16 *scales,
                       s32 format, s32 j, s32 n)
{
    switch (format) {
    case TEXT_F32:
        add_keys_of(s, rows, q, held, scales, TEXT_F32, j, n);
        break;
    case TEXT_F16:
        add_keys_of(s, rows, q, held, scales, TEXT_F16, j, n);
        break;
    case TEXT_BF16:
        add_keys_of(s, rows, q, held, scales, TEXT_BF16, j, n);
        break;
    default:
        add_keys_of(s, rows, q, held, scales, TEXT_Q8_0, j, n);
    }
}

/* Returns element `at` of a stage; its scale is scales[scale_at]. */
DEV float held_scaled(LOCAL const u8 *held, LOCAL const u16 *scales, s32 format,
                      s32 at, s32 scale_at)
{
    float x = held_value(held, format, at);

    if (format == TEXT_Q8_0)
        x = mul_(x, f16_to_f32(scales[scale_at]));
    return x;
}

/* Adds positions lo .. hi - 1 of the span, of one column of a stage that begins
 * at position j0, weighted by probabilities, to the sums of n rows from r0 on:
 * acc[r] = fma(p[j][r], value[j], acc[r]). `column` and `scales` are those of
 * position j0. Row r skips positions that it does not attend to. n, rows and
 * format are constants where this function is inlined. */
DEV void add_held_some(float *acc, s32 n, s32 rows, const struct span *x,
                       s32 r0, LOCAL const u8 *column, LOCAL const u16 *scales,
                       s32 format, s32 j0, s32 lo, s32 hi)
{
    UNROLL_NONE
    for (s32 j = lo; j < hi; j++) {
        float v =
            held_scaled(held_at(column, format, (j - j0) * STAGE_WIDE),
                        scales + (j - j0) * (STAGE_WIDE / 32), format, 0, 0);

        for (s32 r = 0; r < n; r++)
            if (j >= x->see_lo[r0 + r] && j < x->see_hi[r0 + r])
                acc[r] = fma_(x->p[j * rows + r0 + r], v, acc[r]);
    }
}
/* The same for positions that all rows attend to. */
DEV void add_held_all(float *acc, s32 n, s32 rows, const struct span *x, s32 r0,
                      LOCAL const u8 *column, LOCAL const u16 *scales,
                      s32 format, s32 j0, s32 lo, s32 hi)
{
    LOCAL const float *p = x->p + lo * rows + r0;
    s32 j = lo;

    column = held_at(column, format, (lo - j0) * STAGE_WIDE);
    scales += (lo - j0) * (STAGE_WIDE / 32);
    for (; j + ATTEND_AHEAD <= hi; j += ATTEND_AHEAD) {
        float v[ATTEND_AHEAD];

        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++)
            v[k] = held_scaled(column, scales, format, k * STAGE_WIDE,
                               k * (STAGE_WIDE / 32));
        UNROLL
        for (s32 k = 0; k < ATTEND_AHEAD; k++)
            add_rows(acc, n, p + k * rows, v[k]);
        column = held_at(column, format, ATTEND_AHEAD * STAGE_WIDE);
        scales += ATTEND_AHEAD * (STAGE_WIDE / 32);
        p += ATTEND_AHEAD * rows;
    }
    UNROLL_NONE
    for (; j < hi; j++) {
        add_rows(acc, n, p, held_scaled(column, scales, format, 0, 0));
        column = held_at(column, format, STAGE_WIDE);
        scales += STAGE_WIDE / 32;
        p += rows;
    }
}
/* The same for column c, positions j0 .. end - 1 that any row attends to, block
 * by block: a block's factor multiplies the sums where it begins. */
DEV void add_blocks_of(float *acc, s32 n, s32 rows, const struct span *x,
                       s32 r0, LOCAL const u8 *held, LOCAL const u16 *scales,
                       s32 format, s32 c, s32 j0, s32 end)
{
    LOCAL const u8 *column = held_at(held, format, c);

    scales += c / 32;
    for (s32 b = j0 / TEXT_PAGE; b * TEXT_PAGE < end; b++) {
        s32 first = b * TEXT_PAGE > j0 ? b * TEXT_PAGE : j0;
        s32 last = (b + 1) * TEXT_PAGE < end ? (b + 1) * TEXT_PAGE : end;
        s32 lo = within(x->any_lo, first, last);
        s32 hi = within(x->any_hi, lo, last);
        s32 from = within(x->all_lo, lo, hi), to = within(x->all_hi, from, hi);

        if (!span_has(x, b))
            continue;
        if (first == b * TEXT_PAGE)
            for (s32 r = 0; r < n; r++)
                acc[r] = mul_(acc[r], x->f[b * rows + r0 + r]);
        add_held_some(acc, n, rows, x, r0, column, scales, format, j0, lo,
                      from);
        add_held_all(acc, n, rows, x, r0, column, scales, format, j0, from, to);
        add_held_some(acc, n, rows, x, r0, column, scales, format, j0, to, hi);
    }
}
DEV void add_held_values(float *acc, s32 n, s32 rows, const struct span *x,
                         s32 r0, LOCAL const u8 *held, LOCAL const u16 *scales,
                         s32 format, s32 c, s32 j0, s32 end)
{
    switch (format) {
    case TEXT_F32:
        add_blocks_of(acc, n, rows, x, r0, held, scales, TEXT_F32, c, j0, end);
        break;
    case TEXT_F16:
        add_blocks_of(acc, n, rows, x, r0, held, scales, TEXT_F16, c, j0, end);
        break;
    case TEXT_BF16:
        add_blocks_of(acc, n, rows, x, r0, held, scales, TEXT_BF16, c, j0, end);
        break;
    default:
        add_blocks_of(acc, n, rows, x, r0, held, scales, TEXT_Q8_0, c, j0, end);
    }
}
