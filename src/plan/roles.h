/* Maps roles to layouts of leaves: how each type of matrix is split.
 *
 * Shares are apportioned once for each axis of a layer (heads, feed-forward
 * width, expert width, vocabulary). Every tensor of the axis follows, so that
 * producers and consumers agree and exchange nothing. */
#ifndef PLAN_ROLES_H
#define PLAN_ROLES_H

#include "graph/graph.h"
#include "layout/layout.h"

/* Sets leaf[i], [g->n_node], to the default layout of leaf i or NULL
 * (MIRRORED). Layouts live in `a`. share[n_rank]: non-negative, not all
 * zero. */
pl_status roles_layouts(const pl_graph *g, int n_rank, const double *share,
                        struct arena *a, const pl_layout **leaf, pl_err *err);

const char *role_name(pl_role r); /* "ffn_down" */

#endif
