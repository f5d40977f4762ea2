/* The scheduler's choice for a step: no decoding task waits, and clients are
 * served fairly. */
#include "lib/support.h"
#include "server/schedule.h"

#include <string.h>

enum { STEP = 512, CHUNK = 128 };

static void join(struct schedule *s, uint64_t client)
{
    pl_err err;

    TEST_OK(schedule_add_task(s, client, &err), err);
}

TEST(schedule_gives_a_lone_prompt_the_step)
{
    struct schedule s;
    struct schedule_entry job = {.client = 1, .n_left = 1000};

    schedule_init(&s, STEP, CHUNK);
    join(&s, 1);
    assert_int_equal(schedule_step(&s, &job, 1), STEP);
    assert_int_equal(job.n_now, STEP);
    job.n_left = 3;
    assert_int_equal(schedule_step(&s, &job, 1), 3);
    job.paused = true;
    assert_int_equal(schedule_step(&s, &job, 1), 0);
    assert_int_equal(job.n_now, 0);
    schedule_fini(&s);
}

TEST(schedule_writes_in_every_step_beside_a_chunk)
{
    struct schedule s;
    struct schedule_entry job[4] = {{.client = 1},
                                    {.client = 1, .n_left = 100},
                                    {.client = 2, .n_left = 4000},
                                    {.client = 3}};

    schedule_init(&s, STEP, CHUNK);
    for (uint64_t c = 1; c <= 3; c++)
        join(&s, c);
    join(&s, 1);
    for (int k = 0; k < 10; k++) {
        assert_int_equal(schedule_step(&s, job, 4), 2 + CHUNK);
        assert_int_equal(job[0].n_now, 1);
        assert_int_equal(job[3].n_now, 1);
        for (int i = 1; i <= 2; i++)
            job[i].n_left -= job[i].n_now;
        if (job[1].n_left == 0)
            job[1].paused = true;
    }
    assert_int_equal(job[1].n_left, 0);
    assert_int_equal(job[2].n_left, 4000 - (10 * CHUNK - 100));
    schedule_fini(&s);
}

/* The first of two short prompts gets its token after one chunk, not after the
 * second prompt; a long one still gets whole steps. */
TEST(schedule_prompt_that_ends_waits_for_no_other)
{
    struct schedule s;
    struct schedule_entry job[2] = {{.client = 1, .n_left = CHUNK},
                                    {.client = 2, .n_left = CHUNK}};

    schedule_init(&s, STEP, CHUNK);
    join(&s, 1);
    join(&s, 2);
    assert_int_equal(schedule_step(&s, job, 2), CHUNK);
    assert_int_equal(job[0].n_now, CHUNK);
    assert_int_equal(job[1].n_now, 0);
    job[0].n_left = job[1].n_left = 10 * STEP;
    assert_int_equal(schedule_step(&s, job, 2), STEP);
    schedule_fini(&s);
}

/* An encoder computes a text in one step: two texts of 0.6 steps take two
 * steps, and short ones share one, whatever `chunk` is. */
TEST(schedule_takes_whole_prompts_of_encoders)
{
    struct schedule s;
    struct schedule_entry job[3] = {{.client = 1, .n_left = STEP * 3 / 5},
                                    {.client = 2, .n_left = STEP * 3 / 5},
                                    {.client = 2, .n_left = 1}};

    schedule_init(&s, STEP, CHUNK);
    s.whole = true;
    join(&s, 1);
    join(&s, 2);
    assert_int_equal(schedule_step(&s, job, 3), STEP * 3 / 5);
    assert_int_equal(job[0].n_now, STEP * 3 / 5);
    assert_int_equal(job[1].n_now, 0);
    for (int i = 0; i < 3; i++)
        job[i].n_left = STEP / 3;
    assert_int_equal(schedule_step(&s, job, 3), STEP / 3 * 3);
    schedule_fini(&s);
}

/* One client has a hundred tasks, another one: they get the same while both
 * need tokens. */
TEST(schedule_is_fair_over_clients)
{
    struct schedule s;
    struct schedule_entry job[101];
    int64_t given[3] = {0};

    memset(job, 0, sizeof job);
    schedule_init(&s, STEP, CHUNK);
    for (int i = 0; i < 101; i++) {
        job[i] = (struct schedule_entry){.client = i < 100 ? 1 : 2,
                                         .n_left = i < 100 ? 1000 : 20000};
        join(&s, job[i].client);
    }
    for (int k = 0; k < 60; k++) {
        schedule_step(&s, job, 101);
        for (int i = 0; i < 101; i++) {
            given[job[i].client] += job[i].n_now;
            job[i].n_left -= job[i].n_now;
            job[i].paused = job[i].n_left == 0;
        }
    }
    assert_in_range(given[1] + given[2], 60 * CHUNK, 60 * STEP);
    assert_true(given[1] - given[2] <= 2 * STEP);
    assert_true(given[2] - given[1] <= 2 * STEP);
    schedule_fini(&s);
}

/* A late client has no claim on what others had before, and a client gains
 * nothing by leaving and returning. */
TEST(schedule_lets_nobody_save_up)
{
    struct schedule s;
    struct schedule_entry job[2] = {{.client = 7, .n_left = 100000},
                                    {.client = 9, .n_left = 100000}};
    int64_t first = 0;

    schedule_init(&s, STEP, CHUNK);
    join(&s, 7);
    for (int k = 0; k < 50; k++)
        schedule_step(&s, job, 1);
    join(&s, 9);
    for (int k = 0; k < 20; k++) {
        schedule_step(&s, job, 2);
        first += job[0].n_now;
    }
    assert_true(first >= 9 * STEP && first <= 11 * STEP);
    assert_int_equal(s.n_client, 2);
    schedule_remove_task(&s, 7);
    schedule_remove_task(&s, 12345);
    assert_int_equal(s.n_client, 1);
    schedule_remove_task(&s, 9);
    assert_int_equal(s.n_client, 0);
    schedule_fini(&s);
}

/* A client that is present but paused saves up nothing either, and new clients
 * do not start as far behind as it. */
TEST(schedule_lets_nobody_save_up_by_pausing)
{
    struct schedule s;
    struct schedule_entry job[3] = {
        {.client = 7, .n_left = 1000000, .paused = true},
        {.client = 8, .n_left = 1000000},
        {.client = 9, .n_left = 1000000}};
    int64_t given[3] = {0};

    schedule_init(&s, STEP, CHUNK);
    join(&s, 7);
    join(&s, 8);
    for (int k = 0; k < 500; k++)
        schedule_step(&s, job, 2);
    job[0].paused = false;
    join(&s, 9);
    for (int k = 0; k < 60; k++) {
        schedule_step(&s, job, 3);
        for (int i = 0; i < 3; i++)
            given[i] += job[i].n_now;
    }
    assert_int_equal(given[0] + given[1] + given[2], 60 * STEP);
    assert_in_range(given[1], 10 * STEP, 20 * STEP);
    assert_in_range(given[0] - given[2] + STEP, 0, 2 * STEP);
    schedule_fini(&s);
}

TEST(schedule_seats_the_least_served_and_unseats_the_most)
{
    struct schedule s;
    struct schedule_entry job = {.client = 5, .n_left = 400};
    const uint64_t waiting[] = {5, 5, 3, 8, 3};

    schedule_init(&s, STEP, CHUNK);
    join(&s, 5);
    join(&s, 3);
    join(&s, 8);
    assert_int_equal(schedule_next(&s, waiting, 0), -1);
    assert_int_equal(schedule_victim(&s, waiting, 0), -1);
    assert_int_equal(schedule_next(&s, waiting, 5), 0);
    schedule_step(&s, &job, 1);
    assert_int_equal(schedule_next(&s, waiting, 5), 2);
    assert_int_equal(schedule_victim(&s, waiting, 5), 1);
    schedule_fini(&s);
}

/* A decoding task may end, and another arrives, the newest of all. */
static void end_one(struct schedule *s, struct schedule_entry *job, int *waited,
                    int n, uint64_t *seed)
{
    int64_t i = test_below(seed, 20 * n);
    size_t behind = (size_t)(n - 1 - i);

    if (i >= n || job[i].n_left > 0)
        return;
    schedule_remove_task(s, job[i].client);
    memmove(&job[i], &job[i + 1], behind * sizeof *job);
    memmove(&waited[i], &waited[i + 1], behind * sizeof *waited);
    job[n - 1] = (struct schedule_entry){.client = 1 + test_random(seed) % 5,
                                         .n_left = 1 + test_below(seed, 3000)};
    waited[n - 1] = 0;
    join(s, job[n - 1].client);
}

/* Random clients arrive, add tasks and leave. No task gets more than it needs,
 * the sum is within the step, and no waiting client starves. */
TEST(schedule_starves_nobody)
{
    enum { N = 12 };
    uint64_t seed = test_seed();
    struct schedule_entry job[N];
    int waited[N] = {0};
    struct schedule s;

    memset(job, 0, sizeof job);
    schedule_init(&s, STEP, CHUNK);
    for (int i = 0; i < N; i++) {
        job[i].client = 1 + test_random(&seed) % 5;
        join(&s, job[i].client);
        job[i].n_left = test_below(&seed, 3000);
    }
    for (int k = 0; k < 5000; k++) {
        int64_t n = schedule_step(&s, job, N), sum = 0;

        for (int i = 0; i < N; i++) {
            bool writes = job[i].n_left == 0;

            sum += job[i].n_now;
            assert_true(job[i].n_now <= job[i].n_left + writes);
            assert_true(!writes || job[i].n_now == 1);
            waited[i] = job[i].n_now > 0 ? 0 : waited[i] + 1;
            assert_true(waited[i] < 1000);
            job[i].n_left -= writes ? 0 : job[i].n_now;
        }
        assert_int_equal(n, sum);
        assert_true(n <= STEP || n <= CHUNK + N);
        end_one(&s, job, waited, N, &seed);
    }
    schedule_fini(&s);
}
