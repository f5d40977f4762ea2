/* Compares programs field by field; program_same.h describes the functions.
 * Fields that have no meaning in an instruction are not compared: sources of
 * the pieces of a sum, addends of an item that is not a sum, the device of a
 * POST, peers of a merge that is not a barrier, head maps of kernels without
 * heads, the size of a predicate that always holds. Attributes that are all
 * zero count as absent. */
#include "lib/program_same.h"

#include "base/half.h"
#include "lib/support.h"
#include "program/program_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the name of `field` from the function if it differs between *p and
 * *q, which are in scope. */
#define SAME(field)                                                            \
    do {                                                                       \
        if (p->field != q->field)                                              \
            return #field;                                                     \
    } while (0)
#define SAME_DIM(field)                                                        \
    do {                                                                       \
        if (p->field.n != q->field.n || p->field.symbol != q->field.symbol)    \
            return #field;                                                     \
    } while (0)
#define SAME_ALL(n, array, how)                                                \
    do {                                                                       \
        SAME(n);                                                               \
        for (int i_ = 0; i_ < (int)p->n; i_++) {                               \
            const char *d_ = how(&p->array[i_], &q->array[i_]);                \
            if (d_)                                                            \
                return d_;                                                     \
        }                                                                      \
    } while (0)
#define TRY(call)                                                              \
    do {                                                                       \
        const char *d_ = call;                                                 \
        if (d_)                                                                \
            return d_;                                                         \
    } while (0)

static const char *chunk(const struct pack_chunk *p, const struct pack_chunk *q)
{
    SAME(k);
    SAME(n);
    SAME(rank);
    SAME(k_loc);
    SAME(off);
    return NULL;
}

static const char *pack(const struct pack *p, const struct pack *q)
{
    if (!p || !q)
        return p == q ? NULL : "pack";
    SAME(format);
    SAME(rule);
    SAME(n_row);
    SAME(k);
    SAME(n_full);
    SAME(panel_bytes);
    SAME(matrix_bytes);
    SAME_ALL(n_chunk, chunk, chunk);
    return NULL;
}

static const char *tensor(const struct prog_tensor *p,
                          const struct prog_tensor *q)
{
    SAME(format);
    SAME(q8);
    SAME(n_dim);
    for (int i = 0; i < p->n_dim; i++)
        SAME_DIM(dim[i]);
    SAME(region);
    SAME(offset);
    SAME(bytes);
    SAME(micro);
    return pack(p->pack, q->pack);
}

static const char *attr(const struct graph_attr *a, const struct graph_attr *b)
{
    static const struct graph_attr none;
    const struct graph_attr *p = a ? a : &none, *q = b ? b : &none;

#define BITS_float(name)                                                       \
    if (float_bits(p->name) != float_bits(q->name))                            \
        return #name;
#define BITS_int(name)     SAME(name);
#define BITS_int64_t(name) SAME(name);
#define ATTR(type, name)   BITS_##type(name)
    GRAPH_ATTR_MAP(ATTR)
#undef ATTR
    return NULL;
}

static const char *arg(const struct kernel_arg *p, const struct kernel_arg *q)
{
    SAME(tensor);
    SAME(access);
    return NULL;
}

static const char *item_of_tree(const struct tree_addend *p,
                                const struct tree_addend *q)
{
    SAME(rank);
    SAME(n_add);
    return NULL;
}

static const char *span(const struct rank_span *p, const struct rank_span *q)
{
    SAME(logical);
    SAME(local);
    SAME(n);
    SAME(rank);
    return NULL;
}

static const char *cost(const struct kernel_cost *p,
                        const struct kernel_cost *q)
{
    SAME(rank);
    SAME(macs);
    return NULL;
}

static const char *heads(const int32_t *p, const int32_t *q, int64_t n)
{
    if (n > 0 && (!p || !q))
        return p == q ? NULL : "heads";
    return n > 0 && memcmp(p, q, (size_t)n * sizeof *p) ? "heads" : NULL;
}

static const char *kernel(const struct insn_kernel *p,
                          const struct insn_kernel *q,
                          const struct prog_tensor *t)
{
    int many, few;

    SAME(kernel);
    SAME_ALL(n_arg, arg, arg);
    TRY(attr(p->attr, q->attr));
    SAME_ALL(tree.n, tree.item, item_of_tree);
    SAME(tree.n_out);
    SAME(tree.depth);
    SAME(out_stride);
    SAME_ALL(n_span, span, span);
    SAME_ALL(n_cost, cost, cost);
    return kernel_maps_heads(p->kernel, &many, &few)
               ? heads(p->head_map, q->head_map,
                       t[p->arg[many].tensor].dim[1].n)
               : NULL;
}

static const char *piece(const struct copy_desc *p, const struct copy_desc *q)
{
    SAME_DIM(src_off);
    SAME_DIM(dst_off);
    SAME(src_const);
    SAME(dst_const);
    SAME_DIM(bytes);
    SAME_DIM(n0);
    SAME_DIM(src_s0);
    SAME_DIM(dst_s0);
    SAME_DIM(n1);
    SAME_DIM(src_s1);
    SAME_DIM(dst_s1);
    return NULL;
}

static const char *sourced(const struct copy_desc *p, const struct copy_desc *q)
{
    SAME(src_dev);
    SAME(src);
    return piece(p, q);
}

static const char *addend(const struct merge_addend *p,
                          const struct merge_addend *q)
{
    SAME(dev);
    SAME(tensor);
    SAME(off);
    SAME_DIM(skip);
    SAME(n_add);
    return NULL;
}

static const char *item(const struct merge_item *p, const struct merge_item *q)
{
    SAME(reduce);
    SAME(out);
    if (!p->reduce) {
        SAME_ALL(n_piece, piece, sourced);
        return NULL;
    }
    SAME_ALL(n_piece, piece, piece);
    SAME_ALL(n_addend, addend, addend);
    SAME(depth);
    return NULL;
}

static const char *index_of(const int *p, const int *q)
{
    return *p == *q ? NULL : "peer";
}

static const char *merge(const struct insn_merge *p, const struct insn_merge *q)
{
    SAME_ALL(n_item, item, item);
    SAME(barrier);
    SAME(group);
    if (p->barrier)
        SAME_ALL(n_peer, peer, index_of);
    SAME(collective);
    SAME(counted);
    SAME_DIM(collective_bytes[0]);
    SAME_DIM(collective_bytes[1]);
    return NULL;
}

static const char *pull(const struct insn_pull *p, const struct insn_pull *q)
{
    SAME(out);
    SAME(out_bytes);
    SAME(between_groups);
    SAME_ALL(n_piece, piece, sourced);
    return NULL;
}

static const char *push_to(const struct push_to *p, const struct push_to *q)
{
    SAME(dev);
    SAME(out);
    SAME(at);
    return NULL;
}

static const char *event_same(const struct insn_event *p,
                              const struct insn_event *q)
{
    SAME(dev);
    SAME(event);
    return NULL;
}

static const char *push(const struct insn_push *p, const struct insn_push *q)
{
    SAME_ALL(n_to, to, push_to);
    SAME(scatter);
    SAME(between_groups);
    SAME_ALL(n_piece, piece, sourced);
    return NULL;
}

static const char *pages(const struct insn_pages *p, const struct insn_pages *q,
                         const struct program *all)
{
    SAME(out_dev);
    SAME(out);
    SAME(src_dev);
    SAME(src);
    SAME(token_table);
    SAME(tile_bytes);
    return heads(p->map, q->map, all[p->out_dev].tensor[p->out].dim[1].n);
}

static const char *step(const struct insn *p, const struct insn *q,
                        const struct program *all, int dev)
{
    SAME(max_rows);
    if (p->max_rows != 0) {
        SAME(pred_out);
        SAME(min_rows);
    }
    SAME(kind);
    SAME(queue);
    SAME(order);
    SAME(micro);
    SAME(node);
    switch (p->kind) {
    case INSN_KERNEL:
        return kernel(&p->kernel, &q->kernel, all[dev].tensor);
    case INSN_MERGE:
        return merge(&p->merge, &q->merge);
    case INSN_PULL:
        return pull(&p->pull, &q->pull);
    case INSN_PAGES:
        return pages(&p->pages, &q->pages, all);
    case INSN_PUSH:
        return push(&p->push, &q->push);
    case INSN_WAIT:
        TRY(event_same(&p->wait.first, &q->wait.first));
        SAME_ALL(wait.n_more, wait.more, event_same);
        return NULL;
    case INSN_POST:
        SAME(post.event);
        SAME(post.time);
        return NULL;
    }
    return "kind";
}

static const char *death(const struct dead_range *p, const struct dead_range *q)
{
    SAME(insn);
    SAME(offset);
    SAME(bytes);
    return NULL;
}

static const char *hold(const struct buffer_hold *p,
                        const struct buffer_hold *q)
{
    SAME(tensor);
    SAME(until);
    return NULL;
}

static const char *buffer(const struct prog_buffer *p,
                          const struct prog_buffer *q)
{
    SAME(bytes);
    SAME(region);
    SAME(variant);
    SAME(born);
    return NULL;
}

static const char *script(const struct variant *p, const struct variant *q,
                          const struct program *all, int dev, int *at)
{
    SAME(n_micro);
    SAME(n_insn);
    for (*at = 0; *at < p->n_insn; ++*at)
        TRY(step(&p->insn[*at], &q->insn[*at], all, dev));
    *at = -1;
    SAME_ALL(n_dead, dead, death);
    SAME_ALL(n_hold, hold, hold);
    return NULL;
}

static const char *program(const struct program *p, const struct program *q)
{
    SAME(dev);
    SAME(active);
    SAME_ALL(n_tensor, tensor, tensor);
    SAME_ALL(n_buffer, buffer, buffer);
    if (p->n_buffer > 0)
        SAME_ALL(n_tensor, in_buffer, index_of);
    SAME(n_variant);
    SAME(n_event);
    SAME(n_group);
    for (int r = 0; r < REGION_COUNT; r++)
        SAME(bytes[r]);
    SAME(max.n_tok);
    SAME(max.n_out);
    for (int i = 0; i < PL_MAX_POOL; i++)
        SAME(max.n_slot[i]);
    SAME(max.n_seq);
    SAME(page_stride);
    return NULL;
}

const char *program_difference(const struct program *p, const struct program *q,
                               int n_dev)
{
    static char text[200];

    for (int d = 0; d < n_dev; d++) {
        int k = -1, at = -1;
        const char *what = program(&p[d], &q[d]);

        for (; !what && ++k < p[d].n_variant;)
            what = script(&p[d].variant[k], &q[d].variant[k], p, d, &at);
        if (what) {
            snprintf(text, sizeof text, "device %d, variant %d, step %d: %s", d,
                     k, at, what);
            return text;
        }
    }
    return NULL;
}

void program_reads_back(const struct program *p, int n_dev)
{
    struct test_text a = {0}, b = {0};
    struct arena arena = {0};
    struct program *q;
    const char *what;
    pl_err err;
    int n;

    TEST_OK(program_print(p, n_dev, test_text_add, &a, &err), err);
    if (program_parse(&q, &n, &arena, a.s, a.n, &err) != PL_OK)
        fail_msg("%s, of\n%s", err.message, a.s);
    assert_int_equal(n, n_dev);
    what = program_difference(p, q, n);
    if (what)
        fail_msg("%s is another one, read from\n%s", what, a.s);
    TEST_OK(program_print(q, n, test_text_add, &b, &err), err);
    if (a.n != b.n || memcmp(a.s, b.s, a.n))
        fail_msg("printed again, this is different:\n%s", a.s);
    free(a.s);
    free(b.s);
    arena_fini(&arena);
}
