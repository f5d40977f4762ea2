/* The memory layout of caches, the same on every backend.
 *
 * A cache has the logical shape [n_slot, n_head, d]; n_slot is a multiple of
 * PAGE_TOKENS (64). A page of one head is contiguous and called a *tile*. The
 * tile of page p and head h starts at (p * n_head + h) * cache_tile_bytes().
 * Keys are stored transposed, so that neighbouring elements belong to
 * neighbouring positions. Values are not transposed:
 *
 *   keys    f32/f16/bf16: [d][64]
 *           q8_0: f16 scale[d/32][64], then s8 q[d][64]
 *   values  f32/f16/bf16: [64][d]
 *           q8_0: f16 scale[64][d/32], then s8 q[64][d]
 *
 * Position p of a sequence is in cache slot page * 64 + p % 64, where page is
 * entry p / 64 of the sequence's row in the page table. */
#ifndef PROGRAM_CACHE_TILE_H
#define PROGRAM_CACHE_TILE_H

#include "graph/graph.h"

#include <stddef.h>

size_t cache_tile_bytes(pl_format f, int64_t d);

/* Returns the size in bytes of one head of a page: of a tile of a cache, or of
 * a row of a state. */
size_t memory_tile_bytes(const struct graph_node *memory);

/* Copy rows between the positions j0 .. j0 + n - 1 of a tile, j0 + n <=
 * PAGE_TOKENS, and `rows`, where they are `stride` bytes apart. A row has
 * format_row_bytes(f, d) bytes in the format's own layout: elements, or for
 * q8_0 blocks of an f16 scale and 32 signed bytes. `values` is true for a tile
 * of values, false for one of keys. */
void cache_tile_read(pl_format f, int64_t d, bool values, const void *tile,
                     int j0, int n, void *rows, size_t stride);
void cache_tile_write(pl_format f, int64_t d, bool values, void *tile, int j0,
                      int n, const void *rows, size_t stride);

#endif
