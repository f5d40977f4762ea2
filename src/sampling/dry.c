/* Implements the DRY penalty (dry.h). Keeps the last tokens in a ring buffer,
 * and searches each new token's text for breakers. */
#include "sampling/dry.h"

#include "base/err.h"
#include "base/exact.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BREAKER = 256,
    MOST_BREAKER_BYTES = 64,
    /* Maximum number of bytes of a token's text that are searched for breakers;
     * the rest of a longer text is ignored. */
    MOST_PIECE = 1024,
};

struct breaker {
    char s[MOST_BREAKER_BYTES];
    size_t n;
};

struct dry {
    double multiplier, log_base;
    int32_t n_vocab, allowed;
    sampling_spell_fn *spell;
    const void *spell_user;
    /* owned, [n_breaker]: strings across which no match of tokens extends */
    struct breaker *breaker;
    int32_t n_breaker;

    /* The last `cap` tokens, in two ring buffers: token i of the sequence has
     * index i % cap. */
    int32_t *seen; /* owned, [cap]: ids of the tokens */
    bool *breaks; /* owned, [cap]: true if a breaker ends in the token's text */
    int32_t cap;  /* option dry_last_n: number of tokens kept */
    int64_t n_seen; /* number of tokens since dry_reset */
    /* The last bytes of the text, because a breaker may begin in one token and
     * end in a later one. */
    char text[MOST_BREAKER_BYTES + MOST_PIECE];
    /* Number of bytes in `text`. Less than MOST_BREAKER_BYTES, except while
     * dry_accept adds a token's text. */
    size_t n_text;

    /* Owned, [cap]: the tokens of the ring buffer in reverse order, the newest
     * first. */
    int32_t *back;
    /* Owned, [cap]: number of tokens from back[i] on that equal those from
     * back[0] on, so the length of the match that ended i tokens ago. */
    int32_t *match;
    int32_t *hit; /* owned, [cap], n_hit of them used: tokens that have a
                     penalty */
    int32_t n_hit;
    float *penalty; /* owned, [n_vocab]: 0 except for the tokens in hit[] */
};

static pl_status copy_breakers(struct dry *d, const struct sampling_options *o,
                               pl_err *err)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *from = o->dry_breaker ? o->dry_breaker : usual;
    int32_t n = o->dry_breaker ? o->n_dry_breaker : 4;

    if (n < 0 || n > MOST_BREAKER)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_dry_breaker is %d, it must be in 0 .. %d",
                       (int)n, MOST_BREAKER);
    if (n > 0 && !o->spell)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: DRY has %d breakers, but no tokenizer to "
                       "find them; pass one, or no breakers",
                       (int)n);
    d->breaker = calloc((size_t)n + 1, sizeof *d->breaker);
    if (!d->breaker)
        return err_no_memory(err, "a sampler");
    for (; d->n_breaker < n; d->n_breaker++) {
        struct breaker *b = &d->breaker[d->n_breaker];
        const char *s = from[d->n_breaker];

        b->n = s ? strlen(s) : 0;
        if (b->n < 1 || b->n > MOST_BREAKER_BYTES)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: dry_breaker %d has %zu bytes, it must "
                           "have 1 .. %d",
                           (int)d->n_breaker, b->n, MOST_BREAKER_BYTES);
        memcpy(b->s, s, b->n);
    }
    return PL_OK;
}

pl_status dry_create(struct dry **out, int32_t n_vocab,
                     const struct sampling_options *o, pl_err *err)
{
    struct dry *d = calloc(1, sizeof *d);
    size_t cap = (size_t)o->dry_last_n;
    pl_status st;

    *out = NULL;
    if (!d)
        return err_no_memory(err, "a sampler");
    d->multiplier = o->dry_multiplier;
    d->log_base = exact_log(o->dry_base);
    d->n_vocab = n_vocab;
    d->allowed = o->dry_allowed_length;
    d->spell = o->spell;
    d->spell_user = o->spell_user;
    d->cap = o->dry_last_n;
    st = copy_breakers(d, o, err);
    d->seen = malloc(cap * sizeof *d->seen);
    d->breaks = malloc(cap * sizeof *d->breaks);
    d->back = malloc(cap * sizeof *d->back);
    d->match = malloc(cap * sizeof *d->match);
    d->hit = malloc(cap * sizeof *d->hit);
    d->penalty = calloc((size_t)n_vocab, sizeof *d->penalty);
    if (st == PL_OK && (!d->seen || !d->breaks || !d->back || !d->match ||
                        !d->hit || !d->penalty))
        st = err_no_memory(err, "a sampler");
    if (st == PL_OK)
        *out = d;
    else
        dry_free(d);
    return st;
}

void dry_free(struct dry *d)
{
    if (!d)
        return;
    free(d->breaker);
    free(d->seen);
    free(d->breaks);
    free(d->back);
    free(d->match);
    free(d->hit);
    free(d->penalty);
    free(d);
}

void dry_reset(struct dry *d)
{
    d->n_seen = 0;
    d->n_text = 0;
}

/* Returns true if a breaker ends within the last `n_new` bytes of d->text. */
static bool has_breaker(const struct dry *d, size_t n_new)
{
    for (int32_t i = 0; i < d->n_breaker; i++) {
        const struct breaker *b = &d->breaker[i];
        size_t n = n_new + b->n - 1;

        n = n < d->n_text ? n : d->n_text;
        if (memmem(d->text + d->n_text - n, n, b->s, b->n))
            return true;
    }
    return false;
}

void dry_accept(struct dry *d, int32_t id)
{
    int64_t at = d->n_seen++ % d->cap;
    size_t n = 0, rest;

    d->seen[at] = id;
    if (d->n_breaker > 0)
        n = d->spell(d->spell_user, id, d->text + d->n_text, MOST_PIECE);
    d->n_text += n;
    d->breaks[at] = has_breaker(d, n);
    rest =
        d->n_text < MOST_BREAKER_BYTES - 1 ? d->n_text : MOST_BREAKER_BYTES - 1;
    memmove(d->text, d->text + d->n_text - rest, rest);
    d->n_text = rest;
}

/* Sets match[i], 1 <= i < n, to the number of tokens from back[i] on that equal
 * those from back[0] on: the Z function of back[0 .. n). */
static void compare(struct dry *d, int32_t n)
{
    /* Indices [left .. right) of the match found so far that has the greatest
     * end. */
    int32_t left = 0, right = 0;

    for (int32_t i = 1; i < n; i++) {
        int32_t same = 0;

        if (i < right)
            same =
                d->match[i - left] < right - i ? d->match[i - left] : right - i;
        while (i + same < n && d->back[same] == d->back[i + same])
            same++;
        d->match[i] = same;
        if (i + same > right) {
            left = i;
            right = i + same;
        }
    }
}

static float penalty_of(const struct dry *d, int32_t length)
{
    double power = d->log_base * (length - d->allowed);

    /* The exponent is limited, because a penalty of e^80 exceeds any logit and
     * a greater one could overflow. */
    return (float)(d->multiplier / exact_exp(-(power < 80 ? power : 80)));
}

const float *dry_penalties(struct dry *d)
{
    int32_t n = d->n_seen < d->cap ? (int32_t)d->n_seen : d->cap;
    /* Number of tokens after the last one in which a breaker ends. No match is
     * longer. */
    int32_t most = n;

    for (int32_t i = 0; i < d->n_hit; i++)
        d->penalty[d->hit[i]] = 0;
    d->n_hit = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t at = (d->n_seen - 1 - i) % d->cap;

        d->back[i] = d->seen[at];
        if (d->breaks[at] && most == n)
            most = i;
    }
    if (most < d->allowed)
        return d->penalty;
    compare(d, n);
    for (int32_t i = 1; i < n; i++) {
        int32_t length = d->match[i] < most ? d->match[i] : most;
        int32_t next = d->back[i - 1];
        float p;

        if (length < d->allowed || d->breaks[(d->n_seen - i) % d->cap])
            continue;
        p = penalty_of(d, length);
        if (d->penalty[next] == 0)
            d->hit[d->n_hit++] = next;
        if (p > d->penalty[next])
            d->penalty[next] = p;
    }
    return d->penalty;
}
