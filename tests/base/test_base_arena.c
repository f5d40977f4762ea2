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
