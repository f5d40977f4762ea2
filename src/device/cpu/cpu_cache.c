/* Reads and writes one position's row of a tile of the paged cache.
 *
 * The layouts of tiles are described in program/cache_tile.h. This file only
 * copies bytes; the kernels that write and read the cache convert numbers. */
#include "device/cpu/cpu_ops.h"

#include <string.h>

enum { Q8_BLOCK = 32, Q8_BYTES = 34 }; /* f16 scale, 32 signed bytes */

/* Reads elements i .. i + n - 1, of `size` bytes, of position j to `row`.
 * `plane` is [width][64] for keys, or [64][width] for values. */
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
    const char *q = (const char *)tile + d / Q8_BLOCK * PAGE_TOKENS * 2;
    char *out = row;

    if (f != PL_Q8_0) {
        get(tile, f == PL_F32 ? 4 : 2, d, values, j, 0, d, row);
        return;
    }
    for (int64_t b = 0; b < d / Q8_BLOCK; b++, out += Q8_BYTES) {
        get(tile, 2, d / Q8_BLOCK, values, j, b, 1, out);
        get(q, 1, d, values, j, b * Q8_BLOCK, Q8_BLOCK, out + 2);
    }
}

void cpu_cache_write_row(pl_format f, int64_t d, bool values, void *tile, int j,
                         const void *row)
{
    char *q = (char *)tile + d / Q8_BLOCK * PAGE_TOKENS * 2;
    const char *in = row;

    if (f != PL_Q8_0) {
        put(tile, f == PL_F32 ? 4 : 2, d, values, j, 0, d, row);
        return;
    }
    for (int64_t b = 0; b < d / Q8_BLOCK; b++, in += Q8_BYTES) {
        put(tile, 2, d / Q8_BLOCK, values, j, b, 1, in);
        put(q, 1, d, values, j, b * Q8_BLOCK, Q8_BLOCK, in + 2);
    }
}
