/* Functions by which tests control the fake CUDA library (fake_cuda.c), which
 * exports them as `const struct fake_cuda fake_cuda`. */
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* The devices of the fake library, by index. The numbers are compute
 * capabilities. */
enum {
    FAKE_NEW,   /* 9.0: supports everything; a peer of FAKE_PLAIN */
    FAKE_OLD,   /* 5.2: too old for the kernels */
    FAKE_PLAIN, /* 6.1: its streams cannot wait for words in memory, unless
                   they learn() it */
    FAKE_FAR,   /* 8.0: cannot access host memory */
    FAKE_COUNT
};

struct fake_cuda {
    /* Makes the nth call of a function from now on return `code`; 1 is the next
     * call. Functions that free something still do so. With NULL no call
     * fails. */
    void (*break_at)(const char *function, int nth, unsigned code);
    /* Makes creating a context on the device return `code` from now on; with 0
     * it succeeds again. */
    void (*refuse)(int device, unsigned code);
    /* Returns true if a call has failed since break_at(). */
    bool (*failed)(void);
    /* Returns the number of contexts that are retained or current, streams,
     * events, modules and memory blocks. */
    int (*n_live)(void);
    /* Returns the first violation of CUDA's rules since the last call, or NULL.
     * The text lives as long as the library. */
    const char *(*wrong)(void);
    /* Returns how often a function has been called; with NULL, how often all
     * together. */
    int (*n_call)(const char *function);
    /* Sets the free memory in bytes that each device reports; 0 for the
     * default, somewhat over 7 GiB. */
    void (*set_free)(size_t bytes);
    /* If `on`, drops what a device copies into a peer's memory from now on. */
    void (*swallow)(bool on);
    /* Returns the bytes copied so far from and to host memory that was neither
     * allocated nor registered with the library. CUDA blocks the calling thread
     * during such copies. */
    size_t (*n_loose)(void);
    /* If `on`, launches of graphs that may overlap do not wait for one another
     * from now on, as on fast hardware. */
    void (*hurry)(bool on);
    /* If `on`, streams of FAKE_PLAIN write words and wait for them, too. */
    void (*learn)(bool on);
    /* Drops the nth word that a stream writes from now on; 1 is the next one.
     * With 0 none is dropped any more. */
    void (*lose)(int nth);
    /* n_longest() returns the most commands that any stream held at once since
     * watch_longest(). */
    void (*watch_longest)(void);
    int (*n_longest)(void);
};

#endif
