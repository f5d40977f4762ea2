/* Kernels that process rows, which are along the last dimension. A work group
 * has one row. Orders of sums are those of device/cpu/cpu_rows_template.h. */

/* values of a row that a work group has in shared memory */
enum { NORM_HOLD = 4096 };

/* RMS norm of a row of d values, x [n_row, d], of x + y if there is a y; may
 * also quantize the result.
 *
 * Lanes: lane i has values i, i + 256 and so on. All loads come before the
 * operations that need them, so that many loads are in flight.
 * Shared memory: NORM_HOLD values of the row, the partial sums, and those that
 * quantizing needs.
 * Order of sums: 64 partial sums by index mod 64, ascending, then a tree. */
KERNEL(rms_norm, struct rms_norm_args, 256)
{
    LOCAL_ARRAY(float, hold, NORM_HOLD);
    LOCAL_ARRAY(float, part, 64);
    LOCAL_ARRAY(u32, top, 256);
    LOCAL_ARRAY(u32, top8, 32);
    LOCAL_ARRAY(s32, sums, 256);
    float v[16], w[8];
    s32 id = LANE(), second = GROUP() >= a.n_row;
    s64 at_row = (s64)(GROUP() - (second ? a.n_row : 0)) * a.d;
    GLOBAL const float *x = AT_HELD(const float, second ? a.x_2 : a.x) + at_row;
    GLOBAL float *out = AT_HELD(float, second ? a.out_2 : a.out) + at_row;
    GLOBAL const void *weight = AT_HELD(const void, second ? a.w_2 : a.w);
    float s = 0, scale;

    for (s64 at = 0; at < a.d; at += NORM_HOLD) {
        s32 n = a.d - at < NORM_HOLD ? (s32)(a.d - at) : NORM_HOLD;

        UNROLL
        for (s32 k = 0; k < 16; k++)
            v[k] = id + 256 * k < n ? x[at + id + 256 * k] : 0.0f;
        if (a.y) {
            GLOBAL const float *y = AT(const float, a.y) + at_row + at;
            GLOBAL float *sum = AT(float, a.sum) + at_row + at;

            UNROLL
            for (s32 k = 0; k < 16; k++)
                if (id + 256 * k < n)
                    v[k] = add_(v[k], y[id + 256 * k]);
            UNROLL
            for (s32 k = 0; k < 16; k++)
                if (id + 256 * k < n)
                    sum[id + 256 * k] = v[k];
        }
        BARRIER();
        UNROLL
        for (s32 k = 0; k < 16; k++)
            hold[id + 256 * k] = v[k];
        BARRIER();
        for (s32 i = id; id < 64 && i < n; i += 64)
            s = fma_(hold[i], hold[i], s);
    }
    if (id < 64)
        part[id] = s;
    BARRIER();
    if (id < 16)
        part[id] = add_(add_(part[id], part[id + 16]),
                        add_(part[id + 32], part[id + 48]));
    BARRIER();
    s = div_(sum16(part), int_float((s32)a.d));
    scale = div_(1.0f, sqrt_(add_(s, a.eps)));
    for (s64 first = id; first < a.d; first += 8 * 256) {
        UNROLL
        for (s32 k = 0; k < 8; k++) {
            s64 i = first + 256 * k;

            v[k] = 0;
            w[k] = 1;
            if (i < a.d) {
                v[k] = a.d <= NORM_HOLD ? hold[i]
                       : a.y            ? AT(const float, a.sum)[at_row + i]
                                        : x[i];
                if (second ? a.w_2 : a.w)
                    w[k] = value_at(weight, a.format, i);
            }
        }
        UNROLL
        for (s32 k = 0; k < 8; k++) {
            s64 i = first + 256 * k;

            if (i < a.d)
                out[i] = mul_(mul_(v[k], scale), w[k]);
        }
    }
    if (!a.q8)
        return;
    BARRIER(); /* all lanes see the normalized row */
    for (s32 unit = 0; unit < row_units(a.n_span, a.n_part, a.d);
         unit += row_step(a.n_span)) {
        struct q8_part p = quantize_find(AT(const struct text_span, a.span),
                                         a.n_span, a.n_part, a.d, 1, unit, id);
        float y[4];

        UNROLL
        for (s32 i = 0; i < 4; i++)
            y[i] = 4 * p.lane < p.n ? out[p.at + 4 * p.lane + i] : 0;
        quantize_put(y, &p, a.n_span > 0, id, top, top8, sums,
                     AT(u32, a.q8) + at_row / 32 * Q8_DWORDS);
    }
}

#if HAVE_COUNT
/* Shared memory of last_norm() in dwords: values of a row, partial sums, and
 * what quantizing needs. */
enum { LAST_HOLD = 1024, LAST_WORDS = LAST_HOLD + 64 + 2 * 256 + 32 };

/* Counts n units of work of a work group as finished. Returns true, for all of
 * its lanes, if they are the last of `all`. The group then sees all that the
 * others have written. The counter becomes 0 again, for the next launch. `flag`
 * is scratch in shared memory. */
DEV s32 is_last(GLOBAL u32 *count, u32 n, u32 all, LOCAL u32 *flag)
{
    BARRIER();
    if (LANE() == 0) {
        fence_();
        flag[0] = count_up(count, n) + n == all;
        if (flag[0])
            *count = 0;
        fence_();
    }
    BARRIER();
    return (s32)flag[0];
}

/* Computes the RMS norm of a row of d values, as the kernel rms_norm does, and
 * quantizes it if q8 is not 0. Has fewer loads in flight than the kernel,
 * because the kernels that call it keep little shared memory for it: `words`
 * has LAST_WORDS dwords. */
DEV void last_norm(GLOBAL const float *x, GLOBAL float *out,
                   GLOBAL const void *weight, s32 has_weight, s32 format, s64 d,
                   float eps, GLOBAL u32 *q8, s32 quantizes,
                   GLOBAL const struct text_span *span, s32 n_span, s32 n_part,
                   LOCAL u32 *words)
{
    LOCAL float *hold = (LOCAL float *)words, *part = hold + LAST_HOLD;
    LOCAL u32 *top = words + LAST_HOLD + 64, *top8 = top + 256;
    LOCAL s32 *sums = (LOCAL s32 *)(top8 + 32);
    s32 id = LANE();
    float s = 0, scale;

    UNROLL_NONE
    for (s64 at = 0; at < d; at += LAST_HOLD) {
        s32 n = d - at < LAST_HOLD ? (s32)(d - at) : LAST_HOLD;
        float v[LAST_HOLD / 256];

        UNROLL
        for (s32 k = 0; k < LAST_HOLD / 256; k++)
            v[k] = id + 256 * k < n ? x[at + id + 256 * k] : 0.0f;
        BARRIER();
        UNROLL
        for (s32 k = 0; k < LAST_HOLD / 256; k++)
            hold[id + 256 * k] = v[k];
        BARRIER();
        for (s32 i = id; id < 64 && i < n; i += 64)
            s = fma_(hold[i], hold[i], s);
    }
    if (id < 64)
        part[id] = s;
    BARRIER();
    if (id < 16)
        part[id] = add_(add_(part[id], part[id + 16]),
                        add_(part[id + 32], part[id + 48]));
    BARRIER();
    s = div_(sum16(part), int_float((s32)d));
    scale = div_(1.0f, sqrt_(add_(s, eps)));
    UNROLL_NONE
    for (s64 first = id; first < d; first += 4 * 256) {
        float v[4], w[4];

        UNROLL
        for (s32 k = 0; k < 4; k++) {
            s64 i = first + 256 * k;

            v[k] = i < d ? x[i] : 0;
            w[k] = has_weight && i < d ? value_at(weight, format, i) : 1;
        }
        UNROLL
        for (s32 k = 0; k < 4; k++) {
            s64 i = first + 256 * k;

            if (i < d)
                out[i] = mul_(mul_(v[k], scale), w[k]);
        }
    }
    BARRIER(); /* all lanes see the normalized row */
    UNROLL_NONE
    for (s32 unit = 0; quantizes && unit < row_units(n_span, n_part, d);
         unit += row_step(n_span)) {
        struct q8_part p = quantize_find(span, n_span, n_part, d, 1, unit, id);
        float y[4];

        UNROLL
        for (s32 i = 0; i < 4; i++)
            y[i] = 4 * p.lane < p.n ? out[p.at + 4 * p.lane + i] : 0;
        quantize_put(y, &p, n_span > 0, id, top, top8, sums, q8);
    }
    BARRIER(); /* the next row may use the shared memory */
}

/* Computes x op y for up to four rows `out` + j * step, n of them, of k values,
 * in TAIL_COLUMNS columns from c0 on, and quantizes them as the kernel quantize
 * does. A row is in one span, or in none. Shared memory is that of last_norm().
 * The loops are not unrolled, because many kernels have this code. */
DEV void last_values(GLOBAL const float *x, GLOBAL const float *y,
                     GLOBAL float *made, GLOBAL const float *z, s32 has_z,
                     GLOBAL float *product, GLOBAL u32 *q8, s32 quantizes,
                     s32 spans, s32 op, float lo, float hi, float alpha, s64 k,
                     s64 c0, s32 out, s32 step, s32 n, LOCAL u32 *words)
{
    LOCAL float *hold = (LOCAL float *)words;
    LOCAL u32 *top = words + LAST_HOLD + 64, *top8 = top + 256;
    LOCAL s32 *sums = (LOCAL s32 *)(top8 + 32);
    s32 id = LANE(), j = id / 64;
    s64 row = out + (s64)j * step;
    struct q8_part p;
    float v[4];

    BARRIER();
    UNROLL_NONE
    for (s32 r = 0; r < 4; r++) {
        s64 at = (out + (s64)r * step) * k + c0 + id;
        float value = 0;

        if (r < n && c0 + id < k) {
            value = binary_value(x[at], y[at], op, lo, hi, alpha);
            made[at] = value;
            if (has_z) {
                value = mul_(value, z[out + (s64)r * step]);
                product[at] = value;
            }
        }
        hold[256 * r + id] = value;
    }
    BARRIER();
    p.lane = spans ? id % 64 : id % 8;
    p.at = row * k + c0 + (spans ? 0 : id % 64 / 8 * 32);
    p.n = k - c0 < TAIL_COLUMNS ? (s32)(k - c0) : TAIL_COLUMNS;
    if (!spans)
        p.n = id % 64 / 8 * 32 < p.n ? 32 : 0;
    if (j >= n || !quantizes)
        p.n = 0;
    UNROLL
    for (s32 i = 0; i < 4; i++)
        v[i] = hold[4 * id + i];
    quantize_put(v, &p, spans, id, top, top8, sums, q8);
}
#endif

/* Returns the sum of a row's values, or that of the squares of (value - mean)
 * if `squares`, as 64 partial sums by index mod 64, ascending, and then a tree.
 * hold[NORM_HOLD] and part[64] are scratch in shared memory. */
DEV float layer_norm_sum(GLOBAL const float *x, s64 d, float mean, s32 squares,
                         LOCAL float *hold, LOCAL float *part)
{
    s32 id = LANE();
    float s = 0;

    for (s64 at = 0; at < d; at += NORM_HOLD) {
        s32 n = d - at < NORM_HOLD ? (s32)(d - at) : NORM_HOLD;

        BARRIER();
        UNROLL
        for (s32 k = 0; k < 16; k++)
            hold[id + 256 * k] = id + 256 * k < n ? x[at + id + 256 * k] : 0.0f;
        BARRIER();
        for (s32 i = id; id < 64 && i < n; i += 64) {
            float v = sub_(hold[i], mean);

            s = squares ? fma_(v, v, s) : add_(s, hold[i]);
        }
    }
    if (id < 64)
        part[id] = s;
    BARRIER();
    if (id < 16)
        part[id] = add_(add_(part[id], part[id + 16]),
                        add_(part[id + 32], part[id + 48]));
    BARRIER();
    return sum16(part);
}

/* Layer norm of a row of d values, x [n_row, d]. Lane i has the values i, i +
 * 256 and so on. Shared memory: NORM_HOLD values of the row and the partial
 * sums. Order of sums: that of layer_norm_sum(). */
KERNEL(layer_norm, struct layer_norm_args, 256)
{
    LOCAL_ARRAY(float, hold, NORM_HOLD);
    LOCAL_ARRAY(float, part, 64);
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * a.d;
    GLOBAL float *out = AT(float, a.out) + (s64)GROUP() * a.d;
    GLOBAL const void *weight = AT(const void, a.w);
    float n = int_float((s32)a.d), mean, scale;

    mean = div_(layer_norm_sum(x, a.d, 0.0f, 0, hold, part), n);
    scale = div_(layer_norm_sum(x, a.d, mean, 1, hold, part), n);
    scale = div_(1.0f, sqrt_(add_(scale, a.eps)));
    for (s64 i = LANE(); i < a.d; i += 256) {
        float v = mul_(sub_(x[i], mean), scale);

        out[i] = a.w ? mul_(v, value_at(weight, a.format, i)) : v;
    }
}

/* Returns the greatest of a row's values, or -infinity if all are NaN.
 * part[lanes] is scratch in shared memory. */
DEV float row_top(GLOBAL const float *x, s64 n, s32 lane, s32 lanes,
                  LOCAL float *part)
{
    float s = float_from_bits(0xff800000u);

    for (s64 i = lane; i < n; i += lanes)
        s = max_(x[i], s);
    part[lane] = s;
    BARRIER();
    for (s32 w = lanes / 2; w > 0; w >>= 1) {
        if (lane < w)
            part[lane] = max_(part[lane], part[lane + w]);
        BARRIER();
    }
    s = part[0];
    BARRIER();
    return s;
}

/* Returns the sum of exp(x - top) over a row, as 16 partial sums by index mod
 * 16. Stores the addends in `out`, which may be x, unless it is NULL. */
DEV float row_sum(GLOBAL const float *x, s64 n, float top, GLOBAL float *out,
                  s32 lane, s32 lanes, LOCAL float *part)
{
    float sum = 0;

    for (s64 i = lane; i < n + lane; i += lanes) {
        float v = 0;

        if (i < n)
            v = exp_(sub_(x[i], top));
        if (i < n && out)
            out[i] = v;
        part[lane] = v;
        BARRIER();
        for (s32 k = lane; lane < 16 && k < lanes; k += 16)
            sum = add_(sum, part[k]);
        BARRIER();
    }
    if (lane < 16)
        part[lane] = sum;
    BARRIER();
    sum = sum16(part);
    BARRIER();
    return sum;
}

/* Softmax of a row of d values, x [n_row, d]: out = exp(x - max) / sum. Lanes
 * have every 64th value. Shared memory: their partial results. Order of sums:
 * 16 partial sums by index mod 16, ascending, then the tree of sum16(). */
KERNEL(softmax, struct softmax_args, 64)
{
    LOCAL_ARRAY(float, part, 64);
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * a.d;
    GLOBAL float *out = AT(float, a.out) + (s64)GROUP() * a.d;
    float top = row_top(x, a.d, LANE(), 64, part);
    float sum = row_sum(x, a.d, top, out, LANE(), 64, part);

    for (s64 i = LANE(); i < a.d; i += 64)
        out[i] = div_(out[i], sum);
}

enum { STREAMS_MOST = 8 };

/* Divides value `id` of c [n, n] by (the sum of its row or column + eps). All
 * lanes call it; the first n * n have a value each. */
DEV void streams_divide(LOCAL float *c, s32 n, s32 column, float eps, s32 id)
{
    float sum = 0, v = 0;

    for (s32 k = 0; id < n * n && k < n; k++)
        sum = add_(sum, c[column ? k * n + id % n : id / n * n + k]);
    if (id < n * n)
        v = div_(c[id], add_(sum, eps));
    BARRIER();
    if (id < n * n)
        c[id] = v;
    BARRIER();
}

/* Weights of n streams, one row a work group (struct sinkhorn_args). Lanes: a
 * value each. Shared memory: the matrix. Order of sums: that of
 * device/cpu/cpu_streams_template.h. */
KERNEL(sinkhorn, struct sinkhorn_args, 64)
{
    LOCAL_ARRAY(float, c, STREAMS_MOST *STREAMS_MOST);
    s32 id = LANE(), n = a.n, d = n * (n + 2);
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * d;
    GLOBAL float *out = AT(float, a.out) + (s64)GROUP() * d;
    float top = 0;

    if (id < 2 * n) {
        float v = mul_(
            x[id], value_at(AT(const void, a.scale), a.scale_format, id / n));

        v = sigmoid_(
            add_(v, value_at(AT(const void, a.base), a.base_format, id)));
        out[id] = id < n ? add_(v, a.eps) : mul_(2.0f, v);
    }
    if (id < n * n)
        c[id] =
            add_(mul_(x[2 * n + id],
                      value_at(AT(const void, a.scale), a.scale_format, 2)),
                 value_at(AT(const void, a.base), a.base_format, 2 * n + id));
    BARRIER();
    if (id < n * n) {
        top = c[id / n * n];
        for (s32 k = 1; k < n; k++)
            top = c[id / n * n + k] > top ? c[id / n * n + k] : top;
        top = exp_(sub_(c[id], top));
    }
    BARRIER();
    if (id < n * n)
        c[id] = top;
    BARRIER();
    streams_divide(c, n, 0, 0, id);
    if (id < n * n)
        c[id] = add_(c[id], a.eps);
    BARRIER();
    for (s32 i = 0; i < a.n_iter; i++) {
        if (i > 0)
            streams_divide(c, n, 0, a.eps, id);
        streams_divide(c, n, 1, a.eps, id);
    }
    if (id < n * n)
        out[2 * n + id] = c[id];
}

/* Adds a value to streams and mixes them (struct mix_streams_args). Lanes: a
 * value of all streams each. Order of sums: streams ascending. */
KERNEL(mix_streams, struct mix_streams_args, 256)
{
    s32 parts = (s32)((a.e + 255) / 256), t = GROUP() / parts, n = a.n;
    s64 i = (s64)(GROUP() % parts) * 256 + LANE();
    GLOBAL const float *x = AT(const float, a.x) + (s64)t * n * a.e + i;
    GLOBAL const float *w = AT(const float, a.w) + (s64)t * n * (n + 1);
    GLOBAL float *out = AT(float, a.out) + (s64)t * n * a.e + i;

    if (i >= a.e)
        return;
    for (s32 to = 0; to < n; to++) {
        float s = mul_(w[to], AT(const float, a.y)[(s64)t * a.e + i]);

        for (s32 k = 0; k < n; k++)
            s = fma_(w[n + k * n + to], x[k * a.e], s);
        out[to * a.e] = s;
    }
}

/* Sums the u rows of each of x [n, u, d]. A lane computes one column: it adds
 * the rows of each rank in ascending order, then the sums of the ranks along
 * the rank tree. No shared memory. */
KERNEL(sum, struct sum_args, 256)
{
    float stack[TEXT_RANKS];
    s32 blocks = (s32)((a.d + 255) / 256), top = 0;
    s64 row = GROUP() / blocks;
    s64 col = (s64)(GROUP() % blocks) * 256 + LANE();

    if (col < a.d) {
        GLOBAL const float *x = AT(const float, a.x) + row * a.u * a.d + col;
        GLOBAL const struct text_span *span =
            AT(const struct text_span, a.span);
        GLOBAL const struct text_item *item =
            AT(const struct text_item, a.item);

        for (s32 i = 0; i < a.n_item; i++) {
            float s = 0;

            for (s64 u = 0; a.n_span == 0 && item[i].rank == 0 && u < a.u; u++)
                s = add_(s, x[u * a.d]);
            for (s32 k = 0; k < a.n_span; k++) {
                GLOBAL const float *y = x + span[k].here * a.d;

                for (s64 u = 0; span[k].rank == item[i].rank && u < span[k].n;
                     u++)
                    s = add_(s, y[u * a.d]);
            }
            for (s32 k = 0; k < item[i].n_add; k++)
                s = add_(stack[--top], s);
            stack[top++] = s;
        }
        for (s32 i = 0; i < top; i++)
            ((GLOBAL float *)(AT(u8, a.out) +
                              (u64)i * (u64)a.out_stride))[row * a.d + col] =
                stack[i];
    }
}
