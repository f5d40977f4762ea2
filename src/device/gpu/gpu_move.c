/* Launches of steps that move bytes or add them along a tree of ranks. */
#include <string.h>

#include "device/gpu/gpu_image.h"
#include "device/gpu/gpu_launch.h"

enum { LANES = 256, UNITS = 4 * LANES /* of a group that copies */ };

/* ---- pieces -------------------------------------------------------------- */

/* The largest unit that divides all that a piece says. */
static int32_t unit_of(const struct text_piece *p)
{
    uint64_t all = p->dst | p->src | (uint64_t)p->bytes | (uint64_t)p->dst_s0 |
                   (uint64_t)p->src_s0 | (uint64_t)p->dst_s1 |
                   (uint64_t)p->src_s1;

    return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
}

/* Pieces until they are launched, as many as one kernel takes. */
struct batch {
    struct gpu_list *list;
    struct copy_pieces_args a;
    int64_t n_group;
};

static void send(struct batch *b)
{
    gpu_list_add(b->list, GPU_copy_pieces, b->n_group, &b->a);
    memset(&b->a, 0, sizeof b->a);
    b->n_group = 0;
}

static void put_piece(struct batch *b, const struct copy_loops *l, uint64_t dst,
                      uint64_t src)
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

/* far: the host's memory is on one side, so long runs are not copied here. */
static void put_pieces(struct gpu_image *m, struct batch *b,
                       const struct copy_piece *p, int n,
                       const struct graph_sizes *z, uint64_t dst, bool far)
{
    for (int i = 0; i < n; i++) {
        struct copy_loops l;

        copy_loops_resolve(&l, &p[i], z);
        if (!far || !gpu_image_long(&l))
            put_piece(b, &l, dst, gpu_image_at(m, p[i].src_dev, p[i].src));
    }
}

/* ---- sums ---------------------------------------------------------------- */

static size_t addend_bytes(const struct merge_item *it)
{
    return (size_t)it->n_addend * sizeof(struct merge_tree_addend);
}

/* What an addend is without its address, which is not known yet: which tensor.
 * Two of the same address are the same table. */
static void make_addends(struct gpu_image *m, const struct merge_item *it,
                         struct merge_tree_addend *out)
{
    for (int i = 0; i < it->n_addend; i++) {
        const struct merge_addend *a = &it->addend[i];
        int64_t whole = a->skip.symbol == PL_N_TOK || a->skip.symbol == PL_N_OUT
                            ? 0
                            : dim_value(a->skip, &m->prog->max);

        out[i] = (struct merge_tree_addend){
            .at = gpu_image_at(m, a->dev, a->tensor) + a->off - (uint64_t)whole,
            .skip_tok = a->skip.symbol == PL_N_TOK ? a->skip.n : 0,
            .skip_out = a->skip.symbol == PL_N_OUT ? a->skip.n : 0,
            .n_add = a->n_add};
    }
}

static void add_tree(struct gpu_image *m, const struct step *st,
                     const struct merge_item *it)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct merge_tree_args a = {
        .addend = m->tables_at +
                  gpu_tables_at(&m->tables, it->addend, addend_bytes(it)),
        .n_tok = z->n_tok,
        .n_out = z->n_out,
        .n = it->n_addend};

    for (int i = 0; i < it->n_piece; i++) {
        struct copy_loops l;

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

static size_t map_bytes(const struct gpu_image *m, const struct step_pages *x)
{
    return (size_t)heads(m, x->out_dev, x->out) * sizeof *x->map;
}

static void add_pages(struct gpu_image *m, const struct step *st)
{
    const struct step_pages *x = &st->pages;
    const struct prog_tensor *of =
        &device_of(m->set, x->out_dev)->prog->tensor[x->out];
    const struct program *p = m->prog;
    uint64_t table = m->tensor[x->token_table].at;
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct pages_args a = {
        .out = gpu_image_at(m, x->out_dev, x->out),
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

/* ---- steps --------------------------------------------------------------- */

void gpu_move_tables(struct gpu_image *m, const struct step *st)
{
    if (st->kind == STEP_PAGES)
        gpu_tables_add(&m->tables, st->pages.map, st->pages.map,
                       map_bytes(m, &st->pages));
    for (int i = 0; st->kind == STEP_MERGE && i < st->merge.n_item; i++) {
        const struct merge_item *it = &st->merge.item[i];
        struct merge_tree_addend *a;

        if (!it->reduce)
            continue;
        a = arena_alloc(&m->arena, (size_t)it->n_addend, sizeof *a);
        if (a)
            make_addends(m, it, a);
        else
            m->tables.no_memory = true;
        gpu_tables_add(&m->tables, it->addend, a, a ? addend_bytes(it) : 0);
    }
}

static void launch_merge(struct gpu_image *m, const struct step *st,
                         struct batch *b)
{
    for (int i = 0; i < st->merge.n_item; i++) {
        const struct merge_item *it = &st->merge.item[i];

        if (it->reduce)
            add_tree(m, st, it);
        else
            put_pieces(m, b, it->piece, it->n_piece, &m->sizes[st->micro],
                       m->tensor[it->out].at, false);
    }
}

void gpu_move_launch(struct gpu_image *m, const struct step *st)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    struct batch b = {.list = &m->list};

    if (st->kind == STEP_PAGES)
        add_pages(m, st);
    if (st->kind == STEP_MERGE)
        launch_merge(m, st, &b);
    if (st->kind == STEP_PULL)
        put_pieces(m, &b, st->pull.piece, st->pull.n_piece, z,
                   m->tensor[st->pull.out].at, true);
    for (int k = 0; st->kind == STEP_PUSH && k < st->push.n_to; k++) {
        const struct push_to *to = &st->push.to[k];
        int n;
        const struct copy_piece *p = push_pieces(&st->push, k, &n);

        put_pieces(m, &b, p, n, z, gpu_image_at(m, to->dev, to->out) + to->at,
                   true);
    }
    send(&b);
}
