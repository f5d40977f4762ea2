/* Reference models that are made when a test requests them.
 *
 * tests/refs/made/NAME.json describes a model: the keys of its file, the names,
 * shapes and formats of its tensors with the range or the size of their values,
 * token sequences, and a few numbers of the logits that the equations give for
 * them in double precision. The weights are drawn from a seed, so that a file
 * has the same bytes each time. This suffices to test a family without a copy
 * of a reference model.
 *
 * A made model's reference logits are those of eval64. made_model_keeps
 * compares them with stored numbers, so that an error in the equations shows.
 * They were stored when eval64 agreed with another engine's logits. */
#ifndef TEST_MADE_MODEL_H
#define TEST_MADE_MODEL_H

#include "lib/ref_models.h"

/* Returns the path of NAME.gguf, NAME.tokens.txt or NAME.logits.bin if the
 * model NAME is described, else NULL. The first request writes the file into
 * the temporary directory of the group of cases. */
const char *made_model_file(const char *file);

/* Returns the names of all described models, sorted, and their number in *n.
 * The smallest of a family is marked. The list lives as long as the process. */
struct made_name {
    char name[64], family[32];
    int64_t n_value; /* number of values of all its weights */
    bool smallest;
};
const struct made_name *made_model_names(int *n);

/* Computes MADE_NUMBERS numbers from logits [n] that stand for them in a
 * description: their sum, their sum of squares, and some of them. */
enum { MADE_NUMBERS = 8 };
void made_model_numbers(const double *logits, int64_t n,
                        double numbers[MADE_NUMBERS]);

/* Fails the case unless the logits of sequence `seq` give the numbers in the
 * model's description, up to 1e-6 of the logits' size. */
void made_model_keeps(const char *name, int seq, const double *logits,
                      int64_t n);

/* Writes the model that dir/NAME.json describes. */
void made_model_write(const char *dir, const char *name, const char *path);

/* Writes the described model `name` with one block for multi-token prediction
 * after its layers: a copy of the shapes of its last layer, with weights of its
 * own. Most rows of the output matrix are zero, so that the model and its block
 * choose among few tokens and sometimes agree. Returns its path. */
const char *made_model_with_block(const char *name);

/* ---- made_describe.c ----------------------------------------------------- */

/* Writes the description of the reference model `name` to `folder`: its own
 * keys and shapes, sequences that are continued greedily with a clear margin,
 * and the numbers of their logits. Writes none if no such sequences are
 * found. */
void made_model_describe(const char *name, const char *folder);

#endif
