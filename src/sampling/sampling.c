/* Chooses the next token: collects the candidates from the logits, applies the
 * samplers (filters, temperature, penalties) in order, and draws.
 *
 * If the first samplers are penalties, DRY or top-k, they are applied while the
 * logits are read, so that most tokens never become candidates. Source of the
 * repetition penalty: arXiv:1909.05858. */
#include "sampling/sampling.h"

#include "base/err.h"
#include "base/exact.h"
#include "sampling/adaptive.h"
#include "sampling/candidates.h"
#include "sampling/dry.h"
#include "sampling/mirostat.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sequences of tokens that are never completed. Those of one token are
 * biases of -infinity. */
struct banned {
    int32_t *seq; /* owned, [n]: the sequences, each ended by -1 */
    int64_t n;
    /* Owned, [n_recent], capacity `longest`: the last accepted tokens. A
     * sequence has at most `longest` tokens before its last one. */
    int32_t *recent;
    int64_t n_recent, longest;
    /* Owned, [n_undo]: the biases of tokens that are excluded now, as they were
     * before. */
    struct sampling_bias *undo;
    int64_t n_undo;
};

struct sampler {
    /* Copy of the caller's options. The arrays in it are NULL, because they are
     * borrowed only during create. */
    struct sampling_options o;
    int32_t n_vocab;
    uint64_t state; /* state of the random number generator */
    double mu;      /* greatest allowed surprise in bits, for Mirostat */
    struct adaptive adaptive;

    /* The samplers that have an effect (enum pl_sampling_step), in order. */
    uint8_t step[PL_N_STEP];
    int32_t n_step;
    /* number of samplers, from step[0] on, that are applied while logits are
     * read */
    int32_t n_lead;
    bool leads[PL_N_STEP];

    struct candidates left; /* Candidates that no filter has dropped yet. left.c
                               is owned, [cap]. */
    /* Capacity of `left`: top_k if top-k is applied while logits are read, else
     * n_vocab. */
    int32_t cap;

    /* owned, [n_vocab]: number added to each logit; NULL if no token has a
     * bias */
    float *bias;
    struct banned banned;
    /* Owned, [n_vocab]: number of occurrences of each token among the last
     * penalty_last_n tokens; NULL if penalties are off. */
    int32_t *count;
    int32_t *ring;  /* owned, [penalty_last_n]: the last tokens; NULL if none or
                       all count */
    int64_t n_seen; /* number of tokens accepted since the last reset */

    struct dry *dry; /* owned: state of the DRY penalty; NULL if off */
    /* [n_vocab] penalties of DRY for the token that is chosen now; NULL if DRY
     * is off */
    const float *minus;

    /* Borrowed while a token is chosen: bit i is set if token i is allowed.
     * NULL if all tokens are. */
    const uint32_t *allowed;
};

struct sampling_options sampling_defaults(void)
{
    return (struct sampling_options){.temperature = 0.8f,
                                     .top_k = 40,
                                     .typical = 1,
                                     .top_p = 0.95f,
                                     .min_p = 0.05f,
                                     .xtc_threshold = 0.1f,
                                     .dynatemp_exponent = 1,
                                     .penalty_last_n = 64,
                                     .penalty_repeat = 1,
                                     .dry_base = 1.75f,
                                     .dry_allowed_length = 2,
                                     .dry_last_n = 4096,
                                     .mirostat_tau = 5,
                                     .mirostat_eta = 0.1f,
                                     .adaptive_target = -1,
                                     .adaptive_decay = 0.9f};
}

/* The options of type float, with the range of values that each may have. */
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
    ROW(top_n_sigma, 0, 1000),
    ROW(xtc_probability, 0, 1),
    ROW(xtc_threshold, 0, 1),
    ROW(dynatemp_range, 0, 1000),
    ROW(dynatemp_exponent, 0, 1000),
    ROW(dry_multiplier, 0, 1000),
    ROW(dry_base, 1, 1000),
    ROW(mirostat_tau, 0, 1000),
    ROW(mirostat_eta, 0, 1),
    ROW(adaptive_target, -1, 1),
    ROW(adaptive_decay, 0, 0.99f),
#undef ROW
};

static pl_status check_whole(const struct sampling_options *o, pl_err *err)
{
    const struct {
        const char *name;
        int32_t v, low, high;
        const char *meaning;
    } rows[] = {
        {"top_k", o->top_k, 0, INT32_MAX, "0 (off) or more"},
        {"penalty_last_n", o->penalty_last_n, -1, INT32_MAX,
         "-1 (all), 0 (none) or more"},
        {"dry_allowed_length", o->dry_allowed_length, 1, INT32_MAX,
         "1 or more"},
        {"dry_last_n", o->dry_last_n, 0, 1 << 20, "in 0 .. 1048576"},
        {"mirostat", o->mirostat, 0, 2, "0 (off), 1 or 2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].v < rows[i].low || rows[i].v > rows[i].high)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: %s is %d, it must be %s", rows[i].name,
                           (int)rows[i].v, rows[i].meaning);
    return PL_OK;
}

static pl_status check_insns(const struct sampling_options *o, pl_err *err)
{
    bool there[PL_N_STEP] = {false};

    if (o->n_step < 0 || o->n_step > PL_N_STEP)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_step is %d, it must be in 0 .. %d",
                       (int)o->n_step, (int)PL_N_STEP);
    for (int32_t i = 0; i < o->n_step; i++) {
        if (o->step[i] >= PL_N_STEP || there[o->step[i]])
            return err_set(err, PL_BAD_ARGUMENT, "sampling: step[%d] is %d, %s",
                           (int)i, (int)o->step[i],
                           o->step[i] < PL_N_STEP ? "which is listed twice"
                                                  : "which is not a sampler");
        there[o->step[i]] = true;
    }
    return PL_OK;
}

/* Checks a list of tokens. If `ended`, it consists of sequences that end with
 * -1 and have at least one token. */
static pl_status check_ids(const char *name, const int32_t *id, int64_t n,
                           int32_t n_vocab, bool ended, pl_err *err)
{
    if (n < 0 || (n > 0 && !id))
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_%s is %lld; set %s, or n_%s to 0", name,
                       (long long)n, name, name);
    for (int64_t i = 0; i < n; i++)
        if ((id[i] < 0 || id[i] >= n_vocab) &&
            !(ended && id[i] == -1 && i > 0 && id[i - 1] != -1))
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: %s[%lld] is %d, in a vocabulary of %d; "
                           "ids go from 0 to %d",
                           name, (long long)i, (int)id[i], (int)n_vocab,
                           (int)n_vocab - 1);
    if (ended && n > 0 && id[n - 1] != -1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: %s ends with %d; end each sequence with -1",
                       name, (int)id[n - 1]);
    return PL_OK;
}

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
        return err_set(
            err, PL_BAD_ARGUMENT,
            "sampling: a vocabulary of %d tokens; it must have 1 or more",
            (int)n_vocab);
    PL_TRY(check_whole(o, err));
    PL_TRY(check_insns(o, err));
    PL_TRY(check_ids("only", o->only, o->n_only, n_vocab, false, err));
    PL_TRY(check_ids("banned", o->banned, o->n_banned, n_vocab, true, err));
    if (o->n_bias < 0 || (o->n_bias > 0 && !o->bias))
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_bias is %lld; set bias, or n_bias to 0",
                       (long long)o->n_bias);
    for (int64_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].id < 0 || o->bias[i].id >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: a bias for token %d of a vocabulary of "
                           "%d; ids go from 0 to %d",
                           (int)o->bias[i].id, (int)n_vocab, (int)n_vocab - 1);
        if (o->bias[i].bias != o->bias[i].bias)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: the bias of token %d is nan",
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

/* Returns true if the sampler `step`, an enum pl_sampling_step, changes
 * anything with these options. */
static bool is_on(const struct sampling_options *o, int step)
{
    switch ((enum pl_sampling_step)step) {
    case PL_STEP_PENALTIES:
        return has_penalties(o);
    case PL_STEP_DRY:
        return o->dry_multiplier > 0 && o->dry_last_n > 0;
    case PL_STEP_TOP_N_SIGMA:
        return o->top_n_sigma > 0;
    case PL_STEP_TOP_K:
        return o->top_k > 0;
    case PL_STEP_TYPICAL:
        return o->typical < 1;
    case PL_STEP_TOP_P:
        return o->top_p < 1;
    case PL_STEP_MIN_P:
        return o->min_p > 0;
    case PL_STEP_XTC:
        return o->xtc_probability > 0 && o->xtc_threshold <= 0.5f;
    case PL_STEP_TEMPERATURE:
        return o->temperature != 1 || o->dynatemp_range > 0;
    case PL_STEP_ADAPTIVE_P:
        return o->adaptive_target >= 0;
    case PL_N_STEP:
        break;
    }
    return false;
}

/* Sets s->step to the samplers that have an effect, in order; with Mirostat
 * only the temperature has one. Sets s->leads for the first n_lead of them,
 * which are applied while logits are read. These are penalties, DRY and top-k,
 * as far as the order begins with some of them in this sequence. */
static void set_steps(struct sampler *s, const struct sampling_options *o)
{
    static const uint8_t lead[] = {PL_STEP_PENALTIES, PL_STEP_DRY,
                                   PL_STEP_TOP_K};
    int32_t n = o->n_step > 0 ? o->n_step : PL_N_STEP_USUAL;

    for (int32_t i = 0; i < n; i++) {
        int step = o->n_step > 0 ? o->step[i] : i;

        if (is_on(o, step) && (o->mirostat == 0 || step == PL_STEP_TEMPERATURE))
            s->step[s->n_step++] = (uint8_t)step;
    }
    for (size_t i = 0; i < sizeof lead; i++)
        if (s->n_lead < s->n_step && s->step[s->n_lead] == lead[i]) {
            s->leads[lead[i]] = true;
            s->n_lead++;
        }
}

static bool has_step(const struct sampler *s, int step)
{
    for (int32_t i = 0; i < s->n_step; i++)
        if (s->step[i] == step)
            return true;
    return false;
}

/* Returns the number of tokens of the sequence that begins at seq[0]. */
static int64_t length_of(const int32_t *seq)
{
    int64_t n = 0;

    while (seq[n] != -1)
        n++;
    return n;
}

static void set_biases(struct sampler *s, const struct sampling_options *o)
{
    for (int32_t i = 0; i < s->n_vocab && o->n_only > 0; i++)
        s->bias[i] = -INFINITY;
    for (int64_t i = 0; i < o->n_only; i++)
        s->bias[o->only[i]] = 0;
    for (int64_t i = 0; i < o->n_bias; i++)
        s->bias[o->bias[i].id] += o->bias[i].bias;
    for (int64_t i = 0, n; i < o->n_banned; i += n + 1) {
        n = length_of(o->banned + i);
        if (n == 1)
            s->bias[o->banned[i]] = -INFINITY;
    }
}

/* Copies the banned sequences of two tokens or more. */
static pl_status set_banned(struct sampler *s, const struct sampling_options *o,
                            pl_err *err)
{
    struct banned *b = &s->banned;
    int64_t n_seq = 0;

    b->seq = malloc((size_t)o->n_banned * sizeof *b->seq);
    for (int64_t i = 0, n; b->seq && i < o->n_banned; i += n + 1) {
        n = length_of(o->banned + i);
        if (n == 1)
            continue;
        memcpy(b->seq + b->n, o->banned + i, (size_t)(n + 1) * sizeof *b->seq);
        b->n += n + 1;
        b->longest = n - 1 > b->longest ? n - 1 : b->longest;
        n_seq++;
    }
    b->recent = malloc((size_t)(b->longest + 1) * sizeof *b->recent);
    b->undo = malloc((size_t)(n_seq + 1) * sizeof *b->undo);
    return b->seq && b->recent && b->undo ? PL_OK
                                          : err_no_memory(err, "a sampler");
}

static pl_status allocate(struct sampler *s, const struct sampling_options *o,
                          pl_err *err)
{
    size_t n = (size_t)s->n_vocab;

    s->left.c = malloc((size_t)s->cap * sizeof *s->left.c);
    if (!s->left.c)
        return err_no_memory(err, "a sampler");
    if (o->n_bias > 0 || o->n_only > 0 || o->n_banned > 0) {
        s->bias = calloc(n, sizeof *s->bias);
        if (!s->bias)
            return err_no_memory(err, "a sampler");
        set_biases(s, o);
    }
    if (o->n_banned > 0)
        PL_TRY(set_banned(s, o, err));
    if (has_step(s, PL_STEP_PENALTIES)) {
        s->count = malloc(n * sizeof *s->count);
        if (o->penalty_last_n > 0)
            s->ring = malloc((size_t)o->penalty_last_n * sizeof *s->ring);
        if (!s->count || (o->penalty_last_n > 0 && !s->ring))
            return err_no_memory(err, "a sampler");
    }
    if (has_step(s, PL_STEP_DRY))
        PL_TRY(dry_create(&s->dry, s->n_vocab, o, err));
    return PL_OK;
}

pl_status sampling_create(struct sampler **out, int32_t n_vocab,
                          const struct sampling_options *o, pl_err *err)
{
    struct sampler *s;
    pl_status st;

    *out = NULL;
    PL_TRY(check(o, n_vocab, err));
    s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a sampler");
    s->o = *o;
    s->o.bias = NULL;
    s->o.dry_breaker = NULL;
    s->o.only = s->o.banned = NULL;
    s->n_vocab = n_vocab;
    set_steps(s, o);
    s->cap = s->leads[PL_STEP_TOP_K] && o->top_k < n_vocab ? o->top_k : n_vocab;
    st = allocate(s, o, err);
    if (st != PL_OK) {
        sampling_free(s);
        return st;
    }
    sampling_reset(s);
    *out = s;
    return PL_OK;
}

void sampling_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->left.c);
    free(s->bias);
    free(s->banned.seq);
    free(s->banned.recent);
    free(s->banned.undo);
    free(s->count);
    free(s->ring);
    dry_free(s->dry);
    free(s);
}

void sampling_reset(struct sampler *s)
{
    s->state = s->o.seed;
    s->n_seen = 0;
    s->banned.n_recent = 0;
    s->mu = 2 * (double)s->o.mirostat_tau;
    adaptive_reset(&s->adaptive, &s->o);
    if (s->count)
        memset(s->count, 0, (size_t)s->n_vocab * sizeof *s->count);
    if (s->dry)
        dry_reset(s->dry);
}

static void note_recent(struct banned *b, int32_t id)
{
    if (b->longest == 0)
        return;
    if (b->n_recent == b->longest)
        memmove(b->recent, b->recent + 1,
                (size_t)--b->n_recent * sizeof *b->recent);
    b->recent[b->n_recent++] = id;
}

void sampling_accept(struct sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab)
        return;
    if (s->dry)
        dry_accept(s->dry, id);
    note_recent(&s->banned, id);
    adaptive_accept(&s->adaptive, &s->o, id);
    if (!s->count)
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

/* ---- excluding the ends of banned sequences ------------------------------ */

/* Excludes the last token of each banned sequence whose other tokens are the
 * last accepted ones. */
static void exclude_banned(struct sampler *s)
{
    struct banned *b = &s->banned;

    for (int64_t i = 0, n; i < b->n; i += n + 1) {
        const int32_t *seq = b->seq + i;

        n = length_of(seq);
        if (n - 1 > b->n_recent ||
            memcmp(b->recent + b->n_recent - (n - 1), seq,
                   (size_t)(n - 1) * sizeof *seq) != 0)
            continue;
        b->undo[b->n_undo++] =
            (struct sampling_bias){seq[n - 1], s->bias[seq[n - 1]]};
        s->bias[seq[n - 1]] = -INFINITY;
    }
}

/* Allows the tokens again that exclude_banned has excluded. */
static void allow_banned(struct sampler *s)
{
    struct banned *b = &s->banned;

    while (b->n_undo > 0) {
        b->n_undo--;
        s->bias[b->undo[b->n_undo].id] = b->undo[b->n_undo].bias;
    }
}

/* ---- reading logits and collecting candidates ---------------------------- */

static float penalized(const struct sampler *s, int32_t id, float logit)
{
    int32_t n = s->count[id];

    if (n > 0) {
        logit = logit > 0 ? logit / s->o.penalty_repeat
                          : logit * s->o.penalty_repeat;
        logit -= (float)n * s->o.penalty_frequency + s->o.penalty_presence;
    }
    return logit;
}

static float adjusted(const struct sampler *s, int32_t id, float logit)
{
    if (s->bias)
        logit += s->bias[id];
    if (s->leads[PL_STEP_PENALTIES])
        logit = penalized(s, id, logit);
    if (s->leads[PL_STEP_DRY])
        logit -= s->minus[id];
    return logit;
}

/* Number of logits whose maximum is computed together, and number of partial
 * maxima. Loops of constant length are vectorized by compilers. */
enum { BLOCK = 64, LANES = 16 };

/* Returns true if none of the n_vocab logits is NaN or +infinity. */
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

/* Returns x, but +infinity if x is NaN, so that a search for the maximum finds
 * invalid logits. */
static float checked(float x)
{
    return x <= FLT_MAX ? x : INFINITY;
}

static float greatest_of_block(const float *x)
{
    float lane[LANES], most;

    for (int k = 0; k < LANES; k++)
        lane[k] = checked(x[k]);
    for (int i = LANES; i < BLOCK; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float here = checked(x[i + k]);

            lane[k] = lane[k] > here ? lane[k] : here;
        }
    most = lane[0];
    for (int k = 1; k < LANES; k++)
        most = most > lane[k] ? most : lane[k];
    return most;
}

/* Returns true if no bias or penalty changes logits while they are read. A
 * block of logits whose maximum is below a candidate then cannot contain a
 * better one. */
static bool is_unchanged(const struct sampler *s)
{
    return !s->bias && !s->leads[PL_STEP_PENALTIES] && !s->leads[PL_STEP_DRY];
}

/* Sets *c to the candidate for token `id`, after bias and penalties. Returns
 * false if the token cannot be drawn: it is not allowed, or its logit is
 * -infinity or NaN. The sum of a logit and a bias may be NaN. */
static bool candidate(const struct sampler *s, const float *logits, int32_t id,
                      struct candidate *c)
{
    float x;

    if (s->allowed && !(s->allowed[id / 32] >> id % 32 & 1))
        return false;
    x = adjusted(s, id, logits[id]);
    if (!(x >= -FLT_MAX))
        return false;
    x = x > FLT_MAX ? FLT_MAX : x;
    *c = (struct candidate){.key = x, .logit = x, .id = id};
    return true;
}

/* Returns the index of the greatest of n logits, the first of several equal
 * ones. Returns -1 if all logits are -infinity, or one is NaN or +infinity.
 * Reads each logit only once, because logits of many sequences do not fit in
 * caches. */
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
        float here = checked(logits[i]);

        at = here > most ? i : at;
        most = here > most ? here : most;
    }
    if (!(most >= -FLT_MAX && most <= FLT_MAX))
        return -1;
    while (logits[at] != most)
        at++;
    return at;
}

static int32_t most_likely(const struct sampler *s, const float *logits)
{
    const bool unchanged = is_unchanged(s);
    struct candidate best = {.id = -1}, c;

    if (unchanged && !s->allowed)
        return first_greatest(logits, s->n_vocab);
    if (!usable(s, logits))
        return -1;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (unchanged && i % BLOCK == 0 && i + BLOCK <= s->n_vocab &&
            best.id >= 0 && greatest_of_block(logits + i) <= best.key) {
            i += BLOCK - 1;
            continue;
        }
        if (candidate(s, logits, i, &c) && (best.id < 0 || c.key > best.key))
            best = c;
    }
    return best.id;
}

/* Collects the candidates from the logits of all tokens. If top-k is applied
 * while logits are read, keeps only the k best and sorts them. */
static void collect(struct sampler *s, const float *logits)
{
    bool top_k = s->cap < s->n_vocab, unchanged = is_unchanged(s);
    struct candidates *a = &s->left;
    struct candidate c;

    *a = (struct candidates){.c = a->c, .heat = 1};
    for (int32_t i = 0; i < s->n_vocab; i++) {
        /* All k candidates kept so far are at least as good as the maximum of
         * this block. If logits are equal the first ones are kept, so the whole
         * block is skipped. */
        if (unchanged && i % BLOCK == 0 && i + BLOCK <= s->n_vocab &&
            a->n == s->cap && greatest_of_block(logits + i) <= a->c[0].key) {
            i += BLOCK - 1;
            continue;
        }
        if (!candidate(s, logits, i, &c))
            continue;
        if (top_k)
            candidates_offer(a, s->cap, &c);
        else
            a->c[a->n++] = c;
    }
    if (top_k)
        candidates_sort(a);
}

/* ---- the samplers: filters, temperature, penalties ----------------------- */

/* Applies penalties or DRY after other samplers, to the logits of the remaining
 * candidates. First divides these by the temperature applied so far
 * (candidates_settle). */
static void change_logits(struct sampler *s, int step)
{
    struct candidates *a = &s->left;

    candidates_settle(a);
    for (int32_t i = 0; i < a->n; i++) {
        struct candidate *c = &a->c[i];

        c->logit = step == PL_STEP_DRY ? c->logit - s->minus[c->id]
                                       : penalized(s, c->id, c->logit);
        c->logit = c->logit > -FLT_MAX ? c->logit : -FLT_MAX;
        c->logit = c->logit < FLT_MAX ? c->logit : FLT_MAX;
    }
    a->sorted = false;
}

/* Applies the sampler `step` to the candidates. `u` is a random number in [0,
 * 1) that decides whether XTC is applied to this token. */
static void apply(struct sampler *s, int step, double u)
{
    const struct sampling_options *o = &s->o;
    struct candidates *a = &s->left;

    switch ((enum pl_sampling_step)step) {
    case PL_STEP_PENALTIES:
    case PL_STEP_DRY:
        change_logits(s, step);
        break;
    case PL_STEP_TOP_N_SIGMA:
        candidates_top_n_sigma(a, o->top_n_sigma);
        break;
    case PL_STEP_TOP_K:
        candidates_top_k(a, o->top_k);
        break;
    case PL_STEP_TYPICAL:
        candidates_typical(a, o->typical);
        break;
    case PL_STEP_TOP_P:
        candidates_top_p(a, o->top_p);
        break;
    case PL_STEP_MIN_P:
        candidates_min_p(a, o->min_p);
        break;
    case PL_STEP_XTC:
        if (u < o->xtc_probability)
            candidates_xtc(a, o->xtc_threshold);
        break;
    case PL_STEP_TEMPERATURE:
        if (o->dynatemp_range > 0)
            candidates_dynamic_heat(a, o->temperature, o->dynatemp_range,
                                    o->dynatemp_exponent);
        else
            candidates_heat(a, o->temperature);
        break;
    case PL_STEP_ADAPTIVE_P: /* draws, so it is applied last */
    case PL_N_STEP:
        break;
    }
}

/* Returns true if the token with the greatest logit is always chosen: the
 * temperature is 0, and no sampler can remove that token. */
static bool is_greedy(const struct sampler *s)
{
    if (s->o.temperature != 0 || s->o.dynatemp_range > 0 ||
        has_step(s, PL_STEP_XTC) || !has_step(s, PL_STEP_TEMPERATURE))
        return false;
    for (int32_t i = s->n_lead; i < s->n_step; i++)
        if (s->step[i] == PL_STEP_PENALTIES || s->step[i] == PL_STEP_DRY)
            return false;
    return true;
}

/* Draws the random numbers for choosing a token: *u decides between the
 * candidates, *xtc whether XTC is applied. */
static void draw_numbers(struct sampler *s, double *u, double *xtc)
{
    *u = exact_uniform(&s->state);
    *xtc = has_step(s, PL_STEP_XTC) ? exact_uniform(&s->state) : 1;
}

void sampling_skip(struct sampler *s)
{
    double u, xtc;

    draw_numbers(s, &u, &xtc);
}

static int32_t pick(struct sampler *s, const float *logits)
{
    double u, xtc;

    draw_numbers(s, &u, &xtc);
    s->minus = s->dry ? dry_penalties(s->dry) : NULL;
    if (is_greedy(s))
        return most_likely(s, logits);
    if (!usable(s, logits))
        return -1;
    collect(s, logits);
    if (s->left.n == 0)
        return -1;
    for (int32_t i = s->n_lead; i < s->n_step; i++)
        apply(s, s->step[i], xtc);
    if (s->o.mirostat > 0)
        return mirostat_draw(&s->left, &s->o, s->n_vocab, u, &s->mu);
    return has_step(s, PL_STEP_ADAPTIVE_P)
               ? adaptive_draw(&s->adaptive, &s->left, &s->o, u)
               : candidates_draw(&s->left, u, NULL);
}

int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed)
{
    int32_t id;

    s->allowed = allowed;
    exclude_banned(s);
    id = pick(s, logits);
    allow_banned(s);
    s->allowed = NULL;
    return id;
}
