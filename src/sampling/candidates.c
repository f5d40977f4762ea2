/* The filters of candidates for the next token (candidates.h). Sources: top-k
 * arXiv:1805.04833, top-p arXiv:1904.09751, typical arXiv:2202.00666, min-p
 * arXiv:2407.01082, top-n-sigma arXiv:2411.07641, dynamic temperature
 * arXiv:2309.02772; XTC is llama.cpp's. */
#include "sampling/candidates.h"

#include "base/exact.h"

#include <string.h>

/* ---- the heap of candidates ---------------------------------------------- */

/* Returns true if candidate `a` comes before `b` in the order of a heap, whose
 * first candidate is at the root. */
typedef bool order_fn(const struct candidate *a, const struct candidate *b);

static bool best_first(const struct candidate *a, const struct candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static bool worst_first(const struct candidate *a, const struct candidate *b)
{
    return best_first(b, a);
}

static inline void sift_down(struct candidate *c, int32_t n, int32_t i,
                             order_fn *before)
{
    struct candidate x = c[i];

    for (;;) {
        int64_t child = 2 * (int64_t)i + 1;

        if (child >= n)
            break;
        if (child + 1 < n && before(&c[child + 1], &c[child]))
            child++;
        if (!before(&c[child], &x))
            break;
        c[i] = c[child];
        i = (int32_t)child;
    }
    c[i] = x;
}

static inline void heapify(struct candidate *c, int32_t n, order_fn *before)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(c, n, i, before);
}

/* Removes the best candidate from the heap c[0 .. *n) and stores it in c[*n -
 * 1], the place that becomes free. Decrements *n and returns that place. */
static struct candidate *take_best(struct candidate *c, int32_t *n)
{
    struct candidate best = c[0];

    c[0] = c[--*n];
    c[*n] = best;
    if (*n > 0)
        sift_down(c, *n, 0, best_first);
    return &c[*n];
}

/* Ends a sequence of take_best calls: drops the n_heap candidates that are
 * still in the heap, and moves the removed ones to c[0 .. a->n), best first. */
static void keep_taken(struct candidates *a, int32_t n_heap)
{
    int32_t n = a->n - n_heap;

    /* take_best stored the candidates at the end of the array, worst first */
    memmove(a->c, a->c + n_heap, (size_t)n * sizeof *a->c);
    for (int32_t i = 0, j = n - 1; i < j; i++, j--) {
        struct candidate x = a->c[i];

        a->c[i] = a->c[j];
        a->c[j] = x;
    }
    a->n = n;
}

void candidates_offer(struct candidates *a, int32_t most,
                      const struct candidate *c)
{
    if (a->n < most) {
        a->c[a->n++] = *c;
        if (a->n == most)
            heapify(a->c, a->n, worst_first);
    } else if (best_first(c, &a->c[0])) {
        a->c[0] = *c;
        sift_down(a->c, a->n, 0, worst_first);
    }
}

static void heap_of_logits(struct candidates *a)
{
    for (int32_t i = 0; i < a->n; i++)
        a->c[i].key = a->c[i].logit;
    heapify(a->c, a->n, best_first);
}

void candidates_sort(struct candidates *a)
{
    int32_t left = a->n;

    if (a->sorted)
        return;
    heap_of_logits(a);
    while (left > 0)
        take_best(a->c, &left);
    keep_taken(a, 0);
    a->sorted = true;
}

/* ---- functions that filters share ---------------------------------------- */

static const struct candidate *greatest(const struct candidates *a)
{
    const struct candidate *best = &a->c[0];

    for (int32_t i = 1; i < a->n && !a->sorted; i++)
        if (a->c[i].logit > best->logit ||
            (a->c[i].logit == best->logit && a->c[i].id < best->id))
            best = &a->c[i];
    return best;
}

void candidates_settle(struct candidates *a)
{
    for (int32_t i = 0; i < a->n && a->heat != 1; i++)
        a->c[i].logit = (float)(a->c[i].logit / a->heat);
    a->heat = 1;
}

double candidates_weigh(struct candidates *a)
{
    double top = greatest(a)->logit, sum = 0;

    for (int32_t i = 0; i < a->n; i++) {
        a->c[i].p = exact_exp((a->c[i].logit - top) / a->heat);
        sum += a->c[i].p;
    }
    return sum;
}

/* Returns the entropy of the candidates in nats. Their p must have been set by
 * candidates_weigh, which returned `sum`; log_sum is ln(sum). The surprise
 * -ln(p / sum) of a candidate is log_sum - (logit - top) / heat. */
static double entropy(const struct candidates *a, double sum, double log_sum)
{
    double top = greatest(a)->logit, all = 0;

    for (int32_t i = 0; i < a->n; i++)
        all += a->c[i].p / sum * (log_sum - (a->c[i].logit - top) / a->heat);
    return all;
}

static void keep_one(struct candidates *a, const struct candidate *c)
{
    a->c[0] = *c;
    a->n = 1;
    a->sorted = true;
}

/* ---- the filters --------------------------------------------------------- */

void candidates_top_k(struct candidates *a, int32_t k)
{
    int32_t left = a->n;

    if (k < 1 || k >= a->n)
        return;
    if (a->sorted) {
        a->n = k;
        return;
    }
    heap_of_logits(a);
    while (a->n - left < k)
        take_best(a->c, &left);
    keep_taken(a, left);
    a->sorted = true;
}

void candidates_typical(struct candidates *a, double mass)
{
    double sum, top, log_sum, middle, taken = 0;
    int32_t left = a->n;

    sum = candidates_weigh(a);
    top = greatest(a)->logit;
    log_sum = exact_log(sum);
    middle = entropy(a, sum, log_sum);
    for (int32_t i = 0; i < a->n; i++) {
        double off = log_sum - (a->c[i].logit - top) / a->heat - middle;

        a->c[i].key = off < 0 ? off : -off;
    }
    heapify(a->c, a->n, best_first);
    do
        taken += take_best(a->c, &left)->p;
    while (left > 0 && taken < mass * sum);
    keep_taken(a, left);
    a->sorted = false;
}

void candidates_top_p(struct candidates *a, double mass)
{
    double sum = candidates_weigh(a), taken = 0;
    int32_t left = a->n;

    if (a->sorted) {
        int32_t n = 0;

        do
            taken += a->c[n++].p;
        while (n < a->n && taken < mass * sum);
        a->n = n;
        return;
    }
    heap_of_logits(a);
    do
        taken += take_best(a->c, &left)->p;
    while (left > 0 && taken < mass * sum);
    keep_taken(a, left);
    a->sorted = true;
}

void candidates_min_p(struct candidates *a, double share)
{
    int32_t n = 0;

    /* Sets p of each candidate relative to the best one, whose p is 1. */
    candidates_weigh(a);
    for (int32_t i = 0; i < a->n; i++)
        if (a->c[i].p >= share)
            a->c[n++] = a->c[i];
    a->n = n;
}

void candidates_top_n_sigma(struct candidates *a, double n)
{
    double sum = 0, squares = 0, mean, top = greatest(a)->logit;
    int32_t kept = 0;

    for (int32_t i = 0; i < a->n; i++)
        sum += a->c[i].logit;
    mean = sum / a->n;
    for (int32_t i = 0; i < a->n; i++)
        squares += (a->c[i].logit - mean) * (a->c[i].logit - mean);
    for (int32_t i = 0; i < a->n; i++) {
        double below = top - a->c[i].logit;

        if (below * below <= n * n * (squares / a->n))
            a->c[kept++] = a->c[i];
    }
    a->n = kept;
}

void candidates_xtc(struct candidates *a, double threshold)
{
    double sum = candidates_weigh(a);
    /* the least likely of the candidates that reach the threshold */
    const struct candidate *last = NULL;
    int32_t n = 0, id;

    for (int32_t i = 0; i < a->n; i++) {
        const struct candidate *c = &a->c[i];

        if (c->p < threshold * sum)
            continue;
        if (!last || c->logit < last->logit ||
            (c->logit == last->logit && c->id > last->id))
            last = c;
    }
    id = last ? last->id : -1;
    for (int32_t i = 0; i < a->n; i++)
        if (a->c[i].p < threshold * sum || a->c[i].id == id)
            a->c[n++] = a->c[i];
    a->n = n;
}

void candidates_heat(struct candidates *a, double temperature)
{
    if (temperature > 0)
        a->heat *= temperature;
    else
        keep_one(a, greatest(a));
}

void candidates_dynamic_heat(struct candidates *a, double temperature,
                             double range, double exponent)
{
    double low = temperature > range ? temperature - range : 0;
    double sum, share;

    if (a->n < 2)
        return;
    sum = candidates_weigh(a);
    share = entropy(a, sum, exact_log(sum)) / exact_log(a->n);
    share = share < 1e-300 ? 1e-300 : share > 1 ? 1 : share;
    share = exact_exp(exponent * exact_log(share));
    candidates_heat(a, low + (temperature + range - low) * share);
}

int32_t candidates_draw(struct candidates *a, double u, double *p)
{
    double sum = candidates_weigh(a), at = u * sum;
    const struct candidate *c = NULL;

    for (int32_t i = 0; i < a->n; i++) {
        if (a->c[i].p == 0)
            continue;
        /* Remembers the last candidate with p > 0. It is also drawn if rounding
         * errors leave `at` above the last p. */
        c = &a->c[i];
        if (at < c->p)
            break;
        at -= c->p;
    }
    if (p && c)
        *p = c->p / sum;
    return c ? c->id : -1;
}
