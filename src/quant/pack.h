/* Packed weights: the in-memory form that all kernels read.
 *
 * A device stores its part of a matrix, [n, k], in *panels* of 16 rows. A panel
 * is divided along k into *tiles*. One tile holds the same few k of all 16
 * rows, so that a vector lane is a row and no kernel ever sums across lanes:
 *
 *   float formats    1 value per tile: 16 elements, row 0 first
 *   quantized        32 values per tile, in the planes below
 *
 * Formats with super-blocks of 256 (K-quants, TQ, IQ except IQ4_NL) keep their
 * super scales in front of the tiles they serve. A *chunk* is a maximal
 * sequence of tiles that share a super block inside one rank's part of k:
 * [super scales][tile]...[tile]. A part may begin and end at any multiple of 32
 * values; both sides of a cut then hold the super scales. For other formats a
 * chunk is a rank's whole part, with no header. The last panel is padded with
 * zero rows.
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
 * A dword of a plane is therefore four consecutive k of one row, and a 64-byte
 * vector is that for 16 rows: the operand of vpdpbusd.
 *
 * The value of code c in row r, value v of a tile (h = v / 16):
 *
 *      value = d[h] * S[h] * L(c)  -  dmin * M[h]
 *
 * with L(c) an integer: c - bias, or table[c]; S and M the integers given by
 * the sub scales (1 if the format has none), d and dmin floats; d[0] = d[1]
 * except in NVFP4. pack_scales returns them for a row; the generic kernels and
 * the reference use it. Every packing has an inverse: unpack_row restores the
 * format's own bytes (TQ1_0: block.h).
 *
 * A panel takes as many bytes as the format, with these exceptions. IQ1, IQ2
 * and IQ3 store eight or four codes at once as an index into a table of up to
 * 2048 entries. Packing looks codes up; they then have 2 bits in IQ1_S, 3 in
 * IQ1_M and IQ2, 4 in IQ3. TQ1_0's digits to base 3 become codes of 2 bits.
 *
 *      bits per value IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0
 *      in the file     1.56  1.75    2.06   2.31  2.56    3.06  3.44  1.69
 *      packed          2.56  3.31    3.31   3.31  3.31    4.31  4.31  2.06 */
#ifndef QUANT_PACK_H
#define QUANT_PACK_H

#include "quant/block.h"
#include "quant/format.h"

enum { PACK_ROWS = 16 };

/* Super scales in front of a chunk, 16 rows each. */
enum pack_sup {
    PACK_SUP_NONE,
    PACK_SUP_D,      /* u16 d[16] (f16) */
    PACK_SUP_D_8TH,  /* the same; the real d and dmin are an eighth */
    PACK_SUP_D_DMIN, /* u16 d[16], u16 dmin[16] (f16) */
};

/* Sub scales of a tile. */
enum pack_sub {
    PACK_SUB_NONE,     /* TQ1_0, TQ2_0 */
    PACK_SUB_F16,      /* u16 d[16]: Q8_0, Q4_0, Q5_0, IQ4_NL */
    PACK_SUB_F16_MIN,  /* u16 d[16], u16 m[16]; value = d*c + m: Q4_1, Q5_1 */
    PACK_SUB_E8M0,     /* u8 e[16]: MXFP4; d = 2^(e-128) with L = 2F */
    PACK_SUB_S8,       /* s8 sc[16]: IQ4_XS */
    PACK_SUB_S8X2,     /* s8 sc[2][16], one per half h: Q6_K, Q3_K */
    PACK_SUB_U8_MIN,   /* u8 sc[16], u8 m[16]: Q4_K, Q5_K, IQ1_S */
    PACK_SUB_U8X2_MIN, /* u8 s[2][16]: low nibble S[h], high M[h]: Q2_K */
    /* u8 s[16]: S[h] = 2 s + 1, of the low nibble and the high one: IQ1_M, IQ2,
     * IQ3 */
    PACK_SUB_ODD4X2,
    PACK_SUB_UE4M3X2, /* u8 d[2][16]: NVFP4; a float d[h] per half */
};

/* The packing of a format; a column of the format table. */
struct pack_rule {
    int tile_values; /* 1 (float formats) or 32 */
    int low_bits;    /* 2, 4 or 8; float formats: 16 or 32, a whole element */
    int high_bits;   /* 0, 1 or 2 */
    enum pack_sub sub;
    enum pack_sup sup;
    int bias;            /* L(c) = c - bias unless table is given */
    const int8_t *table; /* [16] or NULL */
    int tile_bytes, sup_bytes;
    /* Offsets in a tile: low plane at sub_bytes, high plane at sub_bytes +
     * low_bytes. */
    int sub_bytes, low_bytes;
    quant_move *move;   /* block to lane and back; NULL: float format */
    quant_weave *weave; /* 16 blocks to their tiles; NULL: uses `move` */
};

/* A chunk of a packed panel. */
struct pack_chunk {
    int64_t k;     /* first value, logical index in the whole row */
    int32_t n;     /* values (a multiple of 32 for quantized formats) */
    int32_t rank;  /* rank that owns it in a contraction; 0 if k is not split */
    int64_t k_loc; /* first value, index in this packed matrix */
    size_t off;    /* bytes from the start of the panel */
};

/* The shape of a packed matrix on one device; its experts share it. */
struct pack {
    pl_format format;
    const struct pack_rule *rule;
    int64_t n_row;  /* rows held */
    int64_t k;      /* values held per row */
    int64_t n_full; /* length of a whole logical row (for pack_row) */
    int n_chunk;
    const struct pack_chunk *chunk; /* ascending k_loc */
    size_t panel_bytes;             /* one panel of 16 rows, multiple of 64 */
    size_t matrix_bytes;            /* panels * panel_bytes */
};

/* An interval of k that this device holds for one rank, in ascending k; for a
 * row that is not split: {0, k, 0}. Quantized: k and n are multiples of 32. */
struct pack_span {
    int64_t k, n;
    int32_t rank;
};

/* pack_init() fills *p; it takes chunk[] from `chunks`, which holds
 * pack_max_chunks(f, span, n_span). It cannot fail, because the plan checked
 * the spans. */
int pack_max_chunks(pl_format f, const struct pack_span *span, int n_span);
void pack_init(struct pack *p, pl_format f, int64_t n_row, int64_t n_full,
               const struct pack_span *span, int n_span,
               struct pack_chunk *chunks);

/* The inverse: finds the longest span that produces chunk i and those after it
 * as they are. Returns the first chunk outside of it. */
int pack_span_at(const struct pack *p, int i, struct pack_span *out);

/* Writes one row into lane 0..15 of `panel`. `row` is the whole logical row in
 * the format's own blocks; only the blocks of p's chunks are read. `panel` must
 * have been zeroed before its first row. Lanes share no byte, so threads may
 * pack different rows of a panel at once. */
void pack_row(const struct pack *p, void *panel, int lane, const void *row);

/* Writes all of a panel, including padding. rows[i] is lane i's row as above;
 * NULL is a row of padding, all zeros. Gives the same bits as 16 calls of
 * pack_row, several times faster. `ahead`, or NULL, are the 16 rows that will
 * be packed next: their bytes are prefetched. */
void pack_panel(const struct pack *p, void *panel, const void *const *rows,
                const void *const *ahead);

/* The inverse of pack_row. Blocks held only in part are read-modify-written:
 * bits of values that p does not hold do not change, and scales shared with
 * them are written. Two threads must not write to one row. */
void unpack_row(const struct pack *p, const void *panel, int lane, void *row);

/* Reads the scales of one row of a tile. `sup` is the chunk's start, `tile` the
 * tile. */
struct pack_scales {
    float d[2], dmin;
    int s[2], m[2]; /* m: 0 if the format has no minimum */
};
void pack_scales(const struct pack_rule *rule, const void *sup,
                 const void *tile, int lane, struct pack_scales *out);

/* Computes the float value of each of a tile's 32 codes: d * S * L(c) - dmin *
 * M, with d * S rounded first, then the product, then the difference. For
 * formats with eighths all of that is exact. */
void pack_values(const struct pack_rule *rule, const struct pack_scales *s,
                 const uint8_t *c, float *dst);

/* Returns the scales of a lane that was taken from a block. */
void pack_lane_scales(const struct pack_rule *rule, const struct quant_lane *l,
                      struct pack_scales *out);

/* Reads the codes of one row of a tile (quantized formats): c[32]. */
void pack_codes(const struct pack_rule *rule, const void *tile, int lane,
                uint8_t *c);

/* Decodes values k_loc .. k_loc+n-1 of one row to floats, bit-equal to the
 * format's decode(). For embedding look-up, reading back and the reference
 * kernels. */
void pack_decode(const struct pack *p, const void *panel, int lane,
                 int64_t k_loc, int64_t n, float *dst);

/* Returns tile i of a chunk: values k_loc + i * tile_values and on. */
static inline const uint8_t *pack_tile(const struct pack *p, const void *panel,
                                       const struct pack_chunk *c, int64_t i)
{
    return (const uint8_t *)panel + c->off + p->rule->sup_bytes +
           i * p->rule->tile_bytes;
}

#endif
