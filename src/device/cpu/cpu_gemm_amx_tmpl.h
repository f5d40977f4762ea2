/* GEMM with AMX int8: multiplies 32 rows of activations by two panels. Included
 * by cpu_matmul_amx.c with the processor's tile registers (cpu_tiles_amx.h),
 * and by the tests with an emulation of these in plain C.
 *
 * tdpbssd multiplies 16 rows of activations by 16 rows of weights over 64
 * values of k, both signed bytes, and adds the products to 16 x 16 sums. The
 * tiles of a panel (quant/pack.h) already have the byte order of its second
 * operand.
 *
 * Formats with super-blocks: the product S L(c) of a scale and a level
 * (quant/pack.h) has up to 14 bits. It is split into two *planes* of bytes, the
 * low 7 bits and the bits above them, so that isum = sum(low) + 128 sum(high).
 * A chunk takes 4 tdpbssd per plane, and one conversion to float. Q2_K, Q3_K
 * and TQ need only one plane. A *step* multiplies a chunk of 32 rows of
 * activations by two planes of one panel, or by one plane of two panels.
 *
 * While the tdpbssd of a step run, the sums of the previous step are added to
 * the accumulators, two rows after each tdpbssd. Without this overlap the two
 * would take 1.2 to 1.45 times as long (measured with a prototype on a Sapphire
 * Rapids server). The overlap continues across blocks of 32 rows, so that a
 * pass can be as short as one chunk. The planes of a chunk of two panels fill a
 * third of the first-level cache. If k has several passes, the sums between
 * passes are kept contiguous in the second-level cache (cpu_gemm.h,
 * `gathered`).
 *
 * Other formats have a float scale every 32 values. The sums of each tdpbssd
 * over 32 values are stored to memory, and added to 16 accumulators in
 * registers while the next tdpbssd runs. */

/* The reason for MIN_ROWS, the number of rows of activations from which this
 * GEMM replaces panel calls: on an Emerald Rapids server, panel calls with 12
 * rows take 0.8 to 1.0 times as long as this GEMM, and with 16 rows 1.0 to 1.9
 * times (4096 x 4096 weights, best of five measurements). */
enum {
    TOK = 32,
    MIN_ROWS = 13,
    TILE_ROWS = 16,
    TILE_PASS = 16,
    CHUNK_PASS = 1
};

#include "device/cpu/cpu_gemm_units_tmpl.h"

typedef int8_t vb __attribute__((vector_size(64), may_alias));
typedef int16_t vh __attribute__((vector_size(64), may_alias));
typedef uint16_t vuh __attribute__((vector_size(64), may_alias));

/* ---- layout of unpacked weights and of activations ----------------------- */

TMPL int planes_of(struct shape f)
{
    bool wide =
        f.low_bits + f.high_bits > 3 || f.table || f.sub == PACK_SUB_U8_MIN;

    return has_chunks(f) && wide ? 2 : 1;
}

/* Returns a constant that is subtracted from each product of scale and level,
 * so that the products fit a single plane of bytes. It is 1 for Q3_K, whose
 * products are in -124 .. 128, and for TQ; else 0. chunk_added() adds it back,
 * times the sum of the activations. */
TMPL int owed_of(struct shape f)
{
    return has_chunks(f) && planes_of(f) == 1 && f.bias != 0 ? 1 : 0;
}

/* The layout of the unpacked weights of one panel and one unit (a tile of 32 k,
 * or a chunk of 256): scales and minima, called the head, followed by levels.
 * Each field is for 16 rows, and fields in [] are optional. d, dmin and M are
 * those of quant/pack.h, and c are levels. The functions below return offsets
 * and sizes in bytes.
 *
 *   tiles    float d, [float m]; int8 c[8][64]
 *   chunks   float d, [float -dmin], [int16 pairs M, of two tiles [4] or of two
 *            halves [8]]; int8 plane[planes][8 tiles][8][64] */
enum {
    /* size in bytes of one plane of a tile: a byte for each of 32 k of 16
     * weight rows */
    TILE_BYTES = 8 * ROW16,
    PLANE_BYTES = 8 * TILE_BYTES,
    /* size in bytes of an operand of tdpbssd: 64 signed bytes for each of 16
     * rows */
    PRODUCT_BYTES = 16 * ROW16,
};

TMPL int head_m(struct shape f)
{
    return ROW16 * (has_min(f) ? 2 : 1);
}

TMPL int head_bytes(struct shape f)
{
    return head_m(f) + ROW16 * minima_of(f);
}

TMPL int unit_size(struct shape f)
{
    return head_bytes(f) +
           (has_chunks(f) ? planes_of(f) * PLANE_BYTES : TILE_BYTES);
}

/* The layout of TOK arranged rows of activations for one unit (a tile of 32 k,
 * or a chunk of 256): their values q, scales d and sums (quant/q8.h). act_at()
 * returns the offset in bytes of the 32 values of row `row` in tile `tile`.
 *
 *   tiles    int8 q[TOK][32]; float d[TOK]; [float sum[TOK]]
 *   chunks   int8 q[TOK / 16][4][16][64]; float d[TOK];
 *            [int16 sum[TOK][8], of tiles, or [TOK][8][2], of halves;
 *            or int32 sum[TOK] for owed_of()] */
TMPL int act_at(int row, int tile, struct shape f)
{
    if (!has_chunks(f))
        return 32 * row;
    return (row / TILE_ROWS * 4 + tile / 2) * PRODUCT_BYTES +
           row % TILE_ROWS * 64 + tile % 2 * 32;
}

/* Returns the size in bytes of the sums of activations that are stored for one
 * row and one unit (a tile of 32 k, or a chunk of 256). */
TMPL int sums_size(struct shape f)
{
    if (has_chunks(f) && has_min(f))
        return has_half_min(f) ? 32 : 16;
    return has_min(f) || owed_of(f) != 0 ? 4 : 0;
}

TMPL int act_size(struct shape f)
{
    return act_sums(f) + TOK * sums_size(f);
}

/* ---- unpacking of weights ------------------------------------------------ */

/* Interleaves the low bytes of the 16-bit values in `a` and `b`: those of `a`
 * become the even bytes, and those of `b` the odd bytes. */
TMPL vi weave_bytes(vh a, vh b)
{
    return (vi)(((vuh)a & 255) | (vuh)b << 8);
}

/* Unpacks the levels of a packed tile to dst. For formats with super-blocks,
 * stores scale times level instead, split into one or two planes of bytes. */
TMPL void unpack_planes(uint8_t *dst, const uint8_t *low,
                        const struct scales *w, vu table, struct shape f)
{
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    UNROLL
    for (int i = 0; i < 8; i++, dst += ROW16) {
        vh c = (vh)code[i], s, even, odd;

        if (!is_wide(f))
            c = (vh)((vb)c - (int8_t)f.bias);
        if (!has_chunks(f)) {
            put(dst, (vi)c);
            continue;
        }
        s = (vh)w->s[has_halves(f) ? i / 4 : 0];
        s = (vh)pair((vi)s, (vi)s);
        even = ((vh)((vuh)c << 8) >> 8) * s;
        odd = (c >> 8) * s;
        if (planes_of(f) == 1) {
            put(dst, weave_bytes(even - (int16_t)owed_of(f),
                                 odd - (int16_t)owed_of(f)));
        } else {
            put(dst, weave_bytes(even & 127, odd & 127));
            put(dst + PLANE_BYTES, weave_bytes(even >> 7, odd >> 7));
        }
    }
}

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    /* the vector of weight rows is always 0, because a vector holds all 16
     * rows */
    (void)h;
    unpack_planes(unit + head_bytes(f) + i * TILE_BYTES, low, w, table, f);
    if (has_chunks(f) && has_min(f))
        unpack_minima(unit + head_m(f), w, i, f);
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    for (int t = 0; t < TOK; t++) {
        uint8_t *sums = unit + act_sums(f) + t * sums_size(f);
        int32_t all = x[t][block].sum[0] + x[t][block].sum[1];
        int16_t both = (int16_t)all;
        float sum = both;

        memcpy(unit + act_at(t, i, f), x[t][block].q, sizeof x[t][block].q);
        if (!has_chunks(f) && has_min(f))
            memcpy(sums, &sum, sizeof sum);
        else if (has_half_min(f))
            memcpy(sums + 4 * i, x[t][block].sum, sizeof x[t][block].sum);
        else if (has_min(f))
            memcpy(sums + 2 * i, &both, sizeof both);
        if (owed_of(f) != 0) {
            all += i > 0 ? load_dword(sums) : 0;
            memcpy(sums, &all, sizeof all);
        }
    }
}

/* ---- products of chunks, for formats with super-blocks ------------------- */

/* Arguments of one step: TOK rows of activations, over one chunk of k,
 * multiplied by two planes of one panel or by one plane of two panels. */
struct step {
    const uint8_t *plane[2];
    /* The unpacked panel to which each of the two planes belongs. Both are the
     * same panel if the format has two planes per panel. */
    const uint8_t *panel[2];
    /* TOK rows of activations, arranged for the GEMM, over this step's chunk of
     * k */
    const uint8_t *x;
    /* [TOK]: for each row of activations, its accumulators before the products
     * of this chunk are added; NULL if they are 0 */
    float *const *from;
    /* [TOK]: for each row of activations, where its accumulators are written
     * after the products of this chunk are added */
    float *const *to;
    /* index of the first panel's first weight row in a row of GEMM_WIDTH
     * accumulators: 0 or 16 */
    int column;
    /* true if there are more than 16 rows of activations, so that they need two
     * tile registers */
    bool both;
    /* [n_soon] rows of the result that a later step will write. The first TOK /
     * 2 of them, at most, are prefetched while this step computes. */
    float *const *soon;
    int n_soon;
};

/* Integer sums that one step computes with tdpbssd, for a chunk of k: [plane,
 * or panel if there is one plane][row of activations][weight row]. */
typedef int32_t step_sums[2][TOK][PACK_ROWS];

TMPL vf float_at(const uint8_t *p)
{
    float x;

    memcpy(&x, p, sizeof x);
    return v_setf(x);
}

/* The float scales d and dmin, and the minima M as int16 pairs, of 16 weight
 * rows: read from the head of an unpacked chunk. */
struct head {
    vf d, dmin;
    vi m[8];
};

TMPL struct head head_of(const uint8_t *panel, struct shape f)
{
    struct head h = {.d = (vf)load(panel)};

    if (!has_min(f))
        return h;
    h.dmin = (vf)load(panel + ROW16);
    UNROLL
    for (int i = 0; i < sums_size(f) / 4; i++)
        h.m[i] = get(panel + head_m(f) + ROW16 * i);
    return h;
}

/* Returns `sum`, the accumulators of a panel's 16 weight rows for row t of
 * activations, plus the products over a chunk. `isum` are the integer sums of
 * these products, still without scales. `h` has the scales of the weights, and
 * x is the arranged chunk of activations. */
TMPL vf chunk_added(vf sum, const struct head *h, const uint8_t *x, int t,
                    vi isum, struct shape f)
{
    const uint8_t *sums = x + act_sums(f) + t * sums_size(f);
    vf d = float_at(x + act_d(f) + 4 * t);
    vi msum = v_set(0);

    if (owed_of(f) != 0)
        isum += dword_at(sums) * owed_of(f);
    sum = v_fma(h->d * d, v_int_f(isum), sum);
    if (!has_min(f))
        return sum;
    UNROLL
    for (int i = 0; i < sums_size(f) / 4; i++)
        msum = v_pairs_add(msum, dword_at(sums + 4 * i), h->m[i]);
    return v_fma(h->dmin * d, v_int_f(msum), sum);
}

/* Scales `sum`, the integer sums of rows t and t + 1 of activations over one
 * chunk, and adds them to these rows' accumulators. Step `s` computed the sums,
 * and `h` has the scales of its panels. */
TMPL void take_rows(const struct step *s, const struct head h[2],
                    const step_sums sum, int t, struct shape f)
{
    const int n_panel = planes_of(f) == 2 ? 1 : 2;

    UNROLL
    for (int i = 0; i < 2; i++, t++) {
        vi isum[2] = {get(sum[0][t]), get(sum[1][t])};
        vf acc[2] = {v_setf(0), v_setf(0)};
        float *to = s->to[t] + s->column;

        if (n_panel == 1)
            isum[0] += (vi)((vu)isum[1] << 7);
        if (s->from) {
            const float *from = s->from[t] + s->column;

            acc[0] = (vf)load(from);
            if (n_panel == 2)
                acc[1] = (vf)load(from + PACK_ROWS);
        }
        put(to, (vi)chunk_added(acc[0], &h[0], s->x, t, isum[0], f));
        if (n_panel == 2)
            put(to + PACK_ROWS,
                (vi)chunk_added(acc[1], &h[1], s->x, t, isum[1], f));
    }
}

TMPL void fetch_row(const float *row)
{
    __builtin_prefetch(row, 0, 2);
    __builtin_prefetch(row + PACK_ROWS, 0, 2);
}

/* Computes the integer products of one step into `sum` with tdpbssd: TOK rows
 * of activations times two planes of weights, over one chunk. In between,
 * scales `old`, the integer sums of the previous step `before`, and adds them
 * to the accumulators, so that both overlap. If is_first, there is no previous
 * step. */
TMPL void run_step(const struct step *s, const struct step *before,
                   step_sums sum, const step_sums old, const bool is_first,
                   struct shape f)
{
    const struct step *b = is_first ? s : before;
    const struct head h[2] = {head_of(b->panel[0], f), head_of(b->panel[1], f)};

    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
#define TAKE(t)                                                                \
    do {                                                                       \
        if (!is_first && ((t) < TILE_ROWS || b->both))                         \
            take_rows(b, h, old, t, f);                                        \
        if ((t) / 2 < s->n_soon)                                               \
            fetch_row(s->soon[(t) / 2]);                                       \
    } while (0)
#pragma GCC unroll 1
    for (int i = 0; i < 4; i++) {
        const uint8_t *x = s->x + i * PRODUCT_BYTES;

        tile_load(4, x, 64);
        tile_load(6, s->plane[0] + i * PRODUCT_BYTES, 64);
        tile_dot(0, 4, 6);
        TAKE(8 * i);
        if (s->both) {
            tile_load(5, x + 4 * PRODUCT_BYTES, 64);
            tile_dot(1, 5, 6);
        }
        TAKE(8 * i + 2);
        tile_load(7, s->plane[1] + i * PRODUCT_BYTES, 64);
        tile_dot(2, 4, 7);
        TAKE(8 * i + 4);
        if (s->both)
            tile_dot(3, 5, 7);
        TAKE(8 * i + 6);
    }
#undef TAKE
    tile_store(0, sum[0][0], 64);
    tile_store(2, sum[1][0], 64);
    if (s->both) {
        tile_store(1, sum[0][TILE_ROWS], 64);
        tile_store(3, sum[1][TILE_ROWS], 64);
    }
}

/* A step multiplies up to TOK rows of activations, from row i, by two planes of
 * weights. Selects rows of the result that step `s` prefetches, because they
 * are not in the caches when the last pass writes them. The TOK result rows
 * from i are divided among the steps of the passes before the last one. If
 * there is only one pass, a step prefetches the TOK result rows after its
 * own. */
TMPL void fetch_soon(struct step *s, const struct gemm_pass *p, int64_t i,
                     int g, struct shape f)
{
    const int64_t part = p->index * planes_of(f) + g;
    int64_t n_part = (p->count - 1) * planes_of(f), first, end;

    if (p->count == 1 && i + TOK < p->n_row) {
        n_part = planes_of(f);
        i += TOK;
    }
    if (part >= n_part)
        return;
    first = TOK * part / n_part;
    end = TOK * (part + 1) / n_part;
    s->soon = p->out + i + first;
    s->n_soon = (int)(end - first);
}

TMPL void run_chunks(const struct gemm_pass *p, struct shape f)
{
    _Alignas(64) step_sums sum[2];
    struct step before = {.to = NULL};
    int now = 0;

    for (int64_t i = 0; i < p->n_row; i += TOK)
        for (int g = 0; g < planes_of(f); g++, now ^= 1) {
            const uint8_t *panel =
                (const uint8_t *)p->weight + (size_t)g * p->stride;
            const uint8_t *plane = panel + head_bytes(f);
            struct step s = {
                .plane = {plane, plane + (planes_of(f) == 2 ? PLANE_BYTES
                                                            : p->stride)},
                .panel = {panel, planes_of(f) == 2 ? panel : panel + p->stride},
                .x = (const uint8_t *)p->act + (size_t)(i / TOK) * p->act_step,
                .from = p->from ? p->from + i : NULL,
                .to = p->to + i,
                .column = g * PACK_ROWS,
                .both = p->n_row - i > TILE_ROWS,
            };

            fetch_soon(&s, p, i, g, f);
            if (before.to)
                run_step(&s, &before, sum[now], sum[now ^ 1], false, f);
            else
                run_step(&s, &before, sum[now], sum[now], true, f);
            before = s;
        }
    {
        const struct head h[2] = {head_of(before.panel[0], f),
                                  head_of(before.panel[1], f)};

        for (int t = 0; t < (before.both ? TOK : TILE_ROWS); t += 2)
            take_rows(&before, h, sum[now ^ 1], t, f);
    }
}

/* ---- products of tiles, for other formats -------------------------------- */

/* Adds `sum`, the integer sums of a tile for one panel and 16 rows of
 * activations, to the accumulators acc, times the scales. `w` is the unpacked
 * tile, and `x_d` are the scales of the activations. */
TMPL void take_tile(vf acc[TILE_ROWS], int32_t sum[TILE_ROWS][PACK_ROWS],
                    const uint8_t *w, const uint8_t *x_d, struct shape f)
{
    UNROLL
    for (int t = 0; t < TILE_ROWS; t++) {
        vf d = float_at(x_d + 4 * t);

        acc[t] = v_fma((vf)load(w) * d, v_int_f((vi)load(sum[t])), acc[t]);
        if (has_min(f))
            acc[t] = v_fma((vf)load(w + ROW16) * d,
                           float_at(x_d + 4 * TOK + 4 * t), acc[t]);
    }
}

/* Multiplies one panel by 16 rows of activations over n_unit tiles of 32 k, for
 * formats without super-blocks. `w` points to the panel's unpacked first tile.
 * `x` points to these rows' activations in the first tile, and `x_d` to the
 * scales of the activations. */
TMPL void run_tiles(const uint8_t *w, const uint8_t *x, const uint8_t *x_d,
                    float *const *from, float *const *to, int column,
                    int64_t n_unit, struct shape f)
{
    _Alignas(64) int32_t sum[2][TILE_ROWS][PACK_ROWS];
    vf acc[TILE_ROWS];

    UNROLL
    for (int t = 0; t < TILE_ROWS; t++)
        acc[t] = from ? (vf)load(from[t] + column) : v_setf(0);
    for (int64_t u = 0; u < n_unit; u++) {
        if (u < TILE_ROWS)
            __builtin_prefetch(to[u] + column, 0, 2);
        if (u % 2 == 0) {
            tile_zero(0);
            tile_load(4, x, 32);
            tile_load(6, w + head_bytes(f), 64);
            tile_dot(0, 4, 6);
            tile_store(0, sum[0], 64);
        } else {
            tile_zero(1);
            tile_load(5, x, 32);
            tile_load(7, w + head_bytes(f), 64);
            tile_dot(1, 5, 7);
            tile_store(1, sum[1], 64);
        }
        if (u > 0)
            take_tile(acc, sum[(u - 1) % 2], w - unit_size(f),
                      x_d - act_size(f), f);
        w += unit_size(f);
        x += act_size(f);
        x_d += act_size(f);
    }
    take_tile(acc, sum[(n_unit - 1) % 2], w - unit_size(f), x_d - act_size(f),
              f);
    UNROLL
    for (int t = 0; t < TILE_ROWS; t++)
        put(to[t] + column, (vi)acc[t]);
}

/* ---- products of all rows of activations --------------------------------- */

TMPL void gemm_products(const struct gemm_pass *p, struct shape f)
{
    if (has_chunks(f)) {
        run_chunks(p, f);
        return;
    }
    for (int64_t i = 0; i < p->n_row; i += TILE_ROWS) {
        const uint8_t *x =
            (const uint8_t *)p->act + (size_t)(i / TOK) * p->act_step;
        int first = (int)(i % TOK);

        for (int g = 0; g < GEMM_PANELS; g++)
            run_tiles((const uint8_t *)p->weight + (size_t)g * p->stride,
                      x + act_at(first, 0, f), x + act_d(f) + 4 * first,
                      p->from ? p->from + i : NULL, p->to + i, PACK_ROWS * g,
                      p->n_unit, f);
    }
}

/* Sets up the tile registers for the products of a format: 16 rows of 64 bytes.
 * For formats without super-blocks, tiles of activations have rows of 32 bytes
 * instead. */
static void begin_tiles(const struct pack *p)
{
    tiles_begin(p->rule->sup == PACK_SUP_NONE ? 32 : 64);
}

/* NVFP4, with a scale for each 16 values, has no AMX GEMM: a tdpbssd over 16
 * values is too slow */
#define GEMM_TWO_D(X)
#define GEMM_STATE .begin = begin_tiles, .end = tiles_end, .gathered = true,
#include "device/cpu/cpu_gemm_formats_tmpl.h"
