/* Layouts against models that go index by index: the normal form, containment,
 * what a device stores, and the pieces of any view. */
#include "alloc_fail.h"
#include "layout/layout.h"
#include "random_layout.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 48, MAX_VALUES = 4096, MAX_DEV = 8 };

static bool same_owners(const pl_layout *a, const pl_layout *b, int64_t size,
                        int n_rank)
{
    for (int64_t i = 0; i < size; i++)
        if (naive_owners(a, i, n_rank) != naive_owners(b, i, n_rank))
            return false;
    return true;
}

/* The shortest period of the owners, or the whole size if all are equal. */
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

static void layout_split_gives_the_normal_form(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
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

static void layout_contains_agrees_with_each_index(void **state)
{
    uint64_t seed = test_seed();
    int yes = 0;

    (void)state;
    for (int t = 0; t < 20000; t++) {
        int64_t size = 1 + test_below(&seed, MAX_SIZE);
        int n_rank = 1 + (int)test_below(&seed, 3);
        struct random_layout raw[2];
        pl_run run[MAX_SIZE];
        const pl_layout *have, *want;
        struct arena a = {0};
        bool all = true;

        random_split(&raw[0], 1, size, n_rank, &seed);
        random_split(&raw[1], 1, size, n_rank, &seed);
        /* half of the time, one that is contained by making */
        for (int64_t i = 0; i < size; i++) {
            rankset o = naive_owners(&raw[1].l, i, n_rank);

            run[i] = (pl_run){1, o};
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

static void layout_contains_tells_dimensions_apart(void **state)
{
    const pl_run run[2] = {{2, 1}, {2, 2}};
    const pl_layout a = {PL_SPLIT, 0, 4, 2, run}, b = {PL_SPLIT, 1, 4, 2, run};

    (void)state;
    assert_false(layout_contains(&a, &b, 4));
    assert_false(layout_equal(&a, &b));
}

static void layout_local_agrees_with_each_index(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
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

static void layout_run_walk_visits_each_index_once(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
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

/* ---- pieces ------------------------------------------------------------- */

/* What every device stores, and the view, as lists of logical offsets. */
struct model {
    struct layout_tensor t;
    struct layout_view v;
    rankset dev[MAX_DEV];
    int64_t stored[MAX_DEV][MAX_VALUES], n_stored[MAX_DEV];
    int64_t view[MAX_VALUES], n_view;
    unsigned char got[MAX_DEV][MAX_VALUES]; /* view offsets seen */
    int64_t last;                           /* view offset of the last piece */
    int calls, stop_at;
};

static pl_status check_piece(void *user, const struct layout_piece *p)
{
    struct model *m = user;

    if (++m->calls == m->stop_at)
        return PL_CANCELLED;
    assert_in_range(p->dev, 0, m->t.n_dev - 1);
    assert_true(p->n > 0);
    assert_true(p->view >= m->last); /* in the view's order */
    m->last = p->view;
    assert_true(p->view + p->n <= m->n_view);
    assert_true(p->local >= 0 && p->local + p->n <= m->n_stored[p->dev]);
    for (int64_t i = 0; i < p->n; i++) {
        assert_int_equal(m->stored[p->dev][p->local + i], p->log + i);
        assert_int_equal(m->view[p->view + i], p->log + i);
        assert_int_equal(m->got[p->dev][p->view + i], 0);
        m->got[p->dev][p->view + i] = 1;
    }
    return PL_OK;
}

/* Owners of each logical value, in order; devices keep theirs in order. */
static void model_store(struct model *m, int n_rank)
{
    int64_t inner = 1, n = 1;

    for (int d = 0; d < m->t.n_dim; d++) {
        n *= m->t.dim[d];
        if (m->t.layout->kind == PL_SPLIT && d > m->t.layout->dim)
            inner *= m->t.dim[d];
    }
    for (int k = 0; k < m->t.n_dev; k++) {
        m->n_stored[k] = 0;
        for (int64_t i = 0; i < n; i++) {
            rankset o = ranks_all(n_rank);

            if (m->t.layout->kind == PL_SPLIT)
                o = naive_owners(m->t.layout,
                                 i / inner % m->t.dim[m->t.layout->dim],
                                 n_rank);
            if (m->t.layout->kind != PL_SPLIT || (o & m->dev[k]))
                m->stored[k][m->n_stored[k]++] = i;
        }
    }
}

/* A range, or a permuted and stepped box of the tensor. */
static void model_view(struct model *m, uint64_t *seed)
{
    int64_t stride[4], n = 1;
    struct layout_view *v = &m->v;
    int perm[4] = {0, 1, 2, 3};

    memset(v, 0, sizeof *v);
    for (int d = m->t.n_dim - 1; d >= 0; d--) {
        stride[d] = n;
        n *= m->t.dim[d];
    }
    if (test_below(seed, 3) == 0) {
        v->n_dim = 1;
        v->start = test_below(seed, n);
        v->dim[0] = 1 + test_below(seed, n - v->start);
        v->stride[0] = 1;
    } else {
        v->n_dim = m->t.n_dim;
        for (int d = m->t.n_dim - 1; d > 0; d--) {
            int other = (int)test_below(seed, d + 1), was = perm[d];

            if (test_below(seed, 2)) {
                perm[d] = perm[other];
                perm[other] = was;
            }
        }
        for (int d = 0; d < v->n_dim; d++) {
            int64_t size = m->t.dim[perm[d]];
            int64_t first = test_below(seed, size);
            int64_t step = 1 + (test_below(seed, 3) == 0);

            if (test_below(seed, 2))
                first = 0;
            v->dim[d] = 1 + (size - 1 - first) / step;
            if (test_below(seed, 3) == 0)
                v->dim[d] = 1 + test_below(seed, v->dim[d]);
            v->stride[d] = step * stride[perm[d]];
            v->start += first * stride[perm[d]];
        }
    }
    m->n_view = 1;
    for (int d = 0; d < v->n_dim; d++)
        m->n_view *= v->dim[d];
    for (int64_t i = 0; i < m->n_view; i++) {
        int64_t rest = i, at = v->start;

        for (int d = v->n_dim - 1; d >= 0; d--) {
            at += rest % v->dim[d] * v->stride[d];
            rest /= v->dim[d];
        }
        m->view[i] = at;
    }
}

static void model_draw(struct model *m, struct random_layout *raw, int *n_rank,
                       uint64_t *seed)
{
    int left;

    memset(&m->t, 0, sizeof m->t);
    m->t.n_dim = 1 + (int)test_below(seed, 4);
    for (int d = 0; d < m->t.n_dim; d++)
        m->t.dim[d] = 1 + test_below(seed, m->t.n_dim > 2 ? 7 : 24);
    *n_rank = 1 + (int)test_below(seed, 8);
    m->t.layout = &layout_mirrored;
    if (test_below(seed, 8)) {
        int d = (int)test_below(seed, m->t.n_dim);

        m->t.layout = random_split(raw, d, m->t.dim[d], *n_rank, seed);
    }
    /* consecutive ranks a device; some devices get none */
    m->t.n_dev = 1 + (int)test_below(seed, 4);
    left = *n_rank;
    for (int k = 0, at = 0; k < m->t.n_dev; k++) {
        int n = k + 1 == m->t.n_dev ? left : (int)test_below(seed, left + 1);

        m->dev[k] = ranks_all(at + n) & ~ranks_all(at);
        at += n;
        left -= n;
    }
    m->t.dev = m->dev;
    model_store(m, *n_rank);
    model_view(m, seed);
    memset(m->got, 0, sizeof m->got);
    m->last = m->calls = m->stop_at = 0;
}

static bool holds(const struct model *m, int dev, int64_t log)
{
    for (int64_t i = 0; i < m->n_stored[dev]; i++)
        if (m->stored[dev][i] == log)
            return true;
    return false;
}

static void layout_pieces_cover_every_view(void **state)
{
    static struct model m;
    uint64_t seed = test_seed();
    int n = test_long() ? 100000 : 6000, n_rank;

    (void)state;
    for (int t = 0; t < n; t++) {
        struct random_layout raw;

        model_draw(&m, &raw, &n_rank, &seed);
        assert_int_equal(layout_pieces(&m.t, &m.v, check_piece, &m, NULL),
                         PL_OK);
        for (int k = 0; k < m.t.n_dev; k++)
            for (int64_t i = 0; i < m.n_view; i++)
                assert_int_equal(m.got[k][i], holds(&m, k, m.view[i]));
    }
}

/* Copies from one layout to another, by the pieces alone: from some device of
 * the first to all of the second. */
struct copy {
    const struct model *from;
    int64_t *value; /* of the logical tensor */
    int64_t (*store)[MAX_VALUES];
    bool set;
};

static pl_status copy_piece(void *user, const struct layout_piece *p)
{
    struct copy *c = user;

    for (int64_t i = 0; i < p->n; i++)
        if (c->set)
            c->store[p->dev][p->local + i] = c->value[p->log + i];
        else
            c->value[p->log + i] = c->store[p->dev][p->local + i];
    return PL_OK;
}

static void layout_pieces_carry_a_tensor_between_layouts(void **state)
{
    static struct model m;
    static int64_t store[MAX_DEV][MAX_VALUES], value[MAX_VALUES];
    uint64_t seed = test_seed();
    int n_rank;

    (void)state;
    for (int t = 0; t < 1000; t++) {
        struct random_layout raw;
        struct layout_view whole = {.n_dim = 1, .dim = {1}, .stride = {1}};
        struct copy c = {&m, value, store, true};
        int64_t n;

        model_draw(&m, &raw, &n_rank, &seed);
        for (int d = 0; d < m.t.n_dim; d++)
            whole.dim[0] *= m.t.dim[d];
        n = whole.dim[0];
        for (int64_t i = 0; i < n; i++)
            value[i] = 1000 + i;
        memset(store, 0, sizeof store);
        assert_int_equal(layout_pieces(&m.t, &whole, copy_piece, &c, NULL),
                         PL_OK);
        for (int k = 0; k < m.t.n_dev; k++)
            for (int64_t i = 0; i < m.n_stored[k]; i++)
                assert_int_equal(store[k][i], 1000 + m.stored[k][i]);
        memset(value, 0, sizeof value);
        c.set = false;
        assert_int_equal(layout_pieces(&m.t, &whole, copy_piece, &c, NULL),
                         PL_OK);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(value[i], 1000 + i);
    }
}

static void layout_pieces_whole_of_mirrored_is_one_piece_a_device(void **state)
{
    static struct model m;

    (void)state;
    memset(&m, 0, sizeof m);
    m.t = (struct layout_tensor){.n_dim = 3,
                                 .dim = {4, 5, 6},
                                 .layout = &layout_mirrored,
                                 .n_dev = 2,
                                 .dev = m.dev};
    m.v = (struct layout_view){1, {120}, {1}, 0};
    m.dev[0] = 1;
    m.dev[1] = 6;
    model_store(&m, 3);
    m.n_view = 120;
    for (int64_t i = 0; i < 120; i++)
        m.view[i] = i;
    assert_int_equal(layout_pieces(&m.t, &m.v, check_piece, &m, NULL), PL_OK);
    assert_int_equal(m.calls, 2);
}

static void layout_pieces_stop_at_a_status(void **state)
{
    static struct model m;
    uint64_t seed = test_seed();
    int n_rank;

    (void)state;
    for (int t = 0; t < 200; t++) {
        struct random_layout raw;

        model_draw(&m, &raw, &n_rank, &seed);
        assert_int_equal(layout_pieces(&m.t, &m.v, check_piece, &m, NULL),
                         PL_OK);
        if (m.calls == 0)
            continue;
        m.stop_at = 1 + (int)test_below(&seed, m.calls);
        memset(m.got, 0, sizeof m.got);
        m.calls = 0;
        m.last = 0;
        assert_int_equal(layout_pieces(&m.t, &m.v, check_piece, &m, NULL),
                         PL_CANCELLED);
        assert_int_equal(m.calls, m.stop_at);
    }
}

static void layout_pieces_out_of_memory_is_a_status(void **state)
{
    static struct model m;
    uint64_t seed = test_seed();
    struct random_layout raw;
    bool failed = true;
    int n_rank;

    (void)state;
    do {
        model_draw(&m, &raw, &n_rank, &seed);
    } while (m.t.layout->kind != PL_SPLIT);
    for (int n = 1; failed; n++) {
        pl_status s;
        pl_err err;

        memset(m.got, 0, sizeof m.got);
        m.last = 0;
        alloc_stat_reset();
        alloc_fail_at(n);
        s = layout_pieces(&m.t, &m.v, check_piece, &m, &err);
        failed = alloc_fail_off();
        assert_int_equal(s, failed ? PL_NO_MEMORY : PL_OK);
        assert_int_equal(alloc_stat_get().live_bytes, 0);
    }
}

/* ---- checks and text ---------------------------------------------------- */

static void layout_check_refuses_what_tiles_nothing(void **state)
{
    const pl_run ok[2] = {{2, 1}, {2, 6}}, none[2] = {{2, 1}, {2, 0}};
    const pl_run far[2] = {{2, 1}, {2, 8}}, zero[2] = {{0, 1}, {4, 2}};
    const pl_run huge[2] = {{INT64_MAX, 1}, {INT64_MAX, 2}};
    const int64_t size[2] = {8, 6};
    const struct {
        pl_layout l;
        pl_status s;
    } cases[] = {
        {{PL_MIRRORED, 0, 0, 0, NULL}, PL_OK},
        {{PL_PARTIAL, 0, 0, 0, NULL}, PL_BAD_ARGUMENT},
        {{(pl_layout_kind)7, 0, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, ok}, PL_OK},
        {{PL_SPLIT, 1, 4, 2, ok}, PL_BAD_ARGUMENT}, /* 4 not in 6 */
        {{PL_SPLIT, 2, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, -1, 4, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 8, 2, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 0, ok}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, none}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, 4, 2, far}, PL_BAD_ARGUMENT}, /* of 3 ranks */
        {{PL_SPLIT, 0, 4, 2, zero}, PL_BAD_ARGUMENT},
        {{PL_SPLIT, 0, -2, 2, huge}, PL_BAD_ARGUMENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err err;

        if (layout_check(&cases[i].l, 2, size, 3, "w", &err) != cases[i].s)
            fail_msg("case %zu", i);
        if (cases[i].s != PL_OK)
            assert_true(strstr(err.message, "w: ") == err.message);
    }
}

static void layout_print_is_exact_and_fits(void **state)
{
    const pl_run run[2] = {{3, 3}, {2, 4}};
    const pl_layout l = {PL_SPLIT, 1, 5, 2, run};
    const char *all = "split(1: 3{0,1} 2{2})";
    char buf[64];

    (void)state;
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

int test_layout_pieces(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_split_gives_the_normal_form),
        cmocka_unit_test(layout_contains_agrees_with_each_index),
        cmocka_unit_test(layout_contains_tells_dimensions_apart),
        cmocka_unit_test(layout_local_agrees_with_each_index),
        cmocka_unit_test(layout_run_walk_visits_each_index_once),
        cmocka_unit_test(layout_pieces_cover_every_view),
        cmocka_unit_test(layout_pieces_carry_a_tensor_between_layouts),
        cmocka_unit_test(layout_pieces_whole_of_mirrored_is_one_piece_a_device),
        cmocka_unit_test(layout_pieces_stop_at_a_status),
        cmocka_unit_test(layout_pieces_out_of_memory_is_a_status),
        cmocka_unit_test(layout_check_refuses_what_tiles_nothing),
        cmocka_unit_test(layout_print_is_exact_and_fits),
    };

    return TEST_RUN(tests);
}
