/* Chooses a layout for each value of a graph.
 *
 * The first pass visits the nodes in graph order and chooses each node's
 * layout. The candidates are "all operands MIRRORED" and, for each SPLIT
 * operand, "all operands split alike"; the one with the fewest bytes of
 * conversions is chosen. PARTIAL values are passed on to readers wherever the
 * op's row in ops.def allows. A minimum vertex cut then decides where PARTIAL
 * values are reduced, and a second pass chooses all layouts again, with the cut
 * known. Rows of ops.def, and move.c, define the layouts that an op allows.
 * Caches are the only special case, because they are never converted.
 *
 * Functions that make layouts return MIRRORED if out of memory, so only the
 * caller of propagate() checks the arena.
 *
 * Short names: s is the state of the passes, c a choice, v a graph node's
 * index, n or x the node itself, `have` a value's layout, `want` the layout
 * that its reader needs. */
#include "layout/propagate.h"

#include "base/err.h"
#include "layout/cut.h"
#include "layout/rules.h"
#include "quant/format.h"

#include <string.h>

static const int64_t NEVER = INT64_MAX / 8, LAST_RESORT = INT64_MAX / 64;

static int64_t bytes_of(const pl_graph *g, int i)
{
    return 4 * graph_count(&g->node[i], &numeric_reference_sizes);
}

/* Returns true if layout l would split the rows of a quantized weight at a
 * position that packing does not support: not a multiple of the format's grain,
 * which is 32 values. */
static bool cuts_blocks(const struct graph_node *x, const pl_layout *l)
{
    const struct format_info *f = format_info(x->format);

    if (x->op != OP_weight || f->block == 1 || l->kind != PL_SPLIT ||
        l->dim != x->n_dim - 1)
        return false;
    for (int i = 0; i < l->n_run; i++)
        if (l->run[i].len % f->grain)
            return true;
    return false;
}

/* Returns true if a rank must have no more heads of memory `i` than node n
 * computes: the op changes the memory, or numbers another operand's heads like
 * the memory's. */
static bool needs_own_heads(const struct graph_node *n, int i)
{
    return op_info(n->op)->updates == i || n->op == OP_attention_blocks;
}

/* Returns the bytes that converting operand `i` of node `n` to layout `want`
 * would cost. Returns NEVER if the operand is a cache or state in another
 * layout, because these are not converted. */
static int64_t price(const struct propagated *s, const struct graph_node *n,
                     int i, const pl_layout *want)
{
    const struct graph_node *x = &s->g->node[n->in[i]];
    const pl_layout *have = s->have[n->in[i]];
    int64_t size = want->kind == PL_SPLIT   ? x->dim[want->dim].n
                   : have->kind == PL_SPLIT ? x->dim[have->dim].n
                                            : 1;

    if (have->kind == PL_PARTIAL)
        return bytes_of(s->g, n->in[i]);
    if (graph_memory(s->g, n->in[i]) >= 0)
        return (needs_own_heads(n, i) ? layout_equal(have, want)
                                      : layout_contains(have, want, size))
                   ? 0
                   : NEVER;
    if (layout_contains(have, want, size))
        return 0;
    return x->op == OP_weight ? LAST_RESORT : bytes_of(s->g, n->in[i]);
}

/* Returns true if node n can compute with the addends of a PARTIAL operand, so
 * that its result is PARTIAL, too. Its row in ops.def must allow that, and the
 * other operands must be MIRRORED. If the op is a sum, several operands may be
 * PARTIAL. */
static bool passes(const struct propagated *s, const struct graph_node *n)
{
    unsigned partial = 0, split = 0, rule = graph_partial(n);

    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] < 0)
            continue;
        if (s->have[n->in[i]]->kind == PL_PARTIAL)
            partial |= 1u << i;
        else if (s->have[n->in[i]]->kind == PL_SPLIT)
            split |= 1u << i;
    }
    if (!partial || split)
        return false;
    if (rule & PL_OP_SUM)
        return true;
    return (rule & PL_OP_ONE) && (partial & (partial - 1)) == 0 &&
           (partial & rule & 0xff);
}

static void mirrored(const struct graph_node *n, struct choice *c)
{
    c->result = &layout_mirrored;
    c->sum = NULL;
    for (int i = 0; i < n->n_in; i++)
        c->want[i] = &layout_mirrored;
}

/* Sets *c to the layouts that follow for node `n` if all dimensions with the
 * letters of `sp` are split alike. Returns the bytes of the conversions that
 * they need, or NEVER if the op does not allow the split. */
static int64_t candidate(struct propagated *s, const struct graph_node *n,
                         const struct node_letters *l,
                         const struct rule_split *sp, int node,
                         struct choice *c)
{
    int64_t cost = 0;
    enum rule_fit f;

    c->sum = NULL;
    for (int i = 0; i < n->n_in; i++) {
        const struct graph_node *x =
            n->in[i] < 0 ? NULL : &s->g->node[n->in[i]];

        c->want[i] = &layout_mirrored;
        if (!x)
            continue;
        f = rules_project(s->a, sp, l->in[i], x->n_dim, x->dim, s->n_rank,
                          &c->want[i]);
        if (f == RULE_ILLEGAL || cuts_blocks(x, c->want[i]))
            return NEVER;
        cost += price(s, n, i, c->want[i]);
        if (cost >= NEVER)
            return NEVER;
    }
    f = rules_project(s->a, sp, l->out, n->n_dim, n->dim, s->n_rank,
                      &c->result);
    if (f == RULE_FREE) {
        c->result = &layout_partial;
        c->sum = sp->l;
        cost += bytes_of(s->g, node);
    }
    return f == RULE_ILLEGAL ? NEVER : cost;
}

static pl_status choose_by_letters(struct propagated *s, int node, pl_err *err)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice best, c;
    int64_t best_cost = 0, cost;
    struct node_letters l;
    bool any = false;

    for (int i = 0; i < n->n_in; i++)
        any |= n->in[i] >= 0 && s->have[n->in[i]]->kind == PL_SPLIT;
    mirrored(n, &best);
    if (any) {
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i] >= 0)
                best_cost += price(s, n, i, &layout_mirrored);
        rules_letters(s->g, n, &l);
    }
    for (int i = 0; any && i < n->n_in; i++) {
        const pl_layout *h = n->in[i] >= 0 ? s->have[n->in[i]] : NULL;
        struct rule_split sp;

        if (!h || h->kind != PL_SPLIT || l.in[i][h->dim].a == 0 ||
            l.in[i][h->dim].whole)
            continue;
        sp = (struct rule_split){l.in[i][h->dim].a, l.in[i][h->dim].b,
                                 s->g->node[n->in[i]].dim[h->dim].n, h};
        cost = candidate(s, n, &l, &sp, node, &c);
        if (cost < best_cost || (cost == best_cost && cost < NEVER &&
                                 best.result->kind == PL_MIRRORED)) {
            best = c;
            best_cost = cost;
        }
    }
    if (best_cost >= NEVER) /* This cannot happen, because settle_memories has
                               given all caches of an op the same layout. */
        return err_set(err, PL_UNSUPPORTED,
                       "%s (%s): no layout fits the caches that it reads",
                       n->name, op_info(n->op)->name);
    s->choice[node] = best;
    return PL_OK;
}

/* Chooses the layouts of a concat. If the operands are split along the axis of
 * concatenation, they keep their layouts. Otherwise all operands get the same
 * layout. */
static void choose_concat(struct propagated *s, int node)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice *c = &s->choice[node];
    const pl_layout *h[GRAPH_MAX_IN], *moved;
    int64_t best_cost = 0;

    for (int i = 0; i < n->n_in; i++) {
        h[i] = s->have[n->in[i]];
        /* Such an operand is reduced before the concat and is MIRRORED then. */
        if (h[i]->kind == PL_PARTIAL)
            h[i] = &layout_mirrored;
    }
    mirrored(n, c);
    moved = move_layout(s->a, s->g, n, h, s->n_rank);
    if (moved && moved->kind == PL_SPLIT) {
        c->result = moved;
        for (int i = 0; i < n->n_in; i++)
            c->want[i] = h[i];
        return;
    }
    for (int i = 0; i < n->n_in; i++)
        best_cost += price(s, n, i, &layout_mirrored);
    for (int k = 0; k < n->n_in; k++) {
        int64_t cost = 0;

        if (h[k]->kind != PL_SPLIT || h[k]->dim == n->attr.axis)
            continue;
        for (int i = 0; i < n->n_in; i++)
            cost += price(s, n, i, h[k]);
        if (cost > best_cost ||
            (cost == best_cost && c->result->kind == PL_SPLIT))
            continue;
        best_cost = cost;
        c->result = h[k];
        for (int i = 0; i < n->n_in; i++)
            c->want[i] = h[k];
    }
}

static void choose_move(struct propagated *s, int node)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice *c = &s->choice[node];
    const pl_layout *h = s->have[n->in[0]], *moved;

    mirrored(n, c);
    if (h->kind != PL_SPLIT)
        return;
    moved = move_layout(s->a, s->g, n, &h, s->n_rank);
    if (!moved)
        return;
    c->result = moved;
    c->want[0] = h;
}

/* Sets *out to a layout that the user requested for node n, in normal form. */
static pl_status requested(struct propagated *s, const struct graph_node *n,
                           const pl_layout *l, const pl_layout **out,
                           pl_err *err)
{
    int64_t size[GRAPH_MAX_DIM];

    for (int d = 0; d < n->n_dim; d++)
        size[d] = n->dim[d].symbol == PL_CONST ? n->dim[d].n : 0;
    PL_TRY(layout_check(l, n->n_dim, size, s->n_rank, n->name, err));
    *out = l->kind != PL_SPLIT ? l
                               : layout_split(s->a, l->dim, size[l->dim],
                                              l->n_run, l->run, s->n_rank);
    return PL_OK;
}

/* Sets *out to the layout of a leaf: the one that the user requested, else the
 * default for its role. */
static pl_status leaf_layout(struct propagated *s, int node,
                             const pl_layout *const *leaf,
                             const pl_layout **out, pl_err *err)
{
    const struct graph_node *n = &s->g->node[node];
    const pl_layout *l = n->want              ? n->want
                         : leaf && leaf[node] ? leaf[node]
                                              : &layout_mirrored;

    PL_TRY(requested(s, n, l, out, err));
    if (cuts_blocks(n, l))
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: rows of %s can be split only at multiples of %d values",
            n->name, format_info(n->format)->name,
            format_info(n->format)->grain);
    return PL_OK;
}

/* Returns the layout in which each rank holds the heads that it holds under
 * layout `a` and those that it holds under `b`. `size` is the number of
 * heads. */
static const pl_layout *either(struct propagated *s, int64_t size,
                               const pl_layout *a, const pl_layout *b)
{
    const pl_layout *both[2] = {a, b};
    pl_interval *run;

    if (a->kind != PL_SPLIT || b->kind != PL_SPLIT)
        return &layout_mirrored;
    run = arena_alloc(s->a, (size_t)size, sizeof *run);
    if (!run)
        return &layout_mirrored;
    for (int64_t h = 0; h < size; h++)
        run[h] = (pl_interval){1, 0};
    for (int i = 0; i < 2; i++) {
        struct run_walk w;

        run_walk_first(&w, both[i], size);
        do
            for (int64_t h = w.pos; h < w.pos + w.left; h++)
                run[h].owners |= run_walk_owners(&w);
        while (run_walk_next(&w));
    }
    return layout_split(s->a, 1, size, (int)size, run, s->n_rank);
}

/* Gives caches or states k and w the same layout, in which each rank holds the
 * heads that it held in either of them. Returns true if their layouts
 * differed. */
static bool hold_alike(struct propagated *s, int k, int w)
{
    const pl_layout *a = s->choice[k].result, *b = s->choice[w].result;

    if (layout_equal(a, b))
        return false;
    s->choice[k].result = s->choice[w].result =
        either(s, s->g->node[k].dim[1].n, a, b);
    return true;
}

/* Chooses the layouts of caches and recurrent states. An op needs the keys and
 * the values of a head on the same rank, and a cache is never converted. So all
 * caches that one op reads get the same layout, in which each rank holds the
 * heads that it holds in any of them. */
static void settle_memories(struct propagated *s)
{
    const pl_graph *g = s->g;
    bool changed = true;

    while (changed) { /* The loop ends, because each pass only gives heads to
                         further ranks. */
        changed = false;
        for (int v = 0; v < g->n_node; v++) {
            const struct graph_node *n = &g->node[v];
            int first = -1;

            for (int i = 0; i < n->n_in; i++) {
                int k = n->in[i] >= 0 ? graph_memory(g, n->in[i]) : -1;

                if (k >= 0 && first >= 0)
                    changed |= hold_alike(s, first, k);
                first = first < 0 ? k : first;
            }
        }
    }
}

/* Chooses the layouts of node v, which is not a leaf. */
static pl_status choose(struct propagated *s, int v, pl_err *err)
{
    const struct graph_node *n = &s->g->node[v];
    struct choice *c = &s->choice[v];

    if (passes(s, n)) {
        c->result = &layout_partial;
        c->sum = NULL;
        for (int i = 0; i < n->n_in; i++)
            c->want[i] = n->in[i] >= 0 ? s->have[n->in[i]] : &layout_mirrored;
        return PL_OK;
    }
    if (strcmp(op_info(n->op)->dims, "MOVE"))
        return choose_by_letters(s, v, err);
    if (n->op == OP_concat)
        choose_concat(s, v);
    else
        choose_move(s, v);
    return PL_OK;
}

/* Chooses the layouts of all nodes, and those in which readers get the results.
 * A PARTIAL result in the cut is MIRRORED for its readers. */
static pl_status choose_all(struct propagated *s, pl_err *err)
{
    for (int v = 0; v < s->g->n_node; v++) {
        const struct graph_node *n = &s->g->node[v];
        bool leaf = !op_info(n->op)->dims;
        const pl_layout *r;

        if (!leaf)
            PL_TRY(choose(s, v, err));
        r = s->choice[v].result;
        s->have[v] = r->kind == PL_PARTIAL && s->cut[v] ? &layout_mirrored : r;
        if (n->want && !leaf)
            PL_TRY(requested(s, n, n->want, &s->have[v], err));
    }
    return PL_OK;
}

/* Returns true if a node with the chosen layouts c computes with the addends of
 * its PARTIAL operand i, so that the operand need not be summed first. */
static bool flows_on(const struct choice *c, int i)
{
    return c->result->kind == PL_PARTIAL && c->want[i]->kind == PL_PARTIAL;
}

/* Sets s->cut for the n_partial PARTIAL values. */
static pl_status find_cut(struct propagated *s, int n_partial, pl_err *err)
{
    const pl_graph *g = s->g;
    size_t n = (size_t)n_partial;
    struct arena a = {0};
    struct cut_graph c = {
        .bytes = arena_alloc(&a, n, sizeof *c.bytes),
        .born = arena_alloc(&a, n, sizeof *c.born),
        .needed = arena_alloc(&a, n, sizeof *c.needed),
        .from = arena_alloc(&a, n * GRAPH_MAX_IN, sizeof *c.from),
        .to = arena_alloc(&a, n * GRAPH_MAX_IN, sizeof *c.to),
    };
    int *id = arena_alloc(&a, (size_t)g->n_node, sizeof *id);
    bool *cut = arena_alloc(&a, n, sizeof *cut);
    pl_status st = arena_check(&a, "the search for a minimum cut", err);

    if (st != PL_OK)
        goto done;
    for (int v = 0; v < g->n_node; v++) {
        const struct graph_node *x = &g->node[v];
        const struct choice *ch = &s->choice[v];

        for (int i = 0; i < x->n_in; i++) {
            int u = x->in[i];

            if (u < 0 || s->choice[u].result->kind != PL_PARTIAL || x->aside)
                continue;
            if (flows_on(ch, i)) {
                c.from[c.n_edge] = id[u];
                c.to[c.n_edge++] = c.n; /* The vertex of node v gets the index
                                           c.n when v itself is added below. */
            } else {
                c.needed[id[u]] = true;
            }
        }
        if (ch->result->kind == PL_PARTIAL) {
            id[v] = c.n;
            c.bytes[c.n] = bytes_of(g, v);
            c.born[c.n] = ch->sum != NULL;
            c.needed[c.n] = x->output || x->keep || x->want;
            c.n++;
        }
    }
    st = cut_minimum(&c, cut, err);
    for (int v = 0; v < g->n_node && st == PL_OK; v++)
        if (s->choice[v].result->kind == PL_PARTIAL)
            s->cut[v] = cut[id[v]];
done:
    arena_fini(&a);
    return st;
}

pl_status propagate(struct propagated *s, const pl_layout *const *leaf,
                    pl_err *err)
{
    int n_partial = 0;

    for (int v = 0; v < s->g->n_node; v++)
        if (!op_info(s->g->node[v].op)->dims)
            PL_TRY(leaf_layout(s, v, leaf, &s->choice[v].result, err));
    settle_memories(s);
    PL_TRY(choose_all(s, err));
    for (int v = 0; v < s->g->n_node; v++)
        n_partial += s->choice[v].result->kind == PL_PARTIAL;
    if (n_partial == 0)
        return PL_OK;
    PL_TRY(find_cut(s, n_partial, err));
    return choose_all(s, err);
}
