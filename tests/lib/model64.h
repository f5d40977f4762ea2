/* A model in double precision: its graph, evaluated by eval64 step by step.
 *
 * It uses no kernels, layouts or executor. Sequences are evaluated one at a
 * time, each from position 0 of an empty cache. A failure inside fails the
 * running case. */
#ifndef TEST_MODEL64_H
#define TEST_MODEL64_H

#include "lib/eval64.h"
#include "lib/ref_models.h"
#include "model/model.h"

struct model64 {
    struct gguf *file;
    struct model *m;
    pl_graph *g;
    struct eval64 *e;
};

/* Opens the model at `path`. Its file stays open until model64_close. Caches
 * are F32. */
void model64_open(struct model64 *r, const char *path);
/* Opens the graph of its Nth block for multi-token prediction instead, or, for
 * N = 0, that of the network with the output hidden_rows. */
void model64_open_block(struct model64 *r, const char *path, int64_t block);
void model64_close(struct model64 *r);

/* Evaluates the n tokens id[] at positions pos, pos + 1, ... as one step.
 * Returns their logits [n, n_vocab], valid until the next step. */
const double *model64_step(struct model64 *r, const int32_t *id, int pos,
                           int n);

/* Evaluates the n tokens id[] of a block at positions 0, 1, ... with the hidden
 * values hidden [n, d_model]. Returns their logits. */
const double *model64_block(struct model64 *r, const int32_t *id,
                            const double *hidden, int n);

/* Evaluates a sequence as an engine would: the prompt at once, then token by
 * token. Its logits are written to x [n, n_vocab]. */
void model64_sequence(struct model64 *r, const struct ref_seq *s, double *x);

#endif
