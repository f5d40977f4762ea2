/* Shared by tests of the whole engine: a model with its engine, logits of a few
 * tokens, and their bits. A failure inside fails the running case with the
 * library's message. */
#ifndef TEST_ENGINE_RUN_H
#define TEST_ENGINE_RUN_H

#include "lib/support.h"
#include "pl.h"

struct engine_run {
    pl_model *model;
    pl_engine *engine;
    int64_t n_vocab;
};

/* Returns options with one thread a device, no pins, 256 cache slots, 64 tokens
 * a step and 4 sequences. */
pl_options engine_run_options(void);

/* Opens the model at `path` and its engine. Messages call it `name`. */
void engine_run_open(struct engine_run *r, const char *path, const char *name,
                     const pl_options *o);
void engine_run_close(struct engine_run *r);

/* Decodes n tokens of sequence `seq`. Writes their logits to out [n, n_vocab];
 * requests none if `out` is NULL. */
void engine_run_decode(const struct engine_run *r, int seq, int64_t n,
                       const int32_t *token, float *out);

/* Draws n random token ids of the model's vocabulary. */
void engine_run_tokens(const struct engine_run *r, uint64_t *random, int64_t n,
                       int32_t *token);

#endif
