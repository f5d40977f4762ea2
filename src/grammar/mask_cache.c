/* A hash table of token masks with a list in the order of their last use; see
 * mask_cache.h. */
#include "grammar/mask_cache.h"

#include <stdlib.h>
#include <string.h>

bool mask_cache_init(struct mask_cache *c, uint32_t n_word, size_t most_bytes)
{
    *c = (struct mask_cache){
        .n_bucket = 4096, .n_word = n_word, .most_bytes = most_bytes};
    c->bucket = calloc(c->n_bucket, sizeof(struct mask_entry *));
    return c->bucket != NULL;
}

void mask_cache_fini(struct mask_cache *c)
{
    for (struct mask_entry *e = c->newest, *older; e; e = older) {
        older = e->older;
        free(e);
    }
    free(c->bucket);
    *c = (struct mask_cache){0};
}

static struct mask_entry **bucket_of(const struct mask_cache *c, int kind,
                                     uint32_t set)
{
    return &c->bucket[(MASK_KINDS * (size_t)set + (size_t)kind) % c->n_bucket];
}

/* ---- the list of masks in the order of their last use -------------------- */

static void unlink_use(struct mask_cache *c, struct mask_entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void link_newest(struct mask_cache *c, struct mask_entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void drop(struct mask_cache *c, struct mask_entry *e)
{
    struct mask_entry **p = bucket_of(c, e->kind, e->set);

    while (*p != e)
        p = &(*p)->chain;
    *p = e->chain;
    unlink_use(c, e);
    c->bytes -= e->bytes;
    c->n_entry--;
    free(e);
}

/* ---- finding, adding and renumbering masks ------------------------------- */

const struct mask_entry *mask_cache_find(struct mask_cache *c, int kind,
                                         uint32_t set)
{
    struct mask_entry *e = *bucket_of(c, kind, set);

    while (e && (e->kind != kind || e->set != set))
        e = e->chain;
    if (e && e != c->newest) {
        unlink_use(c, e);
        link_newest(c, e);
    }
    return e;
}

/* Returns the number of ones in a mask of n_word words, exact up to n_word. The
 * count may stop early beyond that, because a mask with more ones is stored as
 * words, not as ids. */
static uint32_t count_bits(const uint32_t *bits, uint32_t n_word)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_word && n < n_word; i++)
        for (uint32_t w = bits[i]; w; w &= w - 1)
            n++;
    return n;
}

static void list_bits(uint32_t *id, const uint32_t *bits, uint32_t n_word)
{
    for (uint32_t i = 0; i < n_word; i++)
        for (uint32_t w = bits[i]; w; w &= w - 1)
            *id++ = 32 * i + (uint32_t)__builtin_ctz(w);
}

const struct mask_entry *mask_cache_put(struct mask_cache *c, int kind,
                                        uint32_t set, const uint32_t *bits,
                                        const struct pop *pop, uint32_t n_pop,
                                        uint16_t depth)
{
    uint32_t n_bit = count_bits(bits, c->n_word);
    bool dense = n_bit >= c->n_word;
    uint32_t n = dense ? c->n_word : n_bit;
    size_t bytes =
        sizeof(struct mask_entry) + n * sizeof *bits + n_pop * sizeof *pop;
    struct mask_entry *e = malloc(bytes);
    struct mask_entry **bucket = bucket_of(c, kind, set);

    if (!e)
        return NULL;
    *e = (struct mask_entry){.set = set,
                             .kind = (uint8_t)kind,
                             .dense = dense,
                             .depth = depth,
                             .n = n,
                             .n_pop = n_pop,
                             .bytes = bytes,
                             .chain = *bucket};
    if (dense)
        memcpy(e->data, bits, n * sizeof *bits);
    else
        list_bits(e->data, bits, c->n_word);
    if (n_pop)
        memcpy(e->data + n, pop, n_pop * sizeof *pop);
    *bucket = e;
    link_newest(c, e);
    c->bytes += bytes;
    c->n_entry++;
    while (c->bytes > c->most_bytes && c->oldest != e)
        drop(c, c->oldest);
    return e;
}

void mask_entry_add(const struct mask_entry *e, uint32_t *bits)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->dense)
            bits[i] |= e->data[i];
        else
            bits[e->data[i] / 32] |= 1u << e->data[i] % 32;
    }
}

void mask_cache_rename(struct mask_cache *c, const uint32_t *renamed)
{
    struct mask_entry *older;

    for (struct mask_entry *e = c->newest; e; e = older) {
        older = e->older;
        if (e->kind == MASK_WHOLE || renamed[e->set] == UINT32_MAX)
            drop(c, e);
    }
    memset(c->bucket, 0, c->n_bucket * sizeof(struct mask_entry *));
    for (struct mask_entry *e = c->newest; e; e = e->older) {
        struct mask_entry **bucket;

        e->set = renamed[e->set];
        bucket = bucket_of(c, e->kind, e->set);
        e->chain = *bucket;
        *bucket = e;
    }
}
