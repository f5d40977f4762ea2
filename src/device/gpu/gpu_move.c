/* Creates the launches of instructions that copy bytes or sum addends along a
 * rank tree. */
#include <string.h>

#include "device/gpu/gpu_image.h"
#include "device/gpu/gpu_launch.h"

/* UNITS: memory accesses of a work group */
enum { LANES = 256, UNITS = 4 * LANES };

/* ---- copy descriptors ---------------------------------------------------- */

/* Returns the largest access size, 8, 4, 2 or 1 bytes, that divides all
 * addresses and sizes of a copy. */
static int32_t unit_of(const struct text_piece *p)
{
    uint64_t all = p->dst | p->src | (uint64_t)p->bytes | (uint64_t)p->dst_s0 |
                   (uint64_t)p->src_s0 | (uint64_t)p->dst_s1 |
                   (uint64_t)p->src_s1;

    return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
}

/* Copies collected for one launch, at most TEXT_PIECES. */
struct batch {
    struct launch_list *list;
    struct copy_pieces_args a;
    int64_t n_group;
};

static void send(struct batch *b)
{
    gpu_list_add(b->list, GPU_copy_pieces, b->n_group, &b->a);
    memset(&b->a, 0, sizeof b->a);
    b->n_group = 0;
}

static void put_piece(struct batch *b, const struct copy_extent *l,
                      uint64_t dst, uint64_t src)
{
    struct text_piece *p = &b->a.piece[b->a.n];
    int64_t n = copy_loops_bytes(l);

    if (n == 0)
        return;
    *p = (struct text_piece){.dst = dst + (uint64_t)l->dst,
                             .src = src + (uint64_t)l->src,
                             .bytes = l->bytes,
                             .n0 = l->n0,
                             .dst_s0 = l->dst_s0,
                             .src_s0 = l->src_s0,
                             .n1 = l->n1,
                             .dst_s1 = l->dst_s1,
                             .src_s1 = l->src_s1,
                             .first = (int32_t)b->n_group};
    p->unit = unit_of(p);
    b->n_group += gpu_groups(n / p->unit, UNITS);
    if (++b->a.n == TEXT_PIECES)
        send(b);
}

/* Adds the copies of descriptors p[n] to `dst`, except long spans, which the
 * driver copies. */
static void put_pieces(struct gpu_image *m, struct batch *b,
                       const struct copy_desc *p, int n,
                       const struct graph_sizes *z, uint64_t dst)
{
    for (int i = 0; i < n; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &p[i], z);
        if (!gpu_image_long(&l))
            put_piece(b, &l, dst, gpu_image_at(m, p[i].src_dev, p[i].src));
    }
}

/* ---- sources of a MERGE -------------------------------------------------- */

/* Returns the address from which a MERGE reads a tensor. If `direct`, received
 * bytes are read from the host inbox, else from the device-side inbox. */
static uint64_t source(const struct gpu_image *m, int dev, int tensor,
                       bool direct)
{
    const struct prog_tensor *t = &m->prog->tensor[tensor];

    if (direct && dev == m->prog->dev && t->region == REGION_INBOX &&
        !gpu_image_near(m, dev, tensor))
        return m->inbox.mapped + t->offset;
    return gpu_image_at(m, dev, tensor);
}

static void put_item(struct gpu_image *m, const struct insn *st,
                     struct batch *b, const struct merge_item *it)
{
    bool direct = gpu_inbox_direct(m, st, it);

    for (int i = 0; i < it->n_piece; i++) {
        const struct copy_desc *p = &it->piece[i];
        struct copy_extent l;

        copy_loops_resolve(&l, p, &m->sizes[st->micro]);
        put_piece(b, &l, m->tensor[it->out].at,
                  source(m, p->src_dev, p->src, direct));
    }
}

/* ---- sums ---------------------------------------------------------------- */

static size_t addend_bytes(const struct merge_item *it)
{
    return (size_t)it->n_addend * sizeof(struct merge_tree_addend);
}

/* Writes the addend table of item `it` to out[]; `direct` is as for source().
 * The table depends only on addresses and the tree, so items with the same
 * addresses have equal tables. */
static void make_addends(struct gpu_image *m, const struct merge_item *it,
                         bool direct, struct merge_tree_addend *out)
{
    for (int i = 0; i < it->n_addend; i++) {
        const struct merge_addend *a = &it->addend[i];
        int64_t whole = a->skip.symbol == PL_N_TOK || a->skip.symbol == PL_N_OUT
                            ? 0
                            : dim_value(a->skip, &m->prog->max);

        out[i] = (struct merge_tree_addend){
            .at =
                source(m, a->dev, a->tensor, direct) + a->off - (uint64_t)whole,
            .skip_tok = a->skip.symbol == PL_N_TOK ? a->skip.n : 0,
            .skip_out = a->skip.symbol == PL_N_OUT ? a->skip.n : 0,
            .n_add = a->n_add};
    }
}

/* Returns the key of an item's addend table in m->tables. If the host inbox is
 * mapped, an item has two tables, one for each value of `direct`. */
static const void *addends_key(const struct merge_item *it, bool direct)
{
    return direct ? (const void *)it : it->addend;
}

static void add_addends(struct gpu_image *m, const struct merge_item *it,
                        bool direct)
{
    struct merge_tree_addend *a =
        arena_alloc(&m->arena, (size_t)it->n_addend, sizeof *a);

    if (a)
        make_addends(m, it, direct, a);
    else
        m->tables.no_memory = true;
    gpu_tables_add(&m->tables, addends_key(it, direct), a,
                   a ? addend_bytes(it) : 0);
}

static void add_tree(struct gpu_image *m, const struct insn *st,
                     const struct merge_item *it)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct merge_tree_args a = {
        .addend = m->tables_at +
                  gpu_tables_at(&m->tables,
                                addends_key(it, gpu_inbox_direct(m, st, it)),
                                addend_bytes(it)),
        .n_tok = z->n_tok,
        .n_out = z->n_out,
        .n = it->n_addend};

    for (int i = 0; i < it->n_piece; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &it->piece[i], z);
        a.piece =
            (struct tree_piece){.dst = m->tensor[it->out].at + (uint64_t)l.dst,
                                .src_at = l.src,
                                .bytes = l.bytes,
                                .n0 = l.n0,
                                .dst_s0 = l.dst_s0,
                                .src_s0 = l.src_s0,
                                .n1 = l.n1,
                                .dst_s1 = l.dst_s1,
                                .src_s1 = l.src_s1};
        gpu_list_add(&m->list, GPU_merge_tree,
                     gpu_groups(copy_loops_bytes(&l) / 4, LANES), &a);
    }
}

/* ---- pages --------------------------------------------------------------- */

static int64_t heads(const struct gpu_image *m, int dev, int tensor)
{
    return device_of(m->set, dev)->prog->tensor[tensor].dim[1].n;
}

static size_t map_bytes(const struct gpu_image *m, const struct insn_pages *x)
{
    return (size_t)heads(m, x->out_dev, x->out) * sizeof *x->map;
}

static void add_pages(struct gpu_image *m, const struct insn *st)
{
    const struct insn_pages *x = &st->pages;
    const struct prog_tensor *of =
        &device_of(m->set, x->out_dev)->prog->tensor[x->out];
    const struct program *p = m->prog;
    uint64_t table = m->tensor[x->token_table].at;
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct pages_args a = {
        .out = gpu_image_box(m, x->out_dev, x->out),
        .x = gpu_image_at(m, x->src_dev, x->src),
        .map =
            m->tables_at + gpu_tables_at(&m->tables, x->map, map_bytes(m, x)),
        .pos = table,
        .seq = table + (uint64_t)p->max.n_tok * sizeof(int32_t),
        .pages = table + (uint64_t)program_pages_word(p, prog_tensor_pool(of)) *
                             sizeof(int32_t),
        .n_tok = z->n_tok,
        .page_stride = p->page_stride,
        .n_page = dim_value(of->dim[0], &p->max) / PAGE_TOKENS,
        .tile_bytes = (int64_t)x->tile_bytes,
        .n_head = (int32_t)heads(m, x->out_dev, x->out),
        .n_head_x = (int32_t)heads(m, x->src_dev, x->src),
        .n_entry = p->page_stride,
        .page_tokens = PAGE_TOKENS};

    gpu_list_add(&m->list, GPU_pages, z->n_seq * a.n_entry * a.n_head, &a);
}

/* ---- instructions -------------------------------------------------------- */

void gpu_move_tables(struct gpu_image *m, const struct insn *st)
{
    if (st->kind == INSN_PAGES)
        gpu_tables_add(&m->tables, st->pages.map, st->pages.map,
                       map_bytes(m, &st->pages));
    for (int i = 0; st->kind == INSN_MERGE && i < st->merge.n_item; i++) {
        const struct merge_item *it = &st->merge.item[i];

        if (it->reduce)
            add_addends(m, it, false);
        if (it->reduce && m->inbox.mapped)
            add_addends(m, it, true);
    }
}

static void launch_merge(struct gpu_image *m, const struct insn *st,
                         struct batch *b)
{
    for (int i = 0; i < st->merge.n_item; i++) {
        const struct merge_item *it = &st->merge.item[i];

        if (it->reduce)
            add_tree(m, st, it);
        else
            put_item(m, st, b, it);
    }
}

void gpu_move_launch(struct gpu_image *m, const struct insn *st)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct batch b = {.list = &m->list};

    if (st->kind == INSN_PAGES)
        add_pages(m, st);
    if (st->kind == INSN_MERGE)
        launch_merge(m, st, &b);
    if (st->kind == INSN_PULL)
        put_pieces(m, &b, st->pull.piece, st->pull.n_piece, z,
                   m->tensor[st->pull.out].at);
    for (int k = 0; st->kind == INSN_PUSH && k < st->push.n_to; k++) {
        const struct push_to *to = &st->push.to[k];
        int n;
        const struct copy_desc *p = push_pieces(&st->push, k, &n);

        put_pieces(m, &b, p, n, z, gpu_image_box(m, to->dev, to->out) + to->at);
    }
    send(&b);
}
