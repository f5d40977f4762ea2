/* Access to caches by the host, independent of the devices and ranks that hold
 * them. A cache page has 64 cache slots, one per token position; a page of a
 * recurrent state has one. A row is the contents of one slot. Rows are [n,
 * n_head, d_head] in the cache's own format; one head of a row has
 * format_row_bytes(format, d_head) bytes. If several devices store a head, it
 * is read from the first of them and written to all. */
#ifndef EXEC_CACHE_IO_H
#define EXEC_CACHE_IO_H

#include "exec/exec.h"

struct cache_part; /* the part of a cache that one device stores */

struct exec_cache {
    int node;
    const struct graph_node *g;
    int64_t n_head, d_head;
    int page_slots;               /* number of cache slots in a page: 64, or 1
                                     for a recurrent state */
    size_t row_bytes, tile_bytes; /* size in bytes of one head of a row, and of
                                     one head of a whole page */
    int n_part;
    struct cache_part *part;
};

/* The caches of a graph that were opened, in the graph's order, with their
 * addresses on devices: all caches, or a single one. */
struct exec_caches {
    pl_exec *x; /* borrowed executor whose caches these are */
    int n;
    struct exec_cache *cache; /* [n] one entry per opened cache */
    /* owned: buffer for one page of one device's part of a cache */
    unsigned char *page;
    struct arena arena; /* owns all arrays except `page` */
};

/* Opens the cache that is graph node `node`, or all caches if it is -1. The
 * caller closes *c with exec_caches_close, even after an error. */
pl_status exec_caches_open(struct exec_caches *c, pl_exec *x, int node,
                           pl_err *err);
void exec_caches_close(struct exec_caches *c);

/* Copy cache slots [slot0, slot0 + n) of page `page` of cache i to or from
 * `rows`. slot0 + n must not exceed page_slots. Must not be called during a
 * step. */
pl_status exec_cache_read(struct exec_caches *c, int i, int64_t page, int slot0,
                          int n, void *rows, pl_err *err);
pl_status exec_cache_write(struct exec_caches *c, int i, int64_t page,
                           int slot0, int n, const void *rows, pl_err *err);

/* Converts the floats x [n, n_head, d_head] to rows in the format of cache i,
 * with the bits that a step would write. n <= 64. */
void exec_cache_encode(const struct exec_caches *c, int i, int n,
                       const float *x, void *rows);

/* Writes cache slots [slot0, slot0 + n) of graph node `node` from `rows` if
 * `put`, else reads these slots into `rows`. Slots are counted over all pages
 * of the cache. */
pl_status exec_cache_slots(pl_exec *x, int node, int64_t slot0, int64_t n,
                           void *rows, bool put, pl_err *err);

#endif
