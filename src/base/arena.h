/* An arena: any number of allocations with the same lifetime, which are freed
 * together.
 *
 * Blocks come from malloc and are chained. Each allocation is zeroed and
 * aligned to 16 bytes. Under ASan the gaps between allocations are poisoned.
 * Not thread-safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "pl.h"

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head; /* owned list of the arena's blocks, the newest
                                 first */
    size_t used_bytes;        /* total bytes of all allocations so far, for
                                 reports and tests */
    size_t failed_bytes; /* size of the first allocation that failed, SIZE_MAX
                            if it overflowed; 0 if none failed */
};

/* A zero-initialised struct arena is valid and empty, as after arena_init. */
void arena_init(struct arena *a);
void arena_fini(struct arena *a);

/* Allocate memory from the arena. arena_alloc returns n * size zero bytes; the
 * others return a copy of their argument, or the formatted text. Return NULL if
 * out of memory or if n * size overflows. An allocation of zero bytes returns a
 * valid pointer. */
void *arena_alloc(struct arena *a, size_t n, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void *arena_memdup(struct arena *a, const void *p, size_t n, size_t size);

/* For arena_extended: returns an array with a capacity of 2 * n elements, or of
 * ARENA_FIRST if n is 0, that begins with the elements of from[n]. */
enum { ARENA_FIRST = 4 };
void *arena_grown(struct arena *a, void *from, size_t n, size_t size);
/* Returns an array with space for one element more than from[n], the rest of it
 * undefined: it is from[] if that still has space, else a copy of double its
 * size. from[] must be NULL if n is 0, else a result of this function that
 * holds n elements. Returns NULL if out of memory. */
static inline void *arena_extended(struct arena *a, void *from, size_t n,
                                   size_t size)
{
    /* The capacity is always ARENA_FIRST or a greater power of two. */
    if (n > 0 && (n < ARENA_FIRST || (n & (n - 1)) != 0))
        return from;
    return arena_grown(a, from, n, size);
}

/* Returns PL_OK if every allocation of the arena succeeded, else PL_NO_MEMORY.
 * The message names `what` and the size of the first allocation that failed. So
 * a pass may allocate several times and check once, before it uses the memory
 * or at its end. */
pl_status arena_check(const struct arena *a, const char *what, pl_err *err);

#endif
