/* Largest-remainder apportionment: ranks to the devices of a group, layers to
 * groups, indices of a dimension to ranks. Each gets the whole part of its
 * share. The rest goes to the largest remainders. */
#ifndef PLAN_APPORTION_H
#define PLAN_APPORTION_H

#include "layout/layout.h"

/* Apportions `total` items by weight, ties to the first. weight [n], not all
 * zero, is overwritten; a zero weight gets none. */
void apportion(int n, double *weight, int64_t total, int64_t *count);

/* Returns how many indices stay together when a dimension of `size` is split
 * over ranks: 32, or fewer if a rank would get none. */
int64_t split_grain(int64_t size, int n_rank);
/* Returns a layout of dimension `dim` with one interval a rank: count[r] grains
 * for rank r, the last grain truncated at `size`. NULL: out of memory. */
const pl_layout *layout_from_counts(struct arena *a, int dim, int64_t size,
                                    int64_t grain, int n_rank,
                                    const int64_t *count);

#endif
