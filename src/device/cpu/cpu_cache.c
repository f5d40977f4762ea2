/* Tiles of the paged cache: how a row of one position lies in them.
 *
 * The layouts are drawn in cpu_kernel.h. This file only moves bytes; numbers
 * are converted by the kernels that write and read the cache. */
#include "device/cpu/cpu_ops.h"

#include <string.h>

enum { Q8_BLOCK = 32, Q8_BYTES = 34 }; /* f16 scale, 32 signed bytes */

size_t cpu_cache_tile_bytes(pl_format f, int64_t d)
{
    switch (f) {
    case PL_F32:
        return (size_t)d * CPU_PAGE * 4;
    case PL_Q8_0:
        return (size_t)(d / Q8_BLOCK) * CPU_PAGE * Q8_BYTES;
    default:
        return (size_t)d * CPU_PAGE * 2;
    }
}

/* Where value i of position j lies, in elements of a plane [d][64] or
 * [64][d]. */
static int64_t at(bool values, int64_t d, int64_t i, int j)
{
    return values ? j * d + i : i * CPU_PAGE + j;
}

void cpu_cache_read_row(pl_format f, int64_t d, bool values, const void *tile,
                        int j, void *row)
{
    const uint8_t *q = (const uint8_t *)tile + d / Q8_BLOCK * CPU_PAGE * 2;
    uint8_t *out = row;

    switch (f) {
    case PL_F32:
        for (int64_t i = 0; i < d; i++)
            ((uint32_t *)row)[i] =
                ((const uint32_t *)tile)[at(values, d, i, j)];
        break;
    case PL_Q8_0:
        for (int64_t i = 0; i < d; i++) {
            int64_t b = i / Q8_BLOCK;

            if (i % Q8_BLOCK == 0)
                memcpy(out + b * Q8_BYTES,
                       (const uint16_t *)tile + at(values, d / Q8_BLOCK, b, j),
                       2);
            out[b * Q8_BYTES + 2 + i % Q8_BLOCK] = q[at(values, d, i, j)];
        }
        break;
    default:
        for (int64_t i = 0; i < d; i++)
            ((uint16_t *)row)[i] =
                ((const uint16_t *)tile)[at(values, d, i, j)];
    }
}

void cpu_cache_write_row(pl_format f, int64_t d, bool values, void *tile, int j,
                         const void *row)
{
    uint8_t *q = (uint8_t *)tile + d / Q8_BLOCK * CPU_PAGE * 2;
    const uint8_t *in = row;

    switch (f) {
    case PL_F32:
        for (int64_t i = 0; i < d; i++)
            ((uint32_t *)tile)[at(values, d, i, j)] =
                ((const uint32_t *)row)[i];
        break;
    case PL_Q8_0:
        for (int64_t i = 0; i < d; i++) {
            int64_t b = i / Q8_BLOCK;

            if (i % Q8_BLOCK == 0)
                memcpy((uint16_t *)tile + at(values, d / Q8_BLOCK, b, j),
                       in + b * Q8_BYTES, 2);
            q[at(values, d, i, j)] = in[b * Q8_BYTES + 2 + i % Q8_BLOCK];
        }
        break;
    default:
        for (int64_t i = 0; i < d; i++)
            ((uint16_t *)tile)[at(values, d, i, j)] =
                ((const uint16_t *)row)[i];
    }
}
