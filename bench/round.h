/* One engine's share of a round: a prompt, then tokens one by one. */
#ifndef BENCH_ROUND_H
#define BENCH_ROUND_H

#include "pl.h"
#include "timing.h"

struct bench_row {
    const char *label;
    pl_options opt;
    pl_engine *e;
    double prompt[BENCH_MAX_ROUND], gen[BENCH_MAX_ROUND]; /* tokens a second */
};

/* Cache space that a round needs besides its prompt. */
enum { BENCH_ROUND_BESIDE = 256 };

/* Runs a prompt of n_prompt tokens, then 32 tokens after 256 of it. logits
 * [n_vocab]. Exits on errors. */
void bench_round(struct bench_row *c, int n_prompt, int64_t n_vocab,
                 float *logits, int round);

#endif
