/* Embeddings: vectors are scaled and written correctly. */
#include "lib/support.h"
#include "server/embeddings.h"

#include <math.h>
#include <string.h>

TEST(embeddings_are_base64_as_others_write_it)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[16];

        embeddings_base64((const unsigned char *)cases[i].in,
                          strlen(cases[i].in), out);
        assert_string_equal(out, cases[i].out);
    }
}

TEST(embeddings_have_the_norm_that_is_asked_for)
{
    uint64_t seed = test_seed();

    for (int p = -1; p < 5; p++) {
        float x[33], y[33];
        double sum = 0, most = 0;

        for (int i = 0; i < 33; i++)
            x[i] = y[i] = (float)test_below(&seed, 2001) / 100 - 10;
        embeddings_norm(y, 33, p);
        for (int i = 0; i < 33; i++) {
            sum += pow(fabs((double)y[i]), p > 0 ? p : 1);
            most = fmax(most, fabs((double)y[i]));
        }
        if (p < 0)
            assert_memory_equal(x, y, sizeof x);
        else if (p == 0)
            assert_true(fabs(most - 32760) < 0.01);
        else
            assert_true(fabs(sum - 1) < 1e-5);
    }
}

/* Powers of these exceed a double. */
TEST(embeddings_have_a_high_norm_of_small_and_large_values)
{
    static const float unit[] = {1e-6f, 1e6f};

    for (int k = 0; k < 2; k++) {
        float x[9];
        double sum = 0;

        for (int i = 0; i < 9; i++)
            x[i] = unit[k] * (float)(i - 4);
        embeddings_norm(x, 9, 100);
        for (int i = 0; i < 9; i++)
            sum += pow(fabs((double)x[i]), 100);
        assert_true(fabs(sum - 1) < 1e-4);
    }
}

TEST(embeddings_know_what_is_no_number)
{
    const float odd[] = {NAN, INFINITY, -INFINITY};
    float x[3] = {1, -2, 0};

    assert_true(embeddings_finite(x, 3));
    for (int i = 0; i < 9; i++) {
        x[0] = x[1] = x[2] = 1e38f;
        x[i / 3] = odd[i % 3];
        assert_false(embeddings_finite(x, 3));
        embeddings_norm(x, 3, 2);
        assert_false(embeddings_finite(x, 3));
    }
}

TEST(embeddings_of_zeros_stay_zeros)
{
    for (int p = -1; p < 4; p++) {
        float x[3] = {0};

        embeddings_norm(x, 3, p);
        assert_true(x[0] == 0 && x[1] == 0 && x[2] == 0);
    }
}
