/* Where each weight and cache lives: with its layer, unless an option says
 * otherwise.
 *
 * Options come in order of strength: overrides, then experts or caches kept on
 * the host, then the layer's group. Only overrides look at names. */
#include "plan/place_inner.h"

#include "base/err.h"
#include "plan/override.h"
#include "plan/plan_log.h"
#include "quant/format.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One call. */
struct leaves {
    struct placement *p;
    struct arena *a;
    const struct device_list *list;
    const pl_graph *g;
    const pl_options *opt;
    pl_err *err;
};

/* ---- by layer ---------------------------------------------------------- */

int place_layer_group(const struct placement *p, const pl_graph *g, int leaf)
{
    const struct graph_node *n = &g->node[leaf];

    if (n->layer >= 0)
        return p->of_layer[n->layer];
    if (n->role == PL_ROLE_TOKEN_EMBD)
        return p->of_input;
    if (n->role == PL_ROLE_OUTPUT)
        return p->of_layer[p->n_layer];
    /* made before any block, or after: the output's norm */
    for (int i = 0; i < leaf; i++)
        if (g->node[i].layer >= 0)
            return p->of_layer[p->n_layer];
    return p->of_layer[0];
}

/* ---- experts ----------------------------------------------------------- */

/* Reads a layer's number; false if there is none. Large ones are clipped. */
static bool number(const char **s, int *v)
{
    int64_t n = 0;

    if (!isdigit((unsigned char)**s))
        return false;
    for (; isdigit((unsigned char)**s); ++*s)
        if (n < GRAPH_MAX_LAYER)
            n = 10 * n + (**s - '0');
    *v = n < GRAPH_MAX_LAYER ? (int)n : GRAPH_MAX_LAYER;
    return true;
}

/* "all", "N" (the first N), "0-5,9,20-": sets on[0 .. n_layer-1]. */
static pl_status expert_layers(const struct leaves *y, bool *on)
{
    const char *const asked = y->opt->host_experts;
    const char *s = asked;
    int n_layer = y->p->n_layer, lo, hi;
    char shown[ERR_SHOWN];

    if (strcmp(s, "all") == 0) {
        memset(on, 1, (size_t)n_layer);
        return PL_OK;
    }
    if (number(&s, &hi) && *s == '\0') {
        for (int l = 0; l < hi && l < n_layer; l++)
            on[l] = true;
        return PL_OK;
    }
    for (s = asked;; s++) {
        if (!number(&s, &lo))
            break;
        hi = lo;
        if (*s == '-') {
            s++;
            if (!number(&s, &hi))
                hi = GRAPH_MAX_LAYER;
        }
        if (hi < lo || (*s != ',' && *s != '\0'))
            break;
        if (n_layer > 0 && lo >= n_layer)
            return err_set(y->err, PL_BAD_ARGUMENT,
                           "experts on the host (-ncmoe) \"%s\": the model has "
                           "no layer %d; its layers are 0 to %d",
                           err_shown(shown, asked, strlen(asked)), lo,
                           n_layer - 1);
        for (int l = lo; l <= hi && l < n_layer; l++)
            on[l] = true;
        if (*s == '\0')
            return PL_OK;
    }
    return err_set(y->err, PL_BAD_ARGUMENT,
                   "experts on the host (-ncmoe) \"%s\": give a number of "
                   "first layers, layers like 0-5,20- or all",
                   err_shown(shown, asked, strlen(asked)));
}

/* ---- overrides --------------------------------------------------------- */

enum target { TO_GROUP, TO_DEVICE, MIRROR, SPLIT };

/* What a WHERE means; `n`: group, device or dimension. */
struct where {
    enum target to;
    int n;
};

/* Adds ", name" unless it was said before or there is no room. */
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
                   "override (-ot) \"%.200s=%.60s\": there is no place "
                   "\"%.60s\"; there are %s",
                   o->regex, o->where, o->where, text);
}

static pl_status read_where(const struct leaves *y, const struct override *o,
                            struct where *out)
{
    const char *s = o->where;

    *out = (struct where){0};
    if (strcmp(s, "mirrored") == 0) {
        out->to = MIRROR;
        return PL_OK;
    }
    if (strncmp(s, "split:", 6) == 0 && isdigit((unsigned char)s[6]) && !s[7]) {
        *out = (struct where){SPLIT, s[6] - '0'};
        return PL_OK;
    }
    if (strcmp(s, "CPU") == 0)
        s = "host";
    for (int i = 0; i < y->p->n_group; i++)
        if (strcmp(y->p->group[i].name, s) == 0) {
            *out = (struct where){TO_GROUP, i};
            return PL_OK;
        }
    for (int i = 0; i < y->list->n; i++)
        if (strcmp(y->list->dev[i].name, s) == 0) {
            *out = (struct where){TO_DEVICE, i};
            return PL_OK;
        }
    return unknown_where(y, o);
}

/* The group of one device, added if there is none. */
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
    if (!more || !members)
        return err_no_memory(y->err, "groups of devices");
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

/* Parts of dimension `d` by the ranks' shares, cut where the format allows. */
static pl_status split_layout(const struct leaves *y, int leaf, int d,
                              const struct override *o, const pl_layout **out)
{
    const struct graph_node *n = &y->g->node[leaf];
    const struct format_info *f = format_info(n->format);
    int n_rank = y->p->n_rank, n_run = 0;
    double weight[PL_MAX_RANKS];
    int64_t count[PL_MAX_RANKS], size, left, grain = 32;
    pl_run run[PL_MAX_RANKS];

    if (d >= n->n_dim)
        return err_set(y->err, PL_BAD_ARGUMENT,
                       "override (-ot) \"%.200s=%.60s\": %s has no dimension "
                       "%d, only 0 to %d, counted from the outermost",
                       o->regex, o->where, n->name, d, n->n_dim - 1);
    size = left = n->dim[d].n;
    if (f->block > 1 && d == n->n_dim - 1)
        grain = f->grain;
    else
        while (grain > 1 && size / grain < n_rank)
            grain /= 2;
    if (n_rank > 1 && size <= grain)
        return err_set(y->err, PL_BAD_ARGUMENT,
                       "override (-ot) \"%.200s=%.60s\": dimension %d of %s "
                       "has %lld values and cannot be cut into parts of %lld",
                       o->regex, o->where, d, n->name, (long long)size,
                       (long long)grain);
    memcpy(weight, y->p->share, sizeof weight);
    place_share_out(n_rank, weight, (size + grain - 1) / grain, count);
    for (int r = 0; r < n_rank; r++) {
        int64_t len = count[r] * grain < left ? count[r] * grain : left;

        if (len > 0)
            run[n_run++] = (pl_run){len, (rankset)1 << r};
        left -= len;
    }
    *out = layout_split(y->a, d, size, n_run, run, n_rank);
    return *out ? PL_OK : err_no_memory(y->err, "layouts");
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
    struct override_list over;
    struct where *where;
    int *which;

    PL_TRY(override_parse(&over, y->a, y->opt, y->err));
    if (over.n == 0)
        return PL_OK;
    where = arena_alloc(y->a, (size_t)over.n, sizeof *where);
    which = arena_alloc(y->a, (size_t)y->g->n_node, sizeof *which);
    if (!where || !which)
        return err_no_memory(y->err, "the overrides");
    for (int i = 0; i < over.n; i++)
        PL_TRY(read_where(y, &over.item[i], &where[i]));
    PL_TRY(override_match(&over, y->g, y->opt, which, y->err));
    for (int i = 0; i < y->g->n_node; i++)
        if (which[i] >= 0)
            PL_TRY(apply(y, &over.item[which[i]], &where[which[i]], i, home,
                         want));
    return PL_OK;
}

/* ---- all of it --------------------------------------------------------- */

/* Devices that were dealt no rank, and that no override names. */
static void warn_idle(const struct leaves *y)
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
        plan_log(y->opt, PL_LOG_WARN, "%d of %d devices %s idle (%d rank%s)",
                 n_idle, n_dev,
                 n_idle == 1 ? "carries no rank and stays"
                             : "carry no rank and stay",
                 p->n_rank, p->n_rank == 1 ? "" : "s");
}

pl_status place_leaves(struct placement *p, struct arena *a,
                       const struct device_list *list, const pl_graph *g,
                       const pl_options *opt, int *home, const pl_layout **want,
                       pl_err *err)
{
    struct leaves y = {p, a, list, g, opt, err};
    bool *on_host = arena_alloc(a, (size_t)p->n_layer, sizeof *on_host);
    bool all = opt->host_experts && strcmp(opt->host_experts, "all") == 0;

    if (!on_host)
        return err_no_memory(err, "the placement of weights");
    if (opt->host_experts)
        PL_TRY(expert_layers(&y, on_host));
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        home[i] = PLACE_NOWHERE;
        if (n->op != OP_weight && n->op != OP_cache)
            continue;
        home[i] = place_layer_group(p, g, i);
        if ((n->op == OP_cache && opt->host_cache) ||
            (graph_is_experts(n) && (n->layer < 0 ? all : on_host[n->layer])))
            home[i] = p->host;
    }
    PL_TRY(overrides(&y, home, want));
    warn_idle(&y);
    return PL_OK;
}
