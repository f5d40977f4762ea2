/* The two versions of Mirostat (mirostat.h). Both limit the surprise -log2 p of
 * the drawn token to mu bits. */
#include "sampling/mirostat.h"

#include "base/exact.h"

static const double ln2 = 0x1.62e42fefa39efp-1;

/* Zipf's exponent is estimated from this number of likeliest tokens. */
enum { N_SLOPE = 100 };

/* Returns e^x for any x; for x > 700, where it would overflow, e^700. */
static double power(double x)
{
    return x <= 0 ? exact_exp(x) : 1 / exact_exp(x < 700 ? -x : -700);
}

/* Mirostat version 1: returns the number k of candidates to keep, such that the
 * k-th likeliest token of a vocabulary that obeys Zipf's law has a surprise of
 * mu bits. The candidates must be sorted, and their p set by
 * candidates_weigh. */
static int32_t likeliest(const struct candidates *a, int32_t n_vocab, double mu)
{
    double above = 0, below = 0, slope, rest, k;

    for (int32_t i = 0; i + 1 < a->n && i + 1 < N_SLOPE; i++) {
        double t = exact_log((i + 2.0) / (i + 1.0));

        if (a->c[i + 1].p < 1e-300)
            break;
        above += t * exact_log(a->c[i].p / a->c[i + 1].p);
        below += t * t;
    }
    slope = below > 0 ? above / below : 0;
    if (slope < 1e-6)
        return a->n;
    rest = slope - 1;
    /* The paper's formula, in logarithms below: k = (rest 2^mu / (1 - n^-rest))
     * ^ (1 / slope), where n is n_vocab. `rest` becomes rest / (1 - n^-rest)
     * here. */
    rest = rest > -1e-9 && rest < 1e-9
               ? 1 / exact_log(n_vocab > 1 ? n_vocab : 2)
               : rest / (1 - power(-rest * exact_log(n_vocab)));
    k = (exact_log(rest) + mu * ln2) / slope;
    if (k >= exact_log(a->n))
        return a->n;
    k = power(k);
    return k < 1 ? 1 : (int32_t)k;
}

int32_t mirostat_draw(struct candidates *a, const struct sampling_options *o,
                      int32_t n_vocab, double u, double *mu)
{
    double sum, p = 1;
    int32_t id;

    candidates_sort(a);
    sum = candidates_weigh(a);
    if (o->mirostat == 1) {
        candidates_top_k(a, likeliest(a, n_vocab, *mu));
    } else {
        double least = sum * power(-*mu * ln2);
        int32_t n = 1;

        while (n < a->n && a->c[n].p >= least)
            n++;
        a->n = n;
    }
    id = candidates_draw(a, u, &p);
    *mu -= (double)o->mirostat_eta * (-exact_log(p) / ln2 - o->mirostat_tau);
    return id;
}
