/* Kernels on rows of the last dimension: a group a row. Orders of sums are
 * those of device/cpu/cpu_rows_template.h. */

KERNEL(rms_norm, struct rms_norm_args, 256)
{
    LOCAL_ARRAY(float, part, 64);
    LOCAL_ARRAY(float, scale, 1);
    s32 id = LANE();
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * a.d;
    GLOBAL float *out = AT(float, a.out) + (s64)GROUP() * a.d;

    if (id < 64) {
        float s = 0;

        for (s64 i = id; i < a.d; i += 64)
            s = fma_(x[i], x[i], s);
        part[id] = s;
    }
    BARRIER();
    if (id < 16)
        part[id] = add_(add_(part[id], part[id + 16]),
                        add_(part[id + 32], part[id + 48]));
    BARRIER();
    if (id == 0) {
        float mean = div_(sum16(part), int_float((s32)a.d));

        scale[0] = div_(1.0f, sqrt_(add_(mean, a.eps)));
    }
    BARRIER();
    for (s64 i = id; i < a.d; i += 256) {
        float v = mul_(x[i], scale[0]);

        if (a.w)
            v = mul_(v, value_at(AT(const void, a.w), a.format, i));
        out[i] = v;
    }
}

/* out = exp(x - max) / sum, sums by index mod 16. */
KERNEL(softmax, struct softmax_args, 64)
{
    LOCAL_ARRAY(float, part, 16);
    s32 id = LANE();
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * a.d;
    GLOBAL float *out = AT(float, a.out) + (s64)GROUP() * a.d;
    float top, sum = 0;

    if (id < 16) {
        float s = float_from_bits(0xff800000u);

        for (s64 i = id; i < a.d; i += 16)
            s = max_(x[i], s);
        part[id] = s;
    }
    BARRIER();
    top = top16(part);
    BARRIER();
    if (id < 16) {
        for (s64 i = id; i < a.d; i += 16) {
            float v = exp_(sub_(x[i], top));

            out[i] = v;
            sum = add_(sum, v);
        }
        part[id] = sum;
    }
    BARRIER();
    sum = sum16(part);
    for (s64 i = id; i < a.d; i += 64)
        out[i] = div_(out[i], sum);
}
