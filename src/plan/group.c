/* Dealing ranks to devices. */
#include "plan/group.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

pl_status group_deal(struct group *out, struct arena *a, int n_dev, int n_ranks,
                     const double *split, int n_split, pl_err *err)
{
    double sum = 0, *need;
    int left;

    memset(out, 0, sizeof *out);
    if (n_dev < 1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "no devices are given; name at least one");
    if (split && n_split != n_dev)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the tensor split (-ts) has %d share%s for %d device%s; "
                       "give one a device",
                       n_split, n_split == 1 ? "" : "s", n_dev,
                       n_dev == 1 ? "" : "s");
    if (n_ranks < 0 || n_ranks > PL_MAX_RANKS)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d ranks are asked for; 1 to %d are allowed", n_ranks,
                       PL_MAX_RANKS);
    if (n_ranks == 0 && n_dev > PL_MAX_RANKS)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d devices in one group; at most %d take part in a "
                       "tensor split: deal layers too (-sm hybrid:N), or give "
                       "--ranks, and the last devices stay idle",
                       n_dev, PL_MAX_RANKS);
    for (int d = 0; split && d < n_dev; d++) {
        if (!(split[d] >= 0) || !isfinite(split[d]))
            return err_set(err, PL_BAD_ARGUMENT,
                           "share %d of the tensor split is %g; shares are "
                           "zero or positive",
                           d, split[d]);
        sum += split[d];
    }
    if (split && !(sum > 0))
        return err_set(err, PL_BAD_ARGUMENT,
                       "all shares of the tensor split are zero; give at "
                       "least one device a positive share");
    out->n_dev = n_dev;
    out->n_rank = n_ranks ? n_ranks : n_dev;
    out->rank0 = arena_alloc(a, (size_t)n_dev, sizeof *out->rank0);
    out->n_rank_of = arena_alloc(a, (size_t)n_dev, sizeof *out->n_rank_of);
    need = arena_alloc(a, (size_t)n_dev, sizeof *need);
    if (!out->rank0 || !out->n_rank_of || !need)
        return err_no_memory(err, "a group of devices");
    if (n_ranks == 0) {
        for (int d = 0; d < n_dev; d++) {
            out->rank0[d] = d;
            out->n_rank_of[d] = 1;
            out->share[d] = split ? split[d] : 1;
        }
        return PL_OK;
    }
    left = n_ranks;
    for (int d = 0; d < n_dev; d++) {
        double want =
            split ? split[d] / sum * n_ranks : (double)n_ranks / n_dev;

        out->n_rank_of[d] = (int)floor(want + 1e-9);
        need[d] = split && split[d] == 0 ? -1 : want - out->n_rank_of[d];
        left -= out->n_rank_of[d];
    }
    for (; left > 0; left--) {
        int best = 0;

        for (int d = 1; d < n_dev; d++)
            if (need[d] > need[best] + 1e-12)
                best = d;
        out->n_rank_of[best]++;
        need[best] = -1;
    }
    for (int d = 0, r = 0; d < n_dev; r += out->n_rank_of[d++])
        out->rank0[d] = r;
    for (int r = 0; r < n_ranks; r++)
        out->share[r] = 1;
    return PL_OK;
}
