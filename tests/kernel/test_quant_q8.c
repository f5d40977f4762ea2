/* Activations in 8 bits keep the promises of quant/q8.h. */
#include "lib/support.h"

#include <math.h>
#include <string.h>

#include "quant/q8.h"

static void random_row(uint64_t *seed, float *x, int n)
{
    float scale = ldexpf(1, (int)test_below(seed, 200) - 100);

    for (int i = 0; i < n; i++)
        x[i] = test_below(seed, 8) == 0 ? 0 : scale * test_unit(seed);
}

TEST(quant_q8_error_is_half_a_step)
{
    uint64_t seed = test_seed();

    for (int round = 0; round < 5000; round++) {
        float x[32], max = 0;
        struct q8_block b;

        random_row(&seed, x, 32);
        q8_encode(&b, x, 32, 32);
        for (int i = 0; i < 32; i++)
            max = fmaxf(max, fabsf(x[i]));
        assert_true(b.d == max / 127);
        for (int i = 0; i < 32; i++) {
            double err = fabs((double)x[i] - (double)b.d * b.q[i]);

            /* three roundings of relative 2^-24 on a number up to 127 steps */
            assert_true(err <= (double)b.d * (0.5 + 127 * 3 * 0x1p-24));
            assert_true(b.q[i] >= -127);
        }
    }
}

TEST(quant_q8_sums_are_of_the_halves)
{
    uint64_t seed = test_seed();

    for (int round = 0; round < 5000; round++) {
        float x[32];
        struct q8_block b;
        int sum[2] = {0};

        random_row(&seed, x, 32);
        if (round == 0)
            for (int i = 0; i < 32; i++)
                /* values that give the largest possible sums of 16 codes */
                x[i] = i < 16 ? 1 : -1;
        q8_encode(&b, x, 32, 32);
        for (int i = 0; i < 32; i++)
            sum[i / 16] += b.q[i];
        assert_int_equal(b.sum[0], sum[0]);
        assert_int_equal(b.sum[1], sum[1]);
    }
}

TEST(quant_q8_slices_have_the_same_bits)
{
    enum { N = 8 };
    uint64_t seed = test_seed();

    for (int round = 0; round < 500; round++) {
        float x[32 * N];
        struct q8_block whole[N], part[N];
        int64_t at = test_below(&seed, N), n = 1 + test_below(&seed, N - at);

        for (int i = 0; i < N; i++)
            random_row(&seed, x + 32 * i, 32);
        q8_encode(whole, x, 32 * N, 32);
        q8_encode(part, x + 32 * at, 32 * n, 32);
        assert_memory_equal(part, whole + at, (size_t)n * sizeof(*part));
    }
}

TEST(quant_q8_rounds_ties_to_even)
{
    float x[32] = {-127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
    static const int8_t want[8] = {-127, 0, 2, 2, 0, -2, -2, 126};
    struct q8_block b;

    q8_encode(&b, x, 32, 32);
    assert_true(b.d == 1);
    assert_memory_equal(b.q, want, sizeof(want));
}

TEST(quant_q8_zero_tiny_and_damaged_blocks)
{
    struct q8_block b;
    const struct q8_block zero = {0};
    float x[32] = {0};

    q8_encode(&b, x, 32, 32);
    assert_memory_equal(&b, &zero, sizeof(b));
    x[3] = -0x1p-121f;
    q8_encode(&b, x, 32, 32);
    assert_memory_equal(&b, &zero, sizeof(b));
    x[3] = -0x1p-120f;
    q8_encode(&b, x, 32, 32);
    assert_int_equal(b.q[3], -127);
    for (int i = 0; i < 2; i++) {
        x[9] = i == 0 ? NAN : -INFINITY;
        q8_encode(&b, x, 32, 32);
        assert_true(isnan(b.d));
        assert_memory_equal(b.q, zero.q, sizeof(b.q));
    }
}

/* All values that share a scale decide it; the rest at the end has one of its
 * own. */
TEST(quant_q8_chunks_share_a_scale)
{
    enum { N = 8 };
    uint64_t seed = test_seed() + 1;

    for (int round = 0; round < 2000; round++) {
        float x[32 * N];
        struct q8_block b[N];
        int64_t n = 1 + test_below(&seed, N), share = 1 + test_below(&seed, N);

        for (int i = 0; i < n; i++)
            random_row(&seed, x + 32 * i, 32);
        q8_encode(b, x, 32 * n, 32 * share);
        for (int64_t i = 0; i < n; i += share) {
            int64_t end = i + share < n ? i + share : n;
            float max = 0;

            for (int64_t j = 32 * i; j < 32 * end; j++)
                max = fmaxf(max, fabsf(x[j]));
            for (int64_t j = 32 * i; j < 32 * end; j++) {
                const struct q8_block *at = &b[j / 32];

                assert_true(at->d == (max < 0x1p-120f ? 0 : max / 127));
                assert_true(
                    fabs((double)x[j] - (double)at->d * at->q[j % 32]) <=
                    (double)at->d * (0.5 + 127 * 3 * 0x1p-24) + 0x1p-120);
            }
        }
    }
}

/* A NaN among the activations makes all values NaN that share its scale, and no
 * others. */
TEST(quant_q8_damage_is_the_chunks)
{
    struct q8_block b[3];
    float x[96];

    for (int i = 0; i < 96; i++)
        x[i] = 1;
    x[40] = NAN;
    q8_encode(b, x, 96, 64);
    assert_true(isnan(b[0].d) && isnan(b[1].d) && b[2].d == 1.0f / 127);
    assert_int_equal(b[0].q[3], 0);
    assert_int_equal(b[0].sum[0], 0);
    assert_int_equal(b[2].sum[1], 16 * 127);
}
