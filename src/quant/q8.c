/* Quantizes activations to 8 bits, in plain C. This is the specification:
 * vector kernels give the same bits. Every operation is exact, or rounds once
 * to nearest even. The maximum of |x| is computed with integer operations on
 * the bits, so that its result does not depend on the order of comparisons. */
#include "quant/q8.h"

#include <math.h>

#include "base/half.h"

/* If the maximum of |x| is less than this, all values become zero, because 127
 * / maximum would overflow. */
static const uint32_t tiny = 0x03800000; /* the bits of the float 2^-120 */
static const uint32_t infinity = 0x7f800000;

static uint32_t greatest(const float *x, int64_t n)
{
    uint32_t max = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t u = float_bits(x[i]) & 0x7fffffff;

        max = u > max ? u : max;
    }
    return max;
}

static void encode_block(struct q8_block *b, const float *x, uint32_t max)
{
    float scale;

    *b = (struct q8_block){0};
    if (max < tiny)
        return;
    if (max >= infinity) {
        b->d = NAN;
        return;
    }
    b->d = float_from_bits(max) / 127;
    scale = 127 / float_from_bits(max);
    for (int i = 0; i < 32; i++) {
        /* Rounds to an integer by adding 1.5 * 2^23: the low bits of the sum
         * are the integer. */
        uint32_t r = float_bits(x[i] * scale + 0x1.8p23f) - 0x4b400000u;

        b->q[i] = (int8_t)r;
        b->sum[i / 16] = (int16_t)(b->sum[i / 16] + b->q[i]);
    }
}

void q8_encode(struct q8_block *dst, const float *src, int64_t n, int64_t share)
{
    for (; n > 0; n -= share, src += share) {
        int64_t m = n < share ? n : share;
        uint32_t max = greatest(src, m);

        for (int64_t i = 0; i < m; i += 32)
            encode_block(dst++, src + i, max);
    }
}
