/* Streamed caches: if attention is computed in another group than its cache,
 * the pages that the step's sequences use are copied.
 *
 * The step determines these pages, so the instruction that copies them (PAGES)
 * has the token table among its arguments. A receiver gets the heads that it
 * computes with. Their tiles are the same bytes on both sides. */
#include "lower/lower_transfer.h"

#include "base/err.h"
#include "program/cache_tile.h"

/* Sets *out, for each head of cache `root` that shard u has, to the head of
 * shard su's part from which it is copied, or -1 if it is not copied from su.
 * If several shards have a head, the first that is asked is its source. got[],
 * of u's heads, marks those that have a source; it is updated. Sets *out to
 * NULL if su is the source of none. */
static pl_status head_source(struct lower *w, int root, int u, int su,
                             bool *got, const int32_t **out)
{
    struct layout_local want, have;
    int32_t *map;
    int hits = 0;

    *out = NULL;
    PL_TRY(lower_local(w, u, root, 1, &want));
    PL_TRY(lower_local(w, su, root, 1, &have));
    map = arena_alloc(w->a, (size_t)want.local + 1, sizeof *map);
    PL_TRY(lower_memory(w));
    for (int64_t h = 0; h < want.size; h++) {
        int64_t mine = layout_local_index(&want, h);
        int64_t its = layout_local_index(&have, h);

        if (mine < 0)
            continue;
        map[mine] = its >= 0 && !got[mine] ? (int32_t)its : -1;
        hits += map[mine] >= 0;
        got[mine] |= map[mine] >= 0;
    }
    if (hits > 0)
        *out = map;
    return PL_OK;
}

int lower_memory_of(const struct lower *w, int i)
{
    while (!op_info(lower_node(w, i)->op)->is_new)
        i = w->num->node[i].in[op_info(lower_node(w, i)->op)->updates];
    return i;
}

/* Sets *tensor to the token table for a copy by shard u. For `event` see
 * lower_token_table_copied; it is unchanged if there is no copy queue. */
static pl_status table(struct lower *w, int u, int *tensor, int *event)
{
    return lower_copy_queue(w, lower_dev(w, u)) == QUEUE_COPY
               ? lower_token_table_copied(w, u, tensor, event)
               : lower_token_table(w, u, tensor);
}

/* Copies the pages of cache `root` from `y->src` to shard y->u, which has
 * n_head heads. */
static pl_status shard_pages(struct lower *w, int root, int64_t n_head,
                             struct receiver *y)
{
    const struct lower_group *a = lower_group(w, y->group);
    const struct graph_node *x = lower_node(w, root);
    size_t tile = cache_tile_bytes(x->format, x->dim[2].n);
    struct insn *s = arena_alloc(w->a, (size_t)a->n, sizeof *s);
    bool *got = arena_alloc(w->a, (size_t)n_head + 1, 1);
    struct arrival from = {0};
    uint64_t found = 0;
    int n = 0;

    PL_TRY(lower_memory(w));
    PL_TRY(lower_alloc_resident_dst(
        w, y, root,
        (size_t)(dim_value(x->dim[0], &w->opt->max) / PAGE_TOKENS) *
            (size_t)n_head * tile));
    for (int k = 0; k < a->n; k++) {
        int su = a->first + k, sd = lower_dev(w, su), e[2] = {-1, -1};
        struct insn p = {.kind = INSN_PAGES};
        const int32_t *map;

        PL_TRY(head_source(w, root, y->u, su, got, &map));
        if (!map)
            continue;
        found |= (uint64_t)1 << k;
        p.pages = (struct insn_pages){
            .out_dev = lower_dev(w, y->u),
            .out = y->out,
            .src_dev = sd,
            .src = lower_value(y->src, &w->shard[su])->tensor,
            .map = map,
            .tile_bytes = tile};
        PL_TRY(lower_ready_event(w, y->src, su, &e[0]));
        if (y->by->pushes) {
            PL_TRY(table(w, su, &p.pages.token_table, &e[1]));
            /* the pages' numbers are read again when they are sent */
            if (y->by == &transport_info[TRANSPORT_SEND])
                PL_TRY(lower_keep(w, su, p.pages.token_table, -1));
            PL_TRY(lower_push(w, y, sd, e, &p));
            continue;
        }
        PL_TRY(table(w, y->u, &p.pages.token_table, NULL));
        PL_TRY(lower_add_arrival(w, &from, sd, e[0]));
        s[n++] = p;
    }
    PL_TRY(lower_check_sources(w, y, found));
    return n == 0 ? PL_OK : lower_pull(w, y, &from, s, n);
}

pl_status lower_pages(struct lower *w, const struct transfer *t)
{
    int root = lower_memory_of(w, t->value);
    const struct graph_node *x = lower_node(w, root);
    struct placed *src = lower_find(w, t->value, t->from), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    PL_TRY(lower_add_value(w, t->value, t->to, &dst));
    w->variant.copy_batch++;
    for (int m = 0; m < lower_group(w, t->to)->n; m++) {
        struct receiver y = lower_receiver(w, t, dst, m, &done);
        struct layout_local want;

        y.src = src;
        PL_TRY(lower_local(w, y.u, root, 1, &want));
        PL_TRY(shard_pages(w, root, want.local, &y));
        dst->h.v[m].tensor = y.out;
        lower_add_bytes(sum, (pl_dim){want.local * (int64_t)format_row_bytes(
                                                       x->format, x->dim[2].n),
                                      PL_CONST});
    }
    return lower_record_copy(w, t, sum);
}
