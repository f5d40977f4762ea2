/* Reads and writes an element of an unpacked tensor by its format, and adds 16
 * partial sums. */

/* Keeps the compiler of CUDA from unrolling a loop that rarely runs. */
#ifdef __CUDACC__
#define UNROLL_NONE _Pragma("unroll 1")
#else
#define UNROLL_NONE
#endif

DEV float bf16_float(u16 h)
{
    return float_from_bits((u32)h << 16);
}

DEV u16 float_bf16(float x)
{
    u32 u = float_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (u16)(u >> 16 | 64); /* a NaN becomes a quiet NaN */
    return (u16)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

DEV float value_at(GLOBAL const void *p, s32 format, s64 i)
{
    if (format == TEXT_F32)
        return ((GLOBAL const float *)p)[i];
    if (format == TEXT_F16)
        return f16_to_f32(((GLOBAL const u16 *)p)[i]);
    return bf16_float(((GLOBAL const u16 *)p)[i]);
}

DEV void value_put(GLOBAL void *p, s32 format, s64 i, float x)
{
    if (format == TEXT_F32)
        ((GLOBAL float *)p)[i] = x;
    else if (format == TEXT_F16)
        ((GLOBAL u16 *)p)[i] = f32_to_f16(x);
    else
        ((GLOBAL u16 *)p)[i] = float_bf16(x);
}

/* sum16() adds 16 partial sums along the tree i + (i + 8), then + 4, + 2, + 1.
 * top16() returns the greatest of 16 values along the same tree. */
DEV float sum16(LOCAL const float *p)
{
    float s[8];

    for (s32 i = 0; i < 8; i++)
        s[i] = add_(p[i], p[i + 8]);
    for (s32 n = 4; n > 0; n >>= 1)
        for (s32 i = 0; i < n; i++)
            s[i] = add_(s[i], s[i + n]);
    return s[0];
}

DEV float top16(LOCAL const float *p)
{
    float s[8];

    for (s32 i = 0; i < 8; i++)
        s[i] = max_(p[i], p[i + 8]);
    for (s32 n = 4; n > 0; n >>= 1)
        for (s32 i = 0; i < n; i++)
            s[i] = max_(s[i], s[i + n]);
    return s[0];
}

/* Returns the offset of element i of a tensor with n elements, in elements.
 * dim[] are the tensor's dimensions, the innermost first, and stride[] its
 * strides. Divides in 32 bits if n fits, because GPUs take many times as long
 * to divide 64-bit numbers. */
DEV s64 strided(s64 i, s64 n, const s64 *dim, const s64 *stride)
{
    s64 at = 0;

    if (n < 0x7fffffff) {
        u32 rest = (u32)i;

        UNROLL
        for (s32 d = 0; d < TEXT_DIM; d++) {
            u32 m = (u32)dim[d], next = rest / m;

            at += (s64)(rest - next * m) * stride[d];
            rest = next;
        }
        return at;
    }
    UNROLL
    for (s32 d = 0; d < TEXT_DIM; d++) {
        at += i % dim[d] * stride[d];
        i /= dim[d];
    }
    return at;
}

/* Four floats that are loaded from shared memory at once. An array declared
 * with this type has the alignment for that; it is read and written as floats,
 * too. */
struct __attribute__((aligned(16))) quad {
    float x, y, z, w;
};

/* Copies p[0] to p[3] to x[]. p must be aligned like struct quad. */
DEV void quad_get(float *x, LOCAL const float *p)
{
    struct quad q = *(LOCAL const struct quad *)p;

    x[0] = q.x;
    x[1] = q.y;
    x[2] = q.z;
    x[3] = q.w;
}

/* Two floats, aligned so that one load brings both. */
struct __attribute__((aligned(8))) pair {
    float x, y;
};
DEV void pair_get(float *x, LOCAL const float *p)
{
    struct pair d = *(LOCAL const struct pair *)p;

    x[0] = d.x;
    x[1] = d.y;
}

/* Four or two 32-bit words that are loaded or stored at once, like struct
 * quad. */
struct __attribute__((aligned(16))) dwords {
    u32 x, y, z, w;
};
struct __attribute__((aligned(8))) dwords2 {
    u32 x, y;
};

/* Copy p[0] to p[3], or p[0] and p[1], to x[], or x[] to p[]. p must be aligned
 * like the struct. */
DEV void dwords_get(u32 *x, LOCAL const u32 *p)
{
    struct dwords d = *(LOCAL const struct dwords *)p;

    x[0] = d.x;
    x[1] = d.y;
    x[2] = d.z;
    x[3] = d.w;
}
DEV void dwords_fetch(u32 *x, GLOBAL const u32 *p)
{
    struct dwords d = *(GLOBAL const struct dwords *)p;

    x[0] = d.x;
    x[1] = d.y;
    x[2] = d.z;
    x[3] = d.w;
}
DEV void dwords_put(LOCAL u32 *p, u32 x, u32 y, u32 z, u32 w)
{
    struct dwords d;

    d.x = x;
    d.y = y;
    d.z = z;
    d.w = w;
    *(LOCAL struct dwords *)p = d;
}
DEV void dwords2_get(u32 *x, LOCAL const u32 *p)
{
    struct dwords2 d = *(LOCAL const struct dwords2 *)p;

    x[0] = d.x;
    x[1] = d.y;
}
DEV void dwords2_fetch(u32 *x, GLOBAL const u32 *p)
{
    u64 d = *(GLOBAL const u64 *)p;

    x[0] = (u32)d;
    x[1] = (u32)(d >> 32);
}
DEV void dwords2_put(LOCAL u32 *p, u32 x, u32 y)
{
    struct dwords2 d;

    d.x = x;
    d.y = y;
    *(LOCAL struct dwords2 *)p = d;
}
