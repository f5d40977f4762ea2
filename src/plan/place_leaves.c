/* Chooses the home group of each weight and cache: the group of its layer,
 * unless an option overrides that.
 *
 * Overrides have priority, then experts or caches kept on the host, then the
 * layer's group. Only overrides use names. */
#include "plan/place_inner.h"

#include "base/ascii.h"
#include "base/err.h"
#include "plan/apportion.h"
#include "plan/override.h"
#include "quant/format.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arguments of one call of place_leaves. */
struct leaves {
    struct placement *p;
    struct arena *a;
    const struct device_list *list;
    const pl_graph *g;
    const struct plan_config *in;
    pl_err *err;
};

/* ---- the group of a layer ---------------------------------------------- */

int place_layer_group(const struct placement *p, const pl_graph *g, int leaf)
{
    const struct graph_node *n = &g->node[leaf];

    if (n->layer >= 0)
        return p->layer_group[n->layer];
    if (n->role == PL_ROLE_TOKEN_EMBD)
        return p->input_group;
    if (n->role == PL_ROLE_OUTPUT)
        return p->layer_group[p->n_layer];
    /* A tensor outside of layers belongs to the output if it comes after the
     * first layer in the graph, as the last norm does. Else it belongs to layer
     * 0. */
    for (int i = 0; i < leaf; i++)
        if (g->node[i].layer >= 0)
            return p->layer_group[p->n_layer];
    return p->layer_group[0];
}

/* ---- placing by overrides ---------------------------------------------- */

enum target { TO_GROUP, TO_DEVICE, MIRROR, SPLIT };

/* The parsed WHERE of an override: its type, and the index of the group or
 * device, or of the dimension to split. */
struct where {
    enum target to;
    int n;
};

/* Appends ", name" to a text in a buffer of `size` bytes. If it does not fit,
 * appends ", ..." instead, once. */
static void list_name(char *text, size_t size, const char *name)
{
    size_t at = strlen(text);

    if (at + strlen(name) + 8 < size)
        snprintf(text + at, size - at, ", %s", name);
    else if (at > 3 && strcmp(text + at - 3, "...") != 0)
        snprintf(text + at, size - at, ", ...");
}

static pl_status unknown_where(const struct leaves *y, const struct override *o)
{
    char text[600] = "mirrored, split:D, host";

    for (int i = 0; i < y->p->n_group; i++)
        if (i != y->p->host)
            list_name(text, sizeof text, y->p->group[i].name);
    for (int i = 0; i < y->list->n; i++) {
        bool said = strcmp(y->list->dev[i].name, "host") == 0;

        for (int k = 0; k < y->p->n_group; k++)
            said |= strcmp(y->p->group[k].name, y->list->dev[i].name) == 0;
        if (!said)
            list_name(text, sizeof text, y->list->dev[i].name);
    }
    return err_set(y->err, PL_BAD_ARGUMENT,
                   "override (-ot) \"%.200s=%.60s\": unknown location "
                   "\"%.60s\"; known are %s",
                   o->regex, o->where, o->where, text);
}

static pl_status read_where(const struct leaves *y, const struct override *o,
                            struct where *out)
{
    const char *s = o->where;
    int dim;

    *out = (struct where){0};
    if (override_is_layout(s, &dim)) {
        *out =
            dim < 0 ? (struct where){.to = MIRROR} : (struct where){SPLIT, dim};
        return PL_OK;
    }
    if (strcmp(s, "CPU") == 0)
        s = "host";
    for (int i = 0; i < y->p->n_group; i++)
        if (ascii_same(y->p->group[i].name, s)) {
            *out = (struct where){TO_GROUP, i};
            return PL_OK;
        }
    for (int i = 0; i < y->list->n; i++)
        if (ascii_same(y->list->dev[i].name, s)) {
            *out = (struct where){TO_DEVICE, i};
            return PL_OK;
        }
    return unknown_where(y, o);
}

/* Sets *group to the group that consists of device `dev` only. Adds such a
 * group to the placement if there is none. */
static pl_status device_group(const struct leaves *y, int dev, int *group)
{
    struct placement *p = y->p;
    struct place_group *more;
    struct place_member *members;

    for (int i = 0; i < p->n_group; i++)
        if (p->group[i].n == 1 && p->member[p->group[i].first].dev == dev) {
            *group = i;
            return PL_OK;
        }
    more = arena_alloc(y->a, (size_t)p->n_group + 1, sizeof *more);
    members = arena_alloc(y->a, (size_t)p->n_member + 1, sizeof *members);
    PL_TRY(arena_check(y->a, "groups of devices", y->err));
    memcpy(more, p->group, (size_t)p->n_group * sizeof *more);
    memcpy(members, p->member, (size_t)p->n_member * sizeof *members);
    *group = p->n_group++;
    more[*group] = (struct place_group){.first = p->n_member, .n = 1};
    snprintf(more[*group].name, sizeof more[*group].name, "%s",
             y->list->dev[dev].name);
    members[p->n_member++] = (struct place_member){*group, dev, 0, p->n_rank};
    p->group = more;
    p->member = members;
    return PL_OK;
}

/* Sets *out to a layout that splits dimension `d` of a weight by the shares of
 * the ranks, at positions that the format allows. */
static pl_status split_layout(const struct leaves *y, int leaf, int d,
                              const struct override *o, const pl_layout **out)
{
    const struct graph_node *n = &y->g->node[leaf];
    const struct format_info *f = format_info(n->format);
    int n_rank = y->p->n_rank;
    double weight[PL_MAX_RANKS];
    int64_t count[PL_MAX_RANKS], size, grain;

    if (d >= n->n_dim)
        return err_set(y->err, PL_BAD_ARGUMENT,
                       "override (-ot) \"%.200s=%.60s\": %s has no dimension "
                       "%d, only 0 to %d, counted from the outermost",
                       o->regex, o->where, n->name, d, n->n_dim - 1);
    size = n->dim[d].n;
    grain = f->block > 1 && d == n->n_dim - 1 ? f->grain
                                              : split_grain(size, n_rank);
    if (n_rank > 1 && size <= grain)
        return err_set(y->err, PL_BAD_ARGUMENT,
                       "override (-ot) \"%.200s=%.60s\": dimension %d of %s "
                       "has %lld values and cannot be split into parts of %lld",
                       o->regex, o->where, d, n->name, (long long)size,
                       (long long)grain);
    memcpy(weight, y->p->share, sizeof weight);
    apportion(n_rank, weight, (size + grain - 1) / grain, count);
    *out = layout_from_counts(y->a, d, size, grain, n_rank, count);
    return arena_check(y->a, "layouts", y->err);
}

static pl_status apply(const struct leaves *y, const struct override *o,
                       const struct where *w, int leaf, int *home,
                       const pl_layout **want)
{
    switch (w->to) {
    case TO_GROUP:
        home[leaf] = w->n;
        return PL_OK;
    case TO_DEVICE:
        return device_group(y, w->n, &home[leaf]);
    case MIRROR:
        want[leaf] = &layout_mirrored;
        return PL_OK;
    default:
        return split_layout(y, leaf, w->n, o, &want[leaf]);
    }
}

static pl_status overrides(const struct leaves *y, int *home,
                           const pl_layout **want)
{
    const struct plan_config *in = y->in;
    struct where *where;

    if (in->n_override == 0)
        return PL_OK;
    where = arena_alloc(y->a, (size_t)in->n_override, sizeof *where);
    PL_TRY(arena_check(y->a, "the overrides", y->err));
    for (int i = 0; i < in->n_override; i++)
        PL_TRY(read_where(y, &in->override[i], &where[i]));
    for (int i = 0; i < y->g->n_node; i++) {
        int k = in->override_of[i];

        if (k >= 0)
            PL_TRY(apply(y, &in->override[k], &where[k], i, home, want));
    }
    return PL_OK;
}

/* ---- placing all weights and caches ------------------------------------ */

/* Adds a warning if devices are idle: they belong to groups but carry no
 * ranks. */
static void warn_idle(const struct leaves *y, struct notes *notes)
{
    const struct placement *p = y->p;
    int n_dev = 0, n_idle = 0;

    for (int d = 0; d < y->list->n; d++) {
        bool member = false, ranks = false;

        for (int k = 0; k < p->n_member; k++)
            if (p->member[k].dev == d) {
                member = true;
                ranks |= p->member[k].n_rank > 0;
            }
        n_dev += !y->list->dev[d].host;
        n_idle += member && !ranks && !y->list->dev[d].host;
    }
    if (n_idle > 0)
        diag_add(notes, PL_LOG_WARN, "%d of %d devices %s idle (%d rank%s)",
                 n_idle, n_dev,
                 n_idle == 1 ? "has no rank and is" : "have no rank and are",
                 p->n_rank, p->n_rank == 1 ? "" : "s");
}

pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list,
                       const struct plan_config *in, int *home,
                       const pl_layout **want, struct notes *notes, pl_err *err)
{
    struct leaves y = {p, a, list, in->g, in, err};

    for (int i = 0; i < in->g->n_node; i++) {
        const struct graph_node *n = &in->g->node[i];
        int layer = n->layer < 0 ? p->n_layer : n->layer;

        home[i] = PLACE_NOWHERE;
        if (n->op != OP_weight && n->op != OP_memory)
            continue;
        home[i] = place_layer_group(p, in->g, i);
        if ((n->op == OP_memory && in->cache) ||
            (in->experts && graph_is_experts(n) && in->experts[layer]))
            home[i] = p->host;
    }
    PL_TRY(overrides(&y, home, want));
    warn_idle(&y, notes);
    return PL_OK;
}
