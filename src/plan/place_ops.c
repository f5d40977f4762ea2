/* Decides where each node of the numeric plan is computed.
 *
 * An op that reads a cache or a weight is computed in the group of that cache
 * or weight. A reduction is computed in the group of its addends, a reshape in
 * that of its operand. mincut.c places the other nodes so that few bytes are
 * copied. */
#include "plan/place_inner.h"

#include "base/err.h"
#include "plan/mincut.h"
#include "quant/format.h"

#include <string.h>

/* The sizes of a step for which the bytes of values are computed: a micro-batch
 * of 512 tokens, of which 64 get logits. Few tokens of a prompt need logits,
 * but every token of a decoding step does; one in eight is a compromise. */
static const struct graph_sizes weighed = {512, 64, 1, {512, 512, 512, 512}};

struct ops {
    const struct placement *p;
    const struct numeric *num;
    const pl_graph *g;
    const int *home;
    const bool *away; /* weights and caches that are streamed, as for place_ops;
                         NULL if none are */
    /* [num->n] for each node, the node in whose group it is computed: itself,
     * or for reductions and reshapes the node whose result it reads. */
    int *root;
    int *same; /* [num->n] for a reshape, the node that computed the
                  value; else the node itself */
};

static int64_t leaf_bytes(const struct graph_node *n)
{
    const struct format_info *f = format_info(n->format);

    return graph_count(n, &weighed) / f->block * f->block_bytes;
}

static int reader_group(const struct ops *o, int leaf)
{
    return o->away && o->away[leaf] ? place_layer_group(o->p, o->g, leaf)
                                    : o->home[leaf];
}

/* Returns the only group in which node i can be, because the node is a weight
 * or cache or reads or writes one. Returns PLACE_NOWHERE if it may be in any
 * group. */
static int bound_group(const struct ops *o, int i)
{
    const struct num_node *n = &o->num->node[i];
    const struct graph_node *x = &o->g->node[n->node];
    int cache = graph_memory(o->g, n->node), best = -1;

    if (x->op == OP_input)
        return PLACE_NOWHERE;
    if (x->op == OP_weight)
        return o->home[n->node];
    if (cache >= 0) /* The node is a cache, a write to a cache, or a conversion
                       of one. */
        return o->home[cache];
    if (n->kind != NUM_OP)
        return PLACE_NOWHERE;
    for (int k = 0; k < n->n_in; k++) {
        int leaf = n->in[k] < 0 ? -1 : o->num->node[n->in[k]].node;

        if (leaf < 0)
            continue;
        cache = graph_memory(o->g, leaf);
        /* An op that writes to a cache runs in the cache's home group; only
         * caches that are read are streamed. */
        if (cache >= 0)
            return op_info(x->op)->updates == k ? o->home[cache]
                                                : reader_group(o, cache);
        /* The frequencies of RoPE do not count as a weight here, because they
         * are small and all layers share them. */
        if (o->g->node[leaf].op == OP_weight &&
            o->g->node[leaf].role != PL_ROLE_ROPE_FREQS &&
            (best < 0 ||
             leaf_bytes(&o->g->node[leaf]) > leaf_bytes(&o->g->node[best])))
            best = leaf;
    }
    return best >= 0 ? reader_group(o, best) : PLACE_NOWHERE;
}

static void find_roots(struct ops *o, int *at)
{
    for (int i = 0; i < o->num->n; i++) {
        const struct num_node *n = &o->num->node[i];
        const struct graph_node *x = &o->g->node[n->node];
        int in = n->n_in > 0 ? n->in[0] : -1;
        bool sum = n->kind == NUM_ALL_REDUCE || n->kind == NUM_REDUCE_SCATTER;
        bool renamed = n->kind == NUM_OP && x->op == OP_reshape &&
                       o->g->node[o->num->node[in].node].op != OP_input;

        o->root[i] = sum || renamed ? o->root[in] : i;
        o->same[i] = renamed ? o->same[in] : i;
        at[i] = sum || renamed ? at[o->root[i]] : bound_group(o, i);
    }
}

/* ---- building the minimum-cut problem ---------------------------------- */

/* Returns an upper bound of the number of times that an element of a value with
 * layout `l` is copied to a group: the number of ranks that hold it, on
 * average. */
static double copies(const struct ops *o, const pl_layout *l)
{
    int64_t sum = 0;

    if (l->kind != PL_SPLIT)
        return o->p->n_rank;
    for (int k = 0; k < l->n_run; k++)
        sum += l->run[k].len * __builtin_popcountll(l->run[k].owners);
    return (double)sum / (double)l->period;
}

/* Fills y->value with the values that nodes of another root read (see
 * ops.root), and y->reader with the roots of these readers. The field `from` of
 * a value is the root of the node that computes it. */
static pl_status build_mincut(const struct ops *o, struct glue *y,
                              struct arena *a, pl_err *err)
{
    const struct numeric *num = o->num;
    size_t n = (size_t)num->n;
    int *seen = arena_alloc(a, n, sizeof *seen);
    int *first = arena_alloc(a, n + 1, sizeof *first);
    int *fill = arena_alloc(a, n, sizeof *fill), n_edge = 0;

    for (int i = 0; i < num->n; i++)
        n_edge += num->node[i].n_in;
    y->reader = arena_alloc(a, (size_t)n_edge, sizeof *y->reader);
    y->value = arena_alloc(a, n, sizeof *y->value);
    PL_TRY(arena_check(a, "the placement of ops", err));
    for (int i = 0; i < num->n; i++)
        for (int k = 0; k < num->node[i].n_in; k++)
            if (num->node[i].in[k] >= 0)
                first[o->same[num->node[i].in[k]] + 1]++;
    for (int i = 0; i < num->n; i++)
        first[i + 1] += first[i];
    for (int i = 0; i < num->n; i++)
        for (int k = 0; k < num->node[i].n_in; k++) {
            int v = num->node[i].in[k] < 0 ? -1 : o->same[num->node[i].in[k]];
            int r = o->root[i];

            if (v < 0 || o->root[v] == r)
                continue;
            /* The readers of a value are in graph order. Duplicates are removed
             * below. */
            y->reader[first[v] + fill[v]++] = r;
        }
    for (int i = 0; i < num->n; i++) {
        const struct num_node *x = &num->node[i];
        const struct graph_node *v = &o->g->node[x->node];
        struct mincut_value *to = &y->value[y->n_value];
        int kept = 0;

        if (fill[i] == 0 || v->op == OP_input)
            continue;
        for (int k = 0; k < fill[i]; k++) {
            int r = y->reader[first[i] + k];

            if (seen[r] == i + 1)
                continue;
            seen[r] = i + 1;
            y->reader[first[i] + kept++] = r;
        }
        *to = (struct mincut_value){
            .from = o->root[i],
            .first = first[i],
            .n = kept,
            .bytes = v->op == OP_weight || v->op == OP_memory
                         ? leaf_bytes(v)
                         : numeric_bytes(num, i, &weighed),
            .copies = copies(o, x->layout),
            .in_ranks = x->layout->kind == PL_PARTIAL,
            .stored = v->op == OP_weight || v->op == OP_memory,
        };
        y->n_value++;
    }
    return PL_OK;
}

pl_status place_ops(const struct placement *p, const struct numeric *num,
                    const int *home, const bool *away, int *at, pl_err *err)
{
    struct arena a = {0};
    struct ops o = {p, num, num->g, home, away, NULL, NULL};
    struct glue y = {.n = num->n, .n_label = p->n_group, .label = at};
    int *width;
    pl_status s;

    if (p->n_group == 1) { /* nothing to choose */
        for (int i = 0; i < num->n; i++)
            at[i] = num->g->node[num->node[i].node].op == OP_input
                        ? PLACE_NOWHERE
                        : 0;
        return PL_OK;
    }
    width = arena_alloc(&a, (size_t)p->n_group, sizeof *width);
    o.root = arena_alloc(&a, (size_t)num->n, sizeof *o.root);
    o.same = arena_alloc(&a, (size_t)num->n, sizeof *o.same);
    y.movable = arena_alloc(&a, (size_t)num->n, sizeof *y.movable);
    s = arena_check(&a, "the placement of ops", err);
    if (s != PL_OK)
        goto done;
    for (int i = 0; i < p->n_member; i++)
        width[p->member[i].group] += p->member[i].n_rank > 0;
    find_roots(&o, at);
    for (int i = 0; i < num->n; i++)
        y.movable[i] = o.root[i] == i && at[i] == PLACE_NOWHERE &&
                       num->g->node[num->node[i].node].op != OP_input;
    y.width = width;
    y.other = p->layer_group[0];
    s = build_mincut(&o, &y, &a, err);
    if (s == PL_OK)
        s = mincut_solve(&y, err);
    for (int i = 0; i < num->n && s == PL_OK; i++)
        at[i] = num->g->node[num->node[i].node].op == OP_input ? PLACE_NOWHERE
                                                               : at[o.root[i]];
done:
    arena_fini(&a);
    return s;
}
