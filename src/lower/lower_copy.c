/* Copies of values that one group computes and another reads.
 *
 * A value is copied as the receivers need it: if a conversion is in between,
 * the copy is the conversion. PARTIAL values are copied rank by rank. A copy
 * starts when the value is computed, or when it is needed, if the receivers
 * pull and have no copy queue. Values that are not computed are copied by other
 * files: inputs by lower_io.c, weights by lower_stream.c, caches by
 * lower_pages.c. */
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

/* Copies value i of group a to value j (itself, or a conversion of it) in group
 * b. */
static pl_status copy_value(struct lower *w, int i, int j, int b)
{
    int a = w->variant.at[i];
    const struct graph_node *x = lower_node(w, j);
    struct placed *src = lower_find(w, i, a), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    PL_TRY(post_ready(w, src));
    PL_TRY(lower_add_value(w, j, b, &dst));
    w->variant.copy_batch++;
    for (int m = 0; m < lower_group(w, b)->n; m++) {
        struct transfer y = lower_transfer_init(w, i, a, dst, m, &done);
        struct lower_pieces none = {0}, p = {0};
        pl_dim dim[GRAPH_MAX_DIM];

        y.src = src;
        lower_dims(w, y.u, j, dim);
        PL_TRY(lower_pieces(w, y.u, a, i, j, &none, &p));
        PL_TRY(lower_alloc_dst(w, &y,
                               lower_needs_push(w, lower_dev(w, y.u), p.p, p.n),
                               x->format, x->n_dim, dim, 1, NULL));
        dst->h.v[m].tensor = y.out;
        lower_count_pieces(sum, p.p, p.n);
        PL_TRY(lower_transfer(w, &y, p.p, p.n, 0));
    }
    PL_TRY(lower_track_inflight(w, src, b, &done, false));
    return lower_record_copy(w, j, a, b, false, sum);
}

pl_status lower_convert_copy(struct lower *w, int j)
{
    return lower_find(w, j, w->variant.at[j])
               ? PL_OK
               : copy_value(w, w->num->node[j].in[0], j, w->variant.at[j]);
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

pl_status lower_copy_ranks(struct lower *w, int i, int b)
{
    int a = w->variant.at[i];
    const struct graph_node *x = lower_node(w, i);
    struct placed *src = lower_find(w, i, a), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    if (lower_find(w, i, b))
        return PL_OK;
    PL_TRY(lower_add_value(w, i, b, &dst));
    w->variant.copy_batch++;
    for (int m = 0; m < lower_group(w, b)->n; m++) {
        struct transfer y = lower_transfer_init(w, i, a, dst, m, &done);
        const struct lower_shard *v = &w->shard[y.u].u;
        struct addends *to = &dst->by_rank[m];
        struct copy_desc *p = arena_alloc(w->a, (size_t)v->n_rank, sizeof *p);
        int n;

        PL_TRY(lower_memory(w));
        y.src = src;
        n = rank_pieces(w, i, a, y.u, src, 0, p);
        if (n == 0)
            continue;
        PL_TRY(lower_alloc_dst(w, &y, lower_needs_push(w, v->dev, p, n),
                               x->format, x->n_dim, x->dim, n, &to->stride));
        to->tensor = y.out;
        rank_pieces(w, i, a, y.u, src, to->stride, p);
        lower_count_pieces(sum, p, n);
        PL_TRY(lower_transfer(w, &y, p, n, (size_t)n * to->stride));
    }
    PL_TRY(lower_track_inflight(w, src, b, &done, true));
    return lower_record_copy(w, i, a, b, false, sum);
}

/* ---- anything ------------------------------------------------------------ */

pl_status lower_copy_to_group(struct lower *w, int i, int b)
{
    if (lower_is(w, i, OP_weight))
        return w->opt->home[i] == b ? PL_OK : lower_prefetch_weights(w, i, b);
    if (lower_find(w, i, b))
        return PL_OK;
    if (lower_is(w, i, OP_input))
        return lower_input(w, i, b);
    if (w->num->node[i].kind == NUM_OP &&
        graph_memory(w->g, w->num->node[i].node) >= 0)
        return lower_stream_pages(w, i, b);
    return copy_value(w, i, i, b);
}

pl_status lower_start_copies(struct lower *w, int i)
{
    bool pipeline = w->opt->variant[w->variant.index].n_micro > 1;
    struct placed *h = lower_find(w, i, w->variant.at[i]);

    PL_TRY(lower_output(w, i));
    for (int k = w->user0[i]; k < w->user0[i + 1]; k++) {
        int j = w->user[k], b = w->variant.at[j];

        if (b == w->variant.at[i])
            continue;
        if (lower_one_queue(w, b) &&
            lower_all_can_read(w, w->variant.at[i], b)) {
            /* The receivers pull later. In a pipeline, this group continues
             * with another micro-batch, for which they must not wait. */
            if (pipeline && h)
                PL_TRY(post_ready(w, h));
            continue;
        }
        if (w->num->node[j].kind != NUM_OP)
            PL_TRY(lower_convert_copy(w, j));
        else
            PL_TRY(lower_copy_to_group(w, i, b));
    }
    return PL_OK;
}
