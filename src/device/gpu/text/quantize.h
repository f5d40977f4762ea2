/* Kernel quantize: converts activations to blocks of 8-bit values
 * (quant/q8.h). */

/* dwords of a block: scale, two 16-bit sums, 32 values */
enum { Q8_DWORDS = 10 };

/* Finds part number `part` of a row, which is divided by its spans and at
 * multiples of 256 values. Sets *at to the index in the row of the part's first
 * value and *n to its number of values. */
DEV void quantize_part(GLOBAL const struct text_span *s, s32 part, s64 *at,
                       s32 *n)
{
    for (;; s++) {
        s64 first = s->logical / 256, end = s->logical + s->n, lo, hi;
        s64 parts = s->n > 0 ? (end - 1) / 256 - first + 1 : 0;

        if (part < parts) {
            lo = (first + part) * 256;
            hi = lo + 256 < end ? lo + 256 : end;
            lo = lo > s->logical ? lo : s->logical;
            *at = s->here + lo - s->logical;
            *n = (s32)(hi - lo);
            return;
        }
        part -= (s32)parts;
    }
}

/* The values of one lane in a unit, that is, among n values with a common
 * scale: the four from index at + 4 * lane on. */
struct q8_part {
    s64 at;
    s32 lane, n;
};

/* Returns the values of lane `id`, if the work group's units begin with number
 * `unit`. A unit has 8 lanes, or 64 if there are spans. */
DEV struct q8_part quantize_find(GLOBAL const struct text_span *span,
                                 s32 n_span, s32 n_part, s64 k, s64 n_row,
                                 s64 unit, s32 id)
{
    s32 lanes = n_span > 0 ? 64 : 8;
    struct q8_part p;

    p.lane = id % lanes;
    p.at = 0;
    p.n = 0;
    unit += id / lanes;
    if (n_span == 0 && unit < n_row * (k / 32)) {
        p.n = 32;
        p.at = unit * 32;
    } else if (n_span > 0 && unit < n_row * n_part) {
        quantize_part(span, (s32)(unit % n_part), &p.at, &p.n);
        p.at += unit / n_part * k;
    }
    return p;
}

/* Return the number of units in a row, and how many of them a work group
 * quantizes at once. */
DEV s32 row_units(s32 n_span, s32 n_part, s64 k)
{
    return n_span > 0 ? n_part : (s32)(k / 32);
}
DEV s32 row_step(s32 n_span)
{
    return n_span > 0 ? 4 : 32;
}

/* Quantizes the values x[4] of each lane and stores them as blocks at `out`.
 * top [256], top8 [32] and sums [256] are scratch in shared memory. */
DEV void quantize_put(const float *x, const struct q8_part *p, s32 spans,
                      s32 id, LOCAL u32 *top, LOCAL u32 *top8, LOCAL s32 *sums,
                      GLOBAL u32 *out)
{
    u32 most = 0, word = 0;
    float d = 0;

    UNROLL
    for (s32 i = 0; i < 4; i++) {
        u32 u = float_bits(x[i]) & 0x7fffffffu;

        most = u > most ? u : most;
    }
    top[id] = most;
    BARRIER();
    if (id < 32) {
        u32 m = 0;

        for (s32 i = 8 * id; i < 8 * id + 8; i++)
            m = top[i] > m ? top[i] : m;
        top8[id] = m;
    }
    BARRIER();
    most = top8[id / 8];
    for (s32 i = 0; spans && i < 8; i++) {
        u32 u = top8[id / 64 * 8 + i];

        most = u > most ? u : most;
    }
    if (most >= 0x7f800000u) {
        d = float_from_bits(0x7fc00000u);
    } else if (most >= 0x03800000u) {
        float scale = div_(127.0f, float_from_bits(most));

        d = div_(float_from_bits(most), 127.0f);
        UNROLL
        for (s32 i = 0; i < 4; i++)
            word |= (float_bits(add_(mul_(x[i], scale), 0x1.8p23f)) & 255u)
                    << 8 * i;
    }
    sums[id] = dot4(word, 0x01010101u, 0);
    BARRIER();
    if (4 * p->lane < p->n) {
        GLOBAL u32 *b = out + (p->at / 32 + p->lane / 8) * Q8_DWORDS;

        b[2 + p->lane % 8] = word;
        if (p->lane % 8 == 0) {
            LOCAL const s32 *s = sums + id;

            b[0] = float_bits(d);
            b[1] = ((u32)(s[0] + s[1] + s[2] + s[3]) & 0xffffu) |
                   (u32)(s[4] + s[5] + s[6] + s[7]) << 16;
        }
    }
}

/* Quantizes the rows of x [n_row, k] to blocks of 32 (quant/q8.h). A lane
 * quantizes four values. 8 lanes have a common scale, or up to 64 if there are
 * spans. Before that, the kernel may compute the values: x op y, and a product
 * with one factor per row. Shared memory: greatest magnitudes and sums of
 * lanes; all sums are of integers. */
KERNEL(quantize, struct quantize_args, 256)
{
    LOCAL_ARRAY(u32, top, 256);
    LOCAL_ARRAY(u32, top8, 32);
    LOCAL_ARRAY(s32, sums, 256);
    struct q8_part p = quantize_find(
        AT(const struct text_span, a.span), a.n_span, a.n_part, a.k, a.n_row,
        (s64)GROUP() * (a.n_span > 0 ? 4 : 32), LANE());
    s64 at = p.at + 4 * p.lane;
    s32 has = 4 * p.lane < p.n;
    float x[4];

    UNROLL
    for (s32 i = 0; i < 4; i++)
        x[i] = has ? AT(const float, a.x)[at + i] : 0;
    if (a.y && has) {
        float y[4];

        UNROLL
        for (s32 i = 0; i < 4; i++)
            y[i] = AT(const float, a.y)[at + i];
        UNROLL
        for (s32 i = 0; i < 4; i++)
            AT(float, a.made)
        [at + i] = x[i] = binary_value(x[i], y[i], a.op, a.lo, a.hi, a.alpha);
    }
    if (a.z && has) {
        float z = AT(const float, a.z)[p.at / a.k];

        UNROLL
        for (s32 i = 0; i < 4; i++)
            AT(float, a.product)[at + i] = x[i] = mul_(x[i], z);
    }
    p.n = a.out ? p.n : 0;
    quantize_put(x, &p, a.n_span > 0, LANE(), top, top8, sums, AT(u32, a.out));
}
