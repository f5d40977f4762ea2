/* Synthetic models for benchmarks: written once into a directory and used again
 * by later runs. */
#ifndef BENCH_SYNTHETIC_H
#define BENCH_SYNTHETIC_H

#include "synth/synth.h"

/* The directory of the models unless a benchmark is given another, which must
 * exist. */
#define SYNTHETIC_DIR "build/bench"

/* Writes a model of this shape and type to DIR/NAME-TYPE.gguf, unless that file
 * exists. Writes the file's path to path[size]. */
pl_status synthetic_model(const struct synth_shape *s, const char *type,
                          const char *dir, char *path, size_t size,
                          pl_err *err);
/* The same with a block for multi-token prediction after the layers, a copy of
 * the shapes of a layer. Its projection is 0. */
pl_status synthetic_with_block(const struct synth_shape *s, const char *type,
                               const char *dir, char *path, size_t size,
                               pl_err *err);

#endif
