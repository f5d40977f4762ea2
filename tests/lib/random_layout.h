/* Random layouts for tests, with any intervals, sets of owners, periods and
 * ranks without values. */
#ifndef TEST_RANDOM_LAYOUT_H
#define TEST_RANDOM_LAYOUT_H

#include "lib/support.h"

#include "layout/layout.h"

enum { RANDOM_MAX_RUN = 64 };

/* A layout and the memory of its intervals: `l` points into the struct. */
struct random_layout {
    pl_layout l;
    pl_interval run[RANDOM_MAX_RUN];
};

/* Returns a set of one rank, or sometimes several, out of the ranks in `among`,
 * which is not empty. */
static inline rankset random_owners(uint64_t *seed, rankset among)
{
    rankset s = 0;

    if (test_below(seed, 4) == 0) {
        s = test_random(seed) & among;
        if (s != 0)
            return s;
    }
    for (int k = (int)test_below(seed, __builtin_popcountll(among)); k > 0; k--)
        among &= among - 1;
    return among & -among;
}

/* Returns a SPLIT of dimension `dim`, which has `size` indices, not in normal
 * form. In half of the cases only a random subset of the ranks owns any
 * index. */
static inline const pl_layout *random_split(struct random_layout *out, int dim,
                                            int64_t size, int n_rank,
                                            uint64_t *seed)
{
    rankset among = ranks_all(n_rank);
    int64_t period = size, left;
    int n = 0;

    if (test_below(seed, 2)) {
        rankset some = test_random(seed) & among;

        among = some ? some : among;
    }
    if (test_below(seed, 3) == 0) {
        period = 1 + test_below(seed, size);
        while (size % period)
            period--;
    }
    for (left = period; left > 0; n++) {
        int64_t len = 1 + test_below(seed, test_below(seed, 2) ? left : 2);

        if (len > left || n == RANDOM_MAX_RUN - 1)
            len = left;
        out->run[n] = (pl_interval){len, random_owners(seed, among)};
        left -= len;
    }
    out->l = (pl_layout){PL_SPLIT, dim, period, n, out->run};
    return &out->l;
}

/* Returns the ranks that own index `i` of the split dimension, computed from
 * the definition of a layout alone. */
static inline rankset naive_owners(const pl_layout *l, int64_t i, int n_rank)
{
    int k = 0;

    if (l->kind != PL_SPLIT)
        return ranks_all(n_rank);
    for (i %= l->period; i >= l->run[k].len; k++)
        i -= l->run[k].len;
    return l->run[k].owners;
}

#endif
