/* Placement: which group of devices each tensor, and so each op, belongs to.
 *
 * Split modes, experts or the cache on the host, and overrides all come down to
 * one thing: a group for every weight and cache. Ops run where their weight or
 * cache lives; what has neither (glue) stands where the fewest bytes are
 * copied. Placement changes no bit: every group carries all ranks with the same
 * shares, and the numeric plan knows nothing of groups. */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "layout/numeric.h"
#include "plan/plan_config.h"

/* A device's part in a group: consecutive ranks. */
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
                      leaf says otherwise; [n_layer] is the output */
    int input_group;  /* group of the token embedding */
};

/* The groups that `in` asks for. `list` begins with in->list; the host's
 * devices are added to it if anything may live there. */
pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const struct plan_config *in,
                       pl_err *err);

/* home[i], [g->n_node]: the group of each weight and cache, PLACE_NOWHERE for
 * other nodes (inputs go wherever they are read). want[i]: a layout asked for
 * by an override, else left as it is. Overrides that name a single device add
 * a group to *p. Notes: devices that stay idle. */
pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list,
                       const struct plan_config *in, int *home,
                       const pl_layout **want, struct notes *notes,
                       pl_err *err);

/* at[i], [num->n]: the group where each node of the numeric plan is computed
 * (weights and caches: their home, where their readers run). away[graph node]:
 * weights and caches whose readers run in their layer's group instead, to which
 * they are streamed; NULL: none. Reductions (AllReduce, ReduceScatter) stand
 * where their operand does. Nodes that read neither weight nor cache stand
 * where the bytes copied between groups are fewest. */
pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err);

#endif
