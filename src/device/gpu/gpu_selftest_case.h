/* Cases of a GPU's self test (gpu_selftest.c): small calls of each kernel, made
 * into launches as those of programs are, and the results of plain C on the CPU
 * for the same operands.
 *
 * A trial has one piece of memory, an image, with all that its kernels read and
 * write; its launches name it by the address that it has on the device. */
#ifndef DEVICE_GPU_GPU_SELFTEST_CASE_H
#define DEVICE_GPU_GPU_SELFTEST_CASE_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_launch.h"

enum {
    TRIAL_IMAGE = 1 << 20,
    TRIAL_MOST = 4096, /* trials; there are fewer */
    TRIAL_CALLS = 4    /* most that one launch does */
};

struct selftest_case {
    unsigned char *image; /* borrowed, [TRIAL_IMAGE] */
    uint64_t at;          /* where kernels find it */
    bool dry;             /* launches alone are made, values are not */
    size_t n, n_kept;     /* bytes in use, but for scratch */
    size_t out, out_bytes;
    bool floats; /* that is the result, so that NaNs are alike */
    uint64_t random;
    bool full;               /* does not fit the image */
    bool no_memory;          /* for the launches, or for the reference */
    struct launch_list list; /* owned */
    int n_alone;   /* launches that its first call would have by itself */
    char what[64]; /* "relu, F16" */
    /* Does in the image what the launches shall do on the device. */
    void (*reference)(struct selftest_case *t);
    /* What the reference is told; pointers are into the image. */
    enum kernel kernel;
    struct cpu_call call;
    struct token_table table;
    struct graph_attr attr;
    struct pack pack[TRIAL_CALLS];
    /* Calls behind it that its launch does too. */
    enum kernel also[TRIAL_CALLS - 1];
    struct cpu_call also_call[TRIAL_CALLS - 1];
    int n_also;
    union {
        struct copy_pieces_args copies;
        struct merge_tree_args tree;
        struct pages_args pages;
    } by_hand;
};

/* Makes trial i, from 0 on, of what `at`, `image` and `dry` say; the memory of
 * its lists is used again. False: there are no more. */
bool trial_make(struct selftest_case *t, int i);
void trial_fini(struct selftest_case *t);
/* Of the table of calls: with another one, what has passed is tried again. */
uint64_t trial_hash(void);
/* What element `word` of its result is, "plain sum", or NULL. */
const char *trial_word(const struct selftest_case *t, size_t word);

/* Can it be made of these kernels? */
bool trial_takes(const struct selftest_case *t,
                 const bool has[GPU_KERNEL_COUNT]);

/* ---- of these files alone ---- */

/* ---- gpu_trial_values.c ---- */
/* Values of a tensor. */
enum trial_values {
    VALUES_UNIT, /* up to 1, some that are very small, zeros */
    VALUES_MILD, /* up to 4, a few up to 64 */
    VALUES_WILD, /* any but NaN */
    VALUES_ABOVE /* 1 to 4 */
};

/* Room in the image, of random bytes. */
void *trial_room(struct selftest_case *t, size_t bytes);
/* The same with a copy in it. */
void *trial_put(struct selftest_case *t, const void *p, size_t bytes);
void *trial_values(struct selftest_case *t, enum trial_values v, pl_format f,
                   int64_t n);
/* Where the result goes. */
void *trial_result(struct selftest_case *t, size_t bytes);
uint32_t trial_draw(struct selftest_case *t);
/* The address of what lies in the image; 0 for NULL. */
uint64_t trial_at(const struct selftest_case *t, const void *p);

/* Sequences side by side; of states each with a slot to read and one to write.
 */
struct trial_tokens {
    int n_tok, n_seq, first; /* first: position */
    int stride;              /* page_stride */
};
void trial_tokens(struct selftest_case *t, const struct trial_tokens *k,
                  bool states, int64_t n_page);

/* ---- gpu_trial_hand.c ---- */
/* Trials of what no kernel of programs is: the operations that all kernels are
 * made of, and what steps move. */
enum { TRIAL_BY_HAND = 5 };
void trial_by_hand(struct selftest_case *t, int i);

#endif
