/* Finds the reference models that exist on this machine, and reads their token
 * sequences. */
#ifndef TEST_REF_MODELS_H
#define TEST_REF_MODELS_H

#include "lib/support.h"

/* Returns the names of all reference models, sorted, the last one NULL:
 * "llama-gqa-f32" for a model whose files exist, "made/llama-gqa-f32" for one
 * that tests make (made_model.h). test_ref() finds the files of either by that
 * name. Models of shared/refs-next are listed if `all` and if the library knows
 * the family. If not `all`, a made model is listed only if the files do not
 * exist or if it is the smallest of its family. The list lives as long as the
 * process. */
const char *const *ref_models(bool all);

/* Returns true if test_ref() gives made files for `name`. */
bool ref_model_is_made(const char *name);

/* Returns true for the families that together use every part of models
 * (src/model/blocks.h). Tests that combine many parameters combine them with
 * these, and give each other family a share. */
bool ref_model_is_core(const char *name);

/* Returns the path of `name`.gguf. The case fails if it is absent. */
const char *ref_model_path(const char *name);

/* REF_CTX: context in tokens with which the logits were computed */
enum { REF_SEQS = 3, REF_MAX_TOK = 160, REF_CTX = 512 };

/* A prompt and its greedy continuation, n tokens in all. `row` is the index of
 * the sequence's first row of logits among the rows of all sequences. */
struct ref_seq {
    int n_prompt, n, row;
    int32_t id[REF_MAX_TOK];
};

/* Reads the sequences of the model `name` into seq[]. Returns the sum of their
 * lengths in tokens. */
int ref_sequences(const char *name, struct ref_seq seq[REF_SEQS]);

#endif
