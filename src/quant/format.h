/* Element formats: one table row each (src/quant/format.c).
 *
 * A row of values is a sequence of blocks. Decoding is the reference: bit-exact
 * with the definition of the format (a product d*q, or d*sc*q - dmin*m, in
 * float32). Formats that plait itself writes have an encoder. Nothing here
 * depends on files or devices; pack.h defines the packed form that kernels
 * read. */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include "pl.h"

struct pack_rule; /* pack.h */

struct format_info {
    const char *name; /* "Q4_K" */
    int block;        /* values per block: 1, 32, 64 or 256 */
    int block_bytes;
    /* Smallest range of values along a row that a split may cut out: 32 for all
     * weight formats, 1 for I32. */
    int grain;
    /* Decodes n values; n is a multiple of block. */
    void (*decode)(float *dst, const void *src, int64_t n);
    /* Encodes n values, rounding ties to even; NULL if not available. */
    void (*encode)(void *dst, const float *src, int64_t n);
    const struct pack_rule *pack; /* NULL for I32 */
};

/* Returns the row of a format; never NULL for 0 <= f < PL_FORMAT_COUNT. */
const struct format_info *format_info(pl_format f);

/* Return the format of a GGUF type id or of a name (any case); PL_FORMAT_COUNT
 * if unknown. */
pl_format format_from_id(uint32_t id);
pl_format format_from_name(const char *name);

/* Returns the bytes of a row of n values; n must be a multiple of the block. */
size_t format_row_bytes(pl_format f, int64_t n);

#endif
