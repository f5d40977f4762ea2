/* The prelude for HIP without any header (hiprtc, or clang -x hip -nogpuinc
 * -nogpulib -ffp-contract=off). prelude_emu.h describes the names that a
 * prelude defines. A device address is a pointer. */
typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#pragma clang fp contract(off)
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif

/* If SOME_KERNELS is defined, compiles only the kernels that have a `#define
 * WANT_name ~, KERNEL_MADE`. */
#define KERNEL_DENSE(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_THREE(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_AHEAD(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_MADE(name, args, lanes)                                         \
    extern "C" __global__                                                      \
        __attribute__((amdgpu_flat_work_group_size(lanes, lanes))) void        \
        name(const args a)
#ifdef SOME_KERNELS
#define KERNEL_LEFT_OUT(name, args, lanes)                                     \
    static __device__ __attribute__((unused)) void name(const args a)
#define KERNEL_SECOND(a, b, ...) b
#define KERNEL_PICK(want, name, args, lanes)                                   \
    KERNEL_SECOND(want, KERNEL_LEFT_OUT, )(name, args, lanes)
#define KERNEL_ASK(name, args, lanes)                                          \
    KERNEL_PICK(WANT_##name, name, args, lanes)
#define KERNEL(name, args, lanes) KERNEL_ASK(name, args, lanes)
#else
#define KERNEL(name, args, lanes) KERNEL_MADE(name, args, lanes)
#endif
#define DEV    static __device__ inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, n) __shared__ type name[n]
/* Marks the pointer as one to global memory, which the compiler cannot infer
 * from an integer. */
#define AT(type, address)                                                      \
    ((type *)(__attribute__((address_space(1))) type *)(address))
#define AT_HELD(type, address) AT(type, address)
#define LANE()                 ((s32)__builtin_amdgcn_workitem_id_x())
#define GROUP()                ((s32)__builtin_amdgcn_workgroup_id_x())
#define N_GROUP()                                                              \
    ((s32)(__builtin_amdgcn_grid_size_x() /                                    \
           __builtin_amdgcn_workgroup_size_x()))
#define BARRIER()    barrier_()
#define BARRIER_32() barrier_32_()
#define AWAIT()
#define PREFETCH(address)

DEV void barrier_(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/* The lanes of a wave, 32 or 64, execute in step; only the compiler must not
 * move accesses. */
DEV void barrier_32_(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#define HAVE_COUNT 1
/* the name of the scope of one device, in LLVM's memory model of AMDGPU */
#define DEVICE_SCOPE                                                           \
    "a"                                                                        \
    "gent"
DEV void fence_(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, DEVICE_SCOPE);
}
DEV u32 count_up(u32 *at, u32 n)
{
    return __atomic_fetch_add((__attribute__((address_space(1))) u32 *)at, n,
                              __ATOMIC_RELAXED);
}
#include "plain_ops.h"

DEV float fma_(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
DEV u32 float_bits(float a)
{
    return __builtin_bit_cast(u32, a);
}
DEV float float_from_bits(u32 a)
{
    return __builtin_bit_cast(float, a);
}
/* Returns the square root, correctly rounded. The GPU's instruction may be off
 * by one unit in the last place, and by more for subnormal numbers; compilers
 * before clang 18 do not correct that. The fma tests show which of the
 * instruction's result and its two neighbours is the rounded root, as in later
 * versions of LLVM. Small numbers are scaled first. */
DEV float sqrt_(float a)
{
    const int tiny = a < 0x1p-96f;
    const float x = tiny ? a * 0x1p32f : a;
    const float root = __builtin_amdgcn_sqrtf(x);
    const float below = float_from_bits(float_bits(root) - 1);
    const float above = float_from_bits(float_bits(root) + 1);
    float r = root;

    if (!(x > 0) || x == __builtin_inff())
        /* zeros, infinity, negative numbers and NaN need no correction */
        return x == 0 ? a : root;
    r = __builtin_fmaf(-below, root, x) <= 0 ? below : r;
    r = __builtin_fmaf(-above, root, x) > 0 ? above : r;
    return tiny ? r * 0x1p-16f : r;
}
DEV float rint_(float a)
{
    return __builtin_rintf(a);
}
DEV float abs_(float a)
{
    return __builtin_fabsf(a);
}
DEV u64 double_bits(double a)
{
    return __builtin_bit_cast(u64, a);
}
DEV double double_from_bits(u64 a)
{
    return __builtin_bit_cast(double, a);
}
DEV float f16_to_f32(u16 h)
{
    return (float)__builtin_bit_cast(_Float16, h);
}
DEV u16 f32_to_f16(float a)
{
    return __builtin_bit_cast(u16, (_Float16)a);
}
DEV float int_float(s32 a)
{
    return (float)a;
}
DEV float double_float(double a)
{
    return (float)a;
}
DEV s32 float_int(float a)
{
    return (s32)a;
}
#if defined(__GFX11__) || defined(__GFX12__)
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    return __builtin_amdgcn_sudot4(true, (s32)a, true, (s32)b, c, false);
}
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) ||     \
    defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1030__)
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    return __builtin_amdgcn_sdot4((s32)a, (s32)b, c, false);
}
#else
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    for (int i = 0; i < 32; i += 8)
        c += (s32)(s8)(a >> i) * (s8)(b >> i);
    return c;
}
#endif
/* AMD's matrix units, unless hip_source.c forbids them (NO_MATRIX). For CDNA 3
 * and RDNA 4, AMD's library composable_kernel shows which elements each lane
 * has. For CDNA 2 and RDNA 3, other programs that use these units show it. */
#ifndef NO_MATRIX
#if defined(__gfx942__) || defined(__gfx950__)
#define HAVE_MFMA_I8 32
#elif defined(__gfx908__) || defined(__gfx90a__)
#define HAVE_MFMA_I8 16
#elif __AMDGCN_WAVEFRONT_SIZE__ == 64
/* the matrix units of other GPUs are used by waves of 32 lanes only */
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define HAVE_WMMA_I8 12
#elif defined(__GFX11__) &&                                                    \
    __has_builtin(__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32)
#define HAVE_WMMA_I8 11
#endif
#endif
/* Computes c += a b for signed bytes with a wave of 64 lanes, where a is [16,
 * 32] and b is [32, 16]. Lane 16 q + r has 8 values of row r of a and 8 of
 * column r of b, from k = 8 q on, in two dwords each. It has rows 4 q to 4 q +
 * 3 of column r of c. On older GPUs k is only 16 long, and a lane has 4 values
 * from k = 4 q on. */
#if HAVE_MFMA_I8
typedef s32 sums4 __attribute__((ext_vector_type(4)));
DEV void sums4_put(s32 *c, sums4 sums)
{
    UNROLL
    for (s32 i = 0; i < 4; i++)
        c[i] = sums[i];
}
#endif
#if HAVE_MFMA_I8 == 32
DEV void mfma_i8(s32 *c, u32 a0, u32 a1, u32 b0, u32 b1)
{
    long a = (long)((u64)a1 << 32 | a0), b = (long)((u64)b1 << 32 | b0);
    sums4 sums = {c[0], c[1], c[2], c[3]};

    sums4_put(c, __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, sums, 0, 0, 0));
}
#elif HAVE_MFMA_I8
DEV void mfma_i8_k16(s32 *c, u32 a, u32 b)
{
    sums4 sums = {c[0], c[1], c[2], c[3]};

    sums4_put(
        c, __builtin_amdgcn_mfma_i32_16x16x16i8((s32)a, (s32)b, sums, 0, 0, 0));
}
#endif
/* Computes c += a b for signed bytes with a wave of 32 lanes, where a is [16,
 * 16] and b is [16, 16]. Lane 16 q + r has values of row r of a and of column r
 * of b, and 8 values of column r of c. RDNA 3: all 16 values, in four dwords,
 * the same in both halves of the wave; rows 2 i + q of c for i = 0 to 7. RDNA
 * 4: 8 values from k = 8 q on, in two dwords; rows 8 q + i of c. */
#if HAVE_WMMA_I8
typedef s32 sums8 __attribute__((ext_vector_type(8)));
#if HAVE_WMMA_I8 == 11
typedef s32 bytes16 __attribute__((ext_vector_type(4)));
DEV sums8 wmma_sums(const u32 *a, const u32 *b, sums8 c)
{
    bytes16 x = {(s32)a[0], (s32)a[1], (s32)a[2], (s32)a[3]};
    bytes16 y = {(s32)b[0], (s32)b[1], (s32)b[2], (s32)b[3]};

    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, x, true, y, c,
                                                      false);
}
#else
typedef s32 bytes8 __attribute__((ext_vector_type(2)));
DEV sums8 wmma_sums(const u32 *a, const u32 *b, sums8 c)
{
    bytes8 x = {(s32)a[0], (s32)a[1]}, y = {(s32)b[0], (s32)b[1]};

    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, c,
                                                            false);
}
#endif
DEV void wmma_i8(s32 *c, const u32 *a, const u32 *b)
{
    sums8 sums = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};

    sums = wmma_sums(a, b, sums);
    UNROLL
    for (s32 i = 0; i < 8; i++)
        c[i] = sums[i];
}
#endif
