/* Copies of single rows of a cache tile, element by element, as
 * program/cache_tile.h draws its layout: what its faster functions are compared
 * with. */
#ifndef TEST_CACHE_ROWS_H
#define TEST_CACHE_ROWS_H

#include "program/cache_tile.h"

#include <stdbool.h>

/* Copy the key or value of one position from a cache tile to `row`, or from
 * `row` to a tile. j = 0 .. 63 is the position in the page. A key or value has
 * d numbers for one head. `row` has the format's own layout,
 * format_row_bytes(f, d) bytes of elements or blocks. `values` tells that the
 * tile holds values, not keys. */
void cache_row_read(pl_format f, int64_t d, bool values, const void *tile,
                    int j, void *row);
void cache_row_write(pl_format f, int64_t d, bool values, void *tile, int j,
                     const void *row);

#endif
