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

/* A device that is a member of a group, and the consecutive ranks that it
 * carries there. */
struct place_member {
    int group, dev;    /* dev: index in the device list */
    int rank0, n_rank; /* if n_rank is 0, the device is idle in this group */
};

struct place_group {
    int first, n;  /* members: placement.member[first .. first + n - 1] */
    char name[32]; /* such as "tensor", "layer2", "hybrid0", "cpu1" or "host" */
};

enum { PLACE_NOWHERE = -1 };

struct placement {
    int n_rank;
    double share[PL_MAX_RANKS];
    int n_group, n_member;
    struct place_group *group;
    struct place_member *member; /* [n_member] ordered by group */
    int host;                    /* index of the host's group, or PLACE_NOWHERE
                                    if there is none */
    int n_layer;
    int *layer_group; /* [n_layer + 1] group that computes a layer's ops unless
                         a weight or cache of the op is elsewhere; [n_layer] is
                         for the output */
    int input_group;  /* group of the token embedding */
};

/* Creates the groups that `in` requests. On entry `list` equals in->list. The
 * host's devices are appended to `list` if anything may be placed on the
 * host. */
pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const struct plan_config *in,
                       pl_err *err);

/* Chooses the home group of each weight and cache. Sets home[i], with an entry
 * for each graph node, to that group, or to PLACE_NOWHERE for nodes that are
 * neither weight nor cache. Sets want[i] to the layout that an override
 * requests, else leaves it unchanged. An override that names a single device
 * adds a group to *p. Adds a note that warns of devices that stay idle. */
pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list,
                       const struct plan_config *in, int *home,
                       const pl_layout **want, struct notes *notes,
                       pl_err *err);

/* Chooses the group that computes each node of the numeric plan. Sets at[i],
 * with an entry for each of the num->n nodes, to that group. For weights and
 * caches, at[i] is the group where their readers run, usually the home group.
 * away[node], indexed by graph node, marks weights and caches that are streamed
 * to the group of their layer, where their readers run. `away` is NULL if none
 * are. Reductions (AllReduce, ReduceScatter) run in the group of their operand.
 * Nodes that read neither weight nor cache get the group that minimises the
 * bytes copied. */
pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err);

#endif
