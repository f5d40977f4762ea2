/* The prelude for OpenCL C 1.2. prelude_emu.h describes the names that a
 * prelude defines. A device address is the number of an allocation, from 1, in
 * the top byte, and an offset (driver_opencl.c). */
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

typedef uchar u8;
typedef char s8;
typedef ushort u16;
typedef short s16;
typedef uint u32;
typedef int s32;
typedef ulong u64;
typedef long s64;

#define KERNEL_DENSE(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_THREE(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL_AHEAD(name, args, lanes) KERNEL(name, args, lanes)
#define KERNEL(name, args, lanes)                                              \
    __kernel __attribute__((reqd_work_group_size(lanes, 1, 1))) void name(     \
        __global u8 *m0, __global u8 *m1, __global u8 *m2, __global u8 *m3,    \
        __global u8 *m4, __global u8 *m5, __global u8 *m6, __global u8 *m7,    \
        const args a)
#ifdef ON_CORES /* defined if the device is a CPU (opencl_program.c) */
/* Every function is inlined, because PoCL does not find shared memory in a
 * function that is called. */
#define DEV static inline __attribute__((always_inline))
#define UNROLL
#else
#define DEV    static inline
#define UNROLL _Pragma("unroll")
#endif
#define GLOBAL                     __global
#define LOCAL                      __local
#define LOCAL_ARRAY(type, name, n) __local type name[n]
#define AT_HELD(type, address)     AT(type, address)
#define AT(type, address)                                                      \
    ((__global type *)memory_at(m0, m1, m2, m3, m4, m5, m6, m7, address))
#define LANE()       ((s32)get_local_id(0))
#define GROUP()      ((s32)get_group_id(0))
#define N_GROUP()    ((s32)get_num_groups(0))
#define BARRIER()    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define BARRIER_32() BARRIER()
#define AWAIT()
#define PREFETCH(address)

DEV __global u8 *memory_at(__global u8 *m0, __global u8 *m1, __global u8 *m2,
                           __global u8 *m3, __global u8 *m4, __global u8 *m5,
                           __global u8 *m6, __global u8 *m7, u64 address)
{
    s32 i = (s32)(address >> 56);

    return (i == 1   ? m0
            : i == 2 ? m1
            : i == 3 ? m2
            : i == 4 ? m3
            : i == 5 ? m4
            : i == 6 ? m5
            : i == 7 ? m6
            : i == 8 ? m7
                     : (__global u8 *)0) +
           (address & 0x00fffffffffffffful);
}

#include "plain_ops.h"

DEV float fma_(float a, float b, float c)
{
    return fma(a, b, c);
}
DEV float sqrt_(float a)
{
    return sqrt(a);
}
DEV float rint_(float a)
{
    return rint(a);
}
DEV float abs_(float a)
{
    return fabs(a);
}
DEV u32 float_bits(float a)
{
    return as_uint(a);
}
DEV float float_from_bits(u32 a)
{
    return as_float(a);
}
DEV u64 double_bits(double a)
{
    return as_ulong(a);
}
DEV double double_from_bits(u64 a)
{
    return as_double(a);
}
DEV float f16_to_f32(u16 h)
{
    return vload_half(0, (const __private half *)&h);
}
DEV u16 f32_to_f16(float a)
{
    u16 h;

    vstore_half_rte(a, 0, (__private half *)&h);
    return h;
}
DEV float int_float(s32 a)
{
    return convert_float_rte(a);
}
DEV float double_float(double a)
{
    return convert_float_rte(a);
}
DEV s32 float_int(float a)
{
    return convert_int_rte(a);
}
DEV s32 dot4(u32 a, u32 b, s32 c)
{
    char4 x = as_char4(a), y = as_char4(b);

    return c + x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2 + x.s3 * y.s3;
}
