/* The sampler: each filter keeps the right tokens, each penalty has its effect,
 * and a seed decides everything. */
#include "lib/support.h"

#include "base/exact.h"
#include "lib/alloc_fail.h"
#include "sampling/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns options without filters and penalties, at temperature 1. */
static struct sampling_options plain(void)
{
    struct sampling_options o = sampling_defaults();

    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

static struct sampler *make(int32_t n_vocab, const struct sampling_options *o)
{
    struct sampler *s = NULL;
    pl_err err = {0};

    TEST_OK(sampling_create(&s, n_vocab, o, &err), err);
    return s;
}

/* Counts in count[] how often each id is sampled in n draws from the logits. */
static void count_draws(const struct sampling_options *o, int32_t n_vocab,
                        const float *logits, int n, int *count)
{
    struct sampler *s = make(n_vocab, o);

    memset(count, 0, (size_t)n_vocab * sizeof *count);
    for (int i = 0; i < n; i++) {
        int32_t id = sampling_pick(s, logits, NULL);

        assert_in_range(id, 0, n_vocab - 1);
        count[id]++;
    }
    sampling_free(s);
}

static int32_t pick_once(const struct sampling_options *o, int32_t n_vocab,
                         const float *logits)
{
    struct sampler *s = make(n_vocab, o);
    int32_t id = sampling_pick(s, logits, NULL);

    sampling_free(s);
    return id;
}

/* Logits of the probabilities 0.15, 0.5, 0.1 and 0.25. */
static const float four[4] = {-1.8971200f, -0.6931472f, -2.3025851f,
                              -1.3862944f};
enum { P50 = 1, P25 = 3, P15 = 0, P10 = 2 };

TEST(sampling_defaults_are_the_documented_ones)
{
    struct sampling_options o = sampling_defaults();

    assert_true(o.temperature == 0.8f && o.top_k == 40 && o.typical == 1 &&
                o.top_p == 0.95f && o.min_p == 0.05f);
    assert_true(o.penalty_repeat == 1 && o.penalty_frequency == 0 &&
                o.penalty_presence == 0);
    assert_int_equal(o.n_bias, 0);
}

TEST(sampling_temperature_0_takes_the_best_lowest_id)
{
    static const float x[] = {1, 3, 3, -7, 3};
    struct sampling_options o = sampling_defaults();

    o.temperature = 0;
    assert_int_equal(pick_once(&o, 5, x), 1);
    o.top_k = 0;
    o.top_p = 0.1f;
    o.seed = 99;
    assert_int_equal(pick_once(&o, 5, x), 1);
    /* at a temperature near 0 only the largest logit has a chance */
    o.temperature = 1e-30f;
    o.top_k = 1;
    assert_int_equal(pick_once(&o, 5, x), 1);
}

TEST(sampling_draws_follow_the_softmax)
{
    static const double p[4] = {0.15, 0.5, 0.1, 0.25};
    struct sampling_options o = plain();
    int count[4], n = 40000;
    double sum = 0;

    o.seed = test_seed();
    count_draws(&o, 4, four, n, count);
    /* the counts differ from the expected by less than 5 standard deviations */
    for (int i = 0; i < 4; i++)
        assert_true(fabs(count[i] - n * p[i]) <
                    5 * sqrt(n * p[i] * (1 - p[i])));
    /* at temperature 2 probabilities are in proportion to p^(1/2) */
    o.temperature = 2;
    count_draws(&o, 4, four, n, count);
    for (int i = 0; i < 4; i++)
        sum += sqrt(p[i]);
    for (int i = 0; i < 4; i++) {
        double q = sqrt(p[i]) / sum;

        assert_true(fabs(count[i] - n * q) < 5 * sqrt(n * q * (1 - q)));
    }
}

TEST(sampling_top_k_keeps_the_k_best_lowest_ids)
{
    static const float x[] = {0, 1, 2, 1, 1, 2};
    struct sampling_options o = plain();
    int count[6];

    o.top_k = 3;
    count_draws(&o, 6, x, 4000, count);
    assert_true(count[2] > 0 && count[5] > 0 && count[1] > 0);
    assert_int_equal(count[0] + count[3] + count[4], 0);
    o.top_k = 7; /* more than the 6 tokens there are, so all are kept */
    count_draws(&o, 6, x, 4000, count);
    for (int i = 0; i < 6; i++)
        assert_true(count[i] > 0);
}

TEST(sampling_top_p_keeps_the_smallest_set_of_that_mass)
{
    static const struct {
        float p;
        int n_kept;
    } cases[] = {{0, 1}, {0.4f, 1}, {0.6f, 2}, {0.8f, 3}, {0.95f, 4}, {1, 4}};
    static const int best[] = {P50, P25, P15, P10};
    int count[4];

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        /* 0 leaves the tokens unsorted, 3 sorts them */
        for (int top_k = 0; top_k <= 3; top_k += 3) {
            struct sampling_options o = plain();

            o.top_p = cases[c].p;
            o.top_k = top_k;
            count_draws(&o, 4, four, 2000, count);
            for (int i = 0; i < 4; i++) {
                bool kept = i < cases[c].n_kept && (top_k == 0 || i < top_k);

                /* top-k 3 leaves 0.9, and 0.8 of that is 0.72, for which two
                 * tokens suffice */
                if (top_k == 3 && cases[c].p == 0.8f)
                    kept = i < 2;
                assert_int_equal(count[best[i]] > 0, kept);
            }
        }
    }
}

TEST(sampling_min_p_is_relative_to_the_best)
{
    struct sampling_options o = plain();
    int count[4];

    o.min_p = 0.4f; /* 0.4 times the largest probability, 0.5, is 0.2 */
    count_draws(&o, 4, four, 2000, count);
    assert_true(count[P50] > 0 && count[P25] > 0);
    assert_int_equal(count[P15] + count[P10], 0);
    o.min_p = 1;
    count_draws(&o, 4, four, 2000, count);
    assert_int_equal(count[P50], 2000);
}

TEST(sampling_typical_keeps_what_is_near_the_entropy)
{
    struct sampling_options o = plain();
    int count[4];

    /* The entropy is 1.208; surprises are 0.693 1.386 1.897 2.303, so they are
     * taken in the order 0.25, 0.5, 0.15, 0.1. */
    o.typical = 0.2f;
    count_draws(&o, 4, four, 2000, count);
    assert_int_equal(count[P25], 2000);
    o.typical = 0.7f;
    count_draws(&o, 4, four, 2000, count);
    assert_true(count[P50] > 0 && count[P25] > 0);
    assert_int_equal(count[P15] + count[P10], 0);
}

/* ---- the chain against a naive one -------------------------------------- */

struct naive {
    double p, key;
    float x;
    int32_t id;
};

static int by_key(const void *a, const void *b)
{
    const struct naive *x = a, *y = b;

    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static double softmax(struct naive *c, int n, double temperature)
{
    double top = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        top = c[i].x > top ? c[i].x : top;
    for (int i = 0; i < n; i++)
        sum += c[i].p = exp((c[i].x - top) / temperature);
    for (int i = 0; i < n; i++)
        c[i].p /= sum;
    return sum;
}

static int keep_mass(const struct naive *c, int n, double mass)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += c[i].p;
        if (sum >= mass)
            return i + 1;
    }
    return n;
}

/* Picks with a full sort for every filter and libm; the draw as documented. */
static int32_t naive_pick(const float *x, int n,
                          const struct sampling_options *o, double u)
{
    struct naive c[64];
    double entropy = 0, top;
    int m = 0;

    for (int i = 0; i < n; i++)
        c[i] = (struct naive){.x = x[i], .key = x[i], .id = i};
    if (o->top_k > 0 && o->top_k < n) {
        qsort(c, (size_t)n, sizeof *c, by_key);
        n = o->top_k;
    }
    if (o->typical < 1) {
        softmax(c, n, 1);
        for (int i = 0; i < n; i++)
            entropy -= c[i].p * log(c[i].p);
        for (int i = 0; i < n; i++)
            c[i].key = -fabs(-log(c[i].p) - entropy);
        qsort(c, (size_t)n, sizeof *c, by_key);
        n = keep_mass(c, n, o->typical);
        for (int i = 0; i < n; i++)
            c[i].key = c[i].x;
    }
    if (o->top_p < 1) {
        qsort(c, (size_t)n, sizeof *c, by_key);
        softmax(c, n, 1);
        n = keep_mass(c, n, o->top_p);
    }
    softmax(c, n, 1);
    top = 0;
    for (int i = 0; i < n; i++)
        top = c[i].p > top ? c[i].p : top;
    for (int i = 0; i < n; i++)
        if (c[i].p >= o->min_p * top)
            c[m++] = c[i];
    softmax(c, m, o->temperature);
    for (int i = 0; i < m - 1; i++) {
        if (u < c[i].p)
            return c[i].id;
        u -= c[i].p;
    }
    return c[m - 1].id;
}

TEST(sampling_chain_equals_a_naive_one)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < 20000; round++) {
        struct sampling_options o = plain();
        int n = 1 + (int)test_below(&rng, 60);
        uint64_t seed;
        float x[64];

        o.top_k = test_below(&rng, 2) ? (int32_t)test_below(&rng, 70) : 0;
        o.typical = test_below(&rng, 3) ? 1 : 0.5f + 0.5f * test_unit(&rng);
        o.top_p = test_below(&rng, 2) ? 1 : 0.5f + 0.5f * test_unit(&rng);
        o.min_p = test_below(&rng, 2) ? 0 : 0.1f + 0.1f * test_unit(&rng);
        o.temperature = 0.05f + 1.5f * fabsf(test_unit(&rng));
        o.seed = seed = test_random(&rng);
        for (int i = 0; i < n; i++)
            x[i] = 6 * test_unit(&rng);
        assert_int_equal(pick_once(&o, n, x),
                         naive_pick(x, n, &o, exact_uniform(&seed)));
    }
}

/* ---- penalties and bias -------------------------------------------------- */

/* Picks greedily over `x` after the given tokens were accepted. */
static int32_t after(const struct sampling_options *o, int32_t n,
                     const float *x, const int32_t *ids, int n_id)
{
    struct sampler *s = make(n, o);
    int32_t id;

    for (int i = 0; i < n_id; i++)
        sampling_accept(s, ids[i]);
    id = sampling_pick(s, x, NULL);
    sampling_free(s);
    return id;
}

TEST(sampling_penalties_change_logits_as_written)
{
    static const int32_t seen[] = {0, 0, 2};
    struct sampling_options o = plain();
    float x[3] = {2, 1, -1};

    o.temperature = 0;
    /* 2 / 2 = 1 equals another logit, and the lower id is chosen */
    o.penalty_repeat = 2;
    assert_int_equal(after(&o, 3, x, seen, 3), 0);
    x[1] = 1.001f;
    assert_int_equal(after(&o, 3, x, seen, 3), 1);
    x[0] = -3; /* -3 becomes -6, and -1 becomes -2 */
    x[1] = -2.001f;
    assert_int_equal(after(&o, 3, x, seen, 3), 2);
    x[1] = -1.999f;
    assert_int_equal(after(&o, 3, x, seen, 3), 1);

    o.penalty_repeat = 1;
    /* the token occurs twice, so 0.5 is subtracted */
    o.penalty_frequency = 0.25f;
    /* subtracted once, although the token occurs twice */
    o.penalty_presence = 0.25f;
    x[0] = 2;
    x[1] = 1.249f;
    assert_int_equal(after(&o, 3, x, seen, 3), 0);
    x[1] = 1.251f;
    assert_int_equal(after(&o, 3, x, seen, 3), 1);
}

TEST(sampling_penalty_window_forgets)
{
    static const int32_t seen[] = {0, 1, 1, -5, 77};
    struct sampling_options o = plain();
    static const float x[3] = {2, 1, 1.5f};

    o.temperature = 0;
    o.penalty_presence = 10;
    o.penalty_last_n = 3;
    /* ids outside the vocabulary do not count */
    assert_int_equal(after(&o, 3, x, seen, 5), 2);
    o.penalty_last_n = 2;
    assert_int_equal(after(&o, 3, x, seen, 5), 0);
    o.penalty_last_n = 0;
    assert_int_equal(after(&o, 3, x, seen, 5), 0);
    o.penalty_last_n = -1;
    assert_int_equal(after(&o, 3, x, seen, 5), 2);
}

TEST(sampling_bias_adds_and_forbids)
{
    static const struct sampling_bias up[] = {{2, 1}, {2, 1.5f}};
    static const struct sampling_bias none[] = {{0, -INFINITY}, {1, -INFINITY}};
    static const float x[3] = {2, 1, 0};
    struct sampling_options o = plain();
    int count[3];

    o.temperature = 0;
    o.bias = up;
    o.n_bias = 1;
    assert_int_equal(pick_once(&o, 3, x), 0);
    o.n_bias = 2; /* both biases of the same token count */
    assert_int_equal(pick_once(&o, 3, x), 2);
    o.temperature = 1;
    o.bias = none;
    count_draws(&o, 3, x, 500, count);
    assert_int_equal(count[2], 500);
    /* the biases leave no token with a finite logit */
    assert_int_equal(pick_once(&o, 2, x), -1);
    o.temperature = 0;
    assert_int_equal(pick_once(&o, 2, x), -1);
}

TEST(sampling_chooses_only_allowed_tokens)
{
    static const struct sampling_bias up[] = {{2, 1.5f}, {0, 50}};
    static const int32_t only[] = {1, 2};
    static const float x[4] = {2, 1, 0, -1};
    struct sampling_options o = plain();
    int count[4];

    o.only = only;
    o.n_only = 2;
    count_draws(&o, 4, x, 2000, count);
    assert_true(count[0] == 0 && count[3] == 0);
    assert_true(count[1] > 1300 && count[1] < 1600); /* 2000 e / (1 + e) */
    o.bias = up;
    o.n_bias = 2;
    o.temperature = 0;
    assert_int_equal(pick_once(&o, 4, x), 2);
}

/* A sequence may begin, but never ends; after it was begun otherwise, its last
 * token is as likely as before. */
TEST(sampling_never_completes_banned_sequences)
{
    static const int32_t banned[] = {0, -1, 1, 2, -1, 2, 1, 3, -1, 3, 1, -1};
    static const float x[5] = {9, 1, 3, 2, 0};
    static const struct {
        int32_t accepted[4], best; /* -1 after the last */
    } rows[] = {
        {{-1}, 2},          {{1, -1}, 3},    {{4, 1, -1}, 3},
        {{2, 1, -1}, 1},    {{1, 4, -1}, 2}, {{2, 4, 1, -1}, 3},
        {{4, 2, 1, -1}, 1}, {{0, 3, -1}, 2},
    };
    struct sampling_options o = plain();

    o.temperature = 0;
    o.banned = banned;
    o.n_banned = 12;
    for (int again = 0; again < 2; again++) {
        struct sampler *s = make(5, &o);

        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            for (int k = 0; rows[i].accepted[k] >= 0; k++)
                sampling_accept(s, rows[i].accepted[k]);
            /* Each pick leaves the biases as they were. */
            for (int k = 0; k < 2; k++)
                assert_int_equal(sampling_pick(s, x, NULL), rows[i].best);
            sampling_reset(s);
        }
        sampling_free(s);
        o.temperature = 0.001f;
    }
}

TEST(sampling_broken_logits_are_never_drawn)
{
    const float x[] = {-INFINITY, 1, -INFINITY, 2};
    const float none[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const float broken[][4] = {{NAN, 1, 2, 3},
                               {1, 2, 3, -NAN},
                               {NAN, NAN, -INFINITY, -INFINITY},
                               {1, 2, INFINITY, FLT_MAX}};
    struct sampling_options o = plain();
    int count[4];

    count_draws(&o, 4, x, 500, count);
    assert_int_equal(count[0] + count[2], 0);
    assert_true(count[1] > 0);
    for (int greedy = 0; greedy < 2; greedy++) {
        o.temperature = greedy ? 0 : 1;
        assert_int_equal(pick_once(&o, 4, none), -1);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pick_once(&o, 4, broken[i]), -1);
    }
}

/* A single broken logit is found wherever it is: logits are read in blocks. */
TEST(sampling_broken_logits_are_found_anywhere)
{
    enum { N = 300 };
    const float broken[] = {NAN, -NAN, INFINITY};
    struct sampling_options o = plain();
    float x[N];

    for (int i = 0; i < N; i++)
        x[i] = (float)(i * 7919 % 1009);
    for (int greedy = 0; greedy < 2; greedy++) {
        o.temperature = greedy ? 0 : 1;
        for (int at = 0; at < N; at++) {
            float good = x[at];

            assert_true(pick_once(&o, N, x) >= 0);
            x[at] = broken[at % 3];
            assert_int_equal(pick_once(&o, N, x), -1);
            x[at] = good;
        }
    }
}

/* ---- determinism --------------------------------------------------------- */

/* Makes five hundred picks, each changing the logits of the next. */
static uint64_t story(struct sampler *s)
{
    float x[200];
    uint64_t hash = 0, rng = 1;

    for (int i = 0; i < 500; i++) {
        int32_t id;

        for (int j = 0; j < 200; j++)
            x[j] = 8 * test_unit(&rng);
        id = sampling_pick(s, x, NULL);
        sampling_accept(s, id);
        hash = hash * 31 + (uint64_t)id;
        rng ^= (uint64_t)id;
    }
    return hash;
}

TEST(sampling_one_seed_gives_one_text)
{
    struct sampling_options o = sampling_defaults();
    struct sampler *a, *b;
    uint64_t first;

    o.seed = 42;
    o.penalty_repeat = 1.1f;
    a = make(200, &o);
    b = make(200, &o);
    first = story(a);
    assert_int_equal(first, story(b));
    sampling_reset(a);
    assert_int_equal(first, story(a));
    sampling_free(b);
    o.seed = 43;
    b = make(200, &o);
    assert_int_not_equal(first, story(b));
    sampling_free(a);
    sampling_free(b);
    assert_true(first ==
                /* sum of the sampled ids, the same on all machines */
                0x16b6bb896c7d5e6du);
}

TEST(sampling_exact_functions_are_exact)
{
    uint64_t rng = test_seed();

    for (int i = 0; i < 200000; i++) {
        double u = exact_uniform(&rng), x = -u * (i % 2 ? 700 : 1);
        double y = exp(u * 200 - 100);

        assert_true(fabs(exact_exp(x) - exp(x)) <= 4 * DBL_EPSILON * exp(x));
        assert_true(fabs(exact_log(y) - log(y)) <=
                    4 * DBL_EPSILON * fmax(1, fabs(log(y))));
    }
    assert_true(exact_exp(0) == 1 && exact_log(1) == 0);
    assert_true(exact_exp(-1e300) == 0 && exact_exp(-INFINITY) == 0);
}

/* ---- masks --------------------------------------------------------------- */

/* A forbidden token is as if its logit were -infinity, whatever the filters. A
 * mask of all tokens has no effect. */
TEST(sampling_a_mask_comes_before_all_filters)
{
    enum { N = 200, N_WORD = (N + 31) / 32 };
    uint64_t rng = test_seed();

    for (int round = 0; round < 300; round++) {
        struct sampling_options o = sampling_defaults();
        struct sampler *masked, *plain;
        uint32_t bits[N_WORD] = {0};
        float x[N], y[N];

        o.seed = (uint64_t)round;
        o.temperature = (float)test_below(&rng, 3);
        o.top_k = (int32_t)test_below(&rng, 60);
        o.typical = round % 3 ? 1 : 0.7f;
        o.penalty_repeat = round % 2 ? 1 : 1.3f;
        masked = make(N, &o);
        plain = make(N, &o);
        for (int i = 0; i < 40; i++) {
            int64_t one_in = 1 + test_below(&rng, 50);
            int32_t id;

            memset(bits, 0, sizeof bits);
            for (int k = 0; k < N; k++) {
                bool in = test_below(&rng, one_in) == 0;

                x[k] = (float)(8 * test_unit(&rng));
                y[k] = in ? x[k] : -INFINITY;
                bits[k / 32] |= (uint32_t)in << k % 32;
            }
            id = sampling_pick(masked, x, bits);
            assert_int_equal(id, sampling_pick(plain, y, NULL));
            assert_true(id < 0 || (bits[id / 32] >> id % 32 & 1));
            sampling_accept(masked, id);
            sampling_accept(plain, id);
        }
        sampling_free(masked);
        sampling_free(plain);
    }
}

/* ---- memory and arguments ------------------------------------------------ */

TEST(sampling_pick_allocates_nothing)
{
    struct sampling_options o = sampling_defaults();
    struct sampler *s;

    o.penalty_repeat = 1.1f;
    o.typical = 0.9f;
    o.top_k = 0;
    o.xtc_probability = 0.5f;
    o.dry_multiplier = 1;
    o.dry_breaker = (const char *const[]){""};
    s = make(200, &o);
    alloc_stat_reset();
    story(s);
    assert_int_equal(alloc_stat_get().n_call, 0);
    sampling_free(s);
}

static size_t spell_nothing(const void *user, int32_t id, char *to, size_t cap)
{
    (void)user;
    (void)id;
    (void)to;
    (void)cap;
    return 0;
}

TEST(sampling_create_survives_every_failed_allocation)
{
    static const struct sampling_bias bias[] = {{1, 1}};
    static const char *const breaker[] = {"x"};
    struct sampling_options o = sampling_defaults();
    bool failed;

    o.penalty_repeat = 1.1f;
    o.dry_multiplier = 1;
    o.dry_breaker = breaker;
    o.n_dry_breaker = 1;
    o.spell = spell_nothing;
    o.bias = bias;
    o.n_bias = 1;
    for (int64_t n = 0; alloc_each(&n);) {
        struct sampler *s = NULL;

        failed = alloc_ran(sampling_create(&s, 10, &o, NULL));
        assert_int_equal(s == NULL, failed);
        sampling_free(s);
    }
}

TEST(sampling_bad_options_are_named)
{
    static const struct sampling_bias outside[] = {{10, 1}};
    static const struct {
        bool only;
        int32_t id[2];
        const char *says;
    } lists[] = {{true, {0, 10}, "only[1] is 10"},
                 {true, {-1, 1}, "only[0] is -1"},
                 {false, {10, -1}, "banned[0] is 10"},
                 {false, {-1, -1}, "banned[0] is -1"},
                 {false, {1, 2}, "end each sequence with -1"}};
    struct sampling_options good = sampling_defaults(), o;
    struct sampler *s;
    pl_err err;

#define BAD(field, value)                                                      \
    do {                                                                       \
        o = good;                                                              \
        o.field = value;                                                       \
        assert_int_equal(sampling_create(&s, 10, &o, &err), PL_BAD_ARGUMENT);  \
        assert_non_null(strstr(err.message, #field));                          \
        assert_null(s);                                                        \
    } while (0)
    BAD(temperature, -1);
    BAD(temperature, NAN);
    BAD(top_k, -1);
    BAD(top_p, 1.5f);
    BAD(min_p, -0.5f);
    BAD(typical, NAN);
    BAD(penalty_repeat, 0);
    BAD(penalty_last_n, -2);
    BAD(penalty_frequency, INFINITY);
    BAD(top_n_sigma, -1);
    BAD(xtc_probability, 1.5f);
    BAD(dynatemp_range, NAN);
    BAD(dry_base, 0.5f);
    BAD(dry_allowed_length, 0);
    BAD(dry_last_n, (1 << 20) + 1);
    BAD(mirostat, 3);
    BAD(mirostat_eta, -1);
#undef BAD
    o = good;
    o.bias = outside;
    o.n_bias = 1;
    assert_int_equal(sampling_create(&s, 10, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "token 10"));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        o = good;
        o.only = lists[i].only ? lists[i].id : NULL;
        o.n_only = lists[i].only ? 2 : 0;
        o.banned = lists[i].only ? NULL : lists[i].id;
        o.n_banned = lists[i].only ? 0 : 2;
        assert_int_equal(sampling_create(&s, 10, &o, &err), PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, lists[i].says));
    }
}
