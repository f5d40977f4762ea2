/* Converts the trees of rules to graphs; see nfa.h. */
#include "grammar/nfa.h"

#include "base/err.h"
#include "grammar/reach.h"

#include <string.h>

enum {
    MOST_EDGES = 1 << 19,
    /* Limit of visits of nodes of rule trees. The limit of graph nodes does not
     * suffice, because some visits create no node. */
    MOST_STEPS = 1 << 21,
    /* Maximum size, in graph nodes, of a rule with an endless repetition that
     * is inlined into the rules that use it. */
    INLINE_SIZE = 16,
    /* Maximum size, in graph nodes, of a rule that is inlined and has no
     * endless repetition. */
    INLINE_WITHOUT_LOOP = 64,
    /* Maximum depth to which inlined rules contain other inlined rules. */
    INLINE_PASSES = 8,
};

/* The construction of a graph. Failures are sticky: after the first one,
 * functions add nothing and return node 0. */
struct builder {
    struct nfa *g;
    const struct rules *r;
    const char *name;
    /* [n_rule], in the arena of the graph: the rule is inlined; it matches at
     * least one text; its body has an endless repetition, of its own or in a
     * rule inlined into it. */
    bool *in_place, *ends, *loops;
    uint32_t *size; /* [n_rule], in that arena: approximate number of graph
                       nodes of the rule's body */
    uint32_t rule, n_step;
    pl_status status; /* first failure other than that of the arena */
    pl_err *err;
};

static bool goes_on(const struct builder *b)
{
    return b->status == PL_OK && b->g->memory.failed_bytes == 0;
}

/* Fails with a message that names a rule, between the texts `before` and
 * `after`. */
static void refuse(struct builder *b, uint32_t rule, const char *before,
                   const char *after)
{
    char shown[ERR_SHOWN];
    const struct rule *r = &b->r->rule[rule];

    if (goes_on(b))
        b->status = err_set(b->err, PL_BAD_ARGUMENT,
                            "%s: line %lld, column %lld: %s %s %s", b->name,
                            (long long)r->line, (long long)r->column, before,
                            err_shown(shown, r->name, strlen(r->name)), after);
}

static void too_large(struct builder *b)
{
    refuse(b, b->rule, "the rules up to",
           "are too large once repetitions are expanded; repeat less, or "
           "without an upper bound");
}

/* ---- adding nodes and edges to the graph --------------------------------- */

static uint32_t node_new(struct builder *b)
{
    struct nfa *g = b->g;
    uint32_t *first;

    if (g->n_node == NFA_NODES)
        too_large(b);
    first = goes_on(b)
                ? arena_extended(&g->memory, g->first, g->n_node, sizeof *first)
                : NULL;
    if (!first)
        return 0;
    g->first = first;
    g->first[g->n_node] = NFA_NONE;
    return g->n_node++;
}

static void edge_add(struct builder *b, uint32_t from, struct nfa_edge e)
{
    struct nfa *g = b->g;
    struct nfa_edge *edge;

    if (g->n_edge == MOST_EDGES)
        too_large(b);
    edge = goes_on(b)
               ? arena_extended(&g->memory, g->edge, g->n_edge, sizeof *edge)
               : NULL;
    if (!edge)
        return;
    g->edge = edge;
    e.next = g->first[from];
    g->edge[g->n_edge] = e;
    g->first[from] = g->n_edge++;
}

static void add_empty(struct builder *b, uint32_t from, uint32_t to)
{
    edge_add(b, from, (struct nfa_edge){.kind = NFA_EMPTY, .to = to});
}

static void add_bytes(struct builder *b, uint32_t from, unsigned lo,
                      unsigned hi, uint32_t to)
{
    edge_add(
        b, from,
        (struct nfa_edge){
            .kind = NFA_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to});
}

/* Adds a node to which the byte c leads from `from`. */
static uint32_t node_after(struct builder *b, uint32_t from, unsigned c)
{
    uint32_t to = node_new(b);

    add_bytes(b, from, c, c, to);
    return to;
}

/* ---- adding character classes as UTF-8 ----------------------------------- */

/* The last nodes of a character class while its edges are added. All its
 * characters end at node `end`. rest[n] is NFA_NONE or the node from which any
 * n continuation bytes (80..BF) lead to `end`, n = 1 .. 3. */
struct tails {
    uint32_t end, rest[4];
};

static uint32_t tail_of(struct builder *b, struct tails *t, int n)
{
    uint32_t next;

    if (n == 0)
        return t->end;
    if (t->rest[n] == NFA_NONE) {
        next = tail_of(b, t, n - 1);
        t->rest[n] = node_new(b);
        add_bytes(b, t->rest[n], 0x80, 0xbf, next);
    }
    return t->rest[n];
}

/* Adds edges from node `from` for all UTF-8 encodings between lo[0 .. n) and
 * hi[0 .. n). If the first byte is strictly between lo[0] and hi[0], the other
 * bytes may be any of 80..BF, so these encodings share nodes (tail_of). */
static void add_span(struct builder *b, struct tails *t, uint32_t from,
                     const unsigned char *lo, const unsigned char *hi, int n)
{
    static const unsigned char low[3] = {0x80, 0x80, 0x80};
    static const unsigned char high[3] = {0xbf, 0xbf, 0xbf};
    size_t rest = (size_t)(n - 1);
    unsigned first = lo[0], last = hi[0];

    if (first == last && rest) {
        add_span(b, t, node_after(b, from, first), lo + 1, hi + 1, n - 1);
        return;
    }
    if (memcmp(lo + 1, low, rest) != 0) {
        add_span(b, t, node_after(b, from, first), lo + 1, high, n - 1);
        first++;
    }
    if (memcmp(hi + 1, high, rest) != 0) {
        add_span(b, t, node_after(b, from, last), low, hi + 1, n - 1);
        last--;
    }
    if (first <= last)
        add_bytes(b, from, first, last, tail_of(b, t, n - 1));
}

/* ---- adding syntax trees to the graph ------------------------------------ */

/* Adds the graph of a tree from node `from` on, and returns the node at which
 * its texts end. So do the functions for the kinds of trees. */
static uint32_t add_tree(struct builder *b, const struct tree *t,
                         uint32_t from);

static uint32_t add_class(struct builder *b, const struct tree *t,
                          uint32_t from)
{
    static const uint32_t last_of[4] = {0x7f, 0x7ff, 0xffff, RULES_LAST_CHAR};
    struct tails tails = {.end = node_new(b),
                          .rest = {NFA_NONE, NFA_NONE, NFA_NONE, NFA_NONE}};

    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t first = t->range[i].first;

        for (int k = 0; k < 4 && first <= t->range[i].last; k++) {
            uint32_t last = t->range[i].last;
            char lo[4], hi[4];

            if (first > last_of[k])
                continue;
            last = last < last_of[k] ? last : last_of[k];
            utf8_put(lo, first);
            utf8_put(hi, last);
            add_span(b, &tails, from, (unsigned char *)lo, (unsigned char *)hi,
                     k + 1);
            first = last + 1;
        }
    }
    return tails.end;
}

static uint32_t add_rule(struct builder *b, const struct tree *t, uint32_t from)
{
    uint32_t to;

    if (b->in_place[t->rule])
        return add_tree(b, b->r->rule[t->rule].body, from);
    to = node_new(b);
    edge_add(b, from,
             (struct nfa_edge){.kind = NFA_RULE, .rule = t->rule, .to = to});
    return to;
}

static uint32_t add_alternatives(struct builder *b, const struct tree *t,
                                 uint32_t from)
{
    uint32_t to = node_new(b);

    for (uint32_t i = 0; i < t->n; i++)
        add_empty(b, add_tree(b, t->child[i], from), to);
    return to;
}

/* Adds the copies of a repeated item to g->row; the first copy begins after
 * `node`. Leaves out repetitions of so few copies that even the shortest tokens
 * distinguish all of them. */
static void row_add(struct builder *b, const struct tree *t, uint32_t node)
{
    struct nfa *g = b->g;
    bool endless = t->max == RULES_UNLIMITED;
    uint32_t n = endless ? t->min : t->max;
    struct nfa_row *row;

    if (n <= REACH_FIRST_CHARS + 1)
        return;
    row = arena_extended(&g->memory, g->row, g->n_row, sizeof *row);
    if (!row)
        return;
    g->row = row;
    g->row[g->n_row++] = (struct nfa_row){.node = node,
                                          .size = (g->n_node - node) / n,
                                          .n = n,
                                          .min = t->min,
                                          .endless = endless};
}

static uint32_t add_repeat(struct builder *b, const struct tree *t,
                           uint32_t from)
{
    const struct tree *child = t->child[0];
    bool endless = t->max == RULES_UNLIMITED;
    uint32_t to = node_new(b), first = b->g->n_node, loop;

    for (uint32_t i = 0; i < (endless ? t->min : t->max); i++) {
        if (i >= t->min)
            add_empty(b, from, to);
        from = add_tree(b, child, from);
    }
    row_add(b, t, first);
    if (endless) {
        loop = node_new(b);
        add_empty(b, from, loop);
        add_empty(b, add_tree(b, child, loop), loop);
        from = loop;
    }
    add_empty(b, from, to);
    return to;
}

static uint32_t add_tree(struct builder *b, const struct tree *t, uint32_t from)
{
    if (++b->n_step > MOST_STEPS)
        too_large(b);
    if (!goes_on(b))
        return 0;
    switch (t->kind) {
    case TREE_CLASS:
        return add_class(b, t, from);
    case TREE_RULE:
        return add_rule(b, t, from);
    case TREE_ALT:
        return add_alternatives(b, t, from);
    case TREE_REPEAT:
        return add_repeat(b, t, from);
    case TREE_BYTES:
        if (t->n && (t->bytes[0] & 0xc0) == 0x80)
            b->g->chars = false;
        for (uint32_t i = 0; i < t->n; i++)
            from = node_after(b, from, (unsigned char)t->bytes[i]);
        return from;
    case TREE_SEQ:
        break;
    }
    for (uint32_t i = 0; i < t->n; i++)
        from = add_tree(b, t->child[i], from);
    return from;
}

/* ---- rules that are empty, never end, or are inlined --------------------- */

/* With `empty`, returns true if the tree matches the empty text. Without it,
 * returns true if the tree matches any text at all, so that it can end. of[i]
 * is the answer to the same question for rule i, as far as it is known. */
static bool holds(const struct tree *t, const bool *of, bool empty)
{
    switch (t->kind) {
    case TREE_BYTES:
        return !empty || t->n == 0;
    case TREE_CLASS:
        return !empty;
    case TREE_RULE:
        return of[t->rule];
    case TREE_REPEAT:
        return t->min == 0 || t->max == 0 || holds(t->child[0], of, empty);
    case TREE_ALT:
        for (uint32_t i = 0; i < t->n; i++)
            if (holds(t->child[i], of, empty))
                return true;
        return false;
    case TREE_SEQ:
        break;
    }
    for (uint32_t i = 0; i < t->n; i++)
        if (!holds(t->child[i], of, empty))
            return false;
    return true;
}

/* Sets of[i] to the answer of holds() for the body of each rule i. It starts
 * with false for all rules and repeats until no answer changes. */
static void find_rules(const struct rules *r, bool *of, bool empty)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < r->n; i++) {
            if (of[i] || !holds(r->rule[i].body, of, empty))
                continue;
            of[i] = true;
            changed = true;
        }
    }
}

/* Returns the first rule named in the tree that matches no text, so that the
 * tree matches none either. ends[i] is true if rule i matches a text. */
static uint32_t endless_in(const struct tree *t, const bool *ends)
{
    while (t->kind != TREE_RULE) {
        uint32_t i = 0;

        while (holds(t->child[i], ends, false))
            i++;
        t = t->child[i];
    }
    return t->rule;
}

/* Fails if a rule can never end. */
static void find_endless(struct builder *b)
{
    uint32_t bad = 0;

    find_rules(b->r, b->ends, false);
    while (bad < b->r->n && b->ends[bad])
        bad++;
    if (bad == b->r->n)
        return;
    /* Each step goes to a rule that the present rule always contains. After
     * n_rule steps the rule certainly contains itself. */
    for (uint32_t i = 0; i < b->r->n; i++)
        bad = endless_in(b->r->rule[bad].body, b->ends);
    refuse(b, bad, "the rule",
           "can never end, because it always contains itself; add an "
           "alternative that does not");
}

/* Returns the approximate number of graph nodes for a tree, at most LARGE. A
 * tree that calls a rule which is not inlined counts as LARGE. Sets *loops if
 * the tree contains an endless repetition. */
static uint32_t size_of(const struct builder *b, const struct tree *t,
                        bool *loops)
{
    enum { LARGE = INLINE_WITHOUT_LOOP + 1 };
    uint64_t n = 1;

    switch (t->kind) {
    case TREE_BYTES:
        n = t->n;
        break;
    case TREE_CLASS:
        for (uint32_t i = 0; i < t->n; i++)
            n += t->range[i].last > 0x7f ? 9 : 0;
        break;
    case TREE_RULE:
        *loops |= b->loops[t->rule];
        n += b->in_place[t->rule] ? b->size[t->rule] : LARGE;
        break;
    case TREE_REPEAT:
        *loops |= t->max == RULES_UNLIMITED;
        n += size_of(b, t->child[0], loops) *
             (uint64_t)(t->max == RULES_UNLIMITED ? t->min + 1 : t->max);
        break;
    case TREE_SEQ:
    case TREE_ALT:
        for (uint32_t i = 0; i < t->n && n < LARGE; i++)
            n += size_of(b, t->child[i], loops);
        break;
    }
    return n < LARGE ? (uint32_t)n : LARGE;
}

/* Decides which rules are inlined, by the size of their bodies. A recursive
 * rule is never inlined, because every rule counts as LARGE until it is
 * inlined. */
static void find_small(struct builder *b)
{
    for (int pass = 0; pass < INLINE_PASSES; pass++) {
        for (uint32_t i = 0; i < b->r->n; i++) {
            bool loops = false;
            uint32_t size;

            if (b->in_place[i])
                continue;
            size = size_of(b, b->r->rule[i].body, &loops);
            b->size[i] = size;
            b->loops[i] = loops;
            b->in_place[i] =
                size <= (loops ? INLINE_SIZE : INLINE_WITHOUT_LOOP);
        }
    }
}

/* ---- construction of the graph ------------------------------------------- */

static void add_rules(struct builder *b)
{
    struct nfa *g = b->g;

    for (uint32_t i = 0; i < b->r->n; i++) {
        uint32_t start;

        b->rule = i;
        g->entry[i] = g->end[i] = NFA_NONE;
        if (b->in_place[i] && i != b->r->root)
            continue;
        g->entry[i] = node_new(b);
        start = node_new(b);
        g->end[i] = node_new(b);
        add_empty(b, g->entry[i], start);
        add_empty(b, add_tree(b, b->r->rule[i].body, start), g->end[i]);
    }
}

pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err)
{
    struct builder b = {.g = g, .r = r, .name = name, .err = err};
    struct arena *a = &g->memory;
    size_t n = r->n;

    *g = (struct nfa){.chars = true};
    g->entry = arena_alloc(a, n, sizeof *g->entry);
    g->end = arena_alloc(a, n, sizeof *g->end);
    g->nullable = arena_alloc(a, n, sizeof *g->nullable);
    b.in_place = arena_alloc(a, n, sizeof *b.in_place);
    b.ends = arena_alloc(a, n, sizeof *b.ends);
    b.loops = arena_alloc(a, n, sizeof *b.loops);
    b.size = arena_alloc(a, n, sizeof *b.size);
    PL_TRY(arena_check(a, "a grammar", err));
    find_endless(&b);
    if (b.status == PL_OK) {
        find_rules(r, g->nullable, true);
        find_small(&b);
        add_rules(&b);
    }
    return b.status != PL_OK ? b.status : arena_check(a, "a grammar", err);
}
