/* Largest-remainder apportionment, a method to divide whole items by weight. It
 * divides ranks among the devices of a group, layers among groups, and indices
 * of a dimension among ranks. Each receives the whole part of its share; the
 * items that are left go to the largest remainders. */
#ifndef PLAN_APPORTION_H
#define PLAN_APPORTION_H

#include "layout/layout.h"

/* Sets count[i] to the number of items, of `total`, that receiver i of n gets
 * in proportion to weight[i]. Equal remainders favour the lower index. weight
 * [n], not all zero, is overwritten. A receiver of weight zero gets no
 * items. */
void apportion(int n, double *weight, int64_t total, int64_t *count);

/* Returns the grain of a split: the number of adjacent indices that stay on one
 * rank when a dimension of `size` is split over ranks. The grain is 32, or
 * smaller if a rank would otherwise get no indices. */
int64_t split_grain(int64_t size, int n_rank);
/* Returns a layout that splits dimension `dim` into one interval per rank, or
 * NULL if out of memory. Rank r gets count[r] grains of `grain` indices each;
 * the last grain is truncated at `size`. */
const pl_layout *layout_from_counts(struct arena *a, int dim, int64_t size,
                                    int64_t grain, int n_rank,
                                    const int64_t *count);

#endif
