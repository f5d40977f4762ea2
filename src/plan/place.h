/* Placement: the group of devices of each tensor, and so of each op.
 *
 * Split modes, experts or the cache on the host, and overrides all determine a
 * group for every weight and cache. Ops run where their weight or cache lives.
 * Ops with neither get the group with the fewest copied bytes. Placement
 * changes no bit: every group carries all ranks with the same shares, and the
 * numeric plan does not depend on groups. */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "layout/numeric.h"
#include "plan/plan_config.h"

/* A device's shard of a group: consecutive ranks. */
struct place_member {
    int group, dev;    /* dev: index in the device list */
    int rank0, n_rank; /* 0 ranks: idle in this group */
};

struct place_group {
    int first, n;  /* its members, in order */
    char name[32]; /* "tensor", "layer2", "hybrid0", "cpu1", "host" */
};

enum { PLACE_NOWHERE = -1 };

struct placement {
    int n_rank;
    double share[PL_MAX_RANKS];
    int n_group, n_member;
    struct place_group *group;
    struct place_member *member; /* by group */
    int host;                    /* the host's group, or PLACE_NOWHERE */
    int n_layer;
    int *layer_group; /* [n_layer + 1] group that runs a layer's ops unless a
                         leaf overrides it; [n_layer] is the output */
    int input_group;  /* group of the token embedding */
};

/* Creates the groups that `in` requests. `list` begins with in->list; the
 * host's devices are appended if anything may be placed there. */
pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const struct plan_config *in,
                       pl_err *err);

/* home[i], [g->n_node]: the home group of each weight and cache, PLACE_NOWHERE
 * for other nodes (inputs are copied to their readers). want[i]: a layout
 * requested by an override, else unchanged. Overrides that name a single device
 * add a group to *p. Notes: idle devices. */
pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list,
                       const struct plan_config *in, int *home,
                       const pl_layout **want, struct notes *notes,
                       pl_err *err);

/* at[i], [num->n]: the group that computes each node of the numeric plan; for
 * weights and caches their home group, where their readers run. away[graph
 * node]: weights and caches that are streamed to their layer's group, where
 * their readers run; NULL: none. Reductions (AllReduce, ReduceScatter) have
 * their operand's group. Nodes that read neither weight nor cache get the group
 * with the fewest copied bytes. */
pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err);

#endif
