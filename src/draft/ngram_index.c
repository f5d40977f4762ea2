/* A hash table of the n-grams of a text; see ngram_index.h. */
#include "draft/ngram_index.h"

#include <stdlib.h>
#include <string.h>

/* Limit of the entries that a lookup visits, because other n-grams may have the
 * same hash. */
enum { MOST_VISITS = 256 };

void ngram_index_fini(struct ngram_index *x)
{
    free(x->head);
    free(x->before);
    *x = (struct ngram_index){.size = x->size};
}

/* Returns the index in `head` of the n-gram that ends at text[end - 1]. */
static int64_t hash(const struct ngram_index *x, const int32_t *text,
                    int64_t end)
{
    uint64_t h = 0;

    /* a bijection of h for each token; the factor is that of base/hash64.c */
    for (int64_t i = end - x->size; i < end; i++) {
        h = (h ^ (uint32_t)text[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (int64_t)(h & (uint64_t)(x->n_head - 1));
}

/* Makes space for ends below n. All n-grams must then be added again. */
static bool grow(struct ngram_index *x, int64_t n)
{
    int64_t n_head = x->n_head > 0 ? x->n_head : 1024;
    void *head, *before;

    while (n_head < n)
        n_head *= 2;
    head = realloc(x->head, (size_t)n_head * sizeof *x->head);
    if (head)
        x->head = head;
    before =
        head ? realloc(x->before, (size_t)n_head * sizeof *x->before) : NULL;
    if (before)
        x->before = before;
    if (!before)
        return false;
    x->n_head = n_head;
    x->n = 0;
    return true;
}

bool ngram_index_add(struct ngram_index *x, const int32_t *text, int64_t n)
{
    if (n < x->size) /* also a text that is NULL */
        return true;
    if (n > INT32_MAX || (n > x->n_head && !grow(x, n)))
        return false;
    if (x->n > n)
        x->n = 0;
    if (x->n == 0)
        memset(x->head, -1, (size_t)x->n_head * sizeof *x->head);
    for (int64_t end = x->n > x->size ? x->n : x->size; end < n; end++) {
        int32_t *head = &x->head[hash(x, text, end)];

        x->before[end] = *head;
        *head = (int32_t)end;
    }
    x->n = n;
    return true;
}

int ngram_index_find(const struct ngram_index *x, const int32_t *text,
                     int64_t n, int32_t *end, int most)
{
    const size_t bytes = (size_t)x->size * sizeof *text;
    int found = 0;
    int32_t at;

    if (n < x->size || x->n < n)
        return 0;
    at = x->head[hash(x, text, n)];
    for (int k = 0; at >= 0 && k < MOST_VISITS && found < most; k++) {
        if (at < n &&
            memcmp(text + at - x->size, text + n - x->size, bytes) == 0)
            end[found++] = at;
        at = x->before[at];
    }
    return found;
}
