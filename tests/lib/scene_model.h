/* Small models with any widths, as files with random weights. */
#ifndef TEST_SCENE_MODEL_H
#define TEST_SCENE_MODEL_H

#include "pl.h"

/* A model as qwen3moe builds it: d_model 64, heads of 16, 6 experts of which 2
 * are used, 96 words, weights F32. */
struct scene_model {
    int64_t n_layer, n_head, n_head_kv, d_ff;
    bool fused; /* attn_qkv and ffn_gate_up_exps instead of their parts */
};

/* Writes a new file and returns its path, which lives as long as the
 * process. */
const char *scene_model_write(const struct scene_model *m);

#endif
