/* The prelude for the emulator (emu/emu_run.h), in plain C. All preludes define
 * the names described here; the kernel source uses no others of its compiler.
 *
 * Types are u8 to s64, float and double. DEV begins a function that kernels
 * call. KERNEL(name, arguments, lanes) begins a kernel, whose arguments are `a`
 * and whose work groups have `lanes` lanes. KERNEL_DENSE begins one that uses
 * many registers; they should still suffice for two work groups per compute
 * unit, those of KERNEL_THREE for three. KERNEL_AHEAD is like KERNEL_DENSE, but
 * the kernel itself calls AWAIT(). Before that, launches that precede it may
 * still be running, so the kernel may only PREFETCH() weights in device memory.
 * LANE() is the lane's number in its work group, GROUP() that of the work
 * group, N_GROUP() the number of work groups.
 * LOCAL_ARRAY declares memory that the lanes of a work group share, at the top
 * of a kernel. Either all lanes of a work group reach a BARRIER() or none does.
 * BARRIER_32() is one for 32 adjacent lanes, from a multiple of 32. It may be a
 * BARRIER(), so all lanes of a work group must reach it, too.
 *
 * AT(type, address) converts an address to a pointer. `address` must be a
 * member of the arguments, so that the compiler sees the pointer's origin;
 * offsets are added to the pointer. AT_HELD does the same for an address in a
 * variable or in memory. Both work in kernels only, not in DEV functions.
 * UNROLL precedes a `for` of constant count that indexes an array which should
 * be in registers. HAVE_COUNT, HAVE_PRMT, HAVE_MMA_S8_16832, HAVE_COPY,
 * HAVE_MFMA_I8 and HAVE_WMMA_I8 tell which of the optional operations below
 * exist.
 *
 * Operations on floats are functions, because a compiler may fuse expressions:
 * add_ sub_ mul_ div_ fma_ sqrt_ rint_ abs_, and dadd_ dsub_ dmul_ ddiv_ for
 * double. Comparisons, assignments and negations are those of C. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "emu/emu_run.h"

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
#define KERNEL_THREE(name, args, lanes) KERNEL(name, args, lanes)
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
#ifdef EMU_CUDA
#define BARRIER_32() emu_wave(32)
#else
#define BARRIER_32() BARRIER()
#endif
#define AWAIT()
/* Reads a byte at the address, so that an invalid address crashes. */
#define PREFETCH(address) ((void)*AT(const volatile u8, address))

#include "device/gpu/text/plain_ops.h"

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
/* Returns the float nearest to a, ties to even. */
DEV float int_float(s32 a)
{
    return (float)a;
}
DEV float double_float(double a)
{
    return (float)a;
}
/* Returns a as an integer. It must be one, and in the range of s32. */
DEV s32 float_int(float a)
{
    return (s32)a;
}
/* Returns c plus the four products of the signed bytes of a and b. */
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    for (int i = 0; i < 32; i += 8)
        c += (s8)(a >> i) * (s8)(b >> i);
    return c;
}
/* fence_() orders a lane's accesses to global memory before and after it, for
 * all lanes of the device. count_up() adds n to a word that work groups share,
 * as one access, and returns its earlier value. */
#define HAVE_COUNT 1
DEV void fence_(void)
{
}
DEV u32 count_up(u32 *at, u32 n)
{
    *at += n;
    return *at - n;
}
/* prmt_() returns four bytes selected from a and b, each by a nibble of s.
 * Nibbles 0 to 3 select a byte of a, 4 to 7 one of b. If 8 is added, all bits
 * of the result's byte are the selected byte's sign. From here on, definitions
 * depend on the GPU that is emulated: EMU_CUDA, EMU_MFMA, EMU_WMMA, or
 * neither. */
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
/* Like dot4(), for bytes that are signed or not. */
DEV s32 dot4_of(u32 a, u32 b, s32 c, int a_signed, int b_signed)
{
    for (int i = 0; i < 32; i += 8) {
        u8 x = (u8)(a >> i), y = (u8)(b >> i);

        c += (a_signed ? (s8)x : x) * (b_signed ? (s8)y : y);
    }
    return c;
}
/* Computes c += a b. prelude_cuda.h says which elements each lane has. */
DEV void mma_lanes(s32 *c, const u32 *a, const u32 *b, int n_half, int a_signed,
                   int b_signed)
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

            c[i] = dot4_of(from_a[(i >> 1) + (k >> 2) * 2],
                           from_b[4 + (k >> 2)], c[i], a_signed, b_signed);
        }
    emu_wave(32);
}
DEV void mma_s8(s32 *c, const u32 *a, const u32 *b)
{
    mma_lanes(c, a, b, 2, 1, 1);
}
DEV void mma_s8_k16(s32 *c, const u32 *a, u32 b)
{
    mma_lanes(c, a, &b, 1, 1, 1);
}
DEV void mma_u8_s8_k16(s32 *c, const u32 *a, u32 b)
{
    mma_lanes(c, a, &b, 1, 0, 1);
}
DEV void mma_u8_u8_k16(s32 *c, const u32 *a, u32 b)
{
    mma_lanes(c, a, &b, 1, 0, 0);
}

/* Begin to copy 4, 8 or 16 bytes from global to shared memory, both addresses
 * multiples of that. copy_wait() waits until all copies that the lane has begun
 * are done; other lanes see them after a BARRIER(). */
#define HAVE_COPY 1
DEV void copy_4(u32 *to, const u32 *from)
{
    emu_copy(to, from, 4);
}
DEV void copy_8(u32 *to, const u32 *from)
{
    emu_copy(to, from, 8);
}
DEV void copy_16(u32 *to, const u32 *from)
{
    emu_copy(to, from, 16);
}
DEV void copy_wait(void)
{
    emu_copy_wait();
}
#endif

/* Matrix units of AMD. prelude_hip.h says which elements each lane has. */
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
