/* Reads and writes rows of a cache's tiles, many positions at once.
 *
 * Keys are transposed in a tile. They are transposed back in registers, in
 * square blocks whose rows are one 8-byte word. In pairs of words, halves are
 * exchanged, then quarters, then eighths. Knuth, The Art of Computer
 * Programming 4A, section 7.1.3, transposes bits this way. */
#include "program/cache_tile.h"

#include "quant/format.h"

#include <string.h>

enum { Q8_BLOCK = 32, Q8_BYTES = 34 }; /* f16 scale, 32 signed bytes */

size_t cache_tile_bytes(pl_format f, int64_t d)
{
    switch (f) {
    case PL_F32:
        return (size_t)d * PAGE_TOKENS * 4;
    case PL_Q8_0:
        return (size_t)(d / Q8_BLOCK) * PAGE_TOKENS * Q8_BYTES;
    default:
        return (size_t)d * PAGE_TOKENS * 2;
    }
}

size_t memory_tile_bytes(const struct graph_node *memory)
{
    return memory->attr.state
               ? format_row_bytes(memory->format, memory->dim[2].n)
               : cache_tile_bytes(memory->format, memory->dim[2].n);
}

/* In each group of 2 * bits bits, exchanges the upper half of *a with the lower
 * half of *b. */
static inline void exchange(uint64_t *a, uint64_t *b, int bits)
{
    uint64_t mask = ~(uint64_t)0 / ((1ull << bits) + 1);
    uint64_t t = ((*a >> bits) ^ *b) & mask;

    *b ^= t;
    *a ^= t << bits;
}

/* Transposes a square block, whose rows are 8-byte words of 8 / size elements.
 * `size`, of an element in bytes, is a compile-time constant. */
static inline void turn_block(char *dst, size_t dst_ld, const char *src,
                              size_t src_ld, int size)
{
    uint64_t w[8];
    int n = 8 / size;

#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        memcpy(&w[i], src + (size_t)i * src_ld, 8);
#pragma GCC unroll 3
    for (int k = n / 2; k > 0; k /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            if (!(i & k))
                exchange(&w[i], &w[i + k], 8 * k * size);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        memcpy(dst + (size_t)i * dst_ld, &w[i], 8);
}

/* Computes dst[n_col][n_row] = src[n_row][n_col]. Rows are dst_ld and src_ld
 * bytes apart, and elements have `size` bytes. */
static inline void turn_size(char *dst, size_t dst_ld, const char *src,
                             size_t src_ld, int64_t n_row, int64_t n_col,
                             int size)
{
    int64_t n = 8 / size, row = n_row / n * n, col = n_col / n * n;

    for (int64_t j = 0; j < col; j += n)
        for (int64_t i = 0; i < row; i += n)
            turn_block(dst + (size_t)j * dst_ld + i * size, dst_ld,
                       src + (size_t)i * src_ld + j * size, src_ld, size);
    for (int64_t i = 0; i < n_row; i++) {
#pragma GCC unroll 4
        for (int64_t j = i < row ? col : 0; j < n_col; j++)
            memcpy(dst + (size_t)j * dst_ld + i * size,
                   src + (size_t)i * src_ld + j * size, (size_t)size);
    }
}

static void transpose(void *dst, size_t dst_ld, const void *src, size_t src_ld,
                      int64_t n_row, int64_t n_col, int size)
{
    if (size == 4)
        turn_size(dst, dst_ld, src, src_ld, n_row, n_col, 4);
    else if (size == 2)
        turn_size(dst, dst_ld, src, src_ld, n_row, n_col, 2);
    else
        turn_size(dst, dst_ld, src, src_ld, n_row, n_col, 1);
}

/* Copies n rows of `width` elements of `size` bytes. Rows are dst_ld and src_ld
 * bytes apart. */
static void copy(void *dst, size_t dst_ld, const void *src, size_t src_ld,
                 int64_t n, int64_t width, int size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)dst + (size_t)i * dst_ld,
               (const char *)src + (size_t)i * src_ld, (size_t)(width * size));
}

/* Reads elements [first .. first + width) of the positions j0 .. j0 + n - 1
 * from a plane, an array of `all` elements per position, into rows `ld` bytes
 * apart. plane_write copies in the other direction. */
static void plane_read(const char *plane, int64_t all, int64_t first,
                       int64_t width, int size, bool values, int j0, int n,
                       char *rows, size_t ld)
{
    if (values)
        copy(rows, ld, plane + (j0 * all + first) * size, (size_t)(all * size),
             n, width, size);
    else
        transpose(rows, ld, plane + (first * PAGE_TOKENS + j0) * size,
                  (size_t)(PAGE_TOKENS * size), width, n, size);
}

static void plane_write(char *plane, int64_t all, int64_t first, int64_t width,
                        int size, bool values, int j0, int n, const char *rows,
                        size_t ld)
{
    if (values)
        copy(plane + (j0 * all + first) * size, (size_t)(all * size), rows, ld,
             n, width, size);
    else
        transpose(plane + (first * PAGE_TOKENS + j0) * size,
                  (size_t)(PAGE_TOKENS * size), rows, ld, n, width, size);
}

void cache_tile_read(pl_format f, int64_t d, bool values, const void *tile,
                     int j0, int n, void *rows, size_t stride)
{
    int64_t n_block = d / Q8_BLOCK;
    const char *q = (const char *)tile + n_block * PAGE_TOKENS * 2;
    char *out = rows;

    if (f != PL_Q8_0) {
        plane_read(tile, d, 0, d, f == PL_F32 ? 4 : 2, values, j0, n, out,
                   stride);
        return;
    }
    for (int64_t b = 0; b < n_block; b++, out += Q8_BYTES) {
        plane_read(tile, n_block, b, 1, 2, values, j0, n, out, stride);
        plane_read(q, d, b * Q8_BLOCK, Q8_BLOCK, 1, values, j0, n, out + 2,
                   stride);
    }
}

void cache_tile_write(pl_format f, int64_t d, bool values, void *tile, int j0,
                      int n, const void *rows, size_t stride)
{
    int64_t n_block = d / Q8_BLOCK;
    char *q = (char *)tile + n_block * PAGE_TOKENS * 2;
    const char *in = rows;

    if (f != PL_Q8_0) {
        plane_write(tile, d, 0, d, f == PL_F32 ? 4 : 2, values, j0, n, in,
                    stride);
        return;
    }
    for (int64_t b = 0; b < n_block; b++, in += Q8_BYTES) {
        plane_write(tile, n_block, b, 1, 2, values, j0, n, in, stride);
        plane_write(q, d, b * Q8_BLOCK, Q8_BLOCK, 1, values, j0, n, in + 2,
                    stride);
    }
}
