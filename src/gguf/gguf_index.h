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
    const void *items; /* borrowed: the array of items */
    size_t stride;     /* size of an item in bytes */
    uint32_t *slot; /* [n_slot] the hash table, owned by the arena: index of an
                       item plus 1, or 0 if the entry is free */
    uint64_t mask;  /* n_slot - 1, where n_slot, the size of the hash table, is
                       a power of two and at least 2 n_max */
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
