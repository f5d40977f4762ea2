/* Custom ops: parses an op's row of letters (graph/ops.def) and infers shapes
 * from it.
 *
 * A row is checked when the node is created, so that layout/rules.c can use it
 * like a row of ops.def. Further checks ensure that every split that the
 * letters allow can be computed. For example, a composite dimension such as
 * (gr) that may be split must also be in the result, because a split may divide
 * one index of its outer factor. Whether the kernel really computes what the
 * row declares cannot be checked. */
#include "base/err.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "graph/graph_text.h"
#include "graph/shape.h"

#include <stdio.h>
#include <string.h>

struct item {
    /* Letter of the dimension; for a composite dimension such as (gr) its two
     * letters; '*' for any number of leading dimensions. */
    char a, b;
    bool whole;
};

struct side {
    struct item item[GRAPH_MAX_DIM + 1];
    int n, star; /* number of items; index of the item '*', or -1 if there is
                    none */
    bool optional;
};

struct row {
    struct side in[GRAPH_MAX_IN], out;
    int n_in;
};

/* Parsing the letters of an op's row ------------------------------------- */

/* Maximum number of operands: the size of the array that a custom kernel gets.
 * It is less than GRAPH_MAX_IN, the maximum of built-in ops. */
enum { CUSTOM_MAX_IN = sizeof((pl_op_call *)0)->in / sizeof(pl_op_value) };

static bool letter(char c)
{
    return c >= 'a' && c <= 'z';
}

/* Parses the letters of one operand, or of the result, from a custom op's row
 * into *s. Advances *p to the text after them. Returns NULL on success, else
 * the text of the error. */
static const char *read_side(const char **p, struct side *s)
{
    *s = (struct side){.star = -1};
    for (; **p && **p != ',' && **p != '-' && **p != '?'; ++*p) {
        struct item *t = &s->item[s->n];

        if (s->n - (s->star >= 0) == GRAPH_MAX_DIM)
            return "an operand has more than four dimensions";
        if (**p == '*') {
            if (s->star >= 0)
                return "a second '*'";
            s->star = s->n;
            *t = (struct item){'*', 0, false};
        } else if (letter(**p)) {
            *t = (struct item){**p, 0, false};
        } else if (**p == '(' && letter((*p)[1]) && letter((*p)[2]) &&
                   (*p)[1] != (*p)[2] && (*p)[3] == ')') {
            *t = (struct item){(*p)[1], (*p)[2], false};
            *p += 3;
        } else {
            return "expected letters, '(gr)', '*', '!', '?', ',' or '->'";
        }
        for (int i = 0; i < s->n; i++)
            if (s->item[i].a == t->a || s->item[i].b == t->a ||
                (t->b && (s->item[i].a == t->b || s->item[i].b == t->b)))
                return "a letter appears twice in one operand";
        if (t->a != '*' && (*p)[1] == '!') {
            t->whole = true;
            ++*p;
        }
        s->n++;
    }
    return s->n == 0 ? "an operand without dimensions" : NULL;
}

static bool has_composite(const struct side *s, const struct item *t)
{
    for (int i = 0; i < s->n; i++)
        if (s->item[i].a == t->a && s->item[i].b == t->b)
            return true;
    return false;
}

/* Returns true if the size of item t, a dimension of a custom op's result,
 * follows from the sizes of operands that are not optional. */
static bool has_size(const struct row *r, const struct item *t)
{
    bool pair = false, a = false, b = t->b == 0;

    for (int i = 0; i < r->n_in; i++) {
        const struct side *s = &r->in[i];

        for (int k = 0; k < s->n && !s->optional; k++) {
            pair |= s->item[k].a == t->a && s->item[k].b == t->b;
            a |= s->item[k].b == 0 && s->item[k].a == t->a;
            b |= s->item[k].b == 0 && s->item[k].a == t->b;
        }
    }
    return pair || (a && b);
}

static const char *read_row(const char *p, struct row *r)
{
    const char *wrong;

    memset(r, 0, sizeof *r);
    for (;; p++) {
        if (r->n_in == CUSTOM_MAX_IN)
            return "more than four operands";
        wrong = read_side(&p, &r->in[r->n_in]);
        if (wrong)
            return wrong;
        if (*p == '?') {
            r->in[r->n_in].optional = true;
            p++;
        } else if (r->n_in > 0 && r->in[r->n_in - 1].optional) {
            return "optional operands must come last";
        }
        r->n_in++;
        if (*p != ',')
            break;
    }
    if (r->in[0].optional)
        return "the first operand must not be optional";
    if (p[0] != '-' || p[1] != '>')
        return "no '->' after the operands";
    p += 2;
    wrong = read_side(&p, &r->out);
    if (wrong)
        return wrong;
    if (*p)
        return "text after the result";
    for (int k = 0; k < r->out.n; k++)
        if (!has_size(r, &r->out.item[k]))
            return "the result has a letter that is in no operand";
    for (int i = 0; i < r->n_in; i++)
        for (int k = 0; k < r->in[i].n; k++) {
            const struct item *t = &r->in[i].item[k];

            if (t->a == '*' && r->out.star < 0)
                return "'*' is in an operand but not in the result";
            if (t->b && !t->whole && !has_composite(&r->out, t))
                return "a composite that is not in the result must be whole: "
                       "'(gr)!'";
        }
    return NULL;
}

/* Inferring the shape of the result -------------------------------------- */

struct sizes {
    const char *op;
    pl_dim of[26]; /* size of the dimensions with each letter; its field n is 0
                      while the size is unknown */
    const char *from[26];
    struct {
        char a, b;
        pl_dim d;
        const char *from;
    } pair[GRAPH_MAX_IN * GRAPH_MAX_DIM];
    int n_pair;
    pl_dim star[GRAPH_MAX_DIM]; /* sizes of the leading dimensions that '*'
                                   stands for, the rightmost first */
    int n_star;
    pl_err *err;
};

static bool is_one(pl_dim d)
{
    return dim_equal(d, (pl_dim){1, PL_CONST});
}

static bool differ(struct sizes *z, const char *letters, pl_dim a,
                   const char *in_a, pl_dim b, const char *in_b)
{
    char x[32], y[32];

    err_set(z->err, PL_BAD_ARGUMENT, "%s: '%s' is %s in %s and %s in %s", z->op,
            letters, dim_print(a, x), in_a, dim_print(b, y), in_b);
    return false;
}

static bool add_letter(struct sizes *z, char c, pl_dim d, const char *in)
{
    int k = c - 'a';
    char text[2] = {c, '\0'};

    if (z->of[k].n && !dim_equal(z->of[k], d))
        return differ(z, text, z->of[k], z->from[k], d, in);
    z->of[k] = d;
    z->from[k] = in;
    return true;
}

static bool add_pair(struct sizes *z, const struct item *t, pl_dim d,
                     const char *in)
{
    char text[5] = {'(', t->a, t->b, ')', '\0'};
    int k = 0;

    if (d.symbol != PL_CONST) {
        err_set(z->err, PL_BAD_ARGUMENT,
                "%s: '%s' of %s must be of constant size", z->op, text, in);
        return false;
    }
    while (k < z->n_pair && (z->pair[k].a != t->a || z->pair[k].b != t->b))
        k++;
    if (k < z->n_pair && !dim_equal(z->pair[k].d, d))
        return differ(z, text, z->pair[k].d, z->pair[k].from, d, in);
    if (k == z->n_pair) {
        z->pair[k].a = t->a;
        z->pair[k].b = t->b;
        z->pair[k].d = d;
        z->pair[k].from = in;
        z->n_pair++;
    }
    return true;
}

static bool add_star(struct sizes *z, int k, pl_dim d, const char *in)
{
    pl_dim *s = &z->star[k];

    if (k >= z->n_star)
        z->n_star = k + 1;
    if (s->n == 0 || is_one(*s))
        *s = d;
    else if (!is_one(d) && !dim_equal(*s, d))
        return differ(z, "*", *s, "an earlier operand", d, in);
    return true;
}

static bool add_operand(struct sizes *z, const struct side *s,
                        const struct graph_node *x)
{
    int stars = x->n_dim - (s->n - 1);

    if (s->star < 0 ? x->n_dim != s->n : stars < 0) {
        err_set(z->err, PL_BAD_ARGUMENT,
                "%s: %s has %d dimensions, but its row has %s%d", z->op,
                x->name, x->n_dim, s->star < 0 ? "" : "at least ",
                s->n - (s->star >= 0));
        return false;
    }
    for (int i = 0, d = 0; i < s->n; i++) {
        const struct item *t = &s->item[i];

        if (i == s->star) {
            for (int k = stars - 1; k >= 0; k--)
                if (!add_star(z, k, x->dim[d++], x->name))
                    return false;
        } else if (t->b ? !add_pair(z, t, x->dim[d++], x->name)
                        : !add_letter(z, t->a, x->dim[d++], x->name)) {
            return false;
        }
    }
    return true;
}

/* Checks that the size of each composite dimension such as (gr) is the product
 * of the sizes of its two letters, if these are known. */
static bool check_pairs(struct sizes *z)
{
    for (int k = 0; k < z->n_pair; k++) {
        pl_dim a = z->of[z->pair[k].a - 'a'], b = z->of[z->pair[k].b - 'a'];
        int64_t n = z->pair[k].d.n;

        if (a.symbol != PL_CONST || b.symbol != PL_CONST || (a.n && n % a.n) ||
            (b.n && n % b.n) || (a.n && b.n && n / a.n != b.n)) {
            err_set(
                z->err, PL_BAD_ARGUMENT,
                "%s: '(%c%c)' is %lld in %s, not the product of '%c' and '%c'",
                z->op, z->pair[k].a, z->pair[k].b, (long long)n,
                z->pair[k].from, z->pair[k].a, z->pair[k].b);
            return false;
        }
    }
    return true;
}

static bool pair_size(const struct sizes *z, const struct item *t, pl_dim *d)
{
    pl_dim a = z->of[t->a - 'a'], b = z->of[t->b - 'a'];

    for (int k = 0; k < z->n_pair; k++)
        if (z->pair[k].a == t->a && z->pair[k].b == t->b) {
            *d = z->pair[k].d;
            return true;
        }
    *d = a;
    return a.symbol == PL_CONST && b.symbol == PL_CONST &&
           !__builtin_mul_overflow(a.n, b.n, &d->n);
}

bool custom_shape(const pl_graph *g, struct graph_node *n, pl_err *err)
{
    struct sizes z = {.op = n->custom->name, .err = err};
    struct row r;
    int d = 0;

    /* Parsing cannot fail here, because pl_custom has checked the row. */
    read_row(n->custom->dims, &r);
    for (int i = 0; i < n->n_in; i++) {
        const struct graph_node *x = &g->node[n->in[i]];

        if ((n->custom->partial & PL_OP_SUM) && x->format == PL_I32) {
            err_set(
                err, PL_BAD_ARGUMENT,
                "%s: %s is I32, but PL_OP_SUM needs operands that are added",
                z.op, x->name);
            return false;
        }
        if (!add_operand(&z, &r.in[i], x))
            return false;
    }
    if (!check_pairs(&z))
        return false;
    n->n_dim = r.out.n - (r.out.star >= 0) + (r.out.star >= 0 ? z.n_star : 0);
    if (n->n_dim < 1 || n->n_dim > GRAPH_MAX_DIM) {
        err_set(err, PL_BAD_ARGUMENT,
                "%s: the result has %d dimensions; 1 to %d are allowed", z.op,
                n->n_dim, GRAPH_MAX_DIM);
        return false;
    }
    for (int i = 0; i < r.out.n; i++) {
        const struct item *t = &r.out.item[i];

        if (i == r.out.star) {
            for (int k = z.n_star - 1; k >= 0; k--)
                n->dim[d++] = z.star[k];
        } else if (!t->b) {
            n->dim[d++] = z.of[t->a - 'a'];
        } else if (!pair_size(&z, t, &n->dim[d++])) {
            err_set(err, PL_BAD_ARGUMENT,
                    "%s: '(%c%c)' must be of constant size", z.op, t->a, t->b);
            return false;
        }
    }
    return true;
}

/* Creating nodes of custom ops ------------------------------------------- */

static bool same_def(const pl_op_def *a, const pl_op_def *b)
{
    return !strcmp(a->dims, b->dims) && a->partial == b->partial &&
           a->run == b->run && a->user == b->user && a->edition == b->edition;
}

static const char *check_def(const pl_op_def *d, struct row *r)
{
    const char *wrong;

    for (const char *c = d->name; *c; c++)
        if (!graph_text_plain(*c))
            return "a name may contain letters, digits and \"._-/+\"";
    if (op_from_name(d->name) != OP_COUNT)
        return "the name is that of a built-in op";
    if (!d->run)
        return "kernel is NULL";
    wrong = read_row(d->dims, r);
    if (wrong)
        return wrong;
    if (d->partial != PL_OP_NONE && d->partial != PL_OP_SUM &&
        ((d->partial & ~0xffu) != PL_OP_ONE || !(d->partial & 0xff) ||
         (d->partial & 0xff) >> r->n_in))
        return "partial must be PL_OP_NONE, PL_OP_SUM, or PL_OP_ONE with a "
               "mask of operands";
    return NULL;
}

/* Returns the graph's copy of a custom op's definition, which an earlier node
 * may have created already. Sets the graph's error and returns NULL on
 * failure. */
static const pl_op_def *keep_def(pl_graph *g, const pl_op_def *given)
{
    pl_op_def own = {0}, *copy;
    const pl_op_def *d = &own;
    const char *wrong;
    struct row r;

    if (given && sized_read(&own, sizeof own, given, "pl_op_def",
                            "call pl_op_def_init", &g->err)) {
        graph_fail(g, g->err.status);
        return NULL;
    }
    if (!d->name || !*d->name || !d->dims) {
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              "a custom op needs a name and a row"));
        return NULL;
    }
    wrong = check_def(d, &r);
    if (wrong) {
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              "custom op '%.60s', row '%.60s': %s", d->name,
                              d->dims, wrong));
        return NULL;
    }
    for (int i = g->n_node - 1; i >= 0; i--) {
        const pl_op_def *old = g->node[i].custom;

        if (!old || strcmp(old->name, d->name) != 0)
            continue;
        if (same_def(old, d))
            return old;
        graph_fail(
            g, err_set(&g->err, PL_BAD_ARGUMENT,
                       "op '%.60s': already defined differently in this graph",
                       d->name));
        return NULL;
    }
    copy = arena_memdup(&g->arena, d, 1, sizeof *d);
    if (copy) {
        copy->name = arena_strdup(&g->arena, d->name);
        copy->dims = arena_strdup(&g->arena, d->dims);
    }
    if (!copy || !copy->name || !copy->dims) {
        graph_fail(g, err_no_memory(&g->err, "an op's definition"));
        return NULL;
    }
    return copy;
}

pl_tensor pl_custom(pl_graph *g, const pl_op_def *def, int n_in,
                    const pl_tensor *in)
{
    struct graph_node n = {.op = OP_custom, .n_in = n_in};

    if (!graph_is_open(g))
        return -1;
    n.custom = keep_def(g, def);
    if (!n.custom)
        return -1;
    if (n_in < 1 || n_in > CUSTOM_MAX_IN)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: %d operands; 1 to %d are allowed",
                                     n.custom->name, n_in, CUSTOM_MAX_IN));
    for (int i = 0; i < n_in; i++) {
        if (!in || in[i] < -1 || in[i] >= g->n_node)
            return graph_fail(
                g, err_set(&g->err, PL_BAD_ARGUMENT,
                           "%s: operand %d is not a tensor of this graph",
                           n.custom->name, i));
        n.in[i] = in[i];
    }
    if (!shape_infer(g, &n, &g->err))
        return graph_fail(g, PL_BAD_ARGUMENT);
    return graph_append(g, &n);
}
