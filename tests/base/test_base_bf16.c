/* Products of BF16 give the bits that processors give. The numbers were taken
 * from VDPBF16PS and VCVTNEPS2BF16 of a Zen 4. Kernels with these instructions
 * are compared with plain C elsewhere (tests/kernel/). */
#include "base/bf16.h"
#include "lib/support.h"

TEST(bf16_rounds_to_the_nearest_even_and_flushes)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
        {0x3f818000, 0x3f82}, {0xbf807fff, 0xbf80}, {0x7f7fffff, 0x7f80},
        {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0x00800000, 0x0080},
        {0x007fffff, 0x0000}, {0x807fffff, 0x8000}, {0x80000000, 0x8000}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t got = bf16_round(float_from_bits(cases[i].from));

        if (got != cases[i].to)
            fail_msg("%08x becomes %04x, not %04x", cases[i].from, got,
                     cases[i].to);
    }
}

/* Returns s + a b, computed in the lower halves. */
static float one(float s, float a, float b)
{
    return bf16_pair_add(s, bf16_pair(a, 0), bf16_pair(b, 0));
}

/* A sum is 0 if it is below 2^-126 when rounded to 24 bits, not only if it is
 * so when rounded to the precision of subnormals. */
TEST(bf16_sums_below_the_smallest_normal_are_zero)
{
    float least = 0x1p-126f, next = 0x1.000002p-126f;

    assert_true(one(least, -0x1p-75f, 0x1p-75f) == 0);
    assert_true(one(least, -0x1p-75f, 0x1p-76f) == least);
    assert_true(one(least, -0x1p-75f, 0x1p-74f) == 0);
    assert_true(one(next, -0x1p-75f, 0x1p-74f) == least);
    assert_true(one(next, -0x1p-74f, 0x1p-73f) == 0);
    assert_true(one(least, 0x1p-75f, 0x1p-74f) == next);
    assert_true(signbit(one(0, -0x1p-100f, 0x1p-100f)));
    assert_true(one(0, 0x1p-130f, 0x1p100f) == 0); /* 2^-130 counts as 0 */
    assert_true(one(-0x1p100f, 0x1p50f, 0x1p50f) == 0);
}

/* Factors below the smallest normal number also count as 0, even if they were
 * not rounded before, and so does the addend. */
TEST(bf16_factors_below_the_smallest_normal_are_zero)
{
    /* pairs of the BF16 numbers 2^-133, below the smallest normal, and 2^127 */
    const uint32_t least = 0x00010001, large = 0x7f007f00;

    assert_true(bf16_pair_add(1, least, large) == 1);
    assert_true(bf16_pair_add(1, large, least) == 1);
    assert_true(bf16_pair_add(0, large, 0x00800080) == 4);
    assert_true(bf16_pair_add(0x1p-127f, bf16_pair(0, 0x1p-63f),
                              bf16_pair(0, 0x1p-62f)) == 0x1p-125f);
    assert_true(bf16_pair_add(-0x1p-127f, 0, 0) == 0);
}

/* The second pair of values is added first: 2^30 + 1 loses the 1. */
TEST(bf16_pairs_are_added_from_the_second_on)
{
    uint32_t a = bf16_pair(-0x1p15f, 1), b = bf16_pair(0x1p15f, 1);

    assert_true(bf16_pair_add(0x1p30f, a, b) == 0);
    assert_true(bf16_pair_add(0x1p30f, a << 16 | a >> 16, b << 16 | b >> 16) ==
                1);
}
