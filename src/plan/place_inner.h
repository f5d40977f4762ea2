/* Declarations shared by place.c, place_leaves.c and place_ops.c. */
#ifndef PLAN_PLACE_INNER_H
#define PLAN_PLACE_INNER_H

#include "plan/place.h"

/* Returns the group of the layer to which weight or cache `leaf` belongs.
 * Ignores options that place this weight or cache elsewhere, such as
 * overrides. */
int place_layer_group(const struct placement *p, const pl_graph *g, int leaf);

#endif
