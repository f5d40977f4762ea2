/* Largest-remainder apportionment, a method to divide whole items by weight. It
 * divides ranks among the devices of a group, layers among groups, and indices
 * of a dimension among ranks. Each receiver gets the whole part of what it is
 * due. The items that are left go to the receivers with the largest remaining
 * fractions. */
#ifndef PLAN_APPORTION_H
#define PLAN_APPORTION_H

#include "layout/layout.h"

/* Divides `total` items among n receivers in proportion to weight[n], and sets
 * count[i] to the number that receiver i gets. If two fractions are equal, the
 * lower index is preferred. The weights must not all be zero and are
 * overwritten. A receiver of weight zero gets no items. */
void apportion(int n, double *weight, int64_t total, int64_t *count);

/* Returns the grain of a split: the number of adjacent indices that stay on one
 * rank when a dimension of `size` is split over ranks. The grain is 32, or
 * smaller if a rank would otherwise get no indices. */
int64_t split_grain(int64_t size, int n_rank);
/* Returns a layout that splits dimension `dim`, of `size` indices, into one
 * interval per rank (layout_split). Rank r gets count[r] grains, which are
 * `grain` adjacent indices each; the last grain ends at `size`. */
const pl_layout *layout_from_counts(struct arena *a, int dim, int64_t size,
                                    int64_t grain, int n_rank,
                                    const int64_t *count);

#endif
