/* Measures receipts: how fast a receipt is checked, compared with generation
 * and with a prompt, and what recording costs.
 *
 *   bench-verify [FILE] [ROUNDS]   FILE: a model; else the synthetic
 *                                  qwen3-0.6b, q4_k_m
 *
 * Each round generates 128 tokens after a prompt of 32, with and without a
 * receipt that records them. Then it computes the same 160 tokens as a prompt,
 * once with the logits of the last token and once with those of 128 tokens, and
 * checks the receipt. Finally it samples from random logits, with and without
 * recording, for three sizes of vocabulary. Times are medians over the rounds.
 * Ratios are medians of the rounds' ratios, because the machine's speed changes
 * between rounds. */
#include "engine/sampler.h"
#include "sampling/record.h"
#include "synthetic.h"
#include "timing.h"

#include "pl_receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 32, N_OUT = 128, N = N_PROMPT + N_OUT };

static const int32_t vocabularies[] = {102400, 128000, 151936};
enum { N_VOCABULARY = sizeof vocabularies / sizeof vocabularies[0] };

/* The times that a round measures, each in seconds per token. */
enum figure {
    PLAIN, /* generation of the output without a receipt */
    GENERATE,
    LAST,
    ALL,
    VERIFY,
    SAMPLE,
    /* sampling from random logits with recording, one time per vocabulary */
    RECORD = SAMPLE + N_VOCABULARY,
    N_FIGURE = RECORD + N_VOCABULARY,
};

struct bench {
    pl_engine *e;
    int64_t n_vocab;
    int32_t token[N]; /* tokens of the prompt, then of the output */
    float *rows;      /* [N_OUT, n_vocab] logits of the output's tokens */
    char *json;       /* text of the receipt that generate() wrote */
    float *random;    /* random logits for the largest vocabulary */
};

static void must(pl_status s, const pl_err *err)
{
    if (s != PL_OK)
        bench_die("receipts", err->message);
}

/* Decodes tokens from .. to-1 and requests the logits of the last n_row.
 * Returns the seconds. */
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

/* Generates the output and, if `recorded`, a receipt of it. Returns the seconds
 * per token. */
static double generate(struct bench *b, bool recorded)
{
    pl_receipt *r = NULL;
    pl_sampling how;
    pl_sampler *s;
    double began;
    pl_err err;

    pl_sampling_init(&how);
    clear(b);
    must(pl_sampler_create(&s, &how, b->n_vocab, &err), &err);
    for (int i = 0; i < N_PROMPT; i++)
        pl_sampler_accept(s, b->token[i]);
    if (recorded) {
        must(pl_receipt_begin(&r, b->e, b->token, N_PROMPT, &err), &err);
        must(pl_sampler_record(s, r, &err), &err);
    }
    decode(b, 0, N_PROMPT, 1);
    began = bench_now();
    for (int i = N_PROMPT; i < N; i++) {
        b->token[i] = pl_sample(s, b->rows);
        decode(b, i, i + 1, 1);
    }
    began = bench_now() - began;
    if (recorded) {
        free(b->json);
        must(pl_receipt_write(r, PL_RECEIPT_FULL, &b->json, &err), &err);
    }
    pl_sampler_free(s);
    pl_receipt_free(r);
    return began / N_OUT;
}

/* Returns the seconds per token of computing all tokens as a prompt, with n_row
 * rows of logits. */
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

/* Sets the times SAMPLE and RECORD in s[]: samples from random logits without
 * and with recording, in turn. */
static void sample(double *s, struct bench *b)
{
    uint32_t state = 1;

    for (int k = 0; k < N_VOCABULARY; k++) {
        struct sampling_record record = {0};
        pl_sampler *plain, *recorded;
        pl_sampling how;
        pl_err err;

        pl_sampling_init(&how);
        must(pl_sampler_create(&plain, &how, vocabularies[k], &err), &err);
        must(pl_sampler_create(&recorded, &how, vocabularies[k], &err), &err);
        sampler_record(recorded, &record);
        for (int i = 0; i < vocabularies[k]; i++) {
            state = state * 1664525 + 1013904223;
            b->random[i] = (float)(state >> 8) * 0x1p-20f;
        }
        s[SAMPLE + k] = s[RECORD + k] = 0;
        for (int i = 0; i < N_OUT; i++) {
            double t[3] = {bench_now()};

            pl_sample(plain, b->random);
            t[1] = bench_now();
            pl_sample(recorded, b->random);
            t[2] = bench_now();
            s[SAMPLE + k] += (t[1] - t[0]) / N_OUT;
            s[RECORD + k] += (t[2] - t[1]) / N_OUT;
        }
        pl_sampler_free(plain);
        pl_sampler_free(recorded);
        record_fini(&record);
    }
}

/* Returns the median over the rounds of the ratio s[][a] / s[][b]. */
static double ratio(double s[][N_FIGURE], int rounds, int a, int b)
{
    double v[BENCH_MAX_ROUND];

    for (int r = 0; r < rounds; r++)
        v[r] = s[r][a] / s[r][b];
    return bench_median(v, rounds);
}

static double median(double s[][N_FIGURE], int rounds, int a)
{
    double v[BENCH_MAX_ROUND];

    for (int r = 0; r < rounds; r++)
        v[r] = s[r][a];
    return bench_median(v, rounds);
}

static void print(double s[][N_FIGURE], int rounds, int64_t n_vocab)
{
    printf("vocabulary %lld, tokens per second, %d rounds\n"
           "generation                %8.1f\n"
           "the same, recorded        %8.1f\n"
           "prompt, last logits       %8.1f\n"
           "prompt, %d rows of logits %7.1f\n"
           "verification              %8.1f   %.2f of that prompt, %.1f x "
           "generation\n",
           (long long)n_vocab, rounds, 1 / median(s, rounds, PLAIN),
           1 / median(s, rounds, GENERATE), 1 / median(s, rounds, LAST), N_OUT,
           1 / median(s, rounds, ALL), 1 / median(s, rounds, VERIFY),
           ratio(s, rounds, ALL, VERIFY), ratio(s, rounds, PLAIN, VERIFY));
    for (int k = 0; k < N_VOCABULARY; k++) {
        double v[BENCH_MAX_ROUND], share[BENCH_MAX_ROUND];

        for (int r = 0; r < rounds; r++) {
            v[r] = s[r][RECORD + k] - s[r][SAMPLE + k];
            share[r] = v[r] / s[r][PLAIN];
        }
        printf("sampling, %6d tokens   %7.1f us, recorded %+.1f us: %.2f %% of "
               "a generated token\n",
               (int)vocabularies[k], 1e6 * median(s, rounds, SAMPLE + k),
               1e6 * bench_median(v, rounds),
               100 * bench_median(share, rounds));
    }
}

int main(int argc, char **argv)
{
    static double s[BENCH_MAX_ROUND][N_FIGURE];
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
    b.random = malloc((size_t)vocabularies[N_VOCABULARY - 1] * sizeof(float));
    if (!b.rows || !b.random)
        bench_die("the logits", "out of memory");
    for (int i = 0; i < N_PROMPT; i++)
        b.token[i] = (int32_t)((i * 7919 + 13) % b.n_vocab);
    for (int r = 0; r < rounds; r++) {
        s[r][PLAIN] = generate(&b, false);
        s[r][GENERATE] = generate(&b, true);
        s[r][LAST] = prompt(&b, 1);
        s[r][ALL] = prompt(&b, N_OUT);
        s[r][VERIFY] = verify(&b);
        sample(s[r], &b);
    }
    print(s, rounds, b.n_vocab);
    free(b.json);
    free(b.rows);
    free(b.random);
    pl_engine_free(b.e);
    pl_model_free(model);
    return 0;
}
