/* Small models with any widths, as files with random weights. */
#ifndef TEST_SCENE_MODEL_H
#define TEST_SCENE_MODEL_H

#include "pl.h"

/* Sizes of a model as in qwen3moe with d_model 64, heads of 16 values, 6
 * experts of which a token uses 2, 96 words, and F32 weights. */
struct scene_model {
    int64_t n_layer, n_head, n_head_kv, d_ff;
    /* tensors attn_qkv and ffn_gate_up_exps in place of one tensor for each of
     * their parts */
    bool fused;
};

/* Writes the model to a new file and returns the file's path, which lives as
 * long as the process. */
const char *scene_model_write(const struct scene_model *m);

#endif
