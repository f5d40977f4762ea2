/* Kernel rope. It computes angles, sines and cosines in double, with the
 * operations of device/cpu/cpu_rows_template.h. */

/* Returns the angle in radians of pair i at position 1. `power` is
 * base^(-2i/n). */
DEV double rope_angle(double power, s32 i, s32 yarn, double scale, double low,
                      double width)
{
    double m;

    if (!yarn)
        return dmul_(power, scale);
    m = ddiv_(dsub_((double)i, low), width);
    m = dsub_(1.0, m < 0 ? 0 : m > 1 ? 1.0 : m);
    return dadd_(dmul_(dmul_(power, scale), dsub_(1.0, m)), dmul_(power, m));
}

/* Returns the factor of the cosines and sines of a token at position `pos`:
 * mscale * (1 + temp ln(pos / length + 1)), mscale if length is 0. The
 * logarithm has the operations of exact_log() in base/exact.h. */
DEV double rope_factor(double mscale, double temp, s32 length, s32 pos)
{
    double m, t, t2, sum = 0;
    u64 bits;
    s32 k;

    if (length <= 0)
        return mscale;
    bits = double_bits(dadd_((double)(pos / length), 1.0));
    k = (s32)(bits >> 52) - 1023;
    m = double_from_bits((bits & 0xfffffffffffffu) | (u64)1023 << 52);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = dmul_(m, 0.5);
        k++;
    }
    t = ddiv_(dsub_(m, 1.0), dadd_(m, 1.0));
    t2 = dmul_(t, t);
    for (s32 i = 23; i >= 1; i -= 2)
        sum = dadd_(dmul_(sum, t2), ddiv_(1.0, (double)i));
    t = dadd_(dmul_((double)k, 0x1.62e42fefa39efp-1),
              dmul_(dmul_(2.0, t), sum));
    return dmul_(mscale, dadd_(1.0, dmul_(temp, t)));
}

/* Sets *co and *si to cosine and sine of angle * pos, times mscale. */
DEV void rope_cos_sin(double angle, s32 pos, double mscale, float *co,
                      float *si)
{
    double t = dmul_(angle, (double)pos), k, x, z, s, c;
    u64 quadrant, odd, cos_bits, sin_bits;

    k = dadd_(dmul_(t, 0x1.45f306dc9c883p-1), 0x1.8p52);
    quadrant = double_bits(k);
    k = dsub_(k, 0x1.8p52);
    x = dsub_(dsub_(t, dmul_(k, 0x1.921fb544p+0)),
              dmul_(k, 0x1.0b4611a626331p-34));
    z = dmul_(x, x);
    s = dsub_(dmul_(z, 1.0 / 6227020800.0), 1.0 / 39916800.0);
    s = dadd_(dmul_(s, z), 1.0 / 362880.0);
    s = dsub_(dmul_(s, z), 1.0 / 5040.0);
    s = dadd_(dmul_(s, z), 1.0 / 120.0);
    s = dsub_(dmul_(s, z), 1.0 / 6.0);
    s = dadd_(dmul_(dmul_(s, z), x), x);
    c = dadd_(dmul_(z, -1.0 / 87178291200.0), 1.0 / 479001600.0);
    c = dsub_(dmul_(c, z), 1.0 / 3628800.0);
    c = dadd_(dmul_(c, z), 1.0 / 40320.0);
    c = dsub_(dmul_(c, z), 1.0 / 720.0);
    c = dadd_(dmul_(c, z), 1.0 / 24.0);
    c = dsub_(dmul_(c, z), 0.5);
    c = dadd_(dmul_(c, z), 1.0);
    odd = 0 - (quadrant & 1);
    cos_bits = double_bits(c);
    sin_bits = double_bits(s);
    odd = odd & (cos_bits ^ sin_bits);
    cos_bits = cos_bits ^ odd ^ ((quadrant + 1) & 2) << 62;
    sin_bits = sin_bits ^ odd ^ (quadrant & 2) << 62;
    *co = double_float(dmul_(double_from_bits(cos_bits), mscale));
    *si = double_float(dmul_(double_from_bits(sin_bits), mscale));
}

/* Normalizes n rows of x, [n, d], with the bits that the kernel rms_norm gives.
 * part [64 n] is scratch in shared memory. */
DEV void rope_norm(GLOBAL const float *x, GLOBAL float *out,
                   GLOBAL const void *w, s32 format, float eps, s32 n, s32 d,
                   s32 lane, LOCAL float *part)
{
    for (s32 h = 0; h < n; h++) {
        float s = 0;

        for (s32 i = lane; i < d; i += 64)
            s = fma_(x[h * d + i], x[h * d + i], s);
        part[h * 64 + lane] = s;
    }
    BARRIER();
    if (lane < 16 * n) {
        LOCAL float *p = part + lane / 16 * 64 + lane % 16;

        p[0] = add_(add_(p[0], p[16]), add_(p[32], p[48]));
    }
    BARRIER();
    for (s32 h = 0; h < n; h++) {
        float s = div_(sum16(part + h * 64), int_float(d));
        float scale = div_(1.0f, sqrt_(add_(s, eps)));

        for (s32 i = lane; i < d; i += 64)
            out[h * d + i] = mul_(mul_(x[h * d + i], scale),
                                  w ? value_at(w, format, i) : 1.0f);
    }
    BARRIER(); /* all lanes see the normalized rows */
}

/* A member of the cache write, a.put[0] or a.put[1], that the work group
 * does. */
#define PUT(what)        (put ? a.put[1].what : a.put[0].what)
#define PUT_HAS_GROUP(i) (a.put[i].n_head > 0 && GROUP() >= a.put[i].first)
#define PUT_TAKES(i, result)                                                   \
    (a.put[i].cache && a.put[i].n_head == 0 && a.put[i].x == (result))

/* Rotates heads of x [n_tok, n_head, d], after a norm of each if there is a
 * weight for it. A work group has some heads of one token; a lane computes one
 * pair of elements in all of them. After that the work group may write the
 * heads to a cache. Other work groups only write heads without rotation to a
 * cache.
 *
 * Shared memory: partial sums of the norm, and heads on their way to the cache.
 * Order of sums: the norm's is that of rms_norm; angles are doubles. */
KERNEL(rope, struct rope_args, 64)
{
    LOCAL_ARRAY(float, part, ROPE_HEADS * 64);
    LOCAL_ARRAY(float, hold, PUT_HELD);
    LOCAL_ARRAY(float, inverse, PUT_VALUES / 32);
    s32 put = PUT_HAS_GROUP(1), only = put || PUT_HAS_GROUP(0);
    s32 second = !only && a.n_head_2 > 0 && GROUP() >= a.first_2;
    s32 n_head = only ? PUT(n_head) : second ? a.n_head_2 : a.n_head;
    s32 d = only ? PUT(d) : a.d, pairs = a.n_rot / 2;
    s32 g = GROUP() - (only ? PUT(first) : second ? a.first_2 : 0);
    s32 parts = (n_head + ROPE_HEADS - 1) / ROPE_HEADS;
    s32 t = g / parts, h0 = g % parts * ROPE_HEADS, pos;
    s32 n = n_head - h0 < ROPE_HEADS ? n_head - h0 : ROPE_HEADS;
    s64 at = ((s64)t * n_head + h0) * d, page;
    u64 to = only ? PUT(x) : second ? a.out_2 : a.out;

    if (!only) {
        GLOBAL const float *x = AT_HELD(const float, second ? a.x_2 : a.x) + at;
        GLOBAL float *out;
        u64 raw = second ? a.raw_2 : a.raw, w = second ? a.w_2 : a.w;
        s32 at_pos = AT(const s32, a.pos)[t];
        s32 turns = a.back ? a.start - at_pos : at_pos - a.start;
        double mscale = rope_factor(a.mscale, a.temp, a.temp_length, at_pos);

        if (raw)
            rope_norm(AT_HELD(const float, raw) + at,
                      AT_HELD(float, second ? a.x_2 : a.x) + at,
                      w ? AT_HELD(const void, w) : 0, a.w_format, a.eps, n, d,
                      LANE(), part);
        if (second && !a.out_2)
            return;
        out = AT_HELD(float, to) + at;
        for (s32 i = LANE(); i < pairs; i += 64) {
            s32 p = a.neox ? i : 2 * i, q = a.neox ? pairs + i : 2 * i + 1;
            double power = a.power[i / a.stride];
            float co, si;

            for (s32 k = i % a.stride; k > 0; k--)
                power = dmul_(power, a.step);
            if (a.factors)
                power = ddiv_(power, (double)value_at(AT(const void, a.factors),
                                                      a.format, i));
            power = rope_angle(power, i, a.yarn, a.scale, a.low, a.width);
            rope_cos_sin(power, turns, mscale, &co, &si);
            for (s32 h = 0; h < n; h++) {
                float u = x[h * d + p], v = x[h * d + q];

                /* CPUs add these two products in the other order, which gives
                 * the same bits. */
                out[h * d + p] = sub_(mul_(u, co), mul_(v, si));
                out[h * d + q] = add_(mul_(u, si), mul_(v, co));
            }
        }
        for (s32 k = LANE(); out != x && k < n * d; k += 64)
            if (k % d >= a.n_rot)
                out[k] = x[k];
        put = PUT_TAKES(1, to);
        if (!put && !PUT_TAKES(0, to))
            return;
        BARRIER(); /* all lanes see the rotated heads */
    }
    pos = AT(const s32, a.put_pos)[t];
    page =
        AT(const s32,
           a.pages)[AT(const s32, a.seq)[t] * a.page_stride + pos / TEXT_PAGE];
    tiles_put(AT_HELD(u8, PUT(cache)) + (page * n_head + h0) * PUT(tile_bytes),
              PUT(tile_bytes), PUT(format), PUT(values), pos % TEXT_PAGE,
              AT_HELD(const float, to) + at, n, d, LANE(), hold, inverse);
}
