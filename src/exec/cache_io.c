/* Reads and writes rows of caches; see cache_io.h. A tile is one head of a
 * page; cache_tile.h describes its form. */
#include "exec/cache_io.h"

#include "base/err.h"
#include "program/cache_tile.h"

#include <stdlib.h>
#include <string.h>

/* Devices that store a part of a cache ----------------------------------- */

/* A device that stores part of a cache: those heads that its ranks hold. */
struct holder {
    int dev;
    rankset ranks;
    const struct prog_tensor *tensor; /* the device's cache tensor: [n_slot,
                                         heads stored on the device, d_head] */
};

/* Sets *h to the i-th device of the group that holds cache `node`. Returns
 * false if there is no such device or if it stores no heads. All functions of
 * this file ask this function which device stores which heads. */
static bool holder(const pl_exec *x, int node, int i, struct holder *h)
{
    const struct compiled *p = x->plan;
    int v = p->num->value[node];
    struct exec_owners e = exec_owners(x, v);

    if (i >= e.n)
        return false;
    *h = (struct holder){e.dev[i], e.ranks[i],
                         &p->low->prog[e.dev[i]].tensor[e.v[i].tensor]};
    return h->tensor->dim[1].n > 0;
}

static int n_ref(const pl_exec *x)
{
    return x->plan->low->n_shard;
}

/* Finding the caches on devices ------------------------------------------ */

struct cache_part {
    int dev;
    size_t at;      /* offset of page 0 of the cache in the device's cache
                       region, in bytes */
    int64_t n_head; /* number of heads that the device stores */
    int32_t *head;  /* [n_head] for each stored head, its index among all heads
                       of the cache */
    bool *first;    /* [n_head] true for a head that no earlier device of the
                       group stores, so that it is read from this one */
};

/* Sets *p to the part of a cache that device h stores. seen[head] is true for
 * the heads that devices before h store; sets it for those of h. */
static void part_init(struct cache_part *p, struct exec_caches *c,
                      const struct exec_cache *cache, const struct holder *h,
                      bool *seen)
{
    const struct compiled *plan = c->x->plan;
    const pl_layout *l = plan->num->node[plan->num->value[cache->node]].layout;
    struct layout_local m;

    if (!layout_local_init(&m, &c->arena, l, cache->n_head, h->ranks))
        return;
    *p = (struct cache_part){h->dev, h->tensor->offset, m.local, NULL, NULL};
    p->head = arena_alloc(&c->arena, (size_t)m.local, sizeof *p->head);
    p->first = arena_alloc(&c->arena, (size_t)m.local, sizeof *p->first);
    if (!p->head || !p->first)
        return;
    for (int64_t i = 0; i < cache->n_head; i++) {
        int64_t k = layout_local_index(&m, i);

        if (k < 0)
            continue;
        p->head[k] = (int32_t)i;
        p->first[k] = !seen[i];
        seen[i] = true;
    }
}

static void cache_init(struct exec_cache *cache, struct exec_caches *c,
                       int node)
{
    const struct graph_node *g = &c->x->plan->g->node[node];
    int n = n_ref(c->x);
    bool *seen;

    *cache = (struct exec_cache){
        .node = node,
        .g = g,
        .n_head = g->dim[1].n,
        .d_head = g->dim[2].n,
        .page_slots =
            pool_page_slots(&c->x->plan->g->pool[dim_pool(g->dim[0])]),
        .row_bytes = format_row_bytes(g->format, g->dim[2].n),
        .tile_bytes = memory_tile_bytes(g)};
    cache->part = arena_alloc(&c->arena, (size_t)n, sizeof *cache->part);
    seen = arena_alloc(&c->arena, (size_t)cache->n_head, sizeof *seen);
    for (int i = 0; i < n && cache->part && seen; i++) {
        struct holder h;

        if (holder(c->x, node, i, &h))
            part_init(&cache->part[cache->n_part++], c, cache, &h, seen);
    }
}

pl_status exec_caches_open(struct exec_caches *c, pl_exec *x, int node,
                           pl_err *err)
{
    const pl_graph *g = x->plan->g;
    size_t page = 1;

    *c = (struct exec_caches){.x = x};
    c->cache = arena_alloc(&c->arena, (size_t)g->n_node + 1, sizeof *c->cache);
    PL_TRY(arena_check(&c->arena, "tables of the cache", err));
    for (int i = 0; i < g->n_node; i++) {
        struct exec_cache *k = &c->cache[c->n];

        if (g->node[i].op != OP_memory || (node >= 0 && node != i))
            continue;
        cache_init(k, c, i);
        if ((size_t)k->n_head * k->tile_bytes > page)
            page = (size_t)k->n_head * k->tile_bytes;
        c->n++;
    }
    PL_TRY(arena_check(&c->arena, "tables of the cache", err));
    c->page = malloc(page);
    return c->page ? PL_OK : err_no_memory(err, "a page of the cache");
}

void exec_caches_close(struct exec_caches *c)
{
    free(c->page);
    arena_fini(&c->arena);
    memset(c, 0, sizeof *c);
}

/* Reading and writing rows of a cache ------------------------------------ */

pl_status exec_cache_read(struct exec_caches *c, int i, int64_t page, int slot0,
                          int n, void *rows, pl_err *err)
{
    const struct exec_cache *k = &c->cache[i];

    for (int j = 0; j < k->n_part; j++) {
        const struct cache_part *p = &k->part[j];
        size_t bytes = (size_t)p->n_head * k->tile_bytes;
        size_t at = p->at + (size_t)page * bytes;
        const char *tile = device_map(c->x->set, p->dev, REGION_CACHE);

        if (tile) {
            tile += at;
        } else {
            PL_TRY(device_read(c->x->set, p->dev, REGION_CACHE, at, c->page,
                               bytes, err));
            tile = (const char *)c->page;
        }
        for (int64_t h = 0; h < p->n_head; h++, tile += k->tile_bytes)
            if (p->first[h])
                cache_tile_read(
                    k->g->format, k->d_head, k->g->attr.values, tile, slot0, n,
                    (char *)rows + (size_t)p->head[h] * k->row_bytes,
                    (size_t)k->n_head * k->row_bytes);
    }
    return PL_OK;
}

pl_status exec_cache_write(struct exec_caches *c, int i, int64_t page,
                           int slot0, int n, const void *rows, pl_err *err)
{
    const struct exec_cache *k = &c->cache[i];

    for (int j = 0; j < k->n_part; j++) {
        const struct cache_part *p = &k->part[j];
        size_t bytes = (size_t)p->n_head * k->tile_bytes;
        size_t at = p->at + (size_t)page * bytes;
        char *map = device_map(c->x->set, p->dev, REGION_CACHE);
        char *tile = map ? map + at : (char *)c->page;

        if (!map)
            PL_TRY(device_read(c->x->set, p->dev, REGION_CACHE, at, tile, bytes,
                               err));
        for (int64_t h = 0; h < p->n_head; h++)
            cache_tile_write(k->g->format, k->d_head, k->g->attr.values,
                             tile + (size_t)h * k->tile_bytes, slot0, n,
                             (const char *)rows +
                                 (size_t)p->head[h] * k->row_bytes,
                             (size_t)k->n_head * k->row_bytes);
        if (!map)
            PL_TRY(device_write(c->x->set, p->dev, REGION_CACHE, at, tile,
                                bytes, err));
    }
    return PL_OK;
}

void exec_cache_encode(const struct exec_caches *c, int i, int n,
                       const float *x, void *rows)
{
    const struct exec_cache *k = &c->cache[i];

    device_cache_rows(k->g->format, k->d_head, n * k->n_head, x, rows);
}

pl_status exec_cache_slots(pl_exec *x, int node, int64_t slot0, int64_t n,
                           void *rows, bool put, pl_err *err)
{
    struct exec_caches c;
    char *at = rows;
    pl_status s = exec_caches_open(&c, x, node, err);

    for (int64_t i = slot0, len; i < slot0 + n && s == PL_OK; i += len) {
        int page_slots = c.cache[0].page_slots;
        int64_t page = i / page_slots, slot = i % page_slots;

        len = page_slots - slot;
        if (len > slot0 + n - i)
            len = slot0 + n - i;
        s = put ? exec_cache_write(&c, 0, page, (int)slot, (int)len, at, err)
                : exec_cache_read(&c, 0, page, (int)slot, (int)len, at, err);
        at += (size_t)(len * c.cache[0].n_head) * c.cache[0].row_bytes;
    }
    exec_caches_close(&c);
    return s;
}

/* Copying pages of a pool ------------------------------------------------ */

pl_status exec_copy_page(pl_exec *x, int pool, int from, int to, pl_err *err)
{
    const pl_graph *g = x->plan->g;

    PL_TRY(exec_wait_async(x, err));
    for (int i = 0; i < g->n_node; i++) {
        if (g->node[i].op != OP_memory || dim_pool(g->node[i].dim[0]) != pool)
            continue;
        for (int d = 0; d < n_ref(x); d++) {
            struct holder h;
            size_t n;

            if (!holder(x, i, d, &h))
                continue;
            n = (size_t)h.tensor->dim[1].n * memory_tile_bytes(&g->node[i]);
            PL_TRY(device_read(x->set, h.dev, REGION_CACHE,
                               h.tensor->offset + (size_t)from * n, x->page, n,
                               err));
            PL_TRY(device_write(x->set, h.dev, REGION_CACHE,
                                h.tensor->offset + (size_t)to * n, x->page, n,
                                err));
        }
    }
    return PL_OK;
}
