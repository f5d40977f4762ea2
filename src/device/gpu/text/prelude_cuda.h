/* The prelude for CUDA C++ without any header (NVRTC, -std=c++17 -fmad=false).
 * prelude_emu.h describes the names that a prelude defines. A device address is
 * a pointer. */
typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define DEV static __device__ __forceinline__
#define KERNEL_AHEAD(name, args, lanes)                                        \
    extern "C" __global__ void __launch_bounds__(lanes, 2) name(const args a)
/* Begins a kernel that first waits for the launches before it. */
#define KERNEL_AWAITS(name, args, bounds)                                      \
    DEV void body_##name(const args &a);                                       \
    extern "C" __global__ void __launch_bounds__ bounds name(const args a)     \
    {                                                                          \
        AWAIT();                                                               \
        body_##name(a);                                                        \
    }                                                                          \
    DEV void body_##name(const args &a)
#define KERNEL(name, args, lanes)       KERNEL_AWAITS(name, args, (lanes))
#define KERNEL_DENSE(name, args, lanes) KERNEL_AWAITS(name, args, (lanes, 2))
#define KERNEL_THREE(name, args, lanes) KERNEL_AWAITS(name, args, (lanes, 3))
#define UNROLL                          _Pragma("unroll")
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, n) __shared__ type name[n]
#define AT(type, address)          ((type *)(address))
#define AT_HELD(type, address)                                                 \
    ((type *)__cvta_global_to_generic((size_t)(address)))
#define LANE()       ((s32)threadIdx.x)
#define GROUP()      ((s32)blockIdx.x)
#define N_GROUP()    ((s32)gridDim.x)
#define BARRIER()    __syncthreads()
#define BARRIER_32() __syncwarp()
/* Instructions that only devices of capability 9.0 and later have are in
 * comments of the PTX. For these devices cuda_source.c removes the comment
 * marks when it decompresses the PTX. Then a launch of a graph may begin while
 * the one before it still runs, and AWAIT() waits for that one's end. When all
 * work groups are past AWAIT(), the next launch may begin. */
#if __CUDA_ARCH__ >= 800
#define FROM_90(code) "/*90 " code " 90*/"
#define AWAIT()                                                                \
    asm volatile(FROM_90("griddepcontrol.wait;")                               \
                     FROM_90("griddepcontrol.launch_dependents;")::            \
                         : "memory")
#define PREFETCH(address)                                                      \
    asm volatile(FROM_90("prefetch.global.L2 [%0];") : : "l"(address))
#else
#define AWAIT()
#define PREFETCH(address)
#endif

DEV float add_(float a, float b)
{
    return __fadd_rn(a, b);
}
DEV float sub_(float a, float b)
{
    return __fsub_rn(a, b);
}
DEV float mul_(float a, float b)
{
    return __fmul_rn(a, b);
}
DEV float div_(float a, float b)
{
    return __fdiv_rn(a, b);
}
DEV float fma_(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
DEV float sqrt_(float a)
{
    return __fsqrt_rn(a);
}
DEV float rint_(float a)
{
    float r;

    asm("cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
DEV float abs_(float a)
{
    return fabsf(a);
}
DEV double dadd_(double a, double b)
{
    return __dadd_rn(a, b);
}
DEV double dsub_(double a, double b)
{
    return __dsub_rn(a, b);
}
DEV double dmul_(double a, double b)
{
    return __dmul_rn(a, b);
}
DEV double ddiv_(double a, double b)
{
    return __ddiv_rn(a, b);
}
DEV u32 float_bits(float a)
{
    return __float_as_uint(a);
}
DEV float float_from_bits(u32 a)
{
    return __uint_as_float(a);
}
DEV u64 double_bits(double a)
{
    return (u64)__double_as_longlong(a);
}
DEV double double_from_bits(u64 a)
{
    return __longlong_as_double((s64)a);
}
DEV float f16_to_f32(u16 h)
{
    float f;

    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEV u16 f32_to_f16(float a)
{
    u16 h;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a));
    return h;
}
DEV float int_float(s32 a)
{
    return __int2float_rn(a);
}
DEV float double_float(double a)
{
    return __double2float_rn(a);
}
DEV s32 float_int(float a)
{
    return __float2int_rn(a);
}
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    s32 r;

    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
/* Orders a lane's accesses before and after it, as the whole device sees
 * them. */
#define HAVE_COUNT 1
DEV void fence_(void)
{
    asm volatile("membar.gl;" : : : "memory");
}
DEV u32 count_up(u32 *at, u32 n)
{
    u32 r;

    asm volatile("atom.global.add.u32 %0, [%1], %2;"
                 : "=r"(r)
                 : "l"(__cvta_generic_to_global(at)), "r"(n)
                 : "memory");
    return r;
}
#define HAVE_PRMT 1
DEV u32 prmt_(u32 a, u32 b, u32 s)
{
    u32 r;

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(s));
    return r;
}
#if __CUDA_ARCH__ >= 800
#define HAVE_MMA_S8_16832 1
/* Computes c += a b for signed bytes, where a is [16, 32] and b is [32, 8].
 * Lane 4 g + t has in a[0] and a[1] columns 4 t to 4 t + 3 of rows g and g + 8
 * of a, in a[2] and a[3] the columns 16 further. It has in b[0] rows 4 t to 4 t
 * + 3 of column g of b, in b[1] the rows 16 further. It has in c[0] and c[1]
 * columns 2 t and 2 t + 1 of row g of c, in c[2] and c[3] those of row g +
 * 8. */
DEV void mma_s8(s32 *c, const u32 *a, const u32 *b)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Like mma_s8, for only the first 16 columns of a and the first 16 rows of
 * b. */
DEV void mma_s8_k16(s32 *c, const u32 *a, u32 b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
/* Like mma_s8_k16, for unsigned bytes in a and for signed or unsigned ones in
 * b. */
DEV void mma_u8_s8_k16(s32 *c, const u32 *a, u32 b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 "
        "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
DEV void mma_u8_u8_k16(s32 *c, const u32 *a, u32 b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 "
        "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
#define HAVE_COPY 1
DEV void copy_4(u32 *to, const u32 *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "l"(__cvta_generic_to_shared(to)),
                   "l"(__cvta_generic_to_global(from))
                 : "memory");
}
DEV void copy_8(u32 *to, const u32 *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 :
                 : "l"(__cvta_generic_to_shared(to)),
                   "l"(__cvta_generic_to_global(from))
                 : "memory");
}
DEV void copy_16(u32 *to, const u32 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "l"(__cvta_generic_to_shared(to)),
                   "l"(__cvta_generic_to_global(from))
                 : "memory");
}
DEV void copy_wait(void)
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}
#endif
