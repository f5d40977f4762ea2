/* Searches for formats whose blocks have one scale, or one for each half. */
#include "quant/search_block.h"

#include <string.h>

#include "base/half.h"

void quant_search_levels(pl_format f, struct levels *v)
{
    const struct pack_rule *rule = format_info(f)->pack;
    const int n = 1 << (rule->low_bits + rule->high_bits);

    *v = (struct levels){
        .lo = (float)-rule->bias,
        .hi = (float)(n - 1 - rule->bias),
        .unit = 1,
        .below = 2,
        .above = 1.2f,
    };
    if (f == PL_Q8_0)
        v->lo = -127;
    if (f == PL_TQ1_0 || f == PL_TQ2_0) {
        v->hi = 1;
        v->below = 0;
        v->above = 6;
    }
    if (rule->table) {
        float level[16];
        int count = 0;

        /* in ascending order, each once */
        for (int l = -128; l < 128; l++)
            for (int c = 0; c < 16; c++)
                if (rule->table[c] == l) {
                    v->code[count] = (uint8_t)c;
                    level[count++] = (float)l;
                    break;
                }
        quant_fit_table(v, level, count);
        v->unit = 20;
    }
}

/* Returns the scale of 32 values, or of half h of them, that the bits `sub`
 * mean. */
static float scale_of(const struct pack_rule *rule, int h, unsigned sub)
{
    struct quant_lane l = {.sub = {(uint16_t)sub, (uint16_t)sub}};
    struct pack_scales s;

    pack_lane_scales(rule, &l, &s);
    return s.d[h];
}

/* Searches the bits of a scale of MXFP4 or NVFP4, of which there are few: those
 * near the scale at which the largest value has the largest level. */
static unsigned search_bits(pl_format f, const struct levels *v,
                            const struct quant_fit_block *b)
{
    const struct pack_rule *rule = format_info(f)->pack;
    const int last = f == PL_MXFP4 ? 254 : 126, back = f == PL_MXFP4 ? 2 : 8;
    float most = 0, error, least;
    int lo = 0, hi = last, best;

    for (int i = 0; i < b->n; i++) {
        float x = b->x[i] < 0 ? -b->x[i] : b->x[i];

        most = x > most ? x : most;
    }
    if (most == 0)
        return 0;
    while (lo < hi) { /* the least scale that reaches the largest value */
        int mid = (lo + hi) / 2;

        if (scale_of(rule, 0, (unsigned)mid) * v->hi >= most)
            hi = mid;
        else
            lo = mid + 1;
    }
    if (v->simple)
        return (unsigned)lo;
    best = lo;
    least = quant_fit_error(v, b, scale_of(rule, 0, (unsigned)lo), 0);
    for (int i = lo - back; i <= lo + 1 && i <= last; i++) {
        if (i < 0)
            continue;
        error = quant_fit_error(v, b, scale_of(rule, 0, (unsigned)i), 0);
        if (error < least) {
            least = error;
            best = i;
        }
    }
    return (unsigned)best;
}

/* Moves the codes of 32 values, which may be tile t of a larger block. */
static void put(pl_format f, const struct levels *v, uint8_t *block, int t,
                struct quant_lane *l)
{
    const struct pack_rule *rule = format_info(f)->pack;

    for (int i = 0; i < 32; i++)
        l->c[i] = quant_search_code(rule, v, l->c[i]);
    rule->move(block, t, l, true);
}

/* Searches the scales of MXFP4 and NVFP4. */
static void search_halves(pl_format f, const struct levels *v, uint8_t *block,
                          const float *x, const float *w)
{
    const struct format_info *fi = format_info(f);
    const int width = f == PL_MXFP4 ? 32 : 16;

    for (int t = 0; t < fi->block / 32; t++) {
        struct quant_lane l = {0};

        for (int h = 0; h < 32 / width; h++) {
            int at = 32 * t + width * h;
            struct quant_fit_block b = {x + at, w + at, width};

            l.sub[h] = (uint16_t)search_bits(f, v, &b);
            quant_fit_codes(v, &b, scale_of(fi->pack, h, l.sub[h]), 0,
                            l.c + width * h);
        }
        put(f, v, block, t, &l);
    }
}

void quant_search_plain(pl_format f, const struct levels *v, uint8_t *block,
                        const float *x, const float *w)
{
    const struct format_info *fi = format_info(f);
    const bool min = fi->pack->sub == PACK_SUB_F16_MIN;
    const struct quant_fit_block b = {x, w, fi->block};
    uint16_t d, m;
    struct quant_fit best;
    uint8_t index[256];

    if (f == PL_MXFP4 || f == PL_NVFP4) {
        search_halves(f, v, block, x, w);
        return;
    }
    best = quant_fit_search(v, &b, min ? FIT_ANY_MIN : FIT_NO_MIN);
    d = f32_to_f16(quant_fit_half(best.d));
    m = f32_to_f16(quant_fit_half(best.m));
    quant_fit_codes(v, &b, f16_to_f32(d), f16_to_f32(m), index);
    for (int t = 0; t < fi->block / 32; t++) {
        struct quant_lane l = {.sub = {d, m}, .sup = {d, 0}};

        memcpy(l.c, index + 32 * t, 32);
        put(f, v, block, t, &l);
    }
}
