/* C functions that compute the same as the PTX instructions of the compiled
 * kernels. scripts/ptx_to_c.py translates a kernel's PTX into a C function that
 * calls them and executes one lane. They follow NVIDIA's "PTX ISA". They do not
 * use the preludes of the kernel source, because they serve to check these.
 *
 * A register is u16, u32, u64, float, double or, for predicates, bool. Integer
 * registers are unsigned; the type in an instruction's name says how it
 * interprets them. */
#ifndef TEST_PTX_OPS_H
#define TEST_PTX_OPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "emu/emu_run.h"
/* the types u8 to s64, and the kernels' arguments */
#include "device/gpu/gpu_launch.h"

typedef float f32;
typedef double f64;

#define PTX static inline __attribute__((unused))
/* Marks long functions, which must not be inlined: a kernel has up to ten
 * thousand instructions and must compile fast. */
#define PTX_APART static __attribute__((unused, noinline))

/* ---- reinterpreted registers --------------------------------------------- */

PTX u64 double_bits(double a)
{
    u64 u;

    memcpy(&u, &a, sizeof u);
    return u;
}
PTX double double_from_bits(u64 a)
{
    double f;

    memcpy(&f, &a, sizeof f);
    return f;
}

/* ---- memory -------------------------------------------------------------- */

/* Records a fault if an access of `bytes` bytes at address `at` is not allowed.
 * `at` must be a multiple of `bytes`, else a GPU would abort the kernel. An
 * instruction for `shared` memory must access the group's shared arrays. One
 * for `global` memory must not. */
PTX_APART void ptx_touch(u64 at, size_t bytes, bool shared, bool global)
{
    if (at % bytes)
        emu_fault("it accesses memory at a misaligned address");
    if ((shared && !emu_shares(at)) || (global && emu_shares(at)))
        emu_fault("it confuses shared and global memory");
}

#define MEMORY(space, type)                                                    \
    PTX type ptx_ld_##space##_##type(u64 at)                                   \
    {                                                                          \
        type value;                                                            \
                                                                               \
        ptx_touch(at, sizeof value, SPACE_##space);                            \
        memcpy(&value, (const void *)(uintptr_t)at, sizeof value);             \
        return value;                                                          \
    }                                                                          \
    PTX void ptx_st_##space##_##type(u64 at, type value)                       \
    {                                                                          \
        ptx_touch(at, sizeof value, SPACE_##space);                            \
        memcpy((void *)(uintptr_t)at, &value, sizeof value);                   \
    }                                                                          \
    PTX void ptx_ld_##space##_v2_##type(u64 at, type *to)                      \
    {                                                                          \
        ptx_touch(at, 2 * sizeof *to, SPACE_##space);                          \
        memcpy(to, (const void *)(uintptr_t)at, 2 * sizeof *to);               \
    }                                                                          \
    PTX void ptx_ld_##space##_v4_##type(u64 at, type *to)                      \
    {                                                                          \
        ptx_touch(at, 4 * sizeof *to, SPACE_##space);                          \
        memcpy(to, (const void *)(uintptr_t)at, 4 * sizeof *to);               \
    }                                                                          \
    PTX void ptx_st_##space##_v2_##type(u64 at, const type *from)              \
    {                                                                          \
        ptx_touch(at, 2 * sizeof *from, SPACE_##space);                        \
        memcpy((void *)(uintptr_t)at, from, 2 * sizeof *from);                 \
    }                                                                          \
    PTX void ptx_st_##space##_v4_##type(u64 at, const type *from)              \
    {                                                                          \
        ptx_touch(at, 4 * sizeof *from, SPACE_##space);                        \
        memcpy((void *)(uintptr_t)at, from, 4 * sizeof *from);                 \
    }
#define SPACE_shared true, false
#define SPACE_global false, true
#define SPACE_local  false, false
#define SPACE_param  false, false
#define MEMORY_OF(space)                                                       \
    MEMORY(space, u8)                                                          \
    MEMORY(space, s8)                                                          \
    MEMORY(space, u16)                                                         \
    MEMORY(space, s16)                                                         \
    MEMORY(space, u32)                                                         \
    MEMORY(space, s32)                                                         \
    MEMORY(space, u64)                                                         \
    MEMORY(space, s64)                                                         \
    MEMORY(space, f32)                                                         \
    MEMORY(space, f64)
MEMORY_OF(shared)
MEMORY_OF(global)
MEMORY_OF(local)
MEMORY_OF(param)
#undef MEMORY_OF
#undef MEMORY

/* Adds n to a word as one access, and returns its earlier value. */
PTX u32 ptx_atom_global_add_u32(u64 at, u32 n)
{
    u32 old = ptx_ld_global_u32(at);

    ptx_st_global_u32(at, old + n);
    return old;
}

/* Reads the byte to prefetch, so that a wrong address ends the process or
 * AddressSanitizer reports it. On a GPU a prefetch never faults. The kernels
 * prefetch weights only. */
PTX void ptx_prefetch_global_L2(u64 at)
{
    (void)*(const volatile u8 *)(uintptr_t)at;
}

/* Copies that run beside the kernel. */
PTX void ptx_cp_async(u64 to, u64 from, size_t bytes)
{
    emu_copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}
PTX void ptx_cp_async_wait_all(void)
{
    emu_copy_wait();
}

/* ---- integers ------------------------------------------------------------ */

#define ONE(name, type, expression)                                            \
    PTX type ptx_##name(type a)                                                \
    {                                                                          \
        return (type)(expression);                                             \
    }
#define TWO(name, type, expression)                                            \
    PTX type ptx_##name(type a, type b)                                        \
    {                                                                          \
        return (type)(expression);                                             \
    }

#define INTEGERS(bits)                                                         \
    TWO(add_s##bits, u##bits, a + b)                                           \
    TWO(add_u##bits, u##bits, a + b)                                           \
    TWO(sub_s##bits, u##bits, a - b)                                           \
    TWO(mul_lo_s##bits, u##bits, (u64)a *b)                                    \
    TWO(and_b##bits, u##bits, a &b)                                            \
    TWO(or_b##bits, u##bits, a | b)                                            \
    TWO(xor_b##bits, u##bits, a ^ b)                                           \
    ONE(not_b##bits, u##bits, ~a)                                              \
    ONE(neg_s##bits, u##bits, 0 - (u64)a)                                      \
    TWO(min_s##bits, u##bits, (s##bits)a < (s##bits)b ? a : b)                 \
    TWO(max_s##bits, u##bits, (s##bits)a > (s##bits)b ? a : b)                 \
    TWO(min_u##bits, u##bits, a < b ? a : b)                                   \
    TWO(max_u##bits, u##bits, a > b ? a : b)                                   \
    PTX u##bits ptx_shl_b##bits(u##bits a, u32 n)                              \
    {                                                                          \
        return (u##bits)(n < bits ? (u64)a << n : 0);                          \
    }                                                                          \
    PTX u##bits ptx_shr_u##bits(u##bits a, u32 n)                              \
    {                                                                          \
        return (u##bits)(n < bits ? a >> n : 0);                               \
    }                                                                          \
    PTX u##bits ptx_shr_s##bits(u##bits a, u32 n)                              \
    {                                                                          \
        return (u##bits)((s##bits)a >> (n < bits ? n : bits - 1));             \
    }                                                                          \
    /* Division by zero does not fault; the value is unspecified. */           \
    TWO(div_u##bits, u##bits, b ? a / b : ~(u##bits)0)                         \
    TWO(rem_u##bits, u##bits, b ? a % b : a)                                   \
    PTX u##bits ptx_div_s##bits(u##bits a, u##bits b)                          \
    {                                                                          \
        if ((s##bits)b == -1)                                                  \
            return (u##bits)(0 - (u64)a);                                      \
        return b ? (u##bits)((s##bits)a / (s##bits)b) : (u##bits) ~0;          \
    }                                                                          \
    PTX u##bits ptx_rem_s##bits(u##bits a, u##bits b)                          \
    {                                                                          \
        if ((s##bits)b == -1)                                                  \
            return 0;                                                          \
        return b ? (u##bits)((s##bits)a % (s##bits)b) : a;                     \
    }
INTEGERS(16)
INTEGERS(32)
INTEGERS(64)
#undef INTEGERS

PTX u64 ptx_mul_wide_s32(u32 a, u32 b)
{
    return (u64)((s64)(s32)a * (s32)b);
}
PTX u64 ptx_mul_wide_u32(u32 a, u32 b)
{
    return (u64)a * b;
}
PTX u32 ptx_mul_wide_u16(u16 a, u16 b)
{
    return (u32)a * b;
}
PTX u32 ptx_mul_hi_u32(u32 a, u32 b)
{
    return (u32)((u64)a * b >> 32);
}
PTX u32 ptx_mul_hi_s32(u32 a, u32 b)
{
    return (u32)((u64)((s64)(s32)a * (s32)b) >> 32);
}
PTX u32 ptx_mad_lo_s32(u32 a, u32 b, u32 c)
{
    return a * b + c;
}
/* Returns the n bits of a that begin at bit `at`. */
PTX_APART u32 ptx_bfe_u32(u32 a, u32 at, u32 n)
{
    u32 out = 0;

    for (u32 i = 0; i < (n & 255) && (at & 255) + i < 32; i++)
        out |= (a >> ((at & 255) + i) & 1) << i;
    return out;
}
/* Like ptx_bfe_u32, but extends the sign, which is the highest of the n bits,
 * over the result. If the n bits extend beyond bit 31, bit 31 is the sign. */
PTX_APART u32 ptx_bfe_s32(u32 a, u32 at, u32 n)
{
    u32 out = 0, top;

    at &= 255;
    n &= 255;
    if (n == 0)
        return 0;
    top = at + n - 1 < 31 ? at + n - 1 : 31;
    for (u32 i = 0; i < 32; i++)
        out |= (a >> (i < n && at + i < 32 ? at + i : top) & 1) << i;
    return out;
}
/* Returns b with the n bits that begin at bit `at` replaced by the low n bits
 * of a. */
PTX_APART u32 ptx_bfi_b32(u32 a, u32 b, u32 at, u32 n)
{
    for (u32 i = 0; i < (n & 255) && (at & 255) + i < 32; i++) {
        u32 bit = (u32)1 << ((at & 255) + i);

        b = (a >> i & 1) ? b | bit : b & ~bit;
    }
    return b;
}
/* Returns four bytes, each selected by one nibble of `select`. The low three
 * bits of the nibble are an index into the bytes of a (0 to 3) and b (4 to 7).
 * If its fourth bit is set, the byte is replaced by its sign, 0 or 0xFF. */
PTX_APART u32 ptx_prmt_b32(u32 a, u32 b, u32 select)
{
    u8 byte[8];
    u32 out = 0;

    memcpy(byte, &a, 4);
    memcpy(byte + 4, &b, 4);
    for (int i = 3; i >= 0; i--) {
        u32 nibble = select >> (4 * i) & 15;
        u8 one = byte[nibble & 7];

        if (nibble & 8)
            one = one >= 128 ? 0xFF : 0;
        out = out << 8 | one;
    }
    return out;
}
PTX_APART u32 ptx_dp4a_s32_s32(u32 a, u32 b, u32 c)
{
    s8 x[4], y[4];

    memcpy(x, &a, 4);
    memcpy(y, &b, 4);
    for (int i = 0; i < 4; i++)
        c += (u32)(x[i] * y[i]);
    return c;
}

/* Returns c plus the products of the two signed halves of a with the two low
 * bytes of b. */
PTX u32 ptx_dp2a_lo_s32_u32(u32 a, u32 b, u32 c)
{
    return c + (u32)((s16)a * (s32)(b & 255)) +
           (u32)((s16)(a >> 16) * (s32)(b >> 8 & 255));
}

/* ---- matrices ------------------------------------------------------------ */

/* The instruction mma.m16n8kK.row.col for bytes, K = 16 n: D = A B + C in
 * int32, where A is [16][K] in row order and B is [K][8] in column order.
 * a_signed and b_signed say whether the bytes of A and of B are signed. The
 * layout is that of the figures "Matrix Fragments for mma.m16n8k16" and "...
 * .m16n8k32". Lane L, with group = L / 4 and t = L % 4, holds:
 *   byte i of A: row group, or group + 8 if i & 4; column 4 t + i % 4, and 16
 *           more if i >= 8;
 *   byte i of B: row 4 t + i % 4, and 16 more if i >= 4; column group;
 *   element i of C and D: row group, or group + 8 if i >= 2; column
 *           2 t + i % 2. */
PTX_APART void ptx_mma(u32 *d, const u32 *a, const u32 *b, const u32 *c, int n,
                       bool a_signed, bool b_signed)
{
    s32 warp = emu_now.lane - emu_now.lane % 32, lane = emu_now.lane % 32;
    s32 left[16][32], right[32][8];

    memcpy(emu_exchange(emu_now.lane), a, (size_t)n * 8);
    memcpy(emu_exchange(emu_now.lane) + 4, b, (size_t)n * 4);
    emu_wave(32);
    for (int l = 0; l < 32; l++) {
        const u8 *at = (const u8 *)emu_exchange(warp + l);
        int group = l / 4, t = l % 4;

        for (int i = 0; i < 8 * n; i++)
            left[group + (i & 4 ? 8 : 0)][4 * t + i % 4 + (i >= 8 ? 16 : 0)] =
                a_signed ? (s8)at[i] : at[i];
        for (int i = 0; i < 4 * n; i++)
            right[4 * t + i % 4 + (i >= 4 ? 16 : 0)][group] =
                b_signed ? (s8)at[16 + i] : at[16 + i];
    }
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;

        d[i] = c[i];
        for (int k = 0; k < 16 * n; k++)
            d[i] += (u32)(left[row][k] * right[k][column]);
    }
    emu_wave(32);
}

/* ---- floats -------------------------------------------------------------- */

TWO(add_rn_f32, f32, a + b)
TWO(sub_rn_f32, f32, a - b)
TWO(mul_rn_f32, f32, a *b)
TWO(div_rn_f32, f32, a / b)
ONE(sqrt_rn_f32, f32, sqrtf(a))
ONE(abs_f32, f32, fabsf(a))
ONE(neg_f32, f32, -a)
TWO(add_rn_f64, f64, a + b)
TWO(sub_rn_f64, f64, a - b)
TWO(mul_rn_f64, f64, a *b)
TWO(div_rn_f64, f64, a / b)
PTX f32 ptx_fma_rn_f32(f32 a, f32 b, f32 c)
{
    return fmaf(a, b, c);
}
/* Returns the greater operand. If one is NaN, returns the other. +0 is greater
 * than -0. */
PTX_APART f32 ptx_max_f32(f32 a, f32 b)
{
    if (isnan(a) || (a == b && signbit(a)))
        return b;
    return isnan(b) || a >= b ? a : b;
}

/* ---- comparisons --------------------------------------------------------- */

#define COMPARE(type, as)                                                      \
    PTX bool ptx_setp_eq_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a == (type)b;                                             \
    }                                                                          \
    PTX bool ptx_setp_ne_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a != (type)b;                                             \
    }                                                                          \
    PTX bool ptx_setp_lt_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a < (type)b;                                              \
    }                                                                          \
    PTX bool ptx_setp_le_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a <= (type)b;                                             \
    }                                                                          \
    PTX bool ptx_setp_gt_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a > (type)b;                                              \
    }                                                                          \
    PTX bool ptx_setp_ge_##type(as a, as b)                                    \
    {                                                                          \
        return (type)a >= (type)b;                                             \
    }
typedef u32 b32;
typedef u64 b64;
COMPARE(s16, u16)
COMPARE(u16, u16)
COMPARE(s32, u32)
COMPARE(u32, u32)
COMPARE(b32, u32)
COMPARE(s64, u64)
COMPARE(u64, u64)
COMPARE(b64, u64)
#undef COMPARE
/* Comparisons of floats. They return false if an operand is NaN, except `leu`,
 * `neu` and `nan`. */
#define COMPARE(type)                                                          \
    PTX bool ptx_setp_eq_##type(type a, type b)                                \
    {                                                                          \
        return a == b;                                                         \
    }                                                                          \
    PTX bool ptx_setp_lt_##type(type a, type b)                                \
    {                                                                          \
        return a < b;                                                          \
    }                                                                          \
    PTX bool ptx_setp_gt_##type(type a, type b)                                \
    {                                                                          \
        return a > b;                                                          \
    }                                                                          \
    PTX bool ptx_setp_le_##type(type a, type b)                                \
    {                                                                          \
        return a <= b;                                                         \
    }                                                                          \
    PTX bool ptx_setp_neu_##type(type a, type b)                               \
    {                                                                          \
        return !(a == b);                                                      \
    }                                                                          \
    PTX bool ptx_setp_leu_##type(type a, type b)                               \
    {                                                                          \
        return !(a > b);                                                       \
    }                                                                          \
    PTX bool ptx_setp_nan_##type(type a, type b)                               \
    {                                                                          \
        return isnan(a) || isnan(b);                                           \
    }                                                                          \
    PTX bool ptx_setp_num_##type(type a, type b)                               \
    {                                                                          \
        return !isnan(a) && !isnan(b);                                         \
    }
COMPARE(f32)
COMPARE(f64)
#undef COMPARE
TWO(and_pred, bool, a &&b)
TWO(or_pred, bool, a || b)
TWO(xor_pred, bool, a != b)
ONE(not_pred, bool, !a)

/* ---- conversions --------------------------------------------------------- */

/* Conversions. If the register is wider than the type `from`, its low bits are
 * converted. */
#define CONVERT(to, type, from, as)                                            \
    PTX type ptx_cvt_##to##_##from(as a)                                       \
    {                                                                          \
        return (type)(to)(from)a;                                              \
    }
CONVERT(u16, u16, u32, u64)
CONVERT(u16, u16, u64, u64)
CONVERT(u32, u32, u16, u64)
CONVERT(u32, u32, u64, u64)
CONVERT(u64, u64, u32, u64)
CONVERT(s32, u32, s8, u64)
CONVERT(s32, u32, s16, u64)
CONVERT(s64, u64, s32, u64)
CONVERT(f64, f64, f32, f32)
#undef CONVERT
PTX_APART f32 ptx_cvt_f32_f16(u16 a)
{
    return f16_to_f32(a);
}
PTX_APART u16 ptx_cvt_rn_f16_f32(f32 a)
{
    return f32_to_f16(a);
}
PTX f32 ptx_cvt_rn_f32_s32(u32 a)
{
    return (f32)(s32)a;
}
PTX f32 ptx_cvt_rn_f32_f64(f64 a)
{
    return (f32)a;
}
PTX f64 ptx_cvt_rn_f64_s32(u32 a)
{
    return (s32)a;
}
/* Returns the nearest integer, the closest one that exists if s32 has none, and
 * 0 for NaN. */
PTX u32 ptx_cvt_rni_s32_f32(f32 a)
{
    f32 r = rintf(a);

    if (isnan(r))
        return 0;
    return r >= 0x1p31f    ? INT32_MAX
           : r <= -0x1p31f ? (u32)INT32_MIN
                           : (u32)(s32)r;
}
PTX f32 ptx_cvt_rni_f32_f32(f32 a)
{
    return rintf(a);
}
#undef ONE
#undef TWO

#endif
