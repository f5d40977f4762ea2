/* Streamed weights: those that are read in another group than their home group,
 * such as experts that are kept on the host, in a step of many tokens.
 *
 * Each device gets only its part; of a packed weight, the packed form. Panels
 * and chunks of k are the same bytes on both sides, so a part consists of
 * intervals of bytes. The copies of a layer's weights start while the layer
 * before is computed. If a device has no copy queue, this would hide nothing,
 * and weights are copied late: when they are needed. */
#include "lower/lower_transfer.h"

#include "base/err.h"

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

/* Copies the packed form of weight i to shard y->u. Every shard of the home
 * group is the source of what it has of the part. If all have the whole weight,
 * one is. */
static pl_status stream_packed(struct lower *w, int i, struct receiver *y,
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
        w, y, i, pack->matrix_bytes * (size_t)lower_matrices(w, y->u, i)));
    w->dev[lower_dev(w, y->u)].tensor[y->out].pack = pack;
    lower_count_pieces(sum, p.p, p.n);
    return lower_transfer(w, y, p.p, p.n, 0);
}

static pl_status stream_plain(struct lower *w, int i, struct receiver *y,
                              pl_dim sum[2])
{
    const struct graph_node *x = lower_node(w, i);
    struct lower_pieces none = {0}, p = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, y->u, i, dim);
    PL_TRY(lower_pieces(w, y->u, y->group, i, i, &none, &p));
    PL_TRY(lower_alloc_resident_dst(
        w, y, i,
        format_row_bytes(x->format, 1) *
            (size_t)dim_value(lower_product(dim, 0, x->n_dim, 1),
                              &w->opt->max)));
    lower_count_pieces(sum, p.p, p.n);
    return lower_transfer(w, y, p.p, p.n, 0);
}

static pl_status stream_weight(struct lower *w, const struct transfer *t)
{
    int i = t->value;
    const struct placed *src = lower_find(w, i, t->from);
    bool packed = w->dev[lower_dev(w, lower_group(w, t->from)->first)]
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
    PL_TRY(lower_add_value(w, i, t->to, &dst));
    for (int m = 0; m < lower_group(w, t->to)->n; m++) {
        struct receiver y = lower_receiver(w, t, dst, m, &done);

        if (packed) {
            PL_TRY(stream_packed(w, i, &y, sum));
            dst->h.v[m].tensor = y.out;
        }
        if (plain) {
            PL_TRY(stream_plain(w, i, &y, sum));
            *(packed ? &dst->h.v[m].plain : &dst->h.v[m].tensor) = y.out;
        }
    }
    return lower_record_copy(w, t, sum);
}

/* ---- start of copies ----------------------------------------------------- */

/* Returns the index of the first transfer from k on that is of a weight, and of
 * another layer than weight i; of any layer if i is -1. Transfers are in order
 * of use, so those of one layer are adjacent. */
static int next_weight(const struct lower *w, int k, int i)
{
    const struct variant_transfers *v = w->variant.transfers;

    while (k < v->n && (v->item[k].kind != TRANSFER_WEIGHT ||
                        (i >= 0 && lower_node(w, v->item[k].value)->layer ==
                                       lower_node(w, i)->layer)))
        k++;
    return k;
}

/* Starts the transfers of weights before `end` that were not started yet. All
 * that one call starts is one copy batch. */
static pl_status prefetch(struct lower *w, int end)
{
    const struct variant_transfers *v = w->variant.transfers;

    w->variant.copy_batch++;
    for (; w->variant.next_weight < end; w->variant.next_weight++) {
        const struct transfer *t = &v->item[w->variant.next_weight];

        if (t->kind == TRANSFER_WEIGHT && !t->late &&
            !lower_find(w, t->value, t->to))
            PL_TRY(stream_weight(w, t));
    }
    return PL_OK;
}

/* Returns the end of the layer of the weight of transfer k. */
static int layer_end(const struct lower *w, int k)
{
    const struct variant_transfers *v = w->variant.transfers;

    return k < v->n ? next_weight(w, k, v->item[k].value) : k;
}

pl_status lower_first_weights(struct lower *w)
{
    return prefetch(w, layer_end(w, next_weight(w, 0, -1)));
}

pl_status lower_weights(struct lower *w, const struct transfer *t)
{
    if (t->late)
        return lower_find(w, t->value, t->to) ? PL_OK : stream_weight(w, t);
    return prefetch(
        w, layer_end(w, layer_end(w, (int)(t - w->variant.transfers->item))));
}
