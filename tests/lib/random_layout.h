/* Random layouts for tests: any runs, owner sets, periods and empty ranks. */
#ifndef TEST_RANDOM_LAYOUT_H
#define TEST_RANDOM_LAYOUT_H

#include "lib/support.h"

#include "layout/layout.h"

enum { RANDOM_MAX_RUN = 64 };

/* Storage for one layout: `l` points into it. */
struct random_layout {
    pl_layout l;
    pl_interval run[RANDOM_MAX_RUN];
};

/* Returns one rank, or sometimes several of those in `among` (not empty). */
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

/* Returns a SPLIT of dimension `dim` of `size`, not in normal form. Ranks
 * outside a random subset stay empty in half of the cases. */
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

/* Returns the owners of index `i` of the split dimension, straight from the
 * definition. */
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
