/* Computes token masks: walks the trie of the vocabulary's tokens with a set of
 * stacks (stacks.h).
 *
 * The states on top of the stacks decide most tokens; the states below matter
 * only once a rule on top has ended. So the items of a set are grouped by the
 * set of stacks below them. The states of such a group are called a *top*. The
 * mask of a top is computed once, as if nothing were below. Tokens that end
 * before a rule of the top may end are accepted or rejected for good. The trie
 * nodes where a rule of the top may have ended are listed with the mask. For
 * each set with this top, the walk continues from these nodes with the stacks
 * below. A node is listed only if some token continues there with a byte that
 * may follow the rule. XGrammar (arXiv:2411.15100) divides tokens likewise.
 *
 * Each position in a long repetition is a state of its own. Tokens are walked
 * by reach, a class of token lengths (reach.h), and all positions that tokens
 * of a reach cannot distinguish share one top. So far from its end a repetition
 * has only one top, however long the text is.
 *
 * A text may nest at most STACKS_DEPTH calls. Near this limit the accepted
 * tokens depend on the number of calls below, so the whole set is walked
 * instead. */
#include "base/err.h"
#include "grammar/grammar_inner.h"
#include "grammar/mask_cache.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

enum {
    USUAL_CACHE_BYTES = 64 << 20,
    POOL_BYTES = 32 << 20, /* size in bytes above which sets that nothing uses
                              any more are freed */
    /* takes_all, a test that may spare walking below a node, is tried for nodes
     * with more leaves below them than this. */
    LARGE_BRANCH = 2,
};

struct grammar_masks {
    const struct grammar *g; /* the grammar; `g`, `a` and `v` are borrowed */
    const struct automaton *a;
    const struct grammar_vocab *v;
    struct stacks stacks;
    size_t pool_bytes;
    struct mask_cache cache;
    struct grammar_state *state; /* first of the list of all states of these
                                    masks; not owned */
    uint32_t n_word;
    uint32_t *bits; /* owned, [n_word]: the mask that make_top computes */
    /* Owned, [2, n_top]: scratch for gather_top. Row 0 has the states of a top,
     * row 1 the states that represent them (automaton.alike). */
    uint32_t *top;
    struct pop *pop; /* owned, [n_pop], capacity cap_pop: positions listed for
                        the top */
    uint32_t n_pop, cap_pop, n_top;
};

struct grammar_state {
    struct grammar_masks *m; /* the masks for which the state was created;
                                borrowed */
    struct grammar_state *next, **link;
    uint32_t set;
    bool ended;
};

static pl_status no_memory(pl_err *err)
{
    return err_no_memory(err, "the masks of a grammar");
}

/* Sets the error if a set of stacks or a mask could not be computed since
 * stacks_begin: lack of memory, or a limit of ambiguous grammars. */
static pl_status check(const struct grammar_masks *m, pl_err *err)
{
    if (m->stacks.status != PL_UNSUPPORTED)
        return m->stacks.status == PL_OK ? PL_OK : no_memory(err);
    return err_set(err, PL_UNSUPPORTED,
                   "the grammar is too ambiguous here, it needs more than %d "
                   "steps or %d MiB; let alternatives begin with different "
                   "text, and repeat arbitrary text less",
                   (int)STACKS_MOST_PUSHES, (int)(STACKS_MOST_BYTES >> 20));
}

/* ---- walks over the trie of tokens --------------------------------------- */

/* A walk over the trie of tokens. It sets the bits of accepted tokens in the
 * mask `bits`. */
struct walk {
    struct grammar_masks *m;
    uint32_t *bits;
    /* The bytes that may follow a rule of the top (see the head of this file).
     * The walk lists positions where such a rule may have ended only if one of
     * these bytes comes next. NULL: no positions are listed. */
    const struct byte_set *after;
    /* Number of nodes and leaves that may still be visited. Once it is
     * negative, the walk gives up. */
    int64_t most;
    /* Greatest number of states on a stack so far. */
    uint16_t depth;
    bool gave_up;
};

/* Returns true if a token with the node's prefix continues with one of the
 * bytes `after`. */
static bool may_go_on(const struct grammar_vocab *v,
                      const struct trie_node *node,
                      const struct byte_set *after)
{
    const struct char_kinds *k = &node->kinds;

    if (!k->others && !(k->ascii[0] & after->bits[0]) &&
        !(k->ascii[1] & after->bits[1]))
        return false;
    for (uint32_t i = node->leaf; i < trie_leaf_end(v, node); i++)
        if (byte_set_has(after, v->leaf_byte[i]))
            return true;
    for (uint32_t i = 0; i < node->n_child; i++)
        if (byte_set_has(after, v->node_byte[node->child + i]))
            return true;
    return false;
}

static void list_pop(struct walk *w, struct pop pop)
{
    struct grammar_masks *m = w->m;

    if (m->n_pop == m->cap_pop) {
        uint32_t cap = m->cap_pop ? 2 * m->cap_pop : 1024;
        struct pop *more = realloc(m->pop, cap * sizeof *more);

        if (!more) {
            stacks_fail(&m->stacks, PL_NO_MEMORY);
            return;
        }
        m->pop = more;
        m->cap_pop = cap;
    }
    m->pop[m->n_pop++] = pop;
}

static void list_node(struct walk *w, uint32_t i)
{
    const struct trie_node *node = &w->m->v->node[i];

    if (!may_go_on(w->m->v, node, w->after))
        return;
    w->most -= node->end - node->leaf;
    list_pop(w, (struct pop){.at = i});
}

/* Returns the one set of stacks that `set` becomes after any character whose
 * next byte is in [lo .. hi], followed by `more` further bytes. Returns
 * STACKS_DEAD if characters lead to different sets or one is not accepted.
 * Tries only one byte of each class that the grammar does not distinguish. */
static uint32_t after_long(struct stacks *s, uint32_t set, unsigned lo,
                           unsigned hi, int more)
{
    uint32_t all = STACKS_DEAD;

    for (unsigned b = lo; b <= hi; b++) {
        unsigned low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
        unsigned high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
        uint32_t to;

        if (b > lo && b < 0xc0 && s->a->class_of[b] == s->a->class_of[b - 1])
            continue;
        to = stacks_step(s, set, b);
        if (more > 0)
            to = after_long(s, to, low, high, more - 1);
        if (to == STACKS_DEAD || (b > lo && to != all))
            return STACKS_DEAD;
        all = to;
    }
    return all;
}

/* Finds the even ASCII characters of a set: those that all lead to the same
 * set. Sets `after` to the set to which most ASCII characters lead, and
 * even_ascii to these characters. Sets `after` to STACKS_EMPTY if there are
 * none. */
static void find_even(struct stacks *s, uint32_t set)
{
    enum { MOST = 8 };
    struct target {
        uint32_t to, n;
        uint64_t ascii[2];
    } target[MOST], *best = NULL;
    int n_target = 0;

    for (unsigned b = 0; b < 0x80; b++) {
        uint32_t to = stacks_step(s, set, b);
        struct target *t = target;

        if (to == STACKS_DEAD)
            continue;
        s->set[set].live_ascii[b >> 6] |= 1ull << (b & 63);
        if (to == STACKS_EMPTY)
            continue;
        while (t < target + n_target && t->to != to)
            t++;
        if (t == target + MOST)
            continue;
        if (t == target + n_target)
            target[n_target++] = (struct target){.to = to};
        t->n++;
        t->ascii[b >> 6] |= 1ull << (b & 63);
    }
    for (int i = 0; i < n_target; i++)
        if (!best || target[i].n > best->n)
            best = &target[i];
    if (s->status != PL_OK)
        return;
    s->set[set].after = best ? best->to : STACKS_EMPTY;
    for (int i = 0; i < 2 && best; i++)
        s->set[set].even_ascii[i] = best->ascii[i];
}

/* Like find_even, for non-ASCII characters. The characters of 2, 3 or 4 bytes
 * are even if all of that length lead to the set `after`. If there is no even
 * ASCII character, `after` becomes the set to which all characters of one
 * length lead, tried in the order of lengths. */
static void find_even_others(struct stacks *s, uint32_t set)
{
    uint32_t after = s->set[set].after;
    const uint32_t to[3] = {after_long(s, set, 0xc2, 0xdf, 1),
                            after_long(s, set, 0xe0, 0xef, 2),
                            after_long(s, set, 0xf0, 0xf4, 3)};

    if (s->status != PL_OK)
        return;
    for (int i = 0; i < 3; i++) {
        if (after == STACKS_EMPTY && to[i] != STACKS_DEAD)
            after = to[i];
        if (to[i] == after)
            s->set[set].even_others |= (uint8_t)(OTHER_TWO << i);
    }
    s->set[set].after = after;
    s->set[set].others_known = true;
}

static void find_others_dead(struct stacks *s, uint32_t set)
{
    bool dead = true;

    for (unsigned b = 0xc2; b <= 0xf4 && dead; b++)
        dead = stacks_step(s, set, b) == STACKS_DEAD;
    s->set[set].others_dead = dead;
    s->set[set].dead_known = s->status == PL_OK;
}

enum share { SHARE_SOME, SHARE_ALL, SHARE_NONE };

/* Returns SHARE_NONE if the set accepts no token below a trie node: it accepts
 * none of the characters `k`, with which all these tokens continue. Otherwise
 * returns SHARE_SOME. live_ascii of the set must be known (find_even). */
static enum share takes_none(struct stacks *s, uint32_t set,
                             const struct char_kinds *k)
{
    const uint64_t *live = s->set[set].live_ascii;

    if ((k->ascii[0] & live[0]) || (k->ascii[1] & live[1]) ||
        (k->others & OTHER_BAD))
        return SHARE_SOME;
    if (k->others && !s->set[set].dead_known)
        find_others_dead(s, set);
    return !k->others || s->set[set].others_dead ? SHARE_NONE : SHARE_SOME;
}

/* Returns SHARE_ALL if the set accepts all tokens below a trie node, so that
 * the nodes below need not be walked. It does if all characters of these tokens
 * are even (struct stack_set), for as many characters as the longest token has.
 * A rule that allows any character is such a case. Otherwise returns SHARE_NONE
 * or SHARE_SOME. If the node's last byte begins a longer character, `set` is
 * the set before that byte. Facts about sets that are not known yet are
 * computed only if `look`. Raises *depth to the depth of the stacks met. */
static enum share takes_all(struct stacks *s, uint32_t set,
                            const struct trie_node *node, bool look,
                            uint16_t *depth)
{
    const struct char_kinds *k = &node->kinds;
    const uint32_t first = set;

    for (uint32_t left = node->n_char; left > 0; left--) {
        const struct stack_set *at = &s->set[set];

        *depth = at->depth > *depth ? at->depth : *depth;
        if (!at->after && !look)
            return SHARE_SOME;
        if (!at->after)
            find_even(s, set);
        at = &s->set[set];
        if ((k->ascii[0] & ~at->even_ascii[0]) ||
            (k->ascii[1] & ~at->even_ascii[1]))
            return set == first ? takes_none(s, set, k) : SHARE_SOME;
        if (k->others && !at->others_known && !look)
            return SHARE_SOME;
        if (k->others && !at->others_known)
            find_even_others(s, set);
        at = &s->set[set];
        if (k->others & ~at->even_others)
            return set == first ? takes_none(s, set, k) : SHARE_SOME;
        if (at->after == set)
            return SHARE_ALL;
        set = at->after;
    }
    return SHARE_ALL;
}

static void add_leaf(uint32_t *bits, int32_t id, bool on)
{
    bits[id / 32] |= (uint32_t)on << id % 32;
}

/* Adds to the list m->pop the positions in a leaf's remaining bytes, from index
 * `at` of v->rest, where a rule of the top may have ended. */
static void list_rest(struct walk *w, struct stack_row *row, uint32_t leaf,
                      uint32_t at)
{
    const struct grammar_vocab *v = w->m->v;

    for (; at < v->rest_at[leaf + 1]; at++) {
        if (row->ends && byte_set_has(w->after, v->rest[at]))
            list_pop(w, (struct pop){v->n_node + leaf, at});
        row = stacks_step_row(&w->m->stacks, row, v->rest[at]);
    }
}

/* Reads a leaf's remaining bytes, from index `at` of v->rest. Sets the bit of
 * the leaf's token if the stacks accept all of them. */
static void walk_rest(struct walk *w, struct stack_row *row, uint32_t leaf,
                      uint32_t at)
{
    const struct grammar_vocab *v = w->m->v;
    struct stacks *s = &w->m->stacks;
    struct stack_row *from = row;
    uint32_t end = v->rest_at[leaf + 1];
    uint16_t depth = w->depth;
    bool ends = false;

    for (uint32_t i = at; i < end; i++) {
        ends |= row->ends;
        row = stacks_step_row(s, row, v->rest[i]);
        depth = row->depth > depth ? row->depth : depth;
    }
    w->depth = depth;
    add_leaf(w->bits, v->leaf_id[leaf], row->set != STACKS_DEAD);
    if (ends && w->after)
        list_rest(w, from, leaf, at);
}

/* Checks the tokens of the leaves directly below a node against the stacks of
 * `row`, and sets the bits of those that are accepted. */
static void walk_leaves(struct walk *w, struct stack_row *row,
                        const struct trie_node *node)
{
    const struct grammar_vocab *v = w->m->v;
    struct stacks *s = &w->m->stacks;
    uint32_t *bits = w->bits, end = trie_leaf_end(v, node);
    uint16_t depth = w->depth;

    for (uint32_t i = node->leaf; i < node->tail; i++) {
        const struct stack_row *to = stacks_step_row(s, row, v->leaf_byte[i]);

        depth = to->depth > depth ? to->depth : depth;
        add_leaf(bits, v->leaf_id[i], to->set != STACKS_DEAD);
    }
    w->depth = depth;
    for (uint32_t i = node->tail; i < end; i++) {
        struct stack_row *to = stacks_step_row(s, row, v->leaf_byte[i]);

        if (to->set != STACKS_DEAD)
            walk_rest(w, to, i, v->rest_at[i]);
    }
}

/* Sets the bits of the tokens of all leaves below a node, without checking
 * them. */
static void add_branch(struct walk *w, const struct trie_node *node)
{
    const struct grammar_vocab *v = w->m->v;
    const uint32_t *bits;

    if (node->wide) {
        bits = v->wide + (size_t)(node->wide - 1) * v->n_word;
        for (uint32_t i = 0; i < v->n_word; i++)
            w->bits[i] |= bits[i];
        return;
    }
    for (uint32_t i = node->leaf; i < node->end; i++)
        add_leaf(w->bits, v->leaf_id[i], true);
}

/* Handles trie node i after its last byte, which led from the set of `from` to
 * the set of `row`. Sets the bits of all its tokens if all are accepted, and
 * lists the node if a rule of the top may have ended. Returns true if the nodes
 * below it must be walked. */
static bool enter(struct walk *w, const struct stack_row *from,
                  const struct stack_row *row, uint32_t i)
{
    const struct grammar_vocab *v = w->m->v;
    const struct trie_node *node = &v->node[i];
    enum share share = SHARE_SOME;

    if (row->set == STACKS_DEAD)
        return false;
    if (node->end - node->leaf > LARGE_BRANCH)
        share =
            takes_all(&w->m->stacks,
                      trie_begins_char(v->node_byte[i]) ? from->set : row->set,
                      node, i < v->n_short, &w->depth);
    if (share == SHARE_ALL)
        add_branch(w, node);
    else if (w->after && row->ends)
        list_node(w, i);
    return share == SHARE_SOME && row->set != STACKS_EMPTY;
}

/* Sets the bits of the accepted tokens below trie node `node`. `row` is that of
 * the set of stacks after the node's prefix. */
static void walk(struct walk *w, struct stack_row *row, uint32_t node)
{
    const struct grammar_vocab *v = w->m->v;
    const struct trie_node *t = &v->node[node];

    walk_leaves(w, row, t);
    w->most -= 1 + trie_leaf_end(v, t) - t->leaf;
    w->gave_up |= w->most < 0;
    for (uint32_t i = t->child; i < t->child + t->n_child && !w->gave_up; i++) {
        struct stack_row *next =
            stacks_step_row(&w->m->stacks, row, v->node_byte[i]);

        w->depth = next->depth > w->depth ? next->depth : w->depth;
        if (enter(w, row, next, i))
            walk(w, next, i);
    }
}

/* ---- tops: the states above one set of stacks ---------------------------- */

/* Returns the bytes that may follow the rules to which the states on top of
 * `set` belong. */
static struct byte_set after_top(const struct automaton *a,
                                 const struct stack_set *set)
{
    struct byte_set after = {0};

    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t place = a->state[set->item[i].state].place;

        for (int k = 0; k < 4; k++)
            after.bits[k] |= a->after[place].bits[k];
    }
    return after;
}

/* Caches the mask `bits`, unless its computation has failed; see
 * mask_cache_put. */
static const struct mask_entry *put_mask(struct grammar_masks *m, int kind,
                                         uint32_t set, const uint32_t *bits,
                                         uint32_t n_pop, uint16_t depth)
{
    const struct mask_entry *e = NULL;

    if (m->stacks.status == PL_OK)
        e = mask_cache_put(&m->cache, kind, set, bits, m->pop, n_pop, depth);
    if (!e)
        stacks_fail(&m->stacks, PL_NO_MEMORY);
    return e;
}

/* Computes and caches the mask of a top: the tokens of one reach (reach.h) that
 * the states of the set `top` accept with nothing below them. Visits at most
 * *most nodes and leaves of the trie. If they do not suffice, caches an entry
 * whose depth makes add_top walk the whole set instead. Returns NULL on
 * failure. */
static const struct mask_entry *make_top(struct grammar_masks *m, int reach,
                                         uint32_t top, int64_t *most)
{
    struct byte_set after = after_top(m->a, &m->stacks.set[top]);
    struct walk w = {.m = m, .bits = m->bits, .after = &after, .most = *most};

    m->n_pop = 0;
    memset(m->bits, 0, m->n_word * sizeof *m->bits);
    walk(&w, stacks_row(&m->stacks, top), (uint32_t)reach);
    *most = w.gave_up ? 0 : w.most;
    if (w.gave_up) {
        memset(m->bits, 0, m->n_word * sizeof *m->bits);
        m->n_pop = 0;
        w.depth = STACKS_DEPTH;
    }
    return put_mask(m, MASK_TOP + reach, top, m->bits, m->n_pop, w.depth);
}

/* Returns the set of stacks for the n states in m->top: with the empty stack
 * below, and each state replaced by the state that represents it for tokens of
 * this reach (automaton.alike). */
static uint32_t top_of(struct grammar_masks *m, int reach, uint32_t n)
{
    const uint32_t *alike = m->a->alike[reach];
    uint32_t *top = m->top + m->n_top, n_top = 0;

    if (!alike)
        return stacks_over(&m->stacks, m->top, n, STACKS_EMPTY);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t state = alike[m->top[i]], k = n_top;

        while (k > 0 && top[k - 1] > state)
            k--;
        if (k > 0 && top[k - 1] == state)
            continue;
        memmove(top + k + 1, top + k, (n_top++ - k) * sizeof *top);
        top[k] = state;
    }
    return stacks_over(&m->stacks, top, n_top, STACKS_EMPTY);
}

/* Adds to `bits` the tokens of a reach that the n states in m->top accept with
 * the stacks of the set `below` under them. Sets *whole if the whole set of
 * stacks must be walked instead, because stacks may become too deep or the mask
 * of the top costs too much. */
static void add_top(struct grammar_masks *m, int reach, uint32_t n,
                    uint32_t below, uint32_t *bits, int64_t *most, bool *whole)
{
    struct walk w = {.m = m, .bits = bits, .most = INT64_MAX};
    const struct mask_entry *e;
    struct stack_row *row;
    uint32_t set, top = top_of(m, reach, n);

    e = mask_cache_find(&m->cache, MASK_TOP + reach, top);
    if (!e)
        e = make_top(m, reach, top, most);
    *whole |= e && e->depth + m->stacks.set[below].depth >= STACKS_DEPTH;
    if (!e || *whole)
        return;
    mask_entry_add(e, bits);
    if (e->n_pop == 0)
        return;
    set = stacks_closed(&m->stacks, below);
    row = stacks_row(&m->stacks, set);
    for (uint32_t i = 0; i < e->n_pop && m->stacks.set[set].n; i++) {
        struct pop pop = mask_entry_pops(e)[i];

        if (pop.at < m->v->n_node)
            walk(&w, row, pop.at);
        else
            walk_rest(&w, row, pop.at - m->v->n_node, pop.rest);
    }
    *whole |= w.depth >= STACKS_DEPTH;
}

/* Lists in m->top the states of all items of `set` that have the same set below
 * as item i. Returns their number. Returns 0 if an item before item i has the
 * same set below, so that each group is handled once. */
static uint32_t gather_top(struct grammar_masks *m, uint32_t set, uint32_t i)
{
    const struct stack_set *s = &m->stacks.set[set];
    uint32_t n = 0;

    for (uint32_t k = 0; k < s->n; k++) {
        if (s->item[k].below != s->item[i].below)
            continue;
        if (k < i)
            return 0;
        m->top[n++] = s->item[k].state;
    }
    return n;
}

static bool reserve_top(struct grammar_masks *m, uint32_t n)
{
    uint32_t *top;

    if (n <= m->n_top)
        return true;
    top = realloc(m->top, 2 * (size_t)n * sizeof *top);
    if (!top) {
        stacks_fail(&m->stacks, PL_NO_MEMORY);
        return false;
    }
    m->top = top;
    m->n_top = n;
    return true;
}

/* Adds to `bits` the tokens that `set` accepts, one group of items with the
 * same set below after another. Returns true if the whole set must be walked
 * instead. If there are several groups, the cost of their masks is limited,
 * because walking the whole set may cost less. */
static bool add_tops(struct grammar_masks *m, uint32_t set, uint32_t *bits)
{
    enum { MOST_TOPS = 8, SHARE = 8 };
    int64_t most = m->v->n_node + (int64_t)m->v->n_leaf;
    uint32_t n_item = m->stacks.set[set].n, n_top = 0;
    bool whole;

    if (!reserve_top(m, n_item))
        return false;
    for (uint32_t i = 0; i < n_item && n_top <= MOST_TOPS; i++)
        n_top += gather_top(m, set, i) > 0;
    whole = n_top > MOST_TOPS;
    most = n_top > 1 ? most / SHARE : most + most / SHARE;
    for (uint32_t i = 0; i < n_item && !whole; i++) {
        uint32_t below = m->stacks.set[set].item[i].below;
        uint32_t n = gather_top(m, set, i);

        for (int r = 0; r < REACHES && n > 0 && !whole; r++)
            if (m->v->node[r].end > m->v->node[r].leaf)
                add_top(m, r, n, below, bits, &most, &whole);
    }
    return whole;
}

/* Computes and caches the mask of a set of stacks, without tokens that end the
 * generation. */
static void make_mask(struct grammar_masks *m, uint32_t set, uint32_t *bits)
{
    struct walk w = {.m = m, .bits = bits, .most = INT64_MAX};

    if (add_tops(m, set, bits)) {
        memset(bits, 0, m->n_word * sizeof *bits);
        for (uint32_t i = 0; i < REACHES; i++)
            walk(&w, stacks_row(&m->stacks, set), i);
    }
    put_mask(m, MASK_WHOLE, set, bits, 0, 0);
}

/* ---- freeing sets of stacks that nothing uses ---------------------------- */

/* Copies the sets of stacks still in use to the pool `to`: the current sets of
 * all states, and those that are keys of cached masks of tops. Sets renamed[]
 * to the new numbers of the keys. */
static void carry(struct grammar_masks *m, struct stacks *to, uint32_t *known,
                  uint32_t *renamed)
{
    memset(renamed, 0xff, m->stacks.n_set * sizeof *renamed);
    for (struct grammar_state *s = m->state; s; s = s->next)
        stacks_carry(to, &m->stacks, known, s->set);
    for (struct mask_entry *e = m->cache.newest; e; e = e->older)
        if (e->kind != MASK_WHOLE)
            renamed[e->set] = stacks_carry(to, &m->stacks, known, e->set);
    for (struct grammar_state *s = m->state; s && to->status == PL_OK;
         s = s->next)
        s->set = stacks_carry(to, &m->stacks, known, s->set);
}

/* If the pool of sets of stacks has grown large, replaces it by a new one that
 * has only the sets still in use. */
static pl_status tidy(struct grammar_masks *m, pl_err *err)
{
    struct stacks fresh = {0};
    uint32_t *known, *renamed;
    bool good;

    if (stacks_bytes(&m->stacks) <= m->pool_bytes)
        return PL_OK;
    known = calloc(m->stacks.n_set, sizeof *known);
    renamed = calloc(m->stacks.n_set, sizeof *renamed);
    good = known && renamed && stacks_init(&fresh, m->a);
    if (good)
        carry(m, &fresh, known, renamed);
    good = good && fresh.status == PL_OK;
    if (good) {
        struct stacks old = m->stacks;

        mask_cache_rename(&m->cache, renamed);
        m->stacks = fresh;
        fresh = old;
        /* If the sets still in use need much memory, the next replacement waits
         * until the pool is twice as large. */
        m->pool_bytes = 2 * stacks_bytes(&m->stacks) > POOL_BYTES
                            ? 2 * stacks_bytes(&m->stacks)
                            : POOL_BYTES;
    }
    stacks_fini(&fresh);
    free(known);
    free(renamed);
    return good ? PL_OK : no_memory(err);
}

/* Begins an operation on the sets of stacks. */
static pl_status begin(struct grammar_masks *m, pl_err *err)
{
    PL_TRY(tidy(m, err));
    stacks_begin(&m->stacks);
    return PL_OK;
}

/* ---- creating and freeing masks ------------------------------------------ */

pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err)
{
    struct grammar_masks *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return no_memory(err);
    m->g = g;
    m->a = &g->automaton;
    m->v = v;
    m->pool_bytes = POOL_BYTES;
    m->n_word = v->n_word;
    m->bits = calloc((size_t)m->n_word + 1, sizeof *m->bits);
    if (!m->bits || !stacks_init(&m->stacks, m->a) ||
        !mask_cache_init(&m->cache, m->n_word,
                         cache_bytes ? cache_bytes : USUAL_CACHE_BYTES)) {
        grammar_masks_free(m);
        return no_memory(err);
    }
    *out = m;
    return PL_OK;
}

void grammar_masks_free(struct grammar_masks *m)
{
    if (!m)
        return;
    stacks_fini(&m->stacks);
    mask_cache_fini(&m->cache);
    free(m->bits);
    free(m->top);
    free(m->pop);
    free(m);
}

/* ---- creating and freeing the states of sequences ------------------------ */

static pl_status state_new(struct grammar_state **out, struct grammar_masks *m,
                           uint32_t set, bool ended, pl_err *err)
{
    struct grammar_state *s;

    *out = NULL;
    s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(err);
    *out = s;
    *s = (struct grammar_state){.m = m,
                                .next = m->state,
                                .link = &m->state,
                                .set = set,
                                .ended = ended};
    if (m->state)
        m->state->link = &s->next;
    m->state = s;
    return PL_OK;
}

pl_status grammar_state_create(struct grammar_state **out,
                               struct grammar_masks *m, pl_err *err)
{
    uint32_t set;

    *out = NULL;
    stacks_begin(&m->stacks);
    set = stacks_start(&m->stacks);
    PL_TRY(check(m, err));
    return state_new(out, m, set, false, err);
}

pl_status grammar_state_copy(struct grammar_state **out,
                             const struct grammar_state *from, pl_err *err)
{
    return state_new(out, from->m, from->set, from->ended, err);
}

void grammar_state_free(struct grammar_state *s)
{
    if (!s)
        return;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    free(s);
}

/* ---- tokens that a grammar names ----------------------------------------- */

/* Returns the set of stacks after the bytes s[0 .. n). */
static uint32_t walk_text(struct stacks *st, uint32_t set, const char *s,
                          size_t n)
{
    for (size_t i = 0; i < n && set != STACKS_DEAD; i++)
        set = stacks_step(st, set, (unsigned char)s[i]);
    return set;
}

static uint32_t walk_symbol(struct stacks *st, uint32_t set, uint32_t i)
{
    char text[RULES_SYMBOL_BYTES];

    rules_symbol(text, i);
    return walk_text(st, set, text, sizeof text);
}

/* Returns true if a token's text contains the byte with which rules_symbol
 * marks tokens that a grammar names. The text of such a token is never matched
 * against the grammar. It is not UTF-8, so no rule of a grammar allows it
 * anyway. */
static bool is_like_symbol(const struct grammar_masks *m, int32_t id)
{
    const struct grammar_vocab *v = m->v;

    return m->g->n_symbol > 0 && memchr(v->bytes + v->at[id], RULES_SYMBOL_LEAD,
                                        v->at[id + 1] - v->at[id]);
}

static bool matches(const struct token_symbol *s, int32_t id)
{
    return (s->id == id) != s->other;
}

/* Returns the set of stacks after a token: the union of the set after its text
 * and of the sets after the symbols (rule_tree.h) that stand for it in the
 * grammar. */
static uint32_t walk_token(struct grammar_masks *m, uint32_t set, int32_t id)
{
    const struct grammar_vocab *v = m->v;
    size_t len = v->at[id + 1] - v->at[id];
    uint32_t to = STACKS_DEAD;

    if (v->kind[id] == GRAMMAR_TOKEN_END)
        return to;
    if (v->kind[id] == GRAMMAR_TOKEN_TEXT && len > 0 && !is_like_symbol(m, id))
        to = walk_text(&m->stacks, set, v->bytes + v->at[id], len);
    for (uint32_t i = 0; i < m->g->n_symbol; i++)
        if (matches(&m->g->symbol[i], id))
            to = stacks_union(&m->stacks, to, walk_symbol(&m->stacks, set, i));
    return to;
}

/* Adds to the mask of `set` the tokens that the grammar names, by id or by
 * text, where it allows them. Removes tokens whose text looks like such a
 * name. */
static void add_symbols(struct grammar_masks *m, uint32_t set, uint32_t *bits)
{
    const struct grammar_vocab *v = m->v;

    for (int32_t id = 0; id < v->n_token; id++)
        if (is_like_symbol(m, id))
            bits[id / 32] &= ~(1u << id % 32);
    for (uint32_t i = 0; i < m->g->n_symbol; i++) {
        const struct token_symbol *s = &m->g->symbol[i];
        int32_t first = s->other ? 0 : s->id;
        int32_t last = s->other ? v->n_token - 1 : s->id;
        uint32_t to = walk_symbol(&m->stacks, set, i);

        for (int32_t id = first; id <= last && to != STACKS_DEAD; id++)
            if (id < v->n_token && matches(s, id) &&
                v->kind[id] != GRAMMAR_TOKEN_END)
                bits[id / 32] |= 1u << id % 32;
    }
}

/* ---- advancing a state by a token or by text ----------------------------- */

pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err)
{
    uint32_t set;

    PL_TRY(begin(s->m, err));
    set = walk_text(&s->m->stacks, s->ended && len ? STACKS_DEAD : s->set, text,
                    len);
    PL_TRY(check(s->m, err));
    if (set == STACKS_DEAD) {
        char shown[ERR_SHOWN];

        return err_set(err, PL_BAD_ARGUMENT,
                       "\"%s\" does not continue the text by the grammar; use "
                       "tokens that the mask allows",
                       err_shown(shown, text, len));
    }
    s->set = set;
    return PL_OK;
}

pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err)
{
    const struct grammar_vocab *v = s->m->v;
    bool known = id >= 0 && id < v->n_token;
    uint32_t set = STACKS_DEAD;

    if (known && v->kind[id] == GRAMMAR_TOKEN_END && grammar_is_whole(s)) {
        s->ended = true;
        return PL_OK;
    }
    PL_TRY(begin(s->m, err));
    if (known && !s->ended)
        set = walk_token(s->m, s->set, id);
    PL_TRY(check(s->m, err));
    if (set == STACKS_DEAD)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the grammar does not allow token %d here; use one that "
                       "the mask allows",
                       (int)id);
    s->set = set;
    return PL_OK;
}

bool grammar_is_whole(const struct grammar_state *s)
{
    return s->m->stacks.set[s->set].ends;
}

pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err)
{
    struct grammar_masks *m = s->m;
    const struct mask_entry *e;

    PL_TRY(begin(m, err));
    memset(bits, 0, m->n_word * sizeof *bits);
    if (!s->ended) {
        e = mask_cache_find(&m->cache, MASK_WHOLE, s->set);
        if (e)
            mask_entry_add(e, bits);
        else
            make_mask(m, s->set, bits);
        if (m->g->n_symbol > 0)
            add_symbols(m, s->set, bits);
        PL_TRY(check(m, err));
    }
    for (int32_t i = 0; i < m->v->n_end && grammar_is_whole(s); i++)
        bits[m->v->end[i] / 32] |= 1u << m->v->end[i] % 32;
    return PL_OK;
}
