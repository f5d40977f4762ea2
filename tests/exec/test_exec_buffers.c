/* Offsets in a work region, pair by pair. Buffers whose live ranges intersect
 * do not overlap, and neither do those of which one begins before the other's
 * memory has rested. */
#include "lower/buffers.h"

#include "lib/support.h"

TEST(exec_buffers_that_live_at_once_lie_apart)
{
    enum { N = 40, STEPS = 60 };
    uint64_t seed = test_seed();
    int n_trial = test_draws(2000, 20000);
    size_t got = 0, least = 0;

    for (int trial = 0; trial < n_trial; trial++) {
        struct buffer b[N];
        size_t total = 0, peak = 0;
        int n = (int)test_below(&seed, N + 1), rest = trial % 3;

        for (int i = 0; i < n; i++) {
            int birth = (int)test_below(&seed, STEPS) - 1;
            int span = (int)test_below(&seed, test_below(&seed, 4) ? 6 : STEPS);

            b[i] = (struct buffer){.bytes = 64 * (size_t)test_below(&seed, 9),
                                   .birth = birth,
                                   .death = birth + span,
                                   .region = REGION_WORK};
        }
        assert_true(buffers_place(b, n, REGION_WORK, rest, &total));
        for (int i = 0; i < n; i++) {
            assert_int_equal(b[i].offset % 64, 0);
            assert_true(b[i].offset + b[i].bytes <= total);
            for (int k = 0; k < i; k++) {
                bool at_once = b[i].birth <= b[k].death + rest &&
                               b[k].birth <= b[i].death + rest;

                if (at_once && b[i].bytes && b[k].bytes)
                    assert_true(b[i].offset + b[i].bytes <= b[k].offset ||
                                b[k].offset + b[k].bytes <= b[i].offset);
            }
        }
        for (int at = -1; at < 2 * STEPS; at++) {
            size_t sum = 0;

            for (int i = 0; i < n; i++)
                sum += b[i].birth <= at && at <= b[i].death ? b[i].bytes : 0;
            peak = sum > peak ? sum : peak;
        }
        assert_true(total >= peak);
        got += rest > 0 ? 0 : total;
        least += rest > 0 ? 0 : peak;
    }
    assert_true(got < least + least / 4); /* the buffers reuse memory */
}
