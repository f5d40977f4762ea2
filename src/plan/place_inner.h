/* What the files of placement share. */
#ifndef PLAN_PLACE_INNER_H
#define PLAN_PLACE_INNER_H

#include "plan/place.h"

/* The group of a leaf's layer, whatever options say of the leaf itself. */
int place_layer_group(const struct placement *p, const pl_graph *g, int leaf);

#endif
