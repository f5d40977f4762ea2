/* Measures receipts: how fast one is checked, beside generation and a prompt,
 * and what recording costs.
 *
 *   bench-verify [FILE] [ROUNDS]   FILE: a model; else the synthetic
 *                                  qwen3-0.6b, q4_k_m
 *
 * Each round generates 128 tokens after a prompt of 32 while a receipt records
 * them, computes the same 160 tokens as a prompt with the logits of the last
 * one and with those of 128, and checks the receipt. Figures are medians over
 * rounds. */
#include "sampling/record.h"
#include "synthetic.h"
#include "timing.h"

#include "pl_receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 32, N_OUT = 128, N = N_PROMPT + N_OUT };

struct bench {
    pl_engine *e;
    int64_t n_vocab;
    int32_t token[N]; /* prompt and output */
    float *rows;      /* [N_OUT, n_vocab] */
    char *json;       /* the receipt */
};

static void must(pl_status s, const pl_err *err)
{
    if (s != PL_OK)
        bench_die("receipts", err->message);
}

/* Decodes tokens from..to, with the logits of the last n_row. Returns the
 * seconds. */
static double decode(const struct bench *b, int from, int to, int n_row)
{
    uint8_t wanted[N] = {0};
    pl_batch batch = {.size = sizeof batch,
                      .n = to - from,
                      .token = b->token + from,
                      .wanted = wanted,
                      .logits = b->rows};
    double began = bench_now();
    pl_err err;

    memset(wanted + (to - from - n_row), 1, (size_t)n_row);
    must(pl_engine_decode(b->e, &batch, NULL, &err), &err);
    return bench_now() - began;
}

static void clear(const struct bench *b)
{
    pl_err err;

    must(pl_seq_trim(b->e, 0, 0, NULL, &err), &err);
}

/* Generates the output and its receipt. Returns the seconds per token. */
static double generate(struct bench *b)
{
    pl_sampling how;
    pl_receipt *r;
    pl_sampler *s;
    double began;
    pl_err err;

    pl_sampling_init(&how);
    clear(b);
    must(pl_sampler_create(&s, &how, b->n_vocab, &err), &err);
    for (int i = 0; i < N_PROMPT; i++)
        pl_sampler_accept(s, b->token[i]);
    must(pl_receipt_begin(&r, b->e, b->token, N_PROMPT, &err), &err);
    must(pl_sampler_record(s, r, &err), &err);
    decode(b, 0, N_PROMPT, 1);
    began = bench_now();
    for (int i = N_PROMPT; i < N; i++) {
        b->token[i] = pl_sample(s, b->rows);
        decode(b, i, i + 1, 1);
    }
    began = bench_now() - began;
    free(b->json);
    must(pl_receipt_write(r, PL_RECEIPT_FULL, &b->json, &err), &err);
    pl_sampler_free(s);
    pl_receipt_free(r);
    return began / N_OUT;
}

/* Returns the seconds per token of a prompt with n_row rows of logits. */
static double prompt(const struct bench *b, int n_row)
{
    clear(b);
    return decode(b, 0, N - 1, n_row) / N;
}

static double verify(const struct bench *b)
{
    pl_receipt_result result;
    pl_receipt *r;
    double began;
    pl_err err;

    must(pl_receipt_parse(&r, b->json, strlen(b->json), &err), &err);
    began = bench_now();
    must(pl_receipt_verify(r, b->e, NULL, &result, sizeof result, &err), &err);
    began = bench_now() - began;
    if (result.verdict != PL_RECEIPT_HOLDS)
        bench_die("a receipt", result.text);
    pl_receipt_free(r);
    return began / N;
}

/* Returns the seconds to record a row. */
static double record(const struct bench *b)
{
    struct sampling_record r = {0};
    double began = bench_now();

    for (int i = 0; i < N_OUT; i++)
        record_row(&r, b->rows, (int32_t)b->n_vocab, 1, 0);
    began = bench_now() - began;
    record_fini(&r);
    return began / N_OUT;
}

int main(int argc, char **argv)
{
    enum { GENERATE, LAST, ALL, VERIFY, RECORD, N_FIGURE };
    double s[N_FIGURE][BENCH_MAX_ROUND], m[N_FIGURE];
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    struct bench b = {0};
    pl_model *model;
    pl_options o;
    char path[4096];
    pl_err err;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("ROUNDS", "1 to 64");
    snprintf(path, sizeof path, "%s", argc > 1 ? argv[1] : "");
    if (argc < 2)
        must(synthetic_model(synth_shape("qwen3-0.6b", NULL), "q4_k_m",
                             SYNTHETIC_DIR, path, sizeof path, &err),
             &err);
    must(pl_model_open(&model, path, &err), &err);
    pl_options_init(&o);
    o.n_ctx = N;
    o.n_out = N_OUT;
    must(pl_engine_create(&b.e, model, &o, &err), &err);
    b.n_vocab = pl_model_n_vocab(model);
    b.rows = malloc((size_t)N_OUT * (size_t)b.n_vocab * sizeof *b.rows);
    if (!b.rows)
        bench_die("the logits", "out of memory");
    for (int i = 0; i < N_PROMPT; i++)
        b.token[i] = (int32_t)((i * 7919 + 13) % b.n_vocab);
    for (int r = 0; r < rounds; r++) {
        s[GENERATE][r] = generate(&b);
        s[LAST][r] = prompt(&b, 1);
        s[ALL][r] = prompt(&b, N_OUT);
        s[VERIFY][r] = verify(&b);
        s[RECORD][r] = record(&b);
    }
    for (int i = 0; i < N_FIGURE; i++)
        m[i] = bench_median(s[i], rounds);
    printf("vocabulary %lld, tokens per second, %d rounds\n"
           "generation                %8.1f\n"
           "prompt, last logits       %8.1f\n"
           "prompt, %d rows of logits %7.1f\n"
           "verification              %8.1f   %.2f of that prompt, %.1f x "
           "generation\n"
           "recording                 %8.1f us a row, %.2f %% of a token\n",
           (long long)b.n_vocab, rounds, 1 / m[GENERATE], 1 / m[LAST], N_OUT,
           1 / m[ALL], 1 / m[VERIFY], m[ALL] / m[VERIFY],
           m[GENERATE] / m[VERIFY], 1e6 * m[RECORD],
           100 * m[RECORD] / m[GENERATE]);
    free(b.json);
    free(b.rows);
    pl_engine_free(b.e);
    pl_model_free(model);
    return 0;
}
