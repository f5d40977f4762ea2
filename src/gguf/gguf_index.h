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
    uint32_t *slot; /* owned by the arena; index of the item + 1, 0 if free */
    uint64_t mask;  /* n_slot - 1; n_slot is a power of two, at least 2 n_max */
    uint64_t seed;
};

/* Creates an empty index over the array `items` of up to n_max < 2^31 items.
 * Returns false if out of memory. */
bool gguf_index_init(struct gguf_index *x, struct arena *a, const void *items,
                     size_t stride, uint64_t n_max);

/* Adds items[i] and returns -1. If an earlier item has the same name, adds
 * nothing and returns the index of that item. */
int64_t gguf_index_add(struct gguf_index *x, uint64_t i);

/* Returns the index of the item with this name; -1 if there is none or `x` is
 * all zero. */
int64_t gguf_index_find(const struct gguf_index *x, const char *name);

#endif
