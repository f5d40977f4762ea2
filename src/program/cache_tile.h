/* The memory layout of caches, the same on every backend.
 *
 * A cache has the logical shape [n_slot, n_head, d]; n_slot is a multiple of
 * PAGE_TOKENS (64). A page of one head is contiguous and called a *tile*. The
 * tile of page p and head h starts at (p * n_head + h) * cache_tile_bytes().
 * Keys are stored transposed, so that neighbouring elements belong to
 * neighbouring positions. Values are not transposed:
 *
 *   keys    f32/f16/bf16: [d][64]
 *   values  f32/f16/bf16: [64][d]
 *
 * A block of 32 values consists of the parts that it has in a GGUF file, in
 * that order; a tile has a plane for each, so that a plane's elements have one
 * size. Planes follow one another:
 *
 *   part                                       keys        values
 *   f16 scale                                  [d/32][64]  [64][d/32]
 *   f16 minimum: q4_1, q5_1                    [d/32][64]  [64][d/32]
 *   u8 fifth bits of eight codes: q5_0, q5_1   [d/8][64]   [64][d/8]
 *   codes: q8_0, signed bytes                  [d][64]     [64][d]
 *          others, u8 of values i and i + 16   [d/2][64]   [64][d/2]
 *
 * So no byte belongs to two positions, and threads that write different
 * positions do not disturb one another.
 *
 * Position p of a sequence is in cache slot page * 64 + p % 64, where page is
 * entry p / 64 of the sequence's row in the page table. */
#ifndef PROGRAM_CACHE_TILE_H
#define PROGRAM_CACHE_TILE_H

#include "graph/graph.h"

#include <stddef.h>

size_t cache_tile_bytes(pl_format f, int64_t d);

/* A part of a quantization block, such as its scale or its codes, or the
 * elements of a float format: n elements of `size` bytes each. */
struct tile_part {
    int size, n;
};
enum { TILE_PARTS = 4 };

/* Sets part[] to the parts of a quantization block of format f, in the order of
 * GGUF files. Returns their number. */
int cache_tile_parts(pl_format f, struct tile_part part[static TILE_PARTS]);

/* Returns the size in bytes of one head of a page: of a tile if `memory` is a
 * cache, of a row if it is a state. */
size_t memory_tile_bytes(const struct graph_node *memory);

/* Copy rows between a tile, at token positions j0 .. j0 + n - 1 of its page
 * with j0 + n <= PAGE_TOKENS, and the array `rows`, in which they are `stride`
 * bytes apart. A row has format_row_bytes(f, d) bytes in the format's own
 * layout, elements or blocks as in GGUF files. `values` is true for a tile of
 * values, false for one of keys. */
void cache_tile_read(pl_format f, int64_t d, bool values, const void *tile,
                     int j0, int n, void *rows, size_t stride);
void cache_tile_write(pl_format f, int64_t d, bool values, void *tile, int j0,
                      int n, const void *rows, size_t stride);

/* Copies token positions src_j .. src_j + n - 1 of tile `src` to positions j ..
 * j + n - 1 of tile `dst`. Both are tiles of values, or of keys. */
void cache_tile_copy(pl_format f, int64_t d, bool values, void *dst, int j,
                     const void *src, int src_j, int n);

#endif
