/* Pages of the cache against a model that knows none: each sequence is a list
 * of numbers. Random calls; after each, every sequence reads back its list
 * through its table, and every page is either free or counted as often as
 * tables name it. So a page written in place while another sequence shares it
 * shows, and one that nobody gives back. */
#include "kv/pages.h"

#include "lib/support.h"

#include <string.h>

enum { N_SEQ = 4, N_PAGE = 9, N_TOKEN = N_PAGE * PAGE_TOKENS };

struct world {
    struct kv_pages kv;
    int32_t slot[N_PAGE][PAGE_TOKENS]; /* what the pages hold */
    int32_t want[N_SEQ][N_TOKEN];      /* what the sequences should */
    int64_t n[N_SEQ];
    int n_copied;   /* pages copied so far */
    bool fail_copy; /* the next one fails */
    int32_t next;   /* a number not yet written */
};

static pl_status copy_page(void *user, int from, int to, pl_err *err)
{
    struct world *w = user;

    (void)err;
    assert_in_range(from, 0, N_PAGE - 1);
    assert_in_range(to, 0, N_PAGE - 1);
    if (w->fail_copy)
        return PL_DEVICE;
    memcpy(w->slot[to], w->slot[from], sizeof w->slot[to]);
    w->n_copied++;
    return PL_OK;
}

static int32_t page_at(const struct world *w, int seq, int64_t pos)
{
    return w->kv.table[seq * w->kv.stride + pos / PAGE_TOKENS];
}

static void check(const struct world *w)
{
    int refs[N_PAGE] = {0}, n_free = 0;

    for (int s = 0; s < N_SEQ; s++) {
        assert_int_equal(w->kv.length[s], w->n[s]);
        for (int64_t i = 0; i < w->n[s]; i++) {
            int32_t p = page_at(w, s, i);

            assert_in_range(p, 0, N_PAGE - 1);
            refs[p] += i % PAGE_TOKENS == 0;
            assert_int_equal(w->slot[p][i % PAGE_TOKENS], w->want[s][i]);
        }
    }
    for (int p = 0; p < N_PAGE; p++) {
        assert_int_equal(w->kv.refs[p], refs[p]);
        n_free += refs[p] == 0;
    }
    assert_int_equal(w->kv.n_free, n_free);
    for (int i = 0; i < n_free; i++) {
        assert_int_equal(refs[w->kv.free[i]], 0);
        refs[w->kv.free[i]] = 1; /* none stands there twice */
    }
}

/* n tokens more; those of a step that failed are written and taken back. */
static void extend(struct world *w, int seq, int64_t n, bool fails)
{
    int need = kv_need(&w->kv, seq, n), n_free = w->kv.n_free;
    bool fits = need <= n_free &&
                (w->n[seq] + n + PAGE_TOKENS - 1) / PAGE_TOKENS <= w->kv.stride;
    pl_err err;
    pl_status s = kv_reserve(&w->kv, seq, n, copy_page, w, &err);

    if (s != PL_OK) {
        assert_true(!fits || w->fail_copy);
        assert_int_equal(s, fits ? PL_DEVICE : PL_FULL);
        assert_int_equal(w->kv.n_free, n_free);
        return;
    }
    assert_true(fits);
    assert_int_equal(n_free - w->kv.n_free, need);
    for (int64_t i = w->n[seq]; i < w->n[seq] + n; i++) {
        w->slot[page_at(w, seq, i)][i % PAGE_TOKENS] = w->next;
        w->want[seq][i] = w->next++;
    }
    if (fails) {
        kv_unreserve(&w->kv, seq, n);
        return;
    }
    kv_advance(&w->kv, seq, n);
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
        assert_int_equal(s, w->fail_copy && w->kv.n_free ? PL_DEVICE : PL_FULL);
}

static void trim(struct world *w, int seq, int64_t n)
{
    kv_trim(&w->kv, seq, n);
    w->n[seq] = n;
}

/* A new past is put together in the stand-in, perhaps from the beginning of
 * another sequence; then it takes the sequence's place, or does not. */
static void replace(struct world *w, int seq, int other, int64_t n, bool keeps)
{
    int stand_in = kv_stand_in(&w->kv, seq), own;
    int64_t shared = 0;
    pl_err err;

    if (other != seq && w->n[other] > 0) {
        shared = n < w->n[other] ? n : w->n[other] / PAGE_TOKENS * PAGE_TOKENS;
        kv_share(&w->kv, stand_in, other, shared);
        n = n < shared ? shared : n;
    }
    if (kv_reserve(&w->kv, stand_in, n - shared, copy_page, w, &err) != PL_OK) {
        kv_trim(&w->kv, stand_in, 0);
        return;
    }
    kv_advance(&w->kv, stand_in, n - shared);
    for (int64_t i = shared; i < n; i++)
        w->slot[page_at(w, stand_in, i)][i % PAGE_TOKENS] =
            w->next + (int32_t)i;
    if (keeps) {
        memcpy(w->want[seq], w->want[other], (size_t)shared * sizeof(int32_t));
        for (int64_t i = shared; i < n; i++)
            w->want[seq][i] = w->next + (int32_t)i;
        w->n[seq] = n;
        kv_swap(&w->kv, seq, stand_in);
    }
    w->next += N_TOKEN;
    own = kv_own(&w->kv, stand_in);
    own += w->kv.n_free;
    kv_trim(&w->kv, stand_in, 0);
    assert_int_equal(w->kv.n_free, own);
}

/* Tokens at the beginning of a that lie in pages of b. */
static void check_common(const struct world *w, int a, int b)
{
    int64_t n = 0;

    while (n < w->n[a] && n < w->n[b] && page_at(w, a, n) == page_at(w, b, n))
        n++;
    if (n < w->n[a])
        n -= n % PAGE_TOKENS;
    assert_int_equal(kv_common(&w->kv, a, b), n);
}

static void world_init(struct world *w)
{
    pl_err err;

    memset(w, 0, sizeof *w);
    TEST_OK(kv_init(&w->kv, N_SEQ, N_PAGE, &err), err);
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
    assert_int_equal(w.kv.n_free, N_PAGE - 2);
    assert_int_equal(w.n_copied, 0);
    trim(&w, 0, PAGE_TOKENS + 3);
    assert_int_equal(kv_need(&w.kv, 0, 1), 1);
    extend(&w, 0, 1, false);
    assert_int_equal(w.n_copied, 1);
    trim(&w, 1, PAGE_TOKENS + 5);
    assert_int_equal(kv_need(&w.kv, 1, 1), 0);
    extend(&w, 1, 1, false);
    assert_int_equal(w.n_copied, 1);
    check(&w);
    kv_fini(&w.kv);
}

TEST(kv_trim_gives_pages_back)
{
    static struct world w;

    world_init(&w);
    for (int64_t n = 0; n <= 3 * PAGE_TOKENS; n++) {
        extend(&w, 2, 3 * PAGE_TOKENS + 1, false);
        assert_int_equal(w.kv.n_free, N_PAGE - 4);
        trim(&w, 2, n);
        assert_int_equal(w.kv.n_free,
                         N_PAGE - (n + PAGE_TOKENS - 1) / PAGE_TOKENS);
        trim(&w, 2, 0);
        check(&w);
    }
    kv_fini(&w.kv);
}
