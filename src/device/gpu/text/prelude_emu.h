/* What the kernels' text stands on, for the emulator (emu/emu_run.h): plain C.
 *
 * All preludes define the same. Types u8 .. s64, float and double. KERNEL(name,
 * arguments, lanes) begins a kernel, whose arguments are `a`; KERNEL_DENSE one
 * of many registers, of which two groups should fit a unit; KERNEL_AHEAD is
 * such a one that does something before AWAIT(), where the launches that it
 * comes after may be under way yet: nothing but to PREFETCH() weights, of a
 * device's memory. DEV is a function of the device. A kernel is run by groups
 * of so many lanes: LANE() in GROUP() of N_GROUP(). LOCAL_ARRAY is memory that
 * a group's lanes share; it stands at the top of a kernel. All lanes of a group
 * come to each BARRIER(), or none does.
 * AT(type, address) is the pointer to what an argument names: the argument
 * itself, so that the compiler sees whose it is; what one adds to it is added
 * to the pointer. AT_HELD takes an address that stood in memory. Only kernels
 * have them, not functions of the device. UNROLL stands before a `for` of known
 * count which indexes an array that should stay in registers. HAVE_PRMT,
 * HAVE_MMA_S8_16832, HAVE_MFMA_I8 and HAVE_WMMA_I8 say that there is more,
 * below.
 *
 * Every operation on floats is a call, since compilers may fuse what they see
 * as expressions: add_ sub_ mul_ div_ fma_ sqrt_ rint_ abs_, of doubles dadd_
 * dsub_ dmul_ ddiv_. Comparisons, assignments and negation are as in C. The
 * text includes nothing, and takes no name from OpenCL, CUDA or C. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "device/gpu/emu/emu_run.h"

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

#define UNROLL
#define KERNEL(name, args, lanes)       DEV void text_##name(const args a)
#define KERNEL_DENSE(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_AHEAD(name, args, lanes) KERNEL(name, args, lanes)
#define DEV                             static inline
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, n) type *name = emu_local((n) * sizeof(type))
#define AT(type, address)          ((type *)(uintptr_t)(address))
#define AT_HELD(type, address)     AT(type, address)
#define LANE()                     emu_now.lane
#define GROUP()                    emu_now.group
#define N_GROUP()                  emu_now.n_group
#define BARRIER()                  emu_barrier()
#define AWAIT()
/* A byte is read, so that one which is not there shows. */
#define PREFETCH(address) ((void)*AT(const volatile u8, address))

#include "plain_ops.h"

DEV float fma_(float a, float b, float c)
{
    return fmaf(a, b, c);
}
DEV float sqrt_(float a)
{
    return sqrtf(a);
}
DEV float rint_(float a)
{
    return rintf(a);
}
DEV float abs_(float a)
{
    return fabsf(a);
}
DEV u64 double_bits(double a)
{
    u64 u;

    memcpy(&u, &a, sizeof(u));
    return u;
}
DEV double double_from_bits(u64 a)
{
    double f;

    memcpy(&f, &a, sizeof(f));
    return f;
}
/* The nearest float, ties to even. */
DEV float int_float(s32 a)
{
    return (float)a;
}
DEV float double_float(double a)
{
    return (float)a;
}
/* a is a whole number that an s32 holds. */
DEV s32 float_int(float a)
{
    return (s32)a;
}
/* Four products of signed bytes, added to c. */
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    for (int i = 0; i < 32; i += 8)
        c += (s8)(a >> i) * (s8)(b >> i);
    return c;
}
/* HAVE_PRMT: a dword of any four bytes of a and b, by four nibbles of s: 0 .. 7
 * the byte, a's first; 8 added: its sign in all bits. From here on it depends
 * on which GPU is played: EMU_CUDA, EMU_MFMA, EMU_WMMA, or none of them. */
#ifdef EMU_CUDA
#define HAVE_PRMT 1
DEV u32 prmt_(u32 a, u32 b, u32 s)
{
    u64 from = (u64)b << 32 | a;
    u32 out = 0;

    for (int i = 0; i < 4; i++) {
        u32 byte = (u32)(from >> (s >> 4 * i & 7) * 8) & 255;

        if (s >> 4 * i & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

#define HAVE_MMA_S8_16832 1
/* c += a b: prelude_cuda.h says which lane has what. */
DEV void mma_lanes(s32 *c, const u32 *a, const u32 *b, int n_half)
{
    s32 first = LANE() & ~31, g = LANE() >> 2 & 7, t = LANE() & 3;

    memcpy(emu_exchange(LANE()), a, (size_t)n_half * 8);
    memcpy(emu_exchange(LANE()) + 4, b, (size_t)n_half * 4);
    emu_wave(32);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4 * n_half; k++) {
            const u32 *from_a = emu_exchange(first + 4 * g + (k & 3));
            const u32 *from_b =
                emu_exchange(first + 4 * (2 * t + (i & 1)) + (k & 3));

            c[i] = dot4(from_a[(i >> 1) + (k >> 2) * 2], from_b[4 + (k >> 2)],
                        c[i]);
        }
    emu_wave(32);
}
DEV void mma_s8(s32 *c, const u32 *a, const u32 *b)
{
    mma_lanes(c, a, b, 2);
}
DEV void mma_s8_k16(s32 *c, const u32 *a, u32 b)
{
    mma_lanes(c, a, &b, 1);
}
#endif

/* prelude_hip.h says which lane has what. */
#ifdef EMU_MFMA
#define HAVE_MFMA_I8 EMU_MFMA
DEV void mfma_lanes(s32 *c, const u32 *a, const u32 *b, int n)
{
    s32 first = LANE() & ~63, column = LANE() & 15, q = LANE() >> 4 & 3;

    memcpy(emu_exchange(LANE()), a, (size_t)n * 4);
    memcpy(emu_exchange(LANE()) + 4, b, (size_t)n * 4);
    emu_wave(64);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4 * n; k++) {
            s32 at = first + k / n * 16;

            c[i] = dot4(emu_exchange(at + 4 * q + i)[k % n],
                        emu_exchange(at + column)[4 + k % n], c[i]);
        }
    emu_wave(64);
}
DEV void mfma_i8(s32 *c, u32 a0, u32 a1, u32 b0, u32 b1)
{
    const u32 a[2] = {a0, a1}, b[2] = {b0, b1};

    mfma_lanes(c, a, b, 2);
}
DEV void mfma_i8_k16(s32 *c, u32 a, u32 b)
{
    mfma_lanes(c, &a, &b, 1);
}
#endif
#ifdef EMU_WMMA
#define HAVE_WMMA_I8 EMU_WMMA
DEV void wmma_i8(s32 *c, const u32 *a, const u32 *b)
{
    enum { TWICE = EMU_WMMA == 11, N = TWICE ? 4 : 2 };
    s32 first = LANE() & ~31, column = LANE() & 15, q = LANE() >> 4 & 1;

    memcpy(emu_exchange(LANE()), a, N * sizeof(*a));
    memcpy(emu_exchange(LANE()) + 4, b, N * sizeof(*b));
    emu_wave(32);
    if (TWICE && memcmp(emu_exchange(LANE()), emu_exchange(LANE() ^ 16), 32))
        emu_fault("the halves of a wave give a WMMA other operands");
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 4; k++) {
            s32 at = first + k / N * 16, row = TWICE ? 2 * i + q : 8 * q + i;

            c[i] = dot4(emu_exchange(at + row)[k % N],
                        emu_exchange(at + column)[4 + k % N], c[i]);
        }
    emu_wave(32);
}
#endif
