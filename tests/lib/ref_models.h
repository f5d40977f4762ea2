/* The reference models at hand, and their token sequences. */
#ifndef TEST_REF_MODELS_H
#define TEST_REF_MODELS_H

#include "lib/support.h"

/* The names of all models at hand, sorted, the last NULL: "llama-gqa-f32" for a
 * reference model, "made/llama-gqa-f32" for one that is made here
 * (made_model.h). With test_ref(), the files of either are found by that name.
 * Unless `all`, a made one is there if the reference model is not, or if it is
 * the smallest of its family. Lives as long as the process. */
const char *const *ref_models(bool all);

/* Returns true if test_ref() gives made files for `name`. */
bool ref_model_is_made(const char *name);

/* The path of `name`.gguf. The case fails if it is not at hand. */
const char *ref_model_path(const char *name);

enum { REF_SEQS = 3, REF_MAX_TOK = 64 };

/* A prompt and its greedy continuation, n tokens together; `row` is where their
 * logits begin among those of all sequences. */
struct ref_seq {
    int n_prompt, n, row;
    int32_t id[REF_MAX_TOK];
};

/* Reads the sequences of the model `name`; returns the sum of their tokens. */
int ref_sequences(const char *name, struct ref_seq seq[REF_SEQS]);

#endif
