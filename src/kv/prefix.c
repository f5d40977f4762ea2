/* The prefix tree of cached pages, and the LRU rings of evictable pages; see
 * prefix.h.
 *
 * Finding whole pages by a hash of the tokens before and in them is vLLM's idea
 * (automatic prefix caching). A tree whose leaves are evicted first is SGLang's
 * idea (RadixAttention, arXiv:2312.07104). */
#include "kv/prefix.h"

#include "base/err.h"
#include "base/hash64.h"
#include "kv/states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if the pool keeps all tokens of a sequence: it has no window and
 * is not the pool of states. */
static bool holds_all(const struct kv_pool *p)
{
    return !p->state && p->window == 0;
}

/* Pages: the LRU rings and the references of nodes ------------------------- */

/* Adds a page to the LRU ring of its pool. The ring is in the order of last
 * use, the page that was not used for the longest time first. Element n_page is
 * the sentinel of the ring. */
void prefix_lru_add(struct kv_pool *p, int32_t page)
{
    struct lru_link *end = &p->evictable[p->n_page], *own = &p->evictable[page];

    *own = (struct lru_link){p->n_page, end->before, ++p->clock};
    p->evictable[end->before].next = page;
    end->before = page;
    p->n_evictable++;
}

void prefix_lru_remove(struct kv_pool *p, int32_t page)
{
    const struct lru_link own = p->evictable[page];

    p->evictable[own.before].next = own.next;
    p->evictable[own.next].before = own.before;
    p->n_evictable--;
}

static void mark_dirty(struct prefix *x, int node)
{
    struct prefix_node *v = &x->node[node], *end = &x->node[x->n_node];

    if (v->dirty)
        return;
    v->dirty = true;
    v->dirty_next = x->n_node;
    v->dirty_before = end->dirty_before;
    x->node[end->dirty_before].dirty_next = node;
    end->dirty_before = node;
}

static void mark_clean(struct prefix *x, int node)
{
    struct prefix_node *v = &x->node[node];

    if (!v->dirty)
        return;
    v->dirty = false;
    x->node[v->dirty_before].dirty_next = v->dirty_next;
    x->node[v->dirty_next].dirty_before = v->dirty_before;
}

/* Makes a node of the prefix tree reference a page that a sequence holds, and
 * marks the node dirty. */
static void attach_page(struct kv *kv, int pool, int node, int32_t page)
{
    struct kv_pool *p = &kv->pool[pool];

    assert(p->holder[page] < 0 && p->refs[page] > 0);
    p->refs[page]++;
    p->holder[page] = node;
    kv->prefix->node[node].page[pool] = page;
    mark_dirty(kv->prefix, node);
}

static void detach_page(struct kv *kv, int pool, int node)
{
    struct kv_pool *p = &kv->pool[pool];
    int32_t *page = &kv->prefix->node[node].page[pool];

    if (*page < 0)
        return;
    if (p->refs[*page] == 1)
        prefix_lru_remove(p, *page);
    p->holder[*page] = -1;
    kv_unref_page(p, page);
}

/* Nodes of the prefix tree ------------------------------------------------- */

/* Returns the hash bucket of the node with this parent and these n tokens. All
 * nodes of one parent with less than PAGE_TOKENS tokens share a bucket, because
 * a lookup does not know how many tokens they have. */
static int *bucket_of(const struct prefix *x, int parent, const int32_t *token,
                      int n)
{
    size_t bytes = n == PAGE_TOKENS ? sizeof *token * PAGE_TOKENS : 0;

    return &x->bucket[hash64((uint64_t)parent + 1, token, bytes) & x->mask];
}

static bool is(const struct prefix_node *v, int parent, const int32_t *token,
               int n)
{
    return v->parent == parent && v->n_tok == n &&
           memcmp(v->token, token, (size_t)n * sizeof *token) == 0;
}

static int find(const struct prefix *x, int parent, const int32_t *token, int n)
{
    int i = *bucket_of(x, parent, token, n);

    while (i >= 0 && !is(&x->node[i], parent, token, n))
        i = x->node[i].next;
    return i;
}

/* Frees a node that has neither children nor sequences (n_user), and releases
 * its pages. Returns its parent, or -1 if it has none. */
static int free_node(struct kv *kv, int node)
{
    struct prefix *x = kv->prefix;
    struct prefix_node *v = &x->node[node];
    int *at = bucket_of(x, v->parent, v->token, v->n_tok);
    int parent = v->parent;

    assert(v->n_user == 0);
    for (int k = 0; k < kv->n_pool; k++)
        detach_page(kv, k, node);
    while (*at != node)
        at = &x->node[*at].next;
    *at = v->next;
    mark_clean(x, node);
    v->n_tok = 0;
    v->next = x->unused;
    x->unused = node;
    if (parent >= 0)
        x->node[parent].n_user--;
    return parent;
}

/* Frees a node if it references no page and has neither children nor sequences.
 * Then does the same with its parent, and so on towards the root. */
static void prune(struct kv *kv, int node)
{
    while (node >= 0 && kv->prefix->node[node].n_user == 0) {
        for (int k = 0; k < kv->n_pool; k++)
            if (kv->prefix->node[node].page[k] >= 0)
                return;
        node = free_node(kv, node);
    }
}

/* Releases the page that a node references in a pool. Frees the node if nothing
 * can be continued from it without that page: in a pool without a window, and
 * for a leaf with a partly filled page. */
static void evict_page(struct kv *kv, int pool, int node)
{
    if (holds_all(&kv->pool[pool]) ||
        kv->prefix->node[node].n_tok < PAGE_TOKENS) {
        prune(kv, free_node(kv, node));
        return;
    }
    detach_page(kv, pool, node);
    prune(kv, node);
}

bool prefix_evict_lru(struct kv *kv, int pool)
{
    struct kv_pool *p = &kv->pool[pool];

    if (p->n_evictable == 0)
        return false;
    evict_page(kv, pool, p->holder[p->evictable[p->n_page].next]);
    return true;
}

void prefix_detach_page(struct kv *kv, int pool, int32_t page)
{
    evict_page(kv, pool, kv->pool[pool].holder[page]);
}

/* Returns a new node without pages, or -1. If no node is unused, evicts pages
 * until the node of one is freed; returns -1 if no page is evictable. */
static int make(struct kv *kv, int parent, const int32_t *token, int n)
{
    struct prefix *x = kv->prefix;
    struct prefix_node *v;
    bool found = true;
    int *bucket, node;

    while (x->unused < 0 && found) {
        found = false;
        for (int k = 0; k < kv->n_pool && !found; k++)
            found = prefix_evict_lru(kv, k);
    }
    if (x->unused < 0)
        return -1;
    node = x->unused;
    v = &x->node[node];
    x->unused = v->next;
    bucket = bucket_of(x, parent, token, n);
    *v = (struct prefix_node){.parent = parent, .next = *bucket, .n_tok = n};
    *bucket = node;
    memcpy(v->token, token, (size_t)n * sizeof *token);
    for (int k = 0; k < PL_MAX_POOL; k++)
        v->page[k] = -1;
    if (parent >= 0)
        x->node[parent].n_user++;
    return node;
}

/* The whole tree ----------------------------------------------------------- */

/* Returns the number of nodes to allocate. If a pool has no window, each node
 * references one of its pages, so there are never more nodes than pages. If all
 * pools have windows, nodes may be without pages: adds nodes for the paths of
 * four contexts. */
static int64_t count_nodes(const struct kv *kv)
{
    int64_t n = 4 * (int64_t)kv->stride;

    for (int k = 0; k < kv->n_pool; k++) {
        if (holds_all(&kv->pool[k]))
            return kv->pool[k].n_page;
        n += kv->pool[k].n_page;
    }
    return n;
}

/* Marks all nodes unused. Forgets the recorded tokens of all sequences (struct
 * prefix_seq). */
static void empty(struct kv *kv)
{
    struct prefix *x = kv->prefix;

    for (int i = 0; i < x->n_node; i++) {
        x->node[i].n_tok = 0;
        x->node[i].dirty = false;
        x->node[i].next = i + 1 < x->n_node ? i + 1 : -1;
    }
    x->node[x->n_node].dirty_next = x->n_node;
    x->node[x->n_node].dirty_before = x->n_node;
    x->unused = x->n_node > 0 ? 0 : -1;
    for (uint64_t i = 0; i <= x->mask; i++)
        x->bucket[i] = -1;
    for (int i = 0; i < 2 * kv->n_seq; i++) {
        x->seq[i].n = 0;
        x->seq[i].node = -1;
    }
}

static pl_status pool_init(struct kv_pool *p, pl_err *err)
{
    size_t n = (size_t)p->n_page + 1;

    p->holder = malloc(n * sizeof *p->holder);
    p->evictable = calloc(n, sizeof *p->evictable);
    if (!p->holder || !p->evictable)
        return err_no_memory(err, "prefixes");
    for (int i = 0; i < p->n_page; i++)
        p->holder[i] = -1;
    p->evictable[p->n_page] = (struct lru_link){p->n_page, p->n_page, 0};
    return PL_OK;
}

pl_status prefix_init(struct kv *kv, pl_err *err)
{
    struct prefix *x = calloc(1, sizeof *x);
    size_t n, n_bucket = 16;

    kv->prefix = x;
    if (!x)
        return err_no_memory(err, "prefixes");
    for (int k = 0; k < kv->n_pool; k++)
        PL_TRY(pool_init(&kv->pool[k], err));
    n = (size_t)count_nodes(kv);
    while (n_bucket < n)
        n_bucket *= 2;
    x->n_node = (int)n;
    x->mask = n_bucket - 1;
    x->node = calloc(n + 1, sizeof *x->node);
    x->bucket = calloc(n_bucket, sizeof *x->bucket);
    x->seq = calloc(2 * (size_t)kv->n_seq + 1, sizeof *x->seq);
    if (!x->node || !x->bucket || !x->seq)
        return err_no_memory(err, "prefixes");
    empty(kv);
    return PL_OK;
}

void prefix_fini(struct kv *kv)
{
    for (int k = 0; k < kv->n_pool; k++) {
        free(kv->pool[k].holder);
        free(kv->pool[k].evictable);
    }
    if (!kv->prefix)
        return;
    free(kv->prefix->node);
    free(kv->prefix->bucket);
    free(kv->prefix->seq);
    free(kv->prefix);
}

void prefix_clear(struct kv *kv)
{
    if (!kv->prefix)
        return;
    for (int i = 0; i < kv->prefix->n_node; i++)
        for (int k = 0; k < kv->n_pool; k++)
            if (kv->prefix->node[i].n_tok > 0)
                detach_page(kv, k, i);
    empty(kv);
}

/* Sequences: recording their tokens in the tree ---------------------------- */

/* Sets the node of the last full page of a sequence. Frees the node that it had
 * before if nothing needs it any longer. */
static void set_seq_node(struct kv *kv, struct prefix_seq *q, int node)
{
    int old = q->node;

    if (node >= 0)
        kv->prefix->node[node].n_user++;
    q->node = node;
    if (old < 0)
        return;
    kv->prefix->node[old].n_user--;
    prune(kv, old);
}

/* Makes a sequence and a node use the same page in each pool, for page i of the
 * sequence. If the node has no page yet, it references the sequence's. If both
 * have one, the sequence's page is released and the node's takes its place. */
static void dedup_page(struct kv *kv, int seq, int64_t i, int node)
{
    for (int k = 0; k < kv->n_pool; k++) {
        struct kv_pool *p = &kv->pool[k];
        int32_t *own = &kv_row(kv, p, seq)[i];
        int32_t page = kv->prefix->node[node].page[k];

        if (p->state || *own < 0 || *own == page)
            continue;
        if (page < 0) {
            attach_page(kv, k, node, *own);
            continue;
        }
        kv_ref_page(p, page);
        kv_unref_page(p, own);
        *own = page;
    }
}

void prefix_insert(struct kv *kv, int seq, int64_t pos, const int32_t *token,
                   int64_t n)
{
    struct prefix_seq *q;

    if (!kv->prefix || kv->prefix->seq[seq].n != pos)
        return;
    q = &kv->prefix->seq[seq];
    for (int64_t i = 0; i < n; i++) {
        int node;

        q->token[q->n++ % PAGE_TOKENS] = token[i];
        if (q->n % PAGE_TOKENS)
            continue;
        node = find(kv->prefix, q->node, q->token, PAGE_TOKENS);
        if (node < 0)
            node = make(kv, q->node, q->token, PAGE_TOKENS);
        if (node < 0) { /* the tree is full: tokens from this page on are not
                           recorded */
            q->n -= PAGE_TOKENS;
            return;
        }
        dedup_page(kv, seq, q->n / PAGE_TOKENS - 1, node);
        set_seq_node(kv, q, node);
    }
}

/* Adds a leaf for a sequence that ends within a page, so that the leaf can
 * reference its state. The leaf has the m tokens in that page and references
 * the page. Returns the leaf, or -1 if the page is missing or no node is
 * free. */
static int make_leaf(struct kv *kv, int seq, int m)
{
    const struct prefix_seq *q = &kv->prefix->seq[seq];
    int64_t i = q->n / PAGE_TOKENS;
    int node;

    for (int k = 0; k < kv->n_pool; k++) {
        const struct kv_pool *p = &kv->pool[k];
        int32_t page = kv_row(kv, p, seq)[i];

        if (!p->state && (page < 0 || p->holder[page] >= 0))
            return -1;
    }
    node = make(kv, q->node, q->token, m);
    for (int k = 0; k < kv->n_pool && node >= 0; k++)
        if (!kv->pool[k].state)
            attach_page(kv, k, node, kv_row(kv, &kv->pool[k], seq)[i]);
    return node;
}

void prefix_insert_state(struct kv *kv, int seq)
{
    const struct prefix_seq *q;
    struct kv_pool *p;
    int32_t *w, slot;
    int m, node;

    if (!kv->prefix || kv->states < 0)
        return;
    q = &kv->prefix->seq[seq];
    p = &kv->pool[kv->states];
    w = kv_row(kv, p, seq);
    if (q->n == 0 || w[STATE_AT] != q->n || w[STATE_READ] < 0)
        return;
    m = (int)(q->n % PAGE_TOKENS);
    node = m ? find(kv->prefix, q->node, q->token, m) : q->node;
    slot = node >= 0 ? kv->prefix->node[node].page[kv->states] : -1;
    /* The state is cached already: makes its slot the one that was used
     * last. */
    if (slot >= 0 && p->refs[slot] == 1) {
        prefix_lru_remove(p, slot);
        prefix_lru_add(p, slot);
    }
    if (slot >= 0 || p->holder[w[STATE_READ]] >= 0)
        return;
    if (node < 0)
        node = make_leaf(kv, seq, m);
    if (node >= 0)
        attach_page(kv, kv->states, node, w[STATE_READ]);
}

void prefix_trim(struct kv *kv, int seq, int64_t n)
{
    struct prefix_seq *q;
    int64_t full;
    int node;

    if (!kv->prefix || n >= kv->prefix->seq[seq].n)
        return;
    q = &kv->prefix->seq[seq];
    full = q->n / PAGE_TOKENS;
    q->n = n;
    if (full == n / PAGE_TOKENS)
        return;
    for (node = q->node; full > n / PAGE_TOKENS + 1; full--)
        node = kv->prefix->node[node].parent;
    memcpy(q->token, kv->prefix->node[node].token, sizeof q->token);
    set_seq_node(kv, q, kv->prefix->node[node].parent);
}

void prefix_copy(struct kv *kv, int dst, int src)
{
    struct prefix_seq *q;

    if (!kv->prefix)
        return;
    q = &kv->prefix->seq[dst];
    *q = kv->prefix->seq[src];
    if (q->node >= 0)
        kv->prefix->node[q->node].n_user++;
}

void prefix_swap(struct kv *kv, int a, int b)
{
    struct prefix_seq other;

    if (!kv->prefix)
        return;
    other = kv->prefix->seq[a];
    kv->prefix->seq[a] = kv->prefix->seq[b];
    kv->prefix->seq[b] = other;
}

/* Finding the longest cached prefix and sharing its pages ------------------ */

/* A path of n tokens from the root of the prefix tree to `node`. Some pages of
 * its nodes may have been evicted: in pool k, all pages with index since[k] or
 * above are still cached. */
struct path {
    int node; /* last node of the path, -1 if the path is empty */
    int64_t n;
    int since[PL_MAX_POOL];
};

/* Returns true if a sequence can continue after path t: in each pool, all pages
 * to which the next token attends are cached, and so is the state. */
static bool can_resume(const struct kv *kv, const struct path *t)
{
    for (int k = 0; k < kv->n_pool; k++) {
        const struct kv_pool *p = &kv->pool[k];

        if (p->state ? kv->prefix->node[t->node].page[k] < 0
                     : t->since[k] > kv_first_visible(p->window, t->n))
            return false;
    }
    return true;
}

/* Looks among the leaves after path t that end within a page for one whose
 * tokens are the next ones, at most `most`. If the path up to it is longer than
 * *best and a sequence can continue there, sets *best to it. */
static void try_leaves(const struct kv *kv, const struct path *t,
                       const int32_t *token, int64_t most, struct path *best)
{
    const struct prefix *x = kv->prefix;

    for (int i = *bucket_of(x, t->node, token, 0); i >= 0;
         i = x->node[i].next) {
        int n = x->node[i].n_tok;
        struct path leaf = *t;

        leaf.node = i;
        leaf.n += n;
        if (n < PAGE_TOKENS && n <= most &&
            is(&x->node[i], t->node, token, n) && leaf.n > best->n &&
            can_resume(kv, &leaf))
            *best = leaf;
    }
}

/* Returns the longest path whose tokens are the first of token[0 .. most) and
 * after which a sequence can continue. */
static struct path longest(const struct kv *kv, const int32_t *token,
                           int64_t most)
{
    struct path t = {.node = -1}, best = t;

    for (; most >= t.n; token += PAGE_TOKENS) {
        if (kv->states >= 0)
            try_leaves(kv, &t, token, most - t.n, &best);
        if (most - t.n < PAGE_TOKENS)
            break;
        t.node = find(kv->prefix, t.node, token, PAGE_TOKENS);
        if (t.node < 0)
            break;
        t.n += PAGE_TOKENS;
        for (int k = 0; k < kv->n_pool; k++)
            if (kv->prefix->node[t.node].page[k] < 0)
                t.since[k] = kv_pages_of(t.n);
        if (can_resume(kv, &t))
            best = t;
    }
    return best;
}

/* Makes a sequence without pages share the pages of path t in one pool. In a
 * pool with a window, it shares only those that a sequence of this length keeps
 * and that are still cached. */
static void take_pages(struct kv *kv, int pool, int seq, const struct path *t)
{
    struct kv_pool *p = &kv->pool[pool];
    int32_t *row = kv_row(kv, p, seq);
    int i = kv_pages_of(t->n), from = kv_first_kept(p->window, t->n);

    if (from < t->since[pool])
        from = t->since[pool];
    for (int node = t->node; i > from; node = kv->prefix->node[node].parent) {
        row[--i] = kv->prefix->node[node].page[pool];
        kv_ref_page(p, row[i]);
    }
    p->first[seq] = i;
}

int64_t prefix_match(struct kv *kv, int seq, const int32_t *token, int64_t most)
{
    struct path t;
    struct prefix_seq *q;
    const struct prefix_node *last;
    int m;

    if (!kv->prefix)
        return 0;
    t = longest(kv, token, most);
    if (t.node < 0)
        return 0;
    last = &kv->prefix->node[t.node];
    q = &kv->prefix->seq[seq];
    m = (int)(t.n % PAGE_TOKENS);
    for (int k = 0; k < kv->n_pool; k++)
        if (!kv->pool[k].state)
            take_pages(kv, k, seq, &t);
    if (kv->states >= 0)
        states_attach(kv, seq, t.n, last->page[kv->states]);
    kv->length[seq] = q->n = t.n;
    memcpy(q->token, last->token, (size_t)m * sizeof *q->token);
    set_seq_node(kv, q, m ? last->parent : t.node);
    return t.n;
}

int64_t prefix_match_length(const struct kv *kv, const int32_t *token,
                            int64_t most)
{
    return kv->prefix ? longest(kv, token, most).n : 0;
}

/* Copying pages to the tiers ----------------------------------------------- */

int prefix_next_dirty(const struct kv *kv)
{
    const struct prefix *x = kv->prefix;
    int first = x ? x->node[x->n_node].dirty_next : -1;

    return x && first < x->n_node ? first : -1;
}

void prefix_mark_clean(struct kv *kv, int node)
{
    if (node >= 0)
        mark_clean(kv->prefix, node);
}

int prefix_node_of(const struct kv *kv, int seq)
{
    const struct prefix_seq *q;
    int m;

    if (!kv->prefix)
        return -1;
    q = &kv->prefix->seq[seq];
    m = (int)(q->n % PAGE_TOKENS);
    return m ? find(kv->prefix, q->node, q->token, m) : q->node;
}

int64_t prefix_path(const struct kv *kv, int node, int32_t *token)
{
    const struct prefix_node *all = kv->prefix->node;
    int64_t n = 0, at;

    for (int i = node; i >= 0; i = all[i].parent)
        n += all[i].n_tok;
    at = n;
    for (int i = node; i >= 0; i = all[i].parent) {
        at -= all[i].n_tok;
        memcpy(token + at, all[i].token, (size_t)all[i].n_tok * sizeof *token);
    }
    return n;
}
