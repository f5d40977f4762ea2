/* Builds regular expressions as nodes, computes their derivatives, and writes
 * them as GBNF; see regex.h. regex_read.c parses their syntax. */
#include "grammar/regex_inner.h"

#include "base/hash64.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_NODES = 1 << 16,
    MOST_STEPS = 1 << 22,
    MOST_CLASSES = 1024,
    /* maximum number of operands of an alternative or an intersection */
    MOST_TERMS = 512,
    /* Maximum number of symbols, sets of equivalent characters, of a
     * deterministic automaton. */
    MOST_SYMBOLS = 256,
    /* Maximum size of an expression in parts (parts_of) after repetitions are
     * expanded. */
    MOST_PARTS = 20000,
    /* A character class with more ranges becomes a GBNF rule of its own. */
    LARGE_CLASS = 6,
    DEAD = UINT32_MAX,
};

/* ---- recording failures -------------------------------------------------- */

uint32_t regex_fail(struct regex *r, enum regex_failure f, const char *why)
{
    if (r->failure == REGEX_FINE) {
        r->failure = f;
        r->why = why;
    }
    return 0;
}

static uint32_t no_memory(struct regex *r)
{
    return regex_fail(r, REGEX_NO_MEMORY, "out of memory");
}

static uint32_t too_large(struct regex *r)
{
    return regex_fail(r, REGEX_TOO_LARGE, "it is too large");
}

/* Counts a step of the conversion. Returns false if there were more than
 * MOST_STEPS, which bounds the time, or if anything failed before. */
static bool step(struct regex *r)
{
    if (++r->n_step > MOST_STEPS)
        too_large(r);
    return r->failure == REGEX_FINE;
}

/* ---- building the nodes of expressions ----------------------------------- */

static bool same(const struct regex_node *x, const struct regex_node *y)
{
    return x->kind == y->kind && x->a == y->a && x->b == y->b &&
           x->min == y->min && x->max == y->max;
}

static uint32_t *slot_of(const struct regex *r, const struct regex_node *n)
{
    const uint32_t key[5] = {n->kind, n->a, n->b, n->min, n->max};
    uint32_t i = (uint32_t)hash64(0, key, sizeof key) & (r->n_slot - 1);

    while (r->slot[i] && !same(&r->node[r->slot[i]], n))
        i = (i + 1) & (r->n_slot - 1);
    return &r->slot[i];
}

/* Doubles the number of nodes that fit. The hash table has four entries for
 * each. */
static bool grow(struct regex *r)
{
    uint32_t cap = r->n_slot ? r->n_slot / 2 : 64;
    struct regex_node *node = arena_alloc(&r->memory, cap, sizeof *node);
    uint32_t *slot = arena_alloc(&r->memory, 4 * (size_t)cap, sizeof *slot);

    if (!node || !slot)
        return no_memory(r);
    if (r->node)
        memcpy(node, r->node, r->n_node * sizeof *node);
    r->node = node;
    r->slot = slot;
    r->n_slot = 4 * cap;
    for (uint32_t i = 1; i < r->n_node; i++)
        *slot_of(r, &node[i]) = i;
    return true;
}

/* Returns the number of node n. Adds the node if no equal one exists. */
static uint32_t intern(struct regex *r, struct regex_node n)
{
    uint32_t *slot;

    if (r->n_node >= MOST_NODES)
        return too_large(r);
    if (4 * r->n_node >= r->n_slot && !grow(r))
        return 0;
    slot = slot_of(r, &n);
    if (*slot)
        return *slot;
    r->node[r->n_node] = n;
    return *slot = r->n_node++;
}

static bool both_are(const struct regex *r, uint32_t a, uint32_t b)
{
    return a && b && r->failure == REGEX_FINE;
}

bool regex_init(struct regex *r)
{
    struct char_range all[2] = {{0, 0xd7ff}, {0xe000, RULES_LAST_CHAR}};

    r->n_node = 1;
    intern(r, (struct regex_node){.kind = NODE_NOTHING, .plain = true});
    intern(r, (struct regex_node){
                  .kind = NODE_EMPTY, .empty = true, .plain = true});
    regex_class(r, all, 2);
    intern(r, (struct regex_node){.kind = NODE_STAR,
                                  .a = REGEX_ANY,
                                  .empty = true,
                                  .plain = true});
    return r->failure == REGEX_FINE;
}

uint32_t regex_class(struct regex *r, const struct char_range *range,
                     uint32_t n)
{
    uint32_t i = 0;

    while (i < r->n_class &&
           (r->class[i].n != n ||
            memcmp(r->class[i].range, range, n * sizeof *range) != 0))
        i++;
    if (i == MOST_CLASSES)
        return too_large(r);
    if (i == r->n_class) {
        struct regex_class c = {
            .range = arena_memdup(&r->memory, range, n, sizeof *range), .n = n};
        struct regex_class *more =
            arena_extended(&r->memory, r->class, i, sizeof *more);

        if (!c.range || !more)
            return no_memory(r);
        r->class = more;
        more[r->n_class++] = c;
    }
    return intern(
        r, (struct regex_node){.kind = NODE_CLASS, .a = i, .plain = true});
}

uint32_t regex_cat(struct regex *r, uint32_t a, uint32_t b)
{
    if (!both_are(r, a, b))
        return 0;
    if (a == REGEX_NOTHING || b == REGEX_NOTHING)
        return REGEX_NOTHING;
    if (a == REGEX_EMPTY || (a == REGEX_ALL && b == REGEX_ALL))
        return b;
    if (b == REGEX_EMPTY)
        return a;
    return intern(
        r, (struct regex_node){.kind = NODE_CAT,
                               .a = a,
                               .b = b,
                               .empty = r->node[a].empty && r->node[b].empty,
                               .plain = r->node[a].plain && r->node[b].plain});
}

/* The operands of nested alternatives (x | y | ...), or of nested
 * intersections. */
struct terms {
    uint32_t item[2 * MOST_TERMS], n;
};

static void gather(const struct regex *r, uint32_t a, enum node_kind kind,
                   struct terms *t)
{
    for (; r->node[a].kind == kind && t->n < MOST_TERMS; a = r->node[a].b)
        t->item[t->n++] = r->node[a].a;
    t->item[t->n++] = a;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Returns the node of the alternative or the intersection of nodes a and b.
 * Sorts all operands and drops duplicates, so that equal sets of operands give
 * the same node. An operand `zero` makes the result `zero`; an operand `one`
 * changes nothing. */
static uint32_t join(struct regex *r, enum node_kind kind, uint32_t a,
                     uint32_t b, uint32_t zero, uint32_t one)
{
    struct terms t = {.n = 0};
    uint32_t out = 0;

    if (!both_are(r, a, b))
        return 0;
    if (a == zero || b == zero)
        return zero;
    if (a == one || a == b)
        return b;
    if (b == one)
        return a;
    gather(r, a, kind, &t);
    if (t.n <= MOST_TERMS)
        gather(r, b, kind, &t);
    if (t.n > MOST_TERMS)
        return too_large(r);
    qsort(t.item, t.n, sizeof t.item[0], by_number);
    for (uint32_t i = t.n; i-- > 0;) {
        uint32_t x = t.item[i];
        bool all = kind == NODE_BOTH;

        if (i > 0 && t.item[i - 1] == x)
            continue;
        if (out == 0) {
            out = x;
            continue;
        }
        out = intern(
            r, (struct regex_node){
                   .kind = (uint8_t)kind,
                   .a = x,
                   .b = out,
                   .empty = all ? r->node[x].empty && r->node[out].empty
                                : r->node[x].empty || r->node[out].empty,
                   .plain = !all && r->node[x].plain && r->node[out].plain});
        if (!out)
            return 0;
    }
    return out;
}

uint32_t regex_either(struct regex *r, uint32_t a, uint32_t b)
{
    return join(r, NODE_EITHER, a, b, REGEX_ALL, REGEX_NOTHING);
}

uint32_t regex_both(struct regex *r, uint32_t a, uint32_t b)
{
    if (both_are(r, a, b) && (a == REGEX_EMPTY || b == REGEX_EMPTY))
        return r->node[a].empty && r->node[b].empty ? REGEX_EMPTY
                                                    : REGEX_NOTHING;
    return join(r, NODE_BOTH, a, b, REGEX_NOTHING, REGEX_ALL);
}

uint32_t regex_not(struct regex *r, uint32_t a)
{
    if (!both_are(r, a, a))
        return 0;
    if (a == REGEX_NOTHING)
        return REGEX_ALL;
    if (a == REGEX_ALL)
        return REGEX_NOTHING;
    if (r->node[a].kind == NODE_NOT)
        return r->node[a].a;
    return intern(r, (struct regex_node){
                         .kind = NODE_NOT, .a = a, .empty = !r->node[a].empty});
}

uint32_t regex_repeat(struct regex *r, uint32_t a, uint32_t min, uint32_t max)
{
    struct regex_node n = {.kind = NODE_REPEAT, .a = a, .min = min, .max = max};

    if (!both_are(r, a, a))
        return 0;
    if (max == 0 || a == REGEX_EMPTY || (a == REGEX_NOTHING && min == 0))
        return REGEX_EMPTY;
    if (a == REGEX_NOTHING || (min == 1 && max == 1))
        return a;
    n.plain = r->node[a].plain;
    n.min = r->node[a].empty ? 0 : min;
    n.empty = n.min == 0;
    if (n.empty && max == RULES_UNLIMITED) {
        n.kind = NODE_STAR;
        n.min = n.max = 0;
    }
    return r->node[a].kind == NODE_STAR && n.empty ? a : intern(r, n);
}

uint32_t regex_text(struct regex *r, const char *s, size_t len)
{
    uint32_t *at = arena_alloc(&r->memory, len, sizeof *at);
    uint32_t out = REGEX_EMPTY;
    size_t n = 0, k = 0;

    if (!at)
        return no_memory(r);
    while (k < len) {
        struct char_range c = {0, 0};
        size_t more = utf8_get(s + k, len - k, &c.first);

        c.last = c.first;
        at[n++] = regex_class(r, &c, 1);
        k += more ? more : 1;
    }
    while (n > 0)
        out = regex_cat(r, at[--n], out);
    return out;
}

uint32_t regex_clip(struct regex *r, uint32_t a, uint32_t min, uint32_t max)
{
    struct regex_node n;
    uint32_t low = 1, high = 1, of = a;

    if (!both_are(r, a, a))
        return 0;
    n = r->node[a];
    if (n.kind == NODE_STAR || n.kind == NODE_REPEAT) {
        of = n.a;
        low = n.kind == NODE_STAR ? 0 : n.min;
        high = n.kind == NODE_STAR ? RULES_UNLIMITED : n.max;
    }
    if (r->node[of].kind != NODE_CLASS)
        return regex_both(r, a, regex_repeat(r, REGEX_ANY, min, max));
    low = low > min ? low : min;
    high = high < max ? high : max;
    return low > high ? REGEX_NOTHING : regex_repeat(r, of, low, high);
}

/* ---- derivatives of expressions ------------------------------------------ */

static bool class_has(const struct regex_class *c, uint32_t character)
{
    uint32_t low = 0, high = c->n;

    while (low < high) {
        uint32_t mid = (low + high) / 2;

        if (character > c->range[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < c->n && character >= c->range[low].first;
}

/* Returns the derivative of node `a` by character c: the node of all texts
 * that, written after c, form a text of `a`. */
static uint32_t after(struct regex *r, uint32_t a, uint32_t c)
{
    const struct regex_node n = a ? r->node[a] : (struct regex_node){0};
    uint32_t x;

    if (!a || !step(r))
        return 0;
    switch ((enum node_kind)n.kind) {
    case NODE_NOTHING:
    case NODE_EMPTY:
        break;
    case NODE_CLASS:
        return class_has(&r->class[n.a], c) ? REGEX_EMPTY : REGEX_NOTHING;
    case NODE_CAT:
        x = regex_cat(r, after(r, n.a, c), n.b);
        return x && r->node[n.a].empty ? regex_either(r, x, after(r, n.b, c))
                                       : x;
    case NODE_EITHER:
        return regex_either(r, after(r, n.a, c), after(r, n.b, c));
    case NODE_BOTH:
        return regex_both(r, after(r, n.a, c), after(r, n.b, c));
    case NODE_NOT:
        return regex_not(r, after(r, n.a, c));
    case NODE_STAR:
        return a == REGEX_ALL ? a : regex_cat(r, after(r, n.a, c), a);
    case NODE_REPEAT:
        x = regex_repeat(r, n.a, n.min ? n.min - 1 : 0,
                         n.max == RULES_UNLIMITED ? n.max : n.max - 1);
        return regex_cat(r, after(r, n.a, c), x);
    }
    return REGEX_NOTHING;
}

bool regex_takes(struct regex *r, uint32_t a, const char *s, size_t len)
{
    while (len > 0 && a) {
        uint32_t c;
        size_t n = utf8_get(s, len, &c);

        a = n ? after(r, a, c) : REGEX_NOTHING;
        s += n ? n : len;
        len -= n ? n : len;
    }
    return a && r->node[a].empty;
}

/* ---- deterministic automata of expressions ------------------------------- */

/* A deterministic automaton of a node. It reads symbols: sets of characters
 * that no character class of the expression distinguishes. All its memory is
 * that of the expression. */
struct dfa {
    /* [n_bound], ascending. Range i of characters begins at bound[i] and ends
     * before bound[i + 1]. */
    uint32_t *bound;
    /* [n_bound]: the symbol of the characters of each range; DEAD for the
     * surrogates, which are not characters. */
    uint32_t *of;
    struct char_range *range; /* scratch, [2 * n_bound + 2] */
    uint32_t n_bound, n_symbol, n_state;
    uint32_t one[MOST_SYMBOLS]; /* one of the characters of each symbol */
    /* [n_state]: node of the texts that complete a match from each state */
    uint32_t *node;
    /* [n_state, n_symbol]: the state after each symbol, or DEAD if no match is
     * possible */
    uint32_t *to;
    bool *alive; /* [n_state]: a match can be completed from the state */
};

/* Fills d->bound with all characters at which a range of a class begins, or
 * which follow its end, in ascending order. */
static bool find_bounds(struct regex *r, struct dfa *d)
{
    size_t n = 4;
    uint32_t k = 0;

    for (uint32_t i = 0; i < r->n_class; i++)
        n += 2 * (size_t)r->class[i].n;
    d->bound = arena_alloc(&r->memory, n, sizeof *d->bound);
    d->of = arena_alloc(&r->memory, n, sizeof *d->of);
    d->range = arena_alloc(&r->memory, 2 * n + 2, sizeof *d->range);
    if (r->memory.failed_bytes)
        return no_memory(r);
    d->bound[k++] = 0xd800;
    d->bound[k++] = 0xe000;
    d->bound[k++] = 0;
    for (uint32_t i = 0; i < r->n_class; i++)
        for (uint32_t j = 0; j < r->class[i].n; j++) {
            d->bound[k++] = r->class[i].range[j].first;
            d->bound[k++] = r->class[i].range[j].last + 1;
        }
    qsort(d->bound, k, sizeof *d->bound, by_number);
    for (uint32_t i = 0; i < k && d->bound[i] <= RULES_LAST_CHAR; i++)
        if (i == 0 || d->bound[i] != d->bound[i - 1])
            d->bound[d->n_bound++] = d->bound[i];
    return true;
}

/* Returns true if every class of the expression contains both characters x and
 * y, or neither. */
static bool alike(struct regex *r, uint32_t x, uint32_t y)
{
    for (uint32_t i = 0; i < r->n_class; i++)
        if (class_has(&r->class[i], x) != class_has(&r->class[i], y))
            return false;
    return true;
}

static bool find_symbols(struct regex *r, struct dfa *d)
{
    if (!find_bounds(r, d))
        return false;
    for (uint32_t i = 0; i < d->n_bound; i++) {
        uint32_t k = 0;

        d->of[i] = DEAD;
        if (d->bound[i] == 0xd800)
            continue;
        r->n_step += 16 * r->n_class;
        if (!step(r))
            return false;
        while (k < d->n_symbol && !alike(r, d->one[k], d->bound[i]))
            k++;
        if (k == MOST_SYMBOLS)
            return too_large(r);
        if (k == d->n_symbol)
            d->one[d->n_symbol++] = d->bound[i];
        d->of[i] = k;
    }
    return true;
}

/* Returns the state of the automaton for a node; adds a state if there is none
 * yet. Returns DEAD if the node matches nothing, or if there would be more than
 * `most` states, which is a failure. */
static uint32_t state_of(struct regex *r, struct dfa *d, uint32_t node,
                         uint32_t most)
{
    if (node == REGEX_NOTHING)
        return DEAD;
    if (r->node[node].state == 0 && d->n_state == most) {
        too_large(r);
        return DEAD;
    }
    if (r->node[node].state == 0) {
        d->node[d->n_state] = node;
        r->node[node].state = ++d->n_state;
    }
    return r->node[node].state - 1;
}

static void find_alive(const struct regex *r, struct dfa *d)
{
    bool changed = true;

    for (uint32_t i = 0; i < d->n_state; i++)
        d->alive[i] = r->node[d->node[i]].empty;
    while (changed) {
        changed = false;
        for (uint32_t i = d->n_state; i-- > 0;)
            for (uint32_t k = 0; k < d->n_symbol && !d->alive[i]; k++) {
                uint32_t to = d->to[i * d->n_symbol + k];

                d->alive[i] = to != DEAD && d->alive[to];
                changed |= d->alive[i];
            }
    }
}

static bool build(struct regex *r, struct dfa *d, uint32_t a, uint32_t most)
{
    if (!find_symbols(r, d))
        return false;
    d->node = arena_alloc(&r->memory, most, sizeof *d->node);
    d->to = arena_alloc(&r->memory, (size_t)most * d->n_symbol, sizeof *d->to);
    d->alive = arena_alloc(&r->memory, most, sizeof *d->alive);
    if (r->memory.failed_bytes)
        return no_memory(r);
    state_of(r, d, a, most);
    for (uint32_t i = 0; i < d->n_state; i++)
        for (uint32_t k = 0; k < d->n_symbol; k++) {
            uint32_t to = after(r, d->node[i], d->one[k]);

            if (to)
                d->to[i * d->n_symbol + k] = state_of(r, d, to, most);
            if (r->failure != REGEX_FINE)
                return false;
        }
    for (uint32_t i = 0; i < d->n_state; i++)
        r->node[d->node[i]].state = 0;
    find_alive(r, d);
    return true;
}

/* ---- writing expressions as GBNF ----------------------------------------- */

static void put_class(const struct regex_out *out, struct gbnf_text *t,
                      const struct char_range *range, uint32_t n)
{
    if (out->json) {
        gbnf_put_json_char(t, range, n);
        return;
    }
    gbnf_put(t, "[");
    for (uint32_t i = 0; i < n; i++)
        gbnf_print(t, "\\U%08X-\\U%08X", (unsigned)range[i].first,
                   (unsigned)range[i].last);
    gbnf_put(t, "]");
}

/* Appends the body of the GBNF rule of state i: one alternative for each next
 * state, a class of characters followed by the rule of that state. The rule of
 * state k is s<first + k>. If the text may end in state i, the end is an
 * alternative, too. */
static void put_state(struct regex *r, const struct dfa *d, uint32_t i,
                      uint32_t first, const struct regex_out *out,
                      struct gbnf_text *t)
{
    const char *before = "";

    if (r->node[d->node[i]].empty) {
        gbnf_put(t, out->json ? "\"\\\"\"" : "\"\"");
        before = " | ";
    }
    for (uint32_t to = 0; to < d->n_state; to++) {
        uint32_t n = 0, k = 0;

        while (k < d->n_symbol && d->to[i * d->n_symbol + k] != to)
            k++;
        if (k == d->n_symbol || !d->alive[to])
            continue;
        for (k = 0; k < d->n_bound; k++)
            if (d->of[k] != DEAD && d->to[i * d->n_symbol + d->of[k]] == to)
                d->range[n++] = (struct char_range){
                    d->bound[k],
                    k + 1 < d->n_bound ? d->bound[k + 1] - 1 : RULES_LAST_CHAR};
        n = char_ranges_normal(d->range, n, false);
        if (n == 0)
            continue;
        gbnf_put(t, before);
        put_class(out, t, d->range, n);
        gbnf_print(t, " s%u", (unsigned)(first + to));
        before = " | ";
    }
}

/* Writes the deterministic automaton of node `a`, a rule for each state from
 * which a match can be completed. */
static bool put_dfa(struct regex *r, uint32_t a, const struct regex_out *out,
                    struct gbnf_text *t)
{
    uint32_t first = *out->n_rule;
    struct dfa d = {.n_state = 0};

    if (!build(r, &d, a, out->most_states))
        return false;
    if (d.n_state == 0 || !d.alive[0])
        return regex_fail(r, REGEX_UNSUPPORTED, "no text matches it");
    *out->n_rule += d.n_state;
    for (uint32_t i = 0; i < d.n_state; i++) {
        struct gbnf_text body = {0};

        if (!d.alive[i])
            continue;
        put_state(r, &d, i, first, out, &body);
        gbnf_put_rule(out->rules, first + i, &body);
    }
    gbnf_print(t, out->json ? "\"\\\"\" s%u" : "s%u", (unsigned)first);
    return true;
}

/* Returns the approximate size, in parts, of the GBNF expression for node `a`,
 * at most MOST_PARTS + 1. A part is a range, a class or an operator. */
static uint32_t parts_of(const struct regex *r, uint32_t a)
{
    uint64_t n = 0;

    for (;; a = r->node[a].b) {
        const struct regex_node *x = &r->node[a];

        if (x->kind == NODE_CLASS)
            n += 1 + r->class[x->a].n;
        else if (x->kind == NODE_STAR)
            n += 2 + parts_of(r, x->a);
        else if (x->kind == NODE_REPEAT)
            n += (uint64_t)parts_of(r, x->a) *
                 (x->max == RULES_UNLIMITED ? x->min + 1 : x->max);
        else if (x->kind == NODE_CAT || x->kind == NODE_EITHER)
            n += parts_of(r, x->a);
        if ((x->kind != NODE_CAT && x->kind != NODE_EITHER) || n > MOST_PARTS)
            break;
    }
    return n > MOST_PARTS ? MOST_PARTS + 1 : (uint32_t)n;
}

static void put_plain(struct regex *r, uint32_t a, const struct regex_out *out,
                      struct gbnf_text *t);

/* Appends an expression for a character class. If the class has many ranges,
 * writes a rule for it once, and appends the name of the rule. */
static void put_class_node(struct regex *r, uint32_t class,
                           const struct regex_out *out, struct gbnf_text *t)
{
    struct regex_class *c = &r->class[class];
    struct gbnf_text body = {0};

    if (out->json && class == r->node[REGEX_ANY].a) {
        gbnf_put(t, "char");
        return;
    }
    if (c->n <= LARGE_CLASS) {
        put_class(out, t, c->range, c->n);
        return;
    }
    if (!c->rule) {
        put_class(out, &body, c->range, c->n);
        c->rule = ++*out->n_rule;
        gbnf_put_rule(out->rules, c->rule - 1, &body);
    }
    gbnf_print(t, "s%u", (unsigned)c->rule - 1);
}

static void put_group(struct regex *r, uint32_t a, const struct regex_out *out,
                      struct gbnf_text *t)
{
    bool one = r->node[a].kind == NODE_CLASS;

    gbnf_put(t, one ? "" : "(");
    put_plain(r, a, out, t);
    gbnf_put(t, one ? "" : ")");
}

static void put_plain(struct regex *r, uint32_t a, const struct regex_out *out,
                      struct gbnf_text *t)
{
    struct regex_node n = r->node[a];

    for (; n.kind == NODE_CAT || n.kind == NODE_EITHER; n = r->node[n.b])
        if (n.kind == NODE_EITHER) {
            put_plain(r, n.a, out, t);
            gbnf_put(t, " | ");
        } else {
            put_group(r, n.a, out, t);
            gbnf_put(t, " ");
            if (r->node[n.b].kind == NODE_EITHER) {
                put_group(r, n.b, out, t);
                return;
            }
        }
    if (n.kind == NODE_CLASS)
        put_class_node(r, n.a, out, t);
    else if (n.kind == NODE_STAR || n.kind == NODE_REPEAT)
        put_group(r, n.a, out, t);
    else
        gbnf_put(t, "\"\"");
    if (n.kind == NODE_STAR)
        gbnf_put(t, "*");
    else if (n.kind == NODE_REPEAT && n.max == RULES_UNLIMITED)
        gbnf_print(t, "{%u,}", (unsigned)n.min);
    else if (n.kind == NODE_REPEAT)
        gbnf_print(t, "{%u,%u}", (unsigned)n.min, (unsigned)n.max);
}

bool regex_put(struct regex *r, uint32_t a, const struct regex_out *out,
               struct gbnf_text *text)
{
    if (!a || r->failure != REGEX_FINE)
        return false;
    if (!r->node[a].plain || a == REGEX_NOTHING)
        return put_dfa(r, a, out, text);
    if (parts_of(r, a) > MOST_PARTS)
        return too_large(r);
    gbnf_put(text, out->json ? "\"\\\"\" (" : "(");
    put_plain(r, a, out, text);
    gbnf_put(text, out->json ? ") \"\\\"\"" : ")");
    return true;
}
