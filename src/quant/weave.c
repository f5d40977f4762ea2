/* Packs blocks of sixteen rows at once into tiles (pack.h), for the formats
 * that most models use. This is faster than packing one row after another with
 * block.c and pack.c. A test checks that both give the same bits.
 *
 * Four dwords of each of four rows are transposed, so that a vector has the
 * same dword of each row, as a plane has. The rest is masks and shifts, which
 * are the same for all rows. Vectors have 16 bytes, which every machine
 * supports. Wider ones would not be faster, because packing is limited by
 * memory bandwidth. Operations on four vectors are written out without loops,
 * because compilers would keep vectors that are indexed in a loop in memory
 * instead of registers. */
#include "quant/block.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 16, PLANE = 4 * ROWS /* bytes of one dword of each row */ };

typedef uint32_t dwords __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(16)));

/* Four adjacent dwords of each of four rows. Vector a has the first dword of
 * each row, d the last; element r of a vector belongs to row r. */
struct quad {
    dwords a, b, c, d;
};

static const uint32_t low4 = 0x0F0F0F0F;

INLINE dwords load(const uint8_t *p)
{
    dwords x;

    memcpy(&x, p, 16);
    return x;
}

INLINE void store(uint8_t *p, dwords x)
{
    memcpy(p, &x, 16);
}

/* Loads bytes at .. at + 15 of four rows as four dwords each, and transposes
 * them so that each vector has one dword of each row. */
INLINE struct quad load4(const uint8_t *const *row, size_t at)
{
    dwords a = load(row[0] + at), b = load(row[1] + at);
    dwords c = load(row[2] + at), d = load(row[3] + at);
    dwords ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    dwords cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    struct quad x;

    x.a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    x.b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    x.c = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    x.d = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    return x;
}

/* Stores four vectors, each with one dword of four rows, to four adjacent
 * dwords of a plane. A plane has 16 rows; the caller stores to the others. */
INLINE void store4(uint8_t *plane, dwords a, dwords b, dwords c, dwords d)
{
    store(plane, a);
    store(plane + PLANE, b);
    store(plane + 2 * PLANE, c);
    store(plane + 3 * PLANE, d);
}

/* Stores the four vectors of x in four tiles, `step` bytes apart, at the same
 * offset in each. */
INLINE void store_tiles(uint8_t *p, int step, struct quad x)
{
    store(p, x.a);
    store(p + step, x.b);
    store(p + 2 * step, x.c);
    store(p + 3 * step, x.d);
}

/* A perfect shuffle of four vectors: interleaves the bytes of a and b with
 * those of c and d. It rotates the bits of the index of each byte, counted over
 * all four vectors, to the left by one. */
INLINE void shuffle_bytes(bytes *a, bytes *b, bytes *c, bytes *d)
{
#define ZIP(x, y, i)                                                           \
    __builtin_shufflevector(x, y, i, i + 16, i + 1, i + 17, i + 2, i + 18,     \
                            i + 3, i + 19, i + 4, i + 20, i + 5, i + 21,       \
                            i + 6, i + 22, i + 7, i + 23)
    bytes e = *a, f = *b, g = *c, h = *d;

    *a = ZIP(e, g, 0);
    *b = ZIP(e, g, 8);
    *c = ZIP(f, h, 0);
    *d = ZIP(f, h, 8);
#undef ZIP
}

INLINE void shuffle_halves(halves *a, halves *b, halves *c, halves *d)
{
#define ZIP(x, y, i)                                                           \
    __builtin_shufflevector(x, y, i, i + 8, i + 1, i + 9, i + 2, i + 10,       \
                            i + 3, i + 11)
    halves e = *a, f = *b, g = *c, h = *d;

    *a = ZIP(e, g, 0);
    *b = ZIP(e, g, 4);
    *c = ZIP(f, h, 0);
    *d = ZIP(f, h, 4);
#undef ZIP
}

/* Splits 16 dwords at x, one for each row, into their bytes: b0[16] receives
 * byte 0 of each row, b1[16] byte 1, and so on. */
INLINE void split_bytes(const uint8_t *x, uint8_t *b0, uint8_t *b1, uint8_t *b2,
                        uint8_t *b3)
{
    bytes a = (bytes)load(x), b = (bytes)load(x + 16);
    bytes c = (bytes)load(x + 32), d = (bytes)load(x + 48);

    shuffle_bytes(&a, &b, &c, &d);
    shuffle_bytes(&a, &b, &c, &d);
    shuffle_bytes(&a, &b, &c, &d);
    shuffle_bytes(&a, &b, &c, &d);
    store(b0, (dwords)a);
    store(b1, (dwords)b);
    store(b2, (dwords)c);
    store(b3, (dwords)d);
}

/* Splits 16 dwords at x, one for each row, into 16-bit halves: `out` receives
 * the low halves of all rows, then the high halves. `out` may be x. */
INLINE void split_halves(const uint8_t *x, uint8_t *out)
{
    halves a = (halves)load(x), b = (halves)load(x + 16);
    halves c = (halves)load(x + 32), d = (halves)load(x + 48);

    shuffle_halves(&a, &b, &c, &d);
    shuffle_halves(&a, &b, &c, &d);
    shuffle_halves(&a, &b, &c, &d);
    shuffle_halves(&a, &b, &c, &d);
    store(out, (dwords)a);
    store(out + 16, (dwords)b);
    store(out + 32, (dwords)c);
    store(out + 48, (dwords)d);
}

/* ---- packing float formats ----------------------------------------------- */

/* Transposes 4 n dwords of each of 16 rows, from byte `at` of each row. Handles
 * four rows to their end before the next four. If the distance between rows is
 * a power of two, lines of all rows fall into a few sets of the cache, which
 * hold lines of four rows but not of 16. */
INLINE void transpose(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < n; k++) {
            struct quad x = load4(row + 4 * i, at + (size_t)(16 * k));

            store4(out + 4 * PLANE * k + 16 * i, x.a, x.b, x.c, x.d);
        }
}

/* Transposes eight 16-bit elements of each of eight rows by three perfect
 * shuffles of the eight vectors. Each shuffle interleaves the first vector with
 * the fifth, the second with the sixth, and so on. */
INLINE void transpose_halves(const uint8_t *const *row, size_t at, uint8_t *out)
{
#define ZIP(x, y, i)                                                           \
    __builtin_shufflevector(x, y, i, i + 8, i + 1, i + 9, i + 2, i + 10,       \
                            i + 3, i + 11)
    halves x[8], y[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        x[i] = (halves)load(row[i] + at);
#define STEP(to, from)                                                         \
    to[0] = ZIP(from[0], from[4], 0), to[1] = ZIP(from[0], from[4], 4);        \
    to[2] = ZIP(from[1], from[5], 0), to[3] = ZIP(from[1], from[5], 4);        \
    to[4] = ZIP(from[2], from[6], 0), to[5] = ZIP(from[2], from[6], 4);        \
    to[6] = ZIP(from[3], from[7], 0), to[7] = ZIP(from[3], from[7], 4)
    STEP(y, x);
    STEP(x, y);
    STEP(y, x);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        store(out + 2 * ROWS * i, (dwords)y[i]);
#undef STEP
#undef ZIP
}

void quant_weave_16(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < n; k++)
            transpose_halves(row + 8 * i, at + (size_t)(16 * k),
                             out + 16 * ROWS * k + 16 * i);
}

void quant_weave_32(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    transpose(row, at, 2 * n, out);
}

/* ---- packing formats with blocks of 32 values ---------------------------- */

void quant_weave_q8_0(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    const uint32_t sign = 0x80808080;

    for (; n > 0; n--, at += 34, out += 34 * ROWS) {
        for (int r = 0; r < ROWS; r++)
            memcpy(out + 2 * r, row[r] + at, 2);
        for (int i = 0; i < 4; i++) {
            uint8_t *plane = out + 2 * ROWS + 16 * i;
            struct quad x = load4(row + 4 * i, at + 2);
            struct quad y = load4(row + 4 * i, at + 18);

            store4(plane, x.a ^ sign, x.b ^ sign, x.c ^ sign, x.d ^ sign);
            store4(plane + 4 * PLANE, y.a ^ sign, y.b ^ sign, y.c ^ sign,
                   y.d ^ sign);
        }
    }
}

/* Within a tile, a plane has the nibbles in the same order as the block, so
 * dwords are only transposed. */
void quant_weave_q4_0(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    for (; n > 0; n--, at += 18, out += 18 * ROWS) {
        for (int r = 0; r < ROWS; r++)
            memcpy(out + 2 * r, row[r] + at, 2);
        transpose(row, at + 2, 1, out + 2 * ROWS);
    }
}

void quant_weave_mxfp4(const uint8_t *const *row, size_t at, int n,
                       uint8_t *out)
{
    for (; n > 0; n--, at += 17, out += 17 * ROWS) {
        for (int r = 0; r < ROWS; r++)
            out[r] = row[r][at];
        transpose(row, at + 1, 1, out + ROWS);
    }
}

/* ---- packing formats with super-blocks ----------------------------------- */

/* Exchanges the bits of *y that `mask` selects with the bits of *x that are
 * `shift` positions further left. Source: Knuth, The Art of Computer
 * Programming, 7.1.3, delta swap. */
INLINE void exchange(dwords *x, dwords *y, int shift, uint32_t mask)
{
    dwords differ = ((*x >> shift) ^ *y) & mask;

    *x ^= differ << shift;
    *y ^= differ;
}

/* Packs the 4-bit codes of two tiles of four rows. In a block the two tiles
 * share 32 bytes: the low nibbles are codes of the first tile, the high nibbles
 * codes of the second. In the plane of each tile, low nibbles are values 0..15
 * and high nibbles values 16..31. The plane of the second tile is `next` bytes
 * after the first's. */
INLINE void nibble_tiles(const uint8_t *const *row, size_t at, uint8_t *plane,
                         int next)
{
    struct quad x = load4(row, at), y = load4(row, at + 16);

    exchange(&x.a, &y.a, 4, low4);
    exchange(&x.b, &y.b, 4, low4);
    exchange(&x.c, &y.c, 4, low4);
    exchange(&x.d, &y.d, 4, low4);
    store4(plane, x.a, x.b, x.c, x.d);
    store4(plane + next, y.a, y.b, y.c, y.d);
}

/* Unpacks the scales of a Q4_K or Q5_K block for 16 rows. Stores d and dmin at
 * `sup`, and the 6-bit S and M of each of eight tiles at the tile's start;
 * tiles are `step` bytes apart. */
INLINE void scales_k(const uint8_t *const *row, size_t at, uint8_t *sup,
                     uint8_t *tile, int step)
{
    const uint32_t low6 = 0x3F3F3F3F, top2 = 0x30303030;
    uint8_t s[4][PLANE]; /* scales: S of tiles 0..3, S of 4..7, M of 0..3, M of
                            4..7 */

    for (int i = 0; i < 4; i++) {
        struct quad x = load4(row + 4 * i, at);

        store(sup + 16 * i, x.a);
        store(s[0] + 16 * i, x.b & low6);
        store(s[1] + 16 * i, (x.d & low4) | (x.b >> 2 & top2));
        store(s[2] + 16 * i, x.c & low6);
        store(s[3] + 16 * i, (x.d >> 4 & low4) | (x.c >> 2 & top2));
    }
    split_halves(sup, sup);
    for (int k = 0; k < 4; k++) {
        uint8_t *to = tile + step * 4 * (k % 2) + ROWS * (k / 2);

        split_bytes(s[k], to, to + step, to + 2 * step, to + 3 * step);
    }
}

void quant_weave_q4_k(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    enum { SUP = 4 * ROWS, SUB = 2 * ROWS, TILE = SUB + 4 * PLANE };

    for (; n > 0; n--, at += 144, out += SUP + 8 * TILE) {
        scales_k(row, at, out, out + SUP, TILE);
        for (int i = 0; i < 4; i++)
            for (int t = 0; t < 8; t += 2)
                nibble_tiles(row + 4 * i, at + 16 + (size_t)(16 * t),
                             out + SUP + TILE * t + SUB + 16 * i, TILE);
    }
}

/* Transposes the bits of eight dwords, those of x and then of y, in every byte
 * and row separately: bit t of dword k becomes bit k of dword t. */
INLINE void transpose_bits(struct quad *x, struct quad *y)
{
    exchange(&x->a, &y->a, 4, low4);
    exchange(&x->b, &y->b, 4, low4);
    exchange(&x->c, &y->c, 4, low4);
    exchange(&x->d, &y->d, 4, low4);
    exchange(&x->a, &x->c, 2, 0x33333333);
    exchange(&x->b, &x->d, 2, 0x33333333);
    exchange(&y->a, &y->c, 2, 0x33333333);
    exchange(&y->b, &y->d, 2, 0x33333333);
    exchange(&x->a, &x->b, 1, 0x55555555);
    exchange(&x->c, &x->d, 1, 0x55555555);
    exchange(&y->a, &y->b, 1, 0x55555555);
    exchange(&y->c, &y->d, 1, 0x55555555);
}

void quant_weave_q5_k(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    enum { SUP = 4 * ROWS, SUB = 2 * ROWS, TILE = SUB + 5 * PLANE };

    for (; n > 0; n--, at += 176, out += SUP + 8 * TILE) {
        scales_k(row, at, out, out + SUP, TILE);
        for (int i = 0; i < 4; i++) {
            uint8_t *plane = out + SUP + SUB + 16 * i;
            struct quad x = load4(row + 4 * i, at + 16);
            struct quad y = load4(row + 4 * i, at + 32);

            transpose_bits(&x, &y);
            store_tiles(plane + 4 * PLANE, TILE, x);
            store_tiles(plane + 4 * TILE + 4 * PLANE, TILE, y);
            for (int t = 0; t < 8; t += 2)
                nibble_tiles(row + 4 * i, at + 48 + (size_t)(16 * t),
                             plane + TILE * t, TILE);
        }
    }
}

/* Unpacks the scales of a Q6_K block for 16 rows: stores d at `sup`, and S at
 * the start of each tile. Scale bytes 4k .. 4k + 3 belong to tiles 2k and 2k +
 * 1. */
INLINE void scales_q6_k(const uint8_t *const *row, size_t at, uint8_t *sup,
                        uint8_t *tile, int step)
{
    uint8_t s[4 * PLANE];

    for (int r = 0; r < ROWS; r++)
        memcpy(sup + 2 * r, row[r] + at + 208, 2);
    transpose(row, at + 192, 1, s);
    for (int k = 0; k < 4; k++) {
        uint8_t *to = tile + step * 2 * k;

        split_bytes(s + PLANE * k, to, to + ROWS, to + step, to + step + ROWS);
    }
}

/* Transposes pairs of bits of the four dwords of x, in every byte and row
 * separately: bits 2t and 2t + 1 of dword k become bits 2k and 2k + 1 of dword
 * t. */
INLINE void transpose_pairs(struct quad *x)
{
    exchange(&x->a, &x->c, 4, low4);
    exchange(&x->b, &x->d, 4, low4);
    exchange(&x->a, &x->b, 2, 0x33333333);
    exchange(&x->c, &x->d, 2, 0x33333333);
}

/* Packs the codes of four tiles, half a Q6_K block, for four rows. Low nibbles
 * of the 64 bytes at offset `low` belong to tiles 0 and 1, high nibbles to
 * tiles 2 and 3. The 32 bytes at offset `high` have the upper two bits of all
 * codes. */
INLINE void half_q6_k(const uint8_t *const *row, size_t low, size_t high,
                      uint8_t *plane, int step)
{
    struct quad x = load4(row, high), y = load4(row, high + 16);

    struct quad even = {x.a, x.c, y.a, y.c}, odd = {x.b, x.d, y.b, y.d};

    transpose_pairs(&even);
    transpose_pairs(&odd);
    store_tiles(plane + 4 * PLANE, step, even);
    store_tiles(plane + 5 * PLANE, step, odd);
    nibble_tiles(row, low, plane, 2 * step);
    nibble_tiles(row, low + 32, plane + step, 2 * step);
}

void quant_weave_q6_k(const uint8_t *const *row, size_t at, int n, uint8_t *out)
{
    enum { SUP = 2 * ROWS, SUB = 2 * ROWS, TILE = SUB + 6 * PLANE };

    for (; n > 0; n--, at += 210, out += SUP + 8 * TILE) {
        scales_q6_k(row, at, out, out + SUP, TILE);
        for (int i = 0; i < 4; i++) {
            uint8_t *plane = out + SUP + SUB + 16 * i;

            half_q6_k(row + 4 * i, at, at + 128, plane, TILE);
            half_q6_k(row + 4 * i, at + 64, at + 160, plane + 4 * TILE, TILE);
        }
    }
}
