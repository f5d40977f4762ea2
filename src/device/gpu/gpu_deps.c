/* Waits from what is touched. Each thing has a row of bits, those that it waits
 * for by whatever way; the nearest come first, so most of the others are in
 * their rows already. */
#include "device/gpu/gpu_deps.h"

#include <stdint.h>
#include <stdlib.h>

static bool meet(const struct gpu_access *a, const struct gpu_access *b)
{
    return a->memory == b->memory && a->from < b->to && b->from < a->to &&
           (a->writes || b->writes);
}

bool gpu_accesses_conflict(const struct gpu_access *touch, const int *first,
                           int i, int k)
{
    for (int a = first[i]; a < first[i + 1]; a++)
        for (int b = first[k]; b < first[k + 1]; b++)
            if (meet(&touch[a], &touch[b]))
                return true;
    return false;
}

static bool put(struct gpu_deps *o, int at, int i)
{
    if (at == o->n_max) {
        int n = o->n_max * 2 + 64;
        int *more = realloc(o->after, (size_t)n * sizeof *more);

        if (!more)
            return false;
        o->after = more;
        o->n_max = n;
    }
    o->after[at] = i;
    return true;
}

static void turn_round(int *a, int n)
{
    for (int i = 0; i < n / 2; i++) {
        int t = a[i];

        a[i] = a[n - 1 - i];
        a[n - 1 - i] = t;
    }
}

/* The waits of thing i. row: [n][words] bits. */
static bool add(struct gpu_deps *o, const struct gpu_access *touch,
                const int *first, int i, uint64_t *row, size_t words)
{
    uint64_t *own = row + (size_t)i * words;
    int at = o->first[i];

    for (int k = i - 1; k >= 0; k--) {
        const uint64_t *its = row + (size_t)k * words;

        if (own[k / 64] >> (k % 64) & 1 ||
            !gpu_accesses_conflict(touch, first, i, k))
            continue;
        if (!put(o, at++, k))
            return false;
        own[k / 64] |= (uint64_t)1 << (k % 64);
        for (int w = 0; w <= k / 64; w++)
            own[w] |= its[w];
    }
    turn_round(o->after + o->first[i], at - o->first[i]);
    o->first[i + 1] = at;
    return true;
}

bool gpu_order_make(struct gpu_deps *o, const struct gpu_access *touch,
                    const int *first, int n)
{
    size_t words = (size_t)n / 64 + 1;
    uint64_t *row = calloc((size_t)n * words + 1, sizeof *row);
    bool ok;

    *o = (struct gpu_deps){.n = n};
    o->first = calloc((size_t)n + 1, sizeof *o->first);
    ok = row && o->first && put(o, 0, 0); /* after[] is there */
    for (int i = 0; i < n && ok; i++)
        ok = add(o, touch, first, i, row, words);
    free(row);
    if (!ok)
        gpu_order_free(o);
    return ok;
}

void gpu_order_free(struct gpu_deps *o)
{
    free(o->first);
    free(o->after);
    *o = (struct gpu_deps){0};
}
