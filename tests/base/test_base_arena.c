/* An arena remembers its first failed allocation, until it is freed. */
#include "base/arena.h"

#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdint.h>
#include <string.h>

TEST(base_arena_keeps_the_first_failure)
{
    struct arena a = {0};
    pl_err err;

    assert_non_null(arena_alloc(&a, 3, 100));
    TEST_OK(arena_check(&a, "a table", &err), err);
    alloc_fail_at(1);
    assert_null(arena_alloc(&a, 1000, 1000));
    alloc_fail_off();
    alloc_fail_at(1);
    assert_null(arena_alloc(&a, 2000, 1000));
    alloc_fail_off();
    assert_non_null(arena_alloc(&a, 3, 100));
    assert_int_equal(arena_check(&a, "a table", &err), PL_NO_MEMORY);
    assert_string_equal(err.message, "out of host memory while allocating "
                                     "a table (1000000 bytes)");
    arena_fini(&a);
    TEST_OK(arena_check(&a, "a table", &err), err);
}

TEST(base_arena_counts_an_overflow_as_a_failure)
{
    struct arena a = {0};

    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_int_equal(arena_check(&a, "a table", NULL), PL_NO_MEMORY);
    arena_fini(&a);
    assert_null(arena_strndup(&a, "", SIZE_MAX));
    assert_int_equal(arena_check(&a, "a text", NULL), PL_NO_MEMORY);
    arena_fini(&a);
}

/* Two arrays that grow in turn, and allocations between them, keep what they
 * hold, whether they share a block or have their own. */
TEST(base_arena_arrays_grow)
{
    enum { N = 20000 };
    struct arena a = {0};
    uint32_t *one = NULL;
    uint64_t *two = NULL;

    for (uint32_t i = 0; i < N; i++) {
        one = arena_extended(&a, one, i, sizeof *one);
        two = arena_extended(&a, two, i, sizeof *two);
        assert_non_null(one);
        assert_non_null(two);
        one[i] = i;
        two[i] = ~(uint64_t)i;
        if (i % 1000 == 0)
            memset(arena_alloc(&a, i, 1), 0xff, i);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(one[i], i);
        assert_true(two[i] == ~(uint64_t)i);
    }
    alloc_fail_at(1);
    assert_null(arena_extended(&a, NULL, 0, 100000));
    alloc_fail_off();
    assert_int_equal(arena_check(&a, "a list", NULL), PL_NO_MEMORY);
    arena_fini(&a);
}
