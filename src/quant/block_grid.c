/* Where each bit is in the blocks of IQ1, IQ2 and IQ3, for both directions
 * (block.h). The comment before a function names the fields of its block, as in
 * block.c.
 *
 * These formats store no codes. For each *group* of eight values, or of four in
 * IQ3, they store an index of a table entry (grid.h) that has the codes of the
 * group. Each value also has a sign, which becomes the highest bit of its code
 * in a lane. */
#include "quant/block_bits.h"
#include "quant/grid.h"

struct grid {
    const uint16_t *entry; /* [n] the codes of a group for each index,
                              ascending */
    int n;
    int width; /* bits of each code in an entry */
    int sign;  /* number of the sign bit in the code of a lane */
};

static const struct grid iq1 = {quant_grid_iq1, 2048, 2, 2};
static const struct grid iq2_xxs = {quant_grid_iq2_xxs, 256, 2, 2};
static const struct grid iq2_xs = {quant_grid_iq2_xs, 512, 2, 2};
static const struct grid iq2_s = {quant_grid_iq2_s, 1024, 2, 2};
static const struct grid iq3_xxs = {quant_grid_iq3_xxs, 256, 4, 3};
static const struct grid iq3_s = {quant_grid_iq3_s, 512, 4, 3};

const uint16_t *quant_grid(pl_format f, size_t *bytes)
{
    static const struct grid *const of[PL_FORMAT_COUNT] = {
        [PL_IQ1_S] = &iq1,     [PL_IQ1_M] = &iq1,   [PL_IQ2_XXS] = &iq2_xxs,
        [PL_IQ2_XS] = &iq2_xs, [PL_IQ2_S] = &iq2_s, [PL_IQ3_XXS] = &iq3_xxs,
        [PL_IQ3_S] = &iq3_s,
    };

    *bytes = of[f] ? (size_t)of[f]->n * sizeof(uint16_t) : 0;
    return of[f] ? of[f]->entry : NULL;
}

/* Returns the index of the last table entry that is not greater than `entry`;
 * if `entry` is in the table, its own index. */
static unsigned find(const struct grid *g, unsigned entry)
{
    int lo = 0, hi = g->n - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;

        if (g->entry[mid] <= entry)
            lo = mid;
        else
            hi = mid - 1;
    }
    return (unsigned)lo;
}

/* Computes the codes of a group for a lane from the index of its table entry
 * and its signs. Bit i of `signs` is the sign of value i. */
static inline void group_get(const struct grid *g, unsigned index,
                             unsigned signs, uint8_t *c)
{
    const unsigned mask = (1u << g->sign) - 1;

    for (int i = 0; i < 16 / g->width; i++)
        c[i] = (uint8_t)((g->entry[index] >> g->width * i & mask) |
                         (signs >> i & 1) << g->sign);
}

/* Computes the index of the table entry and the signs of a group from its codes
 * in a lane: the inverse of group_get. *signs must be 0 before. */
static inline void group_put(const struct grid *g, unsigned *index,
                             unsigned *signs, const uint8_t *c)
{
    const unsigned mask = (1u << g->sign) - 1;
    unsigned entry = 0;

    for (int i = 0; i < 16 / g->width; i++) {
        entry |= (c[i] & mask) << g->width * i;
        *signs |= (unsigned)(c[i] >> g->sign & 1) << i;
    }
    *index = find(g, entry);
}

/* Copies a bit field between a word of a block, `bytes` bytes at b, and *v: to
 * *v, or to the word if `put`. The field begins at bit `shift` of the word and
 * at bit `at` of *v; `mask` has as many ones as the field has bits. Copying to
 * *v is an OR, so the bits there must be zero before. */
static inline void part(uint8_t *b, size_t bytes, int shift, unsigned mask,
                        unsigned *v, int at, bool put)
{
    uint32_t word = 0;

    memcpy(&word, b, bytes);
    if (!put) {
        *v |= (word >> shift & mask) << at;
        return;
    }
    word = (word & ~(mask << shift)) | (*v >> at & mask) << shift;
    memcpy(b, &word, bytes);
}

/* Copies the signs of eight values to or from bit `shift` of a word of a block.
 * Only seven are stored. The eighth follows from them, because the number of
 * minus signs in a group is always even. */
static inline void even_signs(uint8_t *b, size_t bytes, int shift,
                              unsigned *signs, bool put)
{
    unsigned x;

    part(b, bytes, shift, 127, signs, 0, put);
    x = *signs ^ *signs >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    if (!put)
        *signs |= (x & 1) << 7;
}

/* Copies tile t of an IQ1_S block to lane l, or back if `put`. The block is f16
 * d; u8 qs[32]; u16 qh[8]. A tile has four groups and one word of qh. The index
 * of a group has 8 bits in qs and 3 in qh. The upper 4 bits of qh are 3 bits s
 * and a bit `down`. A value is d (2 s + 1) (code - 1 + 1/8), or with - 1/8
 * instead if `down` is set. In units of d / 8, S is 8 (2 s + 1), and M is 7 (2
 * s + 1) or, if `down`, 9 (2 s + 1). */
void quant_move_iq1_s(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block, *qh = b + 34 + 2 * t;
    unsigned s = l->sub[0] / 16u, down = l->sub[1] > l->sub[0];

    half(b, &l->sup[0], put);
    part(qh, 2, 12, 7, &s, 0, put);
    part(qh, 2, 15, 1, &down, 0, put);
    if (!put) {
        l->sub[0] = (uint16_t)(8 * (2 * s + 1));
        l->sub[1] = (uint16_t)((down ? 9 : 7) * (2 * s + 1));
    }
    for (int i = 0; i < 4; i++) {
        unsigned index = 0, none = 0;

        if (put)
            group_put(&iq1, &index, &none, l->c + 8 * i);
        part(b + 2 + 4 * t + i, 1, 0, 255, &index, 0, put);
        part(qh, 2, 3 * i, 7, &index, 8, put);
        if (!put)
            group_get(&iq1, index, none, l->c + 8 * i);
    }
}

/* Copies tile t of an IQ1_M block to lane l, or back if `put`. The block is u8
 * qs[32], qh[16]; u16 sc[4]. A group has a nibble of qh: 3 bits of its index,
 * and a bit `down` as in IQ1_S, which becomes the sign of its codes here. Each
 * word of sc has four scales of 3 bits. The upper 4 bits of the four words form
 * the f16 d. */
void quant_move_iq1_m(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block, *sc = b + 48;
    unsigned d = l->sup[0], s = l->sub[0];

    for (int i = 0; i < 4; i++)
        part(sc + 2 * i, 2, 12, 15, &d, 4 * i, put);
    for (int h = 0; h < 2; h++)
        part(sc + t / 2 * 2, 2, 6 * (t % 2) + 3 * h, 7, &s, 4 * h, put);
    l->sup[0] = (uint16_t)d;
    l->sub[0] = (uint16_t)s;
    for (int i = 0; i < 4; i++) {
        uint8_t *qh = b + 32 + 2 * t + i / 2;
        unsigned index = 0, signs = 0, down;

        if (put)
            group_put(&iq1, &index, &signs, l->c + 8 * i);
        down = signs & 1;
        part(b + 4 * t + i, 1, 0, 255, &index, 0, put);
        part(qh, 1, i % 2 * 4, 7, &index, 8, put);
        part(qh, 1, i % 2 * 4 + 3, 1, &down, 0, put);
        if (!put)
            group_get(&iq1, index, down ? 255 : 0, l->c + 8 * i);
    }
}

/* Copies one 4-bit scale, which both halves of a tile share, to or from bit
 * `shift` of a word of a block. */
static inline void one_scale(uint8_t *b, size_t bytes, int shift,
                             struct quant_lane *l, bool put)
{
    unsigned s = l->sub[0] & 15;

    part(b, bytes, shift, 15, &s, 0, put);
    l->sub[0] = (uint16_t)(s | s << 4);
}

/* Copies tile t of an IQ2_XXS block to lane l, or back if `put`. The block is
 * f16 d; then for each of 8 tiles u8 qs[4] and u32 w. qs has the indices of
 * four groups. The word w has 7 bits of signs for each of four groups, and a
 * scale of 4 bits. */
void quant_move_iq2_xxs(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block, *qs = b + 2 + 8 * t;

    half(b, &l->sup[0], put);
    one_scale(qs + 4, 4, 28, l, put);
    for (int i = 0; i < 4; i++) {
        unsigned index = 0, signs = 0;

        if (put)
            group_put(&iq2_xxs, &index, &signs, l->c + 8 * i);
        part(qs + i, 1, 0, 255, &index, 0, put);
        even_signs(qs + 4, 4, 7 * i, &signs, put);
        if (!put)
            group_get(&iq2_xxs, index, signs, l->c + 8 * i);
    }
}

/* Copies tile t of an IQ2_XS block to lane l, or back if `put`. The block is
 * f16 d; u16 qs[32]; u8 sc[8]. A word of qs has the 9-bit index and 7 signs of
 * a group. A byte of sc has a scale of 4 bits for each half of a tile. */
void quant_move_iq2_xs(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    half(b, &l->sup[0], put);
    scale(b + 66 + t, 0, 255, &l->sub[0], 0, put);
    for (int i = 0; i < 4; i++) {
        uint8_t *qs = b + 2 + 8 * t + 2 * i;
        unsigned index = 0, signs = 0;

        if (put)
            group_put(&iq2_xs, &index, &signs, l->c + 8 * i);
        part(qs, 2, 0, 511, &index, 0, put);
        even_signs(qs, 2, 9, &signs, put);
        if (!put)
            group_get(&iq2_xs, index, signs, l->c + 8 * i);
    }
}

/* Copies tile t of an IQ2_S block to lane l, or back if `put`. The block is f16
 * d; u8 qs[32], signs[32], qh[8], sc[8]. The index of a group has 8 bits in qs
 * and 2 in qh. A byte of sc has a scale of 4 bits for each half of a tile. */
void quant_move_iq2_s(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    half(b, &l->sup[0], put);
    scale(b + 74 + t, 0, 255, &l->sub[0], 0, put);
    for (int i = 0; i < 4; i++) {
        unsigned index = 0, signs = 0;

        if (put)
            group_put(&iq2_s, &index, &signs, l->c + 8 * i);
        part(b + 2 + 4 * t + i, 1, 0, 255, &index, 0, put);
        part(b + 34 + 4 * t + i, 1, 0, 255, &signs, 0, put);
        part(b + 66 + t, 1, 2 * i, 3, &index, 8, put);
        if (!put)
            group_get(&iq2_s, index, signs, l->c + 8 * i);
    }
}

/* Copies tile t of an IQ3_XXS block to lane l, or back if `put`. The block is
 * f16 d; u8 qs[64], the indices of groups; u32 w[8]. A word w has four times 7
 * bits of signs, each for the eight values of two groups, and a scale of 4
 * bits. */
void quant_move_iq3_xxs(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block, *w = b + 66 + 4 * t;

    half(b, &l->sup[0], put);
    one_scale(w, 4, 28, l, put);
    for (int i = 0; i < 4; i++) {
        uint8_t *qs = b + 2 + 8 * t + 2 * i, *c = l->c + 8 * i;
        unsigned index[2] = {0, 0}, low = 0, high = 0, signs;

        if (put) {
            group_put(&iq3_xxs, &index[0], &low, c);
            group_put(&iq3_xxs, &index[1], &high, c + 4);
        }
        signs = low | high << 4;
        part(qs, 1, 0, 255, &index[0], 0, put);
        part(qs + 1, 1, 0, 255, &index[1], 0, put);
        even_signs(w, 4, 7 * i, &signs, put);
        if (!put) {
            group_get(&iq3_xxs, index[0], signs, c);
            group_get(&iq3_xxs, index[1], signs >> 4, c + 4);
        }
    }
}

/* Copies tile t of an IQ3_S block to lane l, or back if `put`. The block is f16
 * d; u8 qs[64], qh[8], signs[32], sc[4]. The index of a group has 8 bits in qs
 * and one in qh. sc has a scale of 4 bits for each tile. */
void quant_move_iq3_s(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    half(b, &l->sup[0], put);
    one_scale(b + 106 + t / 2, 1, t % 2 * 4, l, put);
    for (int i = 0; i < 8; i++) {
        unsigned index = 0, signs = 0;

        if (put)
            group_put(&iq3_s, &index, &signs, l->c + 4 * i);
        part(b + 2 + 8 * t + i, 1, 0, 255, &index, 0, put);
        part(b + 66 + t, 1, i, 1, &index, 8, put);
        part(b + 74 + 4 * t + i / 2, 1, i % 2 * 4, 15, &signs, 0, put);
        if (!put)
            group_get(&iq3_s, index, signs, l->c + 4 * i);
    }
}
