/* Random packed weights of every format and the trees that rank addends are
 * summed along, for tests of contractions. Buffers are as long as they must be
 * and no longer. */
#ifndef TEST_CPU_WEIGHTS_H
#define TEST_CPU_WEIGHTS_H

#include "lib/support.h"

#include "device/cpu/cpu_kernel.h"

/* Formats of weights, and where a block's f16 scales lie. */
enum { WEIGHTS_N_FORMAT = 26 };
struct weights_format {
    pl_format format;
    int n_half, at[2];
};
extern const struct weights_format weights_formats[WEIGHTS_N_FORMAT];

/* Steps *f, from -1 or a kernel set, to the next that runs here and fills *k
 * with its kernels; false: there is none. Behind the last one come the kernels
 * of AMX with tiles in plain C (lib/tiles_plain.h), then the GPUs' in the
 * emulator (lib/gpu_bridge.h), on any machine. */
bool weights_next_kernel_set(int *f, struct cpu_kernels *k);

/* 64-aligned, filled with rubbish, freed with free(). */
void *weights_alloc(size_t size);

/* n values in [-1, 1), now and then only -1 and 1, the ends of 8 bits, or with
 * a block of zeros. */
float *weights_floats(int64_t n, uint64_t *seed);

/* Matrices [n_expert][n, k] as one device holds them. */
struct weights {
    int64_t n_expert, n, k; /* k: held */
    struct pack pack;
    struct pack_chunk *chunk;
    uint8_t *data; /* packed */
    float *value;  /* [n_expert][n][k] decoded */
};

/* Of format weights_formats[fi]; spans as for pack_init. */
struct weights weights_make(int fi, int64_t n_expert, int64_t n, int64_t n_full,
                            const struct pack_span *span, int n_span,
                            uint64_t *seed);
void weights_free(struct weights *m);

/* The tree over n_rank ranks as one device sees it that carries first..end-1;
 * ranks in `empty` have no addend. */
struct weights_tree {
    struct tree_addend item[64];
    struct rank_tree t; /* into item[]: do not copy */
    int n_rank, first, end;
    uint64_t empty;
};
void weights_tree_make(struct weights_tree *t, int n_rank, int first, int end,
                       uint64_t empty);
/* One rank, one addend. */
void weights_tree_single(struct weights_tree *t, int rank);
/* Ranks in the left subtree of a tree over n > 1. */
int weights_tree_left(int n);

/* The shape [a], [a, b] or [a, b, c]. */
void weights_dims(struct cpu_tensor *t, int n_dim, int64_t a, int64_t b,
                  int64_t c);

#endif
