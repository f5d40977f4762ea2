/* The decision how many drafted tokens a step computes; see draft_cost.h. */
#include "draft/draft_cost.h"

/* The greatest number of rows of each bucket of draft_cost.ns. The last bucket
 * has all greater numbers, too. */
static const int16_t most_rows[COST_BUCKETS] = {
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

/* Number of steps with drafts after which one has none, so that the time of
 * plain steps stays known. */
enum { PROBE = 32 };

/* Returns the time of a step relative to others, by the assumption that a
 * further row costs 0.15 of the first. */
static int64_t assumed(int64_t rows)
{
    return 100 + 15 * (rows - 1);
}

static int bucket(int64_t rows)
{
    int i = 0;

    while (i < COST_BUCKETS - 1 && rows > most_rows[i])
        i++;
    return i;
}

/* Returns the time of a step of `rows` rows as bucket i has it. */
static int64_t scaled(const struct cost_times *t, int i, int64_t rows)
{
    int64_t ns = t->ns[i] / assumed(most_rows[i]) * assumed(rows);

    return ns > 0 ? ns : 1;
}

int64_t cost_ns(const struct cost_times *t, int64_t rows)
{
    int64_t below = 0, ns;
    int i = bucket(rows), k;

    if (t->ns[i] > 0) {
        /* A step takes no longer than one with more rows. Where it seems to, it
         * was measured before the machine became faster. */
        ns = t->ns[i];
        for (k = i + 1; k < COST_BUCKETS; k++)
            if (t->ns[k] > 0 && t->ns[k] < ns)
                ns = t->ns[k];
        return ns;
    }
    for (k = i; k >= 0 && t->ns[k] == 0;)
        k--;
    if (k >= 0)
        below = scaled(t, k, rows);
    for (k = i; k < COST_BUCKETS && t->ns[k] == 0;)
        k++;
    if (k == COST_BUCKETS)
        return below > 0 ? below : 1000 * assumed(rows);
    ns = scaled(t, k, rows);
    /* A step takes no longer than one with more rows. */
    return below == 0 ? ns : below < t->ns[k] ? below : t->ns[k];
}

bool cost_is_known(const struct cost_times *t)
{
    for (int i = 0; i < COST_BUCKETS; i++)
        if (t->ns[i] > 0)
            return true;
    return false;
}

static int64_t at_most(int64_t a, int64_t most)
{
    return a < most ? a : most;
}

int64_t cost_add(struct cost_times *t, int64_t rows, int64_t ns)
{
    const bool first = !cost_is_known(t);
    int64_t *mean = &t->ns[bucket(rows)];

    ns = ns > 0 ? ns : 1;
    if (!first)
        ns = at_most(ns, 4 * cost_ns(t, rows));
    /* The first steps take longer than later ones, so a much shorter time
     * replaces the average. */
    *mean = *mean == 0 || ns < *mean / 2 ? ns : *mean + (ns - *mean) / 8;
    return first ? 0 : ns;
}

/* Returns how much time drafts may lose: a sixty-fourth of all, and half a step
 * to begin with. So a text of 96 tokens loses less than 3 percent. */
static int64_t allowance(const struct draft_cost *c)
{
    return c->spent / 64 + cost_ns(&c->step, 1) / 2;
}

void cost_measure(struct draft_cost *c, const struct cost_step *s, int64_t ns)
{
    const int64_t rows = s->rows, extra = s->drafted + s->again;
    int64_t plain, expected, counted;

    if (s->texts < 1 || rows <= extra || ns < 1)
        return;
    expected = cost_ns(&c->step, rows);
    counted = cost_add(&c->step, rows, ns);
    ns = counted > 0 ? counted : ns;
    c->spent += ns + s->draft_ns;
    c->lost += s->draft_ns;
    c->since_plain = extra > 0 ? c->since_plain + 1 : 0;
    if (extra > 0) {
        /* Without drafts the step would have produced a token of each text. */
        plain = cost_ns(&c->step, rows - extra);
        c->lost +=
            at_most(ns, 2 * expected) - plain - plain / s->texts * s->accepted;
    }
    /* Gains are not saved up for long, so that drafts end soon after they
     * stop being useful. */
    if (c->lost < -allowance(c))
        c->lost = -allowance(c);
}

bool cost_may_try(const struct draft_cost *c)
{
    return cost_is_known(&c->step) && c->lost <= allowance(c) &&
           c->since_plain % PROBE != PROBE - 1;
}

/* Returns the draft to take a further token of, and sets *chance to that of the
 * token being accepted; -1 if there is none. Among fixed drafts this is the one
 * with the fewest tokens taken, among others that with the likeliest token. */
static int next_draft(const struct cost_draft *d, int n, bool fixed,
                      int64_t *chance)
{
    int best = -1;

    *chance = 0;
    for (int i = 0; i < n; i++) {
        int64_t p;

        if (d[i].fixed != fixed || d[i].take == d[i].n)
            continue;
        p = fixed ? PL_DRAFT_MAX - d[i].take
                  : d[i].reach * d[i].chance[d[i].take] / CHANCE_ONE;
        if (best < 0 || p > *chance) {
            *chance = p;
            best = i;
        }
    }
    return best;
}

/* Returns the time that a step of the draft model takes for this many texts. A
 * step that was never measured is assumed to take a quarter of a plain one. */
static int64_t model_ns(const struct draft_cost *c,
                        const struct cost_times *model, int texts)
{
    if (!model || texts == 0)
        return 0;
    return cost_is_known(model) ? cost_ns(model, texts)
                                : cost_ns(&c->step, texts) / 4;
}

/* Takes `most` further tokens of drafts, or fewer if there are fewer. Returns
 * the number of them with which the step produces the most tokens a second, and
 * which lose no more than drafts may if all are wrong. */
static int64_t take(const struct draft_cost *c, const struct cost_times *model,
                    struct cost_draft *d, int n, bool fixed, int64_t rows,
                    int64_t most)
{
    /* Tokens, times CHANCE_ONE, and nanoseconds. A longer draft must be
     * better than none by a thirty-second. */
    int64_t tokens = (int64_t)n * CHANCE_ONE, ns, k, chance, drafting = 0;
    int64_t best = tokens / 32 * 33, best_ns = cost_ns(&c->step, rows);
    const int64_t most_ns = best_ns + allowance(c) - c->lost;
    int64_t n_best = 0;
    int texts[PL_DRAFT_MAX] = {0}; /* with a token at each position */

    for (k = 0; k < most; k++) {
        int i = next_draft(d, n, fixed, &chance);
        int *at;

        if (i < 0)
            break;
        at = &texts[d[i].take++];
        drafting += model_ns(c, model, *at + 1) - model_ns(c, model, *at);
        ++*at;
        if (fixed)
            continue;
        d[i].reach = chance;
        tokens += chance;
        ns = cost_ns(&c->step, rows + k + 1) + drafting;
        if (ns <= most_ns && (tokens >> 8) * best_ns > (best >> 8) * ns) {
            best = tokens;
            best_ns = ns;
            n_best = k + 1;
        }
    }
    return fixed ? k : n_best;
}

void cost_choose(const struct draft_cost *c, const struct cost_times *model,
                 struct cost_draft *d, int n, int64_t rows, int64_t most)
{
    int64_t n_fixed, n_best;

    for (int i = 0; i < n; i++) {
        d[i].take = 0;
        d[i].reach = CHANCE_ONE;
    }
    n_fixed = take(c, model, d, n, true, rows, most);
    n_best = take(c, model, d, n, false, rows + n_fixed, most - n_fixed);
    for (int i = 0; i < n; i++)
        if (!d[i].fixed) {
            d[i].take = 0;
            d[i].reach = CHANCE_ONE;
        }
    take(c, model, d, n, false, rows + n_fixed, n_best);
}
