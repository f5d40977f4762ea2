/* Distinguishes models from other GGUF files in the same folder. */
#ifndef CLI_MODEL_FILE_H
#define CLI_MODEL_FILE_H

#include <stdbool.h>

/* Returns false if the file's metadata say that it is not a model, but an
 * importance matrix, a projector for images, an adapter or a vocabulary.
 * Returns true for files that cannot be read, because loading them reports the
 * error. */
bool model_file_may_be_one(const char *path);
/* Returns true if the file can be opened as a model whose architecture is
 * supported. */
bool model_file_opens(const char *path);

#endif
