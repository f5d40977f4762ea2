/* Panel functions in plain C. They are the specification: vector kernels give
 * the same bits, and are tested against these. They are written to be readable,
 * not fast. */
#include <math.h>

#include "base/half.h"
#include "device/cpu/cpu_matmul.h"
#include "device/cpu/cpu_ops.h"

static float element(pl_format f, const void *p, int64_t i)
{
    if (f == PL_F32)
        return ((const float *)p)[i];
    if (f == PL_F16)
        return f16_to_f32(((const uint16_t *)p)[i]);
    return bf16_to_f32(((const uint16_t *)p)[i]);
}

/* ---- quantized weights --------------------------------------------------- */

/* Returns true if each half (16 values) of a tile has a float scale of its
 * own. */
static bool has_two_d(const struct pack_rule *rule)
{
    return rule->sub == PACK_SUB_UE4M3X2;
}

static bool has_min(const struct pack_rule *rule)
{
    return rule->sub == PACK_SUB_F16_MIN || rule->sub == PACK_SUB_U8_MIN ||
           rule->sub == PACK_SUB_U8X2_MIN;
}

/* One weight row of a 32-value tile: its scales and the levels L(c) of its
 * codes (quant/pack.h). */
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

/* The integer sums isum and msum (cpu_matmul.h) of one weight row and one row
 * of activations, over a tile, or over all tiles of a chunk. If each half of a
 * tile has a float scale, there is no msum: the two fields are then the isum of
 * the first and of the second half. */
struct sums {
    int32_t isum, msum;
};

static void lane_add(const struct lane *l, const struct pack_rule *rule,
                     const struct q8_block *x, struct sums *sums)
{
    const struct pack_scales *w = &l->scale;
    int32_t half[2] = {0, 0};

    for (int v = 0; v < 16; v++) {
        half[0] += l->level[v] * x->q[v];
        half[1] += l->level[16 + v] * x->q[16 + v];
    }
    if (has_two_d(rule)) {
        sums->isum = half[0];
        sums->msum = half[1];
        return;
    }
    sums->isum += w->s[0] * half[0] + w->s[1] * half[1];
    sums->msum += w->m[0] * x->sum[0] + w->m[1] * x->sum[1];
}

static float sums_close(const struct lane *l, const struct pack_rule *rule,
                        float d, const struct sums *sums, float acc)
{
    const struct pack_scales *w = &l->scale;

    acc = fmaf(w->d[0] * d, (float)sums->isum, acc);
    if (has_two_d(rule))
        return fmaf(w->d[1] * d, (float)sums->msum, acc);
    return has_min(rule) ? fmaf(-(w->dmin * d), (float)sums->msum, acc) : acc;
}

static void chunk_quantized(const struct cpu_panel_args *s,
                            const struct pack_chunk *c)
{
    const struct pack_rule *rule = s->pack->rule;
    const uint8_t *sup = s->panel + c->off;
    bool whole = rule->sup != PACK_SUP_NONE;
    int64_t n_tile = c->n / 32;

    for (int r = 0; r < PACK_ROWS; r++) {
        struct sums sums[CPU_PANEL_TOK] = {{0}};

        for (int64_t i = 0; i < n_tile; i++) {
            const uint8_t *tile =
                sup + rule->sup_bytes + (size_t)i * (size_t)rule->tile_bytes;
            struct lane l;

            lane_read(&l, rule, sup, tile, r);
            for (int j = 0; j < s->n_tok; j++) {
                const struct q8_block *x =
                    (const struct q8_block *)s->x[j] + c->k_loc / 32 + i;
                float *acc = cpu_panel_acc(s, j) + r;

                lane_add(&l, rule, x, &sums[j]);
                if (whole && i + 1 < n_tile)
                    continue;
                *acc = sums_close(&l, rule, x->d, &sums[j], *acc);
                sums[j] = (struct sums){0};
            }
        }
    }
}

/* ---- float weights ------------------------------------------------------- */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void chunk_float(const struct cpu_panel_args *s,
                        const struct pack_chunk *c)
{
    const uint8_t *tiles = s->panel + c->off;

    for (int j = 0; j < s->n_tok; j++) {
        const float *x = (const float *)s->x[j] + c->k_loc;
        float *acc = cpu_panel_acc(s, j);

        for (int64_t k = 0, end; k < c->n; k = end) {
            end = min64(c->n, cpu_segment_end(c->k + k) - c->k);
            for (int r = 0; r < PACK_ROWS; r++) {
                float sum = 0;

                for (int64_t i = k; i < end; i++)
                    sum =
                        fmaf(element(s->pack->format, tiles, i * PACK_ROWS + r),
                             x[i], sum);
                acc[r] = acc[r] + sum;
            }
        }
    }
}

void cpu_panel_generic(const struct cpu_panel_args *s)
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

/* ---- weight rows that are not packed ------------------------------------- */

static void span_plain(const struct cpu_panel_args *s,
                       const struct rank_span *p)
{
    for (int j = 0; j < s->n_tok; j++) {
        const float *x = s->x[j];

        for (int r = 0; r < s->n_row; r++) {
            float acc = cpu_panel_acc(s, j)[r];

            for (int64_t k = 0, end; k < p->n; k = end) {
                float sum = 0;

                end = min64(p->n, cpu_segment_end(p->logical + k) - p->logical);
                for (int64_t i = p->local + k; i < p->local + end; i++)
                    sum = fmaf(element(s->format, s->panel, r * s->k + i), x[i],
                               sum);
                acc = acc + sum;
            }
            cpu_panel_acc(s, j)[r] = acc;
        }
    }
}

void cpu_panel_plain_generic(const struct cpu_panel_args *s)
{
    if (s->n_span == 0)
        span_plain(s, &(struct rank_span){.n = s->k});
    for (int i = 0; i < s->n_span; i++) {
        if (s->span[i].rank == s->rank)
            span_plain(s, &s->span[i]);
    }
}

/* ---- table of panel functions -------------------------------------------- */

void cpu_add_generic(float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

const struct cpu_jobs cpu_jobs_generic = {
    .packed = {[0 ... PL_FORMAT_COUNT - 1] = cpu_panel_generic},
    .plain = cpu_panel_plain_generic,
    .q8 = true,
    .add = cpu_add_generic,
};
static const struct cpu_matmul_isa isa = {&cpu_jobs_generic, NULL};

#include "device/cpu/cpu_matmul_ops_template.h"

/* Activations in an interval that a rank owns share a scale up to the next
 * multiple of 256 of the whole row. Returns into how many parts these multiples
 * divide the interval *p. */
static int64_t span_parts(const struct rank_span *p)
{
    return p->n > 0
               ? (p->logical + p->n - 1) / Q8_CHUNK - p->logical / Q8_CHUNK + 1
               : 0;
}

void cpu_quantize(const struct cpu_call *c, cpu_encode_fn *encode)
{
    const struct cpu_tensor *x = &c->in[0];
    struct q8_block *out = c->out.data;
    int64_t k = cpu_last(x), n_row = cpu_rows(x), unit = 0, n = 0;
    struct cpu_part part;

    if (c->n_span == 0) {
        part = cpu_part(n_row * (k / 32), 1, c->ith, c->nth);
        encode(out + part.lo, (const float *)x->data + part.lo * 32,
               (part.hi - part.lo) * 32, 32);
        return;
    }
    for (int i = 0; i < c->n_span; i++)
        n += span_parts(&c->span[i]);
    part = cpu_part(n_row * n, 1, c->ith, c->nth);
    for (int64_t row = part.lo / (n > 0 ? n : 1); row < n_row; row++) {
        unit = row * n;
        for (int i = 0; i < c->n_span && unit < part.hi; i++) {
            const struct rank_span *p = &c->span[i];

            for (int64_t at = 0, end; at < p->n; at = end, unit++) {
                int64_t block = (row * k + p->local + at) / 32;

                end =
                    min64(p->n, cpu_segment_end(p->logical + at) - p->logical);
                if (unit >= part.lo && unit < part.hi)
                    encode(out + block, (const float *)x->data + block * 32,
                           end - at, end - at);
            }
        }
        if (unit >= part.hi)
            break;
    }
}

static void run_quantize(const struct cpu_call *c)
{
    cpu_quantize(c, q8_encode);
}

void cpu_matmul_init_generic(struct cpu_kernels *k)
{
    init_ops(k);
    cpu_matmul_init_bf16_generic(k);
    k->kernel[KERNEL_gather_rows] = (struct cpu_entry){cpu_gather_rows, NULL};
    k->kernel[KERNEL_quantize] = (struct cpu_entry){run_quantize, NULL};
    k->q8 = q8_encode;
}
