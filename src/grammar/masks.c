/* Masks: a walk over the vocabulary's tree with a set of stacks.
 *
 * What a token may do depends mostly on the states on top and not on what lies
 * below. So a set's items are grouped by what lies below them, and the mask of
 * such a top is found once, as if nothing lay below: tokens that stay inside
 * are accepted or refused for good. Where the top may be gone after some bytes,
 * the nodes that go on are listed, and walked anew for each set that has this
 * top, with what lies below there; only bytes that may follow the rule at all
 * are listed. XGrammar (arXiv:2411.15100) parts tokens likewise.
 *
 * Deep stacks: what a call may do depends on the depth, near the largest. Then
 * the whole set is walked. */
#include "base/err.h"
#include "grammar/grammar_inner.h"
#include "grammar/mask_cache.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

enum {
    USUAL_CACHE_BYTES = 64 << 20,
    POOL_BYTES = 32 << 20, /* then the sets that nobody needs are dropped */
    LARGE_BRANCH = 2,      /* nodes that are worth a look before they are met */
};

struct grammar_masks {
    const struct automaton *a; /* borrowed, with the vocabulary */
    const struct grammar_vocab *v;
    struct stacks stacks;
    size_t pool_bytes;
    struct mask_cache cache;
    struct grammar_state *state; /* all, linked; each belongs to its owner */
    uint32_t n_word;
    uint32_t *at;   /* owned, [n_level + 1]: sets on the way to a node */
    uint32_t *bits; /* owned, [n_word] */
    uint32_t *top;  /* owned, [n_top]: states, while tops are put together */
    uint32_t *pop;  /* owned, [n_pop] of [cap_pop] */
    uint32_t n_pop, cap_pop, n_top;
};

struct grammar_state {
    struct grammar_masks *m; /* borrowed */
    struct grammar_state *next, **link;
    uint32_t set;
    bool ended;
};

static pl_status no_memory(pl_err *err)
{
    return err_no_memory(err, "the masks of a grammar");
}

/* Why a set or a mask could not be made. */
static pl_status failed(const struct grammar_masks *m, pl_err *err)
{
    if (!m->stacks.refused)
        return no_memory(err);
    return err_set(err, PL_UNSUPPORTED,
                   "the grammar leaves too many ways open here, more than "
                   "%d steps or %d MiB follow: let alternatives begin with "
                   "other texts, and repeat less of what may be anything",
                   (int)STACKS_MOST_PUSHES, (int)(STACKS_MOST_BYTES >> 20));
}

/* ---- walks --------------------------------------------------------------- */

/* What a walk finds besides bits. */
struct found {
    const struct byte_set *after; /* NULL: what goes on below is not listed */
    uint16_t depth;               /* of the deepest set */
};

static bool list_pops(struct grammar_masks *m, uint32_t node,
                      const struct byte_set *after)
{
    const struct trie_node *t = m->v->node;

    for (uint32_t i = node + 1; i < t[node].skip; i = t[i].skip) {
        if (!byte_set_has(after, t[i].byte))
            continue;
        if (m->n_pop == m->cap_pop) {
            uint32_t cap = m->cap_pop ? 2 * m->cap_pop : 1024;
            uint32_t *pop = realloc(m->pop, cap * sizeof *pop);

            if (!pop)
                return false;
            m->pop = pop;
            m->cap_pop = cap;
        }
        m->pop[m->n_pop++] = i;
    }
    return true;
}

/* The set that any character of 2 to 4 bytes leads to: `more` of them are to
 * come after one of [lo .. hi]. Bytes of one class do the same. STACKS_DEAD:
 * there is no such set. */
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
        if (to != STACKS_FAILED && more > 0)
            to = after_long(s, to, low, high, more - 1);
        if (to == STACKS_DEAD || to == STACKS_FAILED || (b > lo && to != all))
            return to == STACKS_FAILED ? to : STACKS_DEAD;
        all = to;
    }
    return all;
}

/* The sets after the characters of each group, STACKS_DEAD where they differ.
 * False: memory is out. */
static bool after_groups(struct stacks *s, uint32_t set,
                         uint32_t after[N_GROUP])
{
    bool met[N_GROUP] = {false};

    for (unsigned b = 0; b < 0x80; b++) {
        unsigned g = token_group(b);
        uint32_t to = stacks_step(s, set, b);

        if (to == STACKS_FAILED)
            return false;
        after[g] = !met[g] || after[g] == to ? to : STACKS_DEAD;
        met[g] = true;
    }
    after[GROUP_TWO] = after_long(s, set, 0xc2, 0xdf, 1);
    after[GROUP_THREE] = after_long(s, set, 0xe0, 0xef, 2);
    after[GROUP_FOUR] = after_long(s, set, 0xf0, 0xf4, 3);
    for (int g = GROUP_TWO; g < N_GROUP; g++)
        if (after[g] == STACKS_FAILED)
            return false;
    return true;
}

/* Fills in `even` and `after`: after small letters if those agree, else after
 * the first group that does. */
static bool find_even(struct stacks *s, uint32_t set)
{
    uint32_t after[N_GROUP];
    uint64_t even = 0;
    int first = 0;

    if (!after_groups(s, set, after))
        return false;
    while (first < N_GROUP - 1 && after[first] == STACKS_DEAD)
        first++;
    for (int g = 0; g < N_GROUP && after[first] != STACKS_DEAD; g++)
        even |= after[g] == after[first] ? 1ull << g : 0;
    s->set[set].even = even;
    s->set[set].after = even ? after[first] : STACKS_EMPTY;
    return true;
}

/* Does a set, at a node where a character ends, take all tokens that begin with
 * it? So it is if each character of them leads to one and the same set, as in
 * "any character", as often as there may be some. What goes on below can add no
 * token then. -1: memory is out. */
static int takes_all(struct stacks *s, uint32_t set,
                     const struct trie_below *below, struct found *found)
{
    for (uint32_t i = 0; i < below->n_char; i++) {
        const struct stack_set *at = &s->set[set];

        if (at->depth > found->depth)
            found->depth = at->depth;
        if (!at->after) {
            if (!find_even(s, set))
                return -1;
            at = &s->set[set];
        }
        if (below->groups & ~at->even)
            return 0;
        if (at->after == set)
            return 1;
        set = at->after;
    }
    return 1;
}

/* Sets the bits of all tokens that end in nodes [node .. end), which stand on
 * one level or begin with those that do, if the set takes the bytes from that
 * level on. */
static bool walk(struct grammar_masks *m, uint32_t set, uint32_t node,
                 uint32_t end, uint32_t *bits, struct found *found)
{
    const struct trie_node *t = m->v->node;
    const int32_t *order = m->v->order;
    struct stacks *s = &m->stacks;
    uint32_t *at = m->at;
    unsigned base = t[node].depth;

    at[0] = set;
    while (node < end) {
        unsigned d = t[node].depth - base;
        uint32_t to = stacks_step(s, at[d], t[node].byte), last;
        int all = 0;

        if (to == STACKS_DEAD) {
            node = t[node].skip;
            continue;
        }
        if (to == STACKS_FAILED)
            return false;
        if (s->set[to].depth > found->depth)
            found->depth = s->set[to].depth;
        if (t[node].skip - node > LARGE_BRANCH) {
            all = takes_all(s, to, &m->v->below[node], found);
            if (all < 0)
                return false;
        }
        if (found->after && s->set[to].ends && !all &&
            !list_pops(m, node, found->after))
            return false;
        last = all ? t[node].skip : node + 1;
        for (uint32_t k = t[node].first; k < t[last].first; k++)
            bits[order[k] / 32] |= 1u << order[k] % 32;
        at[d + 1] = to;
        node = to == STACKS_EMPTY ? t[node].skip : last;
    }
    return true;
}

/* ---- tops ---------------------------------------------------------------- */

/* The bytes that may come when the top is gone. */
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

/* The mask of the set with these states on top of nothing. */
static const struct mask_entry *make_top(struct grammar_masks *m, uint32_t top)
{
    struct byte_set after = after_top(m->a, &m->stacks.set[top]);
    struct found found = {.after = &after};

    m->n_pop = 0;
    memset(m->bits, 0, m->n_word * sizeof *m->bits);
    if (!walk(m, top, 0, m->v->n_node, m->bits, &found))
        return NULL;
    return mask_cache_put(&m->cache, MASK_TOP, top, m->bits, m->pop, m->n_pop,
                          found.depth);
}

/* Adds the tokens that the top of a set allows, over the set below. *deep: that
 * is not all, since stacks become too deep. */
static bool add_top(struct grammar_masks *m, uint32_t top, uint32_t below,
                    uint32_t *bits, bool *deep)
{
    const struct mask_entry *e = mask_cache_find(&m->cache, MASK_TOP, top);
    struct found found = {0};
    uint32_t set;

    if (!e)
        e = make_top(m, top);
    if (!e)
        return false;
    *deep |= e->depth + m->stacks.set[below].depth >= STACKS_DEPTH;
    mask_entry_add(e, bits);
    if (*deep || e->n_pop == 0)
        return true;
    set = stacks_closed(&m->stacks, below);
    if (set == STACKS_FAILED)
        return false;
    for (uint32_t i = 0; i < e->n_pop && m->stacks.set[set].n; i++) {
        uint32_t node = e->data[e->n + i];

        if (!walk(m, set, node, m->v->node[node].skip, bits, &found))
            return false;
    }
    *deep |= found.depth >= STACKS_DEPTH;
    return true;
}

/* All states of the set that lie over what its item `i` lies over; 0 if an
 * item before does, so that each top comes once. */
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
    top = realloc(m->top, n * sizeof *top);
    if (!top)
        return false;
    m->top = top;
    m->n_top = n;
    return true;
}

/* The mask of a set, without the tokens that end a text. */
static bool make_mask(struct grammar_masks *m, uint32_t set, uint32_t *bits)
{
    struct found found = {0};
    bool deep = false;

    memset(bits, 0, m->n_word * sizeof *bits);
    if (!reserve_top(m, m->stacks.set[set].n))
        return false;
    for (uint32_t i = 0; i < m->stacks.set[set].n && !deep; i++) {
        uint32_t below = m->stacks.set[set].item[i].below;
        uint32_t n = gather_top(m, set, i), top;

        if (n == 0)
            continue;
        top = stacks_over(&m->stacks, m->top, n, STACKS_EMPTY);
        if (top == STACKS_FAILED || !add_top(m, top, below, bits, &deep))
            return false;
    }
    if (deep) {
        memset(bits, 0, m->n_word * sizeof *bits);
        if (!walk(m, set, 0, m->v->n_node, bits, &found))
            return false;
    }
    return mask_cache_put(&m->cache, MASK_WHOLE, set, bits, NULL, 0, 0) != NULL;
}

/* ---- sets that nobody needs ---------------------------------------------- */

/* Carries what is still needed over to `to`: states' sets, and tops of masks
 * that are kept, whose new numbers it tells. */
static bool carry(struct grammar_masks *m, struct stacks *to, uint32_t *known,
                  uint32_t *renamed)
{
    uint32_t set;

    memset(renamed, 0xff, m->stacks.n_set * sizeof *renamed);
    for (struct grammar_state *s = m->state; s; s = s->next)
        if (stacks_carry(to, &m->stacks, known, s->set) == STACKS_FAILED)
            return false;
    for (struct mask_entry *e = m->cache.newest; e; e = e->older) {
        if (e->kind != MASK_TOP)
            continue;
        set = stacks_carry(to, &m->stacks, known, e->set);
        if (set == STACKS_FAILED)
            return false;
        renamed[e->set] = set;
    }
    for (struct grammar_state *s = m->state; s; s = s->next)
        s->set = stacks_carry(to, &m->stacks, known, s->set);
    return true;
}

/* When the pool has grown large, a new one with what is needed takes its place.
 */
static pl_status tidy(struct grammar_masks *m, pl_err *err)
{
    struct stacks fresh = {0};
    uint32_t *known, *renamed;
    bool good;

    if (stacks_bytes(&m->stacks) <= m->pool_bytes)
        return PL_OK;
    known = calloc(m->stacks.n_set, sizeof *known);
    renamed = calloc(m->stacks.n_set, sizeof *renamed);
    good = known && renamed && stacks_init(&fresh, m->a) &&
           carry(m, &fresh, known, renamed);
    if (good) {
        struct stacks old = m->stacks;

        mask_cache_rename(&m->cache, renamed);
        m->stacks = fresh;
        fresh = old;
        /* One text alone may need much: then less often. */
        m->pool_bytes = 2 * stacks_bytes(&m->stacks) > POOL_BYTES
                            ? 2 * stacks_bytes(&m->stacks)
                            : POOL_BYTES;
    }
    stacks_fini(&fresh);
    free(known);
    free(renamed);
    return good ? PL_OK : no_memory(err);
}

/* ---- masks --------------------------------------------------------------- */

pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err)
{
    struct grammar_masks *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return no_memory(err);
    m->a = &g->automaton;
    m->v = v;
    m->pool_bytes = POOL_BYTES;
    m->n_word = ((uint32_t)v->n_token + 31) / 32;
    m->at = calloc((size_t)v->n_level + 1, sizeof *m->at);
    m->bits = calloc((size_t)m->n_word + 1, sizeof *m->bits);
    if (!m->at || !m->bits || !stacks_init(&m->stacks, m->a) ||
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
    free(m->at);
    free(m->bits);
    free(m->top);
    free(m->pop);
    free(m);
}

/* ---- states -------------------------------------------------------------- */

static pl_status state_new(struct grammar_state **out, struct grammar_masks *m,
                           uint32_t set, bool ended, pl_err *err)
{
    struct grammar_state *s;

    *out = NULL;
    if (set == STACKS_FAILED)
        return failed(m, err);
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
    stacks_begin(&m->stacks);
    return state_new(out, m, stacks_start(&m->stacks), false, err);
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

pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err)
{
    struct stacks *st = &s->m->stacks;
    uint32_t set;

    PL_TRY(tidy(s->m, err));
    stacks_begin(st);
    set = s->ended && len ? STACKS_DEAD : s->set;
    for (size_t i = 0; i < len && set != STACKS_DEAD; i++) {
        set = stacks_step(st, set, (unsigned char)text[i]);
        if (set == STACKS_FAILED)
            return failed(s->m, err);
    }
    if (set == STACKS_DEAD) {
        char shown[ERR_SHOWN];

        return err_set(err, PL_BAD_ARGUMENT,
                       "\"%s\" does not go on as the grammar has it: take what "
                       "the mask allows",
                       err_shown(shown, text, len));
    }
    s->set = set;
    return PL_OK;
}

pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err)
{
    const struct grammar_vocab *v = s->m->v;
    bool known = id >= 0 && id < v->n_token;

    if (known && v->kind[id] == GRAMMAR_TOKEN_END && grammar_is_whole(s)) {
        s->ended = true;
        return PL_OK;
    }
    if (!known || v->kind[id] != GRAMMAR_TOKEN_TEXT ||
        v->at[id] == v->at[id + 1])
        return err_set(
            err, PL_BAD_ARGUMENT,
            "the grammar does not allow token %d here: take one that "
            "the mask allows",
            (int)id);
    return grammar_accept_text(s, v->bytes + v->at[id],
                               v->at[id + 1] - v->at[id], err);
}

bool grammar_is_whole(const struct grammar_state *s)
{
    return s->m->stacks.set[s->set].ends;
}

pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err)
{
    struct grammar_masks *m = s->m;
    const struct mask_entry *e;

    PL_TRY(tidy(m, err));
    stacks_begin(&m->stacks);
    memset(bits, 0, m->n_word * sizeof *bits);
    if (!s->ended) {
        e = mask_cache_find(&m->cache, MASK_WHOLE, s->set);
        if (e)
            mask_entry_add(e, bits);
        else if (!make_mask(m, s->set, bits))
            return failed(m, err);
    }
    for (int32_t i = 0; i < m->v->n_end && grammar_is_whole(s); i++)
        bits[m->v->end[i] / 32] |= 1u << m->v->end[i] % 32;
    return PL_OK;
}
