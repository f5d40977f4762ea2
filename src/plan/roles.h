/* Chooses the default layout of each weight and cache by its role, such as
 * attention query or feed-forward down.
 *
 * Shares are apportioned once for each axis of a layer (heads, feed-forward
 * width, expert width, vocabulary). All tensors with that axis are split at the
 * same positions, so that data passes from producers to consumers without
 * communication. */
#ifndef PLAN_ROLES_H
#define PLAN_ROLES_H

#include "graph/graph.h"
#include "layout/layout.h"

/* Sets leaf[i] to the default layout of graph node i if it is a weight or cache
 * and is split, else to NULL, which stands for MIRRORED. Layouts are allocated
 * from `a`. share[n_rank] holds each rank's share of the work: non-negative,
 * not all zero. */
pl_status roles_layouts(const pl_graph *g, int n_rank, const double *share,
                        struct arena *a, const pl_layout **leaf, pl_err *err);

const char *role_name(pl_role r); /* Returns the name of a role, such as
                                     "ffn_down". */

#endif
