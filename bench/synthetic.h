/* Synthetic models for benches: written once into a directory, used again. */
#ifndef BENCH_SYNTHETIC_H
#define BENCH_SYNTHETIC_H

#include "synth/synth.h"

/* The default directory; a bench may name another, which must exist. */
#define SYNTHETIC_DIR "build/bench"

/* Writes DIR/NAME-TYPE.gguf unless it exists; its path is written to `path`. */
pl_status synthetic_model(const struct synth_shape *s, const char *type,
                          const char *dir, char *path, size_t size,
                          pl_err *err);

#endif
