/* The element formats of tensors. Each is a row of the table in
 * src/quant/format.c.
 *
 * A row of values is a sequence of blocks. The decoders are the reference:
 * their results have the bits that the format's definition gives (a product
 * d*q, or d*sc*q - dmin*m, in float32). Formats that plait itself writes have
 * an encoder. Nothing here depends on files or devices; pack.h defines the
 * packed form that kernels read. */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include "pl.h"

struct pack_rule; /* defined in pack.h */

struct format_info {
    const char *name; /* name of the format, such as "Q4_K" */
    int block;        /* number of values in a block: 1, 32, 64 or 256 */
    int block_bytes;
    /* Where a row is split between ranks, the parts begin and end at multiples
     * of this number of values: 32 for all weight formats, 1 for I32. */
    int grain;
    /* Decodes n values from blocks to floats; n is a multiple of `block`. */
    void (*decode)(float *dst, const void *src, int64_t n);
    /* Encodes n floats to blocks, rounding ties to even; NULL for most
     * formats. */
    void (*encode)(void *dst, const float *src, int64_t n);
    const struct pack_rule *pack; /* rule for packing weights; NULL for I32 */
    /* KV caches may have this format: a float format, or one with blocks of 32
     * values whose scales are F16 (PACK_SUB_F16, PACK_SUB_F16_MIN). */
    bool cache;
};

/* Returns the row of a format; never NULL for 0 <= f < PL_FORMAT_COUNT. */
const struct format_info *format_info(pl_format f);

/* Return the format with this GGUF type id, or with this name in upper or lower
 * case. Return PL_FORMAT_COUNT if there is none. */
pl_format format_from_id(uint32_t id);
pl_format format_from_name(const char *name);

/* Returns true if KV caches may have format f. Any value of f is allowed. */
bool format_is_cache(pl_format f);

/* Writes the names of the formats that KV caches may have to `buf`, as in "F32,
 * F16 or Q8_0", and returns `buf`. */
enum { FORMAT_NAMES = 80 };
const char *format_cache_names(char buf[static FORMAT_NAMES]);

/* Returns the size in bytes of n values; n must be a multiple of
 * format_info.block. */
size_t format_row_bytes(pl_format f, int64_t n);

#endif
