/* A hash table with open addressing and linear probing, at most half full. The
 * hash takes eight bytes at a time: it multiplies them to 128 bits and combines
 * the two halves by XOR (the idea of wyhash and its relatives). It must be
 * unpredictable, but not cryptographically strong. */
#include "gguf/gguf_index.h"

#include <string.h>

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Returns the hash of a name. The constants are odd, with about as many ones as
 * zeros. */
static uint64_t hash(const char *s, uint64_t seed)
{
    size_t n = strlen(s);
    uint64_t h = seed ^ n, word;

    for (; n >= sizeof word; s += sizeof word, n -= sizeof word) {
        memcpy(&word, s, sizeof word);
        h = fold(h ^ word, 0x9e3779b97f4a7c15u);
    }
    word = 0;
    memcpy(&word, s, n);
    h = fold(h ^ word, 0xc2b2ae3d27d4eb4fu);
    return h ^ h >> 32;
}

static const char *name_of(const struct gguf_index *x, uint64_t i)
{
    const char *name;

    memcpy(&name, (const char *)x->items + i * x->stride, sizeof name);
    return name;
}

/* Returns the index of the hash table's entry for the item `name`, or of the
 * free entry at which the item would be added. */
static uint64_t probe(const struct gguf_index *x, const char *name)
{
    uint64_t at = hash(name, x->seed) & x->mask;

    while (x->slot[at] && strcmp(name_of(x, x->slot[at] - 1), name) != 0)
        at = (at + 1) & x->mask;
    return at;
}

bool gguf_index_init(struct gguf_index *x, struct arena *a, const void *items,
                     size_t stride, uint64_t n_max)
{
    uint64_t n_slot = 2;

    while (n_slot < 2 * n_max)
        n_slot *= 2;
    x->items = items;
    x->stride = stride;
    x->slot = arena_alloc(a, n_slot, sizeof x->slot[0]);
    x->mask = n_slot - 1;
    x->seed = fold((uintptr_t)x->slot | 1, 0x2545f4914f6cdd1du);
    return x->slot != NULL;
}

int64_t gguf_index_add(struct gguf_index *x, uint64_t i)
{
    uint64_t at = probe(x, name_of(x, i));

    if (x->slot[at])
        return x->slot[at] - 1;
    x->slot[at] = (uint32_t)(i + 1);
    return -1;
}

int64_t gguf_index_find(const struct gguf_index *x, const char *name)
{
    return x->slot ? (int64_t)x->slot[probe(x, name)] - 1 : -1;
}
