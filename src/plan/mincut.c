/* Implements mincut.h: assigns labels (groups of devices) to vertices (nodes)
 * so that few bytes are copied.
 *
 * With two labels, the best assignment is a minimum cut: vertices on the
 * source's side get the first label, the others the second. A value that is
 * read on the other side costs one copy, which all readers there share. To
 * model the single copy, the flow network has one additional vertex between the
 * producer and these readers. With more labels, two at a time are improved
 * while all others are fixed, as in Boykov, Veksler and Zabih 2001 (swap
 * moves). Only pairs of labels between which a value is passed are tried. A
 * pair is tried again only after one of its labels has changed. */
#include "plan/mincut.h"

#include "base/err.h"
#include "layout/flow.h"

#include <math.h>
#include <string.h>

int64_t glue_cost_to(const struct glue *g, const struct mincut_value *v,
                     int label)
{
    double n = v->copies;

    if (!v->in_ranks && n > g->width[label])
        n = g->width[label];
    return llround((double)v->bytes * n);
}

/* ---- cost of an assignment of labels ----------------------------------- */

/* Returns the bytes that copying value v costs under the present labels: one
 * copy for each label that reads the value and does not produce it.
 * mark[n_label] is scratch memory. A label has been counted if its entry equals
 * *stamp, which each call increases. */
static int64_t cost_of(const struct glue *g, const struct mincut_value *v,
                       int *mark, int *stamp)
{
    int64_t sum = 0;

    mark[g->label[v->from]] = ++*stamp;
    for (int k = 0; k < v->n; k++) {
        int l = g->label[g->reader[v->first + k]];

        if (mark[l] != *stamp)
            sum += glue_cost_to(g, v, l);
        mark[l] = *stamp;
    }
    return sum;
}

pl_status mincut_cost(const struct glue *g, int64_t *out, pl_err *err)
{
    struct arena a = {0};
    int *mark = arena_alloc(&a, (size_t)g->n_label, sizeof *mark), stamp = 0;

    PL_TRY(arena_check(&a, "the placement of ops", err));
    *out = 0;
    for (int i = 0; i < g->n_value; i++)
        *out += cost_of(g, &g->value[i], mark, &stamp);
    arena_fini(&a);
    return PL_OK;
}

/* ---- initial labels ---------------------------------------------------- */

/* Sets the initial labels of movable vertices, in order. A vertex gets the
 * label that holds most bytes of its operands, of several such labels that of
 * the latest operand. A vertex without operands gets the label of its first
 * reader. The operands of vertex i are a list: the values from_value[e] for e =
 * first_of[i], next_of[e] and so on. `bytes` [n_label] is scratch memory,
 * initially zero. */
static void start(const struct glue *g, const int *first_of, const int *next_of,
                  const int *from_value, int64_t *bytes)
{
    for (int i = 0; i < g->n; i++) {
        int best = -1;

        if (!g->movable[i])
            continue;
        for (int e = first_of[i]; e >= 0; e = next_of[e]) {
            const struct mincut_value *v = &g->value[from_value[e]];
            int l = g->label[v->from];

            if (l < 0)
                continue;
            bytes[l] += v->bytes;
            if (best < 0 || bytes[l] > bytes[best])
                best = l;
        }
        for (int e = first_of[i]; e >= 0; e = next_of[e])
            if (g->label[g->value[from_value[e]].from] >= 0)
                bytes[g->label[g->value[from_value[e]].from]] = 0;
        g->label[i] = best;
    }
    for (int k = g->n_value - 1; k >= 0; k--) {
        const struct mincut_value *v = &g->value[k];

        for (int r = 0; r < v->n && g->label[v->from] < 0; r++)
            g->label[v->from] = g->label[g->reader[v->first + r]];
    }
    for (int i = 0; i < g->n; i++)
        if (g->label[i] < 0)
            g->label[i] = g->other;
}

/* ---- improving pairs of labels ----------------------------------------- */

struct swap {
    struct glue *g;
    struct arena arena;
    struct flow flow;
    int *index;   /* [n] for each vertex its node in the flow network, or -1 if
                     it keeps its label */
    int *touched; /* values that some movable vertex with one of the two labels
                     produces or reads, so that their cost may change */
    int *mark, stamp;
    /* [n_label] number of the pass over all pairs of labels in which the label
     * last gained or lost a vertex */
    int *changed;
    int *tried;   /* [n_label, n_label] number of the pass in which the pair was
                     last tried */
    bool *linked; /* [n_label, n_label] true if a value connects vertices of the
                     two labels */
};

enum { SOURCE, SINK, FIRST };

/* Returns the node of the flow network for vertex v when labels a and b are
 * improved. A vertex with label a or b that is not movable is the source (a) or
 * the sink (b). Returns -1 for a vertex with another label. */
static int node_of(const struct swap *s, int v, int a, int b)
{
    if (s->index[v] >= 0)
        return s->index[v];
    return s->g->label[v] == a ? SOURCE : s->g->label[v] == b ? SINK : -1;
}

/* Adds value v to the flow network. Its arcs make the side of label a, or of b,
 * pay for one copy of the value if the value is read there but produced
 * elsewhere. */
static void add_value(struct swap *s, const struct mincut_value *v, int a,
                      int b, int *n)
{
    struct flow *f = &s->flow;
    int from = node_of(s, v->from, a, b);
    int64_t to_a = glue_cost_to(s->g, v, a), to_b = glue_cost_to(s->g, v, b);
    /* If a vertex with a third label produces the value, each side that reads
     * it pays for a copy. */
    int for_a = from < 0 ? SINK : from, for_b = from < 0 ? SOURCE : from;
    int in = -1, out = -1;

    for (int k = 0; k < v->n; k++) {
        int r = node_of(s, s->g->reader[v->first + k], a, b);

        if (r < 0 || r == from)
            continue;
        /* The value may be produced under label a and read under label b. */
        if (for_b != SINK && r != SOURCE) {
            if (in < 0) {
                in = (*n)++;
                flow_add(f, for_b, in, to_b);
            }
            flow_add(f, in, r, FLOW_UNLIMITED);
        }
        if (for_a != SOURCE && r != SINK) {
            if (out < 0) {
                out = (*n)++;
                flow_add(f, out, for_a, to_a);
            }
            flow_add(f, r, out, FLOW_UNLIMITED);
        }
    }
}

static bool touches(const struct swap *s, const struct mincut_value *v)
{
    if (s->index[v->from] >= 0)
        return true;
    for (int k = 0; k < v->n; k++)
        if (s->index[s->g->reader[v->first + k]] >= 0)
            return true;
    return false;
}

static int64_t touched_cost(struct swap *s, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += cost_of(s->g, &s->g->value[s->touched[i]], s->mark, &s->stamp);
    return sum;
}

/* Finds the cheapest distribution of labels a and b over the movable vertices
 * that have one of them. Keeps it and returns true if fewer bytes are copied
 * than before. */
static bool improve_pair(struct swap *s, int a, int b)
{
    struct glue *g = s->g;
    int n = FIRST, n_touched = 0;
    int64_t before, after;

    for (int i = 0; i < g->n; i++) {
        bool in = g->movable[i] && (g->label[i] == a || g->label[i] == b);

        s->index[i] = in ? n++ : -1;
    }
    if (n == FIRST)
        return false;
    for (int i = 0; i < g->n_value; i++)
        if (touches(s, &g->value[i]))
            s->touched[n_touched++] = i;
    before = touched_cost(s, n_touched);
    if (before == 0)
        return false;
    flow_clear(&s->flow, n + 2 * n_touched);
    for (int i = 0; i < n_touched; i++)
        add_value(s, &g->value[s->touched[i]], a, b, &n);
    flow_maximum(&s->flow, SOURCE, SINK);
    for (int i = 0; i < g->n; i++) /* From here on, s->index has the label that
                                      each vertex had before. */
        if (s->index[i] >= 0) {
            int old = g->label[i];

            g->label[i] = flow_reached(&s->flow, s->index[i]) ? a : b;
            s->index[i] = old;
        }
    after = touched_cost(s, n_touched);
    for (int i = 0; i < g->n && after >= before; i++)
        if (s->index[i] >= 0)
            g->label[i] = s->index[i];
    return after < before;
}

/* Sets s->linked for the pairs of labels between which a value is passed.
 * Ignores weights and caches: those that vertices of several labels read have
 * few bytes but many readers, and would link almost all pairs. */
static void link_labels(struct swap *s)
{
    const struct glue *g = s->g;
    size_t n = (size_t)g->n_label;

    memset(s->linked, 0, n * n);
    for (int i = 0; i < g->n_value; i++) {
        const struct mincut_value *v = &g->value[i];

        for (int k = 0; k < v->n && !v->stored; k++) {
            int x = g->label[g->reader[v->first + k]];
            int y = g->label[k > 0 ? g->reader[v->first + k - 1] : v->from];

            s->linked[(size_t)(x < y ? x : y) * n + (size_t)(x < y ? y : x)] =
                true;
            y = g->label[v->from];
            s->linked[(size_t)(x < y ? x : y) * n + (size_t)(x < y ? y : x)] =
                true;
        }
    }
}

static void improve(struct swap *s)
{
    struct glue *g = s->g;
    bool better = true;

    for (int turn = 1; better; turn++) {
        better = false;
        if (g->n_label > 2)
            link_labels(s);
        for (int a = 0; a < g->n_label; a++)
            for (int b = a + 1; b < g->n_label; b++) {
                size_t pair = (size_t)a * (size_t)g->n_label + (size_t)b;

                if ((g->n_label > 2 && !s->linked[pair]) ||
                    (s->tried[pair] > s->changed[a] &&
                     s->tried[pair] > s->changed[b]))
                    continue;
                s->tried[pair] = turn;
                if (!improve_pair(s, a, b))
                    continue;
                better = true;
                s->changed[a] = s->changed[b] = turn;
            }
    }
}

/* ---- improving all pairs of labels ------------------------------------- */

pl_status mincut_solve(struct glue *g, pl_err *err)
{
    struct swap s = {.g = g};
    size_t n = (size_t)g->n, n_label = (size_t)g->n_label;
    size_t n_value = (size_t)g->n_value, n_edge = 0;
    int *first_of, *next_of, *from_value, e = 0;
    int64_t *bytes;
    pl_status st;

    for (int i = 0; i < g->n_value; i++)
        n_edge += (size_t)g->value[i].n;
    first_of = arena_alloc(&s.arena, n, sizeof *first_of);
    next_of = arena_alloc(&s.arena, n_edge, sizeof *next_of);
    from_value = arena_alloc(&s.arena, n_edge, sizeof *from_value);
    bytes = arena_alloc(&s.arena, n_label, sizeof *bytes);
    s.index = arena_alloc(&s.arena, n, sizeof *s.index);
    s.touched = arena_alloc(&s.arena, n_value, sizeof *s.touched);
    s.mark = arena_alloc(&s.arena, n_label, sizeof *s.mark);
    s.changed = arena_alloc(&s.arena, n_label, sizeof *s.changed);
    s.tried = arena_alloc(&s.arena, n_label * n_label, sizeof *s.tried);
    s.linked = arena_alloc(&s.arena, n_label * n_label, sizeof *s.linked);
    flow_init(&s.flow, &s.arena, FIRST + n + 2 * n_value,
              2 * (n_value + n_edge));
    st = arena_check(&s.arena, "the placement of ops", err);
    if (st != PL_OK)
        goto done;
    memset(first_of, -1, n * sizeof *first_of);
    for (int i = 0; i < g->n_value; i++)
        for (int k = 0; k < g->value[i].n; k++, e++) {
            int r = g->reader[g->value[i].first + k];

            from_value[e] = i;
            next_of[e] = first_of[r]; /* Inserts at the front, so that the list
                                         begins with the latest operand. */
            first_of[r] = e;
        }
    start(g, first_of, next_of, from_value, bytes);
    improve(&s);
done:
    arena_fini(&s.arena);
    return st;
}
