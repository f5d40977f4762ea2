/* Reads and writes rows of a cache's tiles, many positions at once.
 *
 * Keys are stored transposed in a tile. To read and write rows of keys, they
 * are transposed in registers, in square blocks whose rows are 8-byte words. In
 * pairs of words, halves are exchanged, then quarters, then eighths. Knuth, The
 * Art of Computer Programming 4A, section 7.1.3, transposes bits this way. */
#include "program/cache_tile.h"

#include "quant/format.h"
#include "quant/pack.h"

#include <string.h>

size_t cache_tile_bytes(pl_format f, int64_t d)
{
    return format_row_bytes(f, d) * PAGE_TOKENS;
}

int cache_tile_parts(pl_format f, struct tile_part part[static TILE_PARTS])
{
    const struct format_info *fi = format_info(f);
    int n = 0;

    if (fi->block == 1) {
        part[0] = (struct tile_part){fi->block_bytes, 1};
        return 1;
    }
    part[n++] = (struct tile_part){2, 1};
    if (fi->pack->sub == PACK_SUB_F16_MIN)
        part[n++] = (struct tile_part){2, 1};
    if (fi->pack->high_bits > 0)
        part[n++] = (struct tile_part){1, fi->block / 8 * fi->pack->high_bits};
    part[n++] = (struct tile_part){1, fi->block / 8 * fi->pack->low_bits};
    return n;
}

size_t memory_tile_bytes(const struct graph_node *memory)
{
    return memory->attr.state
               ? format_row_bytes(memory->format, memory->dim[2].n)
               : cache_tile_bytes(memory->format, memory->dim[2].n);
}

/* In each group of 2 * bits bits of the words, exchanges the upper half of *a
 * with the lower half of *b. */
static inline void exchange(uint64_t *a, uint64_t *b, int bits)
{
    uint64_t mask = ~(uint64_t)0 / ((1ull << bits) + 1);
    uint64_t t = ((*a >> bits) ^ *b) & mask;

    *b ^= t;
    *a ^= t << bits;
}

/* Transposes a square block of elements. Its rows are 8-byte words, dst_ld or
 * src_ld bytes apart, of 8 / size elements each. `size`, the size of an element
 * in bytes, is a compile-time constant. */
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

/* Transposes a matrix: dst[n_col][n_row] = src[n_row][n_col]. Rows of dst are
 * dst_ld bytes apart, those of src src_ld bytes. Elements have `size` bytes. */
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

/* Copies n rows of `width` elements, which have `size` bytes each. Rows of dst
 * are dst_ld bytes apart, those of src src_ld bytes. */
static void copy(void *dst, size_t dst_ld, const void *src, size_t src_ld,
                 int64_t n, int64_t width, int size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)dst + (size_t)i * dst_ld,
               (const char *)src + (size_t)i * src_ld, (size_t)(width * size));
}

/* Reads elements [first .. first + width) of token positions j0 .. j0 + n - 1
 * from a plane, which is an array of `all` elements per position. Writes them
 * to n rows, `ld` bytes apart. plane_write copies in the other direction. */
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

/* A plane of a tile: an array that has the same part, such as the scale, of all
 * quantization blocks. In a row of the file's format the block's parts follow
 * each other instead. `at` is the offset in bytes of the plane in the tile,
 * `in_row` that of the part in the row's first block. The parts of adjacent
 * blocks are block_bytes apart in a row. */
struct plane {
    size_t at, in_row;
    int64_t all; /* number of elements of the plane per token position */
    /* number of elements that one block has in the plane; for float formats,
     * all elements of a row */
    int64_t width;
    int size;
};

/* Sets plane[] to the planes of a tile with format f and rows of d values.
 * Returns their number. */
static int planes(pl_format f, int64_t d, struct plane plane[static TILE_PARTS])
{
    struct tile_part part[TILE_PARTS];
    int n = cache_tile_parts(f, part);
    size_t at = 0, in_row = 0;

    for (int i = 0; i < n; i++) {
        int64_t all = d / format_info(f)->block * part[i].n;

        plane[i] = (struct plane){at, in_row, all, n > 1 ? part[i].n : all,
                                  part[i].size};
        at += (size_t)(all * part[i].size * PAGE_TOKENS);
        in_row += (size_t)(part[i].n * part[i].size);
    }
    return n;
}

void cache_tile_read(pl_format f, int64_t d, bool values, const void *tile,
                     int j0, int n, void *rows, size_t stride)
{
    struct plane p[TILE_PARTS];
    int n_plane = planes(f, d, p);

    for (int k = 0; k < n_plane; k++) {
        char *row = (char *)rows + p[k].in_row;

        for (int64_t i = 0; i < p[k].all; i += p[k].width) {
            plane_read((const char *)tile + p[k].at, p[k].all, i, p[k].width,
                       p[k].size, values, j0, n, row, stride);
            row += format_info(f)->block_bytes;
        }
    }
}

void cache_tile_write(pl_format f, int64_t d, bool values, void *tile, int j0,
                      int n, const void *rows, size_t stride)
{
    struct plane p[TILE_PARTS];
    int n_plane = planes(f, d, p);

    for (int k = 0; k < n_plane; k++) {
        const char *row = (const char *)rows + p[k].in_row;

        for (int64_t i = 0; i < p[k].all; i += p[k].width) {
            plane_write((char *)tile + p[k].at, p[k].all, i, p[k].width,
                        p[k].size, values, j0, n, row, stride);
            row += format_info(f)->block_bytes;
        }
    }
}

void cache_tile_copy(pl_format f, int64_t d, bool values, void *dst, int j,
                     const void *src, int src_j, int n)
{
    struct plane p[TILE_PARTS];
    int n_plane = planes(f, d, p);

    for (int k = 0; k < n_plane; k++) {
        /* bytes of a position that are contiguous in the plane, and number of
         * such runs */
        int64_t run = values ? p[k].all * p[k].size : p[k].size;
        int64_t n_run = values ? 1 : p[k].all;

        for (int64_t i = 0; i < n_run; i++) {
            size_t row = p[k].at + (size_t)(i * run * PAGE_TOKENS);

            memcpy((char *)dst + row + (size_t)(j * run),
                   (const char *)src + row + (size_t)(src_j * run),
                   (size_t)(n * run));
        }
    }
}
