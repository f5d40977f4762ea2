/* Creates the groups of devices that a plan config requests, and assigns layers
 * to them.
 *
 * The split mode determines the groups. "tensor" makes one group of all
 * devices, "none" a group of one device, "layer" one group per device, and
 * "hybrid" one group per N neighbouring devices, or one per machine. Each group
 * carries all ranks. If anything may be placed on the host, the host's devices
 * form another group. place_leaves.c and place_ops.c assign groups to single
 * tensors and ops. */
#include "plan/place_inner.h"

#include "base/err.h"
#include "device/device_spec.h"
#include "plan/apportion.h"
#include "plan/override.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The grouping of devices: n_dev devices, beginning with device `first`, are
 * divided into n_group groups of neighbouring devices, of which the widest has
 * `width`. */
struct cut {
    const char *name; /* name of the groups, such as "layer"; NULL if a group is
                         named after its device */
    bool numbered;
    int first, n_dev, width, n_group;
};

static struct cut cut_devices(const struct plan_config *in)
{
    struct cut c = {.n_dev = in->list.n};

    switch (in->mode) {
    case PL_SPLIT_NONE:
        c.first = in->main_device;
        c.n_dev = in->list.n > 0;
        break;
    case PL_SPLIT_LAYER:
        c.name = "layer";
        break;
    case PL_SPLIT_HYBRID:
        c.name = "hybrid";
        break;
    default:
        c.name = "tensor";
        break;
    }
    c.numbered = c.name && in->mode != PL_SPLIT_TENSOR;
    c.width = plan_config_widest(in);
    for (int first = c.first; first < c.first + c.n_dev; c.n_group++)
        first = plan_config_group_end(in, first);
    return c;
}

/* Adds a group of the n neighbouring devices from index `dev`. All ranks are
 * divided among them in proportion to split[n], or equally if `split` is NULL
 * or all zero. */
static pl_status add_group(struct placement *p, struct arena *a,
                           const char *name, int dev, int n,
                           const double *split, pl_err *err)
{
    struct place_group *y = &p->group[p->n_group];
    double *weight = arena_alloc(a, (size_t)n, sizeof *weight), sum = 0;
    int64_t *n_rank = arena_alloc(a, (size_t)n, sizeof *n_rank);
    int rank0 = 0;

    PL_TRY(arena_check(a, "a group of devices", err));
    for (int i = 0; split && i < n; i++)
        sum += split[i];
    for (int i = 0; i < n; i++)
        weight[i] = sum > 0 ? split[i] : 1;
    apportion(n, weight, p->n_rank, n_rank);
    y->first = p->n_member;
    y->n = n;
    snprintf(y->name, sizeof y->name, "%s", name);
    for (int i = 0; i < n; rank0 += (int)n_rank[i++])
        p->member[p->n_member++] =
            (struct place_member){p->n_group, dev + i, rank0, (int)n_rank[i]};
    p->n_group++;
    return PL_OK;
}

/* Sets the number of ranks, p->n_rank, and their shares of the work. Unless the
 * user requested a number, there is one rank per device of the widest group. In
 * tensor mode each rank then has the share of its device. In all other cases
 * ranks have the shares that the user gave them, or equal ones. */
static pl_status count_ranks(struct placement *p, const struct cut *c,
                             const struct plan_config *in, pl_err *err)
{
    int widest = c->width > 0 ? c->width : 1;
    bool by_share = in->share && in->mode == PL_SPLIT_TENSOR && in->n_rank == 0;

    if (in->n_rank < 0 || in->n_rank > PL_MAX_RANKS)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d ranks requested; 1 to %d are allowed", in->n_rank,
                       PL_MAX_RANKS);
    if (in->n_rank == 0 && widest > PL_MAX_RANKS)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d devices in one group, but a tensor split has at "
                       "most %d; split layers too (-sm hybrid:N), or set "
                       "--ranks, which leaves the last devices idle",
                       widest, PL_MAX_RANKS);
    p->n_rank = in->n_rank ? in->n_rank : widest;
    if (in->n_rank == 0 && !in->share && plan_config_is_mixed(in, NULL) &&
        widest < PLAN_CONFIG_MIXED_RANKS)
        p->n_rank = PLAN_CONFIG_MIXED_RANKS;
    for (int r = 0; r < p->n_rank; r++)
        p->share[r] = in->rank_share ? in->rank_share[r]
                      : by_share     ? in->share[r]
                                     : 1;
    return PL_OK;
}

/* ---- assigning layers to groups ---------------------------------------- */

/* Sets order[n_group] to the groups in the order of their layers: those of
 * machine 0 are the last, so that logits do not cross the network. */
static void order_groups(const struct placement *p,
                         const struct device_list *list, int n_group,
                         int *order)
{
    int n = 0;

    for (int own = 0; own < 2; own++)
        for (int i = 0; i < n_group; i++) {
            int d = p->member[p->group[i].first].dev;

            if ((list->dev[d].machine == 0) == own)
                order[n++] = i;
        }
}

/* Assigns consecutive layers to the groups: in proportion to the tensor split
 * (-ts) if given, else to the memory of the groups' devices if known, else to
 * the number of devices. A layer that is left over goes to the last of several
 * equal groups. The last group also has the output layer, which computes little
 * in a prompt. */
static pl_status deal_layers(struct placement *p, struct arena *a,
                             const struct device_list *list,
                             const struct plan_config *in, int n_group,
                             pl_err *err)
{
    double *weight = arena_alloc(a, (size_t)n_group, sizeof *weight);
    int64_t *count = arena_alloc(a, (size_t)n_group, sizeof *count);
    int *order = arena_alloc(a, (size_t)n_group, sizeof *order);
    int layer = p->n_layer + 1 - in->n_on, last = n_group - 1;
    bool known = true, shared = in->share && n_group > 1;

    PL_TRY(arena_check(a, "the placement of layers", err));
    order_groups(p, list, n_group, order);
    for (int i = 0; i < n_group; i++)
        for (int k = 0; k < p->group[i].n; k++)
            known &=
                list->dev[p->member[p->group[i].first + k].dev].memory_bytes >
                0;
    for (int i = 0; i < n_group; i++)
        for (int k = 0; k < p->group[order[i]].n; k++) {
            int d = p->member[p->group[order[i]].first + k].dev;

            weight[last - i] += shared  ? in->share[d]
                                : known ? (double)list->dev[d].memory_bytes
                                        : 1;
        }
    apportion(n_group, weight, in->n_on, count);
    for (int l = 0; l < layer; l++)
        p->layer_group[l] = p->host;
    for (int i = 0; i < n_group; i++)
        for (; count[last - i] > 0; count[last - i]--)
            p->layer_group[layer++] = order[i];
    return PL_OK;
}

/* Returns true if the graph uses one weight both as token embedding and as
 * output matrix. */
static bool is_tied(const pl_graph *g)
{
    bool gathered = false, multiplied = false;

    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0 && g->node[n->in[k]].role == PL_ROLE_TOKEN_EMBD) {
                gathered |= n->op == OP_gather_rows;
                multiplied |= n->op == OP_matmul;
            }
    }
    return gathered && multiplied;
}

/* ---- creating all groups ----------------------------------------------- */

static bool host_wanted(const struct plan_config *in)
{
    bool wanted = in->n_on < in->n_layer + 1 || in->cache || in->host ||
                  plan_config_has_host_experts(in);

    for (int i = 0; i < in->n_override; i++)
        wanted |= override_is_host(in->override[i].where);
    return wanted;
}

pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const struct plan_config *in,
                       pl_err *err)
{
    struct placement p = {.host = PLACE_NOWHERE, .n_layer = in->n_layer};
    const double *split = in->share;
    bool host = host_wanted(in);
    struct cut c = cut_devices(in);
    int dev = list->n, n_room, first = c.first;

    PL_TRY(count_ranks(&p, &c, in, err));
    if (host)
        PL_TRY(device_list_add_host(list, p.n_rank, in->n_thread, in->paper,
                                    &dev, err));
    if (in->mode == PL_SPLIT_TENSOR && in->n_rank == 0)
        split = NULL; /* Each device gets one rank, because the ranks themselves
                         have the devices' shares. */
    n_room = c.n_dev + list->n - dev;
    p.group = arena_alloc(a, (size_t)c.n_group + 1, sizeof *p.group);
    p.member = arena_alloc(a, (size_t)n_room, sizeof *p.member);
    p.layer_group =
        arena_alloc(a, (size_t)p.n_layer + 1, sizeof *p.layer_group);
    PL_TRY(arena_check(a, "groups of devices", err));
    for (int i = 0; i < c.n_group; i++) {
        int end = plan_config_group_end(in, first);
        char name[32];

        if (c.numbered)
            snprintf(name, sizeof name, "%s%d", c.name, i);
        else
            snprintf(name, sizeof name, "%s",
                     c.name ? c.name : list->dev[first].name);
        PL_TRY(add_group(&p, a, name, first, end - first,
                         split ? split + first : NULL, err));
        first = end;
    }
    if (host) {
        p.host = p.n_group;
        PL_TRY(add_group(&p, a, "host", dev, list->n - dev, NULL, err));
    }
    if (in->n_on > 0)
        PL_TRY(deal_layers(&p, a, list, in, c.n_group, err));
    else
        for (int l = 0; l <= p.n_layer; l++)
            p.layer_group[l] = p.host;
    p.input_group = p.layer_group[is_tied(in->g) ? p.n_layer : 0];
    *out = p;
    return PL_OK;
}
