/* Synthetic models for benches: real shapes, random weights.
 *
 * A file is written once into a directory and used again. Weights are random
 * bits in the format's own blocks with scales that keep activations in range;
 * they mean nothing, but every byte is read as a real model's would be. */
#ifndef BENCH_SYNTHETIC_H
#define BENCH_SYNTHETIC_H

#include "pl.h"

/* name, architecture, layers, width, heads, KV heads, head size, feed-forward
 * width (of an expert if n_expert > 0), experts, used, vocabulary. */
struct synthetic_shape {
    const char *name, *arch;
    int n_layer, d_model, n_head, n_head_kv, d_head, d_ff, n_expert, n_used;
    int n_vocab;
};

extern const struct synthetic_shape synthetic_0b6;     /* dense, 0.6 billion */
extern const struct synthetic_shape synthetic_3b_a0b6; /* experts */
extern const struct synthetic_shape synthetic_wide;    /* as many layers as a
                                                          bench gives a copy */

/* Where they are unless a bench is told of another directory, which must be
 * there. */
#define SYNTHETIC_DIR "build/bench"

/* Writes DIR/NAME-FORMAT.gguf unless it is there; its path goes to `path`. */
pl_status synthetic_model(const struct synthetic_shape *s, pl_format f,
                          const char *dir, char *path, size_t size,
                          pl_err *err);

#endif
