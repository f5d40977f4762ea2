/* Measures the server's loop between two steps of the engine: tasks that end
 * and arrive, the choice of the next step, and output.
 *
 *   bench-loop [DIR] [ROUNDS]     DIR has the synthetic model (written if it
 *                                 is absent)
 *
 * Each case has a number of tasks at once, each with a short prompt and 200
 * tokens to generate. The model is the smallest of the synthetic ones, and its
 * vocabulary is small, too. Choosing tokens, greedily here, is part of the time
 * between steps. It takes time in proportion to the vocabulary, so its time is
 * also printed by itself. Times are medians over the rounds. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pl.h"
#include "server/loop.h"
#include "synthetic.h"
#include "timing.h"

enum { N_WRITE = 200, N_PROMPT = 16 };

static atomic_int n_ended;

static bool on_token(void *user, int32_t id, const float *logits)
{
    (void)user;
    (void)id;
    (void)logits;
    return true;
}

static enum client_state on_wish(void *user)
{
    (void)user;
    return CLIENT_READY;
}

static void on_end(void *user, const struct task_report *report)
{
    (void)user;
    if (report->why != FINISH_LENGTH)
        bench_die("a job", report->err.message);
    n_ended++;
}

static void add(struct loop *l, int i, int64_t n_vocab)
{
    int32_t prompt[N_PROMPT];
    pl_sampling how;
    struct task_params params = {
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = N_WRITE,
        .sampling = &how,
        .ignore_end = true,
        .slot = -1,
        .client = 1 + (uint64_t)i % 8,
        .listener = {.token = on_token, .poll_client = on_wish, .end = on_end}};
    pl_err err;

    pl_sampling_init(&how);
    how.temperature = 0;
    for (int k = 0; k < N_PROMPT; k++)
        prompt[k] = (int32_t)((i * 7919 + k * 104729) % n_vocab);
    if (loop_add(l, &params, 1, NULL, &err) != PL_OK)
        bench_die("a job", err.message);
}

/* Runs n tasks. Sets *self_us to the microseconds between two steps and
 * *step_us to those within a step, as means over the steps. */
static void run_round(struct loop *l, int n, int64_t n_vocab, double *self_us,
                      double *step_us)
{
    const struct timespec t = {.tv_nsec = 1000000};
    struct loop_counts before, after;
    double steps;

    loop_counts(l, &before);
    n_ended = 0;
    for (int i = 0; i < n; i++)
        add(l, i, n_vocab);
    while (n_ended < n)
        nanosleep(&t, NULL);
    loop_counts(l, &after);
    steps = (double)(after.n_step - before.n_step);
    *self_us = 1e6 * (after.overhead_s - before.overhead_s) / steps;
    *step_us = 1e6 * (after.step_s - before.step_s) / steps;
}

/* Returns the microseconds that choosing one token for each of n tasks
 * takes. */
static double choose(int n, int64_t n_vocab)
{
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    pl_sampling how;
    pl_sampler *s;
    pl_err err;
    double began;

    pl_sampling_init(&how);
    how.temperature = 0;
    if (!logits || pl_sampler_create(&s, &how, n_vocab, &err) != PL_OK)
        bench_die("a sampler", "out of memory");
    for (int64_t i = 0; i < n_vocab; i++)
        logits[i] = (float)(i * 7919 % 1009);
    began = bench_now();
    for (int i = 0; i < n * N_WRITE; i++)
        pl_sample(s, logits);
    began = bench_now() - began;
    pl_sampler_free(s);
    free(logits);
    return 1e6 * began / N_WRITE;
}

static void run(pl_model *m, int n, int rounds)
{
    const pl_tokenizer *words = pl_model_tokenizer(m);
    double self[BENCH_MAX_ROUND], step[BENCH_MAX_ROUND];
    struct loop_options o = {.n_seq = n, .step = 512};
    struct loop *l = NULL;
    pl_engine *e = NULL;
    pl_options opt;
    pl_err err;

    pl_options_init(&opt);
    opt.n_seq = n;
    opt.n_ctx = 512L * n;
    opt.prefix_cache = true;
    if (pl_engine_create(&e, m, &opt, &err) != PL_OK ||
        loop_create(&l, e, words, &o, &err) != PL_OK)
        bench_die("an engine", err.message);
    for (int r = 0; r < rounds; r++)
        run_round(l, n, pl_tokenizer_n_vocab(words), &self[r], &step[r]);
    printf("%3d sequences: %7.1f us between steps, %6.1f of them for choosing; "
           "%8.1f us in them\n",
           n, bench_median(self, rounds),
           choose(n, pl_tokenizer_n_vocab(words)), bench_median(step, rounds));
    loop_free(l);
    pl_engine_free(e);
}

int main(int argc, char **argv)
{
    static const int n_seq[] = {1, 8, 64, 256};
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    char path[4096];
    pl_model *m;
    pl_err err;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("ROUNDS", "1 to 64");
    if (synthetic_model(synth_shape("tiny", NULL), "q4_k_m",
                        argc > 1 ? argv[1] : SYNTHETIC_DIR, path, sizeof path,
                        &err) != PL_OK ||
        pl_model_open(&m, path, &err) != PL_OK)
        bench_die("the model", err.message);
    if (!pl_model_tokenizer(m))
        bench_die(path, "it has no words: remove it, to have it written anew");
    for (size_t i = 0; i < sizeof n_seq / sizeof n_seq[0]; i++)
        run(m, n_seq[i], rounds);
    pl_model_free(m);
    return 0;
}
