/* Layouts agree with models that work index by index: the normal form,
 * containment, and what a device stores. */
#include "layout/layout.h"
#include "lib/random_layout.h"
#include "lib/support.h"

#include <string.h>

enum { MAX_SIZE = 48 };

static bool same_owners(const pl_layout *a, const pl_layout *b, int64_t size,
                        int n_rank)
{
    for (int64_t i = 0; i < size; i++)
        if (naive_owners(a, i, n_rank) != naive_owners(b, i, n_rank))
            return false;
    return true;
}

/* Returns the shortest period of the owners, or the whole size if all are
 * equal. */
static int64_t naive_period(const pl_layout *l, int64_t size, int n_rank)
{
    for (int64_t q = 1; q < size; q++) {
        bool ok = size % q == 0;

        for (int64_t i = 0; i + q < size && ok; i++)
            ok = naive_owners(l, i, n_rank) == naive_owners(l, i + q, n_rank);
        if (ok)
            return q == 1 ? size : q;
    }
    return size;
}

TEST(layout_split_gives_the_normal_form)
{
    uint64_t seed = test_seed();

    for (int t = 0; t < 20000; t++) {
        int64_t size = 1 + test_below(&seed, t % 2 ? 12 : MAX_SIZE);
        int n_rank = 1 + (int)test_below(&seed, t % 4 ? 3 : 64);
        struct random_layout raw[2];
        const pl_layout *l[2];
        struct arena a = {0};

        for (int i = 0; i < 2; i++) {
            random_split(&raw[i], 0, size, n_rank, &seed);
            l[i] =
                layout_split(&a, 0, size, raw[i].l.n_run, raw[i].run, n_rank);
            assert_non_null(l[i]);
            assert_true(same_owners(&raw[i].l, l[i], size, n_rank));
            if (l[i]->kind == PL_MIRRORED)
                continue;
            assert_int_equal(l[i]->period, naive_period(l[i], size, n_rank));
            for (int k = 0; k + 1 < l[i]->n_run; k++)
                assert_true(l[i]->run[k].owners != l[i]->run[k + 1].owners);
            assert_true(l[i]->n_run > 1 ||
                        l[i]->run[0].owners != ranks_all(n_rank));
        }
        assert_int_equal(layout_equal(l[0], l[1]),
                         same_owners(l[0], l[1], size, n_rank));
        arena_fini(&a);
    }
}

TEST(layout_contains_agrees_with_each_index)
{
    uint64_t seed = test_seed();
    int yes = 0;

    for (int t = 0; t < 20000; t++) {
        int64_t size = 1 + test_below(&seed, MAX_SIZE);
        int n_rank = 1 + (int)test_below(&seed, 3);
        struct random_layout raw[2];
        pl_interval run[MAX_SIZE];
        const pl_layout *have, *want;
        struct arena a = {0};
        bool all = true;

        random_split(&raw[0], 1, size, n_rank, &seed);
        random_split(&raw[1], 1, size, n_rank, &seed);
        /* half of the time, one that is contained by construction */
        for (int64_t i = 0; i < size; i++) {
            rankset o = naive_owners(&raw[1].l, i, n_rank);

            run[i] = (pl_interval){1, o};
            if (t % 2)
                run[i].owners |= naive_owners(&raw[0].l, i, n_rank);
        }
        want = layout_split(&a, 1, size, raw[0].l.n_run, raw[0].run, n_rank);
        have = layout_split(&a, 1, size, (int)size, run, n_rank);
        assert_non_null(want);
        assert_non_null(have);
        for (int64_t i = 0; i < size; i++)
            all &= (naive_owners(want, i, n_rank) &
                    ~naive_owners(have, i, n_rank)) == 0;
        if (all && have->kind == PL_SPLIT && want->kind == PL_SPLIT)
            yes++;
        assert_int_equal(layout_contains(have, want, size), all);
        arena_fini(&a);
    }
    assert_true(yes > 100);
    assert_true(layout_contains(&layout_partial, &layout_partial, 1));
    assert_false(layout_contains(&layout_mirrored, &layout_partial, 1));
    assert_false(layout_contains(&layout_partial, &layout_mirrored, 1));
}

TEST(layout_contains_tells_dimensions_apart)
{
    const pl_interval run[2] = {{2, 1}, {2, 2}};
    const pl_layout a = {PL_SPLIT, 0, 4, 2, run}, b = {PL_SPLIT, 1, 4, 2, run};

    assert_false(layout_contains(&a, &b, 4));
    assert_false(layout_equal(&a, &b));
}

TEST(layout_local_agrees_with_each_index)
{
    uint64_t seed = test_seed();

    for (int t = 0; t < 10000; t++) {
        int64_t size = 1 + test_below(&seed, MAX_SIZE), stored = 0;
        int n_rank = 1 + (int)test_below(&seed, 8);
        rankset dev = test_random(&seed) & ranks_all(n_rank);
        struct random_layout raw;
        struct layout_local m;
        struct arena a = {0};
        const pl_layout *l = random_split(&raw, 0, size, n_rank, &seed);

        if (t % 8 == 0)
            l = &layout_mirrored;
        else if (t % 2)
            l = layout_split(&a, 0, size, l->n_run, l->run, n_rank);
        assert_true(layout_local_init(&m, &a, l, size, dev));
        for (int64_t i = 0; i <= size; i++) {
            bool mine = i < size && (l->kind != PL_SPLIT ||
                                     (naive_owners(l, i, n_rank) & dev));

            assert_int_equal(layout_local_below(&m, i), stored);
            if (i < size)
                assert_int_equal(layout_local_index(&m, i), mine ? stored : -1);
            stored += mine;
        }
        assert_int_equal(m.local, stored);
        assert_int_equal(m.size, size);
        assert_int_equal(layout_local_size(l, size, dev), stored);
        arena_fini(&a);
    }
}

TEST(layout_run_walk_visits_each_index_once)
{
    uint64_t seed = test_seed();

    for (int t = 0; t < 5000; t++) {
        int64_t size = 1 + test_below(&seed, MAX_SIZE), at = 0;
        int n_rank = 1 + (int)test_below(&seed, 8);
        struct random_layout raw;
        struct run_walk w;

        random_split(&raw, 0, size, n_rank, &seed);
        assert_true(run_walk_first(&w, &raw.l, size));
        do {
            assert_int_equal(w.pos, at);
            assert_true(w.left > 0);
            for (int64_t i = 0; i < w.left; i++)
                assert_true(run_walk_owners(&w) ==
                            naive_owners(&raw.l, at + i, n_rank));
            at += w.left;
        } while (run_walk_next(&w));
        assert_int_equal(at, size);
    }
}

/* ---- checks and text ---------------------------------------------------- */

TEST(layout_check_refuses_what_tiles_nothing)
{
    const pl_interval ok[2] = {{2, 1}, {2, 6}}, none[2] = {{2, 1}, {2, 0}};
    const pl_interval far[2] = {{2, 1}, {2, 8}}, zero[2] = {{0, 1}, {4, 2}};
    const pl_interval huge[2] = {{INT64_MAX, 1}, {INT64_MAX, 2}};
    const int64_t size[2] = {8, 6};
    const struct {
        pl_layout l;
        pl_status s;
    } cases[] = {
        {{PL_MIRRORED, 0, 0, 0, NULL}, PL_OK},
        {{PL_PARTIAL, 0, 0, 0, NULL}, PL_BAD_ARGUMENT},
        {{(pl_layout_kind)7, 0, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, ok}, PL_OK},
        /* the period 4 does not divide the dimension's size 6 */
        {{PL_SPLIT, 1, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 2, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, -1, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 8, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 0, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, none}, PL_BAD_ARGUMENT},
        /* an owner is not one of the 3 ranks */
        {{PL_SPLIT, 0, 4, 2, far}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, zero}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, -2, 2, huge}, PL_BAD_ARGUMENT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err err;

        if (layout_check(&cases[i].l, 2, size, 3, "w", &err) != cases[i].s)
            fail_msg("case %zu", i);
        if (cases[i].s != PL_OK)
            assert_true(strstr(err.message, "w: ") == err.message);
    }
}

TEST(layout_print_is_exact_and_fits)
{
    const pl_interval run[2] = {{3, 3}, {2, 4}};
    const pl_layout l = {PL_SPLIT, 1, 5, 2, run};
    const char *all = "split(1: 3{0,1} 2{2})";
    char buf[64];

    assert_string_equal(layout_print(&l, buf, sizeof buf), all);
    assert_string_equal(layout_print(&layout_mirrored, buf, sizeof buf),
                        "mirrored");
    assert_string_equal(layout_print(&layout_partial, buf, sizeof buf),
                        "partial");
    for (size_t n = 1; n < sizeof buf; n++) {
        memset(buf, 'x', sizeof buf);
        layout_print(&l, buf, n);
        assert_true(strlen(buf) < n);
        assert_memory_equal(buf, all, strlen(buf));
        assert_true(n > strlen(all) || strlen(buf) == n - 1);
    }
}
