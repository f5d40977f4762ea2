/* A growing region of memory with one lifetime: any number of allocations,
 * freed at once.
 *
 * Blocks come from malloc and are chained. Each allocation is zeroed and
 * aligned to 16 bytes. Under ASan the gaps between allocations are poisoned.
 * Not thread-safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head; /* owned, newest first */
    size_t used_bytes;        /* allocated so far, for reports and tests */
};

/* A zero-initialised struct arena is valid and empty, as after arena_init. */
void arena_init(struct arena *a);
void arena_fini(struct arena *a);

/* Return NULL if memory is out or n * size overflows. Zero bytes give a valid
 * pointer. */
void *arena_alloc(struct arena *a, size_t n, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void *arena_memdup(struct arena *a, const void *p, size_t n, size_t size);

#endif
