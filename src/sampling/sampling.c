/* The chain of filters over one array of candidates.
 *
 * Top-k is applied while the logits are read, with a heap of k candidates. No
 * later filter sorts more than it keeps: candidates are made a heap and taken
 * from it, best first, until the filter has enough. Sums run over candidates
 * in their order in the array, which is fixed, so they are the same everywhere.
 * Sources: top-k arXiv:1805.04833, top-p arXiv:1904.09751, typical
 * arXiv:2202.00666, min-p arXiv:2407.01082, repetition penalty
 * arXiv:1909.05858. */
#include "sampling/sampling.h"

#include "base/err.h"
#include "base/exact.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cand {
    double key; /* greatest first in the heap; ties: lowest id */
    double p;   /* probability, unnormalised: e^(logit - greatest) */
    float logit;
    int32_t id;
};

struct sampler {
    struct sampling_options o; /* o.bias is NULL, see bias */
    int32_t n_vocab;
    uint64_t state; /* of the random numbers */

    struct cand *cand; /* owned, [cap] */
    int32_t cap;       /* top_k, or n_vocab where that is off */
    int32_t n;         /* candidates left */
    bool sorted;       /* by logit, greatest first */

    float *bias;    /* owned, [n_vocab], or NULL */
    int32_t *count; /* owned, [n_vocab]: occurrences in the window, or NULL */
    int32_t *ring;  /* owned, [penalty_last_n], or NULL */
    int64_t n_seen; /* tokens accepted */

    const uint32_t *allowed; /* borrowed, a bit a token, during a pick; or NULL:
                                all */
};

struct sampling_options sampling_defaults(void)
{
    return (struct sampling_options){.temperature = 0.8f,
                                     .top_k = 40,
                                     .typical = 1,
                                     .top_p = 0.95f,
                                     .min_p = 0.05f,
                                     .penalty_last_n = 64,
                                     .penalty_repeat = 1};
}

/* One row an option: where it is and what it may be. */
static const struct range {
    const char *name;
    size_t at;
    float low, high;
} ranges[] = {
#define ROW(field, low, high)                                                  \
    {                                                                          \
#field, offsetof(struct sampling_options, field), low, high            \
    }
    ROW(temperature, 0, 1000),
    ROW(typical, 0, 1),
    ROW(top_p, 0, 1),
    ROW(min_p, 0, 1),
    ROW(penalty_repeat, 0.001f, 1000),
    ROW(penalty_frequency, -1000, 1000),
    ROW(penalty_presence, -1000, 1000),
#undef ROW
};

static pl_status check(const struct sampling_options *o, int32_t n_vocab,
                       pl_err *err)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct range *r = &ranges[i];
        float v;

        memcpy(&v, (const char *)o + r->at, sizeof v);
        if (!(v >= r->low && v <= r->high))
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: %s is %g, it must be in %g .. %g",
                           r->name, (double)v, (double)r->low, (double)r->high);
    }
    if (n_vocab < 1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: a vocabulary of %d tokens", (int)n_vocab);
    if (o->top_k < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: top_k is %d, it must be 0 (off) or more",
                       (int)o->top_k);
    if (o->penalty_last_n < -1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: penalty_last_n is %d, it must be -1 (all), "
                       "0 (none) or more",
                       (int)o->penalty_last_n);
    if (o->n_bias < 0 || (o->n_bias > 0 && !o->bias))
        return err_set(err, PL_BAD_ARGUMENT, "sampling: n_bias is %lld",
                       (long long)o->n_bias);
    for (int64_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].id < 0 || o->bias[i].id >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: a bias for token %d of a vocabulary of "
                           "%d; ids go from 0 to %d",
                           (int)o->bias[i].id, (int)n_vocab, (int)n_vocab - 1);
        if (o->bias[i].bias != o->bias[i].bias)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: the bias of token %d is no number",
                           (int)o->bias[i].id);
    }
    return PL_OK;
}

static bool has_penalties(const struct sampling_options *o)
{
    return o->penalty_last_n != 0 &&
           (o->penalty_repeat != 1 || o->penalty_frequency != 0 ||
            o->penalty_presence != 0);
}

pl_status sampling_create(struct sampler **out, int32_t n_vocab,
                          const struct sampling_options *o, pl_err *err)
{
    struct sampler *s;
    size_t n = (size_t)n_vocab;

    *out = NULL;
    PL_TRY(check(o, n_vocab, err));
    s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a sampler");
    s->o = *o;
    s->o.bias = NULL;
    s->n_vocab = n_vocab;
    s->cap = o->top_k > 0 && o->top_k < n_vocab ? o->top_k : n_vocab;
    s->cand = malloc((size_t)s->cap * sizeof *s->cand);
    if (!s->cand)
        goto no_memory;
    if (o->n_bias > 0) {
        s->bias = calloc(n, sizeof *s->bias);
        if (!s->bias)
            goto no_memory;
        for (int64_t i = 0; i < o->n_bias; i++)
            s->bias[o->bias[i].id] += o->bias[i].bias;
    }
    if (has_penalties(o)) {
        s->count = malloc(n * sizeof *s->count);
        if (!s->count)
            goto no_memory;
        if (o->penalty_last_n > 0) {
            s->ring = malloc((size_t)o->penalty_last_n * sizeof *s->ring);
            if (!s->ring)
                goto no_memory;
        }
    }
    sampling_reset(s);
    *out = s;
    return PL_OK;
no_memory:
    sampling_free(s);
    return err_no_memory(err, "a sampler");
}

void sampling_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->cand);
    free(s->bias);
    free(s->count);
    free(s->ring);
    free(s);
}

void sampling_reset(struct sampler *s)
{
    s->state = s->o.seed;
    s->n_seen = 0;
    if (s->count)
        memset(s->count, 0, (size_t)s->n_vocab * sizeof *s->count);
}

void sampling_accept(struct sampler *s, int32_t id)
{
    if (!s->count || id < 0 || id >= s->n_vocab)
        return;
    if (s->ring) {
        int32_t *place = &s->ring[s->n_seen % s->o.penalty_last_n];

        if (s->n_seen >= s->o.penalty_last_n)
            s->count[*place]--;
        *place = id;
    }
    s->n_seen++;
    if (s->count[id] < INT32_MAX)
        s->count[id]++;
}

/* ---- the heap ---------------------------------------------------------- */

/* Which of two candidates stands nearer to the root. */
typedef bool order_fn(const struct cand *a, const struct cand *b);

static bool best_first(const struct cand *a, const struct cand *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static bool worst_first(const struct cand *a, const struct cand *b)
{
    return best_first(b, a);
}

static inline void sift_down(struct cand *c, int32_t n, int32_t i,
                             order_fn *before)
{
    struct cand x = c[i];

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

static inline void heapify(struct cand *c, int32_t n, order_fn *before)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(c, n, i, before);
}

/* Moves the best of the heap c[0 .. *n) behind its end and shrinks it. */
static struct cand *take_best(struct cand *c, int32_t *n)
{
    struct cand best = c[0];

    c[0] = c[--*n];
    c[*n] = best;
    if (*n > 0)
        sift_down(c, *n, 0, best_first);
    return &c[*n];
}

/* Ends a row of take_best: what was taken becomes c[0 .. n), best first. */
static void keep_taken(struct sampler *s, int32_t n_heap)
{
    int32_t n = s->n - n_heap;

    /* taken items stand at the end, worst first */
    memmove(s->cand, s->cand + n_heap, (size_t)n * sizeof *s->cand);
    for (int32_t i = 0, j = n - 1; i < j; i++, j--) {
        struct cand x = s->cand[i];

        s->cand[i] = s->cand[j];
        s->cand[j] = x;
    }
    s->n = n;
}

/* ---- the filters ------------------------------------------------------- */

static float adjusted(const struct sampler *s, int32_t id, float logit)
{
    int32_t n = s->count ? s->count[id] : 0;

    if (s->bias)
        logit += s->bias[id];
    if (n > 0) {
        logit = logit > 0 ? logit / s->o.penalty_repeat
                          : logit * s->o.penalty_repeat;
        logit -= (float)n * s->o.penalty_frequency + s->o.penalty_presence;
    }
    return logit;
}

/* Logits that are looked at together: loops of a known number of rounds, which
 * compilers turn into vectors. */
enum { BLOCK = 64, LANES = 16 };

/* Is each logit a number, or -infinity? */
static bool usable(const struct sampler *s, const float *logits)
{
    int32_t i = 0;
    int bad = 0;

    for (; i + BLOCK <= s->n_vocab; i += BLOCK)
        for (int k = 0; k < BLOCK; k++)
            bad |= !(logits[i + k] <= FLT_MAX);
    for (; i < s->n_vocab; i++)
        bad |= !(logits[i] <= FLT_MAX);
    return !bad;
}

static float greatest_of_block(const float *x)
{
    float lane[LANES], most;

    memcpy(lane, x, sizeof lane);
    for (int i = LANES; i < BLOCK; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = lane[k] > x[i + k] ? lane[k] : x[i + k];
    most = lane[0];
    for (int k = 1; k < LANES; k++)
        most = most > lane[k] ? most : lane[k];
    return most;
}

/* Are the logits themselves what counts, and of all tokens? */
static bool is_plain(const struct sampler *s)
{
    return !s->bias && !s->count && !s->allowed;
}

/* The candidate of a token; false if it cannot be drawn: one that is not
 * allowed, -infinity, and NaN, which a bias can make of that. */
static bool candidate(const struct sampler *s, const float *logits, int32_t id,
                      struct cand *c)
{
    float x;

    if (s->allowed && !(s->allowed[id / 32] >> id % 32 & 1))
        return false;
    x = adjusted(s, id, logits[id]);
    if (!(x >= -FLT_MAX))
        return false;
    x = x > FLT_MAX ? FLT_MAX : x;
    *c = (struct cand){.key = x, .logit = x, .id = id};
    return true;
}

/* The first of the greatest; -1: all are -infinity. */
static int32_t first_greatest(const float *logits, int32_t n)
{
    float most = -INFINITY;
    int32_t i = 0, at = 0;

    for (; i + BLOCK <= n; i += BLOCK) {
        float here = greatest_of_block(logits + i);

        at = here > most ? i : at;
        most = here > most ? here : most;
    }
    for (; i < n; i++) {
        at = logits[i] > most ? i : at;
        most = logits[i] > most ? logits[i] : most;
    }
    while (most >= -FLT_MAX && logits[at] != most)
        at++;
    return most >= -FLT_MAX ? at : -1;
}

static int32_t most_likely(const struct sampler *s, const float *logits)
{
    struct cand best = {.id = -1}, c;

    if (is_plain(s))
        return first_greatest(logits, s->n_vocab);
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (candidate(s, logits, i, &c) && (best.id < 0 || c.key > best.key))
            best = c;
    return best.id;
}

/* All candidates, or the top k of them in order. */
static void collect(struct sampler *s, const float *logits)
{
    bool top_k = s->cap < s->n_vocab, plain = is_plain(s);
    struct cand c;

    s->n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        /* Of two that are equal the first counts: none of these is wanted. */
        if (plain && i % BLOCK == 0 && i + BLOCK <= s->n_vocab &&
            s->n == s->cap && greatest_of_block(logits + i) <= s->cand[0].key) {
            i += BLOCK - 1;
            continue;
        }
        if (!candidate(s, logits, i, &c))
            continue;
        if (s->n < s->cap) {
            s->cand[s->n++] = c;
            if (top_k && s->n == s->cap)
                heapify(s->cand, s->n, worst_first);
        } else if (best_first(&c, &s->cand[0])) {
            s->cand[0] = c;
            sift_down(s->cand, s->n, 0, worst_first);
        }
    }
    s->sorted = top_k;
    if (top_k) {
        int32_t left = s->n;

        heapify(s->cand, s->n, best_first);
        while (left > 0)
            take_best(s->cand, &left);
        keep_taken(s, 0);
    }
}

static const struct cand *greatest(const struct sampler *s)
{
    const struct cand *best = &s->cand[0];

    for (int32_t i = 1; i < s->n; i++)
        if (s->cand[i].logit > best->logit ||
            (s->cand[i].logit == best->logit && s->cand[i].id < best->id))
            best = &s->cand[i];
    return best;
}

/* Sets p of every candidate at this temperature; returns their sum. */
static double weigh(struct sampler *s, double temperature)
{
    double top = greatest(s)->logit, sum = 0;

    for (int32_t i = 0; i < s->n; i++) {
        s->cand[i].p = exact_exp((s->cand[i].logit - top) / temperature);
        sum += s->cand[i].p;
    }
    return sum;
}

/* The tokens whose surprise -ln p is nearest to the entropy. */
static void keep_typical(struct sampler *s)
{
    double sum, top, log_sum, entropy = 0, mass = 0;
    int32_t left = s->n;

    if (s->o.typical >= 1)
        return;
    sum = weigh(s, 1);
    top = greatest(s)->logit;
    log_sum = exact_log(sum);
    for (int32_t i = 0; i < s->n; i++)
        entropy += s->cand[i].p / sum * (log_sum - (s->cand[i].logit - top));
    for (int32_t i = 0; i < s->n; i++) {
        double off = log_sum - (s->cand[i].logit - top) - entropy;

        s->cand[i].key = off < 0 ? off : -off;
    }
    heapify(s->cand, s->n, best_first);
    do
        mass += take_best(s->cand, &left)->p;
    while (left > 0 && mass < s->o.typical * sum);
    keep_taken(s, left);
    s->sorted = false;
}

static void keep_top_p(struct sampler *s)
{
    double sum, mass = 0;
    int32_t left = s->n;

    if (s->o.top_p >= 1)
        return;
    sum = weigh(s, 1);
    if (s->sorted) {
        int32_t n = 0;

        do
            mass += s->cand[n++].p;
        while (n < s->n && mass < s->o.top_p * sum);
        s->n = n;
        return;
    }
    for (int32_t i = 0; i < s->n; i++)
        s->cand[i].key = s->cand[i].logit;
    heapify(s->cand, s->n, best_first);
    do
        mass += take_best(s->cand, &left)->p;
    while (left > 0 && mass < s->o.top_p * sum);
    keep_taken(s, left);
    s->sorted = true;
}

static void keep_min_p(struct sampler *s)
{
    int32_t n = 0;

    if (s->o.min_p <= 0)
        return;
    weigh(s, 1); /* the best one's p is 1 */
    for (int32_t i = 0; i < s->n; i++)
        if (s->cand[i].p >= s->o.min_p)
            s->cand[n++] = s->cand[i];
    s->n = n;
}

static int32_t draw(struct sampler *s, double u)
{
    double at = u * weigh(s, s->o.temperature);
    int32_t id = -1;

    for (int32_t i = 0; i < s->n; i++) {
        if (s->cand[i].p == 0)
            continue;
        id = s->cand[i].id; /* the last one, should rounding lead past it */
        if (at < s->cand[i].p)
            break;
        at -= s->cand[i].p;
    }
    return id;
}

static int32_t pick(struct sampler *s, const float *logits)
{
    double u = exact_uniform(&s->state);

    if (!usable(s, logits))
        return -1;
    if (s->o.temperature == 0)
        return most_likely(s, logits);
    collect(s, logits);
    if (s->n == 0)
        return -1;
    keep_typical(s);
    keep_top_p(s);
    keep_min_p(s);
    return draw(s, u);
}

int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed)
{
    int32_t id;

    s->allowed = allowed;
    id = pick(s, logits);
    s->allowed = NULL;
    return id;
}
