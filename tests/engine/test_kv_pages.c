/* Pages of the cache against a model that knows none: each sequence is a list
 * of numbers. Random calls; after each, every sequence reads back its list
 * through its tables, in a pool with a window as much of it as the next token
 * sees, and every page is either free or counted as often as tables name it. So
 * a page written in place while another sequence shares it shows, and one that
 * nobody gives back. */
#include "kv/pages.h"

#include "lib/support.h"

#include <string.h>

enum {
    N_SEQ = 4,
    N_PAGE = 9,
    N_TOKEN = N_PAGE * PAGE_TOKENS,
    WINDOW = 70, /* of the second pool */
    N_POOL = 2,
};

struct world {
    struct kv kv;
    int32_t slot[N_POOL][N_PAGE][PAGE_TOKENS]; /* what the pages hold */
    int32_t want[N_SEQ][N_TOKEN];              /* what the sequences should */
    int64_t n[N_SEQ];
    int n_copied;   /* pages copied so far */
    bool fail_copy; /* the next one fails */
    int32_t next;   /* a number not yet written */
};

static pl_status copy_page(void *user, int pool, int from, int to, pl_err *err)
{
    struct world *w = user;

    (void)err;
    assert_in_range(from, 0, N_PAGE - 1);
    assert_in_range(to, 0, N_PAGE - 1);
    if (w->fail_copy)
        return PL_DEVICE;
    memcpy(w->slot[pool][to], w->slot[pool][from], sizeof w->slot[pool][to]);
    w->n_copied++;
    return PL_OK;
}

/* The first position that the next token sees in a pool. */
static int64_t seen(const struct world *w, int pool, int seq)
{
    return pool == 1 && w->n[seq] >= WINDOW ? w->n[seq] - WINDOW + 1 : 0;
}

static void check_pool(const struct world *w, int pool)
{
    const struct kv_pool *p = &w->kv.pool[pool];
    int refs[N_PAGE] = {0}, n_free = 0;

    for (int s = 0; s < N_SEQ; s++) {
        int most =
            pool == 1 ? (WINDOW - 1 + PAGE_TOKENS) / PAGE_TOKENS + 2 : N_PAGE;
        int n_held = 0;

        assert_int_equal(w->kv.length[s], w->n[s]);
        for (int64_t i = 0; i < w->n[s]; i += PAGE_TOKENS) {
            int32_t page = kv_page(&w->kv, pool, s, i);

            assert_in_range(page + 1, i + PAGE_TOKENS > seen(w, pool, s),
                            N_PAGE);
            n_held += page >= 0;
            if (page >= 0)
                refs[page]++;
        }
        assert_true(n_held <= most);
        for (int64_t i = seen(w, pool, s); i < w->n[s]; i++)
            assert_int_equal(
                w->slot[pool][kv_page(&w->kv, pool, s, i)][i % PAGE_TOKENS],
                w->want[s][i]);
    }
    for (int i = 0; i < N_PAGE; i++) {
        assert_int_equal(p->refs[i], refs[i]);
        n_free += refs[i] == 0;
    }
    assert_int_equal(p->n_free, n_free);
    for (int i = 0; i < n_free; i++) {
        assert_int_equal(refs[p->free[i]], 0);
        refs[p->free[i]] = 1; /* none stands there twice */
    }
}

static void check(const struct world *w)
{
    for (int k = 0; k < N_POOL; k++)
        check_pool(w, k);
}

/* Tokens from .. end - 1 of a sequence are written where it has pages. */
static void put(struct world *w, int seq, int64_t from, int64_t end,
                int32_t first)
{
    for (int k = 0; k < N_POOL; k++)
        for (int64_t i = from; i < end; i++) {
            int32_t page = kv_page(&w->kv, k, seq, i);

            if (page >= 0)
                w->slot[k][page][i % PAGE_TOKENS] = first + (int32_t)(i - from);
        }
}

/* n tokens more; those of a step that failed are written and taken back. */
static void extend(struct world *w, int seq, int64_t n, bool fails)
{
    bool fits = (w->n[seq] + n + PAGE_TOKENS - 1) / PAGE_TOKENS <= w->kv.stride;
    int need[N_POOL], n_free[N_POOL];
    pl_err err;
    pl_status s;

    for (int k = 0; k < N_POOL; k++) {
        need[k] = kv_need(&w->kv, k, seq, n, false);
        n_free[k] = w->kv.pool[k].n_free;
        fits &= need[k] <= n_free[k];
    }
    s = kv_reserve(&w->kv, seq, n, false, copy_page, w, &err);
    if (s != PL_OK) {
        assert_true(!fits || w->fail_copy);
        assert_int_equal(s, fits ? PL_DEVICE : PL_FULL);
        for (int k = 0; k < N_POOL; k++)
            assert_int_equal(w->kv.pool[k].n_free, n_free[k]);
        return;
    }
    assert_true(fits);
    for (int k = 0; k < N_POOL; k++)
        assert_int_equal(n_free[k] - w->kv.pool[k].n_free, need[k]);
    put(w, seq, w->n[seq], w->n[seq] + n, w->next);
    for (int64_t i = w->n[seq]; i < w->n[seq] + n; i++)
        w->want[seq][i] = w->next++;
    if (fails) {
        kv_unreserve(&w->kv, seq, n);
        return;
    }
    kv_advance(&w->kv, seq, n);
    kv_settle(&w->kv, seq);
    w->n[seq] += n;
}

static void copy(struct world *w, int dst, int src)
{
    pl_err err;
    pl_status s = kv_copy(&w->kv, dst, src, copy_page, w, &err);

    if (dst == src) {
        assert_int_equal(s, PL_OK);
        return;
    }
    w->n[dst] = s == PL_OK ? w->n[src] : 0; /* emptied first */
    memcpy(w->want[dst], w->want[src], sizeof w->want[dst]);
    if (s != PL_OK)
        assert_int_equal(s, w->fail_copy && w->kv.pool[0].n_free ? PL_DEVICE
                                                                 : PL_FULL);
}

/* As far back as its windows reach, which is a page at least. */
static void trim(struct world *w, int seq, int64_t n)
{
    int64_t least = kv_least(&w->kv, seq);

    assert_true(least <= w->n[seq]);
    if (n > 0 && n < least)
        n = least;
    kv_trim(&w->kv, seq, n);
    w->n[seq] = n;
}

/* A new past is put together in the stand-in, perhaps from the beginning of
 * another sequence; then it takes the sequence's place, or does not. */
static void replace(struct world *w, int seq, int other, int64_t n, bool keeps)
{
    int stand_in = kv_stand_in(&w->kv, seq), n_free[N_POOL];
    int64_t shared = 0;
    pl_err err;

    if (other != seq && w->n[other] > 0) {
        shared = n < w->n[other] ? n : w->n[other] / PAGE_TOKENS * PAGE_TOKENS;
        n = n < shared ? shared : n;
        /* what the new past is seen of must be held by the other one */
        if (kv_first_seen(WINDOW, n) < w->kv.pool[1].first[other])
            shared = 0;
        kv_share(&w->kv, stand_in, other, shared);
    }
    if (kv_reserve(&w->kv, stand_in, n - shared, true, copy_page, w, &err) !=
        PL_OK) {
        kv_trim(&w->kv, stand_in, 0);
        return;
    }
    kv_advance(&w->kv, stand_in, n - shared);
    put(w, stand_in, shared, n, w->next + (int32_t)shared);
    if (keeps) {
        memcpy(w->want[seq], w->want[other], (size_t)shared * sizeof(int32_t));
        for (int64_t i = shared; i < n; i++)
            w->want[seq][i] = w->next + (int32_t)i;
        w->n[seq] = n;
        kv_swap(&w->kv, seq, stand_in);
        kv_settle(&w->kv, seq);
    }
    w->next += N_TOKEN;
    for (int k = 0; k < N_POOL; k++)
        n_free[k] = w->kv.pool[k].n_free + kv_own(&w->kv, k, stand_in);
    kv_trim(&w->kv, stand_in, 0);
    for (int k = 0; k < N_POOL; k++)
        assert_int_equal(w->kv.pool[k].n_free, n_free[k]);
}

/* Are the pages with position i those of b where what is behind a sees them,
 * and does it see no more than what is behind b? */
static bool common(const struct world *w, int a, int b, int64_t i)
{
    for (int k = 0; k < N_POOL; k++) {
        int64_t end = i / PAGE_TOKENS * PAGE_TOKENS + PAGE_TOKENS;

        if (end > seen(w, k, a) &&
            (end <= seen(w, k, b) ||
             kv_page(&w->kv, k, a, i) != kv_page(&w->kv, k, b, i)))
            return false;
    }
    return true;
}

/* Tokens at the beginning of a that lie in pages of b. */
static void check_common(const struct world *w, int a, int b)
{
    int64_t n = 0;

    while (n < w->n[a] && n < w->n[b] && common(w, a, b, n))
        n++;
    if (n < w->n[a])
        n -= n % PAGE_TOKENS;
    assert_int_equal(kv_common(&w->kv, a, b), n);
}

static void world_init(struct world *w)
{
    const pl_graph g = {.n_pool = N_POOL, .pool = {{.window = 0}, {.window = WINDOW}}};
    pl_err err;

    memset(w, 0, sizeof *w);
    TEST_OK(kv_init(&w->kv, N_SEQ, N_PAGE, &g, (int[]){N_PAGE, N_PAGE}, &err),
            err);
}

TEST(kv_sequences_read_what_they_wrote)
{
    static struct world w;
    uint64_t seed = test_seed();
    int n_call = test_long() ? 200000 : 20000;

    world_init(&w);
    for (int k = 0; k < n_call; k++) {
        int seq = (int)test_below(&seed, N_SEQ);

        w.fail_copy = test_below(&seed, 8) == 0;
        switch (test_below(&seed, 5)) {
        case 0:
            copy(&w, (int)test_below(&seed, N_SEQ), seq);
            break;
        case 1:
            trim(&w, seq, test_below(&seed, w.n[seq] + 1));
            break;
        case 2:
            w.fail_copy = false;
            replace(&w, seq, (int)test_below(&seed, N_SEQ),
                    test_below(&seed, 200), test_below(&seed, 2));
            check_common(&w, seq, (int)test_below(&seed, N_SEQ));
            break;
        default:
            extend(&w, seq, test_below(&seed, test_below(&seed, 2) ? 6 : 150),
                   test_below(&seed, 4) == 0);
        }
        check(&w);
    }
    assert_true(w.n_copied > n_call / 100);
    kv_fini(&w.kv);
}

/* Copies share full pages; the first to write into one gets its own, and the
 * last one left writes in place. */
TEST(kv_shared_page_is_copied_once)
{
    static struct world w;

    world_init(&w);
    extend(&w, 0, 2 * PAGE_TOKENS, false);
    copy(&w, 1, 0);
    assert_int_equal(w.kv.pool[0].n_free, N_PAGE - 2);
    assert_int_equal(w.n_copied, 0);
    trim(&w, 0, PAGE_TOKENS + 3);
    assert_int_equal(kv_need(&w.kv, 0, 0, 1, false), 1);
    extend(&w, 0, 1, false);
    assert_int_equal(w.n_copied, N_POOL);
    trim(&w, 1, PAGE_TOKENS + 5);
    assert_int_equal(kv_need(&w.kv, 0, 1, 1, false), 0);
    extend(&w, 1, 1, false);
    assert_int_equal(w.n_copied, N_POOL);
    check(&w);
    kv_fini(&w.kv);
}

TEST(kv_trim_gives_pages_back)
{
    static struct world w;

    world_init(&w);
    for (int64_t n = 0; n <= 3 * PAGE_TOKENS; n++) {
        extend(&w, 2, 3 * PAGE_TOKENS + 1, false);
        assert_int_equal(w.kv.pool[0].n_free, N_PAGE - 4);
        trim(&w, 2, n);
        assert_int_equal(w.kv.pool[0].n_free,
                         N_PAGE - (w.n[2] + PAGE_TOKENS - 1) / PAGE_TOKENS);
        trim(&w, 2, 0);
        check(&w);
    }
    kv_fini(&w.kv);
}

/* What is planned for a window is enough for sequences that never hold more
 * than it keeps, each with a run of tokens after the other; and a sequence can
 * go back a page from wherever it is. */
TEST(kv_windows_hold_what_they_keep_and_a_run)
{
    enum { STRIDE = 4096 / PAGE_TOKENS };
    static const int64_t windows[] = {1, 2, 63, 64, 65, 128, 1000};
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const pl_graph g = {.n_pool = 1, .pool = {{.window = windows[i]}}};
        int64_t n_run = 1 + test_below(&seed, 200);
        int n_page = kv_pages_planned(windows[i], STRIDE, N_SEQ, n_run);
        struct kv kv;
        pl_err err;

        TEST_OK(kv_init(&kv, N_SEQ, STRIDE, &g, &n_page, &err), err);
        assert_true(n_page <=
                    N_SEQ * (windows[i] / PAGE_TOKENS + 4) + n_run / 64 + 1);
        for (int run = 0; run < 400; run++) {
            int64_t left = n_run, n;

            for (int s = 0; s < N_SEQ; s++, left -= n) {
                n = s == N_SEQ - 1 ? left : test_below(&seed, left + 1);
                if (kv.length[s] + n > 4096)
                    kv_trim(&kv, s, 0);
                TEST_OK(kv_reserve(&kv, s, n, false, NULL, NULL, &err), err);
                kv_advance(&kv, s, n);
            }
            for (int s = 0; s < N_SEQ; s++)
                kv_settle(&kv, s);
            for (int s = 0; s < N_SEQ; s++) /* the first has been back */
                assert_true(kv_least(&kv, s) == 0 ||
                            kv_least(&kv, s) <=
                                kv.length[s] - (s == 0 ? 0 : KV_BACK));
            if (run % 8 == 0)
                kv_trim(&kv, 0, kv_least(&kv, 0));
        }
        kv_fini(&kv);
    }
}
