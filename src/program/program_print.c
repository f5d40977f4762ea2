/* Prints instructions; program_text.h describes the form. */
#include "program/program_print.h"

#include "graph/graph_text.h"
#include "graph/shape.h"

#include <inttypes.h>

static bool is_const(pl_dim d, int64_t n)
{
    return d.symbol == PL_CONST && d.n == n;
}

static void put_dim(struct text_out *o, pl_dim d)
{
    char buf[32];

    text_put(o, "%s", dim_print(d, buf));
}

/* Prints a tensor of device `dev`: as "%5" if `dev` is `own`, the device whose
 * instruction is printed, else as "0.%5". */
static void put_place(struct text_out *o, int own, int dev, int tensor)
{
    if (dev == own)
        text_put(o, "%%%d", tensor);
    else
        text_put(o, "%d.%%%d", dev, tensor);
}

static void put_adds(struct text_out *o, int n_add)
{
    for (int i = 0; i < n_add; i++)
        text_put_char(o, '+');
}

static void put_heads(struct text_out *o, const int32_t *map, int64_t n)
{
    text_put(o, " heads(");
    for (int64_t i = 0; i < n; i++) {
        put_comma(o, (int)i);
        if (map[i] == -1)
            text_put_char(o, '-');
        else
            text_put(o, "%" PRId32, map[i]);
    }
    text_put_char(o, ')');
}

/* ---- printing kernel calls ----------------------------------------------- */

static void put_arg(struct text_out *o, int tensor)
{
    if (tensor < 0)
        text_put_char(o, '-');
    else
        text_put(o, "%%%d", tensor);
}

static void put_tree(struct text_out *o, const struct insn_kernel *k)
{
    const struct rank_tree *t = &k->tree, whole = form_tree(k->kernel);
    struct form_stack s = {0};

    for (int i = 0; i < t->n; i++)
        form_push(&s, t->item[i].n_add);
    if (t->n != whole.n ||
        (t->n == 1 && (t->item->rank != 0 || t->item->n_add != 0))) {
        text_put(o, " tree(");
        for (int i = 0; i < t->n; i++) {
            put_comma(o, i);
            text_put(o, "%d", t->item[i].rank);
            put_adds(o, t->item[i].n_add);
        }
        text_put_char(o, ')');
    }
    if (t->n_out != s.top)
        text_put(o, " out %d", t->n_out);
    if (t->depth != s.depth)
        text_put(o, " depth %d", t->depth);
}

static void put_spans(struct text_out *o, const struct insn_kernel *k)
{
    int64_t loc = 0;

    if (k->n_span == 0)
        return;
    text_put(o, " spans(");
    for (int i = 0; i < k->n_span; i++) {
        const struct rank_span *s = &k->span[i];

        put_comma(o, i);
        text_put(o, "%" PRId64 "+%" PRId64, s->logical, s->n);
        if (s->local != loc)
            text_put(o, "@%" PRId64, s->local);
        text_put(o, "{%d}", s->rank);
        loc = s->local + s->n;
    }
    text_put_char(o, ')');
}

static void put_costs(struct text_out *o, const struct insn_kernel *k)
{
    if (k->n_cost == 0)
        return;
    text_put(o, " cost(");
    for (int i = 0; i < k->n_cost; i++) {
        put_comma(o, i);
        text_put(o, "%" PRId64 "{%d}", k->cost[i].macs, k->cost[i].rank);
    }
    text_put_char(o, ')');
}

/* Prints which part of a split operand or result of a caller-defined op is on
 * the device. */
static void put_custom_split(struct text_out *o, const char *name, int i,
                             const struct kernel_custom_split *s)
{
    if (s->dim < 0)
        return;
    text_put(o, " %s%d(dim %d:", name, i, s->dim);
    for (int k = 0; k < s->n; k++)
        text_put(o, " %" PRId64 "+%" PRId64 "@%" PRId64, s->part[k].index,
                 s->part[k].n, s->part[k].at);
    text_put_char(o, ')');
}

static void put_custom(struct text_out *o, const struct insn_kernel *k)
{
    const struct kernel_custom *c = k->custom;

    if (!c)
        return;
    text_put(o, " op ");
    for (const char *s = c->def->name; s && *s; s++)
        text_put_char(o, graph_text_plain(*s) ? *s : '?');
    for (int i = 0; i + 1 < k->n_arg && i < GRAPH_MAX_IN; i++)
        put_custom_split(o, "in", i, &c->in[i]);
    put_custom_split(o, "out", 0, &c->out);
}

/* Returns the number of entries in a kernel's map of heads, 0 if it has no map,
 * -1 if the number is unknown because the argument is absent. */
static int64_t mapped_heads(const struct program *p,
                            const struct insn_kernel *k)
{
    int many, few;

    if (!kernel_maps_heads(k->kernel, &many, &few) || !k->head_map)
        return 0;
    return many < k->n_arg
               ? form_heads(p->tensor, p->n_tensor, k->arg[many].tensor)
               : -1;
}

static void put_kernel(struct text_out *o, const struct program *p,
                       const struct insn_kernel *k)
{
    put_arg(o, k->arg[0].tensor);
    text_put(o, " = %s(", kernel_name(k->kernel));
    for (int i = 1; i < k->n_arg; i++) {
        text_put(o, "%s", i > 1 ? ", " : "");
        put_arg(o, k->arg[i].tensor);
    }
    text_put_char(o, ')');
    if (k->attr)
        graph_put_attr(o, k->attr);
    if (k->out_stride)
        text_put(o, " stride %zu", k->out_stride);
    put_tree(o, k);
    put_spans(o, k);
    if (mapped_heads(p, k) > 0)
        put_heads(o, k->head_map, mapped_heads(p, k));
    put_costs(o, k);
    if (k->kernel == KERNEL_custom)
        put_custom(o, k);
}

/* ---- printing copies ----------------------------------------------------- */

/* Prints an offset in bytes, the sum of the constant part `at` and of the part
 * `off` that depends on the step: "64", "4*n_tok" or "64+4*n_tok". */
static void put_offset(struct text_out *o, pl_dim off, int64_t at)
{
    if (at != 0 || off.symbol == PL_CONST)
        text_put(o, "%" PRId64, at);
    if (is_const(off, 0))
        return;
    if (at != 0 || off.symbol == PL_CONST)
        text_put_char(o, '+');
    put_dim(o, off);
}

static void put_loop(struct text_out *o, pl_dim n, pl_dim src, pl_dim dst)
{
    text_put(o, " x ");
    put_dim(o, n);
    if (is_const(src, 0) && is_const(dst, 0))
        return;
    text_put_char(o, '(');
    put_dim(o, src);
    text_put(o, ", ");
    put_dim(o, dst);
    text_put_char(o, ')');
}

static bool loops(pl_dim n, pl_dim src, pl_dim dst)
{
    return !is_const(n, 1) || !is_const(src, 0) || !is_const(dst, 0);
}

static void put_piece(struct text_out *o, int own, bool reduce,
                      const struct copy_desc *c)
{
    bool inner = loops(c->n1, c->src_s1, c->dst_s1);
    bool off = c->src_const != 0 || !is_const(c->src_off, 0);

    text_put_char(o, ' ');
    if (!reduce)
        put_place(o, own, c->src_dev, c->src);
    if (off) {
        text_put_char(o, '@');
        put_offset(o, c->src_off, c->src_const);
    }
    text_put(o, "%s", off || !reduce ? " " : "");
    put_dim(o, c->bytes);
    if (inner || loops(c->n0, c->src_s0, c->dst_s0))
        put_loop(o, c->n0, c->src_s0, c->dst_s0);
    if (inner)
        put_loop(o, c->n1, c->src_s1, c->dst_s1);
    if (c->dst_const != 0 || !is_const(c->dst_off, 0)) {
        text_put(o, " to ");
        put_offset(o, c->dst_off, c->dst_const);
    }
}

static void put_pieces(struct text_out *o, int own, bool reduce,
                       const struct copy_desc *c, int n)
{
    if (n == 0)
        text_put(o, " nothing");
    for (int i = 0; i < n; i++) {
        text_put(o, "%s", i ? ",\n       " : "");
        put_piece(o, own, reduce, &c[i]);
    }
}

/* ---- printing merges ----------------------------------------------------- */

static void put_item(struct text_out *o, int own, const struct merge_item *m)
{
    struct form_stack s = {0};

    text_put(o, "%%%d <-", m->out);
    if (m->reduce) {
        text_put(o, " sum(");
        for (int i = 0; i < m->n_addend; i++) {
            const struct merge_addend *a = &m->addend[i];

            put_comma(o, i);
            put_place(o, own, a->dev, a->tensor);
            if (a->off)
                text_put(o, "@%zu", a->off);
            if (!is_const(a->skip, 0)) {
                text_put_char(o, '-');
                put_dim(o, a->skip);
            }
            put_adds(o, a->n_add);
            form_push(&s, a->n_add);
        }
        text_put_char(o, ')');
        if (m->depth != s.depth)
            text_put(o, " depth %d", m->depth);
    }
    put_pieces(o, own, m->reduce, m->piece, m->n_piece);
}

/* Prints the words of a merge that precede its values, such as "barrier" and
 * "collective". Returns true if it printed any. */
static bool put_merge_head(struct text_out *o, const struct insn_merge *m)
{
    const pl_dim *b = m->collective_bytes;
    bool bytes = !is_const(b[0], 0) || !is_const(b[1], 0);

    if (m->barrier)
        text_put(o, " barrier");
    for (int i = 0; m->barrier && i < m->n_peer; i++) {
        text_put(o, "%s", i ? "" : " ");
        put_comma(o, i);
        text_put(o, "%d", m->peer[i]);
    }
    if (m->group)
        text_put(o, " group %d", m->group);
    if (m->collective)
        text_put(o, " collective");
    if (bytes) {
        text_put(o, " bytes ");
        put_dim(o, b[0]);
    }
    if (bytes && !is_const(b[1], 0)) {
        text_put_char(o, '+');
        put_dim(o, b[1]);
    }
    if (m->counted)
        text_put(o, " counted");
    return m->barrier || m->group || m->collective || bytes || m->counted;
}

static void put_merge(struct text_out *o, int own, const struct insn_merge *m)
{
    text_put(o, "merge");
    if (put_merge_head(o, m) && m->n_item > 0)
        text_put(o, ";\n     ");
    for (int i = 0; i < m->n_item; i++) {
        text_put(o, "%s", i ? ";\n      " : " ");
        put_item(o, own, &m->item[i]);
    }
}

/* ---- printing any instruction -------------------------------------------- */

static void put_pull(struct text_out *o, int own, const struct insn_pull *x)
{
    text_put(o, "pull %%%d", x->out);
    if (x->out_bytes)
        text_put(o, " bytes %zu", x->out_bytes);
    text_put(o, "%s <-", x->between_groups ? " between_groups" : "");
    put_pieces(o, own, false, x->piece, x->n_piece);
}

static void put_push(struct text_out *o, int own, const struct insn_push *x)
{
    text_put(o, "%s", x->scatter ? "scatter " : "push ");
    for (int k = 0; k < x->n_to; k++) {
        text_put(o, "%s", k ? ", " : "");
        put_place(o, own, x->to[k].dev, x->to[k].out);
        if (x->to[k].at)
            text_put(o, "@%zu", x->to[k].at);
    }
    text_put(o, "%s <-", x->between_groups ? " between_groups" : "");
    put_pieces(o, own, false, x->piece, x->n_piece);
}

static void put_pages(struct text_out *o, const struct program *all, int n_dev,
                      int own, const struct insn_pages *x)
{
    static const struct program none;
    const struct program *to =
        x->out_dev >= 0 && x->out_dev < n_dev ? &all[x->out_dev] : &none;

    text_put(o, "pages ");
    put_place(o, own, x->out_dev, x->out);
    text_put(o, " <- ");
    put_place(o, own, x->src_dev, x->src);
    text_put(o, " table %%%d", x->token_table);
    put_heads(o, x->map, form_heads(to->tensor, to->n_tensor, x->out));
    if (x->tile_bytes != form_tile(to->tensor, to->n_tensor, x->out))
        text_put(o, " tile %zu", x->tile_bytes);
}

static void put_post(struct text_out *o, const struct insn_post *x)
{
    if (x->time == POST_FLUSH)
        text_put(o, "flush");
    else
        text_put(o, "post %d%s", x->event,
                 x->time == POST_BATCHED    ? " batched"
                 : x->time == POST_DEFERRED ? " deferred"
                                            : "");
}

void program_put_insn(struct text_out *o, const struct program *all, int n_dev,
                      int dev, const struct insn *s)
{
    const struct program *p = &all[dev];

    switch (s->kind) {
    case INSN_KERNEL:
        put_kernel(o, p, &s->kernel);
        return;
    case INSN_MERGE:
        put_merge(o, dev, &s->merge);
        return;
    case INSN_PULL:
        put_pull(o, dev, &s->pull);
        return;
    case INSN_PUSH:
        put_push(o, dev, &s->push);
        return;
    case INSN_PAGES:
        put_pages(o, all, n_dev, dev, &s->pages);
        return;
    case INSN_POST:
        put_post(o, &s->post);
        return;
    case INSN_WAIT:
        text_put(o, "wait ");
        for (int k = 0; k < wait_count(&s->wait); k++)
            text_put(o, "%s%d.%d", k ? ", " : "", wait_event(&s->wait, k).dev,
                     wait_event(&s->wait, k).event);
        return;
    }
}

/* ---- instructions that cannot be printed --------------------------------- */

static bool odd_sum(int n_add)
{
    return n_add < 0 || n_add > MERGE_MAX_DEPTH;
}

static const char *kernel_oddity(const struct program *p,
                                 const struct insn_kernel *k)
{
    if ((unsigned)k->kernel >= KERNEL_COUNT || k->n_arg < 1)
        return "its kernel is unknown or has no result";
    for (int i = 0; i < k->n_arg; i++)
        if (i >= KERNEL_MAX_ARG || !kernel_access(k->kernel, i) ||
            k->arg[i].access != kernel_access(k->kernel, i))
            return "it accesses an argument differently than its kernel";
    for (int i = 0; i < k->tree.n; i++)
        if (odd_sum(k->tree.item[i].n_add))
            return "its tree has too many additions";
    if (mapped_heads(p, k) < 0)
        return "the heads of its map cannot be counted";
    return NULL;
}

static const char *merge_oddity(const struct insn_merge *m)
{
    if (m->barrier && (m->n_peer < 1 || m->n_peer > FORM_MAX_WITH))
        return "its barrier has no devices, or too many";
    for (int i = 0; i < m->n_item; i++)
        for (int k = 0; m->item[i].reduce && k < m->item[i].n_addend; k++)
            if (odd_sum(m->item[i].addend[k].n_add))
                return "its sum has too many additions";
    return NULL;
}

const char *program_insn_oddity(const struct program *p, const struct insn *s)
{
    if (s->max_rows < 0 || (s->max_rows > 0 && s->min_rows < 0))
        return "its predicate has a negative size";
    switch (s->kind) {
    case INSN_KERNEL:
        return kernel_oddity(p, &s->kernel);
    case INSN_MERGE:
        return merge_oddity(&s->merge);
    case INSN_PUSH:
        return s->push.n_to < 1 ? "it pushes to no device" : NULL;
    case INSN_PULL:
    case INSN_PAGES:
    case INSN_POST:
    case INSN_WAIT:
        return NULL;
    }
    return "its kind is unknown";
}
