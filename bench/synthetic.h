/* Synthetic models for benches: written once into a directory, used again. */
#ifndef BENCH_SYNTHETIC_H
#define BENCH_SYNTHETIC_H

#include "synth/synth.h"

/* Where they are unless a bench is told of another directory, which must be
 * there. */
#define SYNTHETIC_DIR "build/bench"

/* Writes DIR/NAME-TYPE.gguf unless it is there; its path goes to `path`. */
pl_status synthetic_model(const struct synth_shape *s, const char *type,
                          const char *dir, char *path, size_t size,
                          pl_err *err);

#endif
