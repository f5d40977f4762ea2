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

/* Format of the super scales at the start of a chunk, for 16 rows. */
enum pack_sup {
    PACK_SUP_NONE,
    PACK_SUP_D,      /* u16 d[16] (f16) */
    PACK_SUP_D_8TH,  /* like PACK_SUP_D, but d and dmin are d[] / 8 */
    PACK_SUP_D_DMIN, /* u16 d[16], u16 dmin[16] (f16) */
};

/* Format of the sub scales of a tile, for 16 rows. f16 values are stored as
 * u16; s8 and u8 are signed and unsigned bytes. d, S and M are those of the
 * formula at the top. */
enum pack_sub {
    PACK_SUB_NONE,     /* TQ1_0, TQ2_0 */
    PACK_SUB_F16,      /* u16 d[16]: Q8_0, Q4_0, Q5_0, IQ4_NL */
    PACK_SUB_F16_MIN,  /* u16 d[16], m[16]; value = d * code + m: Q4_1, Q5_1 */
    PACK_SUB_E8M0,     /* u8 e[16]; d = 2^(e-128), L doubled: MXFP4 */
    PACK_SUB_S8,       /* s8 sc[16]: IQ4_XS */
    PACK_SUB_S8X2,     /* s8 sc[2][16], one per half h: Q6_K, Q3_K */
    PACK_SUB_U8_MIN,   /* u8 sc[16], u8 m[16]: Q4_K, Q5_K, IQ1_S */
    PACK_SUB_U8X2_MIN, /* u8 s[2][16]: low nibble S[h], high M[h]: Q2_K */
    /* u8 s[16]; S[h] = 2 n + 1, where n is the low nibble for h = 0 and the
     * high nibble for h = 1: IQ1_M, IQ2, IQ3 */
    PACK_SUB_ODD4X2,
    PACK_SUB_UE4M3X2, /* u8 d[2][16], d[h] per half as UE4M3: NVFP4 */
};

/* The packing of a format (format_info.pack). */
struct pack_rule {
    /* number of values per row in a tile: 1 (float formats) or 32 */
    int tile_values;
    /* bits of a code in the low plane: 2, 4 or 8; float formats: bits of an
     * element, 16 or 32 */
    int low_bits;
    int high_bits; /* bits of a code in the high plane: 0, 1 or 2 */
    enum pack_sub sub;
    enum pack_sup sup;
    int bias;            /* if `table` is NULL, L(c) = c - bias */
    const int8_t *table; /* [16] L(c) of each code c; or NULL */
    int tile_bytes, sup_bytes;
    /* Sizes in bytes of a tile's sub scales and low plane. So the low plane is
     * at offset sub_bytes of a tile, the high plane at sub_bytes +
     * low_bytes. */
    int sub_bytes, low_bytes;
    quant_move *move;   /* copies block to lane or back; NULL if float */
    quant_weave *weave; /* packs blocks of 16 rows; NULL to use `move` */
};

/* The position of a chunk (see the top) in a row and in a packed panel. */
struct pack_chunk {
    int64_t k;     /* first value, as its index in the whole row */
    int32_t n;     /* number of values; a multiple of 32 if quantized */
    int32_t rank;  /* rank that owns these k; 0 if k is not split */
    int64_t k_loc; /* first value, as its index in this packed row */
    size_t off;    /* offset in the panel in bytes */
};

/* The packed form of a matrix on one device. All experts of a weight share
 * it. */
struct pack {
    pl_format format;
    const struct pack_rule *rule;
    int64_t n_row;  /* number of rows that this device has */
    int64_t k;      /* number of values per row that this device has */
    int64_t n_full; /* length of a whole row, in values */
    int n_chunk;
    const struct pack_chunk *chunk; /* [n_chunk], k_loc ascending */
    size_t panel_bytes;             /* size of a panel; a multiple of 64 */
    size_t matrix_bytes;            /* size of all panels */
};

/* An interval of k that this device has for one rank: values k .. k + n - 1 of
 * the whole row. Arrays of these are in ascending order of k. A row that is not
 * split has one, {0, k, 0}. For quantized formats, k and n are multiples of
 * 32. */
struct pack_span {
    int64_t k, n;
    int32_t rank;
};

/* pack_init() fills *p for the given intervals of k. `chunks` becomes p->chunk
 * and must have space for pack_max_chunks(f, span, n_span) chunks. pack_init()
 * cannot fail, because the plan has checked the spans. */
int pack_max_chunks(pl_format f, const struct pack_span *span, int n_span);
void pack_init(struct pack *p, pl_format f, int64_t n_row, int64_t n_full,
               const struct pack_span *span, int n_span,
               struct pack_chunk *chunks);

/* The inverse of pack_init(): sets *out to the longest span from which
 * pack_init() makes chunk i and those after it. Returns the index of the first
 * chunk that is not part of the span. */
int pack_span_at(const struct pack *p, int i, struct pack_span *out);

/* Packs one row into lane 0..15 of `panel`. `row` is the whole row in the
 * format's own blocks; only blocks of p's chunks are read. `panel` must have
 * been zeroed before its first row. Lanes have no byte in common, so threads
 * may pack different rows of a panel at the same time. */
void pack_row(const struct pack *p, void *panel, int lane, const void *row);

/* Packs all 16 rows of a panel, including padding. rows[i] is the row of lane
 * i, as for pack_row; NULL for a row of zeros. Gives the same bits as 16 calls
 * of pack_row, but is several times faster. `ahead` are the 16 rows that will
 * be packed next, which are prefetched; NULL if none. */
void pack_panel(const struct pack *p, void *panel, const void *const *rows,
                const void *const *ahead);

/* The inverse of pack_row: writes the values of p's chunks to `row`. If p's
 * chunks cover only a part of a block, the codes of the block's other values
 * are not changed, but the scales that all values of the block share are
 * written. Two threads must not write to the same row. */
void unpack_row(const struct pack *p, const void *panel, int lane, void *row);

/* The scales of one row of a tile. pack_scales() reads them from the tile
 * `tile` of the chunk that begins at `sup`. */
struct pack_scales {
    float d[2], dmin;
    /* S and M of each half; M is 0 if the format has no minima */
    int s[2], m[2];
};
void pack_scales(const struct pack_rule *rule, const void *sup,
                 const void *tile, int lane, struct pack_scales *out);

/* Computes the float values of c[32], the codes of one row of a tile: d * S *
 * L(c) - dmin * M. d * S is rounded first, then the product, then the
 * difference. For formats with PACK_SUP_D_8TH all operations are exact. */
void pack_values(const struct pack_rule *rule, const struct pack_scales *s,
                 const uint8_t *c, float *dst);

/* Computes the scales from a lane that was read from a block. */
void pack_lane_scales(const struct pack_rule *rule, const struct quant_lane *l,
                      struct pack_scales *out);

/* Reads the codes c[32] of one row of a tile of a quantized format. */
void pack_codes(const struct pack_rule *rule, const void *tile, int lane,
                uint8_t *c);

/* Decodes values k_loc .. k_loc+n-1 of one row to floats, with the same bits as
 * the format's decode(). Used for embedding look-up, for reading weights back,
 * and by the reference kernels. */
void pack_decode(const struct pack *p, const void *panel, int lane,
                 int64_t k_loc, int64_t n, float *dst);

/* Returns tile i of a chunk, which begins at value k_loc + i * tile_values. */
static inline const uint8_t *pack_tile(const struct pack *p, const void *panel,
                                       const struct pack_chunk *c, int64_t i)
{
    return (const uint8_t *)panel + c->off + p->rule->sup_bytes +
           i * p->rule->tile_bytes;
}

#endif
