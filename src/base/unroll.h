/* UNROLL is written before a `for` loop with a constant count of at most 16. It
 * unrolls the loop, so that an array of vectors that the loop indexes stays in
 * registers. Clang has a pragma of its own here: it ignores GCC's without a
 * warning, which made matrix products of many rows three times slower. With
 * Clang's sanitizers UNROLL is empty, because unrolling would multiply every
 * check and take minutes per file. */
#ifndef BASE_UNROLL_H
#define BASE_UNROLL_H

#ifdef __clang__
#if __has_feature(address_sanitizer) ||                                        \
    __has_feature(undefined_behavior_sanitizer) ||                             \
    __has_feature(thread_sanitizer)
#define UNROLL
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
