/* The kernel KERNEL_quantize and the function cpu_kernels.q8, with vector
 * instructions. The including file defines these functions for its instruction
 * set:
 *
 *   greatest       returns the bits of max|x| of n values, a multiple of 32
 *   encode_block   computes q and sum of a block of 32 values, as q8_encode
 * does */
#include "base/half.h"

static void encode(struct q8_block *dst, const float *src, int64_t n,
                   int64_t share)
{
    for (; n > 0; n -= share, src += share) {
        int64_t m = n < share ? n : share;
        uint32_t max = greatest(src, m);

        /* Blocks whose largest magnitude is below 2^-120, infinite or NaN are
         * special cases, which q8_encode() handles. */
        if (max < 0x03800000 || max >= 0x7f800000) {
            q8_encode(dst, src, m, m);
            dst += m / 32;
            continue;
        }
        for (int64_t i = 0; i < m; i += 32, dst++) {
            dst->d = float_from_bits(max) / 127;
            encode_block(dst, src + i, 127 / float_from_bits(max));
        }
    }
}

static void run_quantize(const struct cpu_call *c)
{
    cpu_quantize(c, encode);
}

static void init_quantize(struct cpu_kernels *k)
{
    k->kernel[KERNEL_quantize] = (struct cpu_entry){run_quantize, NULL};
    k->q8 = encode;
}
