/* Files with the shapes of a large model and no data; planning reads no
 * weight. */
#ifndef TEST_HOLLOW_MODEL_H
#define TEST_HOLLOW_MODEL_H

#include "pl.h"

/* A mixture of experts as qwen3moe builds it: twelve tensors a layer and three
 * more, without a vocabulary. */
struct hollow_model {
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t n_expert, n_used, d_ff, n_vocab;
    pl_format format; /* of matrices; vectors and routers are F32 */
};

/* The shape with 94 layers and 128 experts: 394 billion values. */
extern const struct hollow_model hollow_400b;

/* Writes the file to `path`, with a hole for each tensor. */
pl_status hollow_model_write(const char *path, const struct hollow_model *m,
                             pl_err *err);

#endif
