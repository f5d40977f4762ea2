/* Test controls of the fake CUDA library (fake_cuda.c), which exports them as
 * `const struct fake_cuda fake_cuda`. */
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* Its devices, by index. */
enum {
    FAKE_NEW,   /* 9.0, has everything; a peer of FAKE_PLAIN */
    FAKE_OLD,   /* 5.2, too old for the kernels */
    FAKE_PLAIN, /* 6.1; its streams cannot wait for words */
    FAKE_FAR,   /* 8.0; cannot access host memory */
    FAKE_COUNT
};

struct fake_cuda {
    /* Lets the nth call of the function from now on, 1 the next, return the
     * code. Functions that free something do so nonetheless. NULL: none. */
    void (*break_at)(const char *function, int nth, unsigned code);
    /* Creating a context on the device returns the code from now on; 0: it
     * works again. */
    void (*refuse)(int device, unsigned code);
    bool (*failed)(void); /* true if a call has failed since break_at() */
    /* Number of contexts retained or current, streams, events, modules and
     * memory blocks. */
    int (*n_live)(void);
    /* Returns the first violation of CUDA's rules since the last call, or NULL.
     * The text lives as long as the library. */
    const char *(*wrong)(void);
    /* Returns how often a function has been called; NULL: all together. */
    int (*n_call)(const char *function);
    /* Sets the free memory that each device reports; 0: 7 GiB and some. */
    void (*set_free)(size_t bytes);
    /* Drops what a device copies into a peer's memory from now on. */
    void (*swallow)(bool on);
    /* Bytes copied so far from and to host memory that the library neither
     * allocated nor has registered. CUDA blocks the thread for those. */
    size_t (*n_loose)(void);
    /* Overlapping launches of graphs do not wait for one another from now
     * on. */
    void (*hurry)(bool on);
};

#endif
