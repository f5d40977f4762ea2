/* The paged cache as kernels see it: writing rows of it, and multiplying by its
 * tiles. Included by cpu_ops_template.h.
 *
 * A value of the cache is one float, whatever its format: chains are the same
 * whether they read the cache's own elements or a converted copy. */
#ifndef DEVICE_CPU_CPU_CACHE_TEMPLATE_H
#define DEVICE_CPU_CPU_CACHE_TEMPLATE_H

#include "device/cpu/cpu_elementwise_template.h"

enum { Q8_SIZE = 32 }; /* values a block of q8_0 */

/* ---- cache write --------------------------------------------------------- */

/* One block of q8_0: scale max|x| / 127 as f16, then round(x * 127 / max). A
 * scale that is 0 as f16 makes all of it 0. */
static inline void to_q8_0(uint8_t *dst, const float *x)
{
    lanes u = lanes_load(x);
    lanes v = lanes_load(x + LANES);
    float top = lanes_top(lanes_max(lanes_abs(u), lanes_abs(v)));
    uint16_t d = f32_to_f16(top / 127.0f);
    lanes inverse = lanes_set(d != 0 ? 127.0f / top : 0.0f);
    lanes magic = lanes_set(0x1.8p23f); /* leaves the integer in the low bits */
    float q[Q8_SIZE];

    lanes_store(q, lanes_add(lanes_mul(u, inverse), magic));
    lanes_store(q + LANES, lanes_add(lanes_mul(v, inverse), magic));
    memcpy(dst, &d, 2);
    for (int i = 0; i < Q8_SIZE; i++)
        dst[2 + i] = (uint8_t)float_bits(q[i]);
}

static inline void to_row(pl_format f, void *row, const float *x, int64_t d)
{
    switch (f) {
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
        memcpy(row, x, (size_t)d * sizeof(float));
    }
}

static inline size_t cache_write_scratch(const struct cpu_call *c)
{
    return (size_t)cpu_last(&c->out) * sizeof(float);
}

/*   cache [n_slot, n_head, d], x [n_tok, n_head, d]: each token's row goes to
 *   the slot its position has. Threads take heads first, so that few share a
 *   tile. */
static inline void cache_write_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    int64_t n_head = c->out.dim[1];
    int64_t d = c->out.dim[2];
    size_t tile_bytes = cache_tile_bytes(c->out.format, d);
    struct cpu_part p = cpu_part(b->n_tok * n_head, 1, c->ith, c->nth);

    for (int64_t i = p.lo; i < p.hi; i++) {
        int64_t h = i / b->n_tok;
        int64_t t = i % b->n_tok;
        int64_t page =
            b->pages[b->seq[t] * b->page_stride + b->pos[t] / PAGE_TOKENS];
        char *tile =
            (char *)c->out.data + (size_t)(page * n_head + h) * tile_bytes;

        to_row(c->out.format, c->scratch,
               (const float *)c->in[1].data + (t * n_head + h) * d, d);
        cpu_cache_write_row(c->out.format, d, c->attr->values, tile,
                            b->pos[t] % PAGE_TOKENS, c->scratch);
    }
}

/* ---- blocks of K and V --------------------------------------------------- */

/* A tile as rows of lanes: keys [d][64], values [64][e]. Few rows of queries
 * read the cache's own elements; for many, they are converted once. */
enum kind { KIND_F32, KIND_F16, KIND_BF16, KIND_Q8_KEYS, KIND_Q8_VALUES };

struct operand {
    enum kind kind;
    const void *x;
    int64_t ld;         /* elements a row */
    const float *scale; /* q8_0: [d/32][64] or [64][e/32] */
    int64_t ld_scale;
};

/* Sixteen values of row i from column `col`; `kind` is a constant. */
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

/* Opens a tile of `n` rows (the first scale bytes included) of `ld` values. */
static inline struct operand operand_open(pl_format f, bool values,
                                          const void *tile, int64_t n,
                                          int64_t ld, float *scale)
{
    struct operand o = {.kind = KIND_F32, .x = tile, .ld = ld};

    if (f == PL_F16) {
        o.kind = KIND_F16;
    } else if (f == PL_BF16) {
        o.kind = KIND_BF16;
    } else if (f == PL_Q8_0) {
        int64_t n_scale = n * ld / Q8_SIZE;

        o.kind = values ? KIND_Q8_VALUES : KIND_Q8_KEYS;
        from_f16(scale, tile, n_scale);
        o.x = (const uint16_t *)tile + n_scale;
        o.scale = scale;
        o.ld_scale = values ? ld / Q8_SIZE : ld;
    }
    return o;
}

LANES_INLINE void convert(enum kind kind, const struct operand *o, int64_t lo,
                          int64_t hi, float *buf)
{
    for (int64_t i = lo; i < hi; i++) {
        for (int64_t c = 0; c < o->ld; c += LANES)
            lanes_store(buf + i * o->ld + c, operand_load(kind, o, i, c));
    }
}

/* Rows lo .. hi - 1 as floats in `buf`, `wide` >= ld apart, padded with 0. */
static inline void operand_convert(struct operand *o, int64_t lo, int64_t hi,
                                   int64_t wide, float *buf)
{
    if (o->ld != wide) { /* not q8_0, whose rows are multiples of 32 */
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
    } else {
        return;
    }
    *o = (struct operand){.kind = KIND_F32, .x = buf, .ld = wide};
}

/* ---- chains of fused multiply-adds --------------------------------------- */

/* What is multiplied: a [n_row][lda] by rows lo .. hi - 1 of b into c. */
struct product {
    const float *a;
    int64_t lda;
    const struct operand *b;
    int64_t lo, hi;
    float *c;
    int64_t ldc;
};

/* c[r][col + 0 .. 16 n_vec - 1] = fmaf chain over i of a[r][i] * b[i][.], from
 * c. kind, n_row and n_vec are constants where this is inlined. */
LANES_INLINE void chain(enum kind kind, int n_row, int n_vec,
                        const struct product *p, int64_t col)
{
    const struct operand b = *p->b;
    const float *a = p->a;
    float *c = p->c + col;
    lanes s[4][4];

#pragma GCC unroll 4
    for (int r = 0; r < n_row; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < n_vec; v++)
            s[r][v] = lanes_load(c + r * p->ldc + v * LANES);
    }
    for (int64_t i = p->lo; i < p->hi; i++) {
        lanes x[4];

#pragma GCC unroll 4
        for (int v = 0; v < n_vec; v++)
            x[v] = operand_load(kind, &b, i, col + v * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < n_row; r++) {
            lanes y = lanes_set(a[r * p->lda + i]);

#pragma GCC unroll 4
            for (int v = 0; v < n_vec; v++)
                s[r][v] = lanes_fma(y, x[v], s[r][v]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_row; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < n_vec; v++)
            lanes_store(c + r * p->ldc + v * LANES, s[r][v]);
    }
}

#ifdef LANES_AVX512
enum { VECS_OF_4 = 4, VECS_OF_2 = 4 }; /* vectors a row that fit registers */
#else
enum { VECS_OF_4 = 1, VECS_OF_2 = 2 };
#endif

/* All columns, `wide` of them, a multiple of 16; n_row is 4, 2 or 1. */
LANES_INLINE void chain_kind(enum kind kind, int n_row, const struct product *p,
                             int64_t wide)
{
    int64_t i = 0;

    if (n_row == 4) {
        for (; i + VECS_OF_4 * LANES <= wide; i += VECS_OF_4 * LANES)
            chain(kind, 4, VECS_OF_4, p, i);
        for (; i < wide; i += LANES)
            chain(kind, 4, 1, p, i);
    } else if (n_row == 2) {
        for (; i + VECS_OF_2 * LANES <= wide; i += VECS_OF_2 * LANES)
            chain(kind, 2, VECS_OF_2, p, i);
        for (; i < wide; i += LANES)
            chain(kind, 2, 1, p, i);
    } else {
        for (; i + 4 * LANES <= wide; i += 4 * LANES)
            chain(kind, 1, 4, p, i);
        for (; i < wide; i += LANES)
            chain(kind, 1, 1, p, i);
    }
}

/* 1 to 4 rows of a, rows lo .. hi - 1 of b; nothing if there are none. */
static inline void chain_rows(int n_row, const float *a, int64_t lda,
                              const struct operand *b, int64_t lo, int64_t hi,
                              float *c, int64_t ldc, int64_t wide)
{
    while (lo < hi && n_row > 0) {
        struct product p = {a, lda, b, lo, hi, c, ldc};
        int n = n_row == 3 ? 2 : n_row;

        switch (b->kind) {
        case KIND_F16:
            chain_kind(KIND_F16, n, &p, wide);
            break;
        case KIND_BF16:
            chain_kind(KIND_BF16, n, &p, wide);
            break;
        case KIND_Q8_KEYS:
            chain_kind(KIND_Q8_KEYS, n, &p, wide);
            break;
        case KIND_Q8_VALUES:
            chain_kind(KIND_Q8_VALUES, n, &p, wide);
            break;
        default:
            chain_kind(KIND_F32, n, &p, wide);
        }
        n_row -= n;
        a += n * lda;
        c += n * ldc;
    }
}

#endif
