/* Packed weights: the in-memory form that all kernels read.
 *
 * A device stores its part of a matrix, [n, k], in *panels* of 16 rows. A panel
 * is divided along k into *tiles*. A tile has the values of one or 32 adjacent
 * k of all 16 rows, so that a vector lane is a row and no kernel ever sums
 * across lanes:
 *
 *   float formats    1 value per tile: 16 elements, row 0 first
 *   quantized        32 values per tile, in the planes below
 *
 * Formats with super-blocks of 256 (K-quants, TQ, IQ except IQ4_NL) store their
 * super scales before the tiles of the super-block. A *chunk* is the tiles of
 * one super-block that belong to one rank: [super scales][tile]...[tile]. A
 * rank's part of k may begin and end at any multiple of 32 values; if that is
 * inside a super-block, both ranks store the super scales. For other formats a
 * chunk is a rank's whole part of k, without super scales. The last panel is
 * padded with zero rows.
 *
 * One quantized tile, in this order (rows r = 0..15, values v = 0..31; "codes"
 * are the unsigned integers of the format's definition, before any bias or
 * table look-up):
 *
 *   sub scales   n_sub bytes for each row, plane by plane: sub[j][r]
 *                (Q4_K: j = 0 the 6-bit scale, j = 1 the 6-bit min; formats
 *                with one f16 scale per block: two bytes little-endian,
 *                stored as 16 consecutive u16)
 *   low plane    4-bit codes: 256 bytes. Byte [q][r][b], q = 0..3, b = 0..3:
 *                low nibble = value 4q+b, high nibble = value 16+4q+b
 *                8-bit codes (Q8_0): 512 bytes, byte [q][r][b], q = 0..7:
 *                value 4q+b, stored as unsigned (value + 128)
 *                2-bit codes (Q2_K, Q3_K's low bits): 128 bytes, byte
 *                [q][r][b], q = 0..1; bits 2i..2i+1 = value 8i+4q+b, i = 0..3
 *   high plane   bits above the low plane. 2 bits (Q6_K): 128 bytes like the
 *                2-bit plane above. 1 bit (Q5_*, Q3_K): 64 bytes, byte [r][b],
 *                b = 0..3: bit i = value 4i+b, i = 0..7
 *
 * A dword of a plane is therefore four consecutive k of one row, and 64 bytes
 * are such dwords of the 16 rows: an operand of vpdpbusd.
 *
 * The value of code c in row r, value v of a tile (h = v / 16):
 *
 *      value = d[h] * S[h] * L(c)  -  dmin * M[h]
 *
 * L(c), the *level*, is an integer: c - bias, or table[c]. S and M are the
 * integers given by the sub scales, or 1 if the format has none. d and dmin are
 * floats, with d[0] = d[1] except in NVFP4. pack_scales returns them for a row,
 * for the kernel sets generic and reference. Every packing has an inverse:
 * unpack_row restores the format's own bytes (for TQ1_0 see block.h).
 *
 * A packed row is as large as in the file, with these exceptions. In files,
 * IQ1, IQ2 and IQ3 store an index into a table (grid.h) for eight or four
 * codes. Packing stores the codes themselves, with 2 bits in IQ1_S, 3 in IQ1_M
 * and IQ2, and 4 in IQ3. The base-3 digits of TQ1_0 become codes of 2 bits.
 *
 *      bits per value IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0
 *      in the file     1.56  1.75    2.06   2.31  2.56    3.06  3.44  1.69
 *      packed          2.56  3.31    3.31   3.31  3.31    4.31  4.31  2.06 */
#ifndef QUANT_PACK_H
#define QUANT_PACK_H

#include "quant/block.h"
#include "quant/format.h"

enum { PACK_ROWS = 16 };

/* The super scales at the start of a chunk, which has those of 16 rows. */
enum pack_sup {
    PACK_SUP_NONE,
    PACK_SUP_D, /* an f16 d for each row: u16 d[16] */
    /* As PACK_SUP_D, but d and dmin of a row are both an eighth of the stored
     * number. */
    PACK_SUP_D_8TH,
    PACK_SUP_D_DMIN, /* an f16 d and dmin for each row: u16 d[16], dmin[16] */
};

/* The sub scales of a tile, which has those of 16 rows. f16 numbers are stored
 * as u16; s8 and u8 are signed and unsigned bytes. d, S and M are those of the
 * formula at the top of this file. */
enum pack_sub {
    PACK_SUB_NONE,    /* no sub scales: TQ1_0, TQ2_0 */
    PACK_SUB_F16,     /* an f16 d for each row, u16 d[16]: Q8_0, Q4_0, Q5_0,
                         IQ4_NL */
    PACK_SUB_F16_MIN, /* An f16 d and m for each row, u16 d[16], m[16]: Q4_1,
                         Q5_1. A value is d * code + m. */
    PACK_SUB_E8M0,    /* An exponent for each row, u8 e[16]: MXFP4. d is
                         2^(e-128), because levels are doubled. */
    PACK_SUB_S8,      /* S for each row, s8 sc[16]: IQ4_XS */
    PACK_SUB_S8X2, /* S[h] for each half h and row, s8 sc[2][16]: Q6_K, Q3_K */
    PACK_SUB_U8_MIN,   /* S and M for each row, u8 sc[16], m[16]: Q4_K, Q5_K,
                          IQ1_S */
    PACK_SUB_U8X2_MIN, /* For each half h and row a byte, u8 s[2][16]: Q2_K. The
                          low nibble is S[h], the high nibble M[h]. */
    /* A byte for each row, u8 s[16]: IQ1_M, IQ2, IQ3. S[h] is 2 n + 1, where n
     * is the low nibble for half h = 0 of a tile and the high nibble for h =
     * 1. */
    PACK_SUB_ODD4X2,
    PACK_SUB_UE4M3X2, /* d[h] for each half h and row as UE4M3, u8 d[2][16]:
                         NVFP4 */
};

/* The packing rule of one format (format_info.pack). */
struct pack_rule {
    /* number of values of each row in a tile: 1 in float formats, else 32 */
    int tile_values;
    /* bits of each code in the low plane: 2, 4 or 8; in float formats, bits of
     * an element: 16 or 32 */
    int low_bits;
    int high_bits; /* bits of each code in the high plane: 0, 1 or 2 */
    enum pack_sub sub;
    enum pack_sup sup;
    /* If `table` is NULL, the level L(c) of code c is c - bias. */
    int bias;
    const int8_t *table; /* [16]: level L(c) of each code c; NULL to use
                            `bias` */
    int tile_bytes, sup_bytes;
    /* Bytes of the sub scales and of the low plane of a tile. They come first,
     * so the low plane is at offset sub_bytes, the high plane at sub_bytes +
     * low_bytes. */
    int sub_bytes, low_bytes;
    /* Copies a tile from a block to a lane or back; NULL for float formats. */
    quant_move *move;
    /* Packs blocks of 16 rows at once; NULL if there is only `move`. */
    quant_weave *weave;
};

/* The position of a chunk (defined at the top of this file) in a row of the
 * whole matrix and in a packed panel. k counts values along a row. */
struct pack_chunk {
    int64_t k;     /* index of the chunk's first value in the whole row */
    int32_t n;     /* number of values; a multiple of 32 if quantized */
    int32_t rank;  /* rank that owns its values; 0 if rows are not split */
    int64_t k_loc; /* index of its first value in the device's part of the
                      row */
    size_t off;    /* offset of the chunk in each panel, in bytes */
};

/* The packed form of a device's part of a matrix. All experts of a weight have
 * the same one. */
struct pack {
    pl_format format;
    const struct pack_rule *rule;
    int64_t n_row;  /* number of rows on this device */
    int64_t k;      /* number of values of each row on this device */
    int64_t n_full; /* number of values of a row of the whole matrix */
    int n_chunk;
    const struct pack_chunk *chunk; /* [n_chunk], ascending by k_loc: the chunks
                                       of each row */
    size_t panel_bytes;  /* size of a panel in bytes, a multiple of 64 */
    size_t matrix_bytes; /* size of all panels in bytes */
};

/* Values k .. k + n - 1 of every row of a matrix, which this device has for one
 * rank. Arrays of spans are ascending by k. If rows are not split there is one
 * span, {0, length of a row, 0}. In quantized formats, k and n are multiples of
 * 32. */
struct pack_span {
    int64_t k, n;
    int32_t rank;
};

/* pack_init() fills *p for a device that has the given spans of each row. It
 * lists their chunks in `chunks`, which becomes p->chunk and must have space
 * for pack_max_chunks(f, span, n_span) elements. It cannot fail, because the
 * plan has checked the spans. */
int pack_max_chunks(pl_format f, const struct pack_span *span, int n_span);
void pack_init(struct pack *p, pl_format f, int64_t n_row, int64_t n_full,
               const struct pack_span *span, int n_span,
               struct pack_chunk *chunks);

/* Sets *out to the longest span that begins with chunk i and for which
 * pack_init() would make exactly the chunks from i on. Returns the index of the
 * first chunk after the span. */
int pack_span_at(const struct pack *p, int i, struct pack_span *out);

/* Packs one row of a matrix into lane 0..15 of `panel`. `row` has the whole row
 * in the format's own blocks, of which only those in p's chunks are read.
 * `panel` must be all zeros before its first row. Lanes share no byte, so
 * threads may pack different rows of a panel at the same time. */
void pack_row(const struct pack *p, void *panel, int lane, const void *row);

/* Packs all 16 rows of a panel, and zeroes its padding. rows[i] is the row of
 * lane i as for pack_row, NULL for a row of zeros. The bits are those of 16
 * calls of pack_row, but it is several times faster. `ahead` are the 16 rows
 * that will be packed next, to be prefetched; NULL if there are none. */
void pack_panel(const struct pack *p, void *panel, const void *const *rows,
                const void *const *ahead);

/* The inverse of pack_row: writes the values of p's chunks to `row`, as blocks
 * of the format. Where p's chunks have only a part of a block, its other codes
 * are not changed, but the scales that the whole block shares are written. Two
 * threads must not write to the same row. */
void unpack_row(const struct pack *p, const void *panel, int lane, void *row);

/* The scales of the 32 values that one row has in a tile, as numbers.
 * pack_scales() reads them from the tile at `tile`, in the chunk at `sup`. */
struct pack_scales {
    float d[2], dmin;
    /* S and M of each half of 16 values; M is 0 if the format has no minima */
    int s[2], m[2];
};
void pack_scales(const struct pack_rule *rule, const void *sup,
                 const void *tile, int lane, struct pack_scales *out);

/* Computes 32 float values from the codes c[32] and the scales of one row of a
 * tile: d * S * L(c) - dmin * M. d * S is rounded first, then the product, then
 * the difference. In formats with PACK_SUP_D_8TH all these operations are
 * exact. */
void pack_values(const struct pack_rule *rule, const struct pack_scales *s,
                 const uint8_t *c, float *dst);

/* Converts the raw scales of lane l, which was read from a block, to
 * numbers. */
void pack_lane_scales(const struct pack_rule *rule, const struct quant_lane *l,
                      struct pack_scales *out);

/* Reads the 32 codes that row `lane` has in a tile of a quantized format. */
void pack_codes(const struct pack_rule *rule, const void *tile, int lane,
                uint8_t *c);

/* Decodes values k_loc .. k_loc + n - 1 of row `lane` of a panel to floats,
 * with the same bits as the format's decode(). Used to look up embeddings, to
 * read weights back, and by the reference kernels. */
void pack_decode(const struct pack *p, const void *panel, int lane,
                 int64_t k_loc, int64_t n, float *dst);

/* Returns the address of tile i of chunk c in a panel. The tile begins at value
 * c->k_loc + i * tile_values. */
static inline const uint8_t *pack_tile(const struct pack *p, const void *panel,
                                       const struct pack_chunk *c, int64_t i)
{
    return (const uint8_t *)panel + c->off + p->rule->sup_bytes +
           i * p->rule->tile_bytes;
}

#endif
