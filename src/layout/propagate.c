/* Computes the numeric plan from a graph and the layouts of its leaves.
 *
 * The first pass visits the nodes in graph order and chooses each node's
 * layout. The candidates are "all operands MIRRORED" and, for each SPLIT
 * operand, "all operands split alike"; the one with the fewest bytes of
 * conversions is chosen. PARTIAL values are passed on to readers wherever the
 * op's row in ops.def allows. A minimum vertex cut then decides where PARTIAL
 * values are reduced. A second pass chooses all layouts again, with the cut
 * known. A third pass writes the nodes and conversions. Rows of ops.def, and
 * move.c, define the layouts that an op allows. Caches are the only special
 * case, because they are never converted.
 *
 * Short names: s is the state of the passes, c a choice, v a graph node's
 * index, n or x the node itself, `have` a value's layout, `want` the layout
 * that its reader needs. */
#include "layout/numeric.h"

#include "base/err.h"
#include "base/hash64.h"
#include "layout/cut.h"
#include "layout/rules.h"
#include "quant/format.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

const struct graph_sizes numeric_reference_sizes = {
    512, 1, 1, {512, 512, 512, 512}};

static const char *const kind_names[] = {
#define ROW(name, text) text,
    NUM_KIND_MAP(ROW)
#undef ROW
};

const char *num_kind_name(enum num_kind k)
{
    return kind_names[k];
}

/* The layouts chosen for a node. */
struct choice {
    /* Layout in which the op computes its result; PARTIAL before a
     * reduction. */
    const pl_layout *result;
    /* Layouts in which the op reads its operands; PARTIAL for an operand whose
     * addends the op passes on. */
    const pl_layout *want[GRAPH_MAX_IN];
    const pl_layout *sum; /* layout of the dimension that the op sums over, if
                             that is split; else NULL */
};

struct pass {
    struct numeric *p;
    const pl_graph *g;
    struct arena *a;
    struct choice *choice;  /* [n_node] layouts chosen for each node */
    const pl_layout **have; /* [n_node] layout in which the readers of each
                               value get it */
    bool *cut;              /* [n_node] true if the value's addends are summed
                               over the ranks at this node (see cut.h); set
                               before the second pass */
    /* [n_node] layout of each cache and state; unused for other nodes */
    const pl_layout **held;
    const pl_layout *const *leaf;
    pl_err *err;
};

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

/* Returns the bytes that converting operand `i` of node `n` to layout `want`
 * would cost. Returns NEVER if the operand is a cache or state in another
 * layout, because these are not converted. */
static int64_t price(const struct pass *s, const struct graph_node *n, int i,
                     const pl_layout *want)
{
    const struct graph_node *x = &s->g->node[n->in[i]];
    const pl_layout *have = s->have[n->in[i]];
    int64_t size = want->kind == PL_SPLIT   ? x->dim[want->dim].n
                   : have->kind == PL_SPLIT ? x->dim[have->dim].n
                                            : 1;

    if (have->kind == PL_PARTIAL)
        return bytes_of(s->g, n->in[i]);
    if (graph_memory(s->g, n->in[i]) >= 0)
        return (op_info(n->op)->updates == i
                    ? layout_equal(have, want)
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
static bool passes(const struct pass *s, const struct graph_node *n)
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

/* Computes the layouts that follow for node `n` if all dimensions with the
 * letters of `sp` are split alike. Sets *c to these layouts and *cost to the
 * bytes of the conversions that they need, or to NEVER if the op does not allow
 * the split. */
static pl_status candidate(struct pass *s, const struct graph_node *n,
                           const struct node_letters *l,
                           const struct rule_split *sp, int node,
                           struct choice *c, int64_t *cost)
{
    enum rule_fit f;

    *cost = 0;
    c->sum = NULL;
    for (int i = 0; i < n->n_in; i++) {
        c->want[i] = &layout_mirrored;
        if (n->in[i] < 0)
            continue;
        f = rules_project(s->a, sp, l->in[i], s->g->node[n->in[i]].n_dim,
                          s->g->node[n->in[i]].dim, s->p->n_rank, &c->want[i]);
        if (f == RULE_NO_MEMORY)
            return err_no_memory(s->err, "layouts");
        if (f == RULE_ILLEGAL ||
            cuts_blocks(&s->g->node[n->in[i]], c->want[i])) {
            *cost = NEVER;
            return PL_OK;
        }
        *cost += price(s, n, i, c->want[i]);
        if (*cost >= NEVER)
            return PL_OK;
    }
    f = rules_project(s->a, sp, l->out, n->n_dim, n->dim, s->p->n_rank,
                      &c->result);
    if (f == RULE_NO_MEMORY)
        return err_no_memory(s->err, "layouts");
    if (f == RULE_ILLEGAL)
        *cost = NEVER;
    if (f == RULE_FREE) {
        c->result = &layout_partial;
        c->sum = sp->l;
        *cost += bytes_of(s->g, node);
    }
    return PL_OK;
}

static pl_status choose_by_letters(struct pass *s, int node)
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
        PL_TRY(candidate(s, n, &l, &sp, node, &c, &cost));
        if (cost < best_cost || (cost == best_cost && cost < NEVER &&
                                 best.result->kind == PL_MIRRORED)) {
            best = c;
            best_cost = cost;
        }
    }
    if (best_cost >= NEVER) /* This cannot happen, because settle_memories has
                               given all caches of an op the same layout. */
        return err_set(s->err, PL_UNSUPPORTED,
                       "%s (%s): no layout fits the caches that it reads",
                       n->name, op_info(n->op)->name);
    s->choice[node] = best;
    return PL_OK;
}

/* Chooses the layouts of a concat. If the operands are split along the axis of
 * concatenation, they keep their layouts. Otherwise all operands get the same
 * layout. */
static pl_status choose_concat(struct pass *s, int node)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice *c = &s->choice[node];
    const pl_layout *h[GRAPH_MAX_IN], *moved = NULL;
    int64_t best_cost = 0;

    for (int i = 0; i < n->n_in; i++) {
        h[i] = s->have[n->in[i]];
        /* Such an operand is reduced before the concat and is MIRRORED then. */
        if (h[i]->kind == PL_PARTIAL)
            h[i] = &layout_mirrored;
    }
    mirrored(n, c);
    if (!move_layout(s->a, s->g, n, h, s->p->n_rank, &moved))
        return err_no_memory(s->err, "layouts");
    if (moved && moved->kind == PL_SPLIT) {
        c->result = moved;
        for (int i = 0; i < n->n_in; i++)
            c->want[i] = h[i];
        return PL_OK;
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
    return PL_OK;
}

static pl_status choose_move(struct pass *s, int node)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice *c = &s->choice[node];
    const pl_layout *h = s->have[n->in[0]];

    if (n->op == OP_concat)
        return choose_concat(s, node);
    mirrored(n, c);
    if (h->kind != PL_SPLIT)
        return PL_OK;
    if (!move_layout(s->a, s->g, n, &h, s->p->n_rank, &c->result))
        return err_no_memory(s->err, "layouts");
    if (c->result)
        c->want[0] = h;
    else
        c->result = &layout_mirrored;
    return PL_OK;
}

/* Sets *out to the layout of a leaf: the one that the user requested, else the
 * default for its role. */
static pl_status leaf_layout(struct pass *s, int node, const pl_layout **out)
{
    const struct graph_node *n = &s->g->node[node];
    int64_t size[GRAPH_MAX_DIM];
    const pl_layout *l = n->want                    ? n->want
                         : s->leaf && s->leaf[node] ? s->leaf[node]
                                                    : &layout_mirrored;

    for (int d = 0; d < n->n_dim; d++)
        size[d] = n->dim[d].symbol == PL_CONST ? n->dim[d].n : 0;
    PL_TRY(layout_check(l, n->n_dim, size, s->p->n_rank, n->name, s->err));
    if (cuts_blocks(n, l))
        return err_set(
            s->err, PL_BAD_ARGUMENT,
            "%s: rows of %s can be split only at multiples of %d values",
            n->name, format_info(n->format)->name,
            format_info(n->format)->grain);
    *out = l;
    if (l->kind == PL_SPLIT)
        *out = layout_split(s->a, l->dim, size[l->dim], l->n_run, l->run,
                            s->p->n_rank);
    return *out ? PL_OK : err_no_memory(s->err, "layouts");
}

/* Returns the layout in which each rank holds the heads that it holds under
 * layout `a` and those that it holds under `b`. `size` is the number of heads.
 * Returns NULL if out of memory. */
static const pl_layout *either(struct pass *s, int64_t size, const pl_layout *a,
                               const pl_layout *b)
{
    const pl_layout *both[2] = {a, b};
    pl_interval *run;

    if (a->kind != PL_SPLIT || b->kind != PL_SPLIT)
        return &layout_mirrored;
    run = arena_alloc(s->a, (size_t)size, sizeof *run);
    if (!run)
        return NULL;
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
    return layout_split(s->a, 1, size, (int)size, run, s->p->n_rank);
}

/* Returns the cache or state that operand i of node n is. Returns -1 if the
 * operand is absent or is neither. */
static int memory_of(const pl_graph *g, const struct graph_node *n, int i)
{
    return i < n->n_in && n->in[i] >= 0 ? graph_memory(g, n->in[i]) : -1;
}

/* Gives caches or states k and w the same layout, in which each rank holds the
 * heads that it held in either of them. Sets *changed to true if their layouts
 * differed. */
static pl_status hold_alike(struct pass *s, int k, int w, bool *changed)
{
    if (layout_equal(s->held[k], s->held[w]))
        return PL_OK;
    s->held[k] = either(s, s->g->node[k].dim[1].n, s->held[k], s->held[w]);
    if (!s->held[k])
        return err_no_memory(s->err, "layouts");
    s->held[w] = s->held[k];
    *changed = true;
    return PL_OK;
}

/* Chooses the layouts of caches and recurrent states. An op needs the keys and
 * the values of a head on the same rank, and a cache is never converted. So all
 * caches that one op reads get the same layout, in which each rank holds the
 * heads that it holds in any of them. */
static pl_status settle_memories(struct pass *s)
{
    const pl_graph *g = s->g;
    bool changed = true;

    for (int v = 0; v < g->n_node; v++)
        if (g->node[v].op == OP_memory)
            PL_TRY(leaf_layout(s, v, &s->held[v]));
    while (changed) { /* The loop ends, because each pass only gives heads to
                         further ranks. */
        changed = false;
        for (int v = 0; v < g->n_node; v++) {
            const struct graph_node *n = &g->node[v];
            int first = -1;

            for (int i = 0; i < n->n_in; i++) {
                int k = memory_of(g, n, i);

                if (k >= 0 && first >= 0)
                    PL_TRY(hold_alike(s, first, k, &changed));
                first = first < 0 ? k : first;
            }
        }
    }
    return PL_OK;
}

static pl_status choose(struct pass *s, int node)
{
    const struct graph_node *n = &s->g->node[node];
    struct choice *c = &s->choice[node];
    const char *dims = op_info(n->op)->dims;

    if (n->op == OP_memory) {
        c->result = s->held[node];
        return PL_OK;
    }
    if (!dims)
        return leaf_layout(s, node, &c->result);
    if (passes(s, n)) {
        c->result = &layout_partial;
        c->sum = NULL;
        for (int i = 0; i < n->n_in; i++)
            c->want[i] = n->in[i] >= 0 ? s->have[n->in[i]] : &layout_mirrored;
        return PL_OK;
    }
    return strcmp(dims, "MOVE") ? choose_by_letters(s, node)
                                : choose_move(s, node);
}

/* Sets s->have[node] to the layout in which readers get the node's result. If
 * `final`, the minimum cut is known, and a PARTIAL result that it contains is
 * reduced to MIRRORED. */
static pl_status settle(struct pass *s, int node, bool final)
{
    const struct graph_node *n = &s->g->node[node];
    const pl_layout *r = s->choice[node].result;

    if (final && r->kind == PL_PARTIAL && s->cut[node])
        r = &layout_mirrored;
    if (n->want && op_info(n->op)->dims) {
        int64_t size[GRAPH_MAX_DIM];

        for (int d = 0; d < n->n_dim; d++)
            size[d] = n->dim[d].symbol == PL_CONST ? n->dim[d].n : 0;
        PL_TRY(layout_check(n->want, n->n_dim, size, s->p->n_rank, n->name,
                            s->err));
        r = n->want->kind == PL_SPLIT
                ? layout_split(s->a, n->want->dim, size[n->want->dim],
                               n->want->n_run, n->want->run, s->p->n_rank)
                : n->want;
        if (!r)
            return err_no_memory(s->err, "layouts");
    }
    s->have[node] = r;
    return PL_OK;
}

/* Returns true if a node with the chosen layouts c computes with the addends of
 * its PARTIAL operand i, so that the operand need not be summed first. */
static bool flows_on(const struct choice *c, int i)
{
    return c->result->kind == PL_PARTIAL && c->want[i]->kind == PL_PARTIAL;
}

static pl_status find_cut(struct pass *s)
{
    const pl_graph *g = s->g;
    struct arena a = {0};
    struct cut_graph c = {0};
    int *id = arena_alloc(&a, (size_t)g->n_node, sizeof *id);
    size_t n = (size_t)g->n_node;
    bool *cut;
    pl_status st = PL_OK;

    c.bytes = arena_alloc(&a, n, sizeof *c.bytes);
    c.born = arena_alloc(&a, n, sizeof *c.born);
    c.needed = arena_alloc(&a, n, sizeof *c.needed);
    c.from = arena_alloc(&a, n * GRAPH_MAX_IN, sizeof *c.from);
    c.to = arena_alloc(&a, n * GRAPH_MAX_IN, sizeof *c.to);
    cut = arena_alloc(&a, n, sizeof *cut);
    if (!id || !c.bytes || !c.born || !c.needed || !c.from || !c.to || !cut) {
        arena_fini(&a);
        return err_no_memory(s->err, "the search for a minimum cut");
    }
    for (int v = 0; v < g->n_node; v++) {
        const struct graph_node *x = &g->node[v];
        const struct choice *ch = &s->choice[v];

        for (int i = 0; i < x->n_in; i++) {
            int u = x->in[i];

            if (u < 0 || s->choice[u].result->kind != PL_PARTIAL)
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
    if (c.n > 0)
        st = cut_minimum(&c, cut, s->err);
    for (int v = 0; v < g->n_node && st == PL_OK; v++)
        if (s->choice[v].result->kind == PL_PARTIAL)
            s->cut[v] = cut[id[v]];
    arena_fini(&a);
    return st;
}

/* Creating the nodes of the numeric plan --------------------------------- */

struct writer {
    struct pass *s;
    int cap;
    int *first; /* [n_node] the newest node of the numeric plan that has the
                   value of a graph node, or -1 */
    int *next;  /* [cap] for a node of the numeric plan, the next older node
                   with the same graph node's value, or -1 */
};

static pl_status put(struct writer *w, const struct num_node *n, int *out)
{
    struct numeric *p = w->s->p;

    if (p->n == w->cap) {
        int cap = w->cap ? 2 * w->cap : 1024;
        struct num_node *node = realloc(p->node, (size_t)cap * sizeof *node);
        int *next;

        if (node)
            p->node = node;
        next = node ? realloc(w->next, (size_t)cap * sizeof *next) : NULL;
        if (!next)
            return err_no_memory(w->s->err, "the numeric plan");
        w->next = next;
        w->cap = cap;
    }
    p->node[p->n] = *n;
    w->next[p->n] = w->first[n->node];
    w->first[n->node] = p->n;
    *out = p->n++;
    return PL_OK;
}

/* Sets *out to the node of the numeric plan that has the value of graph node v
 * in layout `want`. Adds a node that converts the value if there is none. If
 * `loose`, a node whose layout contains `want` is used, too. */
static pl_status version(struct writer *w, int v, const pl_layout *want,
                         bool loose, int *out)
{
    struct numeric *p = w->s->p;
    const struct graph_node *x = &w->s->g->node[v];
    int64_t size = want->kind == PL_SPLIT ? x->dim[want->dim].n : 1;
    struct num_node c = {.node = v, .n_in = 1, .layout = want};
    int from = -1;

    for (int i = w->first[v]; i >= 0; i = w->next[i]) {
        const pl_layout *h = p->node[i].layout;

        if (layout_equal(h, want) || (loose && h->kind != PL_PARTIAL &&
                                      layout_contains(h, want, size))) {
            *out = i;
            return PL_OK;
        }
        /* After the loop, `from` is the oldest node: the one that computes the
         * value. */
        from = i;
    }
    if (x->op == OP_weight) { /* A weight is not converted; it is stored a
                                 second time in this layout. */
        c.kind = NUM_OP;
        c.n_in = 0;
        return put(w, &c, out);
    }
    /* Prefers, as source of the conversion, a node whose layout contains
     * `want`, because then no data moves, else one whose value is already
     * reduced. */
    for (int i = w->first[v]; i >= 0; i = w->next[i])
        if (p->node[i].layout->kind != PL_PARTIAL &&
            (p->node[from].layout->kind == PL_PARTIAL ||
             layout_contains(p->node[i].layout, want, size)))
            from = i;
    if (p->node[from].layout->kind == PL_PARTIAL)
        c.kind = want->kind == PL_SPLIT ? NUM_REDUCE_SCATTER : NUM_ALL_REDUCE;
    else if (layout_contains(p->node[from].layout, want, size))
        c.kind = NUM_SLICE;
    else
        c.kind = want->kind == PL_SPLIT ? NUM_ALL_TO_ALL : NUM_ALL_GATHER;
    c.in[0] = from;
    return put(w, &c, out);
}

/* Returns the layout to which the PARTIAL value v is reduced: the one that all
 * its readers need if they agree, else MIRRORED. seen[v] is the layout that the
 * readers need, NULL if there is no reader. */
static const pl_layout *common_want(const struct pass *s, int v,
                                    const pl_layout *const *seen)
{
    const struct graph_node *n = &s->g->node[v];

    if (n->want)
        return s->have[v];
    if (n->keep || !seen[v])
        return &layout_mirrored;
    return seen[v];
}

static pl_status write_nodes(struct pass *s, struct writer *w)
{
    const pl_graph *g = s->g;
    const pl_layout **seen = arena_alloc(s->a, (size_t)g->n_node, sizeof *seen);

    w->first = arena_alloc(s->a, (size_t)g->n_node, sizeof *w->first);
    if (!seen || !w->first)
        return err_no_memory(s->err, "the numeric plan");
    memset(w->first, -1, (size_t)g->n_node * sizeof *w->first);
    for (int v = 0; v < g->n_node; v++)
        for (int i = 0; i < g->node[v].n_in; i++) {
            int u = g->node[v].in[i];

            if (u < 0)
                continue;
            if (!seen[u])
                seen[u] = s->choice[v].want[i];
            else if (!layout_equal(seen[u], s->choice[v].want[i]))
                seen[u] = &layout_mirrored;
        }
    for (int v = 0; v < g->n_node; v++) {
        const struct graph_node *x = &g->node[v];
        const struct choice *c = &s->choice[v];
        struct num_node n = {.kind = NUM_OP,
                             .node = v,
                             .n_in = x->n_in,
                             .layout = c->result,
                             .sum = c->sum};
        int made;

        s->p->value[v] = -1;
        if (x->op == OP_weight) /* Nodes for weights are created by version()
                                   when a reader needs them. */
            continue;
        for (int i = 0; i < x->n_in; i++) {
            n.in[i] = -1;
            if (x->in[i] >= 0)
                PL_TRY(version(w, x->in[i], c->want[i],
                               memory_of(g, x, i) >= 0 &&
                                   op_info(x->op)->updates != i,
                               &n.in[i]));
        }
        PL_TRY(put(w, &n, &made));
        if (c->result->kind == PL_PARTIAL && s->cut[v])
            PL_TRY(version(w, v, common_want(s, v, seen), false, &made));
        else if (x->want)
            PL_TRY(version(w, v, s->have[v], false, &made));
        s->p->value[v] = made;
    }
    for (int v = 0; v < g->n_node; v++)
        if (g->node[v].op == OP_weight) {
            /* A weight that no node reads is stored, too, so that its values
             * can be read back. */
            if (w->first[v] < 0) {
                struct num_node n = {
                    .kind = NUM_OP, .node = v, .layout = s->choice[v].result};
                int made;

                PL_TRY(put(w, &n, &made));
            }
            s->p->value[v] = w->first[v];
        }
    return PL_OK;
}

/* State of hash_of(), which hashes everything in a numeric plan that determines
 * bits. Numbers are collected in `word` and hashed 64 at a time. */
struct mixer {
    struct hash64 h;
    int64_t word[64];
    size_t n;
};

static void mix_flush(struct mixer *m)
{
    hash64_add(&m->h, m->word, m->n * sizeof m->word[0]);
    m->n = 0;
}

static void mix_int(struct mixer *m, int64_t v)
{
    if (m->n == sizeof m->word / sizeof m->word[0])
        mix_flush(m);
    m->word[m->n++] = (int64_t)htole64((uint64_t)v);
}

/* Hashes one number of n bytes, at most 8. */
static void mix_bits(struct mixer *m, const void *data, size_t n)
{
    int64_t v = 0;

    memcpy(&v, data, n);
    mix_int(m, v);
}

static void mix_text(struct mixer *m, const char *s)
{
    mix_int(m, (int64_t)hash64(0, s, strlen(s)));
}

static uint64_t hash_of(const struct numeric *p)
{
    struct mixer m = {.n = 0};

    hash64_init(&m.h, NUMERIC_ORDER);
    mix_int(&m, p->n_rank);
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        const struct graph_node *x = &p->g->node[n->node];
        const pl_layout *l = n->layout;

        mix_int(&m, n->kind);
        mix_int(&m, x->op);
        mix_int(&m, x->format);
        for (int k = 0; k < n->n_in; k++)
            mix_int(&m, n->in[k]);
        for (int d = 0; d < x->n_dim; d++)
            if (dim_pool(x->dim[d]) < 0) {
                mix_int(&m, x->dim[d].n);
                mix_int(&m, x->dim[d].symbol);
            }
#define MIX(type, name) mix_bits(&m, &x->attr.name, sizeof x->attr.name);
        GRAPH_ATTR_MAP(MIX)
#undef MIX
        if (x->custom) {
            mix_text(&m, x->custom->name);
            mix_text(&m, x->custom->dims);
            mix_int(&m, x->custom->partial);
            mix_int(&m, (int64_t)x->custom->edition);
        }
        mix_int(&m, l->kind);
        mix_int(&m, l->kind == PL_SPLIT ? l->dim : 0);
        for (int k = 0; l->kind == PL_SPLIT && k < l->n_run; k++) {
            mix_int(&m, l->run[k].len);
            mix_int(&m, (int64_t)l->run[k].owners);
        }
    }
    mix_flush(&m);
    return hash64_end(&m.h);
}

pl_status numeric_create(struct numeric **out, const pl_graph *g, int n_rank,
                         const pl_layout *const *leaf, pl_err *err)
{
    struct numeric *p = calloc(1, sizeof *p);
    struct pass s = {.p = p, .g = g, .leaf = leaf, .err = err};
    struct writer w = {.s = &s};
    size_t n = (size_t)g->n_node + 1;
    pl_status st;

    *out = NULL;
    if (!p)
        return err_no_memory(err, "the numeric plan");
    st = pl_graph_check(g, err);
    if (st != PL_OK)
        goto done;
    if (n_rank < 1 || n_rank > PL_MAX_RANKS) {
        st = err_set(err, PL_BAD_ARGUMENT, "%d ranks; 1 to %d are allowed",
                     n_rank, PL_MAX_RANKS);
        goto done;
    }
    s.a = &p->arena;
    p->g = g;
    p->n_rank = n_rank;
    s.choice = arena_alloc(s.a, n, sizeof *s.choice);
    s.have = arena_alloc(s.a, n, sizeof *s.have);
    s.cut = arena_alloc(s.a, n, sizeof *s.cut);
    s.held = arena_alloc(s.a, n, sizeof *s.held);
    p->value = arena_alloc(s.a, n, sizeof *p->value);
    if (!s.choice || !s.have || !s.cut || !s.held || !p->value) {
        st = err_no_memory(err, "the numeric plan");
        goto done;
    }
    st = settle_memories(&s);
    for (int v = 0; v < g->n_node && st == PL_OK; v++) {
        st = choose(&s, v);
        if (st == PL_OK)
            st = settle(&s, v, false);
    }
    if (st == PL_OK)
        st = find_cut(&s);
    for (int v = 0; v < g->n_node && st == PL_OK; v++) {
        st = choose(&s, v);
        if (st == PL_OK)
            st = settle(&s, v, true);
    }
    if (st == PL_OK)
        st = write_nodes(&s, &w);
    if (st != PL_OK)
        goto done;
    p->hash = hash_of(p);
    *out = p;
    p = NULL;
done:
    free(w.next);
    numeric_free(p);
    return st;
}

void numeric_free(struct numeric *p)
{
    if (!p)
        return;
    free(p->node);
    arena_fini(&p->arena);
    free(p);
}

int64_t numeric_bytes(const struct numeric *p, int i,
                      const struct graph_sizes *s)
{
    return 4 * graph_count(&p->g->node[p->node[i].node], s);
}
