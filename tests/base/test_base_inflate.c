/* What deflate packed is unpacked, and nothing else is. */
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

#include "base/inflate.h"
#include "device/gpu/gpu_ptx.h"

/* By zlib at its levels 0 and 9, of `text`; gpu_ptx has blocks of the third
 * kind. */
#define STORED "\001\014\000\363\377hello, hello"
#define FIXED  "\313\110\315\311\311\327\121\310\000\121\000"

static const char text[] = "hello, hello";

static bool unpacks(const char *packed, size_t n_packed, size_t n)
{
    char *in = test_need(n_packed, 1), *out = test_need(n, 1);
    bool done;

    memcpy(in, packed, n_packed); /* so that a sanitizer sees its ends */
    done = inflate_all(in, n_packed, out, n) && memcmp(out, text, n) == 0;
    free(in);
    free(out);
    return done;
}

TEST(inflate_unpacks_blocks_of_each_kind)
{
    assert_true(unpacks(STORED, sizeof STORED - 1, 12));
    assert_true(unpacks(FIXED, sizeof FIXED - 1, 12));
    for (const struct gpu_ptx *p = gpu_ptx; p->packed; p++) {
        char *out = test_need(p->n, 1);

        assert_true(inflate_all(p->packed, p->n_packed, out, p->n));
        assert_true(p->n == 0 || out[p->n - 1] == '\0');
        free(out);
    }
}

TEST(inflate_wants_as_many_bytes_as_there_are)
{
    assert_false(unpacks(STORED, sizeof STORED - 1, 11));
    assert_false(unpacks(FIXED, sizeof FIXED - 1, 11));
    for (size_t i = 0; i + 1 < sizeof STORED; i++)
        assert_false(unpacks(STORED, i, 12));
    for (size_t i = 0; i + 2 < sizeof FIXED; i++)
        assert_false(unpacks(FIXED, i, 12));
}

TEST(inflate_survives_damage)
{
    const struct gpu_ptx *p = &gpu_ptx[0];
    char *in = test_need(p->n_packed, 1), *out = test_need(p->n, 1);
    uint64_t seed = test_seed();

    for (int i = 0; i < 200; i++) {
        size_t n = 1 + (size_t)test_below(&seed, (int64_t)p->n_packed);

        memcpy(in, p->packed, n);
        for (int j = 0; j < 4; j++)
            in[test_below(&seed, n < 4096 ? (int64_t)n : 4096)] =
                (char)test_random(&seed);
        inflate_all(in, n, out, p->n);
    }
    free(in);
    free(out);
}
