/* Pages of the cache against a model without pages, in which each sequence is a
 * list of numbers. After each random call every sequence reads back its list
 * through its tables. In a pool with a window, this covers what the next token
 * sees.
 *
 * Every page is free or has as many references as tables name it. So a page
 * that is written in place while shared shows, and so does a leaked one. A slot
 * of a pool of states contains a hash of the numbers before it: each sequence
 * must find its own. */
#include "kv/pages.h"

#include "lib/support.h"

#include <string.h>

enum {
    N_SEQ = 4,
    N_PAGE = 9,
    N_TOKEN = N_PAGE * PAGE_TOKENS,
    WINDOW = 70, /* attention window of the second page pool, in tokens */
    N_POOL = 2,  /* number of page pools */
    STATES = N_POOL,
    N_SLOT = 2 * N_SEQ + 3,
};

struct world {
    struct kv kv;
    /* the numbers that the pages contain */
    int32_t slot[N_POOL][N_PAGE][PAGE_TOKENS];
    uint64_t state[N_SLOT];
    /* the numbers that each sequence must contain */
    int32_t want[N_SEQ][N_TOKEN];
    int64_t n[N_SEQ];
    int n_copied;   /* number of pages copied so far */
    bool fail_copy; /* true if the next copy of a page shall fail */
    int32_t next;   /* the next number to write, different from all before */
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

/* Returns the first position of a pool that the next token sees. */
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
        /* a page must not be in the list of free pages twice */
        refs[p->free[i]] = 1;
    }
}

/* Returns the state after the first n of some numbers. */
static uint64_t state_of(uint64_t state, const int32_t *number, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        state = (state + (uint64_t)number[i] + 1) * 0x9e3779b97f4a7c15u;
    return state;
}

/* Checks the state slots of all sequences between two steps. */
static void check_states(const struct world *w)
{
    const struct kv_pool *p = &w->kv.pool[STATES];
    int refs[N_SLOT] = {0}, n_free = 0;

    for (int s = 0; s < 2 * N_SEQ; s++) {
        int32_t slot = p->table[s * w->kv.stride + STATE_READ];

        assert_int_equal(kv_state_written(&w->kv, s), -1);
        assert_int_equal(slot >= 0, s < N_SEQ && w->n[s] > 0);
        if (slot >= 0)
            refs[slot]++;
    }
    for (int i = 0; i < w->kv.n_checkpoint; i++) {
        const struct kv_checkpoint *c = &w->kv.checkpoint[i];

        assert_in_range(c->seq, 0, N_SEQ - 1);
        assert_in_range(c->n, 1, w->n[c->seq]);
        refs[c->slot]++;
    }
    for (int i = 0; i < N_SLOT; i++) {
        assert_int_equal(p->refs[i], refs[i]);
        n_free += refs[i] == 0;
    }
    assert_int_equal(p->n_free, n_free);
    for (int s = 0; s < N_SEQ; s++)
        for (int64_t n = w->n[s]; n > 0;
             n = kv_trimmable_length(&w->kv, s,
                                     /* all lengths to which the sequence can be
                                      * trimmed */
                                     n - 1)) {
            assert_int_equal(kv_trimmable_length(&w->kv, s, n), n);
            assert_int_equal(w->state[kv_state(&w->kv, s, n)],
                             state_of(0, w->want[s], n));
        }
}

static void check(const struct world *w)
{
    for (int k = 0; k < N_POOL; k++)
        check_pool(w, k);
    if (w->kv.states >= 0)
        check_states(w);
}

/* Acts as a step that writes the state after n more numbers. No other sequence
 * may have the slot. */
static void put_state(struct world *w, int seq, uint64_t before,
                      const int32_t *number, int64_t n)
{
    int32_t slot;

    if (w->kv.states < 0)
        return;
    slot = kv_state_written(&w->kv, seq);
    assert_int_equal(slot >= 0, n > 0);
    if (n == 0)
        return;
    assert_int_equal(w->kv.pool[STATES].refs[slot], 1);
    w->state[slot] = state_of(before, number, n);
}

/* Returns the content of the state slot that the next step of sequence `s`
 * reads. */
static uint64_t state_read(const struct world *w, int seq)
{
    return w->kv.states >= 0 && w->n[seq] > 0
               ? w->state[kv_state(&w->kv, seq, w->n[seq])]
               : 0;
}

/* Writes tokens from .. end - 1 of a sequence where it has pages. */
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

/* Adds n tokens. Those of a failed step are written and taken back. */
static void extend(struct world *w, int seq, int64_t n, bool fails)
{
    bool fits = (w->n[seq] + n + PAGE_TOKENS - 1) / PAGE_TOKENS <= w->kv.stride;
    int need[N_POOL], n_free[N_POOL];
    pl_err err;
    pl_status s;

    for (int k = 0; k < N_POOL; k++) {
        need[k] = kv_pages_needed(&w->kv, k, seq, n, false);
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
    put_state(w, seq, state_read(w, seq), w->want[seq] + w->n[seq], n);
    if (fails && n % 2) {
        kv_cancel_reserve(&w->kv, seq, n);
        return;
    }
    kv_commit(&w->kv, seq, n, false);
    if (fails) {
        kv_trim(&w->kv, seq, w->n[seq]);
        return;
    }
    kv_trim_windows(&w->kv, seq);
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
    /* copying empties the destination before it fails */
    w->n[dst] = s == PL_OK ? w->n[src] : 0;
    memcpy(w->want[dst], w->want[src], sizeof w->want[dst]);
    if (s != PL_OK)
        assert_int_equal(s, w->fail_copy && w->kv.pool[0].n_free ? PL_DEVICE
                                                                 : PL_FULL);
}

/* Trims as far as its windows allow, at least a page; or to a checkpoint. */
static void trim(struct world *w, int seq, int64_t n)
{
    int64_t least = kv_min_length(&w->kv, seq);

    assert_true(least <= w->n[seq]);
    if (n > 0 && n < least)
        n = least;
    n = kv_trimmable_length(&w->kv, seq, n);
    kv_trim(&w->kv, seq, n);
    w->n[seq] = n;
}

/* Builds a new past in the shadow sequence, perhaps from the start of another
 * sequence, and with `keeps` swaps it in. */
static void replace(struct world *w, int seq, int other, int64_t n, bool keeps)
{
    int stand_in = kv_shadow_seq(&w->kv, seq), n_free[N_POOL];
    int32_t number[N_TOKEN];
    int64_t shared = 0;
    pl_err err;

    if (other != seq && w->n[other] > 0) {
        shared = n < w->n[other] ? n : w->n[other] / PAGE_TOKENS * PAGE_TOKENS;
        n = n < shared ? shared : n;
        /* the other sequence must have what the new past's next token sees */
        if (kv_first_visible(WINDOW, n) < w->kv.pool[1].first[other])
            shared = 0;
        kv_share(&w->kv, stand_in, other, shared);
        /* a shared state is not written, so the sequence gets one of its own */
        if (w->kv.states >= 0 && n == shared)
            n++;
    }
    if (kv_reserve(&w->kv, stand_in, n - shared, true, copy_page, w, &err) !=
        PL_OK) {
        kv_trim(&w->kv, stand_in, 0);
        return;
    }
    kv_commit(&w->kv, stand_in, n - shared, true);
    put(w, stand_in, shared, n, w->next + (int32_t)shared);
    for (int64_t i = shared; i < n; i++)
        number[i] = w->next + (int32_t)i;
    memcpy(number, w->want[other], (size_t)shared * sizeof *number);
    put_state(w, stand_in, 0, number, n);
    if (keeps) {
        memcpy(w->want[seq], number, (size_t)n * sizeof *number);
        w->n[seq] = n;
        kv_swap(&w->kv, seq, stand_in);
        kv_trim_windows(&w->kv, seq);
    }
    w->next += N_TOKEN;
    for (int k = 0; k < N_POOL; k++)
        n_free[k] =
            w->kv.pool[k].n_free + kv_private_pages(&w->kv, k, stand_in);
    kv_trim(&w->kv, stand_in, 0);
    for (int k = 0; k < N_POOL; k++)
        assert_int_equal(w->kv.pool[k].n_free, n_free[k]);
}

/* Appends a part of a past to a sequence; in a window only what the next token
 * sees. */
static void append(struct world *w, int seq, int64_t n)
{
    int32_t *number = w->want[seq] + w->n[seq];
    uint64_t before = state_of(0, w->want[seq], w->n[seq]);
    pl_err err;

    if (kv_reserve(&w->kv, seq, n, true, copy_page, w, &err) != PL_OK)
        return;
    for (int64_t i = 0; i < n; i++)
        number[i] = w->next + (int32_t)i;
    w->next += (int32_t)n;
    put_state(w, seq, before, number, n);
    w->n[seq] += n;
    for (int k = 0; k < N_POOL; k++) {
        int64_t from = seen(w, k, seq) / PAGE_TOKENS * PAGE_TOKENS;

        for (int64_t i = w->n[seq] - n; i < w->n[seq]; i++)
            if (i >= from)
                w->slot[k][kv_page(&w->kv, k, seq, i)][i % PAGE_TOKENS] =
                    w->want[seq][i];
    }
    kv_commit(&w->kv, seq, n, true);
    kv_trim_windows(&w->kv, seq);
}

/* Returns true if the pages with position i are those of b wherever the token
 * after a sees them, and that token sees no more than the one after b. */
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

/* Checks the number of first tokens of a that are in pages of b. */
static void check_common(const struct world *w, int a, int b)
{
    int64_t n = 0;

    while (n < w->n[a] && n < w->n[b] && common(w, a, b, n))
        n++;
    if (n < w->n[a])
        n -= n % PAGE_TOKENS;
    assert_int_equal(kv_shared_length(&w->kv, a, b), n);
}

static void world_init(struct world *w, bool states)
{
    const pl_graph g = {
        .n_pool = N_POOL + states,
        .pool = {{.window = 0}, {.window = WINDOW}, {.state = true}}};
    pl_err err;

    memset(w, 0, sizeof *w);
    TEST_OK(kv_init(&w->kv, N_SEQ, N_PAGE, &g, (int[]){N_PAGE, N_PAGE, N_SLOT},
                    &err),
            err);
}

static void random_calls(bool states)
{
    static struct world w;
    uint64_t seed = test_seed();
    int n_call = test_draws(20000, 200000), n_back = 0;

    world_init(&w, states);
    for (int k = 0; k < n_call; k++) {
        int seq = (int)test_below(&seed, N_SEQ);

        w.fail_copy = test_below(&seed, 8) == 0;
        switch (test_below(&seed, 7)) {
        case 0:
            copy(&w, (int)test_below(&seed, N_SEQ), seq);
            break;
        case 1:
            trim(&w, seq, test_below(&seed, w.n[seq] + 1));
            n_back += w.n[seq] > 0;
            break;
        case 2:
            w.fail_copy = false;
            replace(&w, seq, (int)test_below(&seed, N_SEQ),
                    test_below(&seed, 200), test_below(&seed, 2));
            check_common(&w, seq, (int)test_below(&seed, N_SEQ));
            break;
        case 3:
            kv_checkpoint(&w.kv, seq);
            break;
        case 4:
            append(&w, seq, test_below(&seed, 150));
            break;
        default:
            extend(&w, seq, test_below(&seed, test_below(&seed, 2) ? 6 : 150),
                   test_below(&seed, 4) == 0);
        }
        check(&w);
    }
    assert_true(w.n_copied > n_call / 100 && n_back > n_call / 100);
    kv_fini(&w.kv);
}

TEST(kv_sequences_read_what_they_wrote)
{
    random_calls(false);
}

TEST(kv_sequences_go_on_from_their_states)
{
    random_calls(true);
}

/* A checkpoint stays until its slot is needed. Then the least recently used
 * one, by creation or trim, is evicted first. */
TEST(kv_checkpoints_unused_go_first)
{
    for (int used = 0; used < 2; used++) {
        static struct world w;

        world_init(&w, true);
        extend(&w, 1, 2, false);
        kv_checkpoint(&w.kv, 1);
        extend(&w, 1, 1, false);
        for (int i = 1; i <= 2 * N_SLOT; i++) {
            extend(&w, 0, 2, false);
            kv_checkpoint(&w.kv, 0);
            if (used && i % 4 == 0) {
                trim(&w, 1, 2);
                extend(&w, 1, 1, false);
            }
            check(&w);
            /* slots other than sequence 1's and the one being written can hold
             * checkpoints of sequence 0 */
            if (i <= N_SLOT - 3)
                assert_int_equal(kv_trimmable_length(&w.kv, 0, 3), 2);
        }
        assert_int_equal(kv_trimmable_length(&w.kv, 0, 3), 0);
        assert_int_equal(kv_trimmable_length(&w.kv, 0, 4 * N_SLOT - 1),
                         4 * N_SLOT - 2);
        assert_int_equal(kv_trimmable_length(&w.kv, 1, 2), used ? 2 : 0);
        kv_fini(&w.kv);
    }
}

/* If every slot belongs to a sequence, a step is rejected and changes
 * nothing. */
TEST(kv_states_without_a_slot_are_refused)
{
    const pl_graph g = {.n_pool = 1, .pool = {{.state = true}}};
    struct kv kv;
    pl_err err;

    TEST_OK(kv_init(&kv, 2, N_PAGE, &g, (int[]){2}, &err), err);
    for (int s = 0; s < 2; s++) {
        TEST_OK(kv_reserve(&kv, s, 3, false, NULL, NULL, &err), err);
        kv_commit(&kv, s, 3, false);
        if (s == 0)
            kv_trim_windows(&kv, s);
    }
    assert_int_equal(kv_reserve(&kv, 0, 1, false, NULL, NULL, &err), PL_FULL);
    assert_non_null(strstr(err.message, "none of 2 state slots is free"));
    kv_trim(&kv, 1, 0);
    TEST_OK(kv_reserve(&kv, 0, 1, false, NULL, NULL, &err), err);
    kv_trim(&kv, 0, 3);
    assert_int_equal(kv.pool[0].n_free, 1);
    kv_fini(&kv);
}

/* Copies share full pages. The first to write into one gets its own, and the
 * last owner writes in place. */
TEST(kv_shared_page_is_copied_once)
{
    static struct world w;

    world_init(&w, false);
    extend(&w, 0, 2 * PAGE_TOKENS, false);
    copy(&w, 1, 0);
    assert_int_equal(w.kv.pool[0].n_free, N_PAGE - 2);
    assert_int_equal(w.n_copied, 0);
    trim(&w, 0, PAGE_TOKENS + 3);
    assert_int_equal(kv_pages_needed(&w.kv, 0, 0, 1, false), 1);
    extend(&w, 0, 1, false);
    assert_int_equal(w.n_copied, N_POOL);
    trim(&w, 1, PAGE_TOKENS + 5);
    assert_int_equal(kv_pages_needed(&w.kv, 0, 1, 1, false), 0);
    extend(&w, 1, 1, false);
    assert_int_equal(w.n_copied, N_POOL);
    check(&w);
    kv_fini(&w.kv);
}

/* The page to be written next cannot be copied: no page is lost. */
TEST(kv_page_that_cannot_be_copied_costs_no_slot)
{
    static struct world w;

    world_init(&w, true);
    extend(&w, 0, 40, false);
    kv_checkpoint(&w.kv, 0);
    extend(&w, 0, PAGE_TOKENS, false);
    copy(&w, 1, 0);
    trim(&w, 1, 40);
    assert_int_equal(w.n[1], 40);
    w.fail_copy = true;
    extend(&w, 1, 1, false);
    assert_int_equal(w.n[1], 40);
    check(&w);
    w.fail_copy = false;
    extend(&w, 1, 1, false);
    check(&w);
    kv_fini(&w.kv);
}

TEST(kv_trim_gives_pages_back)
{
    static struct world w;

    world_init(&w, false);
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

/* The planned pages of a window suffice for sequences that never keep more than
 * it, each with a batch of tokens in turn. Any sequence can be trimmed by a
 * page at any time. */
TEST(kv_windows_hold_what_they_keep_and_a_run)
{
    /* a context that does not limit: with less, all together may fill it */
    enum { STRIDE = 2 * 4096 / PAGE_TOKENS };
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
                kv_commit(&kv, s, n, false);
            }
            for (int s = 0; s < N_SEQ; s++)
                kv_trim_windows(&kv, s);
            /* sequence 0 was trimmed, which uses up part of the margin
             * KV_MIN_TRIM */
            for (int s = 0; s < N_SEQ; s++)
                assert_true(kv_min_length(&kv, s) == 0 ||
                            kv_min_length(&kv, s) <=
                                kv.length[s] - (s == 0 ? 0 : KV_MIN_TRIM));
            if (run % 8 == 0)
                kv_trim(&kv, 0, kv_min_length(&kv, 0));
        }
        kv_fini(&kv);
    }
}
