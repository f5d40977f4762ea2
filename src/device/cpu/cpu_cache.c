/* Copies the keys or values of one position and head to and from a tile (one
 * page, one head) of the paged cache.
 *
 * The layouts of tiles are described in program/cache_tile.h. This file only
 * copies bytes; the kernels that write and read the cache convert numbers. */
#include "device/cpu/cpu_ops.h"
#include "program/cache_tile.h"
#include "quant/format.h"

#include <string.h>

/* Copies elements i .. i + n - 1, of `size` bytes each, of position j of a
 * cache tile to `row`. `plane` is an array of the tile: [width][64] elements
 * for keys, [64][width] for values. */
static void get(const void *plane, size_t size, int64_t width, bool values,
                int j, int64_t i, int64_t n, void *row)
{
    const char *p = plane;

    if (values) {
        memcpy(row, p + (size_t)(j * width + i) * size, (size_t)n * size);
        return;
    }
    p += (size_t)(i * PAGE_TOKENS + j) * size;
    for (int64_t k = 0; k < n; k++) {
        if (size == 4)
            memcpy((char *)row + 4 * k, p + 4 * k * PAGE_TOKENS, 4);
        else if (size == 2)
            memcpy((char *)row + 2 * k, p + 2 * k * PAGE_TOKENS, 2);
        else
            ((char *)row)[k] = p[k * PAGE_TOKENS];
    }
}

static void put(void *plane, size_t size, int64_t width, bool values, int j,
                int64_t i, int64_t n, const void *row)
{
    char *p = plane;

    if (values) {
        memcpy(p + (size_t)(j * width + i) * size, row, (size_t)n * size);
        return;
    }
    p += (size_t)(i * PAGE_TOKENS + j) * size;
    for (int64_t k = 0; k < n; k++) {
        if (size == 4)
            memcpy(p + 4 * k * PAGE_TOKENS, (const char *)row + 4 * k, 4);
        else if (size == 2)
            memcpy(p + 2 * k * PAGE_TOKENS, (const char *)row + 2 * k, 2);
        else
            p[k * PAGE_TOKENS] = ((const char *)row)[k];
    }
}

void cpu_cache_read_row(pl_format f, int64_t d, bool values, const void *tile,
                        int j, void *row)
{
    int64_t n_block = d / format_info(f)->block;
    struct tile_part p[TILE_PARTS];
    const char *plane = tile;
    size_t at = 0;

    for (int k = 0, n = cache_tile_parts(f, p); k < n; k++) {
        size_t bytes = (size_t)(p[k].n * p[k].size);

        for (int64_t b = 0; b < n_block; b++)
            get(plane, (size_t)p[k].size, n_block * p[k].n, values, j,
                b * p[k].n, p[k].n,
                (char *)row + b * format_info(f)->block_bytes + at);
        plane += (size_t)n_block * bytes * PAGE_TOKENS;
        at += bytes;
    }
}

void cpu_cache_write_row(pl_format f, int64_t d, bool values, void *tile, int j,
                         const void *row)
{
    int64_t n_block = d / format_info(f)->block;
    struct tile_part p[TILE_PARTS];
    char *plane = tile;
    size_t at = 0;

    for (int k = 0, n = cache_tile_parts(f, p); k < n; k++) {
        size_t bytes = (size_t)(p[k].n * p[k].size);

        for (int64_t b = 0; b < n_block; b++)
            put(plane, (size_t)p[k].size, n_block * p[k].n, values, j,
                b * p[k].n, p[k].n,
                (const char *)row + b * format_info(f)->block_bytes + at);
        plane += (size_t)n_block * bytes * PAGE_TOKENS;
        at += bytes;
    }
}
