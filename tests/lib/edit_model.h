/* Writes copies of a model's file with changed keys or tensors. */
#ifndef TEST_EDIT_MODEL_H
#define TEST_EDIT_MODEL_H

#include <stdbool.h>

/* One change: a key or tensor to add, replace or remove. A name that begins
 * with a dot follows the name of the architecture: ".attention.causal". */
struct edit {
    const char *name;
    enum {
        EDIT_DROP, /* removes the key or the tensor */
        EDIT_INT,
        EDIT_FLOAT,
        EDIT_BOOL,
        EDIT_TEXT,
        /* key with a list of booleans: a digit 0 or 1 of `text` for each */
        EDIT_FLAGS,
        EDIT_TENSOR, /* tensor: a vector of `v` zeros */
    } kind;
    double v;
    const char *text;
};

/* Writes a changed copy of the model at `path` to a new file and returns its
 * path. If `hollow`, all matrices are zero and take no space on disk. */
const char *edit_model(const char *path, bool hollow, const struct edit *edits,
                       int n);

#endif
