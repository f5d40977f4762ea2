/* exp, log and random numbers that are the same on every machine.
 *
 * The results of libm differ in the last bit between C libraries, which is
 * enough to make two machines draw different tokens or rotate keys by different
 * angles. These functions use only IEEE double additions, multiplications and
 * divisions in a fixed order (the build forbids contraction). In the stated
 * ranges the errors are below 4 units in the last place. */
#ifndef BASE_EXACT_H
#define BASE_EXACT_H

#include <stdint.h>
#include <string.h>

/* Returns 2^n for -1022 <= n <= 1023. */
static inline double exact_pow2(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;

    memcpy(&d, &bits, sizeof d);
    return d;
}

/* Returns e^x for x <= 0; returns 0 if x < -708. With k = round(x / ln 2) and r
 * = x - k ln 2, |r| <= 0.347, e^x = 2^k e^r. e^r is its Taylor series up to
 * r^13 / 13! (the rest is below 1e-17). ln 2 is in two parts, as in Cody and
 * Waite (1980). */
static inline double exact_exp(double x)
{
    static const double ln2_high = 0x1.62e42fee00000p-1;
    static const double ln2_low = 0x1.a39ef35793c76p-33;
    double k, r, sum = 1;

    if (!(x >= -708))
        return 0;
    k = (double)(int64_t)(x * 0x1.71547652b82fep+0 - 0.5);
    r = (x - k * ln2_high) - k * ln2_low;
    for (int i = 13; i >= 1; i--)
        sum = 1 + sum * r / i;
    return sum * exact_pow2((int)k);
}

/* Returns ln x for normal x > 0. With x = m 2^k, m in [0.7, 1.4], and t = (m -
 * 1) / (m + 1): ln m = 2 (t + t^3/3 + t^5/5 + ..), |t| < 0.18. */
static inline double exact_log(double x)
{
    uint64_t bits;
    double m, t, t2, sum = 0;
    int k;

    memcpy(&bits, &x, sizeof bits);
    k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp+0) { /* the square root of 2 */
        m *= 0.5;
        k++;
    }
    t = (m - 1) / (m + 1);
    t2 = t * t;
    for (int i = 23; i >= 1; i -= 2)
        sum = sum * t2 + 1.0 / i;
    return k * 0x1.62e42fefa39efp-1 + 2 * t * sum;
}

/* Returns the next random number of the generator splitmix64 and advances
 * *state. Any state is valid. See Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014. */
static inline uint64_t exact_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a random number, uniformly distributed in [0, 1), made from the top
 * 53 bits of the next number of the generator. */
static inline double exact_uniform(uint64_t *state)
{
    return (double)(exact_random(state) >> 11) * 0x1p-53;
}

#endif
