/* Shared by the files of placement. */
#ifndef PLAN_PLACE_INNER_H
#define PLAN_PLACE_INNER_H

#include "plan/place.h"

/* Returns the group of a leaf's layer, ignoring options for the leaf itself. */
int place_layer_group(const struct placement *p, const pl_graph *g, int leaf);

#endif
