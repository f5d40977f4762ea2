/* Copies of single rows of a cache tile, one element after another. */
#include "lib/cache_rows.h"

#include "quant/format.h"

#include <string.h>

/* Copies a row, from the tile or, if `write`, to it. A plane is an array of the
 * tile, [width][64] elements for keys and [64][width] for values. */
static void copy(pl_format f, int64_t d, bool values, char *tile, int j,
                 char *row, bool write)
{
    const struct format_info *fi = format_info(f);
    int64_t n_block = d / fi->block, at = 0;
    struct tile_part p[TILE_PARTS];
    int n_part = cache_tile_parts(f, p);

    for (int k = 0; k < n_part; k++) {
        int64_t size = p[k].size, width = n_block * p[k].n;

        for (int64_t i = 0; i < width; i++) {
            char *in_tile =
                tile + size * (values ? j * width + i : i * PAGE_TOKENS + j);
            char *in_row = row + i / p[k].n * (int64_t)fi->block_bytes + at +
                           i % p[k].n * size;

            memcpy(write ? in_tile : in_row, write ? in_row : in_tile,
                   (size_t)size);
        }
        tile += width * size * PAGE_TOKENS;
        at += p[k].n * size;
    }
}

void cache_row_read(pl_format f, int64_t d, bool values, const void *tile,
                    int j, void *row)
{
    copy(f, d, values, (char *)(uintptr_t)tile, j, row, false);
}

void cache_row_write(pl_format f, int64_t d, bool values, void *tile, int j,
                     const void *row)
{
    copy(f, d, values, tile, j, (char *)(uintptr_t)row, true);
}
