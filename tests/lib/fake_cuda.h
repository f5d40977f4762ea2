/* What a test can ask of the CUDA library that is made for tests (fake_cuda.c):
 * the library has a `const struct fake_cuda fake_cuda`. */
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* Its devices, by index. */
enum {
    FAKE_NEW,   /* 9.0, has all; a peer of FAKE_PLAIN */
    FAKE_OLD,   /* 5.2, too old for the kernels */
    FAKE_PLAIN, /* 6.1; its streams know no words */
    FAKE_FAR,   /* 8.0; reaches no memory of the host */
    FAKE_COUNT
};

struct fake_cuda {
    /* The nth call of the function from now on, 1 the next, returns the code;
     * functions that give something back do so nonetheless. NULL: none. */
    void (*break_at)(const char *function, int nth, unsigned code);
    /* Makes no context on the device any more but returns the code; 0: it does
     * again. */
    void (*refuse)(int device, unsigned code);
    bool (*failed)(void); /* has one, since break_at()? */
    /* Contexts retained or current, streams, events, modules, memory. */
    int (*n_live)(void);
    /* What was done that CUDA does not allow, since last asked; NULL: nothing.
     * Lives as long as the library. */
    const char *(*wrong)(void);
    /* How often a function has been called; NULL: all together. */
    int (*n_call)(const char *function);
    /* What each device says is free of its memory; 0: 7 GiB and some. */
    void (*set_free)(size_t bytes);
    /* From now on what a device copies into memory of a peer's goes nowhere. */
    void (*swallow)(bool on);
    /* Bytes copied so far to and from memory of the host that it neither gave
     * nor was told of: CUDA keeps the thread for them. */
    size_t (*n_loose)(void);
    /* From now on launches of graphs that overlap do not wait for one another.
     */
    void (*hurry)(bool on);
};

#endif
