/* Page tables; see pages.h. Each pool has a stack of free pages and reference
 * counts. states.c implements the pool of states, prefix.c the prefix tree. */
#include "kv/pages.h"

#include "base/err.h"
#include "kv/prefix.h"
#include "kv/states.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static pl_status pool_init(struct kv_pool *p, int n_seq, int stride, int n_page,
                           const struct graph_pool *rule, pl_err *err)
{
    size_t n_row = 2 * (size_t)n_seq, n = n_row * (size_t)stride;

    *p = (struct kv_pool){
        .state = rule->state, .window = rule->window, .n_page = n_page};
    p->table = malloc((n + 1) * sizeof *p->table);
    p->first = calloc(n_row + 1, sizeof *p->first);
    p->refs = calloc((size_t)n_page + 1, sizeof *p->refs);
    p->free = calloc((size_t)n_page + 1, sizeof *p->free);
    if (!p->table || !p->first || !p->refs || !p->free)
        return err_no_memory(err, "the cache's page tables");
    for (size_t i = 0; i < n; i++)
        p->table[i] = -1;
    for (int i = 0; i < n_page; i++)
        p->free[i] = n_page - 1 - i;
    p->n_free = n_page;
    return PL_OK;
}

pl_status kv_init(struct kv *kv, int n_seq, int stride, const pl_graph *g,
                  const int *n_page, pl_err *err)
{
    pl_status s = PL_OK;

    *kv = (struct kv){.n_seq = n_seq, .stride = stride, .states = -1};
    kv->length = calloc(2 * (size_t)n_seq + 1, sizeof *kv->length);
    if (!kv->length)
        return err_no_memory(err, "the cache's page tables");
    while (kv->n_pool < g->n_pool && s == PL_OK) {
        int k = kv->n_pool++;

        s = pool_init(&kv->pool[k], n_seq, stride, n_page[k], &g->pool[k], err);
        if (g->pool[k].state)
            kv->states = k;
    }
    if (s == PL_OK)
        s = states_init(kv, err);
    if (s != PL_OK)
        kv_fini(kv);
    return s;
}

void kv_fini(struct kv *kv)
{
    prefix_fini(kv);
    for (int k = 0; k < kv->n_pool; k++) {
        free(kv->pool[k].table);
        free(kv->pool[k].first);
        free(kv->pool[k].refs);
        free(kv->pool[k].free);
    }
    free(kv->length);
    free(kv->checkpoint);
    memset(kv, 0, sizeof *kv);
}

int kv_pages_planned(int64_t window, int stride, int64_t n_seq, int64_t n_run)
{
    /* `kept` is the number of pages for the tokens that one sequence keeps, if
     * its first and last page are partly filled. In addition, each sequence
     * that gets new tokens may begin a page. */
    int64_t kept =
        (window - 1 + KV_MIN_TRIM + PAGE_TOKENS - 2) / PAGE_TOKENS + 1;
    int64_t begun = n_seq < n_run ? n_seq : n_run;
    int64_t n =
        n_seq * kept + (n_run + begun * (PAGE_TOKENS - 1)) / PAGE_TOKENS;

    return window == 0 || n > stride ? stride : (int)n;
}

static int32_t *row(const struct kv *kv, const struct kv_pool *p, int seq)
{
    return kv_row(kv, p, seq);
}

/* Returns the index in a table row of the first page that a sequence of
 * `length` tokens must hold when n more tokens are reserved. If `past`
 * (kv_pages_needed), only the token after the new ones counts. */
static int first_needed(const struct kv_pool *p, int64_t length, int64_t n,
                        bool past)
{
    return kv_first_visible(p->window, past ? length + n : length);
}

/* Returns the last page of a sequence if it is partly filled, so that the next
 * token is written to it. Returns -1 if the next token begins a new page. */
static int32_t last_page(const struct kv *kv, const struct kv_pool *p, int seq)
{
    int64_t n = kv->length[seq];

    return n % PAGE_TOKENS ? row(kv, p, seq)[n / PAGE_TOKENS] : -1;
}

int kv_pages_needed(const struct kv *kv, int pool, int seq, int64_t n,
                    bool past)
{
    const struct kv_pool *p = &kv->pool[pool];
    int have = kv_pages_of(kv->length[seq]);
    int from = first_needed(p, kv->length[seq], n, past);
    int32_t last;

    if (n == 0 || p->state)
        return 0;
    /* One more page is needed to copy the last page, if another sequence shares
     * it. If only a node of the prefix tree does, no page is counted: the
     * original page becomes evictable once it is copied. */
    last = from < have ? last_page(kv, p, seq) : -1;
    return kv_pages_of(kv->length[seq] + n) - (from > have ? from : have) +
           (last >= 0 && kv_seq_refs(p, last) > 1);
}

int32_t kv_alloc_page(struct kv *kv, int pool)
{
    struct kv_pool *p = &kv->pool[pool];
    int32_t page;

    if (p->n_free == 0)
        prefix_evict_lru(kv, pool);
    page = p->free[--p->n_free];
    p->refs[page] = 1;
    return page;
}

void kv_ref_page(struct kv_pool *p, int32_t page)
{
    if (p->refs[page]++ == 1 && kv_seq_refs(p, page) == 1)
        prefix_lru_remove(p, page);
}

void kv_unref_page(struct kv_pool *p, int32_t *page)
{
    if (*page >= 0 && --p->refs[*page] == 0)
        p->free[p->n_free++] = *page;
    else if (*page >= 0 && kv_seq_refs(p, *page) == 0)
        prefix_lru_add(p, *page);
    *page = -1;
}

/* Replaces the last page of a sequence, which is shared, by a copy that the
 * sequence may write to. If no page is free or evictable, the only other
 * reference is the prefix tree's; then removes that reference and copies
 * nothing. */
static pl_status copy_last_on_write(struct kv *kv, int pool, int seq,
                                    kv_copy_fn *copy, void *user, pl_err *err)
{
    struct kv_pool *p = &kv->pool[pool];
    int32_t *last = &row(kv, p, seq)[kv->length[seq] / PAGE_TOKENS];
    int32_t page;
    pl_status s;

    if (kv_free_pages(kv, pool) == 0) {
        prefix_detach_page(kv, pool, *last);
        return PL_OK;
    }
    page = kv_alloc_page(kv, pool);
    s = copy(user, pool, *last, page, err);
    kv_unref_page(p, s == PL_OK ? last : &page);
    if (s == PL_OK)
        *last = page;
    return s;
}

pl_status kv_reserve(struct kv *kv, int seq, int64_t n, bool past,
                     kv_copy_fn *copy, void *user, pl_err *err)
{
    int have = kv_pages_of(kv->length[seq]);
    int want = kv_pages_of(kv->length[seq] + n);
    pl_status s;

    for (int k = 0; k < kv->n_pool; k++) {
        const struct kv_pool *p = &kv->pool[k];
        int need = kv_pages_needed(kv, k, seq, n, past);

        if (need > kv_free_pages(kv, k) || want > kv->stride)
            return err_set(err, PL_FULL,
                           "sequence %d has %" PRId64 " tokens and %" PRId64
                           " more need %d pages of %d, but %d of %d are free; "
                           "use a larger context",
                           seq, kv->length[seq], n, need, PAGE_TOKENS,
                           kv_free_pages(kv, k), p->n_page);
    }
    if (n == 0)
        return PL_OK;
    s = states_reserve(kv, seq, err);
    /* Everything that can fail comes first, so that a failure leaves the
     * sequence unchanged. */
    for (int k = 0; k < kv->n_pool && s == PL_OK; k++) {
        const struct kv_pool *p = &kv->pool[k];
        int32_t last = p->state ? -1 : last_page(kv, p, seq);

        if (last >= 0 && p->refs[last] > 1 &&
            first_needed(p, kv->length[seq], n, past) < have)
            s = copy_last_on_write(kv, k, seq, copy, user, err);
    }
    if (s != PL_OK) {
        states_unreserve(kv, seq);
        return s;
    }
    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int from = first_needed(p, kv->length[seq], n, past);

        if (p->state)
            continue;
        for (int i = from > have ? from : have; i < want; i++)
            row(kv, p, seq)[i] = kv_alloc_page(kv, k);
    }
    return PL_OK;
}

/* Releases the pages with indices from .. end - 1 of a sequence's table row,
 * the last one first, so that the prefix tree evicts leaves before their
 * parents. */
static void drop_range(struct kv *kv, struct kv_pool *p, int seq, int from,
                       int end)
{
    for (int i = end; i-- > from && !p->state;)
        kv_unref_page(p, &row(kv, p, seq)[i]);
}

void kv_cancel_reserve(struct kv *kv, int seq, int64_t n)
{
    for (int k = 0; k < kv->n_pool; k++)
        drop_range(kv, &kv->pool[k], seq, kv_pages_of(kv->length[seq]),
                   kv_pages_of(kv->length[seq] + n));
    states_unreserve(kv, seq);
}

void kv_commit(struct kv *kv, int seq, int64_t n, bool past)
{
    int have = kv_pages_of(kv->length[seq]);

    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int from = first_needed(p, kv->length[seq], n, past);

        /* All pages stay if the new tokens were computed, or if the next token
         * attends to a page from before. */
        if (!past || from < have)
            continue;
        drop_range(kv, p, seq, p->first[seq], have);
        p->first[seq] = from;
    }
    kv->length[seq] += n;
}

void kv_trim_windows(struct kv *kv, int seq)
{
    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int keep = kv_first_kept(p->window, kv->length[seq]);
        int from = kv_pages_of(kv->length[seq]);

        if (p->window == 0)
            continue;
        if (keep < p->first[seq])
            keep = p->first[seq];
        /* Searches from the last page backwards for the first page to keep. It
         * ends at a missing page: a restored sequence lacks the pages to which
         * no later token attends. */
        while (from > keep && row(kv, p, seq)[from - 1] >= 0)
            from--;
        drop_range(kv, p, seq, p->first[seq], from);
        p->first[seq] = from;
    }
    states_commit(kv, seq);
}

int64_t kv_min_length(const struct kv *kv, int seq)
{
    int64_t n = 0;

    for (int k = 0; k < kv->n_pool; k++) {
        const struct kv_pool *p = &kv->pool[k];
        int64_t least = (int64_t)p->first[seq] * PAGE_TOKENS + p->window - 1;

        if (p->first[seq] > 0 && least > n)
            n = least;
    }
    return n;
}

int64_t kv_trimmable_length(const struct kv *kv, int seq, int64_t n)
{
    n = states_nearest(kv, seq, n);
    return n >= kv_min_length(kv, seq) ? n : 0;
}

void kv_trim(struct kv *kv, int seq, int64_t n)
{
    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int from = kv_pages_of(n);

        drop_range(kv, p, seq, from > p->first[seq] ? from : p->first[seq],
                   kv_pages_of(kv->length[seq]));
        if (n == 0)
            p->first[seq] = 0;
    }
    kv->length[seq] = n;
    states_trim(kv, seq, n);
    prefix_trim(kv, seq, n);
}

/* Makes dst, which has no pages in this pool, share the pages of src with
 * indices below `end`. */
static void share(struct kv *kv, struct kv_pool *p, int dst, int src, int end)
{
    if (p->state)
        return;
    p->first[dst] = p->first[src] < end ? p->first[src] : end;
    for (int i = p->first[dst]; i < end; i++) {
        int32_t page = row(kv, p, src)[i];

        row(kv, p, dst)[i] = page;
        if (page >= 0)
            kv_ref_page(p, page);
    }
}

pl_status kv_copy(struct kv *kv, int dst, int src, kv_copy_fn *copy, void *user,
                  pl_err *err)
{
    int64_t n = kv->length[src];
    int full = (int)(n / PAGE_TOKENS);
    pl_status s = PL_OK;
    int k;

    if (dst == src)
        return PL_OK;
    kv_trim(kv, dst, 0);
    for (k = 0; n % PAGE_TOKENS && k < kv->n_pool && s == PL_OK; k++) {
        struct kv_pool *p = &kv->pool[k];
        int32_t *page = &row(kv, p, dst)[full];

        if (p->state)
            continue;
        if (kv_free_pages(kv, k) == 0) {
            s = err_set(err, PL_FULL,
                        "no page is free to copy sequence %d (%" PRId64
                        " tokens); use a larger context",
                        src, n);
            break;
        }
        *page = kv_alloc_page(kv, k);
        s = copy(user, k, row(kv, p, src)[full], *page, err);
    }
    if (s != PL_OK) {
        for (k = 0; k < kv->n_pool; k++)
            drop_range(kv, &kv->pool[k], dst, full, full + 1);
        return s;
    }
    for (k = 0; k < kv->n_pool; k++)
        share(kv, &kv->pool[k], dst, src, full);
    kv->length[dst] = n;
    states_copy(kv, dst, src);
    prefix_copy(kv, dst, src);
    return PL_OK;
}

void kv_share(struct kv *kv, int dst, int src, int64_t n)
{
    for (int k = 0; k < kv->n_pool; k++)
        share(kv, &kv->pool[k], dst, src, kv_pages_of(n));
    kv->length[dst] = n;
}

void kv_swap(struct kv *kv, int a, int b)
{
    int na = kv_pages_of(kv->length[a]), nb = kv_pages_of(kv->length[b]);
    int64_t length = kv->length[a];

    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int32_t first = p->first[a];

        for (int i = 0; !p->state && (i < na || i < nb); i++) {
            int32_t page = row(kv, p, a)[i];

            row(kv, p, a)[i] = row(kv, p, b)[i];
            row(kv, p, b)[i] = page;
        }
        p->first[a] = p->first[b];
        p->first[b] = first;
    }
    kv->length[a] = kv->length[b];
    kv->length[b] = length;
    states_swap(kv, a, b);
    prefix_swap(kv, a, b);
}

/* Returns true if sequences a and b hold position n in the same page, in every
 * pool in which later tokens of `a` attend to that position. */
static bool common_at(const struct kv *kv, int a, int b, int64_t n)
{
    for (int k = 0; k < kv->n_pool; k++) {
        const struct kv_pool *p = &kv->pool[k];
        int64_t i = n / PAGE_TOKENS;

        if (p->state || i < kv_first_visible(p->window, kv->length[a]))
            continue;
        if (i < kv_first_visible(p->window, kv->length[b]) ||
            row(kv, p, a)[i] != row(kv, p, b)[i])
            return false;
    }
    return kv->n_pool > 0;
}

int64_t kv_shared_length(const struct kv *kv, int a, int b)
{
    int64_t least =
        kv->length[a] < kv->length[b] ? kv->length[a] : kv->length[b];
    int64_t n = 0;

    while (n < least && common_at(kv, a, b, n))
        n += PAGE_TOKENS;
    if (n <= least)
        return n;
    return least == kv->length[a] ? least : n - PAGE_TOKENS;
}

int kv_private_pages(const struct kv *kv, int pool, int seq)
{
    const struct kv_pool *p = &kv->pool[pool];
    int n = 0;

    for (int i = p->first[seq]; i < kv_pages_of(kv->length[seq]) && !p->state;
         i++) {
        int32_t page = row(kv, p, seq)[i];

        n += page >= 0 && kv_seq_refs(p, page) == 1;
    }
    return n;
}
