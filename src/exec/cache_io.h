/* Access to caches by the host: rows in logical order, independent of the
 * devices and ranks that hold them.
 *
 * A page has 64 cache slots, a state's page one. Rows are [n, n_head, d_head]
 * in the cache's own format, format_row_bytes(format, d_head) each. Heads that
 * several devices store are read from the first and written to all. */
#ifndef EXEC_CACHE_IO_H
#define EXEC_CACHE_IO_H

#include "exec/exec.h"

struct cache_part; /* the part of a cache that one device stores */

struct exec_cache {
    int node;
    const struct graph_node *g;
    int64_t n_head, d_head;
    int page_slots;               /* rows of a page */
    size_t row_bytes, tile_bytes; /* of one head: a row, a page */
    int n_part;
    struct cache_part *part;
};

/* All caches of a graph, in its order, and their locations. */
struct exec_caches {
    pl_exec *x; /* borrowed */
    int n;
    struct exec_cache *cache; /* [n] */
    unsigned char *page;      /* buffer for a page of a cache; owned */
    struct arena arena;       /* owns the rest */
};

/* node: the only one to open, or -1 for all. *c must be closed also after an
 * error. */
pl_status exec_caches_open(struct exec_caches *c, pl_exec *x, int node,
                           pl_err *err);
void exec_caches_close(struct exec_caches *c);

/* Copy n slots of a page of cache i, slot0 + n <= page_slots. Not during a
 * step. */
pl_status exec_cache_read(struct exec_caches *c, int i, int64_t page, int slot0,
                          int n, void *rows, pl_err *err);
pl_status exec_cache_write(struct exec_caches *c, int i, int64_t page,
                           int slot0, int n, const void *rows, pl_err *err);

/* Converts x [n, n_head, d_head] floats to rows of cache i's format, as a step
 * would write them; n <= 64. */
void exec_cache_encode(const struct exec_caches *c, int i, int n,
                       const float *x, void *rows);

/* Reads, or writes if `put`, cache slots [slot0, slot0 + n) of one cache,
 * across pages. */
pl_status exec_cache_slots(pl_exec *x, int node, int64_t slot0, int64_t n,
                           void *rows, bool put, pl_err *err);

#endif
