/* Slices in plain C. They are the specification: the vector families give the
 * same bits, lane by lane, and are tested against these. Written to be read,
 * not to be fast. */
#include <math.h>

#include "base/half.h"
#include "device/cpu/cpu_matmul.h"

static float element(pl_format f, const void *p, int64_t i)
{
    if (f == PL_F32)
        return ((const float *)p)[i];
    if (f == PL_F16)
        return f16_to_f32(((const uint16_t *)p)[i]);
    return bf16_to_f32(((const uint16_t *)p)[i]);
}

/* ---- quantized ----------------------------------------------------------- */

static bool has_min(const struct pack_rule *rule)
{
    return rule->sub == PACK_SUB_F16_MIN || rule->sub == PACK_SUB_U8_MIN ||
           rule->sub == PACK_SUB_U8X2_MIN;
}

/* One row of a tile: its scales, and the levels L(c) of its codes. */
struct lane {
    struct pack_scales scale;
    int level[32];
};

static void lane_read(struct lane *l, const struct pack_rule *rule,
                      const uint8_t *sup, const uint8_t *tile, int i)
{
    uint8_t code[32];

    pack_scales(rule, sup, tile, i, &l->scale);
    pack_codes(rule, tile, i, code);
    for (int v = 0; v < 32; v++)
        l->level[v] = rule->table ? rule->table[code[v]] : code[v] - rule->bias;
}

static float lane_add(const struct lane *l, bool min, const struct q8_block *x,
                      float acc)
{
    const struct pack_scales *w = &l->scale;
    int32_t half[2] = {0, 0};
    int32_t isum, msum;

    for (int v = 0; v < 16; v++) {
        half[0] += l->level[v] * x->q[v];
        half[1] += l->level[16 + v] * x->q[16 + v];
    }
    isum = w->s[0] * half[0] + w->s[1] * half[1];
    acc = fmaf(w->d * x->d, (float)isum, acc);
    if (!min)
        return acc;
    msum = w->m[0] * x->sum[0] + w->m[1] * x->sum[1];
    return fmaf(-(w->dmin * x->d), (float)msum, acc);
}

static void chunk_quantized(const struct cpu_slice *s,
                            const struct pack_chunk *c)
{
    const struct pack_rule *rule = s->pack->rule;
    const uint8_t *sup = s->panel + c->off;
    bool min = has_min(rule);

    for (int64_t i = 0; i < c->n / 32; i++) {
        const uint8_t *tile =
            sup + rule->sup_bytes + (size_t)i * (size_t)rule->tile_bytes;
        int64_t block = c->k_loc / 32 + i;

        for (int r = 0; r < PACK_ROWS; r++) {
            struct lane l;

            lane_read(&l, rule, sup, tile, r);
            for (int j = 0; j < s->n_tok; j++) {
                float *acc = cpu_slice_acc(s, j) + r;

                *acc = lane_add(&l, min,
                                (const struct q8_block *)s->x[j] + block, *acc);
            }
        }
    }
}

/* ---- floats -------------------------------------------------------------- */

static void chunk_float(const struct cpu_slice *s, const struct pack_chunk *c)
{
    const uint8_t *tiles = s->panel + c->off;

    for (int j = 0; j < s->n_tok; j++) {
        const float *x = (const float *)s->x[j] + c->k_loc;
        float *acc = cpu_slice_acc(s, j);

        for (int64_t k = 0; k < c->n; k++) {
            for (int r = 0; r < PACK_ROWS; r++)
                acc[r] =
                    fmaf(element(s->pack->format, tiles, k * PACK_ROWS + r),
                         x[k], acc[r]);
        }
    }
}

void cpu_slice_generic(const struct cpu_slice *s)
{
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];

        if (c->rank != s->rank)
            continue;
        if (s->pack->rule->tile_values == 1)
            chunk_float(s, c);
        else
            chunk_quantized(s, c);
    }
}

/* ---- plain rows ---------------------------------------------------------- */

static void span_plain(const struct cpu_slice *s, int64_t first, int64_t n)
{
    for (int j = 0; j < s->n_tok; j++) {
        const float *x = s->x[j];

        for (int r = 0; r < s->n_row; r++) {
            float acc = cpu_slice_acc(s, j)[r];

            for (int64_t k = first; k < first + n; k++)
                acc =
                    fmaf(element(s->format, s->panel, r * s->k + k), x[k], acc);
            cpu_slice_acc(s, j)[r] = acc;
        }
    }
}

void cpu_slice_plain_generic(const struct cpu_slice *s)
{
    if (s->n_span == 0)
        span_plain(s, 0, s->k);
    for (int i = 0; i < s->n_span; i++) {
        if (s->span[i].rank == s->rank)
            span_plain(s, s->span[i].loc, s->span[i].n);
    }
}

/* ---- the family ---------------------------------------------------------- */

void cpu_add_generic(float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static const struct cpu_matmul_isa isa = {
    .packed = {[0 ... PL_FORMAT_COUNT - 1] = cpu_slice_generic},
    .plain = cpu_slice_plain_generic,
    .q8 = true,
    .add = cpu_add_generic,
};

#include "device/cpu/cpu_matmul_family_template.h"

void cpu_quantize(const struct cpu_call *c, cpu_encode_fn *encode)
{
    const struct cpu_tensor *x = &c->in[0];
    struct q8_block *out = c->out.data;
    int64_t n = 1, lo, hi;

    for (int i = 0; i < x->n_dim; i++)
        n *= x->dim[i];
    lo = n / 32 * c->ith / c->nth;
    hi = n / 32 * (c->ith + 1) / c->nth;
    if (lo < hi)
        encode(out + lo, (const float *)x->data + lo * 32, (hi - lo) * 32);
}

static void run_quantize(const struct cpu_call *c)
{
    cpu_quantize(c, q8_encode);
}

void cpu_matmul_init_generic(struct cpu_kernels *k)
{
    init_ops(k);
    k->kernel[KERNEL_gather_rows] = (struct cpu_entry){cpu_gather_rows, NULL};
    k->kernel[KERNEL_quantize] = (struct cpu_entry){run_quantize, NULL};
    k->q8 = q8_encode;
}
