/* Writes model files with the shapes of a large model and no data. They suffice
 * for planning, which reads no weight. */
#ifndef TEST_HOLLOW_MODEL_H
#define TEST_HOLLOW_MODEL_H

#include "pl.h"

/* Sizes of a mixture of experts as in qwen3moe: twelve tensors per layer and
 * three more, without a vocabulary. */
struct hollow_model {
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t n_expert, n_used, d_ff, n_vocab;
    /* format of the matrices; vectors and router weights are F32 */
    pl_format format;
};

/* A model with 94 layers and 128 experts: 394 billion values. */
extern const struct hollow_model hollow_400b;

/* Writes the file to `path`, with a hole for each tensor. */
pl_status hollow_model_write(const char *path, const struct hollow_model *m,
                             pl_err *err);

#endif
