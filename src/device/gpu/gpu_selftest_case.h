/* Cases of a GPU's self-test (gpu_selftest.c): small calls of each kernel,
 * turned into launches as those of programs are. Plain C on the CPU computes
 * the results for the same operands.
 *
 * A case has one range of memory, an image, with all that its kernels read and
 * write. Its launches address it by its address on the device. */
#ifndef DEVICE_GPU_GPU_SELFTEST_CASE_H
#define DEVICE_GPU_GPU_SELFTEST_CASE_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_launch.h"

enum {
    TRIAL_IMAGE = 1 << 20,
    TRIAL_MOST = 4096, /* upper bound of the number of cases */
    TRIAL_CALLS = 4    /* most calls of one launch */
};

struct selftest_case {
    unsigned char *image; /* borrowed, [TRIAL_IMAGE] */
    uint64_t at;          /* its address for kernels */
    bool dry;             /* only launches are made, not values */
    size_t n, n_kept;     /* bytes in use; without scratch */
    size_t out, out_bytes;
    bool floats; /* the result has floats, so any two NaNs are equal */
    uint64_t random;
    bool full;               /* the case does not fit the image */
    bool no_memory;          /* for the launches, or for the reference */
    struct launch_list list; /* owned */
    int n_alone;             /* launches of its first call alone */
    char what[64];           /* "relu, F16" */
    /* Does in the image what the launches do on the device. */
    void (*reference)(struct selftest_case *t);
    /* Input of the reference; pointers are into the image. */
    enum kernel kernel;
    struct cpu_call call;
    struct token_table table;
    struct graph_attr attr;
    struct pack pack[TRIAL_CALLS];
    /* Further calls that its launch does too. */
    enum kernel also[TRIAL_CALLS - 1];
    struct cpu_call also_call[TRIAL_CALLS - 1];
    int n_also;
    union {
        struct copy_pieces_args copies;
        struct merge_tree_args tree;
        struct pages_args pages;
    } by_hand;
};

/* Makes case i, from 0 on, for `at`, `image` and `dry`. Reuses the memory of
 * its lists. Returns false after the last case. */
bool trial_make(struct selftest_case *t, int i);
void trial_fini(struct selftest_case *t);
/* Hash of the table of calls: if it changes, passed calls are tested again. */
uint64_t trial_hash(void);
/* Returns the meaning of element `word` of its result, "plain sum", or NULL. */
const char *trial_word(const struct selftest_case *t, size_t word);

/* Returns true if these kernels suffice for it. */
bool trial_takes(const struct selftest_case *t,
                 const bool has[GPU_KERNEL_COUNT]);

/* ---- private to these files ---- */

/* ---- gpu_trial_values.c ---- */
/* Values of a tensor. */
enum trial_values {
    VALUES_UNIT, /* up to 1, some very small, zeros */
    VALUES_MILD, /* up to 4, a few up to 64 */
    VALUES_WILD, /* any except NaN */
    VALUES_ABOVE /* 1 to 4 */
};

/* Returns space in the image, filled with random bytes. */
void *trial_room(struct selftest_case *t, size_t bytes);
/* The same with a copy of p in it. */
void *trial_put(struct selftest_case *t, const void *p, size_t bytes);
void *trial_values(struct selftest_case *t, enum trial_values v, pl_format f,
                   int64_t n);
/* Returns the space for the result. */
void *trial_result(struct selftest_case *t, size_t bytes);
uint32_t trial_draw(struct selftest_case *t);
/* Returns the device address of a pointer into the image; 0 for NULL. */
uint64_t trial_at(const struct selftest_case *t, const void *p);

/* Adjacent sequences; if `states`, each has a state slot to read and one to
 * write. */
struct trial_tokens {
    int n_tok, n_seq, first; /* first: first position */
    int stride;              /* page_stride */
};
void trial_tokens(struct selftest_case *t, const struct trial_tokens *k,
                  bool states, int64_t n_page);

/* ---- gpu_trial_hand.c ---- */
/* Cases of kernels that programs do not name: the operations that all kernels
 * consist of, and the copies of instructions. */
enum { TRIAL_BY_HAND = 5 };
void trial_by_hand(struct selftest_case *t, int i);

#endif
