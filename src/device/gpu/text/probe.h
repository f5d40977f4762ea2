/* Kernel probe of the self-test (gpu_selftest.c): computes each arithmetic
 * operation that kernels use. A lane reads three words and writes the result of
 * every operation on them. All NaNs become one bit pattern, because their bits
 * may differ between devices. */

DEV u32 probe_float(float x)
{
    return x != x ? 0x7fc00000u : float_bits(x);
}

DEV u32 probe_half(u32 h)
{
    return (h & 0x7fffu) > 0x7c00u ? 0x7e00u : h;
}

DEV void probe_floats(GLOBAL u32 *out, float x, float y, float z)
{
    out[PROBE_ADD] = probe_float(add_(x, y));
    out[PROBE_SUB] = probe_float(sub_(x, y));
    out[PROBE_MUL] = probe_float(mul_(x, y));
    out[PROBE_DIV] = probe_float(div_(x, y));
    out[PROBE_FMA] = probe_float(fma_(x, y, z));
    out[PROBE_MUL_ADD] = probe_float(add_(mul_(x, y), z));
    out[PROBE_SQRT] = probe_float(sqrt_(x));
    out[PROBE_RINT] = probe_float(rint_(x));
    out[PROBE_TO_F16] = probe_half(f32_to_f16(x));
    out[PROBE_TO_BF16] = x != x ? 0x7fc0u : float_bf16(x);
    out[PROBE_EXP] = probe_float(exp_(x));
    out[PROBE_TANH] = probe_float(tanh_(x));
}

/* Computes the operations on doubles. `pos` is a token's position. x serves as
 * an angle in radians if it is in [0, 1). */
DEV void probe_doubles(GLOBAL u32 *out, double x, double y, s32 pos)
{
    float co, si;

    out[PROBE_DADD] = probe_float(double_float(dadd_(x, y)));
    out[PROBE_DMUL] = probe_float(double_float(dmul_(x, y)));
    out[PROBE_DDIV] = probe_float(double_float(ddiv_(x, y)));
    out[PROBE_DSUB] = probe_float(double_float(dsub_(dadd_(x, y), x)));
    rope_cos_sin(x < 0 ? 1.0 : x < 1.0 ? x : 0.5, pos, 1.0, &co, &si);
    out[PROBE_COS] = probe_float(co);
    out[PROBE_SIN] = probe_float(si);
}

/* Computes each operation of the prelude for n triples x [n, 3] of words: out
 * [n, PROBE_COUNT]. A lane has one triple. No shared memory. */
KERNEL(probe, struct probe_args, 64)
{
    s32 i = GROUP() * 64 + LANE();

    if (i < a.n) {
        GLOBAL const u32 *x = AT(const u32, a.x) + (s64)i * 3;
        GLOBAL u32 *out = AT(u32, a.out) + (s64)i * PROBE_COUNT;

        probe_floats(out, float_from_bits(x[0]), float_from_bits(x[1]),
                     float_from_bits(x[2]));
        probe_doubles(out, (double)float_from_bits(x[0]),
                      (double)float_from_bits(x[1]), (s32)(x[2] & 0xfffff));
        out[PROBE_FROM_F16] = probe_float(f16_to_f32((u16)x[0]));
        out[PROBE_DOT4] = (u32)dot4(x[0], x[1], (s32)(x[2] & 0xffffff));
        out[PROBE_INT] = float_bits(int_float((s32)x[0]));
    }
}
