/* The failing allocator of the tests itself. A test that relies on it proves
 * nothing if it fails the wrong allocation, or none. */
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

/* Called through a volatile pointer, or compilers drop malloc with free. */
static void *(*volatile allocate)(size_t) = malloc;

TEST(alloc_nth_fails_and_only_that)
{
    for (int64_t n = 1; n <= 4; n++) {
        alloc_fail_at(n);
        for (int64_t i = 1; i <= 5; i++) {
            void *p = allocate(64);

            assert_int_equal(p == NULL, i == n);
            free(p);
        }
        assert_true(alloc_fail_off());
    }
    alloc_fail_at(2);
    free(allocate(1));
    assert_false(alloc_fail_off());
}

TEST(alloc_every_function_can_fail)
{
    void *p = NULL;
    void *volatile q;

    alloc_fail_at(1);
    q = calloc(3, 5);
    assert_null(q);
    alloc_fail_at(1);
    q = realloc(NULL, 5);
    assert_null(q);
    alloc_fail_at(1);
    q = aligned_alloc(64, 64);
    assert_null(q);
    alloc_fail_at(1);
    q = strdup("x");
    assert_null(q);
    alloc_fail_at(1);
    q = strndup("x", 1);
    assert_null(q);
    alloc_fail_at(1);
    assert_int_not_equal(posix_memalign(&p, 64, 64), 0);
    assert_true(alloc_fail_off());
}

TEST(alloc_peak_is_what_was_held_at_once)
{
    struct alloc_stat s;
    void *p, *q;

    alloc_stat_reset();
    p = allocate(1000);
    q = allocate(2000);
    free(p);
    p = allocate(500);
    free(p);
    free(q);
    s = alloc_stat_get();
    assert_int_equal(s.n_call, 3);
    assert_int_equal(s.live_bytes, 0);
    assert_int_equal(s.max_bytes, 2000);
    assert_in_range(s.peak_bytes, 3000, 3100);
}
