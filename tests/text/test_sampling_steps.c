/* The samplers in any order agree with plain ones with full sorts and libm. DRY
 * and Mirostat, which depend on many tokens, work as specified. */
#include "lib/support.h"

#include "base/exact.h"
#include "sampling/dry.h"
#include "sampling/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 60, MOST_SEEN = 40 };

/* Returns options in which all samplers are off. */
static struct sampling_options nothing(void)
{
    struct sampling_options o = sampling_defaults();

    o.temperature = o.top_p = 1;
    o.top_k = 0;
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

/* ---- plain samplers ------------------------------------------------------ */

struct plain {
    double key, p;
    float x;
    int32_t id;
};

struct chain {
    struct plain c[MOST];
    int n;
    double heat;
    /* [n_seen] earlier tokens, all of which count for penalties */
    const int32_t *seen;
    int n_seen;
};

static int by_key(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;

    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void sort(struct chain *a)
{
    for (int i = 0; i < a->n; i++)
        a->c[i].key = a->c[i].x;
    qsort(a->c, (size_t)a->n, sizeof *a->c, by_key);
}

static double best(const struct chain *a)
{
    double x = -INFINITY;

    for (int i = 0; i < a->n; i++)
        x = a->c[i].x > x ? a->c[i].x : x;
    return x;
}

static void softmax(struct chain *a)
{
    double top = best(a), sum = 0;

    for (int i = 0; i < a->n; i++)
        sum += a->c[i].p = exp((a->c[i].x - top) / a->heat);
    for (int i = 0; i < a->n; i++)
        a->c[i].p /= sum;
}

static double entropy(const struct chain *a)
{
    double sum = 0;

    for (int i = 0; i < a->n; i++)
        sum -= a->c[i].p > 0 ? a->c[i].p * log(a->c[i].p) : 0;
    return sum;
}

static void keep_mass(struct chain *a, double mass)
{
    double sum = 0;

    for (int i = 0; i < a->n; i++) {
        sum += a->c[i].p;
        if (sum >= mass)
            a->n = i + 1;
    }
}

/* Returns the longest n so that the last n tokens also end at index `i`. */
static int alike(const int32_t *seen, int n, int i)
{
    int same = 0;

    while (same <= i && seen[n - 1 - same] == seen[i - same])
        same++;
    return same;
}

/* Returns the penalty that DRY without breakers gives token `id`. */
static double dry_penalty(const struct chain *a,
                          const struct sampling_options *o, int32_t id)
{
    int most = 0;

    for (int i = 0; i + 1 < a->n_seen; i++) {
        int n = alike(a->seen, a->n_seen, i);

        if (a->seen[i + 1] == id && n > most)
            most = n;
    }
    return most < o->dry_allowed_length
               ? 0
               : o->dry_multiplier *
                     pow(o->dry_base, most - o->dry_allowed_length);
}

static float penalized(const struct chain *a, const struct sampling_options *o,
                       int32_t id, float x)
{
    int n = 0;

    for (int i = 0; i < a->n_seen; i++)
        n += a->seen[i] == id;
    if (n == 0)
        return x;
    x = x > 0 ? x / o->penalty_repeat : x * o->penalty_repeat;
    return x - ((float)n * o->penalty_frequency + o->penalty_presence);
}

static void change(struct chain *a, const struct sampling_options *o, int step)
{
    for (int i = 0; i < a->n; i++) {
        struct plain *c = &a->c[i];

        if (a->heat != 1)
            c->x = (float)(c->x / a->heat);
        c->x = step == PL_STEP_PENALTIES
                   ? penalized(a, o, c->id, c->x)
                   : c->x - (float)dry_penalty(a, o, c->id);
    }
    a->heat = 1;
}

static void keep_near(struct chain *a, double n_sigma)
{
    double mean = 0, var = 0, top = best(a);
    int n = 0;

    for (int i = 0; i < a->n; i++)
        mean += a->c[i].x / (double)a->n;
    for (int i = 0; i < a->n; i++)
        var += pow(a->c[i].x - mean, 2) / a->n;
    for (int i = 0; i < a->n; i++)
        if (a->c[i].x >= top - n_sigma * sqrt(var))
            a->c[n++] = a->c[i];
    a->n = n;
}

static void leave_out(struct chain *a, double threshold)
{
    struct chain s;
    int32_t last = -1;
    int n = 0;

    softmax(a);
    s = *a;
    sort(&s);
    for (int i = 0; i < s.n; i++)
        if (s.c[i].p >= threshold)
            last = s.c[i].id;
    for (int i = 0; i < a->n; i++)
        if (a->c[i].p < threshold || a->c[i].id == last)
            a->c[n++] = a->c[i];
    a->n = n;
}

static void heat(struct chain *a, const struct sampling_options *o)
{
    double low = fmax(o->temperature - o->dynatemp_range, 0);
    double high = o->temperature + o->dynatemp_range;

    if (o->dynatemp_range == 0) {
        a->heat *= o->temperature;
    } else if (a->n > 1) {
        softmax(a);
        a->heat *= low + (high - low) *
                             pow(entropy(a) / log(a->n), o->dynatemp_exponent);
    }
}

static void take_step(struct chain *a, const struct sampling_options *o,
                      int step, double u)
{
    int n = 0;
    double middle, top;

    switch ((enum pl_sampling_step)step) {
    case PL_STEP_PENALTIES:
    case PL_STEP_DRY:
        change(a, o, step);
        break;
    case PL_STEP_TOP_N_SIGMA:
        if (o->top_n_sigma > 0)
            keep_near(a, o->top_n_sigma);
        break;
    case PL_STEP_TOP_K:
        if (o->top_k > 0 && o->top_k < a->n) {
            sort(a);
            a->n = o->top_k;
        }
        break;
    case PL_STEP_TYPICAL:
        if (o->typical == 1)
            break;
        softmax(a);
        middle = entropy(a);
        for (int i = 0; i < a->n; i++)
            a->c[i].key = -fabs(-log(a->c[i].p) - middle);
        qsort(a->c, (size_t)a->n, sizeof *a->c, by_key);
        keep_mass(a, o->typical);
        break;
    case PL_STEP_TOP_P:
        if (o->top_p == 1)
            break;
        sort(a);
        softmax(a);
        keep_mass(a, o->top_p);
        break;
    case PL_STEP_MIN_P:
        top = best(a);
        for (int i = 0; i < a->n; i++)
            if (exp((a->c[i].x - top) / a->heat) >= o->min_p)
                a->c[n++] = a->c[i];
        a->n = n;
        break;
    case PL_STEP_XTC:
        if (u < o->xtc_probability)
            leave_out(a, o->xtc_threshold);
        break;
    case PL_STEP_TEMPERATURE:
        heat(a, o);
        break;
    case PL_STEP_ADAPTIVE_P: /* after all others: adapt */
    case PL_N_STEP:
        break;
    }
}

/* Makes the probabilities of adaptive-p those of the chain, as llama.cpp
 * defines them, and sets p[id] to what they were. `mean` is that of the tokens
 * before. */
static void adapt(struct chain *a, const struct sampling_options *o,
                  double mean, double p[MOST])
{
    const double target = fmin(fmax(2 * o->adaptive_target - mean, 0), 1);

    softmax(a);
    for (int i = 0; i < a->n; i++) {
        const double d = fabs(a->c[i].p - target) / 0.3;

        p[a->c[i].id] = a->c[i].p;
        a->c[i].x = (float)(5 - 10 * d * d / (1 + d));
    }
    a->heat = 1;
}

static int32_t plain_draw(struct chain *a, double u)
{
    softmax(a);
    for (int i = 0; i < a->n - 1; i++) {
        if (u < a->c[i].p)
            return a->c[i].id;
        u -= a->c[i].p;
    }
    return a->c[a->n - 1].id;
}

static void draw_options(struct sampling_options *o, uint64_t *rng)
{
    uint8_t step[PL_N_STEP];
    int n = PL_N_STEP;

    *o = nothing();
    for (int i = 0; i < n; i++)
        step[i] = (uint8_t)i;
    o->n_step = 1 + (int)test_below(rng, PL_N_STEP);
    for (int i = 0; i < o->n_step; i++) {
        int at = (int)test_below(rng, (uint64_t)n);

        o->step[i] = step[at];
        step[at] = step[--n];
    }
    o->temperature = 0.3f + fabsf(test_unit(rng));
    o->top_k = (int32_t)test_below(rng, MOST);
    o->typical = test_below(rng, 2) ? 1 : 0.5f + 0.4f * fabsf(test_unit(rng));
    o->top_p = test_below(rng, 2) ? 1 : 0.5f + 0.4f * fabsf(test_unit(rng));
    o->min_p = test_below(rng, 2) ? 0 : 0.2f * fabsf(test_unit(rng));
    o->top_n_sigma = test_below(rng, 2) ? 0 : 3 * fabsf(test_unit(rng));
    o->xtc_probability = test_below(rng, 3) ? 0.5f : 0;
    o->xtc_threshold = 0.4f * fabsf(test_unit(rng));
    o->dynatemp_range = test_below(rng, 2) ? 0 : fabsf(test_unit(rng));
    o->dynatemp_exponent = 0.5f + fabsf(test_unit(rng));
    o->penalty_repeat = test_below(rng, 2) ? 1 : 1.3f;
    o->penalty_presence = test_below(rng, 2) ? 0 : 0.5f;
    o->dry_multiplier = test_below(rng, 2) ? 0 : 0.8f;
    o->dry_allowed_length = 1 + (int)test_below(rng, 3);
    o->dry_breaker = (const char *const[]){""};
    o->n_dry_breaker = 0;
    o->adaptive_target = test_below(rng, 2) ? -1 : fabsf(test_unit(rng));
}

TEST(sampling_steps_in_any_order_equal_naive_ones)
{
    uint64_t rng = test_seed();
    int n_round = test_draws(20000, 200000);

    for (int round = 0; round < n_round; round++) {
        struct sampling_options o;
        struct chain a = {.n = 2 + (int)test_below(&rng, MOST - 1), .heat = 1};
        int32_t n = a.n, seen[MOST_SEEN];
        double u, xtc = 1;
        struct sampler *s;
        float x[MOST];
        uint64_t seed;

        draw_options(&o, &rng);
        o.seed = seed = test_random(&rng);
        a.seen = seen;
        a.n_seen = (int)test_below(&rng, MOST_SEEN);
        /* at most four different tokens, so that sequences repeat */
        for (int i = 0; i < a.n_seen; i++)
            seen[i] = (int32_t)test_below(&rng, n < 4 ? (uint64_t)n : 4);
        s = make(n, &o);
        for (int i = 0; i < a.n_seen; i++)
            sampling_accept(s, seen[i]);
        for (int i = 0; i < n; i++) {
            x[i] = 4 * test_unit(&rng);
            a.c[i] = (struct plain){.x = x[i], .id = i};
        }
        u = exact_uniform(&seed);
        for (int i = 0; i < o.n_step; i++)
            if (o.step[i] == PL_STEP_XTC && o.xtc_probability > 0)
                xtc = exact_uniform(&seed);
        for (int i = 0; i < o.n_step; i++)
            take_step(&a, &o, o.step[i], xtc);
        for (int i = 0; i < o.n_step; i++)
            if (o.step[i] == PL_STEP_ADAPTIVE_P && o.adaptive_target >= 0)
                adapt(&a, &o, o.adaptive_target, (double[MOST]){0});
        assert_int_equal(sampling_pick(s, x, NULL), plain_draw(&a, u));
        sampling_free(s);
    }
}

TEST(sampling_order_has_each_step_once)
{
    struct sampling_options o = nothing();
    struct sampler *s;
    pl_err err;

    o.n_step = 2;
    o.step[0] = o.step[1] = PL_STEP_TOP_P;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "step[1]"));
    o.step[1] = PL_N_STEP;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    o.n_step = PL_N_STEP + 1;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "n_step"));
}

/* A token that was removed is not drawn at temperature 0 either. */
TEST(sampling_xtc_works_at_temperature_0)
{
    static const float x[] = {0, 2, 1.9f, -3};
    struct sampling_options o = nothing();
    struct sampler *s;

    o.temperature = 0;
    o.xtc_probability = 1;
    o.xtc_threshold = 0.3f;
    s = make(4, &o);
    assert_int_equal(sampling_pick(s, x, NULL), 2);
    sampling_free(s);
}

/* ---- DRY ----------------------------------------------------------------- */

static const char *const spelling[] = {"a", "b", "<|", "x", "|>", "\n"};
enum { N_SPELLED = sizeof spelling / sizeof spelling[0] };

static size_t spell(const void *user, int32_t id, char *to, size_t cap)
{
    size_t n = strlen(spelling[id]);

    (void)user;
    assert_true(n <= cap);
    memcpy(to, spelling[id], n);
    return n;
}

/* Returns the index of the last token within which a breaker ends, or -1. */
static int last_break(const int32_t *seen, int n, bool *breaks)
{
    static const char *const breaker[] = {"\n", "<|x|>"};
    char text[4 * 200] = "";
    int last = -1;

    for (int i = 0; i < n; i++) {
        size_t before = strlen(text);

        strcat(text, spelling[seen[i]]);
        breaks[i] = false;
        for (int b = 0; b < 2; b++) {
            const char *at = text;

            while ((at = strstr(at, breaker[b])) != NULL) {
                breaks[i] |= (size_t)(at - text) + strlen(breaker[b]) > before;
                at++;
            }
        }
        last = breaks[i] ? i : last;
    }
    return last;
}

TEST(sampling_dry_equals_a_naive_one)
{
    static const char *const breaker[] = {"\n", "<|x|>"};
    uint64_t rng = test_seed();
    struct sampling_options o = nothing();
    int n_found = 0, n_round = test_draws(300, 5000);

    o.dry_multiplier = 0.7f;
    o.dry_base = 1.5f;
    o.dry_breaker = breaker;
    o.n_dry_breaker = 2;
    o.spell = spell;
    for (int round = 0; round < n_round; round++) {
        int n = (int)test_below(&rng, 120), most;
        int32_t all[200], *seen = all;
        bool breaks[200];
        struct dry *d = NULL;
        const float *got;
        pl_err err = {0};

        o.dry_allowed_length = 1 + (int)test_below(&rng, 4);
        o.dry_last_n = 1 + (int32_t)test_below(&rng, 150);
        TEST_OK(dry_create(&d, N_SPELLED, &o, &err), err);
        for (int i = 0; i < n; i++) {
            all[i] = (int32_t)test_below(&rng, i % 40 < 30 ? 2 : N_SPELLED);
            /* the tokens "<|", "x" and "|>", which spell a breaker */
            if (round % 2 && i % 40 >= 37)
                all[i] = i % 40 - 35;
            dry_accept(d, all[i]);
            if (i % 7 == 0) /* penalties computed earlier must not remain */
                dry_penalties(d);
        }
        most = n - 1 - last_break(all, n, breaks);
        got = dry_penalties(d);
        if (n > o.dry_last_n) {
            seen += n - o.dry_last_n;
            n = o.dry_last_n;
        }
        most = most < n ? most : n;
        for (int32_t id = 0; id < N_SPELLED; id++) {
            int longest = 0;
            double want = 0;

            for (int i = 0; i + 1 < n; i++) {
                int len = alike(seen, n, i);

                len = len < most ? len : most;
                if (seen[i + 1] == id && len > longest &&
                    !breaks[seen - all + i + 1])
                    longest = len;
            }
            if (longest >= o.dry_allowed_length)
                want = (double)o.dry_multiplier *
                       pow(o.dry_base, longest - o.dry_allowed_length);
            assert_true(fabs(got[id] - want) <= 1e-6 * want);
            n_found += want > 0;
        }
        dry_free(d);
    }
    assert_true(n_found > n_round / 4);
}

TEST(sampling_dry_names_bad_breakers)
{
    static const char *const empty[] = {"x", ""};
    struct sampling_options o = nothing();
    struct sampler *s;
    pl_err err;

    o.dry_multiplier = 1;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "tokenizer"));
    o.spell = spell;
    o.dry_breaker = empty;
    o.n_dry_breaker = 2;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "dry_breaker 1"));
    o.n_dry_breaker = 257;
    assert_int_equal(sampling_create(&s, 8, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "257"));
}

/* ---- Mirostat ------------------------------------------------------------ */

/* Returns the mean surprise, in bits, of tokens drawn by Zipf's law. */
static double mean_surprise(int version, float tau)
{
    enum { N = 500, N_DRAW = 2000, N_BEGIN = 200 };
    struct sampling_options o = nothing();
    double sum = 0, all = 0;
    struct sampler *s;
    float x[N];

    o.mirostat = version;
    o.mirostat_tau = tau;
    o.seed = test_seed();
    for (int i = 0; i < N; i++) {
        x[i] = -1.1f * logf((float)i + 1);
        all += exp(x[i]);
    }
    s = make(N, &o);
    for (int i = 0; i < N_DRAW; i++) {
        int32_t id = sampling_pick(s, x, NULL);

        if (i >= N_BEGIN)
            sum -= log2(exp(x[id]) / all);
    }
    sampling_free(s);
    return sum / (N_DRAW - N_BEGIN);
}

/* Surprise is computed among the tokens kept, so that of the whole distribution
 * is a little more. Without Mirostat, these have 6.3 bits. */
TEST(sampling_mirostat_keeps_near_its_surprise)
{
    double last = 0;

    for (int version = 1; version <= 2; version++) {
        last = 0;
        for (int tau = 2; tau <= 4; tau++) {
            double mean = mean_surprise(version, (float)tau);

            assert_true(mean > tau - 0.3 && mean < tau + 1.5);
            assert_true(mean > last + 0.5);
            last = mean;
        }
    }
    assert_true(mean_surprise(0, 3) > 6);
}

/* ---- adaptive-p ---------------------------------------------------------- */

/* Returns options of adaptive-p alone. */
static struct sampling_options adaptive(float target, float decay)
{
    struct sampling_options o = nothing();

    o.adaptive_target = target;
    o.adaptive_decay = decay;
    o.n_step = 1;
    o.step[0] = PL_STEP_ADAPTIVE_P;
    o.seed = test_seed();
    return o;
}

/* The state after many tokens is that of the definition. Tokens that the caller
 * chose otherwise do not change it. */
TEST(sampling_adaptive_p_equals_its_definition)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < 50; round++) {
        const int n = 2 + (int)test_below(&rng, MOST - 1);
        struct sampling_options o =
            adaptive(fabsf(test_unit(&rng)), 0.9f * fabsf(test_unit(&rng)));
        double weight = 1 / (1 - (double)o.adaptive_decay);
        double sum = o.adaptive_target * weight;
        uint64_t seed = o.seed;
        struct sampler *s = make(n, &o);

        for (int k = 0; k < 40; k++) {
            struct chain a = {.n = n, .heat = 1};
            double p[MOST];
            float x[MOST];
            int32_t id;

            for (int i = 0; i < n; i++) {
                x[i] = 4 * test_unit(&rng);
                a.c[i] = (struct plain){.x = x[i], .id = i};
            }
            adapt(&a, &o, sum / weight, p);
            id = sampling_pick(s, x, NULL);
            assert_int_equal(id, plain_draw(&a, exact_uniform(&seed)));
            if (test_below(&rng, 4) == 0) {
                sampling_accept(s, (id + 1) % n);
                continue;
            }
            sampling_accept(s, id);
            sum = p[id] + o.adaptive_decay * sum;
            weight = 1 + o.adaptive_decay * weight;
        }
        sampling_free(s);
    }
}

/* Returns the mean probability of the tokens that are drawn. */
static double mean_probability(const struct sampling_options *o)
{
    static const float p[] = {0.32f, 0.24f, 0.18f, 0.13f, 0.08f, 0.05f};
    enum { N = sizeof p / sizeof p[0], N_DRAW = 4000 };
    struct sampler *s = make(N, o);
    double sum = 0;
    float x[N];

    for (int i = 0; i < N; i++)
        x[i] = logf(p[i]);
    for (int i = 0; i < N_DRAW; i++) {
        int32_t id = sampling_pick(s, x, NULL);

        sampling_accept(s, id);
        sum += p[id];
    }
    sampling_free(s);
    return sum / N_DRAW;
}

/* It is off unless it is listed and has a target. */
TEST(sampling_adaptive_p_keeps_near_its_probability)
{
    struct sampling_options o = adaptive(-1, 0.9f);
    const double plain = mean_probability(&o);

    for (float target = 0.1f; target < 0.3f; target += 0.05f) {
        o = adaptive(target, 0.9f);
        assert_true(fabs(mean_probability(&o) - target) < 0.03);
        o.n_step = 0;
        assert_true(mean_probability(&o) == plain);
    }
}
