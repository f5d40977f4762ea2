/* Streamed weights: those that are read in another group than their home group,
 * such as experts that are kept on the host, in a step of many tokens.
 *
 * Each device gets only its part; of a packed weight, the packed form. Panels
 * and chunks of k are the same bytes on both sides, so a part consists of
 * intervals of bytes. The copies of a layer's weights start while the layer
 * before is computed. If a device has no copy queue, this would hide nothing,
 * and weights are copied when they are needed. */
#include "lower/lower_transfer.h"

#include "base/err.h"

/* A weight that is read in another group than its home group. */
struct stream {
    int num, group, layer;
};

/* In order of use. */
struct streams {
    struct stream *item;
    int n, cap;
    int next; /* index of the first that was not started */
};

/* ---- parts of packed weights --------------------------------------------- */

static pl_status unaligned(struct lower *w, int i)
{
    return err_set(
        w->err, PL_UNSUPPORTED,
        "%s cannot be streamed: its parts do not start at multiples of %d rows",
        lower_node(w, i)->name, PACK_ROWS);
}

/* An interval of indices or of bytes, and its offsets on both sides. */
struct interval {
    int64_t src, dst, n;
};

static int64_t chunk_bytes(const struct pack *p, const struct pack_chunk *c)
{
    return p->rule->sup_bytes +
           c->n / p->rule->tile_values * (int64_t)p->rule->tile_bytes;
}

/* Finds the next of dst's chunks, from *k on, that are of these ranks, are in
 * src, too, and are adjacent on both sides. Returns false if there are none. */
static bool next_chunks(const struct pack *src, const struct pack *dst,
                        rankset ranks, int *k, struct interval *r)
{
    int s = 0;

    *r = (struct interval){0, 0, 0};
    for (; *k < dst->n_chunk; ++*k) {
        const struct pack_chunk *c = &dst->chunk[*k];

        while (s < src->n_chunk && src->chunk[s].k < c->k)
            s++;
        if (!(ranks >> c->rank & 1) || s == src->n_chunk ||
            src->chunk[s].k != c->k || src->chunk[s].n != c->n) {
            if (r->n)
                return true;
            continue; /* of another shard */
        }
        if (r->n == 0)
            *r = (struct interval){(int64_t)src->chunk[s].off, (int64_t)c->off,
                                   0};
        else if ((int64_t)src->chunk[s].off != r->src + r->n ||
                 (int64_t)c->off != r->dst + r->n)
            return true;
        r->n += chunk_bytes(dst, c);
    }
    return r->n > 0;
}

/* Sets *out to the i-th interval of `want`. Returns false unless shard s is its
 * source: of several shards that have it, the first owner. */
static bool part_from(const struct lower_shard *s,
                      const struct layout_local *have,
                      const struct layout_local *want, int64_t i,
                      struct interval *out)
{
    struct layout_part p = layout_local_part(want, i);

    *out = (struct interval){layout_local_index(have, p.logical), p.local, p.n};
    return out->src >= 0 &&
           (p.owners == ~(rankset)0 || (s->ranks >> rank_first(p.owners) & 1));
}

/* Returns a copy of some chunks of all panels of some rows of some matrices. */
static struct copy_desc packed_piece(const struct pack *src,
                                     const struct pack *dst,
                                     const struct interval *matrix,
                                     const struct interval *row,
                                     const struct interval *chunks)
{
    int64_t src_matrix = (int64_t)src->matrix_bytes,
            dst_matrix = (int64_t)dst->matrix_bytes,
            src_panel = (int64_t)src->panel_bytes,
            dst_panel = (int64_t)dst->panel_bytes;

    return (struct copy_desc){
        .src_const = matrix->src * src_matrix +
                     row->src / PACK_ROWS * src_panel + chunks->src,
        .dst_const = matrix->dst * dst_matrix +
                     row->dst / PACK_ROWS * dst_panel + chunks->dst,
        .bytes = {chunks->n, PL_CONST},
        .n0 = {matrix->n, PL_CONST},
        .src_s0 = {src_matrix, PL_CONST},
        .dst_s0 = {dst_matrix, PL_CONST},
        .n1 = {(row->n + PACK_ROWS - 1) / PACK_ROWS, PL_CONST},
        .src_s1 = {src_panel, PL_CONST},
        .dst_s1 = {dst_panel, PL_CONST},
    };
}

/* Adds the copies of packed weight i from shard s's form to shard u's: by
 * matrix, rows and chunks of k. */
static pl_status packed_pieces(struct lower *w, int i, int s, int u,
                               const struct pack *dst, struct lower_pieces *out)
{
    const struct graph_node *x = lower_node(w, i);
    const struct placed *h = lower_find(w, i, w->opt->home[i]);
    int tensor = lower_value(h, &w->shard[s])->tensor, last = x->n_dim - 1;
    const struct pack *src = w->dev[lower_dev(w, s)].tensor[tensor].pack;
    struct layout_part one = {0, 0, 1, ~(rankset)0};
    struct layout_local rows, src_rows, matrices = {1, 1, 1, 1, 1, &one},
                                        src_matrices = matrices;
    const struct lower_shard *su = &w->shard[s].u;
    const pl_layout *l = w->num->node[i].layout;
    rankset ranks =
        l->kind == PL_SPLIT && l->dim == last ? su->ranks : ~(rankset)0;
    struct interval matrix, row, chunks;

    PL_TRY(lower_local(w, u, i, last - 1, &rows));
    PL_TRY(lower_local(w, s, i, last - 1, &src_rows));
    if (x->n_dim == 3) {
        PL_TRY(lower_local(w, u, i, 0, &matrices));
        PL_TRY(lower_local(w, s, i, 0, &src_matrices));
    }
    for (int64_t m = 0; m < layout_local_parts(&matrices); m++) {
        if (!part_from(su, &src_matrices, &matrices, m, &matrix))
            continue;
        for (int64_t r = 0; r < layout_local_parts(&rows); r++) {
            if (!part_from(su, &src_rows, &rows, r, &row))
                continue;
            if (row.src % PACK_ROWS || row.dst % PACK_ROWS ||
                (row.n % PACK_ROWS && row.dst + row.n != rows.local))
                return unaligned(w, i);
            for (int k = 0; next_chunks(src, dst, ranks, &k, &chunks);) {
                struct copy_desc p =
                    packed_piece(src, dst, &matrix, &row, &chunks);

                p.src_dev = lower_dev(w, s);
                p.src = tensor;
                PL_TRY(lower_add_piece(w, out, &p));
            }
        }
    }
    return PL_OK;
}

/* ---- a weight ------------------------------------------------------------ */

/* Copies the packed form of weight i to shard u. Every shard of the home group
 * is the source of what it has of the part. If all have the whole weight, one
 * is. */
static pl_status stream_packed(struct lower *w, int i, struct transfer *y,
                               pl_dim sum[2])
{
    const struct lower_group *a = lower_group(w, y->group);
    struct lower_pieces p = {0};
    struct pack *pack;

    PL_TRY(lower_pack(w, y->u, i, &pack));
    for (int k = 0; k < a->n; k++)
        if (w->num->node[i].layout->kind == PL_SPLIT ||
            k == w->shard[y->u].local % a->n)
            PL_TRY(packed_pieces(w, i, a->first + k, y->u, pack, &p));
    PL_TRY(lower_alloc_resident_dst(
        w, y, lower_needs_push(w, lower_dev(w, y->u), p.p, p.n), i,
        pack->matrix_bytes * (size_t)lower_matrices(w, y->u, i)));
    w->dev[lower_dev(w, y->u)].tensor[y->out].pack = pack;
    lower_count_pieces(sum, p.p, p.n);
    return lower_transfer(w, y, p.p, p.n, 0);
}

static pl_status stream_plain(struct lower *w, int i, struct transfer *y,
                              pl_dim sum[2])
{
    const struct graph_node *x = lower_node(w, i);
    struct lower_pieces none = {0}, p = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, y->u, i, dim);
    PL_TRY(lower_pieces(w, y->u, y->group, i, i, &none, &p));
    PL_TRY(lower_alloc_resident_dst(
        w, y, lower_needs_push(w, lower_dev(w, y->u), p.p, p.n), i,
        format_row_bytes(x->format, 1) *
            (size_t)dim_value(lower_product(dim, 0, x->n_dim, 1),
                              &w->opt->max)));
    lower_count_pieces(sum, p.p, p.n);
    return lower_transfer(w, y, p.p, p.n, 0);
}

static pl_status stream_weight(struct lower *w, int i, int b)
{
    int a = w->opt->home[i];
    const struct placed *src = lower_find(w, i, a);
    bool packed = w->dev[lower_dev(w, lower_group(w, a)->first)]
                      .tensor[src->h.v[0].tensor]
                      .pack != NULL;
    bool plain = !packed || src->h.v[0].plain >= 0;
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};
    struct arrival done = {0}; /* filled, but not used: weights do not change */
    struct placed *dst;

    if (plain && format_info(lower_node(w, i)->format)->block > 1)
        return err_set(w->err, PL_UNSUPPORTED,
                       "%s cannot be copied between groups: it is read value "
                       "by value",
                       lower_node(w, i)->name);
    PL_TRY(lower_add_value(w, i, b, &dst));
    for (int m = 0; m < lower_group(w, b)->n; m++) {
        struct transfer y = lower_transfer_init(w, i, a, dst, m, &done);

        if (packed) {
            PL_TRY(stream_packed(w, i, &y, sum));
            dst->h.v[m].tensor = y.out;
        }
        if (plain) {
            PL_TRY(stream_plain(w, i, &y, sum));
            *(packed ? &dst->h.v[m].plain : &dst->h.v[m].tensor) = y.out;
        }
    }
    return lower_record_copy(w, i, a, b, false, sum);
}

/* ---- start of copies ----------------------------------------------------- */

/* Returns true if value y, which op i reads, is a weight of another home
 * group. */
static bool is_streamed(const struct lower *w, int y, int i)
{
    return y >= 0 && lower_node(w, y)->op == OP_weight &&
           w->opt->home[y] != w->variant.at[i];
}

pl_status lower_find_streams(struct lower *w)
{
    const struct numeric *p = w->num;
    struct streams *x = arena_alloc(w->a, 1, sizeof *x);

    PL_TRY(lower_memory(w));
    w->streams = x;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; p->node[i].kind == NUM_OP && k < p->node[i].n_in; k++) {
            int y = p->node[i].in[k];

            if (!is_streamed(w, y, i))
                continue;
            PL_TRY(lower_grow_arena(w, (void **)&x->item, x->n, &x->cap,
                                    sizeof *x->item));
            x->item[x->n++] =
                (struct stream){y, w->variant.at[i], lower_node(w, y)->layer};
        }
    return lower_prefetch_weights(w, -1, -1);
}

/* Returns the index of the first stream after stream k that is of another
 * layer. Streams are in order of use, so those of one layer are adjacent. */
static int layer_end(const struct streams *x, int k)
{
    int end = k;

    while (end < x->n && x->item[end].layer == x->item[k].layer)
        end++;
    return end;
}

/* Starts the streams of the layer of weight i that were not started yet, and
 * those of the layer after it. If i is -1, when the variant begins, starts
 * those of the first layer. All that one call starts is one copy batch. If
 * group b has no copy queue, only weight i is copied. */
pl_status lower_prefetch_weights(struct lower *w, int i, int b)
{
    struct streams *x = w->streams;
    int last = -1, end; /* stream of weight i; end of those that are started */

    for (int k = 0; k < x->n; k++)
        if (x->item[k].num == i && x->item[k].group == b)
            last = k;
    if (last >= 0 && lower_one_queue(w, b)) /* nothing would be hidden */
        return lower_find(w, i, b) ? PL_OK : stream_weight(w, i, b);
    end = last < 0 ? 0 : layer_end(x, last);
    end = layer_end(x, end);
    w->variant.copy_batch++;
    for (int k = x->next; k < end; k++) {
        const struct stream *s = &x->item[k];

        if (!lower_one_queue(w, s->group) && !lower_find(w, s->num, s->group))
            PL_TRY(stream_weight(w, s->num, s->group));
        x->next = k + 1;
    }
    return PL_OK;
}
