/* Sets of stacks; see stacks.h.
 *
 * New sets are assembled on the *pile*, an array used as a stack. The last
 * items of the pile belong to the set that is assembled at the moment. Each
 * function removes the items that it added, so it may assemble other sets while
 * its caller's set is incomplete. */
#include "grammar/stacks.h"

#include "base/hash64.h"

#include <stdlib.h>
#include <string.h>

/* ---- the pool of sets ---------------------------------------------------- */

static void add_constant(struct stacks *s, bool ends)
{
    uint32_t i = s->n_set++;

    s->set[i] = (struct stack_set){.closed = i, .ends = ends};
    stacks_row(s, i);
}

bool stacks_init(struct stacks *s, const struct automaton *a)
{
    *s = (struct stacks){.a = a, .cap_set = 256, .n_slot = 1024};
    s->set = calloc(s->cap_set, sizeof *s->set);
    s->slot = calloc(s->n_slot, sizeof *s->slot);
    s->called = arena_alloc(&s->memory, a->n_place / 64 + 1, sizeof *s->called);
    s->called_over =
        arena_alloc(&s->memory, a->n_place, sizeof *s->called_over);
    s->met = arena_alloc(&s->memory, a->n_state / 64 + 1, sizeof *s->met);
    s->met_at = arena_alloc(&s->memory, a->n_state, sizeof *s->met_at);
    if (!s->set || !s->slot)
        return false;
    add_constant(s, false);
    add_constant(s, true);
    return s->memory.failed_bytes == 0;
}

void stacks_fini(struct stacks *s)
{
    arena_fini(&s->memory);
    free(s->set);
    free(s->slot);
    free(s->made);
    free(s->pile);
    *s = (struct stacks){0};
}

size_t stacks_bytes(const struct stacks *s)
{
    return s->memory.used_bytes + s->cap_set * sizeof *s->set +
           s->n_slot * sizeof *s->slot + s->cap_made * sizeof *s->made;
}

void stacks_begin(struct stacks *s)
{
    s->n_push = 0;
    s->status = PL_OK;
}

void stacks_fail(struct stacks *s, pl_status status)
{
    if (s->status == PL_OK)
        s->status = status;
}

static void push(struct stacks *s, uint32_t state, uint32_t below)
{
    if (++s->n_push > STACKS_MOST_PUSHES)
        stacks_fail(s, PL_UNSUPPORTED);
    if (s->n_pile == s->cap_pile) {
        size_t cap = s->cap_pile ? 2 * s->cap_pile : 256;
        struct stack_item *pile = realloc(s->pile, cap * sizeof *pile);

        if (!pile) {
            stacks_fail(s, PL_NO_MEMORY);
            return;
        }
        s->pile = pile;
        s->cap_pile = cap;
    }
    if (s->status == PL_OK)
        s->pile[s->n_pile++] = (struct stack_item){state, below};
}

/* Pushes the items of a set. */
static void push_set(struct stacks *s, uint32_t set)
{
    for (uint32_t i = 0; i < s->set[set].n; i++)
        push(s, s->set[set].item[i].state, s->set[set].item[i].below);
}

/* Returns the entry of the hash table of sets for the set with these items, or
 * the free entry for a new one. */
static uint32_t *slot_of(const struct stacks *s, const struct stack_item *item,
                         uint32_t n, bool ends, uint32_t hash)
{
    uint32_t mask = s->n_slot - 1, i = hash & mask;

    for (; s->slot[i]; i = (i + 1) & mask) {
        const struct stack_set *set = &s->set[s->slot[i]];

        if (set->hash == hash && set->n == n && set->ends == ends &&
            memcmp(set->item, item, n * sizeof *item) == 0)
            break;
    }
    return &s->slot[i];
}

/* Makes space for more sets. */
static void grow_sets(struct stacks *s)
{
    uint32_t cap = 2 * s->cap_set, n = 4 * cap;
    uint32_t *slot = calloc(n, sizeof *slot);
    struct stack_set *set = realloc(s->set, cap * sizeof *set);

    s->set = set ? set : s->set;
    if (!slot || !set || stacks_bytes(s) > STACKS_MOST_BYTES) {
        stacks_fail(s, slot && set ? PL_UNSUPPORTED : PL_NO_MEMORY);
        free(slot);
        return;
    }
    s->cap_set = cap;
    for (uint32_t i = STACKS_EMPTY + 1; i < s->n_set; i++) {
        uint32_t k = s->set[i].hash & (n - 1);

        while (slot[k])
            k = (k + 1) & (n - 1);
        slot[k] = i;
    }
    free(s->slot);
    s->slot = slot;
    s->n_slot = n;
}

static uint16_t depth_of(const struct stacks *s, const struct stack_item *item,
                         uint32_t n)
{
    uint16_t depth = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t d = (uint16_t)(s->set[item[i].below].depth + 1);

        depth = d > depth ? d : depth;
    }
    return depth;
}

/* Returns the set that consists of the items from `base` to the end of the
 * pile, and the empty stack if `ends`. The items must be in ascending order of
 * their states. Removes them from the pile. */
static uint32_t set_of(struct stacks *s, size_t base, bool ends)
{
    uint32_t n = (uint32_t)(s->n_pile - base), hash, *slot;
    const struct stack_item *item = n ? s->pile + base : NULL;
    struct stack_set set = {.n = n, .closed = STACKS_UNKNOWN, .ends = ends};

    s->n_pile = base;
    if (s->n_set == s->cap_set)
        grow_sets(s);
    if (s->status != PL_OK)
        return STACKS_DEAD;
    if (n == 0)
        return ends ? STACKS_EMPTY : STACKS_DEAD;
    hash = (uint32_t)hash64(ends, item, n * sizeof *item);
    slot = slot_of(s, item, n, ends, hash);
    if (*slot)
        return *slot;
    set.item = arena_memdup(&s->memory, item, n, sizeof *item);
    if (!set.item) {
        stacks_fail(s, PL_NO_MEMORY);
        return STACKS_DEAD;
    }
    set.hash = hash;
    set.depth = depth_of(s, item, n);
    s->set[s->n_set] = set;
    return *slot = s->n_set++;
}

/* ---- unions and sorting of sets ------------------------------------------ */

/* Returns the entry of the hash table of unions for the sets a and b, a < b, or
 * the free entry for a new one. */
static struct stack_union *union_of(struct stack_union *made, uint32_t cap,
                                    uint32_t a, uint32_t b)
{
    const uint32_t key[2] = {a, b};
    uint32_t i = (uint32_t)hash64(0, key, sizeof key) & (cap - 1);

    while (made[i].a && (made[i].a != a || made[i].b != b))
        i = (i + 1) & (cap - 1);
    return &made[i];
}

/* Makes space for one more union in the table, at most half of which is in use.
 * Returns false if out of memory. */
static bool reserve_union(struct stacks *s)
{
    uint32_t cap = s->cap_made ? 2 * s->cap_made : 256;
    struct stack_union *made;

    if (2 * s->n_made < s->cap_made)
        return true;
    made = calloc(cap, sizeof *made);
    if (!made) {
        stacks_fail(s, PL_NO_MEMORY);
        return false;
    }
    for (uint32_t i = 0; i < s->cap_made; i++)
        if (s->made[i].a)
            *union_of(made, cap, s->made[i].a, s->made[i].b) = s->made[i];
    free(s->made);
    s->made = made;
    s->cap_made = cap;
    return true;
}

static void push_both(struct stacks *s, uint32_t a, uint32_t b);

/* Returns the union of two sets of stacks. Unions are cached: two sets may
 * occur together below many states, and their union is then needed for each. */
uint32_t stacks_union(struct stacks *s, uint32_t a, uint32_t b)
{
    size_t base = s->n_pile;
    uint32_t low = a < b ? a : b, high = a < b ? b : a, both;

    if (low == high || low == STACKS_DEAD)
        return high;
    if (s->status != PL_OK || !reserve_union(s))
        return STACKS_DEAD;
    both = union_of(s->made, s->cap_made, low, high)->both;
    if (both)
        return both;
    push_both(s, low, high);
    both = set_of(s, base, s->set[low].ends || s->set[high].ends);
    if (s->status == PL_OK && reserve_union(s)) {
        s->n_made++;
        *union_of(s->made, s->cap_made, low, high) =
            (struct stack_union){low, high, both};
    }
    return both;
}

/* Pushes the items of sets a and b on the pile in the order of their states. If
 * both sets have an item with the same state, pushes one item with the union of
 * the sets below. */
static void push_both(struct stacks *s, uint32_t a, uint32_t b)
{
    uint32_t i = 0, k = 0;

    while (i < s->set[a].n || k < s->set[b].n) {
        const struct stack_item none = {UINT32_MAX, 0};
        const struct stack_item x = i < s->set[a].n ? s->set[a].item[i] : none;
        const struct stack_item y = k < s->set[b].n ? s->set[b].item[k] : none;

        if (x.state == y.state)
            push(s, x.state, stacks_union(s, x.below, y.below));
        else
            push(s, x.state < y.state ? x.state : y.state,
                 x.state < y.state ? x.below : y.below);
        i += x.state <= y.state;
        k += y.state <= x.state;
    }
}

/* Sorts the items from `base` to the end of the pile by state, by insertion. No
 * two of them may have the same state. */
static void sort_few(struct stacks *s, size_t base)
{
    for (size_t i = base + 1; i < s->n_pile; i++) {
        struct stack_item it = s->pile[i];
        size_t k = i;

        for (; k > base && s->pile[k - 1].state > it.state; k--)
            s->pile[k] = s->pile[k - 1];
        s->pile[k] = it;
    }
}

/* Sorts the items from `base` to the end of the pile by state, for many items.
 * The bit set `met` must contain exactly the states of these items; the lowest
 * is `low`, the highest `high`. Clears `met`. */
static void sort_many(struct stacks *s, size_t base, uint32_t low,
                      uint32_t high)
{
    size_t from = s->n_pile;

    for (uint32_t w = low / 64; w <= high / 64; w++) {
        for (uint64_t bits = s->met[w]; bits; bits &= bits - 1) {
            uint32_t q = 64 * w + (uint32_t)__builtin_ctzll(bits);

            push(s, q, s->pile[s->met_at[q]].below);
        }
        s->met[w] = 0;
    }
    memmove(s->pile + base, s->pile + from,
            (s->n_pile - from) * sizeof *s->pile);
    s->n_pile = base + (s->n_pile - from);
}

/* Joins those items from `base` to the end of the pile that have the same
 * state; the joined item gets the union of the sets below. Adds the states to
 * the bit set `met`, and sets *low and *high to the lowest and the highest
 * state. */
static void join_states(struct stacks *s, size_t base, uint32_t *low,
                        uint32_t *high)
{
    size_t n = s->n_pile, k = base;

    *low = UINT32_MAX;
    *high = 0;
    for (size_t i = base; i < n; i++) {
        struct stack_item it = s->pile[i];
        uint64_t *word = &s->met[it.state / 64], bit = 1ull << it.state % 64;

        if (*word & bit) {
            uint32_t below =
                stacks_union(s, s->pile[s->met_at[it.state]].below, it.below);

            s->pile[s->met_at[it.state]].below = below;
            continue;
        }
        *word |= bit;
        *low = it.state < *low ? it.state : *low;
        *high = it.state > *high ? it.state : *high;
        s->met_at[it.state] = (uint32_t)k;
        s->pile[k++] = it;
    }
    s->n_pile = k;
}

/* Returns the set that consists of the items from `base` to the end of the
 * pile, and the empty stack if `ends`. The items may be in any order, and
 * several may have the same state. Removes them from the pile. */
static uint32_t set_of_any(struct stacks *s, size_t base, bool ends)
{
    enum { FEW = 16 };
    uint32_t low, high;

    if (s->n_pile - base <= 1)
        return set_of(s, base, ends);
    join_states(s, base, &low, &high);
    if (s->n_pile - base > FEW) {
        sort_many(s, base, low, high);
    } else {
        for (size_t i = base; i < s->n_pile; i++)
            s->met[s->pile[i].state / 64] = 0;
        sort_few(s, base);
    }
    return set_of(s, base, ends);
}

/* ---- returns and calls of rules ------------------------------------------ */

/* Records a call of the rule at `place` (automaton.h) with the set of stacks
 * `over` below it. If the rule was called before, the set recorded then is
 * replaced by its union with `over`. */
static void call(struct stacks *s, uint32_t place, uint32_t over)
{
    uint64_t *word = &s->called[place / 64], bit = 1ull << place % 64;

    s->called_over[place] =
        *word & bit ? stacks_union(s, s->called_over[place], over) : over;
    *word |= bit;
}

/* Visits a state with the set of stacks `below` under it: pushes them as an
 * item if an edge of the state takes a byte, and records the rules that the
 * state calls. */
static void visit(struct stacks *s, uint32_t state, uint32_t below)
{
    const struct state *q = &s->a->state[state];

    if (q->byte < q[1].byte)
        push(s, state, below);
    for (uint32_t k = q->call; k < q[1].call; k++) {
        const struct call_edge *e = &s->a->call[k];

        if (e->to == STATE_NONE)
            call(s, e->place, below);
        else if (s->set[below].depth < STACKS_DEPTH)
            call(s, e->place, stacks_over(s, &e->to, 1, below));
    }
}

/* Visits the entry states of all recorded calls, in ascending order of the
 * rules' places. Entries only call rules of higher places, so one pass
 * suffices. Entries are never final, so none of the called rules returns
 * here. */
static void visit_called(struct stacks *s)
{
    for (uint32_t i = 0; i <= s->a->n_place / 64; i++)
        while (s->called[i]) {
            uint32_t bit = (uint32_t)__builtin_ctzll(s->called[i]);
            uint32_t place = 64 * i + bit;

            s->called[i] &= ~(1ull << bit);
            visit(s, s->a->entry[place], s->called_over[place]);
        }
}

/* If the state of item i of the pile is final, its rule may end there: pushes
 * the items of the set below, after all their returns and calls. Sets *ends if
 * that set contains the empty stack. */
static void pop(struct stacks *s, size_t i, bool *ends)
{
    struct stack_item it = s->pile[i];
    uint32_t set;

    if (!s->a->state[it.state].final)
        return;
    set = stacks_closed(s, it.below);
    *ends |= s->set[set].ends;
    push_set(s, set);
}

/* Makes all returns and calls for the items from `base` to the end of the pile,
 * and removes the items. Returns the resulting set, in which each state on top
 * takes a byte. Returns are made first for all items, because they make returns
 * and calls in the sets below and use the same record of calls. */
static uint32_t close_pile(struct stacks *s, size_t base, bool ends)
{
    size_t end = s->n_pile;
    uint32_t set;

    for (size_t i = base; i < end; i++)
        pop(s, i, &ends);
    for (size_t i = base; i < end; i++)
        visit(s, s->pile[i].state, s->pile[i].below);
    visit_called(s);
    set = set_of_any(s, end, ends);
    s->n_pile = base;
    return set;
}

uint32_t stacks_closed(struct stacks *s, uint32_t set)
{
    size_t base = s->n_pile;
    uint32_t closed = s->set[set].closed;

    if (closed != STACKS_UNKNOWN || s->status != PL_OK)
        return closed != STACKS_UNKNOWN ? closed : STACKS_DEAD;
    push_set(s, set);
    closed = close_pile(s, base, s->set[set].ends);
    if (s->status == PL_OK)
        s->set[set].closed = closed;
    return closed;
}

uint32_t stacks_over(struct stacks *s, const uint32_t *state, uint32_t n,
                     uint32_t below)
{
    size_t base = s->n_pile;

    for (uint32_t i = 0; i < n; i++)
        push(s, state[i], below);
    return set_of(s, base, false);
}

uint32_t stacks_start(struct stacks *s)
{
    size_t base = s->n_pile;

    push(s, 0, STACKS_EMPTY);
    return close_pile(s, base, s->a->empty);
}

/* Like push, but drops an item that is already between `base` and the end of
 * the pile. It finds only the first such item of a state (met_at), so a few
 * duplicates may remain. */
static void push_once(struct stacks *s, size_t base, uint32_t state,
                      uint32_t below)
{
    uint64_t *word = &s->met[state / 64], bit = 1ull << state % 64;
    size_t at = s->n_pile - base;

    if (*word & bit && s->pile[base + s->met_at[state]].below == below)
        return;
    push(s, state, below);
    if (*word & bit || s->status != PL_OK)
        return;
    *word |= bit;
    s->met_at[state] = (uint32_t)at;
}

/* Pushes an item for each edge of the item's state that takes the byte class.
 * Narrows [*lo .. *hi] to the range of classes that all edges treat like
 * `class`, so that one step is cached for all of them. */
static void push_after(struct stacks *s, size_t base, struct stack_item it,
                       unsigned class, unsigned *lo, unsigned *hi)
{
    const struct state *q = &s->a->state[it.state];

    for (uint32_t k = q->byte; k < q[1].byte; k++) {
        const struct byte_edge *e = &s->a->byte[k];

        if (class > e->hi) {
            *lo = *lo > e->hi + 1u ? *lo : e->hi + 1u;
        } else if (class < e->lo) {
            *hi = *hi < e->lo - 1u ? *hi : e->lo - 1u;
        } else {
            *lo = *lo > e->lo ? *lo : e->lo;
            *hi = *hi < e->hi ? *hi : e->hi;
            push_once(s, base, e->to, it.below);
        }
    }
}

struct stack_row *stacks_row(struct stacks *s, uint32_t set)
{
    struct stack_set *of = &s->set[set];

    if (of->row)
        return of->row;
    of->row =
        arena_alloc(&s->memory, 1,
                    sizeof *of->row + s->a->n_class * sizeof of->row->next[0]);
    if (!of->row) {
        stacks_fail(s, PL_NO_MEMORY);
        return s->set[STACKS_DEAD].row;
    }
    of->row->set = set;
    of->row->depth = of->depth;
    of->row->ends = of->ends;
    return of->row;
}

struct stack_row *stacks_step_new(struct stacks *s, struct stack_row *from,
                                  unsigned class)
{
    size_t base = s->n_pile;
    unsigned lo = 0, hi = s->a->n_class - 1;
    struct stack_row *row;

    if (s->status != PL_OK)
        return s->set[STACKS_DEAD].row;
    for (uint32_t i = 0; i < s->set[from->set].n; i++)
        push_after(s, base, s->set[from->set].item[i], class, &lo, &hi);
    for (size_t i = base; i < s->n_pile; i++)
        s->met[s->pile[i].state / 64] = 0;
    row = stacks_row(s, close_pile(s, base, false));
    for (unsigned c = lo; c <= hi && s->status == PL_OK; c++)
        from->next[c] = row;
    return row;
}

/* ---- copying sets between pools ------------------------------------------ */

uint32_t stacks_carry(struct stacks *to, const struct stacks *from,
                      uint32_t *known, uint32_t set)
{
    const struct stack_set *old = &from->set[set];
    size_t base = to->n_pile;
    uint32_t made;

    if (set <= STACKS_EMPTY)
        return set;
    if (known[set])
        return known[set] - 1;
    /* Resets the count of pushed items: these items were within the limit
     * before. */
    to->n_push = 0;
    for (uint32_t i = 0; i < old->n; i++)
        push(to, old->item[i].state,
             stacks_carry(to, from, known, old->item[i].below));
    made = set_of(to, base, old->ends);
    known[set] = made + 1;
    return made;
}
