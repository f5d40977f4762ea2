/* Which ranks each device of a group carries, and the ranks' shares. */
#ifndef PLAN_GROUP_H
#define PLAN_GROUP_H

#include "base/arena.h"
#include "pl.h"

struct group {
    int n_dev, n_rank;
    int *rank0, *n_rank_of; /* [n_dev]: consecutive ranks of each device */
    double share[PL_MAX_RANKS];
};

/* n_ranks 0: one rank a device, shares by `split`. Else equal ranks, whole ones
 * dealt to devices by `split` and largest remainder. split NULL: equal; of
 * another length than n_dev: an error. */
pl_status group_deal(struct group *out, struct arena *a, int n_dev, int n_ranks,
                     const double *split, int n_split, pl_err *err);

#endif
