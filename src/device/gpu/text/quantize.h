/* Activations to blocks of 8-bit values: quant/q8.h. */

enum { Q8_DWORDS = 10 }; /* of a block: scale, two sums, values */

/* Part `part` of spans: n values from the at-th of a row on. */
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

/* A lane has four values. Those that share a scale are 8 lanes', or up to 64 of
 * parts of spans. */
KERNEL(quantize, struct quantize_args, 256)
{
    LOCAL_ARRAY(u32, top, 256);
    LOCAL_ARRAY(u32, top8, 32);
    LOCAL_ARRAY(s32, sums, 256);
    s32 lanes = a.n_span > 0 ? 64 : 8, lane = LANE() % lanes, n = 0;
    s64 unit = (s64)GROUP() * (256 / lanes) + LANE() / lanes, at = 0;
    u32 most = 0, word = 0;
    float x[4], d = 0;

    if (a.n_span == 0 && unit < a.n_row * (a.k / 32)) {
        n = 32;
        at = unit * 32;
    } else if (a.n_span > 0 && unit < a.n_row * a.n_part) {
        quantize_part(AT(const struct text_span, a.span),
                      (s32)(unit % a.n_part), &at, &n);
        at += unit / a.n_part * a.k;
    }
    UNROLL
    for (s32 i = 0; i < 4; i++) {
        u32 u;

        x[i] = 4 * lane < n ? AT(const float, a.x)[at + 4 * lane + i] : 0;
        u = float_bits(x[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    top[LANE()] = most;
    BARRIER();
    if (LANE() < 32) {
        u32 m = 0;

        for (s32 i = 8 * LANE(); i < 8 * LANE() + 8; i++)
            m = top[i] > m ? top[i] : m;
        top8[LANE()] = m;
    }
    BARRIER();
    most = top8[LANE() / 8];
    for (s32 i = 0; a.n_span > 0 && i < 8; i++) {
        u32 u = top8[LANE() / 64 * 8 + i];

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
    sums[LANE()] = dot4(word, 0x01010101u, 0);
    BARRIER();
    if (4 * lane < n) {
        GLOBAL u32 *b = AT(u32, a.out) + (at / 32 + lane / 8) * Q8_DWORDS;

        b[2 + lane % 8] = word;
        if (lane % 8 == 0) {
            LOCAL const s32 *s = sums + LANE();

            b[0] = float_bits(d);
            b[1] = ((u32)(s[0] + s[1] + s[2] + s[3]) & 0xffffu) |
                   (u32)(s[4] + s[5] + s[6] + s[7]) << 16;
        }
    }
}
