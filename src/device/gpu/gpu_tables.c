/* Implementation of gpu_tables.h. Tables are first sorted by contents, so that
 * equal tables are adjacent, and get offsets in this order. Then tables are
 * sorted by key for look-ups. */
#include "device/gpu/gpu_tables.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

void gpu_tables_free(struct gpu_tables *t)
{
    free(t->table);
    *t = (struct gpu_tables){0};
}

void gpu_tables_add(struct gpu_tables *t, const void *key, const void *data,
                    size_t bytes)
{
    if (bytes == 0)
        return;
    if (t->n == t->n_max) {
        int n = t->n_max * 2 + 64;
        void *p = realloc(t->table, (size_t)n * sizeof *t->table);

        if (!p) {
            t->no_memory = true;
            return;
        }
        t->table = p;
        t->n_max = n;
    }
    t->table[t->n++] =
        (struct gpu_table){.key = key, .data = data, .bytes = bytes};
}

static int by_data(const void *a, const void *b)
{
    const struct gpu_table *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return memcmp(x->data, y->data, x->bytes);
}

static int by_key(const void *a, const void *b)
{
    const struct gpu_table *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->key, q = (uintptr_t)y->key;

    if (p != q)
        return p < q ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static void sort(struct gpu_tables *t, int (*by)(const void *a, const void *b))
{
    if (t->n > 0)
        qsort(t->table, (size_t)t->n, sizeof *t->table, by);
}

void gpu_tables_lay(struct gpu_tables *t)
{
    sort(t, by_data);
    t->bytes = 0;
    for (int i = 0; i < t->n; i++) {
        struct gpu_table *x = &t->table[i];

        if (i > 0 && by_data(x, x - 1) == 0) {
            x->at = x[-1].at;
            continue;
        }
        x->at = t->bytes;
        t->bytes += (x->bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    sort(t, by_key);
}

void gpu_tables_write(const struct gpu_tables *t, void *out)
{
    for (int i = 0; i < t->n; i++)
        memcpy((char *)out + t->table[i].at, t->table[i].data,
               t->table[i].bytes);
}

size_t gpu_tables_at(const struct gpu_tables *t, const void *key, size_t bytes)
{
    const struct gpu_table want = {.key = key, .bytes = bytes};
    const struct gpu_table *x =
        t->n > 0
            ? bsearch(&want, t->table, (size_t)t->n, sizeof *t->table, by_key)
            : NULL;

    return x ? x->at : 0;
}
