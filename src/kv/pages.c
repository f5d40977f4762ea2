/* A free stack and reference counts; see pages.h. */
#include "kv/pages.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

pl_status kv_init(struct kv_pages *kv, int n_seq, int n_page, pl_err *err)
{
    *kv = (struct kv_pages){.n_seq = n_seq, .n_page = n_page, .stride = n_page};
    kv->table =
        calloc(2 * (size_t)n_seq * (size_t)n_page + 1, sizeof *kv->table);
    kv->length = calloc(2 * (size_t)n_seq + 1, sizeof *kv->length);
    kv->refs = calloc((size_t)n_page + 1, sizeof *kv->refs);
    kv->free = calloc((size_t)n_page + 1, sizeof *kv->free);
    if (!kv->table || !kv->length || !kv->refs || !kv->free) {
        kv_fini(kv);
        return err_no_memory(err, "the cache's page tables");
    }
    for (int i = 0; i < n_page; i++)
        kv->free[i] = n_page - 1 - i;
    kv->n_free = n_page;
    return PL_OK;
}

void kv_fini(struct kv_pages *kv)
{
    free(kv->table);
    free(kv->length);
    free(kv->refs);
    free(kv->free);
    memset(kv, 0, sizeof *kv);
}

static int32_t *row(const struct kv_pages *kv, int seq)
{
    return kv->table + (int64_t)seq * kv->stride;
}

/* Is the page that the next token goes into shared? */
static bool shares_last(const struct kv_pages *kv, int seq)
{
    int64_t n = kv->length[seq];

    return n % PAGE_TOKENS && kv->refs[row(kv, seq)[n / PAGE_TOKENS]] > 1;
}

int kv_need(const struct kv_pages *kv, int seq, int64_t n)
{
    if (n == 0)
        return 0;
    return kv_pages_of(kv->length[seq] + n) - kv_pages_of(kv->length[seq]) +
           shares_last(kv, seq);
}

static int32_t take(struct kv_pages *kv)
{
    int32_t p = kv->free[--kv->n_free];

    kv->refs[p] = 1;
    return p;
}

static void drop(struct kv_pages *kv, int32_t page)
{
    if (--kv->refs[page] == 0)
        kv->free[kv->n_free++] = page;
}

pl_status kv_reserve(struct kv_pages *kv, int seq, int64_t n, kv_copy_fn *copy,
                     void *user, pl_err *err)
{
    int have = kv_pages_of(kv->length[seq]);
    int want = kv_pages_of(kv->length[seq] + n);
    int need = kv_need(kv, seq, n);

    if (need > kv->n_free || want > kv->stride)
        return err_set(err, PL_FULL,
                       "sequence %d has %" PRId64 " tokens and %" PRId64
                       " more need %d pages of %d; %d of %d are free: give a "
                       "larger context",
                       seq, kv->length[seq], n, need, PAGE_TOKENS, kv->n_free,
                       kv->n_page);
    if (n > 0 && shares_last(kv, seq)) {
        int32_t old = row(kv, seq)[have - 1], page = take(kv);
        pl_status s = copy(user, old, page, err);

        if (s != PL_OK) {
            drop(kv, page);
            return s;
        }
        drop(kv, old);
        row(kv, seq)[have - 1] = page;
    }
    for (int i = have; i < want; i++)
        row(kv, seq)[i] = take(kv);
    return PL_OK;
}

void kv_unreserve(struct kv_pages *kv, int seq, int64_t n)
{
    int end = kv_pages_of(kv->length[seq] + n);

    for (int i = kv_pages_of(kv->length[seq]); i < end; i++)
        drop(kv, row(kv, seq)[i]);
}

void kv_advance(struct kv_pages *kv, int seq, int64_t n)
{
    kv->length[seq] += n;
}

void kv_trim(struct kv_pages *kv, int seq, int64_t n)
{
    int have = kv_pages_of(kv->length[seq]);

    for (int i = kv_pages_of(n); i < have; i++)
        drop(kv, row(kv, seq)[i]);
    kv->length[seq] = n;
}

pl_status kv_copy(struct kv_pages *kv, int dst, int src, kv_copy_fn *copy,
                  void *user, pl_err *err)
{
    int64_t n = kv->length[src];
    int full = (int)(n / PAGE_TOKENS);

    if (dst == src)
        return PL_OK;
    kv_trim(kv, dst, 0);
    if (n % PAGE_TOKENS && kv->n_free == 0)
        return err_set(err, PL_FULL,
                       "no page is free to copy sequence %d (%" PRId64
                       " tokens): give a larger context",
                       src, n);
    if (n % PAGE_TOKENS) {
        int32_t page = take(kv);
        pl_status s = copy(user, row(kv, src)[full], page, err);

        if (s != PL_OK) {
            drop(kv, page);
            return s;
        }
        row(kv, dst)[full] = page;
    }
    for (int i = 0; i < full; i++) {
        row(kv, dst)[i] = row(kv, src)[i];
        kv->refs[row(kv, dst)[i]]++;
    }
    kv->length[dst] = n;
    return PL_OK;
}

void kv_share(struct kv_pages *kv, int dst, int src, int64_t n)
{
    for (int i = 0; i < kv_pages_of(n); i++) {
        row(kv, dst)[i] = row(kv, src)[i];
        kv->refs[row(kv, dst)[i]]++;
    }
    kv->length[dst] = n;
}

void kv_swap(struct kv_pages *kv, int a, int b)
{
    int na = kv_pages_of(kv->length[a]), nb = kv_pages_of(kv->length[b]);
    int64_t length = kv->length[a];

    for (int i = 0; i < na || i < nb; i++) {
        int32_t page = row(kv, a)[i];

        row(kv, a)[i] = row(kv, b)[i];
        row(kv, b)[i] = page;
    }
    kv->length[a] = kv->length[b];
    kv->length[b] = length;
}

int64_t kv_common(const struct kv_pages *kv, int a, int b)
{
    int64_t least =
        kv->length[a] < kv->length[b] ? kv->length[a] : kv->length[b];
    int64_t n = 0;

    while (n < least &&
           row(kv, a)[n / PAGE_TOKENS] == row(kv, b)[n / PAGE_TOKENS])
        n += PAGE_TOKENS;
    if (n <= least)
        return n;
    return least == kv->length[a] ? least : n - PAGE_TOKENS;
}

int kv_own(const struct kv_pages *kv, int seq)
{
    int n = 0;

    for (int i = 0; i < kv_pages_of(kv->length[seq]); i++)
        n += kv->refs[row(kv, seq)[i]] == 1;
    return n;
}
