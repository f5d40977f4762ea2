/* Implements search_fit.h. The candidates for a scale are those at which the
 * largest value lies near the outermost level; for each, the levels are chosen,
 * and the scale that is best for these levels follows by least squares. That is
 * the idea of llama.cpp's K-quants. Here the error of each solution is measured
 * with its own nearest levels. */
#include "quant/search_fit.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

static const float MOST_HALF = 65504;

typedef float quad __attribute__((vector_size(16)));
typedef int32_t mask __attribute__((vector_size(16)));

static inline quad load(const float *p)
{
    quad q;

    memcpy(&q, p, sizeof q);
    return q;
}

static inline quad spread(float x)
{
    return (quad){x, x, x, x};
}

static inline quad pick(mask m, quad yes, quad no)
{
    return (quad)(((mask)yes & m) | ((mask)no & ~m));
}

static inline float total(quad q)
{
    return (q[0] + q[1]) + (q[2] + q[3]);
}

/* Returns the element of v->nearest for a number. */
static inline int bin(const struct levels *v, float t)
{
    t = t < v->lo ? v->lo : t > v->hi ? v->hi : t;
    return (int)(2 * t + 256);
}

/* Returns the level nearest to each t. Adding and subtracting 1.5 * 2^23 rounds
 * to an integer, ties to even. */
static inline quad nearest(const struct levels *v, quad t)
{
    const quad magic = spread(0x1.8p23f);

    if (v->n == 0) {
        t = pick(t < v->lo, spread(v->lo), t);
        t = pick(t > v->hi, spread(v->hi), t);
        return (t + magic) - magic;
    }
    for (int i = 0; i < 4; i++)
        t[i] = v->level[v->nearest[bin(v, t[i])]];
    return t;
}

void quant_fit_table(struct levels *v, const float *level, int n)
{
    v->n = n;
    v->lo = level[0];
    v->hi = level[n - 1];
    for (int i = 0; i < n; i++)
        v->level[i] = level[i];
    for (int i = 0, l = 0; i < LEVELS_BINS; i++) {
        float t = (float)(i - 256) / 2;

        while (l < n - 1 && t >= (level[l] + level[l + 1]) / 2)
            l++;
        v->nearest[i] = (uint8_t)l;
    }
}

float quant_fit_half(float x)
{
    x = x < -MOST_HALF ? -MOST_HALF : x > MOST_HALF ? MOST_HALF : x;
    return f16_to_f32(f32_to_f16(x));
}

/* Returns 1 / d, or 0 if d is so small that 1 / d may overflow. */
static inline float inverse(float d)
{
    return fabsf(d) < 0x1p-126f ? 0 : 1 / d;
}

float quant_fit_error(const struct levels *v, const struct quant_fit_block *b,
                      float d, float m)
{
    const float inv = inverse(d);
    quad sum = {0};

    for (int i = 0; i < b->n; i += 4) {
        quad y = load(b->x + i) - m;
        quad e = y - d * nearest(v, y * inv);

        sum += load(b->w + i) * e * e;
    }
    return total(sum);
}

void quant_fit_measure(const struct levels *v, const struct quant_fit_block *b,
                       float d, float m, struct quant_fit_sums *out)
{
    const float inv = inverse(d);
    quad sw = {0}, sx = {0}, sl = {0}, sll = {0}, sxl = {0};

    for (int i = 0; i < b->n; i += 4) {
        quad x = load(b->x + i), w = load(b->w + i);
        quad l = nearest(v, (x - m) * inv), wl = w * l;

        sw += w;
        sx += w * x;
        sl += wl;
        sll += wl * l;
        sxl += wl * x;
    }
    *out = (struct quant_fit_sums){total(sw), total(sx), total(sl), total(sll),
                                   total(sxl)};
}

void quant_fit_codes(const struct levels *v, const struct quant_fit_block *b,
                     float d, float m, uint8_t *code)
{
    const float inv = inverse(d);

    for (int i = 0; i < b->n; i += 4) {
        quad t = (load(b->x + i) - m) * inv;

        if (v->n == 0) {
            quad l = nearest(v, t) - v->lo;

            for (int j = 0; j < 4; j++)
                code[i + j] = (uint8_t)l[j];
            continue;
        }
        for (int j = 0; j < 4; j++)
            code[i + j] = v->nearest[bin(v, t[j])];
    }
}

/* Solves for the d and m that are best for the levels of `s`. */
static void solve(const struct quant_fit_sums *s, enum quant_fit_min min,
                  struct quant_fit *f)
{
    double det = (double)s->w * s->ll - (double)s->l * s->l;

    if (min != FIT_NO_MIN && det > 1e-6 * s->w * s->ll) {
        f->d = (float)(((double)s->w * s->xl - (double)s->x * s->l) / det);
        f->m = (float)(((double)s->ll * s->x - (double)s->l * s->xl) / det);
        if (min == FIT_ANY_MIN || f->m <= 0)
            return;
    }
    f->d = s->ll > 0 ? s->xl / s->ll : 0;
    f->m = 0;
}

/* Tries the scale d with minimum m, and what least squares makes of it. */
static void attempt(const struct levels *v, const struct quant_fit_block *b,
                    enum quant_fit_min min, float d, float m,
                    struct quant_fit *best)
{
    struct quant_fit_sums s;
    struct quant_fit f;

    quant_fit_measure(v, b, d, m, &s);
    solve(&s, min, &f);
    if (min != FIT_NO_MIN && f.d < 0)
        return;
    f.error = quant_fit_error(v, b, f.d, f.m);
    if (f.error < best->error)
        *best = f;
}

struct quant_fit quant_fit_search(const struct levels *v,
                                  const struct quant_fit_block *b,
                                  enum quant_fit_min min)
{
    enum { STEPS = 13 };
    float least = b->x[0], most = b->x[0], span, outer;
    struct quant_fit best;

    for (int i = 1; i < b->n; i++) {
        least = b->x[i] < least ? b->x[i] : least;
        most = b->x[i] > most ? b->x[i] : most;
    }
    if (min == FIT_NEGATIVE_MIN && least > 0)
        least = 0;
    if (min == FIT_NO_MIN) {
        span = -least > most ? least : most;
        outer = v->lo < 0 && v->lo != -v->hi ? v->lo : v->hi;
        if (v->lo == -v->hi)
            span = fabsf(span);
        least = 0;
    } else {
        span = most - least;
        outer = v->hi;
    }
    best = (struct quant_fit){0, min == FIT_NO_MIN ? 0 : least, 0};
    best.error = quant_fit_error(v, b, 0, best.m);
    if (span == 0)
        return best;
    if (v->simple)
        return (struct quant_fit){span / outer, best.m, 0};
    for (int i = 0; i < STEPS; i++) {
        float at = v->unit *
                   (v->above - (v->above + v->below) * (float)i / (STEPS - 1));
        float reach = outer < 0 ? outer - at : outer + at;

        attempt(v, b, min, span / reach, least, &best);
    }
    if (v->n > 0 && v->lo < 0 && v->lo != -v->hi) /* the other end, too */
        for (int i = 0; i < STEPS; i++)
            attempt(v, b, min,
                    span / (v->hi +
                            v->unit * (v->above - (v->above + v->below) *
                                                      (float)i / (STEPS - 1))),
                    least, &best);
    for (int i = 0; i < 2; i++)
        attempt(v, b, min, best.d, best.m, &best);
    return best;
}
