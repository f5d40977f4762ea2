/* The kernel cache_write, and the products of attention with tiles of the paged
 * cache. Included by cpu_ops_template.h.
 *
 * Each value of a cache represents one float exactly, whatever its format. So a
 * chain of fmaf gives the same result from the cache's own elements as from a
 * copy converted to float. */
#ifndef DEVICE_CPU_CPU_CACHE_TEMPLATE_H
#define DEVICE_CPU_CPU_CACHE_TEMPLATE_H

#include "base/unroll.h"
#include "device/cpu/cpu_elementwise_template.h"
#include "device/cpu/cpu_lanes_bf16.h"
#include "device/cpu/cpu_lanes_codes.h"
#include "quant/format.h"
#include "quant/pack.h"

/* number of values of a quantization block in a cache of Q8_0 or of codes of 4
 * or 5 bits */
enum { Q8_SIZE = 32 };

/* ---- writing of keys and values to a cache ------------------------------- */

/* Encodes x[32] as one block of Q8_0 at dst: the scale max|x| / 127 as F16,
 * followed by 32 bytes round(x * 127 / max|x|). If the scale rounds to 0, all
 * bytes are 0. */
static inline void to_q8_0(uint8_t *dst, const float *x)
{
    lanes u = lanes_load(x);
    lanes v = lanes_load(x + LANES);
    float top = lanes_top(lanes_max(lanes_abs(u), lanes_abs(v)));
    uint16_t d = f32_to_f16(top / 127.0f);
    lanes inverse = lanes_set(d != 0 ? 127.0f / top : 0.0f);
    /* adding 1.5 * 2^23 rounds to an integer, which is in the low bits of the
     * sum */
    lanes magic = lanes_set(0x1.8p23f);
    float q[Q8_SIZE];

    lanes_store(q, lanes_add(lanes_mul(u, inverse), magic));
    lanes_store(q + LANES, lanes_add(lanes_mul(v, inverse), magic));
    memcpy(dst, &d, 2);
    for (int i = 0; i < Q8_SIZE; i++)
        dst[2 + i] = (uint8_t)float_bits(q[i]);
}

/* Returns the scale d of a block as F16. If that is -0, returns +0. */
static inline uint16_t to_scale(float d)
{
    uint16_t h = f32_to_f16(d);

    return (h & 0x7fff) != 0 ? h : 0;
}

/* Returns the value of x[32] with the largest magnitude, the first of several
 * equal ones. */
static inline float extreme(const float *x)
{
    float top = lanes_top(
        lanes_max(lanes_abs(lanes_load(x)), lanes_abs(lanes_load(x + LANES))));
    int i = 0;

    while (i < Q8_SIZE - 1 && fabsf(x[i]) != top)
        i++;
    return x[i];
}

/* Encodes x[32] with evenly spaced levels: sets code[i] to (x[i] - base) *
 * inverse + offset, limited to 0 .. last and cut to an integer. `inverse` is 1
 * / scale. */
static inline void to_even_codes(uint8_t code[Q8_SIZE], const float *x,
                                 float base, float inverse, float offset,
                                 int last)
{
    float y[Q8_SIZE];

    for (int i = 0; i < Q8_SIZE; i += LANES) {
        lanes v = lanes_sub(lanes_load(x + i), lanes_set(base));

        v = lanes_add(lanes_mul(v, lanes_set(inverse)), lanes_set(offset));
        v = lanes_max(v, lanes_set(0));
        lanes_store(y + i, lanes_min(v, lanes_set((float)last)));
    }
    for (int i = 0; i < Q8_SIZE; i++)
        code[i] = (uint8_t)(int)y[i];
}

/* Encodes x[32] with a table of levels: sets code[i] to the index of the level
 * nearest to x[i] * inverse, the upper one of two equally near. Returns the
 * scale that fits the chosen levels best if errors are weighted with x^2: the
 * sum of x^3 level over the sum of (x level)^2. Both are chains of fmaf in the
 * order of i. Returns `d` if the second sum is 0. */
static inline float to_level_codes(uint8_t code[Q8_SIZE], const float *x,
                                   float inverse, const int8_t level[16],
                                   float d)
{
    float y[Q8_SIZE], above = 0, below = 0;

    for (int i = 0; i < Q8_SIZE; i += LANES)
        lanes_store(y + i, lanes_mul(lanes_load(x + i), lanes_set(inverse)));
    memset(code, 0, Q8_SIZE);
    for (int k = 0; k < 15; k++) {
        float middle = 0.5f * (float)(level[k] + level[k + 1]);

        for (int i = 0; i < Q8_SIZE; i++)
            code[i] = (uint8_t)(code[i] + (y[i] >= middle));
    }
    for (int i = 0; i < Q8_SIZE; i++) {
        float l = (float)level[code[i]];
        float w = x[i] * x[i] * l;

        above = fmaf(w, x[i], above);
        below = fmaf(w, l, below);
    }
    return below > 0 ? above / below : d;
}

/* Encodes x[32] at dst as one block with codes of 4 or 5 bits, in the format
 * that rule r describes. The results are those of llama.cpp's reference
 * encoders. For formats with a minimum the scale is (max - min) / (greatest
 * code). For others it is the value of largest magnitude divided by the level
 * of code 0. Codes are chosen for the scale before it is rounded to F16. If it
 * rounds to 0, all values become 0 or the minimum. */
static inline void to_block(const struct pack_rule *r, uint8_t *dst,
                            const float *x)
{
    bool has_min = r->sub == PACK_SUB_F16_MIN;
    int last = (1 << (r->low_bits + r->high_bits)) - 1;
    uint8_t code[Q8_SIZE];
    float base = 0, d, inverse;
    uint16_t h;

    if (has_min) {
        lanes u = lanes_load(x), v = lanes_load(x + LANES);

        /* The minimum is negated by subtracting it from 0, so that 0 becomes +0
         * and not -0. */
        base = 0 - lanes_top(lanes_sub(lanes_set(0), lanes_min(u, v)));
        d = (lanes_top(lanes_max(u, v)) - base) / (float)last;
    } else {
        d = extreme(x) / (float)(r->table ? r->table[0] : -r->bias);
    }
    h = to_scale(d);
    inverse = h != 0 ? 1 / d : 0;
    if (r->table) {
        d = to_level_codes(code, x, inverse, r->table, d);
        h = h != 0 ? to_scale(d) : 0;
    } else {
        to_even_codes(code, x, base, inverse, (float)r->bias + 0.5f, last);
    }
    memcpy(dst, &h, 2);
    dst += 2;
    if (has_min) {
        h = f32_to_f16(base);
        memcpy(dst, &h, 2);
        dst += 2;
    }
    if (r->high_bits > 0) {
        uint32_t fifth = 0;

        for (int i = 0; i < Q8_SIZE; i++)
            fifth |= (uint32_t)(code[i] >> 4) << i;
        memcpy(dst, &fifth, 4);
        dst += 4;
    }
    for (int i = 0; i < LANES; i++)
        dst[i] = (uint8_t)((code[i] & 15) | code[i + LANES] << 4);
}

static inline void to_row(pl_format f, void *row, const float *x, int64_t d)
{
    const struct format_info *fi = format_info(f);

    switch (f) {
    case PL_F32:
        memcpy(row, x, (size_t)d * sizeof(float));
        break;
    case PL_F16:
        to_f16(row, x, d);
        break;
    case PL_BF16:
        to_bf16(row, x, d);
        break;
    case PL_Q8_0:
        for (int64_t b = 0; b < d / Q8_SIZE; b++)
            to_q8_0((uint8_t *)row + b * (Q8_SIZE + 2), x + b * Q8_SIZE);
        break;
    default:
        for (int64_t b = 0; b < d / Q8_SIZE; b++)
            to_block(fi->pack, (uint8_t *)row + b * fi->block_bytes,
                     x + b * Q8_SIZE);
    }
}

/* maximum number of tokens whose rows are converted to the cache's format, then
 * written to a tile together */
enum { CACHE_RUN = 16 };

static inline size_t cache_write_scratch(const struct cpu_call *c)
{
    return CACHE_RUN * (size_t)cpu_last(&c->out) * sizeof(float);
}

/* Returns how many tokens from token t on, at most `most`, belong to the same
 * sequence, have consecutive positions and lie in the same page. */
static inline int cache_run(const struct token_table *b, int64_t t,
                            int64_t most)
{
    int room = PAGE_TOKENS - b->pos[t] % PAGE_TOKENS;
    int n = 1;

    while (n < most && n < room && b->seq[t + n] == b->seq[t] &&
           b->pos[t + n] == b->pos[t] + n)
        n++;
    return n;
}

/* Computes cache_write: writes the key or value x of each token and head to the
 * token's position in the cache:
 *
 *   x [n_tok, n_head, d]  ->  cache [n_slot, n_head, d]
 *
 * Threads divide heads first, so that few threads write to the same tile. Tiles
 * of keys are transposed, so that the key of a single token would be written
 * element by element. So the keys of adjacent tokens are converted to the
 * cache's format first and then written together. */
static inline void cache_write_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    int64_t n_head = c->out.dim[1];
    int64_t d = c->out.dim[2];
    size_t tile_bytes = cache_tile_bytes(c->out.format, d);
    struct cpu_part p = cpu_part(b->n_tok * n_head, 1, c->ith, c->nth);
    int n;

    for (int64_t i = p.lo; i < p.hi; i += n) {
        int64_t h = i / b->n_tok;
        int64_t t = i % b->n_tok;
        size_t row_bytes = format_row_bytes(c->out.format, d);
        int64_t most = p.hi - i < b->n_tok - t ? p.hi - i : b->n_tok - t;
        int64_t page =
            b->pages[b->seq[t] * b->page_stride + b->pos[t] / PAGE_TOKENS];
        char *tile =
            (char *)c->out.data + (size_t)(page * n_head + h) * tile_bytes;

        n = cache_run(b, t, most < CACHE_RUN ? most : CACHE_RUN);
        for (int r = 0; r < n; r++)
            to_row(c->out.format, (char *)c->scratch + (size_t)r * row_bytes,
                   (const float *)c->in[1].data + ((t + r) * n_head + h) * d,
                   d);
        cache_tile_write(c->out.format, d, c->attr->values, tile,
                         b->pos[t] % PAGE_TOKENS, n, c->scratch, row_bytes);
    }
}

/* ---- tiles of K and V as operands of products ---------------------------- */

/* Types of elements of a tile of K [d][64] or V [64][e] when it is an operand
 * of a product. With few rows of queries the product reads the elements as the
 * cache stores them. With many rows, and always from codes of 4 or 5 bits, the
 * tile is first converted to floats or to BF16 pairs (KIND_PAIRS). Row i of a
 * tile of pairs has the values of rows 2i and 2i + 1. */
enum kind {
    KIND_F32,
    KIND_F16,
    KIND_BF16,
    KIND_Q8_KEYS,
    KIND_Q8_VALUES,
    KIND_CODE_KEYS,
    KIND_CODE_VALUES,
    KIND_PAIRS,
};

/* Returns true if attention multiplies BF16 pairs (graph_attr.bf16). Files that
 * define CPU_OPS_BF16 contain only BF16 kernels, so there it is always true. */
static inline bool is_by_pairs(const struct graph_attr *attr)
{
#ifdef CPU_OPS_BF16
    (void)attr;
    return true;
#else
    return LANES_HAVE_BF16 && attr->bf16 != 0;
#endif
}

struct operand {
    enum kind kind;
    const void *x;
    int64_t ld; /* number of elements in a row of the tile */
    /* Scales of the tile's quantization blocks, as floats: [d/32][64] for keys
     * or [64][e/32] for values. */
    const float *scale;
    int64_t ld_scale;
    /* Distance in bytes from this tile to the one that is read next, for
     * prefetching. */
    ptrdiff_t ahead;
    /* ---- fields set only for codes of 4 or 5 bits */
    /* Minima of the tile's quantization blocks, laid out like `scale`; NULL if
     * the format has none. */
    const float *min;
    /* The fifth bits of the tile's codes (program/cache_tile.h); NULL if codes
     * have 4 bits. */
    const uint8_t *fifth;
    /* level (signed integer) for each value 0 .. 15 of a code's lower four
     * bits */
    int8_t level[16];
};

static inline bool is_codes(const struct operand *o)
{
    return o->kind == KIND_CODE_KEYS || o->kind == KIND_CODE_VALUES;
}

/* Returns sixteen adjacent values of row i of a cache tile *o, from column
 * `col`, as floats. `kind` is o->kind, passed as a compile-time constant. */
LANES_INLINE lanes operand_load(enum kind kind, const struct operand *o,
                                int64_t i, int64_t col)
{
    int64_t at = i * o->ld + col;

    switch (kind) {
    case KIND_F16:
        return lanes_from_f16((const uint16_t *)o->x + at);
    case KIND_BF16:
        return lanes_from_bf16((const uint16_t *)o->x + at);
    case KIND_Q8_KEYS:
        return lanes_mul(
            lanes_from_s8((const int8_t *)o->x + at),
            lanes_load(o->scale + i / Q8_SIZE * o->ld_scale + col));
    case KIND_Q8_VALUES:
        return lanes_mul(lanes_from_s8((const int8_t *)o->x + at),
                         lanes_set(o->scale[i * o->ld_scale + col / Q8_SIZE]));
    default:
        return lanes_load((const float *)o->x + at);
    }
}

/* Returns sixteen BF16 pairs from columns col .. col + 15 of a cache tile *o:
 * each pair has the values of rows 2i and `upper` in one column. `upper` is 2i
 * + 1, or 2i if there is no row 2i + 1. */
LANES_INLINE pairs operand_pairs(enum kind kind, const struct operand *o,
                                 int64_t i, int64_t upper, int64_t col)
{
    const uint16_t *half = o->x;

    switch (kind) {
    case KIND_PAIRS:
        return pairs_load((const uint32_t *)o->x + i * o->ld + col);
    case KIND_BF16:
        return pairs_of_bf16(half + 2 * i * o->ld + col,
                             half + upper * o->ld + col);
    default:
        return pairs_of(operand_load(kind, o, 2 * i, col),
                        operand_load(kind, o, upper, col));
    }
}

/* Prefetches n_vec vectors of 16 elements, from row i and column `col`, of the
 * cache tile that is read after *o. Hardware prefetching ends at the end of a
 * memory page, and that tile is in another one. */
LANES_INLINE void operand_prefetch(enum kind kind, const struct operand *o,
                                   int64_t i, int64_t col, int n_vec)
{
    int64_t size = kind == KIND_F32                        ? 4
                   : kind == KIND_F16 || kind == KIND_BF16 ? 2
                                                           : 1;
    const char *p = (const char *)o->x + (i * o->ld + col) * size + o->ahead;

    for (int64_t b = 0; b < n_vec * LANES * size; b += 64)
        __builtin_prefetch(p + b, 0, 2);
}

/* Sets the fields of *o, a cache tile of n rows of ld values, for a format f
 * with quantization blocks. Writes the blocks' scales, then their minima, as
 * floats to scale[]. */
static inline void operand_open_blocks(struct operand *o, pl_format f,
                                       bool values, int64_t n, int64_t ld,
                                       float *scale)
{
    const struct pack_rule *r = format_info(f)->pack;
    int64_t n_block = n * ld / Q8_SIZE;
    int64_t n_scale = r->sub == PACK_SUB_F16_MIN ? 2 * n_block : n_block;
    const uint8_t *fifth = (const uint8_t *)o->x + 2 * n_scale;
    const uint8_t *low = fifth + 4 * r->high_bits * n_block;

    for (const char *p = o->x; p < (const char *)low; p += 64)
        __builtin_prefetch(p + o->ahead, 0, 2);
    from_f16(scale, o->x, n_scale);
    o->x = low;
    o->scale = scale;
    o->ld_scale = values ? ld / Q8_SIZE : ld;
    if (f == PL_Q8_0) {
        o->kind = values ? KIND_Q8_VALUES : KIND_Q8_KEYS;
        return;
    }
    o->kind = values ? KIND_CODE_VALUES : KIND_CODE_KEYS;
    o->min = n_scale > n_block ? scale + n_block : NULL;
    o->fifth = r->high_bits > 0 ? fifth : NULL;
    for (int c = 0; c < 16; c++)
        o->level[c] = r->table ? r->table[c] : (int8_t)(c - r->bias);
}

/* Returns the operand of a product for a cache tile of n rows of ld values in
 * format f. `next` is the tile that is read after it. For formats with
 * quantization blocks, the blocks' scales, then their minima, are converted to
 * floats in scale[2 * n * ld / 32]. */
static inline struct operand operand_open(pl_format f, bool values,
                                          const void *tile, const void *next,
                                          int64_t n, int64_t ld, float *scale)
{
    struct operand o = {.kind = KIND_F32,
                        .x = tile,
                        .ld = ld,
                        .ahead = (const char *)next - (const char *)tile};

    if (f == PL_F16) {
        o.kind = KIND_F16;
    } else if (f == PL_BF16) {
        o.kind = KIND_BF16;
    } else if (f != PL_F32) {
        operand_open_blocks(&o, f, values, n, ld, scale);
    }
    return o;
}

LANES_INLINE void convert(enum kind kind, const struct operand *from,
                          int64_t lo, int64_t hi, float *buf)
{
    const struct operand o = *from;

    for (int64_t i = lo; i < hi; i++) {
        operand_prefetch(kind, &o, i, 0, (int)(o.ld / LANES));
#pragma GCC unroll 4
        for (int64_t c = 0; c < o.ld; c += LANES)
            lanes_store(buf + i * o.ld + c, operand_load(kind, &o, i, c));
    }
}

/* Returns sixteen adjacent values of row i, from column `col`, of a cache tile
 * *o with codes of 4 or 5 bits. A value is the level of its code times the
 * block's scale, which is exact, plus the block's minimum. */
LANES_INLINE lanes codes_values(bool values, const struct operand *o, int64_t i,
                                int64_t col)
{
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                    1, 2, 4, 8, 16, 32, 64, 128};
    const uint8_t *low = o->x;
    int64_t block = (values ? col : i) / Q8_SIZE;
    int in_block = (int)(values ? col : i) % Q8_SIZE;
    int64_t at = values ? i * o->ld_scale + block : block * o->ld_scale + col;
    codes c;
    lanes x;

    low += values ? i * o->ld / 2 + block * LANES
                  : (block * LANES + in_block % LANES) * o->ld + col;
    c = codes_nibbles(codes_load(low), in_block / LANES * 4);
    c = codes_levels(o->level, c);
    if (o->fifth != NULL && values)
        c = codes_fifth(c, codes_spread(o->fifth + (i * o->ld + col) / 8),
                        codes_load(bit));
    else if (o->fifth != NULL)
        c = codes_fifth(c, codes_load(o->fifth + i / 8 * o->ld + col),
                        codes_set((uint8_t)(1 << i % 8)));
    x = lanes_mul(lanes_from_codes(c),
                  values ? lanes_set(o->scale[at]) : lanes_load(o->scale + at));
    if (o->min != NULL)
        x = lanes_add(x,
                      values ? lanes_set(o->min[at]) : lanes_load(o->min + at));
    return x;
}

LANES_INLINE void convert_codes(bool values, const struct operand *from,
                                int64_t lo, int64_t hi, float *buf)
{
    const struct operand o = *from;

    for (int64_t i = lo; i < hi; i++) {
        const char *next = (const char *)o.x + i * o.ld / 2 + o.ahead;

        for (int64_t b = 0; b < o.ld / 2; b += 64)
            __builtin_prefetch(next + b, 0, 2);
#pragma GCC unroll 4
        for (int64_t c = 0; c < o.ld; c += LANES)
            lanes_store(buf + i * o.ld + c, codes_values(values, &o, i, c));
    }
}

/* Converts rows lo .. hi - 1 of the cache tile *o to floats in `buf`. A row of
 * `buf` has `wide` floats; those after the row's ld values are 0. *o then
 * refers to `buf`. */
static inline void operand_convert(struct operand *o, int64_t lo, int64_t hi,
                                   int64_t wide, float *buf)
{
    /* This case does not occur for formats with quantization blocks, because
     * their rows are multiples of 32. */
    if (o->ld != wide) {
        struct cpu_tensor t = {.data = (void *)(uintptr_t)o->x,
                               .format = o->kind == KIND_F16    ? PL_F16
                                         : o->kind == KIND_BF16 ? PL_BF16
                                                                : PL_F32};

        for (int64_t i = lo; i < hi; i++) {
            float *row = buf + i * wide;
            const float *x = floats(&t, i * o->ld, o->ld, row);

            if (x != row)
                memcpy(row, x, (size_t)o->ld * sizeof(float));
            memset(row + o->ld, 0, (size_t)(wide - o->ld) * sizeof(float));
        }
    } else if (o->kind == KIND_F16) {
        convert(KIND_F16, o, lo, hi, buf);
    } else if (o->kind == KIND_BF16) {
        convert(KIND_BF16, o, lo, hi, buf);
    } else if (o->kind == KIND_Q8_KEYS) {
        convert(KIND_Q8_KEYS, o, lo, hi, buf);
    } else if (o->kind == KIND_Q8_VALUES) {
        convert(KIND_Q8_VALUES, o, lo, hi, buf);
    } else if (o->kind == KIND_CODE_KEYS) {
        convert_codes(false, o, lo, hi, buf);
    } else if (o->kind == KIND_CODE_VALUES) {
        convert_codes(true, o, lo, hi, buf);
    } else {
        return;
    }
    *o = (struct operand){.kind = KIND_F32, .x = buf, .ld = wide};
}

LANES_INLINE void convert_pairs(enum kind kind, const struct operand *from,
                                int64_t lo, int64_t hi, uint32_t *buf)
{
    const struct operand o = *from;

    for (int64_t i = lo / 2; i < (hi + 1) / 2; i++) {
        int64_t upper = 2 * i + 1 < hi ? 2 * i + 1 : 2 * i;

        operand_prefetch(kind, &o, 2 * i, 0, (int)(o.ld / LANES));
        operand_prefetch(kind, &o, upper, 0, (int)(o.ld / LANES));
#pragma GCC unroll 4
        for (int64_t c = 0; c < o.ld; c += LANES)
            pairs_store(buf + i * o.ld + c,
                        operand_pairs(kind, &o, i, upper, c));
    }
}

/* Converts rows lo .. hi - 1 of the cache tile *o to BF16 pairs in `buf`, whose
 * rows have `wide` pairs. *o then refers to `buf`. A pair has the values of
 * rows 2i and 2i + 1. If one of these is outside lo .. hi - 1, its half of the
 * pairs is undefined. */
static inline void operand_to_pairs(struct operand *o, int64_t lo, int64_t hi,
                                    int64_t wide, float *buf)
{
    uint32_t *to = (uint32_t *)buf;

    if (o->ld != wide || is_codes(o)) {
        operand_convert(o, lo, hi, wide, buf);
        pairs_of_rows(to, buf, lo, hi, wide);
    } else if (o->kind == KIND_F16) {
        convert_pairs(KIND_F16, o, lo, hi, to);
    } else if (o->kind == KIND_BF16) {
        convert_pairs(KIND_BF16, o, lo, hi, to);
    } else if (o->kind == KIND_Q8_KEYS) {
        convert_pairs(KIND_Q8_KEYS, o, lo, hi, to);
    } else if (o->kind == KIND_Q8_VALUES) {
        convert_pairs(KIND_Q8_VALUES, o, lo, hi, to);
    } else {
        convert_pairs(KIND_F32, o, lo, hi, to);
    }
    *o = (struct operand){.kind = KIND_PAIRS, .x = to, .ld = wide};
}

/* ---- products of matrices, as chains of fmaf ----------------------------- */

/* A product of matrices, c = c + a b, of which a part is computed: columns lo
 * .. hi - 1 of a [n_row][lda] times rows lo .. hi - 1 of b, for columns first
 * .. end - 1 of c. `first` and `end` are multiples of 16. */
struct product {
    /* the left matrix as floats; if `by_pairs`, as BF16 pairs of columns 2i and
     * 2i + 1 */
    const float *a;
    /* distance from a row of `a` to the next, in floats or, if by_pairs, in
     * BF16 pairs */
    int64_t lda;
    bool by_pairs;
    const struct operand *b;
    int64_t lo, hi;
    float *c;
    int64_t ldc;
    int64_t first, end;
    /* if true, the product overwrites c; if false, it is added to c */
    bool from_zero;
};

/* Maximum number of rows of c, and of vectors of 16 columns, that chain()
 * computes at a time. */
enum { CHAIN_ROWS = 6, CHAIN_VECS = 8 };

/* Computes s[r] = fmaf(a[r][i], b[i], s[r]) for all i from p->lo to p->hi - 1,
 * in ascending order, for n_row rows r. b[i] are n_vec vectors of 16 columns,
 * from column `col`, of row i of the matrix p->b. */
LANES_INLINE void chain_floats(enum kind kind, int n_row, int n_vec,
                               const struct product *p, const float *a,
                               int64_t col, lanes s[CHAIN_ROWS][CHAIN_VECS])
{
    const struct operand b = *p->b;

    for (int64_t i = p->lo; i < p->hi; i++) {
        lanes x[CHAIN_VECS];

        if (kind != KIND_F32)
            operand_prefetch(kind, &b, i, col, n_vec);
        UNROLL
        for (int v = 0; v < n_vec; v++)
            x[v] = operand_load(kind, &b, i, col + v * LANES);
        UNROLL
        for (int r = 0; r < n_row; r++) {
            lanes y = lanes_set(a[r * p->lda + i]);

            UNROLL
            for (int v = 0; v < n_vec; v++)
                s[r][v] = lanes_fma(y, x[v], s[r][v]);
        }
    }
}

/* Adds the products of row r of `a` with the rows p->lo .. p->hi - 1 of p->b to
 * s[r], in columns col .. col + 16 n_vec - 1. The products with rows 2i and 2i
 * + 1 are added at a time, as bf16_pair_add does. A row outside p->lo .. p->hi
 * - 1 counts as 0. */
LANES_INLINE void chain_pairs(enum kind kind, int n_row, int n_vec,
                              const struct product *p, const float *a,
                              int64_t col, lanes s[CHAIN_ROWS][CHAIN_VECS])
{
    const struct operand b = *p->b;

    for (int64_t i = p->lo / 2; i < (p->hi + 1) / 2; i++) {
        int64_t upper = 2 * i + 1 < p->hi ? 2 * i + 1 : 2 * i;
        pairs x[CHAIN_VECS];

        if (kind != KIND_F32 && kind != KIND_PAIRS) {
            operand_prefetch(kind, &b, 2 * i, col, n_vec);
            operand_prefetch(kind, &b, upper, col, n_vec);
        }
        UNROLL
        for (int v = 0; v < n_vec; v++)
            x[v] = operand_pairs(kind, &b, i, upper, col + v * LANES);
        if (2 * i < p->lo || upper == 2 * i) {
            uint32_t mask = 2 * i < p->lo ? 0xffff0000u : 0xffffu;

            UNROLL
            for (int v = 0; v < n_vec; v++)
                x[v] = pairs_and(x[v], mask);
        }
        UNROLL
        for (int r = 0; r < n_row; r++) {
            uint32_t y;

            memcpy(&y, a + r * p->lda + i, sizeof y);
            UNROLL
            for (int v = 0; v < n_vec; v++)
                s[r][v] = lanes_add_pairs(s[r][v], pairs_set(y), x[v]);
        }
    }
}

/* Computes a part of the matrix c of product *p: n_row rows from `row`, and
 * n_vec vectors of 16 columns from `col`. The function is inlined, so that
 * kind, n_vec and by_pairs are constants; n_row is one as well, except in plain
 * C. */
LANES_INLINE void chain(enum kind kind, int n_row, int n_vec,
                        const struct product *p, int row, int64_t col,
                        bool by_pairs)
{
    const float *a = p->a + row * p->lda;
    float *c = p->c + row * p->ldc + col;
    lanes s[CHAIN_ROWS][CHAIN_VECS];

    if (p->from_zero) {
        UNROLL
        for (int r = 0; r < n_row; r++) {
            UNROLL
            for (int v = 0; v < n_vec; v++)
                s[r][v] = lanes_set(0);
        }
    } else {
        UNROLL
        for (int r = 0; r < n_row; r++) {
            UNROLL
            for (int v = 0; v < n_vec; v++)
                s[r][v] = lanes_load(c + r * p->ldc + v * LANES);
        }
    }
    if (by_pairs)
        chain_pairs(kind, n_row, n_vec, p, a, col, s);
    else
        chain_floats(kind, n_row, n_vec, p, a, col, s);
    UNROLL
    for (int r = 0; r < n_row; r++) {
        UNROLL
        for (int v = 0; v < n_vec; v++)
            lanes_store(c + r * p->ldc + v * LANES, s[r][v]);
    }
}

/* Number of vectors of 16 columns that chain() computes at a time for 6, 4, 2
 * and 1 rows. The sums must fit in registers along with the vectors of b and
 * one of a. With AVX-512, six rows and four vectors have 24 sums, and 10 loads
 * for 24 multiply-adds. So the two multipliers are the limit, not the loads. */
#ifdef LANES_AVX512
enum { VECS_OF_6 = 4, VECS_OF_4 = 4, VECS_OF_2 = 8, VECS_OF_1 = 8 };
#else
enum { VECS_OF_6 = 1, VECS_OF_4 = 1, VECS_OF_2 = 2, VECS_OF_1 = 4 };
#endif

/* Computes all columns of n_row rows, from row `row`, of the product *p. At
 * most `most` vectors of 16 columns are computed at a time. Returns n_row. */
LANES_INLINE int chain_columns(enum kind kind, int n_row, int most,
                               const struct product *p, int row, bool by_pairs)
{
    int64_t i = p->first;

    UNROLL
    for (int n_vec = most; n_vec > 0; n_vec /= 2) {
        for (; i + n_vec * LANES <= p->end; i += n_vec * LANES)
            chain(kind, n_row, n_vec, p, row, i, by_pairs);
    }
    return n_row;
}

/* Computes all columns of the first of n_row rows, from row `row`, of the
 * product *p: as many rows as registers can hold sums for. Returns the number
 * of rows computed. */
LANES_INLINE int chain_pass(enum kind kind, int n_row, const struct product *p,
                            int row, bool by_pairs)
{
#ifdef LANES_PLAIN
    n_row = n_row < CHAIN_ROWS ? n_row : CHAIN_ROWS;
    return chain_columns(kind, n_row, 1, p, row, by_pairs);
#else
    if (n_row >= 6)
        return chain_columns(kind, 6, VECS_OF_6, p, row, by_pairs);
    if (n_row >= 4)
        return chain_columns(kind, 4, VECS_OF_4, p, row, by_pairs);
    if (n_row >= 2)
        return chain_columns(kind, 2, VECS_OF_2, p, row, by_pairs);
    return chain_columns(kind, 1, VECS_OF_1, p, row, by_pairs);
#endif
}

/* Computes all n_row rows of the product of matrices *p. */
LANES_INLINE void chain_all(int n_row, const struct product *p, bool by_pairs)
{
    for (int r = 0; r < n_row;) {
        switch (p->b->kind) {
        case KIND_F16:
            r += chain_pass(KIND_F16, n_row - r, p, r, by_pairs);
            break;
        case KIND_BF16:
            r += chain_pass(KIND_BF16, n_row - r, p, r, by_pairs);
            break;
        case KIND_Q8_KEYS:
            r += chain_pass(KIND_Q8_KEYS, n_row - r, p, r, by_pairs);
            break;
        case KIND_Q8_VALUES:
            r += chain_pass(KIND_Q8_VALUES, n_row - r, p, r, by_pairs);
            break;
        case KIND_F32:
            r += chain_pass(KIND_F32, n_row - r, p, r, by_pairs);
            break;
        case KIND_CODE_KEYS:
        case KIND_CODE_VALUES:
            r = n_row; /* does not occur: codes are converted before */
            break;
        case KIND_PAIRS:
            r = by_pairs ? r + chain_pass(KIND_PAIRS, n_row - r, p, r, true)
                         : n_row; /* not by_pairs: no operand is pairs then */
        }
    }
}

static inline void chain_rows(int n_row, const struct product *p)
{
    if (p->lo >= p->hi)
        return;
#ifndef CPU_OPS_BF16
    if (!p->by_pairs) {
        chain_all(n_row, p, false);
        return;
    }
#endif
    if (LANES_HAVE_BF16)
        chain_all(n_row, p, true);
}

#endif
