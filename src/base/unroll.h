/* UNROLL stands before a `for` whose count the compiler knows, 16 at most: the
 * loop is written out, so that the vectors of an array which it indexes stay in
 * registers. Clang takes GCC's pragma and does nothing about it, which cost
 * contractions of many rows two thirds of their speed. */
#ifndef BASE_UNROLL_H
#define BASE_UNROLL_H

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
