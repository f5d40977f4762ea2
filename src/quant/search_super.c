/* Searches for formats whose super-blocks have integer scales: the K-quants and
 * IQ4_XS.
 *
 * First each part of a super-block is fitted alone. The super scales follow
 * from the largest scale and the largest minimum. Then two steps alternate: the
 * integer scales of each part are chosen among the nearest ones by the error
 * that they cause; the super scales are solved by least squares for the levels
 * so chosen. */
#include "quant/search_block.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { PARTS = 16 };

/* The integer scales of a format. */
struct ranges {
    int width;      /* values of a part: 16 or 32 */
    int s_lo, s_hi; /* least and greatest scale */
    int m_hi;       /* greatest minimum; 0 if there is none */
};

static const struct ranges ranges[PL_FORMAT_COUNT] = {
    [PL_Q2_K] = {16, 0, 15, 15},    [PL_Q3_K] = {16, -32, 31, 0},
    [PL_Q4_K] = {32, 0, 63, 63},    [PL_Q5_K] = {32, 0, 63, 63},
    [PL_Q6_K] = {16, -128, 127, 0}, [PL_IQ4_XS] = {32, -32, 31, 0},
};

/* A super-block with the scales found so far. */
struct super {
    const struct ranges *r;
    const struct levels *v;
    int n; /* number of parts */
    struct quant_fit_block part[PARTS];
    float d, dmin;
    int s[PARTS], m[PARTS];
    float error[PARTS];
};

static int limit(float x, int lo, int hi)
{
    return x <= (float)lo ? lo : x >= (float)hi ? hi : (int)lrintf(x);
}

/* Sets the scales of part i to the best near s and m, or to s and m without a
 * search. */
static void choose(struct super *u, int i, int s, int m)
{
    const struct ranges *r = u->r;
    const int near = u->v->simple ? 0 : 1;

    u->error[i] = INFINITY;
    for (int a = s - near; a <= s + near; a++)
        for (int b = m - near; b <= m + near; b++) {
            float error;

            if (a < r->s_lo || a > r->s_hi || b < 0 || b > r->m_hi)
                continue;
            error = quant_fit_error(u->v, &u->part[i], u->d * (float)a,
                                    -u->dmin * (float)b);
            if (error < u->error[i]) {
                u->error[i] = error;
                u->s[i] = a;
                u->m[i] = b;
            }
        }
}

static float whole_error(const struct super *u)
{
    float sum = 0;

    for (int i = 0; i < u->n; i++)
        sum += u->error[i];
    return sum;
}

/* Solves for the super scales that are best for the levels of all parts. */
static void solve_super(struct super *u)
{
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0, det;
    float d, dmin;

    for (int i = 0; i < u->n; i++) {
        double s = u->s[i], m = u->m[i];
        struct quant_fit_sums f;

        quant_fit_measure(u->v, &u->part[i], u->d * (float)s,
                          -u->dmin * (float)m, &f);
        ss += s * s * (double)f.ll;
        sm += s * m * (double)f.l;
        mm += m * m * (double)f.w;
        sx += s * (double)f.xl;
        mx += m * (double)f.x;
    }
    det = ss * mm - sm * sm;
    if (u->r->m_hi > 0 && det > 1e-9 * ss * mm) {
        d = quant_fit_half((float)((mm * sx - sm * mx) / det));
        dmin = quant_fit_half((float)((sm * sx - ss * mx) / det));
        if (d > 0 && dmin >= 0) {
            u->d = d;
            u->dmin = dmin;
        }
    } else if (ss > 0) {
        u->d = quant_fit_half((float)((sx + sm * (double)u->dmin) / ss));
    }
}

/* Chooses super scales and integer scales for the fits of the parts. */
static void start(struct super *u, const struct quant_fit *fit)
{
    float most = 0, min = 0;

    for (int i = 0; i < u->n; i++) {
        most = fabsf(fit[i].d) > fabsf(most) ? fit[i].d : most;
        min = -fit[i].m > min ? -fit[i].m : min;
    }
    u->d = quant_fit_half(most /
                          (float)(u->r->s_lo < 0 ? u->r->s_lo : u->r->s_hi));
    u->dmin = u->r->m_hi > 0 ? quant_fit_half(min / (float)u->r->m_hi) : 0;
    for (int i = 0; i < u->n; i++) {
        int s = u->d == 0 ? 0 : limit(fit[i].d / u->d, u->r->s_lo, u->r->s_hi);
        int m = u->dmin == 0 ? 0 : limit(-fit[i].m / u->dmin, 0, u->r->m_hi);

        choose(u, i, s, m);
    }
}

static void refine(struct super *u)
{
    for (int round = 0; round < 2 && !u->v->simple; round++) {
        struct super next = *u;

        solve_super(&next);
        for (int i = 0; i < u->n; i++)
            choose(&next, i, u->s[i], u->m[i]);
        if (!(whole_error(&next) < whole_error(u)))
            return;
        *u = next;
    }
}

/* The scales of tile t as the bits of a lane. */
static void put_scales(pl_format f, const struct super *u, int t,
                       struct quant_lane *l)
{
    l->sup[0] = f32_to_f16(u->d);
    l->sup[1] = f32_to_f16(u->dmin);
    switch (format_info(f)->pack->sub) {
    case PACK_SUB_U8_MIN:
        l->sub[0] = (uint16_t)u->s[t];
        l->sub[1] = (uint16_t)u->m[t];
        break;
    case PACK_SUB_U8X2_MIN:
        for (int h = 0; h < 2; h++)
            l->sub[h] = (uint16_t)(u->s[2 * t + h] | u->m[2 * t + h] << 4);
        break;
    case PACK_SUB_S8:
        l->sub[0] = (uint8_t)u->s[t];
        break;
    default:
        for (int h = 0; h < 2; h++)
            l->sub[h] = (uint8_t)u->s[2 * t + h];
        break;
    }
}

void quant_search_super(pl_format f, const struct levels *v, uint8_t *block,
                        const float *x, const float *w)
{
    const struct ranges *r = &ranges[f];
    const struct pack_rule *rule = format_info(f)->pack;
    struct super u = {.r = r, .v = v, .n = 256 / r->width};
    struct quant_fit fit[PARTS];
    uint8_t index[256];

    for (int i = 0; i < u.n; i++) {
        u.part[i] = (struct quant_fit_block){x + r->width * i, w + r->width * i,
                                             r->width};
        fit[i] = quant_fit_search(v, &u.part[i],
                                  r->m_hi > 0 ? FIT_NEGATIVE_MIN : FIT_NO_MIN);
    }
    start(&u, fit);
    refine(&u);
    for (int i = 0; i < u.n; i++)
        quant_fit_codes(v, &u.part[i], u.d * (float)u.s[i],
                        -u.dmin * (float)u.m[i], index + r->width * i);
    for (int t = 0; t < 8; t++) {
        struct quant_lane l = {0};

        put_scales(f, &u, t, &l);
        for (int i = 0; i < 32; i++)
            l.c[i] = quant_search_code(rule, v, index[32 * t + i]);
        rule->move(block, t, &l, true);
    }
}
