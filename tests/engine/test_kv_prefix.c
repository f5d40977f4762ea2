/* Cached prefixes against a model that caches none. Each sequence is a list of
 * tokens, and the content of a position is a hash of all tokens up to it, as in
 * a real model.
 *
 * After each random call, all sequences and all nodes of the tree have the
 * contents of their tokens. Every page has as many references as tables,
 * checkpoints and nodes name it, and every page without a sequence can be
 * allocated. A sequence shares the longest prefix that a search through all
 * nodes finds. */
#include "kv/prefix.h"

#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_SEQ = 4,
    N_TEXT = 4,
    MAX_PAGE = 24,
    N_TOKEN = 9 * PAGE_TOKENS,
    N_SLOT = 2 * N_SEQ + 3,
};

static const struct {
    int n_page; /* number of pages of the pools that keep all tokens */
    int n_pool;
    struct graph_pool pool[PL_MAX_POOL];
} kinds[] = {
    {9, 1, {{.window = 0}}}, /* too few pages for all sequences */
    {24, 1, {{.window = 0}}},
    {9, 2, {{.window = 0}, {.window = 70}}},
    {24, 3, {{.window = 130}, {.window = 0}, {.window = 1}}},
    {9, 2, {{.window = 0}, {.state = true}}},
    {24, 3, {{.window = 0}, {.state = true}, {.window = 70}}},
    {24, 2, {{.window = 70}, {.window = 200}}},
    {24, 1, {{.state = true}}},
};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

struct world {
    struct kv kv;
    uint64_t seed;
    /* hashes that the pages contain */
    uint64_t slot[PL_MAX_POOL][MAX_PAGE][PAGE_TOKENS];
    uint64_t state[N_SLOT];
    /* texts from which sequences take their tokens; they begin alike */
    int32_t text[N_TEXT][N_TOKEN];
    int32_t token[2 * N_SEQ][N_TOKEN];
    int64_t n[N_SEQ];
    /* true if the tokens of the sequence are known to the cache */
    bool known[N_SEQ];
    bool fail_copy;
    /* number of shared prefixes, and of those that end within a page */
    int n_shared, n_within;
    /* number of steps whose full pages were in the tree already */
    int n_merged;
    int n_given_up; /* number of nodes that were evicted */
};

/* Computes the contents of n tokens in the cache, and of their states. */
static void values_of(const int32_t *token, int64_t n, uint64_t *value)
{
    uint64_t v = 1;

    for (int64_t i = 0; i < n; i++)
        value[i] = v = (v + (uint64_t)token[i] + 1) * 0x9e3779b97f4a7c15u;
}

static pl_status copy_page(void *user, int pool, int from, int to, pl_err *err)
{
    struct world *w = user;

    (void)err;
    assert_in_range(from, 0, w->kv.pool[pool].n_page - 1);
    assert_in_range(to, 0, w->kv.pool[pool].n_page - 1);
    if (w->fail_copy)
        return PL_DEVICE;
    memcpy(w->slot[pool][to], w->slot[pool][from], sizeof w->slot[pool][to]);
    return PL_OK;
}

/* Makes texts that diverge after some tokens: within a page, or where one
 * ends. */
static void make_texts(struct world *w)
{
    static const int64_t parts[N_TEXT] = {0, 100, 2 * PAGE_TOKENS, 201};

    for (int t = 0; t < N_TEXT; t++)
        for (int64_t i = 0; i < N_TOKEN; i++)
            w->text[t][i] = i < parts[t] ? w->text[t - 1][i]
                                         : (int32_t)test_below(&w->seed, 3);
}

static void world_open(struct world *w, int kind, uint64_t seed)
{
    int n_page[PL_MAX_POOL];
    pl_graph g = {.n_pool = kinds[kind].n_pool};
    pl_err err;

    memset(w, 0, sizeof *w);
    w->seed = seed;
    make_texts(w);
    memcpy(g.pool, kinds[kind].pool, sizeof g.pool);
    for (int k = 0; k < g.n_pool; k++)
        n_page[k] = g.pool[k].state        ? N_SLOT
                    : g.pool[k].window > 0 ? MAX_PAGE
                                           : kinds[kind].n_page;
    TEST_OK(kv_init(&w->kv, N_SEQ, N_TOKEN / PAGE_TOKENS, &g, n_page, &err),
            err);
    TEST_OK(prefix_init(&w->kv, &err), err);
    for (int s = 0; s < N_SEQ; s++)
        w->known[s] = true;
}

/* ---- checks ------------------------------------------------------------- */

/* Reads the tokens of a node's path; returns their number. */
static int64_t path_of(const struct world *w, int node, int32_t *token)
{
    const struct prefix_node *v;
    int64_t n = 0;

    if (node < 0)
        return 0;
    v = &w->kv.prefix->node[node];
    n = path_of(w, v->parent, token);
    assert_int_equal(n % PAGE_TOKENS, 0);
    assert_in_range(v->n_tok, 1, PAGE_TOKENS);
    assert_true(n + v->n_tok <= N_TOKEN);
    memcpy(token + n, v->token, (size_t)v->n_tok * sizeof *token);
    return n + v->n_tok;
}

/* Counts the references to each page of a pool: all of them in refs[], and
 * those of sequences, without nodes of the tree, in sequences[]. */
static void recount(const struct world *w, int pool, int *refs, int *sequences)
{
    const struct kv_pool *p = &w->kv.pool[pool];

    for (int s = 0; s < 2 * N_SEQ; s++) {
        const int32_t *row = p->table + s * w->kv.stride;
        int end = p->state ? STATE_AT : w->kv.stride;

        for (int i = 0; i < end; i++)
            if (row[i] >= 0)
                sequences[row[i]]++;
    }
    for (int i = 0; p->state && i < w->kv.n_checkpoint; i++)
        sequences[w->kv.checkpoint[i].slot]++;
    memcpy(refs, sequences, (size_t)p->n_page * sizeof *refs);
    for (int i = 0; i < w->kv.prefix->n_node; i++) {
        const struct prefix_node *v = &w->kv.prefix->node[i];

        if (v->n_tok > 0 && v->page[pool] >= 0) {
            assert_int_equal(p->holder[v->page[pool]], i);
            refs[v->page[pool]]++;
        }
    }
}

static void check_pool(const struct world *w, int pool)
{
    const struct kv_pool *p = &w->kv.pool[pool];
    int refs[MAX_PAGE + N_SLOT], sequences[MAX_PAGE + N_SLOT] = {0};
    int n_free = 0, n_idle = 0;

    recount(w, pool, refs, sequences);
    for (int i = 0; i < p->n_page; i++) {
        assert_int_equal(p->refs[i], refs[i]);
        assert_int_equal(p->holder[i] >= 0, refs[i] > sequences[i]);
        assert_true(refs[i] <= sequences[i] + 1);
        n_free += refs[i] == 0;
        n_idle += refs[i] == 1 && sequences[i] == 0;
    }
    assert_int_equal(p->n_free, n_free);
    assert_int_equal(p->n_evictable, n_idle);
    assert_int_equal(kv_free_pages(&w->kv, pool), n_free + n_idle);
    for (int i = p->evictable[p->n_page].next; i != p->n_page;
         i = p->evictable[i].next) {
        assert_true(refs[i] == 1 && sequences[i] == 0);
        /* a page must not be in the list of evictable pages twice */
        refs[i] = 0;
        n_idle--;
    }
    assert_int_equal(n_idle, 0);
}

static void check_nodes(const struct world *w)
{
    const struct prefix *x = w->kv.prefix;
    int n_used = 0, n_unused = 0;

    for (int i = 0; i < x->n_node; i++) {
        const struct prefix_node *v = &x->node[i];
        int32_t token[N_TOKEN];
        uint64_t value[N_TOKEN];
        int n_user = 0;
        int64_t n, first;

        if (v->n_tok == 0)
            continue;
        n_used++;
        n = path_of(w, i, token);
        first = n - v->n_tok;
        values_of(token, n, value);
        for (int k = 0; k < w->kv.n_pool; k++)
            if (w->kv.pool[k].state && v->page[k] >= 0)
                assert_int_equal(w->state[v->page[k]], value[n - 1]);
            else if (v->page[k] >= 0)
                for (int64_t t = first; t < n; t++)
                    assert_int_equal(w->slot[k][v->page[k]][t % PAGE_TOKENS],
                                     value[t]);
        for (int k = 0; k < x->n_node; k++)
            n_user += x->node[k].n_tok > 0 && x->node[k].parent == i;
        for (int s = 0; s < 2 * N_SEQ; s++)
            n_user += x->seq[s].node == i;
        assert_int_equal(v->n_user, n_user);
    }
    for (int i = x->unused; i >= 0; i = x->node[i].next)
        n_unused++;
    assert_int_equal(n_used + n_unused, x->n_node);
}

static void check_seq(const struct world *w, int s)
{
    const struct prefix_seq *q = &w->kv.prefix->seq[s];
    const struct kv *kv = &w->kv;
    const int32_t *token = w->token[s];
    int32_t path[N_TOKEN];
    uint64_t value[N_TOKEN];
    int64_t n = w->n[s];

    values_of(token, n, value);
    assert_int_equal(kv->length[s], n);
    assert_int_equal(q->n == n, w->known[s] || n == 0);
    assert_int_equal(path_of(w, q->node, path), q->n / 64 * 64);
    memcpy(path + q->n / 64 * 64, q->token, (size_t)(q->n % 64) * 4);
    assert_memory_equal(path, token, (size_t)q->n * sizeof *path);
    for (int k = 0; k < kv->n_pool; k++) {
        int64_t window = kv->pool[k].window;
        int64_t from = window > 0 && n >= window ? n - window + 1 : 0;

        if (kv->pool[k].state) {
            if (n > 0)
                assert_int_equal(w->state[kv_state(kv, s, n)], value[n - 1]);
            continue;
        }
        for (int64_t i = from; i < n; i++)
            assert_int_equal(w->slot[k][kv_page(kv, k, s, i)][i % PAGE_TOKENS],
                             value[i]);
    }
}

static void check(const struct world *w)
{
    for (int k = 0; k < w->kv.n_pool; k++)
        check_pool(w, k);
    check_nodes(w);
    for (int s = 0; s < N_SEQ; s++)
        check_seq(w, s);
}

/* ---- calls -------------------------------------------------------------- */

/* Writes tokens from .. end - 1 of a sequence where it has pages; `past`: where
 * the next token sees them. */
static void put(struct world *w, int seq, int64_t from, int64_t end, bool past)
{
    uint64_t value[N_TOKEN];

    values_of(w->token[seq], end, value);
    for (int k = 0; k < w->kv.n_pool; k++) {
        const struct kv_pool *p = &w->kv.pool[k];
        int64_t i = past ? kv_first_visible(p->window, end) * PAGE_TOKENS : 0;

        if (p->state) {
            int32_t slot = kv_state_written(&w->kv, seq);

            assert_int_equal(p->refs[slot], 1);
            w->state[slot] = value[end - 1];
            continue;
        }
        for (i = i > from ? i : from; i < end; i++) {
            int32_t page = kv_page(&w->kv, k, seq, i);

            assert_int_equal(p->refs[page], 1);
            w->slot[k][page][i % PAGE_TOKENS] = value[i];
        }
    }
}

static int n_used(const struct world *w)
{
    int n = 0;

    for (int i = 0; i < w->kv.prefix->n_node; i++)
        n += w->kv.prefix->node[i].n_tok > 0;
    return n;
}

/* Appends n tokens of a text to a sequence, in a step that may fail. */
static void extend(struct world *w, int seq, const int32_t *text, int64_t n,
                   bool fails)
{
    int64_t from = w->n[seq];
    int need[PL_MAX_POOL] = {0}, was[PL_MAX_POOL] = {0}, nodes = n_used(w);
    bool fits = true;
    pl_err err;
    pl_status s;

    if (n > N_TOKEN - from)
        n = N_TOKEN - from;
    for (int k = 0; k < w->kv.n_pool; k++) {
        was[k] = kv_free_pages(&w->kv, k);
        need[k] = kv_pages_needed(&w->kv, k, seq, n, false);
        fits &= need[k] <= was[k];
    }
    s = kv_reserve(&w->kv, seq, n, false, copy_page, w, &err);
    w->n_given_up += n_used(w) < nodes;
    if (s != PL_OK) {
        assert_int_equal(s, fits ? PL_DEVICE : PL_FULL);
        assert_true(!fits || w->fail_copy);
        return;
    }
    assert_true(fits);
    for (int k = 0; k < w->kv.n_pool; k++)
        if (!w->kv.pool[k].state)
            assert_int_equal(was[k] - kv_free_pages(&w->kv, k), need[k]);
    if (n == 0)
        return;
    memcpy(w->token[seq] + from, text + from, (size_t)n * sizeof *text);
    put(w, seq, from, from + n, false);
    kv_commit(&w->kv, seq, n, false);
    if (fails) {
        kv_trim(&w->kv, seq, from);
        return;
    }
    was[0] = kv_free_pages(&w->kv, 0);
    prefix_insert(&w->kv, seq, from, w->token[seq] + from, n);
    w->n_merged += kv_free_pages(&w->kv, 0) > was[0];
    kv_trim_windows(&w->kv, seq);
    w->n[seq] += n;
    if (test_below(&w->seed, 2))
        kv_checkpoint(&w->kv, seq);
}

static void trim(struct world *w, int seq, int64_t n)
{
    int64_t known = w->kv.prefix->seq[seq].n;

    n = kv_trimmable_length(&w->kv, seq, n);
    prefix_insert_state(&w->kv, seq);
    kv_trim(&w->kv, seq, n);
    w->n[seq] = n;
    w->known[seq] |= n <= known;
}

static void copy(struct world *w, int dst, int src)
{
    pl_err err;

    if (dst == src)
        return;
    w->known[dst] = true;
    w->n[dst] = 0;
    if (kv_copy(&w->kv, dst, src, copy_page, w, &err) != PL_OK)
        return;
    memcpy(w->token[dst], w->token[src], sizeof w->token[dst]);
    w->n[dst] = w->n[src];
    w->known[dst] = w->known[src];
}

/* Replaces a sequence by a saved past, whose tokens are unknown. */
static void replace(struct world *w, int seq, const int32_t *text, int64_t n)
{
    int row = kv_shadow_seq(&w->kv, seq);
    pl_err err;

    if (kv_reserve(&w->kv, row, n, true, copy_page, w, &err) != PL_OK) {
        kv_trim(&w->kv, row, 0);
        return;
    }
    kv_commit(&w->kv, row, n, true);
    memcpy(w->token[row], text, (size_t)n * sizeof *text);
    put(w, row, 0, n, true);
    memcpy(w->token[seq], text, (size_t)n * sizeof *text);
    kv_swap(&w->kv, seq, row);
    kv_trim(&w->kv, row, 0);
    kv_trim_windows(&w->kv, seq);
    w->n[seq] = n;
    w->known[seq] = n == 0;
}

/* Appends a part of a saved past to a sequence. */
static void append(struct world *w, int seq, const int32_t *text, int64_t n)
{
    int64_t from = w->n[seq];
    pl_err err;

    if (n > N_TOKEN - from)
        n = N_TOKEN - from;
    if (n == 0 || kv_reserve(&w->kv, seq, n, true, copy_page, w, &err) != PL_OK)
        return;
    memcpy(w->token[seq] + from, text + from, (size_t)n * sizeof *text);
    put(w, seq, from, from + n, true);
    kv_commit(&w->kv, seq, n, true);
    kv_trim_windows(&w->kv, seq);
    w->n[seq] += n;
    w->known[seq] = false;
}

/* Returns true if the tree has all pages of a path that the token after it
 * sees. */
static bool is_there(const struct world *w, int node, int64_t n)
{
    const struct prefix_node *x = w->kv.prefix->node;

    for (int k = 0; k < w->kv.n_pool; k++) {
        const struct kv_pool *p = &w->kv.pool[k];
        int64_t i = (n - 1) / PAGE_TOKENS;

        if (p->state && x[node].page[k] < 0)
            return false;
        for (int at = node; at >= 0 && !p->state; at = x[at].parent, i--) {
            int64_t end = (i + 1) * PAGE_TOKENS < n ? (i + 1) * PAGE_TOKENS : n;
            bool seen = p->window == 0 || end > n - p->window + 1;

            if (seen && x[at].page[k] < 0)
                return false;
        }
    }
    return true;
}

/* Returns the longest prefix of at most n tokens, from a search through all
 * nodes. */
static int64_t look(const struct world *w, const int32_t *token, int64_t n)
{
    int64_t best = 0;

    for (int i = 0; i < w->kv.prefix->n_node; i++) {
        int32_t path[N_TOKEN];
        int64_t len;

        if (w->kv.prefix->node[i].n_tok == 0)
            continue;
        len = path_of(w, i, path);
        if (len <= n && len > best &&
            memcmp(path, token, (size_t)len * sizeof *path) == 0 &&
            is_there(w, i, len))
            best = len;
    }
    return best;
}

static void share(struct world *w, int seq, const int32_t *text, int64_t n)
{
    int64_t want, got;

    trim(w, seq, 0);
    want = look(w, text, n);
    got = prefix_match(&w->kv, seq, text, n);
    assert_int_equal(got, want);
    memcpy(w->token[seq], text, (size_t)got * sizeof *text);
    w->n[seq] = got;
    w->n_shared += got > 0;
    w->n_within += got % PAGE_TOKENS > 0;
}

/* Empties all sequences, and then evicts all cached pages. */
static void clear_all(struct world *w)
{
    for (int s = 0; s < N_SEQ; s++)
        trim(w, s, 0);
    check(w);
    for (int k = 0; k < w->kv.n_pool; k++)
        assert_int_equal(kv_free_pages(&w->kv, k), w->kv.pool[k].n_page);
    for (int k = 0; k < w->kv.n_pool; k++)
        while (prefix_evict_lru(&w->kv, k))
            continue;
    for (int k = 0; k < w->kv.n_pool; k++)
        assert_int_equal(w->kv.pool[k].n_free, w->kv.pool[k].n_page);
    assert_int_equal(n_used(w), 0);
}

/* Returns a text that follows one text up to a point, and then another. */
static const int32_t *some_text(struct world *w, int32_t *mixed)
{
    int64_t at = test_below(&w->seed, N_TOKEN);
    const int32_t *a = w->text[test_below(&w->seed, N_TEXT)];

    memcpy(mixed, w->text[test_below(&w->seed, N_TEXT)], sizeof w->text[0]);
    if (test_below(&w->seed, 2))
        memcpy(mixed + at, a + at, (size_t)(N_TOKEN - at) * sizeof *mixed);
    return mixed;
}

static void call(struct world *w)
{
    int seq = (int)test_below(&w->seed, N_SEQ);
    int other = (int)test_below(&w->seed, N_SEQ);
    int32_t mixed[N_TOKEN];
    const int32_t *text = some_text(w, mixed);

    w->fail_copy = test_below(&w->seed, 8) == 0;
    switch (test_below(&w->seed, 9)) {
    case 0:
        copy(w, other, seq);
        break;
    case 1:
        trim(w, seq, test_below(&w->seed, w->n[seq] + 1));
        break;
    case 2:
    case 3:
        share(w, seq, text, test_below(&w->seed, N_TOKEN));
        break;
    case 4:
        if (test_below(&w->seed, 4) == 0)
            replace(w, seq, text, 1 + test_below(&w->seed, 200));
        else if (test_below(&w->seed, 3) == 0)
            append(w, seq, text, test_below(&w->seed, 200));
        else if (test_below(&w->seed, 20) == 0)
            clear_all(w);
        break;
    case 5:
        trim(w, seq, 0);
        break;
    default:
        extend(w, seq, text,
               test_below(&w->seed, test_below(&w->seed, 2) ? 6 : 200),
               test_below(&w->seed, 5) == 0);
    }
}

TEST(kv_prefixes_are_found_and_cost_nothing)
{
    static struct world w;
    int n_call = test_draws(10000, 100000), n_within = 0;

    for (int kind = 0; kind < N_KIND; kind++) {
        world_open(&w, kind, test_seed() + (uint64_t)kind);
        for (int k = 0; k < n_call; k++) {
            alloc_stat_reset();
            call(&w);
            assert_int_equal(alloc_stat_get().n_call, 0);
            check(&w);
        }
        clear_all(&w);
        print_message("kind %d: %d shared, %d within a page, %d merged, nodes "
                      "given up %d times\n",
                      kind, w.n_shared, w.n_within, w.n_merged, w.n_given_up);
        assert_true(w.n_shared > n_call / 40);
        n_within += w.n_within;
        kv_fini(&w.kv);
    }
    assert_true(n_within > n_call / 40);
}

/* Earlier results are not reused any more, but no sequence loses its own. */
TEST(kv_prefixes_are_forgotten)
{
    static struct world w;

    for (int kind = 0; kind < N_KIND; kind++) {
        world_open(&w, kind, test_seed());
        extend(&w, 0, w.text[0], 150, false);
        extend(&w, 1, w.text[0], 100, false);
        trim(&w, 1, 0);
        prefix_clear(&w.kv);
        assert_int_equal(n_used(&w), 0);
        w.known[0] = false;
        check(&w);
        share(&w, 1, w.text[0], 149);
        assert_int_equal(w.n[1], 0);
        /* tokens added to a sequence of unknown tokens, which stay unknown */
        extend(&w, 0, w.text[0], 50, false);
        assert_int_equal(n_used(&w), 0);
        trim(&w, 0, 0);
        extend(&w, 0, w.text[0], 150, false);
        check(&w);
        assert_true(n_used(&w) > 0 ||
                    (kinds[kind].pool[0].state && w.kv.n_checkpoint == 0));
        kv_fini(&w.kv);
    }
}

/* The page that was unused for the longest time is evicted first, and never a
 * page of a sequence. */
TEST(kv_prefixes_unused_go_first)
{
    static struct world w;

    world_open(&w, 0, test_seed()); /* a cache of 9 pages */
    extend(&w, 0, w.text[0], 130, false);
    for (int t = 1; t < N_TEXT; t++) {
        extend(&w, 1, w.text[t], 3 * PAGE_TOKENS, false);
        trim(&w, 1, 0);
    }
    /* this prefix is used once more */
    share(&w, 1, w.text[1], 3 * PAGE_TOKENS);
    assert_int_equal(w.n[1], 3 * PAGE_TOKENS);
    trim(&w, 1, 0);
    /* until 5 pages are left, two of which are sequence 0's */
    while (n_used(&w) > 5)
        assert_true(prefix_evict_lru(&w.kv, 0));
    check(&w);
    /* the prefix used last is the last to be evicted */
    share(&w, 1, w.text[1], 3 * PAGE_TOKENS);
    assert_int_equal(w.n[1], 3 * PAGE_TOKENS);
    trim(&w, 1, 0);
    while (prefix_evict_lru(&w.kv, 0))
        check(&w);
    assert_int_equal(n_used(&w), 2);
    kv_fini(&w.kv);
}

/* A sequence that continues within its last page needs no other page: if none
 * is free, the tree drops its reference. */
TEST(kv_prefixes_leave_the_last_page)
{
    static struct world w;

    world_open(&w, 0, test_seed());
    extend(&w, 0, w.text[0], 9 * PAGE_TOKENS, false);
    assert_int_equal(kv_free_pages(&w.kv, 0), 0);
    assert_int_equal(n_used(&w), 9);
    trim(&w, 0, 9 * PAGE_TOKENS - 1);
    extend(&w, 0, w.text[1], 1, false);
    assert_int_equal(w.n[0], 9 * PAGE_TOKENS);
    check(&w);
    kv_fini(&w.kv);
}

TEST(kv_prefixes_without_memory_are_refused)
{
    for (int kind = 0; kind < N_KIND; kind++)
        for (int64_t n = 0; alloc_each(&n);) {
            pl_graph g = {.n_pool = kinds[kind].n_pool};
            struct kv kv;
            pl_status s;

            memcpy(g.pool, kinds[kind].pool, sizeof g.pool);
            s = kv_init(&kv, 2, 3, &g, (int[]){9, 9, 9, 9}, NULL);
            alloc_ran(s == PL_OK ? prefix_init(&kv, NULL) : s);
            kv_fini(&kv);
        }
}
