/* Joins symbols (merge.h): a linked list of symbols, and a binary heap of the
 * adjacent pairs that can join.
 *
 * A pair is stored with its left symbol, which also has the pair's position in
 * the heap. So when a symbol changes, the entries of its two pairs are replaced
 * and no outdated entries stay behind. The heap never has more than n - 1
 * entries for n symbols, even for megabytes of one character. */
#include "tokenizer/merge.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

pl_status merger_reserve(struct merger *m, size_t n, pl_err *err)
{
    m->n_sym = m->n_heap = 0;
    if (n > INT32_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%zu characters without a place to split are too many; "
                       "encode the text in parts",
                       n);
    if ((int64_t)n <= m->cap)
        return PL_OK;
    merger_fini(m);
    n = n < 64 ? 64 : n;
    m->sym = malloc(n * sizeof *m->sym);
    m->heap = malloc(n * sizeof *m->heap);
    if (!m->sym || !m->heap) {
        merger_fini(m);
        return err_no_memory(err, "the symbols of a text");
    }
    m->cap = (int32_t)n;
    return PL_OK;
}

void merger_fini(struct merger *m)
{
    free(m->sym);
    free(m->heap);
    memset(m, 0, sizeof *m);
}

static bool before(const struct merger *m, int32_t a, int32_t b)
{
    const struct merge_sym *x = &m->sym[a], *y = &m->sym[b];

    return x->key < y->key || (x->key == y->key && a < b);
}

static void place(struct merger *m, int32_t pos, int32_t i)
{
    m->heap[pos] = i;
    m->sym[i].pos = pos;
}

static void sift_up(struct merger *m, int32_t pos)
{
    int32_t i = m->heap[pos];

    while (pos > 0 && before(m, i, m->heap[(pos - 1) / 2])) {
        place(m, pos, m->heap[(pos - 1) / 2]);
        pos = (pos - 1) / 2;
    }
    place(m, pos, i);
}

static void sift_down(struct merger *m, int32_t pos)
{
    int32_t i = m->heap[pos];

    for (;;) {
        int64_t child = 2 * (int64_t)pos + 1;

        if (child >= m->n_heap)
            break;
        if (child + 1 < m->n_heap &&
            before(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (!before(m, m->heap[child], i))
            break;
        place(m, pos, m->heap[child]);
        pos = (int32_t)child;
    }
    place(m, pos, i);
}

static void drop(struct merger *m, int32_t i)
{
    int32_t pos = m->sym[i].pos, last;

    if (pos < 0)
        return;
    m->sym[i].pos = -1;
    last = m->heap[--m->n_heap];
    if (last == i)
        return;
    place(m, pos, last);
    sift_up(m, pos);
    sift_down(m, m->sym[last].pos);
}

/* Computes again whether symbol i joins with the next one, after one of them
 * has changed, and adds, moves or removes the pair's entry in the heap. */
static void renew(struct merger *m, int32_t i, merge_pair_fn *pair,
                  const void *user)
{
    struct merge_sym *s = &m->sym[i];

    drop(m, i);
    if (s->next >= 0 && pair(user, s, &m->sym[s->next], &s->key, &s->joined)) {
        place(m, m->n_heap++, i);
        sift_up(m, s->pos);
    }
}

void merger_run(struct merger *m, merge_pair_fn *pair, const void *user)
{
    m->n_heap = 0;
    for (int32_t i = 0; i < m->n_sym; i++) {
        struct merge_sym *s = &m->sym[i];

        s->prev = i - 1;
        s->next = i + 1 < m->n_sym ? i + 1 : -1;
        s->pos = -1;
    }
    for (int32_t i = 0; i < m->n_sym; i++)
        renew(m, i, pair, user);

    while (m->n_heap > 0) {
        int32_t left = m->heap[0];
        struct merge_sym *s = &m->sym[left];
        const struct merge_sym *r = &m->sym[s->next];

        drop(m, s->next);
        s->id = s->joined;
        s->len += r->len;
        s->next = r->next;
        if (s->next >= 0)
            m->sym[s->next].prev = left;
        renew(m, left, pair, user);
        if (s->prev >= 0)
            renew(m, s->prev, pair, user);
    }
}
