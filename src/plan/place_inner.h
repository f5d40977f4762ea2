/* What the files of placement share. */
#ifndef PLAN_PLACE_INNER_H
#define PLAN_PLACE_INNER_H

#include "plan/place.h"

/* Deals `total` things by weight: whole parts, then largest remainders, ties to
 * the first. weight [n], not all zero, is overwritten; a zero gets none. */
void place_share_out(int n, double *weight, int64_t total, int64_t *count);

/* The group of a leaf's layer, whatever options say of the leaf itself. */
int place_layer_group(const struct placement *p, const pl_graph *g, int leaf);

#endif
