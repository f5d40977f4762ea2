/* The method of largest remainders; see apportion.h. */
#include "plan/apportion.h"

#include <math.h>

void apportion(int n, double *weight, int64_t total, int64_t *count)
{
    double sum = 0;
    int64_t left = total;

    for (int i = 0; i < n; i++)
        sum += weight[i];
    for (int i = 0; i < n; i++) {
        double want = weight[i] / sum * (double)total;

        count[i] = (int64_t)floor(want + 1e-9);
        left -= count[i];
        /* From here on, weight[i] is the fraction of an item that receiver i is
         * still due. */
        weight[i] = weight[i] > 0 ? want - (double)count[i] : -1;
    }
    for (; left > 0; left--) {
        int best = 0;

        for (int i = 1; i < n; i++)
            if (weight[i] > weight[best] + 1e-12)
                best = i;
        count[best]++;
        weight[best] = -1;
    }
}

int64_t split_grain(int64_t size, int n_rank)
{
    int64_t grain = 32;

    while (grain > 1 && size / grain < n_rank)
        grain /= 2;
    return grain;
}

const pl_layout *layout_from_counts(struct arena *a, int dim, int64_t size,
                                    int64_t grain, int n_rank,
                                    const int64_t *count)
{
    pl_interval run[PL_MAX_RANKS];
    int64_t left = size;
    int n_run = 0;

    for (int r = 0; r < n_rank; r++) {
        int64_t len = count[r] * grain < left ? count[r] * grain : left;

        if (len > 0)
            run[n_run++] = (pl_interval){len, (rankset)1 << r};
        left -= len;
    }
    return layout_split(a, dim, size, n_run, run, n_rank);
}
