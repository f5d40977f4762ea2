/* From options to groups of devices, and which layers each of them runs.
 *
 * A split mode is a way to cut the list of devices into groups: one of all, one
 * of one, one a device, one every N devices. Each carries all ranks. The host,
 * where something may live on it, is one more group, of devices of its own.
 * What single tensors and ops do is place_leaves.c's and place_ops.c's. */
#include "plan/place_inner.h"

#include "base/err.h"
#include "device/device_spec.h"
#include "plan/group.h"
#include "plan/override.h"
#include "plan/plan_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the devices are cut: groups of `width` neighbours from `first` on. */
struct cut {
    const char *name; /* of the groups; NULL: their device's */
    bool numbered;
    int first, n_dev, width, n_group;
};

static bool is_tensor(const pl_options *opt)
{
    return opt->split_mode == PL_SPLIT_TENSOR ||
           opt->split_mode == PL_SPLIT_AUTO;
}

static pl_status cut_devices(struct cut *c, const pl_options *opt, int n_dev,
                             pl_err *err)
{
    *c = (struct cut){.n_dev = n_dev, .width = n_dev};
    if (n_dev > 0 && (opt->main_device < 0 || opt->main_device >= n_dev))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the main device (-mg) is %d, but devices are numbered "
                       "0 to %d",
                       opt->main_device, n_dev - 1);
    switch (opt->split_mode) {
    case PL_SPLIT_AUTO:
    case PL_SPLIT_TENSOR:
        c->name = "tensor";
        break;
    case PL_SPLIT_NONE:
        c->first = opt->main_device;
        c->n_dev = n_dev > 0;
        c->width = 1;
        break;
    case PL_SPLIT_LAYER:
        c->name = "layer";
        c->width = 1;
        break;
    case PL_SPLIT_HYBRID:
        if (opt->hybrid_size < 1)
            return err_set(err, PL_BAD_ARGUMENT,
                           "hybrid split over groups of %d devices; give "
                           "hybrid:N, N devices a group, 1 or more",
                           opt->hybrid_size);
        c->name = "hybrid";
        if (opt->hybrid_size < n_dev)
            c->width = opt->hybrid_size;
        break;
    default:
        return err_set(err, PL_BAD_ARGUMENT,
                       "split mode %d is unknown; none, layer, tensor, hybrid "
                       "and auto are offered",
                       (int)opt->split_mode);
    }
    c->numbered = c->name && strcmp(c->name, "tensor") != 0;
    c->n_group = c->n_dev ? (c->n_dev + c->width - 1) / c->width : 0;
    return PL_OK;
}

/* Adds a group of n neighbours that carry all ranks by `split` [n] or, if that
 * is NULL or zero, equally. */
static pl_status add_group(struct placement *p, struct arena *a,
                           const char *name, int dev, int n,
                           const double *split, pl_err *err)
{
    struct place_group *y = &p->group[p->n_group];
    struct group d;
    double sum = 0;

    for (int i = 0; split && i < n; i++)
        sum += split[i];
    PL_TRY(group_deal(&d, a, n, p->n_rank, sum > 0 ? split : NULL, n, err));
    y->first = p->n_member;
    y->n = n;
    snprintf(y->name, sizeof y->name, "%s", name);
    for (int i = 0; i < n; i++)
        p->member[p->n_member++] = (struct place_member){
            p->n_group, dev + i, d.rank0[i], d.n_rank_of[i]};
    p->n_group++;
    return PL_OK;
}

/* The ranks and their shares, from the options and the widest group. In tensor
 * mode shares that are no equal ranks are the devices'. */
static pl_status count_ranks(struct placement *p, struct arena *a,
                             const struct cut *c, const pl_options *opt,
                             int n_dev, pl_err *err)
{
    struct group d;

    if (opt->tensor_split && opt->n_tensor_split != n_dev)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the tensor split (-ts) has %d share%s for %d device%s; "
                       "give one a device",
                       opt->n_tensor_split, opt->n_tensor_split == 1 ? "" : "s",
                       n_dev, n_dev == 1 ? "" : "s");
    if (opt->tensor_split) /* for its checks */
        PL_TRY(group_deal(&d, a, n_dev, 1, opt->tensor_split, n_dev, err));
    PL_TRY(group_deal(&d, a, c->width > 0 ? c->width : 1, opt->n_ranks,
                      is_tensor(opt) ? opt->tensor_split : NULL, n_dev, err));
    p->n_rank = d.n_rank;
    memcpy(p->share, d.share, sizeof p->share);
    return PL_OK;
}

/* ---- layers ------------------------------------------------------------ */

/* The last *n of n_layer + 1 layers are on devices. */
static pl_status count_layers(int *n, const pl_options *opt, int n_layer,
                              pl_err *err)
{
    const char *s = opt->device_layers;
    char shown[ERR_SHOWN];
    long v;

    *n = n_layer + 1;
    if (!s || strcmp(s, "auto") == 0 || strcmp(s, "all") == 0)
        return PL_OK;
    if (!*s || s[strspn(s, "0123456789")])
        return err_set(err, PL_BAD_ARGUMENT,
                       "layers on devices (-ngl) \"%s\": give how many of the "
                       "last layers, all or auto",
                       err_shown(shown, s, strlen(s)));
    v = strtol(s, NULL, 10);
    if (v < *n)
        *n = (int)v;
    return PL_OK;
}

void place_share_out(int n, double *weight, int64_t total, int64_t *count)
{
    double sum = 0;
    int64_t left = total;

    for (int i = 0; i < n; i++)
        sum += weight[i];
    for (int i = 0; i < n; i++) {
        double want = weight[i] / sum * (double)total;

        count[i] = (int64_t)floor(want + 1e-9);
        left -= count[i];
        /* what remains of it */
        weight[i] = weight[i] > 0 ? want - (double)count[i] : -1;
    }
    for (; left > 0; left--) {
        int best = 0;

        for (int i = 1; i < n; i++)
            if (weight[i] > weight[best] + 1e-12)
                best = i;
        count[best]++;
        weight[best] = -1;
    }
}

/* Runs of layers for the groups: by the tensor split, else by memory where that
 * is known, else alike for every device. What is left over goes to the last of
 * equals, whose output layer does least in a prompt. */
static pl_status deal_layers(struct placement *p, struct arena *a,
                             const struct device_list *list,
                             const pl_options *opt, int n_group, int n_on,
                             pl_err *err)
{
    double *weight = arena_alloc(a, (size_t)n_group, sizeof *weight);
    int64_t *count = arena_alloc(a, (size_t)n_group, sizeof *count);
    int layer = p->n_layer + 1 - n_on, last = n_group - 1;
    bool known = true, shared = opt->tensor_split && n_group > 1;

    if (!weight || !count)
        return err_no_memory(err, "the placement of layers");
    for (int i = 0; i < n_group; i++)
        for (int k = 0; k < p->group[i].n; k++)
            known &=
                list->dev[p->member[p->group[i].first + k].dev].memory_bytes >
                0;
    for (int i = 0; i < n_group; i++)
        for (int k = 0; k < p->group[i].n; k++) {
            int d = p->member[p->group[i].first + k].dev;

            weight[last - i] += shared  ? opt->tensor_split[d]
                                : known ? (double)list->dev[d].memory_bytes
                                        : 1;
        }
    place_share_out(n_group, weight, n_on, count);
    for (int l = 0; l < layer; l++)
        p->of_layer[l] = p->host;
    for (int i = 0; i < n_group; i++)
        for (; count[last - i] > 0; count[last - i]--)
            p->of_layer[layer++] = i;
    return PL_OK;
}

/* One weight is the token embedding and the output's matrix as well. */
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

/* ---- all of it --------------------------------------------------------- */

static pl_status host_wanted(bool *wanted, struct arena *a, int n_on,
                             const struct placement *p, const pl_options *opt,
                             pl_err *err)
{
    struct override_list over;

    PL_TRY(override_parse(&over, a, opt, err));
    *wanted = n_on < p->n_layer + 1 || opt->host_cache ||
              (opt->host_experts && strcmp(opt->host_experts, "0") != 0);
    for (int i = 0; i < over.n; i++)
        *wanted |= override_is_host(over.item[i].where);
    return PL_OK;
}

pl_status place_groups(struct placement *out, struct arena *a,
                       struct device_list *list, const pl_graph *g,
                       const pl_options *opt, pl_err *err)
{
    struct placement p = {.host = PLACE_NOWHERE};
    int n_dev = list->n, n_on = 0, n_room, dev = n_dev;
    const double *split = opt->tensor_split;
    bool host;
    struct cut c;

    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].layer >= p.n_layer)
            p.n_layer = g->node[i].layer + 1;
    PL_TRY(cut_devices(&c, opt, n_dev, err));
    PL_TRY(count_ranks(&p, a, &c, opt, n_dev, err));
    PL_TRY(count_layers(&n_on, opt, p.n_layer, err));
    if (n_dev == 0) {
        if (n_on > 0 && opt->device_layers &&
            strcmp(opt->device_layers, "auto") != 0)
            plan_log(opt, PL_LOG_WARN,
                     "-ngl %s has no effect: there are no devices, the host "
                     "has all layers",
                     opt->device_layers);
        n_on = 0;
    }
    PL_TRY(host_wanted(&host, a, n_on, &p, opt, err));
    if (host)
        PL_TRY(device_list_add_host(list, p.n_rank, opt->n_threads,
                                    opt->device_spec != NULL, &dev, err));
    if (is_tensor(opt) && opt->n_ranks == 0)
        split = NULL; /* one rank a device, whatever its share */
    n_room = c.n_dev + list->n - dev;
    p.group = arena_alloc(a, (size_t)c.n_group + 1, sizeof *p.group);
    p.member = arena_alloc(a, (size_t)n_room, sizeof *p.member);
    p.of_layer = arena_alloc(a, (size_t)p.n_layer + 1, sizeof *p.of_layer);
    if (!p.group || !p.member || !p.of_layer)
        return err_no_memory(err, "groups of devices");
    for (int i = 0; i < c.n_group; i++) {
        int first = c.first + i * c.width;
        int left = c.first + c.n_dev - first;
        char name[32];

        if (c.numbered)
            snprintf(name, sizeof name, "%s%d", c.name, i);
        else
            snprintf(name, sizeof name, "%s",
                     c.name ? c.name : list->dev[first].name);
        PL_TRY(add_group(&p, a, name, first, left < c.width ? left : c.width,
                         split ? split + first : NULL, err));
    }
    if (host) {
        p.host = p.n_group;
        PL_TRY(add_group(&p, a, "host", dev, list->n - dev, NULL, err));
    }
    if (n_on > 0)
        PL_TRY(deal_layers(&p, a, list, opt, c.n_group, n_on, err));
    else
        for (int l = 0; l <= p.n_layer; l++)
            p.of_layer[l] = p.host;
    p.of_input = p.of_layer[is_tied(g) ? p.n_layer : 0];
    *out = p;
    return PL_OK;
}
