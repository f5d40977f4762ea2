/* What tests of the whole engine share: a model with its engine, logits of a
 * few tokens, and their bits. A failure inside fails the running case with the
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

/* One thread a device, no pins, 256 slots, 64 tokens a step, 4 sequences. */
pl_options engine_run_options(void);

/* `name` stands in messages for `path`. */
void engine_run_open(struct engine_run *r, const char *path, const char *name,
                     const pl_options *o);
void engine_run_close(struct engine_run *r);

/* Decodes n tokens of one sequence; their logits go to out [n, n_vocab], which
 * may be NULL: then none is wanted. */
void engine_run_decode(const struct engine_run *r, int seq, int64_t n,
                       const int32_t *token, float *out);

/* n random tokens of the model. */
void engine_run_tokens(const struct engine_run *r, uint64_t *random, int64_t n,
                       int32_t *token);

#endif
