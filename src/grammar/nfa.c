/* Converts the trees of rules to graphs; see nfa.h. */
#include "grammar/nfa.h"

#include "base/err.h"
#include "grammar/reach.h"

#include <stdlib.h>
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

struct builder {
    struct nfa *g;
    const struct rules *r;
    const char *name;
    bool *in_place; /* owned, [n_rule]: true for rules that are inlined */
    bool *ends;     /* owned, [n_rule]: the rule matches at least one text */
    uint32_t *size; /* owned, [n_rule]: approximate number of graph nodes of the
                       rule's body */
    bool *loops; /* owned, [n_rule]: the rule's body has an endless repetition,
                    of its own or in a rule inlined into it */
    uint32_t rule, n_step;
    pl_err *err;
};

static pl_status no_memory(struct builder *b)
{
    return err_no_memory(b->err, "a grammar");
}

static pl_status too_large(struct builder *b)
{
    char shown[ERR_SHOWN];
    const struct rule *r = &b->r->rule[b->rule];

    return err_set(
        b->err, PL_BAD_ARGUMENT,
        "%s: line %lld, column %lld: the rules up to %s are too large once "
        "repetitions are expanded; repeat less, or without an upper bound",
        b->name, (long long)r->line, (long long)r->column,
        err_shown(shown, r->name, strlen(r->name)));
}

/* ---- adding nodes and edges to the graph --------------------------------- */

static pl_status node_new(struct builder *b, uint32_t *out)
{
    struct nfa *g = b->g;

    if (g->n_node == NFA_NODES)
        return too_large(b);
    if (g->n_node == g->cap_node) {
        uint32_t cap = g->cap_node ? 2 * g->cap_node : 256;
        uint32_t *first = realloc(g->first, cap * sizeof *first);

        if (!first)
            return no_memory(b);
        g->first = first;
        g->cap_node = cap;
    }
    g->first[g->n_node] = NFA_NONE;
    *out = g->n_node++;
    return PL_OK;
}

static pl_status edge_add(struct builder *b, uint32_t from, struct nfa_edge e)
{
    struct nfa *g = b->g;

    if (g->n_edge == MOST_EDGES)
        return too_large(b);
    if (g->n_edge == g->cap_edge) {
        uint32_t cap = g->cap_edge ? 2 * g->cap_edge : 256;
        struct nfa_edge *edge = realloc(g->edge, cap * sizeof *edge);

        if (!edge)
            return no_memory(b);
        g->edge = edge;
        g->cap_edge = cap;
    }
    e.next = g->first[from];
    g->edge[g->n_edge] = e;
    g->first[from] = g->n_edge++;
    return PL_OK;
}

static pl_status add_empty(struct builder *b, uint32_t from, uint32_t to)
{
    return edge_add(b, from, (struct nfa_edge){.kind = NFA_EMPTY, .to = to});
}

static pl_status add_bytes(struct builder *b, uint32_t from, unsigned lo,
                           unsigned hi, uint32_t to)
{
    return edge_add(
        b, from,
        (struct nfa_edge){
            .kind = NFA_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to});
}

/* ---- adding character classes as UTF-8 ----------------------------------- */

/* The last nodes of a character class while its edges are added. All its
 * characters end at node `end`. rest[n] is NFA_NONE or the node from which any
 * n continuation bytes (80..BF) lead to `end`, n = 1 .. 3. */
struct tails {
    uint32_t end, rest[4];
};

static pl_status tail_of(struct builder *b, struct tails *t, int n,
                         uint32_t *out)
{
    uint32_t next;

    if (n == 0 || t->rest[n] != NFA_NONE) {
        *out = n == 0 ? t->end : t->rest[n];
        return PL_OK;
    }
    PL_TRY(tail_of(b, t, n - 1, &next));
    PL_TRY(node_new(b, out));
    t->rest[n] = *out;
    return add_bytes(b, *out, 0x80, 0xbf, next);
}

/* Adds edges from node `from` for all UTF-8 encodings between lo[0 .. n) and
 * hi[0 .. n). If the first byte is strictly between lo[0] and hi[0], the other
 * bytes may be any of 80..BF, so these encodings share nodes (tail_of). */
static pl_status add_span(struct builder *b, struct tails *t, uint32_t from,
                          const unsigned char *lo, const unsigned char *hi,
                          int n)
{
    static const unsigned char low[3] = {0x80, 0x80, 0x80};
    static const unsigned char high[3] = {0xbf, 0xbf, 0xbf};
    size_t rest = (size_t)(n - 1);
    unsigned first = lo[0], last = hi[0];
    uint32_t next;

    if (first == last && rest) {
        PL_TRY(node_new(b, &next));
        PL_TRY(add_bytes(b, from, first, first, next));
        return add_span(b, t, next, lo + 1, hi + 1, n - 1);
    }
    if (memcmp(lo + 1, low, rest) != 0) {
        PL_TRY(node_new(b, &next));
        PL_TRY(add_bytes(b, from, first, first, next));
        PL_TRY(add_span(b, t, next, lo + 1, high, n - 1));
        first++;
    }
    if (memcmp(hi + 1, high, rest) != 0) {
        PL_TRY(node_new(b, &next));
        PL_TRY(add_bytes(b, from, last, last, next));
        PL_TRY(add_span(b, t, next, low, hi + 1, n - 1));
        last--;
    }
    if (first > last)
        return PL_OK;
    PL_TRY(tail_of(b, t, n - 1, &next));
    return add_bytes(b, from, first, last, next);
}

static pl_status add_class(struct builder *b, const struct tree *t,
                           uint32_t from, uint32_t *to)
{
    static const uint32_t last_of[4] = {0x7f, 0x7ff, 0xffff, RULES_LAST_CHAR};
    struct tails tails = {.rest = {NFA_NONE, NFA_NONE, NFA_NONE, NFA_NONE}};

    PL_TRY(node_new(b, &tails.end));
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t first = t->range[i].first;

        for (int k = 0; k < 4 && first <= t->range[i].last; k++) {
            uint32_t last = t->range[i].last;
            char lo[4], hi[4];

            if (first > last_of[k])
                continue;
            last = last < last_of[k] ? last : last_of[k];
            char_put(lo, first);
            char_put(hi, last);
            PL_TRY(add_span(b, &tails, from, (unsigned char *)lo,
                            (unsigned char *)hi, k + 1));
            first = last + 1;
        }
    }
    *to = tails.end;
    return PL_OK;
}

/* ---- adding syntax trees to the graph ------------------------------------ */

static pl_status add_tree(struct builder *b, const struct tree *t,
                          uint32_t from, uint32_t *to);

static pl_status add_text(struct builder *b, const struct tree *t,
                          uint32_t from, uint32_t *to)
{
    if (t->n && (t->bytes[0] & 0xc0) == 0x80)
        b->g->chars = false;
    for (uint32_t i = 0; i < t->n; i++) {
        unsigned c = (unsigned char)t->bytes[i];
        uint32_t next;

        PL_TRY(node_new(b, &next));
        PL_TRY(add_bytes(b, from, c, c, next));
        from = next;
    }
    *to = from;
    return PL_OK;
}

static pl_status add_rule(struct builder *b, const struct tree *t,
                          uint32_t from, uint32_t *to)
{
    if (b->in_place[t->rule])
        return add_tree(b, b->r->rule[t->rule].body, from, to);
    PL_TRY(node_new(b, to));
    return edge_add(
        b, from,
        (struct nfa_edge){.kind = NFA_RULE, .rule = t->rule, .to = *to});
}

static pl_status add_alternatives(struct builder *b, const struct tree *t,
                                  uint32_t from, uint32_t *to)
{
    PL_TRY(node_new(b, to));
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t end;

        PL_TRY(add_tree(b, t->child[i], from, &end));
        PL_TRY(add_empty(b, end, *to));
    }
    return PL_OK;
}

/* Adds the copies of a repeated item to g->row; the first copy begins after
 * `node`. Leaves out repetitions of so few copies that even the shortest tokens
 * distinguish all of them. */
static pl_status row_add(struct builder *b, const struct tree *t, uint32_t node)
{
    struct nfa *g = b->g;
    bool endless = t->max == RULES_UNLIMITED;
    uint32_t n = endless ? t->min : t->max;

    if (n <= REACH_FIRST_CHARS + 1)
        return PL_OK;
    if (g->n_row == g->cap_row) {
        uint32_t cap = g->cap_row ? 2 * g->cap_row : 16;
        struct nfa_row *row = realloc(g->row, cap * sizeof *row);

        if (!row)
            return no_memory(b);
        g->row = row;
        g->cap_row = cap;
    }
    g->row[g->n_row++] = (struct nfa_row){.node = node,
                                          .size = (g->n_node - node) / n,
                                          .n = n,
                                          .min = t->min,
                                          .endless = endless};
    return PL_OK;
}

static pl_status add_repeat(struct builder *b, const struct tree *t,
                            uint32_t from, uint32_t *to)
{
    const struct tree *child = t->child[0];
    bool endless = t->max == RULES_UNLIMITED;
    uint32_t end, loop, first;

    PL_TRY(node_new(b, to));
    first = b->g->n_node;
    for (uint32_t i = 0; i < (endless ? t->min : t->max); i++) {
        if (i >= t->min)
            PL_TRY(add_empty(b, from, *to));
        PL_TRY(add_tree(b, child, from, &from));
    }
    PL_TRY(row_add(b, t, first));
    if (!endless)
        return add_empty(b, from, *to);
    PL_TRY(node_new(b, &loop));
    PL_TRY(add_empty(b, from, loop));
    PL_TRY(add_tree(b, child, loop, &end));
    PL_TRY(add_empty(b, end, loop));
    return add_empty(b, loop, *to);
}

static pl_status add_tree(struct builder *b, const struct tree *t,
                          uint32_t from, uint32_t *to)
{
    if (++b->n_step > MOST_STEPS)
        return too_large(b);
    switch (t->kind) {
    case TREE_BYTES:
        return add_text(b, t, from, to);
    case TREE_CLASS:
        return add_class(b, t, from, to);
    case TREE_RULE:
        return add_rule(b, t, from, to);
    case TREE_ALT:
        return add_alternatives(b, t, from, to);
    case TREE_REPEAT:
        return add_repeat(b, t, from, to);
    case TREE_SEQ:
        break;
    }
    for (uint32_t i = 0; i < t->n; i++)
        PL_TRY(add_tree(b, t->child[i], from, &from));
    *to = from;
    return PL_OK;
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

static pl_status find_endless(struct builder *b)
{
    char shown[ERR_SHOWN];
    const struct rule *r;
    uint32_t bad = 0;

    find_rules(b->r, b->ends, false);
    while (bad < b->r->n && b->ends[bad])
        bad++;
    if (bad == b->r->n)
        return PL_OK;
    /* Each step goes to a rule that the present rule always contains. After
     * n_rule steps the rule certainly contains itself. */
    for (uint32_t i = 0; i < b->r->n; i++)
        bad = endless_in(b->r->rule[bad].body, b->ends);
    r = &b->r->rule[bad];
    return err_set(
        b->err, PL_BAD_ARGUMENT,
        "%s: line %lld, column %lld: the rule %s can never end, because it "
        "always contains itself; add an alternative that does not",
        b->name, (long long)r->line, (long long)r->column,
        err_shown(shown, r->name, strlen(r->name)));
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

static pl_status build_rules(struct builder *b)
{
    for (uint32_t i = 0; i < b->r->n; i++) {
        uint32_t start, end;

        b->rule = i;
        b->g->entry[i] = b->g->end[i] = NFA_NONE;
        if (b->in_place[i] && i != b->r->root)
            continue;
        PL_TRY(node_new(b, &b->g->entry[i]));
        PL_TRY(node_new(b, &start));
        PL_TRY(node_new(b, &b->g->end[i]));
        PL_TRY(add_empty(b, b->g->entry[i], start));
        PL_TRY(add_tree(b, b->r->rule[i].body, start, &end));
        PL_TRY(add_empty(b, end, b->g->end[i]));
    }
    return PL_OK;
}

static pl_status build(struct builder *b)
{
    size_t n = b->r->n;
    struct nfa *g = b->g;

    g->entry = calloc(n, sizeof *g->entry);
    g->end = calloc(n, sizeof *g->end);
    g->nullable = calloc(n, sizeof *g->nullable);
    b->in_place = calloc(n, sizeof *b->in_place);
    b->ends = calloc(n, sizeof *b->ends);
    b->size = calloc(n, sizeof *b->size);
    b->loops = calloc(n, sizeof *b->loops);
    if (!g->entry || !g->end || !g->nullable || !b->in_place || !b->ends ||
        !b->size || !b->loops)
        return no_memory(b);
    PL_TRY(find_endless(b));
    find_rules(b->r, g->nullable, true);
    find_small(b);
    return build_rules(b);
}

pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err)
{
    struct builder b = {.g = g, .r = r, .name = name, .err = err};
    pl_status s;

    *g = (struct nfa){.chars = true};
    s = build(&b);
    free(b.in_place);
    free(b.ends);
    free(b.size);
    free(b.loops);
    return s;
}

void nfa_fini(struct nfa *g)
{
    free(g->first);
    free(g->edge);
    free(g->row);
    free(g->entry);
    free(g->end);
    free(g->nullable);
    *g = (struct nfa){0};
}
