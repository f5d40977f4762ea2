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

struct maker {
    struct automaton *a;
    const struct rules *r;
    struct nfa g;
    uint32_t *state_of; /* owned, [n_node]: state built for each node of the
                           graph, or STATE_NONE */
    /* owned, [n_state]: the node of the graph for which each state was built */
    uint32_t *node_of;
    /* owned, [n_node]: 1 + the last state whose construction visited the
     * node */
    uint32_t *seen;
    uint32_t *stack; /* owned, [n_node]: nodes that fill_state has yet to
                        * visit */
    /* Owned, [n_rule]: the place of each rule, its position in the order of
     * automaton.h. */
    uint32_t *place_of;
    uint32_t *rule_of; /* owned, [n_state]: rule to which each state belongs */
    uint32_t cap_byte, cap_call;
    int64_t n_visit;
    const char *name;
    pl_err *err;
};

static pl_status no_memory(struct maker *m)
{
    return err_no_memory(m->err, "a grammar");
}

static pl_status too_large(struct maker *m)
{
    return err_set(m->err, PL_BAD_ARGUMENT,
                   "%s: the grammar has too many states at once; nest fewer "
                   "optional and repeated parts",
                   m->name);
}

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

static pl_status grow(struct maker *m, void **item, uint32_t n, uint32_t *cap,
                      size_t size)
{
    uint32_t more = *cap ? 2 * *cap : 256;
    void *p;

    if (n < *cap)
        return PL_OK;
    if (n >= MOST_EDGES)
        return too_large(m);
    p = realloc(*item, more * size);
    if (!p)
        return no_memory(m);
    *item = p;
    *cap = more;
    return PL_OK;
}

/* Adds an edge that takes one byte of the range of the graph's edge e.
 * find_classes later replaces the bytes of the range by byte classes. */
static pl_status take_byte(struct maker *m, const struct nfa_edge *e,
                           uint32_t rule)
{
    struct automaton *a = m->a;
    void *item = a->byte;

    PL_TRY(grow(m, &item, a->n_byte, &m->cap_byte, sizeof *a->byte));
    a->byte = item;
    a->byte[a->n_byte++] = (struct byte_edge){
        .to = state_of(m, e->to, rule), .lo = e->lo, .hi = e->hi};
    return PL_OK;
}

/* Adds an edge that calls the rule of the graph's edge e. The edge has the
 * rule's number until place_rules replaces it by the rule's place in the order
 * of automaton.h. */
static pl_status take_call(struct maker *m, const struct nfa_edge *e,
                           uint32_t rule)
{
    struct automaton *a = m->a;
    void *item = a->call;

    PL_TRY(grow(m, &item, a->n_call, &m->cap_call, sizeof *a->call));
    a->call = item;
    a->call[a->n_call++] =
        (struct call_edge){.place = e->rule, .to = state_of(m, e->to, rule)};
    state_of(m, m->g.entry[e->rule], e->rule);
    return PL_OK;
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

        if (++m->n_visit > MOST_VISITS)
            return too_large(m);
        a->state[i].final |= node == g->end[rule];
        for (uint32_t k = g->first[node]; k != NFA_NONE; k = g->edge[k].next) {
            const struct nfa_edge *e = &g->edge[k];

            if (e->kind == NFA_BYTE)
                PL_TRY(take_byte(m, e, rule));
            if (e->kind == NFA_RULE)
                PL_TRY(take_call(m, e, rule));
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
    return PL_OK;
}

/* ---- the order of rules: a rule before those that it may begin with ------ */

static pl_status begins_with_itself(struct maker *m, uint32_t rule,
                                    uint32_t last)
{
    char a[ERR_SHOWN], b[ERR_SHOWN];
    const struct rule *r = &m->r->rule[rule];
    const char *x = r->name, *y = m->r->rule[last].name;

    err_shown(a, x, strlen(x));
    err_shown(b, y, strlen(y));
    if (rule == last)
        return err_set(m->err, PL_BAD_ARGUMENT,
                       "%s: line %lld, column %lld: left recursion: the rule "
                       "%s begins with itself; write repetitions as ( ... )*",
                       m->name, (long long)r->line, (long long)r->column, a);
    return err_set(
        m->err, PL_BAD_ARGUMENT,
        "%s: line %lld, column %lld: left recursion: the rule %s begins with "
        "itself, through %s; write repetitions as ( ... )*",
        m->name, (long long)r->line, (long long)r->column, a, b);
}

/* A rule on the path of the depth-first search in place_from, and the number of
 * calls from its entry state that were followed so far. */
struct visit {
    uint32_t rule, edge;
};

/* Numbers `rule`, and all rules that its texts may begin with, by a depth-first
 * search. A rule gets a lower place than the rules that it may begin with.
 * Fails if a rule may begin with itself (left recursion). path and mark are
 * scratch, [n_rule]. *next is one more than the highest place that is free. */
static pl_status place_from(struct maker *m, uint32_t rule, struct visit *path,
                            uint8_t *mark, uint32_t *next)
{
    enum { NEW, OPEN, PLACED };
    struct automaton *a = m->a;
    uint32_t n = 0;

    if (mark[rule] != NEW)
        return PL_OK;
    path[n++] = (struct visit){rule, 0};
    mark[rule] = OPEN;
    while (n > 0) {
        struct visit *v = &path[n - 1];
        const struct state *s = &a->state[m->state_of[m->g.entry[v->rule]]];
        uint32_t k = s->call + v->edge++;

        if (k == s[1].call) {
            mark[v->rule] = PLACED;
            m->place_of[v->rule] = --*next;
            n--;
        } else if (mark[a->call[k].place] == OPEN) {
            return begins_with_itself(m, a->call[k].place, v->rule);
        } else if (mark[a->call[k].place] == NEW) {
            mark[a->call[k].place] = OPEN;
            path[n++] = (struct visit){a->call[k].place, 0};
        }
    }
    return PL_OK;
}

/* Replaces the rule numbers in all calls and states by the places of the rules
 * in the order of automaton.h. Rules that the root never reaches get no
 * place. */
static pl_status place_rules(struct maker *m)
{
    struct automaton *a = m->a;
    uint32_t n = m->r->n, next = n, unused;
    struct visit *path = calloc(n, sizeof *path);
    uint8_t *mark = calloc(n, sizeof *mark);
    pl_status s = path && mark ? PL_OK : no_memory(m);

    for (uint32_t i = 0; i < n && s == PL_OK; i++)
        if (i != m->r->root && m->g.entry[i] != NFA_NONE &&
            m->state_of[m->g.entry[i]] != STATE_NONE)
            s = place_from(m, i, path, mark, &next);
    if (s == PL_OK)
        s = place_from(m, m->r->root, path, mark, &next);
    free(path);
    free(mark);
    if (s != PL_OK)
        return s;
    unused = next;
    a->n_place = n - unused;
    for (uint32_t i = 0; i < a->n_call; i++)
        a->call[i].place = m->place_of[a->call[i].place] - unused;
    for (uint32_t i = 0; i < a->n_state; i++)
        a->state[i].place = m->place_of[m->rule_of[i]] - unused;
    return PL_OK;
}

static pl_status list_entries(struct maker *m)
{
    struct automaton *a = m->a;

    a->entry = calloc(a->n_place, sizeof *a->entry);
    if (!a->entry)
        return no_memory(m);
    for (uint32_t i = 0; i < a->n_state; i++)
        if (m->node_of[i] == m->g.entry[m->rule_of[i]])
            a->entry[a->state[i].place] = i;
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
    struct byte_set *first = calloc(a->n_place, sizeof *first);
    /* [n_state]: the bytes that may come next in a state; computed only for
     * states to which calls return. */
    struct byte_set *next = calloc(a->n_state, sizeof *next);
    bool changed = true;

    a->after = calloc(a->n_place, sizeof *a->after);
    if (first && next && a->after) {
        for (uint32_t p = a->n_place; p-- > 0;)
            first[p] = next_bytes(a, a->entry[p], first);
        for (uint32_t i = 0; i < a->n_call; i++)
            if (a->call[i].to != STATE_NONE)
                next[a->call[i].to] = next_bytes(a, a->call[i].to, first);
        for (int i = 0; i < PASSES_AFTER && changed; i++)
            changed = spread_after(a, next);
        if (changed)
            memset(a->after, 0xff, a->n_place * sizeof *a->after);
    }
    free(first);
    free(next);
    return first && next && a->after ? PL_OK : no_memory(m);
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

static pl_status list_alike(struct maker *m)
{
    struct automaton *a = m->a;

    for (int r = 0; r < REACHES && m->g.n_row && m->g.chars; r++) {
        if (reach_chars(r) == UINT32_MAX)
            continue;
        find_alike(&m->g, reach_chars(r), m->seen);
        a->alike[r] = calloc(a->n_state, sizeof *a->alike[r]);
        if (!a->alike[r])
            return no_memory(m);
        for (uint32_t i = 0; i < a->n_state; i++) {
            uint32_t like = m->state_of[m->seen[m->node_of[i]]];

            a->alike[r][i] = like != STATE_NONE ? like : i;
        }
    }
    return PL_OK;
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

static pl_status make(struct maker *m)
{
    struct automaton *a = m->a;
    size_t n;

    PL_TRY(nfa_build(&m->g, m->r, m->name, m->err));
    n = m->g.n_node;
    a->state = calloc(n + 1, sizeof *a->state);
    m->state_of = malloc(n * sizeof *m->state_of);
    m->node_of = calloc(n, sizeof *m->node_of);
    m->rule_of = calloc(n, sizeof *m->rule_of);
    m->seen = calloc(n, sizeof *m->seen);
    m->stack = calloc(n, sizeof *m->stack);
    m->place_of = calloc(m->r->n, sizeof *m->place_of);
    if (!a->state || !m->state_of || !m->node_of || !m->rule_of || !m->seen ||
        !m->stack || !m->place_of)
        return no_memory(m);
    memset(m->state_of, 0xff, n * sizeof *m->state_of);
    PL_TRY(fill_states(m));
    PL_TRY(place_rules(m));
    PL_TRY(list_entries(m));
    shorten_calls(a);
    PL_TRY(find_after(m));
    PL_TRY(list_alike(m));
    find_classes(a);
    a->empty = m->g.nullable[m->r->root];
    return PL_OK;
}

pl_status automaton_build(struct automaton *a, const struct rules *r,
                          const char *name, pl_err *err)
{
    struct maker m = {.a = a, .r = r, .name = name, .err = err};
    pl_status s;

    *a = (struct automaton){0};
    s = make(&m);
    nfa_fini(&m.g);
    free(m.state_of);
    free(m.node_of);
    free(m.rule_of);
    free(m.seen);
    free(m.stack);
    free(m.place_of);
    if (s != PL_OK)
        automaton_fini(a);
    return s;
}

void automaton_fini(struct automaton *a)
{
    free(a->state);
    free(a->byte);
    free(a->call);
    free(a->entry);
    free(a->after);
    for (int r = 0; r < REACHES; r++)
        free(a->alike[r]);
    *a = (struct automaton){0};
}
