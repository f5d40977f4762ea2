/* Packs weight rows from their format in files to panels of 16 rows, and
 * unpacks them (pack.h).
 *
 * Every 32 codes and their scales pass through a struct quant_lane. So this
 * file knows the planes of a tile but no file formats, and block.c knows file
 * formats but no planes. Kernels do not call this file; they read panels
 * directly. */
#include "quant/pack.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the number of values at whose multiples a chunk must end: the length
 * of a super-block, or 0 if the format has none. */
static int64_t chunk_limit(pl_format f)
{
    const struct format_info *fi = format_info(f);

    return fi->pack->sup == PACK_SUP_NONE ? 0 : fi->block;
}

int pack_max_chunks(pl_format f, const struct pack_span *span, int n_span)
{
    int64_t limit = chunk_limit(f);
    int64_t n = 0;

    for (int i = 0; i < n_span; i++) {
        if (span[i].n > 0)
            n += limit ? (span[i].k + span[i].n - 1) / limit -
                             span[i].k / limit + 1
                       : 1;
    }
    return (int)n;
}

void pack_init(struct pack *p, pl_format f, int64_t n_row, int64_t n_full,
               const struct pack_span *span, int n_span,
               struct pack_chunk *chunks)
{
    const struct pack_rule *rule = format_info(f)->pack;
    int64_t limit = chunk_limit(f);
    int64_t k_loc = 0;
    size_t off = 0;
    int n_chunk = 0;

    for (int i = 0; i < n_span; i++) {
        int64_t end = span[i].k + span[i].n;

        for (int64_t k = span[i].k; k < end;) {
            int64_t stop = limit ? min64(end, (k / limit + 1) * limit) : end;
            int64_t n = stop - k;

            chunks[n_chunk++] = (struct pack_chunk){
                .k = k,
                .n = (int32_t)n,
                .rank = span[i].rank,
                .k_loc = k_loc,
                .off = off,
            };
            off += (size_t)rule->sup_bytes +
                   (size_t)(n / rule->tile_values) * (size_t)rule->tile_bytes;
            k_loc += n;
            k = stop;
        }
    }
    off = (off + 63) & ~(size_t)63;
    *p = (struct pack){
        .format = f,
        .rule = rule,
        .n_row = n_row,
        .k = k_loc,
        .n_full = n_full,
        .n_chunk = n_chunk,
        .chunk = chunks,
        .panel_bytes = off,
        .matrix_bytes = (size_t)((n_row + PACK_ROWS - 1) / PACK_ROWS) * off,
    };
}

int pack_span_at(const struct pack *p, int i, struct pack_span *out)
{
    const struct pack_chunk *c = &p->chunk[i];
    int64_t limit = chunk_limit(p->format), end = c->k + c->n;

    *out = (struct pack_span){c->k, c->n, c->rank};
    while (++i < p->n_chunk && limit && end % limit == 0 &&
           p->chunk[i].k == end && p->chunk[i].rank == out->rank) {
        end += p->chunk[i].n;
        out->n = end - out->k;
    }
    return i;
}

/* ---- one row (a lane) of a tile ------------------------------------------ */

/* Stores w bits, from bit `at` on, of each of the codes c[32] in lane `lane` of
 * a plane, which has w bits of each code. The lane has w dwords. Byte b of
 * dword q has, from bit w * i on, the bits of value 4 * (w * i + q) + b, for i
 * = 0 .. 8 / w - 1. */
static inline void plane_put(uint8_t *plane, int lane, int w, int at,
                             const uint8_t *c)
{
    uint32_t mask = ((1u << w) - 1) * 0x01010101u;

    for (int q = 0; q < w; q++) {
        uint32_t word = 0;

        for (int i = 0; i < 8 / w; i++) {
            uint32_t four;

            memcpy(&four, c + 4 * (w * i + q), 4);
            word |= (four >> at & mask) << w * i;
        }
        memcpy(plane + 64 * q + 4 * lane, &word, 4);
    }
}

/* The inverse of plane_put: ORs the bits of lane `lane` of a plane into the
 * codes c[32], from bit `at` on. */
static inline void plane_get(const uint8_t *plane, int lane, int w, int at,
                             uint8_t *c)
{
    uint32_t mask = ((1u << w) - 1) * 0x01010101u;

    for (int q = 0; q < w; q++) {
        uint32_t word;

        memcpy(&word, plane + 64 * q + 4 * lane, 4);
        for (int i = 0; i < 8 / w; i++) {
            uint32_t four;

            memcpy(&four, c + 4 * (w * i + q), 4);
            four |= (word >> w * i & mask) << at;
            memcpy(c + 4 * (w * i + q), &four, 4);
        }
    }
}

/* sub_size() returns the size in bytes of one sub scale; sub_count() returns
 * how many sub scales a tile has for each row. */
static inline int sub_size(const struct pack_rule *rule)
{
    return rule->sub == PACK_SUB_F16 || rule->sub == PACK_SUB_F16_MIN ? 2 : 1;
}

static inline int sub_count(const struct pack_rule *rule)
{
    return rule->sub_bytes / (PACK_ROWS * sub_size(rule));
}

static void scales_put(const struct pack_rule *rule, uint8_t *sup,
                       uint8_t *tile, int lane, const struct quant_lane *l)
{
    int n = sub_count(rule), size = sub_size(rule);

    for (int j = 0; j < n; j++)
        memcpy(tile + (PACK_ROWS * j + lane) * size, &l->sub[j], (size_t)size);
    for (int j = 0; j < rule->sup_bytes / (2 * PACK_ROWS); j++)
        memcpy(sup + 2 * (PACK_ROWS * j + lane), &l->sup[j], 2);
}

static void scales_get(const struct pack_rule *rule, const uint8_t *sup,
                       const uint8_t *tile, int lane, struct quant_lane *l)
{
    int n = sub_count(rule), size = sub_size(rule);

    for (int j = 0; j < n; j++)
        memcpy(&l->sub[j], tile + (PACK_ROWS * j + lane) * size, (size_t)size);
    for (int j = 0; j < rule->sup_bytes / (2 * PACK_ROWS); j++)
        memcpy(&l->sup[j], sup + 2 * (PACK_ROWS * j + lane), 2);
}

void pack_codes(const struct pack_rule *rule, const void *tile, int lane,
                uint8_t *c)
{
    const uint8_t *low = (const uint8_t *)tile + rule->sub_bytes;
    const uint8_t *high = low + rule->low_bytes;

    memset(c, 0, 32);
    if (rule->low_bits == 8)
        plane_get(low, lane, 8, 0, c);
    else if (rule->low_bits == 4)
        plane_get(low, lane, 4, 0, c);
    else
        plane_get(low, lane, 2, 0, c);
    if (rule->high_bits == 2)
        plane_get(high, lane, 2, rule->low_bits, c);
    else if (rule->high_bits == 1)
        plane_get(high, lane, 1, rule->low_bits, c);
}

static void codes_put(const struct pack_rule *rule, uint8_t *tile, int lane,
                      const uint8_t *c)
{
    uint8_t *low = tile + rule->sub_bytes;
    uint8_t *high = low + rule->low_bytes;

    if (rule->low_bits == 8)
        plane_put(low, lane, 8, 0, c);
    else if (rule->low_bits == 4)
        plane_put(low, lane, 4, 0, c);
    else
        plane_put(low, lane, 2, 0, c);
    if (rule->high_bits == 2)
        plane_put(high, lane, 2, rule->low_bits, c);
    else if (rule->high_bits == 1)
        plane_put(high, lane, 1, rule->low_bits, c);
}

/* ---- packing and unpacking one row --------------------------------------- */

/* Copies n elements of `size` bytes. They are dst_step bytes apart in dst and
 * src_step bytes apart in src. In a panel, the elements of a row are PACK_ROWS
 * elements apart. */
static inline void copy_strided(uint8_t *restrict dst, ptrdiff_t dst_step,
                                const uint8_t *restrict src, ptrdiff_t src_step,
                                int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + i * dst_step, src + i * src_step, size);
}

static void float_row(const struct pack *p, uint8_t *panel, int lane,
                      uint8_t *row, bool put)
{
    int size = format_info(p->format)->block_bytes;

    for (int i = 0; i < p->n_chunk; i++) {
        const struct pack_chunk *c = &p->chunk[i];
        uint8_t *in = panel + c->off + lane * size, *out = row + c->k * size;

        if (size == 4 && put)
            copy_strided(in, 4 * PACK_ROWS, out, 4, c->n, 4);
        else if (size == 4)
            copy_strided(out, 4, in, 4 * PACK_ROWS, c->n, 4);
        else if (put)
            copy_strided(in, 2 * PACK_ROWS, out, 2, c->n, 2);
        else
            copy_strided(out, 2, in, 2 * PACK_ROWS, c->n, 2);
    }
}

void pack_row(const struct pack *p, void *panel, int lane, const void *row)
{
    const struct format_info *fi = format_info(p->format);
    const struct pack_rule *rule = p->rule;

    if (rule->tile_values == 1) {
        float_row(p, panel, lane, (uint8_t *)row, true);
        return;
    }
    for (int i = 0; i < p->n_chunk; i++) {
        const struct pack_chunk *c = &p->chunk[i];
        uint8_t *sup = (uint8_t *)panel + c->off;
        uint8_t *tile = sup + rule->sup_bytes;

        for (int64_t k = c->k; k < c->k + c->n; k += 32) {
            uint8_t *block = (uint8_t *)row + format_row_bytes(p->format, k);
            struct quant_lane l = {0};

            rule->move(block, (int)(k % fi->block) / 32, &l, false);
            scales_put(rule, sup, tile, lane, &l);
            codes_put(rule, tile, lane, l.c);
            tile += rule->tile_bytes;
        }
    }
}

/* ---- packing panels of 16 rows ------------------------------------------- */

enum {
    LINE = 64, /* size of a cache line in bytes */
    /* For float formats, quant_weave packs n times this number of elements of
     * each row. */
    WOVEN_FLOATS = 8,
    WOVEN_RUN = 4, /* greatest n in calls of quant_weave */
    /* Bytes of the largest packed super-block: Q6_K, 32 + 8 * 416. */
    WOVEN_BYTES = 3584,
};

/* Prefetches bytes at .. at + n - 1 of the 16 rows `ahead`, the rows of the
 * next panel, and the n_out bytes of output that follow the next n_out bytes.
 * Hardware does not prefetch sixteen streams at once. The prefetched bytes stay
 * in the second-level cache until the next panel is packed. */
static inline void fetch(const uint8_t *const *ahead, size_t at, size_t n,
                         const uint8_t *out, size_t n_out)
{
    for (size_t k = 0; k < n_out; k += LINE)
        __builtin_prefetch(out + n_out + k, 1);
    for (int i = 0; ahead && i < PACK_ROWS; i++)
        for (size_t k = 0; k < n; k += LINE)
            __builtin_prefetch(ahead[i] + at + k);
}

/* Packs a chunk of 16 rows in a float format: WOVEN_FLOATS elements of each row
 * at a time, and the remaining elements one by one. */
static void float_chunk(const struct pack *p, const struct pack_chunk *c,
                        uint8_t *panel, const uint8_t *const *rows,
                        const uint8_t *const *ahead)
{
    size_t size = (size_t)p->rule->tile_bytes / PACK_ROWS;
    size_t at = (size_t)c->k * size, end = at + (size_t)c->n * size;
    uint8_t *out = panel + c->off;

    while (end - at >= WOVEN_FLOATS * size) {
        size_t most = (end - at) / (WOVEN_FLOATS * size);
        int n = most < WOVEN_RUN ? (int)most : WOVEN_RUN;
        size_t bytes = (size_t)n * WOVEN_FLOATS * size;

        fetch(ahead, at, bytes, out, bytes * PACK_ROWS);
        p->rule->weave(rows, at, n, out);
        out += bytes * PACK_ROWS;
        at += bytes;
    }
    for (; at < end; at += size)
        for (int r = 0; r < PACK_ROWS; r++, out += size)
            memcpy(out, rows[r] + at, size);
}

/* Packs a chunk of 16 rows in a format without super-blocks, whose blocks have
 * 32 values. */
static void block_chunk(const struct pack *p, const struct pack_chunk *c,
                        uint8_t *panel, const uint8_t *const *rows,
                        const uint8_t *const *ahead)
{
    size_t at = format_row_bytes(p->format, c->k);
    size_t end = at + format_row_bytes(p->format, c->n);
    size_t block = format_row_bytes(p->format, 32);
    uint8_t *out = panel + c->off;

    while (at < end) {
        size_t most = (end - at) / block;
        int n = most < WOVEN_RUN ? (int)most : WOVEN_RUN;
        size_t bytes = (size_t)(n * p->rule->tile_bytes);

        fetch(ahead, at, (size_t)n * block, out, bytes);
        p->rule->weave(rows, at, n, out);
        out += bytes;
        at += (size_t)n * block;
    }
}

/* Packs a chunk of 16 rows in a format with super-blocks. If the chunk is only
 * a part of a super-block, packs the whole super-block to a buffer and copies
 * the part from there. */
static void super_chunk(const struct pack *p, const struct pack_chunk *c,
                        uint8_t *panel, const uint8_t *const *rows,
                        const uint8_t *const *ahead)
{
    const struct format_info *fi = format_info(p->format);
    const struct pack_rule *rule = p->rule;
    int64_t first = c->k % fi->block;
    size_t at = format_row_bytes(p->format, c->k - first);
    size_t sup = (size_t)rule->sup_bytes;
    size_t bytes = (size_t)(c->n / 32 * rule->tile_bytes);
    uint8_t *out = panel + c->off, woven[WOVEN_BYTES];

    fetch(ahead, at, (size_t)fi->block_bytes, out, sup + bytes);
    if (c->n == fi->block) {
        rule->weave(rows, at, 1, out);
        return;
    }
    rule->weave(rows, at, 1, woven);
    memcpy(out, woven, sup);
    memcpy(out + sup, woven + sup + first / 32 * rule->tile_bytes, bytes);
}

static bool all_there(const void *const *rows)
{
    int n = 0;

    for (int i = 0; i < PACK_ROWS; i++)
        n += rows[i] != NULL;
    return n == PACK_ROWS;
}

void pack_panel(const struct pack *p, void *panel, const void *const *rows,
                const void *const *ahead)
{
    const struct pack_chunk *last = p->chunk + p->n_chunk - 1;
    void (*chunk)(const struct pack *, const struct pack_chunk *, uint8_t *,
                  const uint8_t *const *, const uint8_t *const *) =
        p->rule->tile_values == 1 ? float_chunk
        : p->rule->sup_bytes > 0  ? super_chunk
                                  : block_chunk;
    size_t end;

    if (p->n_chunk == 0)
        return;
    if (!p->rule->weave || !all_there(rows)) {
        memset(panel, 0, p->panel_bytes);
        for (int i = 0; i < PACK_ROWS; i++)
            if (rows[i])
                pack_row(p, panel, i, rows[i]);
        return;
    }
    for (int i = 0; i < p->n_chunk; i++)
        chunk(p, &p->chunk[i], panel, (const uint8_t *const *)rows,
              (const uint8_t *const *)ahead);
    end = last->off + (size_t)p->rule->sup_bytes +
          (size_t)(last->n / p->rule->tile_values * p->rule->tile_bytes);
    memset((uint8_t *)panel + end, 0, p->panel_bytes - end);
}

void unpack_row(const struct pack *p, const void *panel, int lane, void *row)
{
    const struct format_info *fi = format_info(p->format);
    const struct pack_rule *rule = p->rule;

    if (rule->tile_values == 1) {
        float_row(p, (uint8_t *)panel, lane, row, false);
        return;
    }
    for (int i = 0; i < p->n_chunk; i++) {
        const struct pack_chunk *c = &p->chunk[i];
        const uint8_t *sup = (const uint8_t *)panel + c->off;
        const uint8_t *tile = sup + rule->sup_bytes;

        for (int64_t k = c->k; k < c->k + c->n; k += 32) {
            uint8_t *block = (uint8_t *)row + format_row_bytes(p->format, k);
            struct quant_lane l = {0};

            scales_get(rule, sup, tile, lane, &l);
            pack_codes(rule, tile, lane, l.c);
            rule->move(block, (int)(k % fi->block) / 32, &l, true);
            tile += rule->tile_bytes;
        }
    }
}

/* ---- computing values from codes and scales ------------------------------ */

/* Returns 2^(e - 128), or NaN for e = 255. The scale of MXFP4 is defined as
 * 2^(e - 127); half of it is used, because the table of levels is doubled. So a
 * scale overflows only if the value does. e < 2 gives the subnormals 2^-128 and
 * 2^-127. */
static float e8m0_half(unsigned e)
{
    if (e == 255)
        return NAN;
    return float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Returns half of the unsigned E4M3 number x (OCP FP8 without a sign), a scale
 * of NVFP4: half, because the table of levels is doubled. 127 is a NaN in OCP
 * FP8 but 0 in GGUF. The highest bit of x is ignored otherwise. */
static float ue4m3_half(unsigned x)
{
    unsigned e = x >> 3 & 15, m = x & 7;

    if (x == 127)
        return 0;
    return e == 0 ? (float)m * 0x1p-10f
                  : float_from_bits((e + 119) << 23 | m << 20);
}

static void set_d(struct pack_scales *s, float d)
{
    s->d[0] = s->d[1] = d;
}

void pack_lane_scales(const struct pack_rule *rule, const struct quant_lane *l,
                      struct pack_scales *out)
{
    *out = (struct pack_scales){
        .dmin = f16_to_f32(l->sup[1]),
        .s = {1, 1},
    };
    set_d(out, f16_to_f32(l->sup[0]));
    if (rule->sup == PACK_SUP_D_8TH) {
        set_d(out, out->d[0] * 0.125f);
        out->dmin = out->d[0];
    }
    switch (rule->sub) {
    case PACK_SUB_NONE:
        break;
    /* A value is d * code + m in this format, but d * S * L(c) - dmin * M in
     * pack.h. So dmin is -m and M is 1. */
    case PACK_SUB_F16_MIN:
        out->dmin = -f16_to_f32(l->sub[1]);
        out->m[0] = out->m[1] = 1;
        set_d(out, f16_to_f32(l->sub[0]));
        break;
    case PACK_SUB_F16:
        set_d(out, f16_to_f32(l->sub[0]));
        break;
    case PACK_SUB_E8M0:
        set_d(out, e8m0_half(l->sub[0]));
        break;
    case PACK_SUB_S8:
        out->s[0] = out->s[1] = (int8_t)l->sub[0];
        break;
    case PACK_SUB_S8X2:
        out->s[0] = (int8_t)l->sub[0];
        out->s[1] = (int8_t)l->sub[1];
        break;
    case PACK_SUB_U8_MIN:
        out->s[0] = out->s[1] = l->sub[0];
        out->m[0] = out->m[1] = l->sub[1];
        break;
    case PACK_SUB_U8X2_MIN:
        for (int h = 0; h < 2; h++) {
            out->s[h] = l->sub[h] & 15;
            out->m[h] = l->sub[h] >> 4;
        }
        break;
    case PACK_SUB_ODD4X2:
        out->s[0] = 2 * (l->sub[0] & 15) + 1;
        out->s[1] = 2 * (l->sub[0] >> 4) + 1;
        break;
    case PACK_SUB_UE4M3X2:
        out->d[0] = ue4m3_half(l->sub[0]);
        out->d[1] = ue4m3_half(l->sub[1]);
        break;
    }
}

void pack_scales(const struct pack_rule *rule, const void *sup,
                 const void *tile, int lane, struct pack_scales *out)
{
    struct quant_lane l = {0};

    scales_get(rule, sup, tile, lane, &l);
    pack_lane_scales(rule, &l, out);
}

void pack_values(const struct pack_rule *rule, const struct pack_scales *s,
                 const uint8_t *c, float *dst)
{
    int level[32];

    for (int v = 0; v < 32; v++)
        level[v] = rule->table ? rule->table[c[v]] : c[v] - rule->bias;
    for (int h = 0; h < 2; h++) {
        const float ds = s->d[h] * (float)s->s[h],
                    dm = s->dmin * (float)s->m[h];
        const float d = s->d[h];
        const int scale = s->s[h], min = s->m[h], *l = level + 16 * h;
        float *to = dst + 16 * h;

        /* S L(c) - M is computed in integers here. The result is the same as
         * with floats unless d is infinite. */
        if (rule->sup == PACK_SUP_D_8TH)
            for (int v = 0; v < 16; v++)
                to[v] = d * (float)(scale * l[v] - min);
        else
            for (int v = 0; v < 16; v++)
                to[v] = ds * (float)l[v] - dm;
    }
}

static void decode_tile(const struct pack_rule *rule, const uint8_t *sup,
                        const uint8_t *tile, int lane, float *dst)
{
    struct pack_scales s;
    uint8_t c[32];

    pack_scales(rule, sup, tile, lane, &s);
    pack_codes(rule, tile, lane, c);
    pack_values(rule, &s, c, dst);
}

/* Returns the chunk of a packed row that contains value k_loc of the row. */
static const struct pack_chunk *find_chunk(const struct pack *p, int64_t k_loc)
{
    int lo = 0, hi = p->n_chunk - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;

        if (p->chunk[mid].k_loc <= k_loc)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &p->chunk[lo];
}

/* Decodes n values of one row in a float format from a panel. They begin at
 * `first` and are PACK_ROWS elements apart. */
static void decode_strided(const struct format_info *fi, const uint8_t *first,
                           int64_t n, float *dst)
{
    uint8_t near[64 * 4];

    for (int64_t i = 0; i < n; i += 64) {
        int64_t run = min64(64, n - i);

        if (fi->block_bytes == 4)
            copy_strided(near, 4, first + i * 4 * PACK_ROWS, 4 * PACK_ROWS, run,
                         4);
        else
            copy_strided(near, 2, first + i * 2 * PACK_ROWS, 2 * PACK_ROWS, run,
                         2);
        fi->decode(dst + i, near, run);
    }
}

void pack_decode(const struct pack *p, const void *panel, int lane,
                 int64_t k_loc, int64_t n, float *dst)
{
    const struct format_info *fi = format_info(p->format);
    const struct pack_rule *rule = p->rule;
    const struct pack_chunk *c = find_chunk(p, k_loc);

    while (n > 0) {
        int64_t at = k_loc - c->k_loc;
        int64_t run = min64(n, c->n - at);
        const uint8_t *tile = pack_tile(p, panel, c, at / rule->tile_values);

        if (rule->tile_values == 1) {
            decode_strided(fi, tile + lane * fi->block_bytes, run, dst);
        } else {
            float whole[32];

            run = min64(run, 32 - at % 32);
            decode_tile(rule, (const uint8_t *)panel + c->off, tile, lane,
                        whole);
            memcpy(dst, whole + at % 32, (size_t)run * sizeof *dst);
        }
        k_loc += run;
        dst += run;
        n -= run;
        if (k_loc == c->k_loc + c->n)
            c++;
    }
}
