/* Tells models from the other GGUF files that lie beside them. */
#ifndef CLI_MODEL_FILE_H
#define CLI_MODEL_FILE_H

#include <stdbool.h>

/* Returns false if the file says that it is not a model, but an importance
 * matrix, a projector for images, an adapter or a vocabulary. Files that cannot
 * be read may be models, because loading them gives the error. */
bool model_file_may_be_one(const char *path);
/* Returns true if the file is a model of an architecture that runs. */
bool model_file_opens(const char *path);

#endif
