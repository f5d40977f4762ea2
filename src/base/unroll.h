/* UNROLL stands before a `for` whose count the compiler knows, 16 at most: the
 * loop is written out, so that the vectors of an array which it indexes stay in
 * registers. Clang takes GCC's pragma and does nothing about it, which cost
 * contractions of many rows two thirds of their speed. With its sanitizers it
 * would write out every check as often, and take minutes a file: nothing then.
 */
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
