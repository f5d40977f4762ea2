/* Copies of a model's file with changes. */
#ifndef TEST_EDIT_MODEL_H
#define TEST_EDIT_MODEL_H

#include <stdbool.h>

/* A change. A name that begins with a dot follows that of the architecture:
 * ".attention.causal". A key that exists is replaced. */
struct edit {
    const char *name;
    enum {
        EDIT_DROP, /* of a key */
        EDIT_INT,
        EDIT_FLOAT,
        EDIT_BOOL,
        EDIT_TEXT,
        EDIT_FLAGS,  /* a list of booleans, a digit of `text` each */
        EDIT_TENSOR, /* a vector of `v` values, all zero */
    } kind;
    double v;
    const char *text;
};

/* Writes a copy of the model at `path` to a fresh file and returns its path. If
 * `hollow`, all matrices are zero and take no space on disk. */
const char *edit_model(const char *path, bool hollow, const struct edit *edits,
                       int n);

#endif
