/* Random packed weights of every format, and the trees along which rank addends
 * are summed, for tests of contractions. Buffers have exactly the size they
 * need. */
#ifndef TEST_CPU_WEIGHTS_H
#define TEST_CPU_WEIGHTS_H

#include "lib/support.h"

#include "device/cpu/cpu_kernel.h"

/* Formats of weights, and the offsets of the f16 scales in a block of each. */
enum { WEIGHTS_N_FORMAT = 26 };
struct weights_format {
    pl_format format;
    int n_half, at[2];
};
extern const struct weights_format weights_formats[WEIGHTS_N_FORMAT];

/* Moves *f, from -1 or a kernel set, to the next that runs here and fills *k
 * with its kernels. Returns false after the last one. After the kernel sets
 * come the kernels of AMX with tiles in plain C (lib/tiles_plain.h), then the
 * GPUs' in the emulator (lib/gpu_bridge.h), on any machine. */
bool weights_next_kernel_set(int *f, struct cpu_kernels *k);

/* Allocates `size` bytes aligned to 64, filled with garbage. The caller calls
 * free(). */
void *weights_alloc(size_t size);

/* Returns n random values in [-1, 1). Sometimes all are -1 or 1, which become
 * the extremes of 8-bit integers, or one block of 32 is zero. */
float *weights_floats(int64_t n, uint64_t *seed);

/* Matrices [n_expert][n, k]: the part of a weight that one device holds. */
struct weights {
    int64_t n_expert, n, k; /* k: columns that the device holds */
    struct pack pack;
    struct pack_chunk *chunk;
    uint8_t *data; /* the weights in packed form, owned */
    float *value;  /* [n_expert][n][k] the decoded values, owned */
};

/* Makes random weights of format weights_formats[fi], packed for the spans
 * span[n_span] of k as pack_init describes. */
struct weights weights_make(int fi, int64_t n_expert, int64_t n, int64_t n_full,
                            const struct pack_span *span, int n_span,
                            uint64_t *seed);
void weights_free(struct weights *m);

/* The summation tree over n_rank ranks, as seen by the device that carries
 * ranks first .. end-1. Ranks whose bit in `empty` is set have no addend. */
struct weights_tree {
    struct tree_addend item[64];
    /* contains pointers into item[], so the struct must not be copied */
    struct rank_tree t;
    int n_rank, first, end;
    uint64_t empty;
};
void weights_tree_make(struct weights_tree *t, int n_rank, int first, int end,
                       uint64_t empty);
/* Makes the tree of one rank with one addend. */
void weights_tree_single(struct weights_tree *t, int rank);
/* Returns the number of ranks in the left subtree of a tree over n > 1. */
int weights_tree_left(int n);

/* Sets the dimensions of `t` to [a], [a, b] or [a, b, c], by n_dim. */
void weights_dims(struct cpu_tensor *t, int n_dim, int64_t a, int64_t b,
                  int64_t c);

#endif
