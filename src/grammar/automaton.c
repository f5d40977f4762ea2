/* Converts the graph of nfa.h, which has edges that take no byte, to an
 * automaton without such edges; see automaton.h.
 *
 * A state of the automaton stands for a node of the graph and for all nodes
 * reached from it without a byte: by empty edges, and by calls of rules that
 * match the empty text. Only the entry nodes of rules, and nodes to which an
 * edge with a byte or a call leads, become states. */
#include "grammar/automaton.h"

#include "base/err.h"
#include "grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_EDGES = 1 << 20,
    MOST_VISITS = 1 << 24, /* limit of node visits while all states are built */
    /* Maximum number of passes of find_after over all calls. If results still
     * change in the last pass, any byte counts as one that may follow any
     * rule. */
    PASSES_AFTER = 16,
};

/* The construction of an automaton. */
struct maker {
    struct automaton *a;
    const struct rules *r;
    struct nfa g;
    struct arena edges; /* owns the edges of the automaton until the end */
    void *memory;       /* owned: its states until then, and these arrays */
    uint32_t *state_of; /* [n_node]: state built for each node of the graph, or
                           STATE_NONE */
    uint32_t *node_of;  /* [n_state]: the node for which each state was built */
    /* [n_node]: 1 + the last state whose construction visited the node */
    uint32_t *seen;
    uint32_t *stack; /* [n_node]: nodes that fill_state has yet to visit */
    /* [n_rule]: the place of each rule, its position in the order of
     * automaton.h */
    uint32_t *place_of;
    uint32_t *rule_of; /* [n_state]: rule to which each state belongs */
    uint8_t *mark;     /* [n_rule]; see place_from */
    int64_t n_visit;
    const char *name;
    pl_err *err;
};

/* ---- states of the automaton and their edges ----------------------------- */

static uint32_t state_of(struct maker *m, uint32_t node, uint32_t rule)
{
    if (m->state_of[node] == STATE_NONE) {
        m->state_of[node] = m->a->n_state;
        m->rule_of[m->a->n_state] = rule;
        m->node_of[m->a->n_state++] = node;
    }
    return m->state_of[node];
}

/* Adds an edge for the graph's edge e. One that takes a byte has the range of
 * e, until find_classes replaces the bytes by byte classes. One that calls a
 * rule has the rule's number, until place_rules replaces it by the rule's place
 * in the order of automaton.h. Does nothing if out of memory. */
static void add_edge(struct maker *m, const struct nfa_edge *e, uint32_t rule)
{
    struct automaton *a = m->a;
    struct arena *memory = &m->edges;
    struct byte_edge *byte;
    struct call_edge *call;

    if (e->kind == NFA_BYTE) {
        byte = arena_extended(memory, a->byte, a->n_byte, sizeof *byte);
        if (!byte)
            return;
        a->byte = byte;
        a->byte[a->n_byte++] = (struct byte_edge){
            .to = state_of(m, e->to, rule), .lo = e->lo, .hi = e->hi};
    } else if (e->kind == NFA_RULE) {
        call = arena_extended(memory, a->call, a->n_call, sizeof *call);
        if (!call)
            return;
        a->call = call;
        a->call[a->n_call++] = (struct call_edge){
            .place = e->rule, .to = state_of(m, e->to, rule)};
        state_of(m, m->g.entry[e->rule], e->rule);
    }
}

/* Adds the edges of state i: those of its node and of all nodes reached from
 * that node without reading a byte. */
static pl_status fill_state(struct maker *m, uint32_t i)
{
    struct automaton *a = m->a;
    const struct nfa *g = &m->g;
    uint32_t rule = m->rule_of[i], n = 0;

    m->stack[n++] = m->node_of[i];
    m->seen[m->node_of[i]] = i + 1;
    while (n > 0) {
        uint32_t node = m->stack[--n];

        if (++m->n_visit > MOST_VISITS || a->n_byte > MOST_EDGES ||
            a->n_call > MOST_EDGES)
            return err_set(m->err, PL_BAD_ARGUMENT,
                           "%s: the grammar has too many states at once; nest "
                           "fewer optional and repeated parts",
                           m->name);
        a->state[i].final |= node == g->end[rule];
        for (uint32_t k = g->first[node]; k != NFA_NONE; k = g->edge[k].next) {
            const struct nfa_edge *e = &g->edge[k];

            add_edge(m, e, rule);
            if (e->kind == NFA_BYTE ||
                (e->kind == NFA_RULE && !g->nullable[e->rule]))
                continue;
            if (m->seen[e->to] != i + 1) {
                m->seen[e->to] = i + 1;
                m->stack[n++] = e->to;
            }
        }
    }
    if (m->node_of[i] == g->entry[rule])
        a->state[i].final = false;
    return PL_OK;
}

static pl_status fill_states(struct maker *m)
{
    struct automaton *a = m->a;

    state_of(m, m->g.entry[m->r->root], m->r->root);
    for (uint32_t i = 0; i < a->n_state; i++) {
        a->state[i].byte = a->n_byte;
        a->state[i].call = a->n_call;
        PL_TRY(fill_state(m, i));
    }
    a->state[a->n_state].byte = a->n_byte;
    a->state[a->n_state].call = a->n_call;
    return arena_check(&m->edges, "a grammar", m->err);
}

/* ---- the order of rules: a rule before those that it may begin with ------ */

static pl_status begins_with_itself(struct maker *m, uint32_t rule,
                                    uint32_t last)
{
    char a[ERR_SHOWN], b[ERR_SHOWN];
    const struct rule *r = &m->r->rule[rule];
    const char *x = r->name, *y = m->r->rule[last].name;

    return err_set(
        m->err, PL_BAD_ARGUMENT,
        "%s: line %lld, column %lld: left recursion: the rule %s begins with "
        "itself%s%s; write repetitions as ( ... )*",
        m->name, (long long)r->line, (long long)r->column,
        err_shown(a, x, strlen(x)), rule == last ? "" : ", through ",
        rule == last ? "" : err_shown(b, y, strlen(y)));
}

/* Numbers `rule`, and all rules that its texts may begin with, by a depth-first
 * search. A rule gets a lower place than the rules that it may begin with.
 * Fails if a rule may begin with itself (left recursion). *next is one more
 * than the highest place that is free. */
static pl_status place_from(struct maker *m, uint32_t rule, uint32_t *next)
{
    enum { NEW, OPEN, PLACED };
    uint8_t *mark = m->mark;
    const struct state *s = &m->a->state[m->state_of[m->g.entry[rule]]];

    if (mark[rule] != NEW)
        return PL_OK;
    mark[rule] = OPEN;
    for (uint32_t k = s->call; k < s[1].call; k++) {
        uint32_t to = m->a->call[k].place;

        if (mark[to] == OPEN)
            return begins_with_itself(m, to, rule);
        PL_TRY(place_from(m, to, next));
    }
    mark[rule] = PLACED;
    m->place_of[rule] = --*next;
    return PL_OK;
}

/* Replaces the rule numbers in all calls and states by the places of the rules
 * in the order of automaton.h. Rules that the root never reaches get no
 * place. */
static pl_status place_rules(struct maker *m)
{
    struct automaton *a = m->a;
    uint32_t n = m->r->n, next = n, unused;

    for (uint32_t i = 0; i < n; i++)
        if (i != m->r->root && m->g.entry[i] != NFA_NONE &&
            m->state_of[m->g.entry[i]] != STATE_NONE)
            PL_TRY(place_from(m, i, &next));
    PL_TRY(place_from(m, m->r->root, &next));
    unused = next;
    a->n_place = n - unused;
    for (uint32_t i = 0; i < a->n_call; i++)
        a->call[i].place = m->place_of[a->call[i].place] - unused;
    for (uint32_t i = 0; i < a->n_state; i++)
        a->state[i].place = m->place_of[m->rule_of[i]] - unused;
    return PL_OK;
}

/* Sets the return state of a call to STATE_NONE if that state has no edges.
 * Such a state could only return to the caller of its own rule, so the call may
 * as well return there. */
static void shorten_calls(struct automaton *a)
{
    for (uint32_t i = 0; i < a->n_call; i++) {
        const struct state *s = &a->state[a->call[i].to];

        if (s->final && s->byte == s[1].byte && s->call == s[1].call)
            a->call[i].to = STATE_NONE;
    }
}

/* ---- bytes that may follow a text of a rule ------------------------------ */

static bool join(struct byte_set *to, const struct byte_set *from)
{
    bool changed = false;

    for (int i = 0; i < 4; i++) {
        changed |= (from->bits[i] & ~to->bits[i]) != 0;
        to->bits[i] |= from->bits[i];
    }
    return changed;
}

/* Returns the bytes that the automaton may take next in state i. first[p] has
 * the bytes with which the texts of the rule at place p begin. */
static struct byte_set next_bytes(const struct automaton *a, uint32_t i,
                                  const struct byte_set *first)
{
    const struct state *s = &a->state[i];
    struct byte_set set = {0};

    for (uint32_t k = s->byte; k < s[1].byte; k++)
        for (unsigned c = a->byte[k].lo; c <= a->byte[k].hi; c++)
            set.bits[c >> 6] |= 1ull << (c & 63);
    for (uint32_t k = s->call; k < s[1].call; k++)
        join(&set, &first[a->call[k].place]);
    return set;
}

/* Makes one pass over all calls. After a call, the bytes that the return state
 * takes may follow the called rule. If the calling rule may end there, the
 * bytes that may follow the calling rule are added too. next[] has the bytes
 * that each state takes. Returns true if a set of bytes changed. */
static bool spread_after(struct automaton *a, const struct byte_set *next)
{
    bool changed = false;

    for (uint32_t i = 0; i < a->n_state; i++) {
        const struct byte_set *mine = &a->after[a->state[i].place];

        for (uint32_t k = a->state[i].call; k < a->state[i + 1].call; k++) {
            struct byte_set *of = &a->after[a->call[k].place];
            uint32_t to = a->call[k].to;

            if (to != STATE_NONE)
                changed |= join(of, &next[to]);
            if (to == STATE_NONE || a->state[to].final)
                changed |= join(of, mine);
        }
    }
    return changed;
}

static pl_status find_after(struct maker *m)
{
    struct automaton *a = m->a;
    /* first[p]: the bytes with which the texts of the rule at place p begin.
     * next[i]: the bytes that may come next in state i; computed only for
     * states to which calls return. */
    struct byte_set *first = calloc(a->n_place + a->n_state, sizeof *first);
    struct byte_set *next;
    bool changed = true;

    if (!first)
        return err_no_memory(m->err, "a grammar");
    next = first + a->n_place;
    for (uint32_t p = a->n_place; p-- > 0;)
        first[p] = next_bytes(a, a->entry[p], first);
    for (uint32_t i = 0; i < a->n_call; i++)
        if (a->call[i].to != STATE_NONE)
            next[a->call[i].to] = next_bytes(a, a->call[i].to, first);
    for (int i = 0; i < PASSES_AFTER && changed; i++)
        changed = spread_after(a, next);
    if (changed)
        memset(a->after, 0xff, a->n_place * sizeof *a->after);
    free(first);
    return PL_OK;
}

/* ---- states that short tokens cannot distinguish ------------------------- */

/* Returns how many copies of a repeated item may still follow before copy i of
 * the row: the required copies if at_least, else the most that are allowed. Any
 * number above `chars` is returned as chars + 1. A token of `chars` characters
 * cannot tell such numbers apart, because each copy takes a character or
 * nothing. */
static uint32_t to_come(const struct nfa_row *row, uint32_t i, uint32_t chars,
                        bool at_least)
{
    uint32_t n = at_least       ? (row->min > i ? row->min - i : 0)
                 : row->endless ? UINT32_MAX
                                : row->n - i;

    return n <= chars ? n : chars + 1;
}

/* Sets same[i] to an earlier node that tokens of up to `chars` characters
 * cannot distinguish from node i, or to i itself. It compares the copies of
 * repeated items. Inner repetitions come first in g->row; then whole copies of
 * outer ones are compared. */
static void find_alike(const struct nfa *g, uint32_t chars, uint32_t *same)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        same[i] = i;
    for (uint32_t r = 0; r < g->n_row; r++) {
        const struct nfa_row *row = &g->row[r];
        uint32_t like = 0;

        for (uint32_t i = 1; i < row->n; i++) {
            uint32_t at = row->node + i * row->size;

            if (to_come(row, i, chars, true) !=
                    to_come(row, like, chars, true) ||
                to_come(row, i, chars, false) !=
                    to_come(row, like, chars, false))
                like = i;
            for (uint32_t k = at; k < at + row->size && like != i; k++)
                same[k] = k - (i - like) * row->size;
        }
    }
    for (uint32_t i = 0; i < g->n_node; i++)
        same[i] = same[same[i]];
}

/* Sets a->alike, in to[REACHES - 1, n_state]. */
static void list_alike(struct maker *m, uint32_t *to)
{
    struct automaton *a = m->a;

    for (int r = 0; r < REACHES - 1; r++, to += a->n_state) {
        find_alike(&m->g, reach_chars(r), m->seen);
        a->alike[r] = to;
        for (uint32_t i = 0; i < a->n_state; i++) {
            uint32_t like = m->state_of[m->seen[m->node_of[i]]];

            to[i] = like != STATE_NONE ? like : i;
        }
    }
}

/* ---- classes of bytes that no edge distinguishes ------------------------- */

static void find_classes(struct automaton *a)
{
    bool begins[257] = {true};

    for (uint32_t i = 0; i < a->n_byte; i++) {
        begins[a->byte[i].lo] = true;
        begins[a->byte[i].hi + 1] = true;
    }
    for (int c = 0, n = -1; c < 256; c++) {
        n += begins[c];
        a->class_of[c] = (uint8_t)n;
        a->n_class = (uint32_t)n + 1;
    }
    for (uint32_t i = 0; i < a->n_byte; i++) {
        a->byte[i].lo = a->class_of[a->byte[i].lo];
        a->byte[i].hi = a->class_of[a->byte[i].hi];
    }
}

/* ---- construction of the automaton --------------------------------------- */

/* Allocates the arrays of m, and the states, for n nodes. */
static bool alloc_arrays(struct maker *m, size_t n, size_t n_rule)
{
    m->memory =
        calloc(n + n_rule + 1, sizeof(struct state) + 5 * sizeof(uint32_t));
    if (!m->memory)
        return false;
    m->a->state = m->memory;
    m->state_of = (uint32_t *)(m->a->state + n + 1);
    m->node_of = m->state_of + n;
    m->rule_of = m->node_of + n;
    m->seen = m->rule_of + n;
    m->stack = m->seen + n;
    m->place_of = m->stack + n;
    m->mark = (uint8_t *)(m->place_of + n_rule);
    memset(m->state_of, 0xff, n * sizeof *m->state_of);
    return true;
}

/* Moves the states and edges to the arena of the automaton, as one block, and
 * adds a->alike. */
static void finish(struct maker *m, struct arena *memory)
{
    struct automaton *a = m->a;
    const size_t n_state = (a->n_state + 1) * sizeof *a->state;
    const size_t n_byte = a->n_byte * sizeof *a->byte;
    const size_t n_call = a->n_call * sizeof *a->call;
    const bool rows = m->g.n_row && m->g.chars;
    const size_t n_alike =
        rows ? (REACHES - 1) * a->n_state * sizeof *a->alike[0] : 0;
    char *to = arena_alloc(memory, 1, n_state + n_byte + n_call + n_alike);

    if (!to)
        return;
    a->state = memcpy(to, a->state, n_state);
    if (n_byte)
        a->byte = memcpy(to + n_state, a->byte, n_byte);
    if (n_call)
        a->call = memcpy(to + n_state + n_byte, a->call, n_call);
    if (rows)
        list_alike(m, (uint32_t *)(void *)(to + n_state + n_byte + n_call));
}

static pl_status make(struct maker *m, struct arena *memory)
{
    struct automaton *a = m->a;

    PL_TRY(nfa_build(&m->g, m->r, m->name, m->err));
    if (!alloc_arrays(m, m->g.n_node, m->r->n))
        return err_no_memory(m->err, "a grammar");
    PL_TRY(fill_states(m));
    PL_TRY(place_rules(m));
    a->entry = arena_alloc(memory, a->n_place, sizeof *a->entry);
    a->after = arena_alloc(memory, a->n_place, sizeof *a->after);
    PL_TRY(arena_check(memory, "a grammar", m->err));
    for (uint32_t i = 0; i < a->n_state; i++)
        if (m->node_of[i] == m->g.entry[m->rule_of[i]])
            a->entry[a->state[i].place] = i;
    shorten_calls(a);
    PL_TRY(find_after(m));
    find_classes(a);
    a->empty = m->g.nullable[m->r->root];
    finish(m, memory);
    return arena_check(memory, "a grammar", m->err);
}

pl_status automaton_build(struct automaton *a, struct arena *memory,
                          const struct rules *r, const char *name, pl_err *err)
{
    struct maker m = {.a = a, .r = r, .name = name, .err = err};
    pl_status s;

    *a = (struct automaton){0};
    s = make(&m, memory);
    arena_fini(&m.g.memory);
    arena_fini(&m.edges);
    free(m.memory);
    return s;
}
