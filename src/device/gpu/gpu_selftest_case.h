/* The cases of a GPU's self-test (gpu_selftest.c): small calls of each kernel.
 * The code that creates the launches of a program also creates those of a case.
 * Plain C on the CPU computes the reference result for the same operands.
 *
 * All memory that a case reads and writes is one range, the image. The host
 * prepares it and copies it to the device. Launches use its device address. */
#ifndef DEVICE_GPU_GPU_SELFTEST_CASE_H
#define DEVICE_GPU_GPU_SELFTEST_CASE_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_launch.h"

enum {
    TRIAL_IMAGE = 1 << 20,
    TRIAL_MOST = 4096, /* upper bound of the number of cases */
    TRIAL_CALLS = 6    /* most calls that are fused into one launch */
};

struct selftest_case {
    /* the memory of the case on the host, [TRIAL_IMAGE]; borrowed */
    unsigned char *image;
    uint64_t at; /* device address of the image */
    bool dry;    /* only create the launches, without writing to the image */
    /* number of bytes of the image in use, and of those before the scratch
     * memory, which are compared */
    size_t n, n_kept;
    size_t out, out_bytes;
    bool floats; /* the result is compared as floats; any two NaNs count as
                    equal */
    uint64_t random;
    bool full;               /* the case does not fit into the image */
    bool no_memory;          /* out of memory, for the launches or for the
                                reference */
    struct launch_list list; /* the launches of the case; owned */
    bool counts; /* the device counts work groups (struct gpu_driver) */
    bool merges; /* attention gets no counters */
    /* the counters for a launch, all 0, [TAIL_COUNTERS] */
    const uint32_t *counter;
    int n_alone;   /* number of launches of the first call */
    char what[64]; /* description for messages: "relu, F16" */
    /* Computes the reference result in the image. */
    void (*reference)(struct selftest_case *t);
    /* The call that `reference` executes; pointers point into the image. */
    enum kernel kernel;
    struct cpu_call call;
    struct token_table table;
    struct graph_attr attr;
    struct pack pack[TRIAL_CALLS];
    /* Further calls that are fused into the case's launch. */
    enum kernel also[TRIAL_CALLS - 1];
    struct cpu_call also_call[TRIAL_CALLS - 1];
    int n_also;
    union {
        struct copy_pieces_args copies;
        struct merge_tree_args tree;
        struct pages_args pages;
    } by_hand;
};

/* Creates case i, counted from 0, using t->at, t->image and t->dry. Reuses
 * memory that an earlier case allocated. Returns false if there is no case
 * i. */
bool trial_make(struct selftest_case *t, int i);
void trial_fini(struct selftest_case *t);
/* Returns a hash of the table of calls. If it changes, all calls are tested
 * again. */
uint64_t trial_hash(void);
/* Returns the name of the operation that computed element `word` of the result,
 * such as "plain sum", or NULL if unknown. */
const char *trial_word(const struct selftest_case *t, size_t word);

/* Returns true if all launches of the case are of kernels k with has[k]. */
bool trial_takes(const struct selftest_case *t,
                 const bool has[GPU_KERNEL_COUNT]);

/* ---- internal functions of cases ----------------------------------------- */

/* ---- gpu_trial_values.c ---- */
/* Distributions of random tensor values. The bounds are of the absolute
 * value. */
enum trial_values {
    VALUES_UNIT, /* up to 1; some are zero or very small */
    VALUES_MILD, /* up to 4, a few up to 64 */
    VALUES_WILD, /* any value except NaN, with corner cases */
    VALUES_ABOVE /* 1 to 4 */
};

/* Allocates space in the image, filled with random bytes. Sets t->full if the
 * image is too small. */
void *trial_room(struct selftest_case *t, size_t bytes);
/* Allocates space in the image and copies p[bytes] to it. */
void *trial_put(struct selftest_case *t, const void *p, size_t bytes);
void *trial_values(struct selftest_case *t, enum trial_values v, pl_format f,
                   int64_t n);
/* Allocates space for the result in the image. */
void *trial_result(struct selftest_case *t, size_t bytes);
uint32_t trial_draw(struct selftest_case *t);
/* Returns the device address of what `p` points to in the image, or 0 for
 * NULL. */
uint64_t trial_at(const struct selftest_case *t, const void *p);

/* Sizes of a token table with n_seq sequences, whose tokens are contiguous.
 * trial_tokens() sets t->table to such a table. If `states`, each sequence has
 * a state slot to read and one to write. */
struct trial_tokens {
    /* first: position of the first token in its sequence */
    int n_tok, n_seq, first;
    int stride; /* page_stride of the token table */
};
void trial_tokens(struct selftest_case *t, const struct trial_tokens *k,
                  bool states, int64_t n_page);

/* ---- gpu_trial_hand.c ---- */
/* Creates case i, 0 to TRIAL_BY_HAND - 1, of the GPU kernels that no program
 * kernel corresponds to: arithmetic operations, and the copies and sums of
 * other instructions. */
enum { TRIAL_BY_HAND = 5 };
void trial_by_hand(struct selftest_case *t, int i);

#endif
