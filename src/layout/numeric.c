/* Makes the numeric plan from the layouts that propagate() chose: the nodes,
 * the conversions between layouts, and the hash. */
#include "layout/numeric.h"

#include "base/err.h"
#include "base/hash64.h"
#include "layout/propagate.h"

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

/* ---- nodes and conversions ---------------------------------------------- */

struct writer {
    struct numeric *p;
    const struct propagated *s;
    int cap;
    int *first; /* [n_node] the newest node of the numeric plan that has the
                   value of a graph node, or -1 */
    int *next;  /* [cap] for a node of the numeric plan, the next older node
                   with the same graph node's value, or -1 */
    bool aside; /* nodes that are written now are for marked ones */
    pl_err *err;
};

static pl_status put(struct writer *w, const struct num_node *n, int *out)
{
    struct numeric *p = w->p;

    if (p->n == w->cap) {
        int cap = w->cap ? 2 * w->cap : p->g->n_node + 64;
        struct num_node *node = realloc(p->node, (size_t)cap * sizeof *node);
        int *next;

        if (node)
            p->node = node;
        next = node ? realloc(w->next, (size_t)cap * sizeof *next) : NULL;
        if (!next)
            return err_no_memory(w->err, "the numeric plan");
        w->next = next;
        w->cap = cap;
    }
    p->node[p->n] = *n;
    p->node[p->n].aside = w->aside;
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
    struct numeric *p = w->p;
    const struct graph_node *x = &p->g->node[v];
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
static const pl_layout *common_want(const struct propagated *s, int v,
                                    const pl_layout *const *seen)
{
    const struct graph_node *n = &s->g->node[v];

    if (n->want)
        return s->have[v];
    if (n->keep || !seen[v])
        return &layout_mirrored;
    return seen[v];
}

static pl_status write_nodes(struct writer *w)
{
    const struct propagated *s = w->s;
    const pl_graph *g = s->g;
    const pl_layout **seen = arena_alloc(s->a, (size_t)g->n_node, sizeof *seen);

    w->first = arena_alloc(s->a, (size_t)g->n_node, sizeof *w->first);
    PL_TRY(arena_check(s->a, "the numeric plan", w->err));
    memset(w->first, -1, (size_t)g->n_node * sizeof *w->first);
    for (int v = 0; v < g->n_node; v++)
        for (int i = 0; i < g->node[v].n_in; i++) {
            int u = g->node[v].in[i];

            if (u < 0 || g->node[v].aside)
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

        w->p->value[v] = -1;
        w->aside = x->aside;
        if (x->op == OP_weight) /* Nodes for weights are created by version()
                                   when a reader needs them. */
            continue;
        for (int i = 0; i < x->n_in; i++) {
            n.in[i] = -1;
            if (x->in[i] >= 0)
                PL_TRY(version(w, x->in[i], c->want[i],
                               graph_memory(g, x->in[i]) >= 0 &&
                                   op_info(x->op)->updates != i,
                               &n.in[i]));
        }
        PL_TRY(put(w, &n, &made));
        if (c->result->kind == PL_PARTIAL && s->cut[v])
            PL_TRY(version(w, v, common_want(s, v, seen), false, &made));
        else if (x->want)
            PL_TRY(version(w, v, s->have[v], false, &made));
        w->p->value[v] = made;
    }
    w->aside = false;
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
            w->p->value[v] = w->first[v];
        }
    return PL_OK;
}

/* ---- hash -------------------------------------------------------------- */

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

        if (n->aside)
            continue;
        mix_int(&m, n->kind);
        mix_text(&m, op_info(x->op)->name);
        mix_int(&m, x->format);
        for (int k = 0; k < n->n_in; k++)
            mix_int(&m, n->in[k]);
        for (int d = 0; d < x->n_dim; d++)
            if (dim_pool(x->dim[d]) < 0) {
                mix_int(&m, x->dim[d].n);
                mix_int(&m, x->dim[d].symbol);
            }
#define MIX(type, name) mix_bits(&m, &x->attr.name, sizeof x->attr.name);
        GRAPH_ATTR_COMMON(MIX)
#undef MIX
#define MIX(type, name)                                                        \
    if (x->attr.name != 0)                                                     \
        mix_bits(&m, &x->attr.name, sizeof x->attr.name);
        GRAPH_ATTR_RARE(MIX)
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

/* ---- all of it ---------------------------------------------------------- */

pl_status numeric_create(struct numeric **out, const pl_graph *g, int n_rank,
                         const pl_layout *const *leaf, pl_err *err)
{
    struct numeric *p = calloc(1, sizeof *p);
    struct propagated s = {.g = g, .n_rank = n_rank};
    struct writer w = {.p = p, .s = &s, .err = err};
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
    p->g = g;
    p->n_rank = n_rank;
    p->value = arena_alloc(&p->arena, n, sizeof *p->value);
    s.a = &p->arena;
    s.choice = arena_alloc(s.a, n, sizeof *s.choice);
    s.have = arena_alloc(s.a, n, sizeof *s.have);
    s.cut = arena_alloc(s.a, n, sizeof *s.cut);
    st = arena_check(s.a, "the numeric plan", err);
    if (st != PL_OK)
        goto done;
    st = propagate(&s, leaf, err);
    if (st == PL_OK)
        st = write_nodes(&w);
    /* a layout that is missing may be the cause of another error */
    if (st != PL_NO_MEMORY && arena_check(s.a, "layouts", err) != PL_OK)
        st = PL_NO_MEMORY;
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
