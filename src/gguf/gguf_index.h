/* A hash index over an array of named items: look-up by name in constant time,
 * and detection of duplicates when they are added.
 *
 * An item is any struct whose first member is a `const char *`, its name. The
 * hash is seeded with an address, so that a hostile file cannot choose names
 * that collide. Results do not depend on the seed. */
#ifndef GGUF_GGUF_INDEX_H
#define GGUF_GGUF_INDEX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf_index {
    const void *items; /* view */
    size_t stride;     /* bytes from one item to the next */
    uint32_t *slot;    /* owned by the arena; item + 1, or 0 for free */
    uint64_t mask;     /* slots - 1, a power of two, at least twice the items */
    uint64_t seed;
};

/* Indexes up to n_max items, n_max < 2^31. Returns false if out of memory. */
bool gguf_index_init(struct gguf_index *x, struct arena *a, const void *items,
                     size_t stride, uint64_t n_max);

/* Adds items[i]. Returns -1, or the earlier item of the same name, in which
 * case nothing is added. */
int64_t gguf_index_add(struct gguf_index *x, uint64_t i);

/* Returns -1 if absent; also for an index that is all zero. */
int64_t gguf_index_find(const struct gguf_index *x, const char *name);

#endif
