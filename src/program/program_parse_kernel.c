/* Parses kernel calls; program_text.h describes the form. */
#include "program/program_read.h"

#include <inttypes.h>
#include <string.h>

static bool head(struct read *r, const struct read_at *at, void *out)
{
    int v = -1;

    (void)at;
    if (!lex_accept(&r->x, '-') && !read_index(r, &v))
        return false;
    *(int32_t *)out = v;
    return true;
}

bool read_heads(struct read *r, const struct read_at *at,
                const struct read_dev *dev, int tensor, const int32_t **map)
{
    int64_t want = dev ? form_heads(dev->tensor.p, dev->tensor.n, tensor) : 0;
    int n;

    if (!read_entries(r, at, head, sizeof **map))
        return false;
    if (r->part.n != (want > 0 ? want : 0))
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "%d heads, but %%%d has %" PRId64, r->part.n, tensor,
                        want > 0 ? want : 0);
    *map = read_take(r, &r->part, sizeof **map, &n);
    return r->x.status == PL_OK;
}

static bool tree_entry(struct read *r, const struct read_at *at, void *out)
{
    struct tree_addend *it = out;
    int rank, n;

    (void)at;
    if (!read_index(r, &rank) || !read_adds(r, &n))
        return false;
    *it = (struct tree_addend){rank, n};
    return true;
}

static bool tree(struct read *r, const struct read_at *at, struct rank_tree *t)
{
    struct form_stack s = {0};

    if (!read_entries(r, at, tree_entry, sizeof *t->item))
        return false;
    t->item = read_take(r, &r->part, sizeof *t->item, &t->n);
    for (int i = 0; t->item && i < t->n; i++)
        form_push(&s, t->item[i].n_add);
    t->n_out = s.top;
    t->depth = s.depth;
    return r->x.status == PL_OK;
}

/* Reads a span of a split dimension, such as "64+32{1}" or "64+32@0{1}": first
 * index, number of indices, first index on the device, rank. If '@' is missing,
 * the span continues on the device where the one before ends. */
static bool span_entry(struct read *r, const struct read_at *at, void *out)
{
    struct rank_span *s = out;

    (void)at;
    if (!lex_int(&r->x, 0, FORM_MAX_BYTES, &s->logical) ||
        !lex_need(&r->x, '+') || !lex_int(&r->x, 0, FORM_MAX_BYTES, &s->n))
        return false;
    if (r->part.n > 1)
        s->local = s[-1].local + s[-1].n;
    if (lex_accept(&r->x, '@') && !lex_int(&r->x, 0, FORM_MAX_BYTES, &s->local))
        return false;
    if (s->local > FORM_MAX_BYTES - s->n)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "the span is too long");
    return read_rank(r, &s->rank);
}

static bool cost_entry(struct read *r, const struct read_at *at, void *out)
{
    struct kernel_cost *c = out;

    (void)at;
    return lex_int(&r->x, 0, FORM_MAX_BYTES, &c->macs) &&
           read_rank(r, &c->rank);
}

static bool read_int64(struct read *r, int64_t *out)
{
    return lex_int(&r->x, INT64_MIN, INT64_MAX, out);
}

static bool read_int(struct read *r, int *out)
{
    int64_t v;

    if (!lex_int(&r->x, INT32_MIN, INT32_MAX, &v))
        return false;
    *out = (int)v;
    return true;
}

static bool read_float(struct read *r, float *out)
{
    return lex_float(&r->x, out);
}

/* Reads a parameter of a kernel, such as "scale=2". */
static bool attribute(struct read *r, struct graph_attr *a)
{
#define READ(type, name)                                                       \
    if (lex_accept_word(&r->x, #name))                                         \
        return lex_need(&r->x, '=') && _Generic(a->name, float                 \
                                                : read_float, int              \
                                                : read_int, default            \
                                                : read_int64)(r, &a->name);
    GRAPH_ATTR_MAP(READ)
#undef READ
    return lex_expected(&r->x, "an attribute, stride, tree, out, depth, spans, "
                               "heads or cost");
}

static bool kernel_word(struct read *r, const struct read_at *at,
                        struct insn_kernel *k, struct graph_attr *a)
{
    struct lex *x = &r->x;
    int many, few;

    if (lex_accept_word(x, "stride"))
        return read_bytes(r, &k->out_stride);
    if (lex_accept_word(x, "tree"))
        return tree(r, at, &k->tree);
    if (lex_accept_word(x, "out"))
        return read_index(r, &k->tree.n_out);
    if (lex_accept_word(x, "depth"))
        return read_index(r, &k->tree.depth);
    if (kernel_maps_heads(k->kernel, &many, &few) && many < k->n_arg &&
        lex_accept_word(x, "heads"))
        return read_heads(r, at, at->dev, k->arg[many].tensor, &k->head_map);
    if (lex_accept_word(x, "spans")) {
        if (!read_entries(r, at, span_entry, sizeof *k->span))
            return false;
        k->span = read_take(r, &r->part, sizeof *k->span, &k->n_span);
        return r->x.status == PL_OK;
    }
    if (lex_accept_word(x, "cost")) {
        if (!read_entries(r, at, cost_entry, sizeof *k->cost))
            return false;
        k->cost = read_take(r, &r->part, sizeof *k->cost, &k->n_cost);
        return r->x.status == PL_OK;
    }
    return attribute(r, a);
}

static bool argument(struct read *r, int *tensor)
{
    *tensor = -1;
    return lex_accept(&r->x, '-') || read_tensor(r, tensor);
}

static bool operands(struct read *r, struct insn_kernel *k)
{
    if (!lex_need(&r->x, '('))
        return false;
    if (lex_accept(&r->x, ')'))
        return true;
    do {
        enum access how = kernel_access(k->kernel, k->n_arg);

        if (!how)
            return lex_expected(&r->x, "')', the kernel having no more "
                                       "operands,");
        k->arg[k->n_arg].access = how;
        if (!argument(r, &k->arg[k->n_arg].tensor))
            return false;
        k->n_arg++;
    } while (lex_accept(&r->x, ','));
    return lex_need(&r->x, ')');
}

bool read_kernel(struct read *r, const struct read_at *at,
                 struct insn_kernel *k)
{
    struct graph_attr a, zero;
    char w[LEX_WORD];

    memset(&a, 0, sizeof a);
    memset(&zero, 0, sizeof zero);
    if (!argument(r, &k->arg[0].tensor) || !lex_need(&r->x, '=') ||
        !lex_word(&r->x, w, "a kernel"))
        return false;
    k->kernel = kernel_from_name(w);
    if (k->kernel == KERNEL_COUNT)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "unknown kernel '%s'", w);
    if (k->kernel == KERNEL_custom)
        return lex_fail(&r->x, PL_UNSUPPORTED,
                        "a custom kernel calls a function of its application, "
                        "which a text cannot contain");
    k->arg[0].access = kernel_access(k->kernel, 0);
    k->n_arg = 1;
    k->tree = form_tree(k->kernel);
    if (!operands(r, k))
        return false;
    while (!lex_at_end(&r->x))
        if (!kernel_word(r, at, k, &a))
            return false;
    if (memcmp(&a, &zero, sizeof a) != 0) {
        k->attr = arena_memdup(r->a, &a, 1, sizeof a);
        if (!k->attr)
            return read_no_memory(r);
    }
    return true;
}
