/* Instruction set extensions, as reported by the processor and the system. */
#include "machine/cpu_features.h"

#include <stdbool.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns true if AMX tiles and their INT8 products are usable: CPUID leaf 7,
 * EDX bits 24 and 25. Linux grants the tile registers, XSAVE component 18, on
 * request (Documentation/arch/x86/xstate.rst), then to all threads of the
 * process. */
static bool has_amx_int8(void)
{
    enum { ASK = 0x1023, TILE_DATA = 18 };
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx >> 24 & 3) == 3 && syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

unsigned cpu_features(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0, has = 0;

    /* F16C is not tested, because clang 14 has no test for it and every CPU
     * with AVX2 has F16C. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 0;
    has = CPU_AVX2;
    /* Clang has no test for AVX-VNNI either. CPUID leaf 7, subleaf 1 has it in
     * bit 4 of EAX; bit 5 is AVX512_BF16. Source: Intel's manual, volume 2,
     * CPUID. */
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1))
        has |= CPU_AVX_VNNI;
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
        return has;
    has |= CPU_AVX512;
    if (__builtin_cpu_supports("avx512vnni"))
        has |= CPU_AVX512_VNNI;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1))
        has |= CPU_AVX512_BF16;
    if (has_amx_int8())
        has |= CPU_AMX_INT8;
    return has;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

unsigned cpu_features(void)
{
    unsigned has = CPU_NEON;

    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        has |= CPU_DOTPROD;
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM)
        has |= CPU_I8MM;
    return has;
}

#else

unsigned cpu_features(void)
{
    return 0;
}

#endif
