/* Assigns the letters of an op's row in ops.def to the dimensions of a node,
 * and projects a split of one dimension onto the others with the same
 * letters. */
#include "layout/rules.h"

#include <string.h>

/* Pseudo letters for the dimensions that '*' stands for in ops.def: STAR + 1
 * for the rightmost of them, STAR + 2 for the one before it, and so on. */
enum { STAR = 128 };

/* Sets out[d] to the letters of dimension d of an operand with n_dim
 * dimensions. [p, end) is the text of the operand's letters in the op's row of
 * ops.def. */
static void pattern(const char *p, const char *end, int n_dim,
                    const pl_dim *dim, struct dim_letters *out)
{
    struct dim_letters item[GRAPH_MAX_DIM + 1];
    int n = 0, star = -1, d = 0;

    for (; p < end && *p != '?' && n <= GRAPH_MAX_DIM; p++) {
        if (*p == '*') {
            star = n;
        } else if (*p == '(') {
            item[n++] = (struct dim_letters){p[1], p[2], false};
            p += 3;
        } else if (*p == '!') {
            item[n - 1].whole = true;
        } else {
            item[n++] = (struct dim_letters){*p, 0, false};
        }
    }
    for (int i = 0; i <= n; i++) {
        if (i == star)
            for (int k = n_dim - n; k > 0; k--)
                out[d++] = (struct dim_letters){STAR + k, 0, false};
        if (i < n && d < n_dim)
            out[d++] = item[i];
    }
    for (d = 0; d < n_dim; d++)
        out[d].whole |= dim[d].symbol != PL_CONST;
}

static bool is_one(pl_dim d)
{
    return d.n == 1 && d.symbol == PL_CONST;
}

/* Returns true if a dimension with this letter may be broadcast from size 1,
 * because some operand or the result has the letter with a larger size. */
static bool broadcasts(const struct node_letters *l, const pl_graph *g,
                       const struct graph_node *n, int letter)
{
    for (int i = 0; i < n->n_in; i++)
        for (int d = 0; n->in[i] >= 0 && d < g->node[n->in[i]].n_dim; d++)
            if (l->in[i][d].a == letter && l->in[i][d].b == 0 &&
                !is_one(g->node[n->in[i]].dim[d]))
                return true;
    for (int d = 0; d < n->n_dim; d++)
        if (l->out[d].a == letter && l->out[d].b == 0 && !is_one(n->dim[d]))
            return true;
    return false;
}

void rules_letters(const pl_graph *g, const struct graph_node *n,
                   struct node_letters *out)
{
    const char *p = graph_dims(n);
    struct node_letters raw;

    memset(out, 0, sizeof *out);
    for (int i = 0; *p != '-'; i++) {
        size_t len = strcspn(p, ",-");

        if (i < n->n_in && n->in[i] >= 0)
            pattern(p, p + len, g->node[n->in[i]].n_dim, g->node[n->in[i]].dim,
                    out->in[i]);
        p += len + (p[len] == ',');
    }
    pattern(p + 2, p + strlen(p), n->n_dim, n->dim, out->out);
    raw = *out;
    for (int i = 0; i < n->n_in; i++)
        for (int d = 0; n->in[i] >= 0 && d < g->node[n->in[i]].n_dim; d++)
            if (is_one(g->node[n->in[i]].dim[d]) && raw.in[i][d].b == 0 &&
                broadcasts(&raw, g, n, raw.in[i][d].a))
                out->in[i][d].a = 0;
}

/* Returns the layout of dimension `dim`, which corresponds to one of the two
 * factors of the split dimension of s, as (gr) to g or r. An index of the
 * factor belongs to all ranks that own a corresponding index of the split
 * dimension. For the outer factor these are s->size / size adjacent indices,
 * for the inner factor all indices that are equal modulo `size`. */
static const pl_layout *join(struct arena *a, const struct rule_split *s,
                             int dim, int64_t size, bool outer, int n_rank)
{
    int64_t r = outer ? s->size / size : size;
    pl_interval *run = arena_alloc(a, (size_t)size, sizeof *run);
    struct run_walk w;

    if (!run)
        return &layout_mirrored;
    for (int64_t i = 0; i < size; i++)
        run[i].len = 1;
    run_walk_first(&w, s->l, s->size);
    do {
        for (int64_t i = w.pos; i < w.pos + w.left; i++)
            run[outer ? i / r : i % r].owners |= run_walk_owners(&w);
    } while (run_walk_next(&w));
    return layout_split(a, dim, size, (int)size, run, n_rank);
}

enum rule_fit rules_project(struct arena *a, const struct rule_split *s,
                            const struct dim_letters *letters, int n_dim,
                            const pl_dim *dim, int n_rank,
                            const pl_layout **out)
{
    for (int d = 0; d < n_dim; d++) {
        const struct dim_letters *l = &letters[d];
        const pl_layout *p;
        int64_t factor = 1;

        if (l->a == 0)
            continue;
        if ((l->a == s->a && l->b == s->b) ||
            (s->b == 0 && l->b != 0 && l->b == s->a)) {
            /* The dimension has the same letters, or the split letter as its
             * inner factor. In the latter case the split repeats for each index
             * of the outer factor. */
            p = s->l;
        } else if (s->b == 0 && l->b != 0 && l->a == s->a) {
            p = s->l;
            factor = dim[d].n / s->size;
        } else if (s->b != 0 && l->b == 0 && (l->a == s->a || l->a == s->b)) {
            p = join(a, s, d, dim[d].n, l->a == s->a, n_rank);
            if (l->whole && p->kind == PL_SPLIT)
                return RULE_ILLEGAL;
            *out = p;
            return RULE_SPLIT;
        } else {
            continue;
        }
        if (l->whole)
            return RULE_ILLEGAL;
        if (p->dim == d && dim[d].n == s->size) {
            *out = p;
        } else {
            pl_interval *run = arena_alloc(a, (size_t)p->n_run, sizeof *run);

            for (int i = 0; run && i < p->n_run; i++)
                run[i] =
                    (pl_interval){p->run[i].len * factor, p->run[i].owners};
            *out = run ? layout_split(a, d, dim[d].n, p->n_run, run, n_rank)
                       : &layout_mirrored;
        }
        return RULE_SPLIT;
    }
    return RULE_FREE;
}
