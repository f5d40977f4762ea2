/* Dealing by shares what does not divide evenly: ranks to the devices of a
 * group, layers to groups, indices of a dimension to ranks. Each gets the whole
 * part of its share, and what is left goes to the largest remainders. */
#ifndef PLAN_APPORTION_H
#define PLAN_APPORTION_H

#include "layout/layout.h"

/* Deals `total` things by weight, ties to the first. weight [n], not all zero,
 * is overwritten; a zero gets none. */
void apportion(int n, double *weight, int64_t total, int64_t *count);

/* Indices that stay together where a dimension of `size` is dealt to ranks:
 * 32, or fewer if not every rank would get some. */
int64_t split_grain(int64_t size, int n_rank);
/* Dimension `dim` in one run a rank: count[r] grains for rank r, the last grain
 * cut off at `size`. NULL: out of memory. */
const pl_layout *layout_from_counts(struct arena *a, int dim, int64_t size,
                                    int64_t grain, int n_rank,
                                    const int64_t *count);

#endif
