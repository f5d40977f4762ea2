/* Runs one round of a benchmark on an engine; round.h describes the
 * function. */
#include "round.h"

#include <stdlib.h>

enum { N_GEN = 32, N_PAST = 256 };

void bench_round(struct bench_row *c, int n_prompt, int64_t n_vocab,
                 float *logits, int round)
{
    int32_t *id = malloc((size_t)n_prompt * sizeof *id);
    uint8_t *wanted = calloc((size_t)n_prompt, 1);
    pl_batch b = {.size = sizeof b,
                  .n = n_prompt,
                  .token = id,
                  .wanted = wanted,
                  .logits = logits};
    pl_err err = {0};
    double t;

    if (!id || !wanted)
        exit(1);
    if (pl_seq_trim(c->e, 0, 0, NULL, &err))
        bench_die(c->label, err.message);
    for (int i = 0; i < n_prompt; i++)
        id[i] = (int32_t)(((unsigned)i * 2654435761u) % (uint32_t)n_vocab);
    wanted[n_prompt - 1] = 1;
    t = bench_now();
    if (pl_engine_decode(c->e, &b, NULL, &err))
        bench_die(c->label, err.message);
    c->prompt[round] = n_prompt / (bench_now() - t);
    if (pl_seq_trim(c->e, 0, N_PAST, NULL, &err))
        bench_die(c->label, err.message);
    b.n = 1;
    b.wanted = NULL;
    t = bench_now();
    for (int i = 0; i < N_GEN; i++) {
        b.token = &id[i];
        if (pl_engine_decode(c->e, &b, NULL, &err))
            bench_die(c->label, err.message);
    }
    c->gen[round] = N_GEN / (bench_now() - t);
    free(id);
    free(wanted);
}
