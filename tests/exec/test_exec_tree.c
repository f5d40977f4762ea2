/* The tree over ranks: the same additions in the same order, whichever devices
 * carry them. An addend is a number, and an addition a hash of both sides that
 * distinguishes left from right. So two results are equal if the trees are. */
#include "lower/rank_tree.h"

#include "lib/support.h"

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t s = 3 * a + 5 * b + 0x9E3779B97F4A7C15;

    return test_random(&s);
}

/* Computes the definition: 0 is a hole, and a node with one child is that
 * child. */
static uint64_t tree(const uint64_t *x, int n)
{
    uint64_t l, r;
    int left = 1;

    if (n == 1)
        return x[0];
    while (2 * left < n)
        left *= 2;
    l = tree(x, left);
    r = tree(x + left, n - left);
    return l && r ? add(l, r) : l ? l : r;
}

struct stack {
    uint64_t x[64];
    int n, most;
};

static void push(struct stack *s, uint64_t x, int n_add)
{
    assert_true(s->n < 64);
    s->x[s->n++] = x;
    s->most = s->n > s->most ? s->n : s->most;
    for (; n_add > 0; n_add--) {
        assert_true(s->n >= 2);
        s->n--;
        s->x[s->n - 1] = add(s->x[s->n - 1], s->x[s->n]);
    }
}

/* Computes the sum as the devices do: each its own ranks, then all together. */
static uint64_t by_devices(struct arena *a, const uint64_t *x, int n, int n_dev,
                           const int *rank0, const int *n_rank)
{
    static struct stack dev[64], all;
    struct rank_join join[64];
    uint64_t present = 0;
    int n_join, depth;

    for (int r = 0; r < n; r++)
        present |= (uint64_t)(x[r] != 0) << r;
    for (int d = 0; d < n_dev; d++) {
        struct rank_tree t;
        int before = rank0[d] - 1;

        assert_true(rank_tree_make(&t, a, n, present, rank0[d], n_rank[d]));
        dev[d] = (struct stack){.n = 0};
        for (int i = 0; i < t.n; i++) {
            assert_in_range(t.item[i].rank, before + 1,
                            rank0[d] + n_rank[d] - 1);
            before = t.item[i].rank;
            assert_true(x[before] != 0);
            push(&dev[d], x[before], t.item[i].n_add);
        }
        assert_int_equal(dev[d].n, t.n_out);
        assert_int_equal(dev[d].most, t.depth);
    }
    n_join = rank_tree_join(join, n, present, n_dev, rank0, n_rank, &depth);
    all = (struct stack){.n = 0};
    for (int i = 0; i < n_join; i++) {
        assert_in_range(join[i].index, 0, dev[join[i].shard].n - 1);
        push(&all, dev[join[i].shard].x[join[i].index], join[i].n_add);
    }
    assert_int_equal(all.most, depth);
    if (present == 0)
        return 0;
    assert_int_equal(all.n, 1);
    return all.x[0];
}

TEST(exec_tree_is_one_whoever_carries_the_ranks)
{
    uint64_t seed = test_seed();
    int n_trial = test_draws(20000, 200000);

    for (int trial = 0; trial < n_trial; trial++) {
        int n = 1 + (int)test_below(&seed, test_below(&seed, 2) ? 8 : 64);
        int rank0[65], n_rank[65], n_dev = 0;
        struct arena a = {0};
        uint64_t x[64];

        for (int r = 0; r < n; r++)
            x[r] = test_below(&seed, 4) ? 1 + test_random(&seed) / 2 : 0;
        for (int r = 0; r < n; r += n_rank[n_dev++]) {
            rank0[n_dev] = r;
            n_rank[n_dev] = 1 + (int)test_below(&seed, n - r);
        }
        assert_true(by_devices(&a, x, n, n_dev, rank0, n_rank) == tree(x, n));
        arena_fini(&a);
    }
}
