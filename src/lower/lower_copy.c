/* Transfers of values that one group computes and another reads, and the start
 * of all transfers.
 *
 * A transfer starts when the value is computed, or if it is late, when it is
 * read. Values that are not computed are transferred by other files: inputs by
 * lower_io.c, weights by lower_stream.c, caches by lower_pages.c. */
#include "lower/lower_transfer.h"

#include "base/err.h"

/* ---- values -------------------------------------------------------------- */

/* Makes all shards of the group that has the value post that it is ready. */
static pl_status post_ready(struct lower *w, struct placed *h)
{
    const struct lower_group *g = lower_group(w, h->h.group);
    int event;

    for (int m = 0; m < g->n; m++)
        PL_TRY(lower_ready_event(w, h, g->first + m, &event));
    return PL_OK;
}

static pl_status copy_value(struct lower *w, const struct transfer *t)
{
    const struct graph_node *x = lower_node(w, t->as);
    struct placed *src = lower_find(w, t->value, t->from), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    PL_TRY(post_ready(w, src));
    PL_TRY(lower_add_value(w, t->as, t->to, &dst));
    w->variant.copy_batch++;
    for (int m = 0; m < lower_group(w, t->to)->n; m++) {
        struct receiver y = lower_receiver(w, t, dst, m, &done);
        struct lower_pieces none = {0}, p = {0};
        pl_dim dim[GRAPH_MAX_DIM];

        y.src = src;
        lower_dims(w, y.u, t->as, dim);
        PL_TRY(lower_pieces(w, y.u, t->from, t->value, t->as, &none, &p));
        PL_TRY(lower_alloc_dst(w, &y, x->format, x->n_dim, dim, 1, NULL));
        dst->h.v[m].tensor = y.out;
        lower_count_pieces(sum, p.p, p.n);
        PL_TRY(lower_transfer(w, &y, p.p, p.n, 0));
    }
    PL_TRY(lower_track_inflight(w, src, t->to, &done, false));
    return lower_record_copy(w, t, sum);
}

/* Sets the copies of the addends of shard u's ranks of PARTIAL value i, from
 * group a, to entries that are `stride` bytes apart. */
static int rank_pieces(const struct lower *w, int i, int a, int u,
                       const struct placed *src, size_t stride,
                       struct copy_desc *p)
{
    const struct lower_shard *v = &w->shard[u].u;
    const struct graph_node *x = lower_node(w, i);
    int n = 0;

    for (int k = 0; k < v->n_rank; k++) {
        int rank = v->rank0 + k, su = lower_group(w, a)->first, at;
        uint64_t below = ((uint64_t)1 << rank) - 1;

        if (!(w->present[i] >> rank & 1))
            continue;
        while (!(w->shard[su].u.ranks >> rank & 1))
            su++;
        at = __builtin_popcountll(w->present[i] & w->shard[su].u.ranks & below);
        p[n] = (struct copy_desc){
            .src_dev = lower_dev(w, su),
            .src = src->by_rank[w->shard[su].local].tensor,
            .src_const = at * (int64_t)src->by_rank[w->shard[su].local].stride,
            .dst_const = n * (int64_t)stride,
            .bytes = lower_product(x->dim, 0, x->n_dim, 4),
            .n0 = {1, PL_CONST},
            .n1 = {1, PL_CONST},
        };
        n++;
    }
    return n;
}

static pl_status copy_ranks(struct lower *w, const struct transfer *t)
{
    const struct graph_node *x = lower_node(w, t->value);
    struct placed *src = lower_find(w, t->value, t->from), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    PL_TRY(lower_add_value(w, t->value, t->to, &dst));
    w->variant.copy_batch++;
    for (int m = 0; m < lower_group(w, t->to)->n; m++) {
        struct receiver y = lower_receiver(w, t, dst, m, &done);
        struct addends *to = &dst->by_rank[m];
        int n_rank = w->shard[y.u].u.n_rank, n;
        struct copy_desc *p = arena_alloc(w->a, (size_t)n_rank, sizeof *p);

        PL_TRY(lower_memory(w));
        y.src = src;
        n = rank_pieces(w, t->value, t->from, y.u, src, 0, p);
        if (n == 0) {
            PL_TRY(lower_check_sources(w, &y, 0));
            continue;
        }
        PL_TRY(lower_alloc_dst(w, &y, x->format, x->n_dim, x->dim, n,
                               &to->stride));
        to->tensor = y.out;
        rank_pieces(w, t->value, t->from, y.u, src, to->stride, p);
        lower_count_pieces(sum, p, n);
        PL_TRY(lower_transfer(w, &y, p, n, (size_t)n * to->stride));
    }
    PL_TRY(lower_track_inflight(w, src, t->to, &done, true));
    return lower_record_copy(w, t, sum);
}

/* ---- the start of transfers ---------------------------------------------- */

/* Starts a transfer, unless that was done before. */
static pl_status start(struct lower *w, const struct transfer *t)
{
    static pl_status (*const by_kind[TRANSFER_KIND_COUNT])(
        struct lower * w, const struct transfer *t) = {
        [TRANSFER_INPUT] = lower_inputs,   [TRANSFER_TABLE] = lower_inputs,
        [TRANSFER_VALUE] = copy_value,     [TRANSFER_RANKS] = copy_ranks,
        [TRANSFER_WEIGHT] = lower_weights, [TRANSFER_PAGES] = lower_pages,
        [TRANSFER_RESULT] = lower_result,
    };

    if (t->kind != TRANSFER_WEIGHT && lower_find(w, t->as, t->to))
        return PL_OK;
    return by_kind[t->kind](w, t);
}

pl_status lower_materialize(struct lower *w, int i, int as, int b)
{
    const struct transfer *t =
        transfers_find(w->transfers, w->variant.index, i, as, b);

    return t ? start(w, t) : PL_OK;
}

pl_status lower_start_transfers(struct lower *w, int i)
{
    const struct variant_transfers *v = w->variant.transfers;
    bool pipeline = w->opt->variant[w->variant.index].n_micro > 1;
    struct placed *h = lower_find(w, i, w->variant.at[i]);

    for (int k = v->first[i]; k >= 0; k = v->item[k].next) {
        const struct transfer *t = &v->item[k];

        if (!t->late)
            PL_TRY(start(w, t));
        else if (pipeline && h)
            /* The receivers pull later. This group continues with another
             * micro-batch, for which they must not wait. */
            PL_TRY(post_ready(w, h));
    }
    return PL_OK;
}
