/* One round of a benchmark on an engine: the time of a prompt, then that of
 * tokens generated one by one. */
#ifndef BENCH_ROUND_H
#define BENCH_ROUND_H

#include "pl.h"
#include "timing.h"

struct bench_row {
    const char *label;
    pl_options opt;
    pl_engine *e;
    /* speeds of each round in tokens a second */
    double prompt[BENCH_MAX_ROUND], gen[BENCH_MAX_ROUND];
};

/* Number of cache slots that a round needs in addition to its prompt's. */
enum { BENCH_ROUND_BESIDE = 256 };

/* Measures round `round`: a prompt of n_prompt tokens, then 32 tokens generated
 * after the first 256 of it. Stores both speeds in *c. logits [n_vocab] is
 * scratch. Prints an error and exits if a call fails. */
void bench_round(struct bench_row *c, int n_prompt, int64_t n_vocab,
                 float *logits, int round);

#endif
