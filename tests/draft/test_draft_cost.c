/* The number of drafted tokens: the choice with the most tokens a second, by
 * measured times, and never for long at a loss. */
#include "draft/draft_cost.h"
#include "lib/support.h"

/* Returns the time of a step in a made world where a further row costs
 * `percent` of the first. */
static int64_t made_ns(int64_t rows, int percent)
{
    return 10000 * (100 + percent * (rows - 1));
}

static void measure_all(struct draft_cost *c, int percent)
{
    for (int64_t rows = 1; rows <= 64; rows++)
        cost_measure(c, &(struct cost_step){.texts = 1, .rows = rows},
                     made_ns(rows, percent));
}

/* The tokens that a draft of k tokens yields, times CHANCE_ONE. */
static int64_t gain(const int32_t *chance, int k)
{
    int64_t reach = CHANCE_ONE, sum = CHANCE_ONE;

    for (int i = 0; i < k; i++) {
        reach = reach * chance[i] / CHANCE_ONE;
        sum += reach;
    }
    return sum;
}

/* Among the lengths that lose no more than half a step and what drafts gained
 * before, if all tokens are wrong. */
TEST(draft_length_is_the_best_of_all)
{
    uint64_t seed = test_seed();

    for (int round = test_draws(400, 20000); round > 0; round--) {
        struct draft_cost c = {0};
        int32_t chance[16];
        struct cost_draft d = {.n = 16, .chance = chance};
        int best = 0;

        for (int i = 0; i < 16; i++) {
            c.step.ns[i] = i > 0 ? c.step.ns[i - 1] : 1000000;
            c.step.ns[i] += test_below(&seed, 400000);
            chance[i] = (int32_t)test_below(&seed, CHANCE_ONE + 1);
        }
        c.lost = -(int64_t)test_below(&seed, 8000000);
        for (int k = 1; k <= 16; k++) {
            /* tokens / time, without division */
            int64_t bar = gain(chance, best);

            bar = best == 0 ? bar / 32 * 33 : bar;
            if (cost_ns(&c.step, 1 + k) <=
                    cost_ns(&c.step, 1) / 2 * 3 - c.lost &&
                (gain(chance, k) >> 8) * cost_ns(&c.step, 1 + best) >
                    (bar >> 8) * cost_ns(&c.step, 1 + k))
                best = k;
        }
        cost_choose(&c, NULL, &d, 1, 1, 16);
        assert_int_equal(d.take, best);
    }
}

TEST(draft_length_follows_the_measured_times)
{
    int32_t chance[16];
    struct cost_draft d = {.n = 16, .chance = chance};
    struct draft_cost cheap = {0}, dear = {0};

    for (int i = 0; i < 16; i++)
        chance[i] = CHANCE_ONE / 10 * 9;
    measure_all(&cheap, 1);
    measure_all(&dear, 95);
    cost_choose(&cheap, NULL, &d, 1, 1, 16);
    assert_true(d.take >= 12);
    cost_choose(&dear, NULL, &d, 1, 1, 16);
    assert_int_equal(d.take, 0);
    cost_choose(&(struct draft_cost){0}, NULL, &d, 1, 1, 16);
    assert_true(d.take > 0 && d.take < 16);
}

/* The tokens of a draft model cost its steps, too: a draft of k tokens takes k
 * of them. */
TEST(draft_length_counts_the_draft_models_steps)
{
    uint64_t seed = test_seed();
    int n_shorter = 0;

    for (int round = test_draws(400, 20000); round > 0; round--) {
        struct draft_cost c = {0};
        struct cost_times model = {0};
        int32_t chance[16];
        struct cost_draft d = {.n = 16, .chance = chance};
        int best = 0, free_best;

        measure_all(&c, (int)test_below(&seed, 30));
        /* gains of earlier drafts, so that all lengths are allowed */
        c.lost = -100 * made_ns(1, 0);
        cost_add(&model, 1, 1 + (int64_t)test_below(&seed, 600000));
        for (int i = 0; i < 16; i++)
            chance[i] = (int32_t)test_below(&seed, CHANCE_ONE + 1);
        for (int k = 1; k <= 16; k++) {
            const int64_t one = cost_ns(&model, 1);
            int64_t bar = gain(chance, best);

            bar = best == 0 ? bar / 32 * 33 : bar;
            if ((gain(chance, k) >> 8) *
                    (cost_ns(&c.step, 1 + best) + best * one) >
                (bar >> 8) * (cost_ns(&c.step, 1 + k) + k * one))
                best = k;
        }
        cost_choose(&c, NULL, &d, 1, 1, 16);
        free_best = d.take;
        cost_choose(&c, &model, &d, 1, 1, 16);
        assert_int_equal(d.take, best);
        assert_true(d.take <= free_best);
        n_shorter += d.take < free_best;
    }
    assert_true(n_shorter > 0);
}

/* Texts at the same position share a step of the draft model. */
TEST(draft_texts_share_the_draft_models_steps)
{
    int32_t chance[4];
    struct cost_draft d[2] = {{.n = 4, .chance = chance},
                              {.n = 4, .chance = chance}};
    struct draft_cost c = {0};
    struct cost_times model = {0};

    for (int i = 0; i < 4; i++)
        chance[i] = CHANCE_ONE / 10 * 8;
    measure_all(&c, 1);
    for (int texts = 1; texts <= 2; texts++)
        cost_add(&model, texts, made_ns(1, 0) / 10 * 6);
    cost_choose(&c, &model, d, 2, 2, 8);
    assert_true(d[0].take > 0 && d[1].take > 0);
    /* twice the time for both is too much */
    model = (struct cost_times){0};
    cost_add(&model, 2, made_ns(1, 0) / 10 * 12);
    cost_choose(&c, &model, d, 2, 2, 8);
    assert_int_equal(d[0].take + d[1].take, 0);
}

/* In company the likeliest tokens are drafted, whichever text they are of. */
TEST(draft_tokens_of_several_texts_are_the_likeliest)
{
    int32_t high[8], low[8];
    struct cost_draft d[3] = {{.n = 8, .chance = low},
                              {.n = 8, .chance = high},
                              {.n = 0, .chance = low}};
    struct draft_cost c = {0};

    for (int i = 0; i < 8; i++) {
        high[i] = CHANCE_ONE / 100 * 95;
        low[i] = CHANCE_ONE / 2;
    }
    measure_all(&c, 1);
    cost_choose(&c, NULL, d, 3, 3, 6);
    assert_int_equal(d[0].take, 0);
    assert_int_equal(d[1].take, 6);
    assert_int_equal(d[2].take, 0);
    d[0].fixed = true;
    cost_choose(&c, NULL, d, 3, 3, 10);
    assert_int_equal(d[0].take, 8);
    assert_int_equal(d[1].take, 2);
}

/* Drafts that are never accepted cost a sixtieth of the time, and a few steps,
 * however long that goes on; also if each makes the next step compute a token
 * again, or takes the time of a step to propose. */
TEST(draft_losses_are_bounded)
{
    for (int kind = 0; kind < 3; kind++) {
        const bool again = kind == 1;
        const int64_t draft_ns = kind == 2 ? made_ns(1, 15) : 0;
        struct draft_cost c = {0};
        int64_t plain = 0, spent = 0;
        bool tried = false;

        for (int i = 0; i < 4000; i++) {
            bool tries = cost_may_try(&c);
            const struct cost_step s = {.texts = 1,
                                        .rows =
                                            1 + 8 * tries + (again && tried),
                                        .drafted = 8 * tries,
                                        .again = again && tried,
                                        .draft_ns = tries * draft_ns};
            int64_t ns = made_ns(s.rows, 15);

            cost_measure(&c, &s, ns);
            tried = tries;
            spent += ns + s.draft_ns;
            plain += made_ns(1, 15);
            assert_true(spent <= plain + plain / 60 + made_ns(10, 15) +
                                     5 * made_ns(1, 15));
        }
        assert_true(spent > plain);
    }
}

/* The first step is plain, so that drafts are compared with a time that is
 * known. A text of 96 tokens loses less than 3 percent by chosen lengths,
 * whatever a further row costs. */
TEST(draft_losses_of_a_short_text_are_small)
{
    int32_t chance[8];

    for (int percent = 5; percent <= 50; percent += 5) {
        struct cost_draft d = {.n = 8, .chance = chance};
        struct draft_cost c = {0};
        int64_t spent = 0;
        int n_draft = 0;

        for (int i = 0; i < 8; i++)
            chance[i] = CHANCE_ONE / 4 * 3;
        assert_false(cost_may_try(&c));
        for (int i = 0; i < 96; i++) {
            cost_choose(&c, NULL, &d, 1, 1, cost_may_try(&c) ? 8 : 0);
            chance[0] -= d.take > 0 ? chance[0] / 4 : 0;
            cost_measure(&c,
                         &(struct cost_step){
                             .texts = 1, .rows = 1 + d.take, .drafted = d.take},
                         made_ns(1 + d.take, percent));
            spent += made_ns(1 + d.take, percent);
            n_draft += d.take > 0;
        }
        assert_true(n_draft > 0);
        assert_true(spent * 97 <= 96 * made_ns(1, percent) * 100);
    }
}

/* The times of plain steps were measured while the machine was slow. Drafts
 * that are sometimes right gain against these times, and lose against those of
 * today. */
TEST(draft_gains_are_those_against_the_times_of_today)
{
    struct draft_cost c = {0};
    int64_t n_draft = 0;

    for (int i = 0; i < 20; i++)
        cost_measure(&c, &(struct cost_step){.texts = 1, .rows = 1},
                     4 * made_ns(1, 50));
    for (int i = 0; i < 2000; i++) {
        const bool tries = cost_may_try(&c);
        const struct cost_step s = {.texts = 1,
                                    .rows = 1 + 3 * tries,
                                    .drafted = 3 * tries,
                                    .accepted = tries && i % 2};

        cost_measure(&c, &s, made_ns(s.rows, 50));
        n_draft += tries;
    }
    assert_in_range(n_draft, 1, 200);
}

/* Steps that another program stretched do not end drafts that are right. */
TEST(draft_lengths_survive_a_busy_machine)
{
    int32_t chance[8];
    struct cost_draft d = {.n = 8, .chance = chance};
    struct draft_cost c = {0};
    uint64_t seed = test_seed();
    int64_t n_token = 0;

    for (int i = 0; i < 8; i++)
        chance[i] = CHANCE_ONE / 100 * 95;
    for (int i = 0; i < 1000; i++) {
        int64_t ns;

        cost_choose(&c, NULL, &d, 1, 1, cost_may_try(&c) ? 8 : 0);
        ns = made_ns(1 + d.take, 15);
        ns *= test_below(&seed, 20) == 0 ? 30 : 1;
        cost_measure(&c,
                     &(struct cost_step){.texts = 1,
                                         .rows = 1 + d.take,
                                         .drafted = d.take,
                                         .accepted = d.take},
                     ns);
        n_token += 1 + d.take;
    }
    assert_true(n_token > 5000);
}

/* A time that was measured while the machine was slow is not believed. */
TEST(draft_times_are_not_above_those_of_more_rows)
{
    struct cost_times t = {{0}};

    cost_add(&t, 1, 4000);
    cost_add(&t, 4, 1000);
    assert_int_equal(cost_ns(&t, 1), 1000);
    assert_int_equal(cost_ns(&t, 2), 1000);
    assert_int_equal(cost_ns(&t, 4), 1000);
}

/* Drafts that are always right leave out a step now and then, whose time tells
 * what they gain. */
TEST(draft_steps_without_drafts_stay_measured)
{
    struct draft_cost c = {0};
    int n_plain = 0;

    for (int i = 0; i < 320; i++) {
        const bool tries = cost_may_try(&c);

        cost_measure(&c,
                     &(struct cost_step){.texts = 1,
                                         .rows = 1 + 3 * tries,
                                         .drafted = 3 * tries,
                                         .accepted = 3 * tries},
                     made_ns(1 + 3 * tries, 10));
        n_plain += !tries;
    }
    assert_in_range(n_plain, 8, 12);
}
