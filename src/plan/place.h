/* Placement decides which group of devices holds each tensor, and so which
 * group computes each op.
 *
 * Split modes, experts or the cache on the host, and overrides all determine a
 * group for every weight and cache. Ops run where their weight or cache lives.
 * Ops with neither get the group with the fewest copied bytes. Placement does
 * not change the bits of results: every group carries all ranks with the same
 * shares, and the numeric plan does not depend on groups. */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "layout/numeric.h"
#include "plan/plan_config.h"

/* A member of a group: a device, and the consecutive ranks that it carries in
 * this group. A device may be a member of several groups. */
struct place_member {
    int group, dev;    /* index of the group; index of the device in the device
                          list */
    int rank0, n_rank; /* first rank and number of ranks; if n_rank is 0, the
                          device is idle in this group */
};

struct place_group {
    int first, n;  /* the group's members are placement.member[first .. first +
                      n - 1] */
    char name[32]; /* name of the group, such as "tensor", "layer2", "hybrid0",
                      "cpu1" or "host" */
};

enum { PLACE_NOWHERE = -1 };

struct placement {
    int n_rank;
    double share[PL_MAX_RANKS];
    int n_group, n_member;
    struct place_group *group;
    struct place_member *member; /* [n_member] the members of all groups, group
                                    by group */
    int host;                    /* index of the host's group, or PLACE_NOWHERE
                                    if there is none */
    int n_layer;
    /* [n_layer + 1] for each layer, the group that computes those of its ops
     * whose weight or cache is not elsewhere; the last element is for the
     * output. */
    int *layer_group;
    int input_group; /* group that holds the token embedding */
};

/* Creates the groups of devices that the plan config `in` requests. On entry
 * `list` equals in->list. If anything may be placed on the host, appends the
 * host's devices to `list`. */
pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const struct plan_config *in,
                       pl_err *err);

/* Chooses the home group of each weight and cache. Sets home[i] to the group
 * for graph node i, or to PLACE_NOWHERE if the node is neither weight nor
 * cache. Sets want[i] to the layout that an override requests, else leaves it
 * unchanged. An override that names a single device adds a group to *p. Adds a
 * warning to `notes` if devices stay idle. */
pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list,
                       const struct plan_config *in, int *home,
                       const pl_layout **want, struct notes *notes,
                       pl_err *err);

/* Chooses the group that computes each node of the numeric plan. Sets at[i] to
 * the group of node i, for num->n nodes. For weights and caches, at[i] is the
 * group where their readers run, usually the home group. away[v] is true for
 * graph nodes v that are weights or caches streamed to the group of their
 * layer, where their readers run. `away` is NULL if nothing is streamed.
 * Reductions (AllReduce, ReduceScatter) run in the group of their operand.
 * Nodes that read neither weight nor cache get the group that minimises the
 * bytes copied. */
pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err);

#endif
