/* The executable form of a grammar: a pushdown automaton. Each edge of a state
 * takes a byte or calls a rule; there are no edges that do neither.
 *
 * A call continues at the entry state of the called rule and remembers the
 * state to return to. In a final state the rule may end, so that the automaton
 * returns to the caller. An entry state is never final: where a called rule may
 * match the empty text, the caller has edges that skip the call. No rule calls
 * itself before it has taken a byte, so chains of calls end.
 *
 * Rules are numbered by their *place* in an order: before a rule has taken a
 * byte, it calls only rules of higher places. Bytes that every edge treats
 * alike form one class. */
#ifndef GRAMMAR_AUTOMATON_H
#define GRAMMAR_AUTOMATON_H

#include "grammar/reach.h"
#include "grammar/rule_tree.h"

enum { STATE_NONE = UINT32_MAX };

struct byte_edge {
    uint32_t to;
    uint8_t lo, hi; /* first and last byte class that the edge takes */
};

struct call_edge {
    uint32_t place; /* place of the called rule in the order of rules */
    /* The state to which the called rule returns. STATE_NONE if it returns to
     * the caller of the calling rule. */
    uint32_t to;
};

struct state {
    /* Index, in automaton.byte and automaton.call, of the state's first edge of
     * each type. The state's edges end where those of the next state begin. */
    uint32_t byte, call;
    uint32_t place; /* the state's rule, by its place in the order of rules */
    bool final;
};

struct byte_set {
    uint64_t bits[4];
};

struct automaton {
    struct state *state;    /* [n_state + 1]; the last one marks the end of the
                               edges */
    struct byte_edge *byte; /* [n_byte]: all edges that take a byte */
    struct call_edge *call; /* [n_call]: all edges that call a rule */
    uint32_t *entry; /* [n_place]: entry state of each rule, by the rule's
                        place */
    /* [n_place]: for the rule at each place, the bytes that may follow its
     * texts. The set may contain bytes that cannot follow, too. */
    struct byte_set *after;
    /* alike[r], [n_state], is for tokens of reach r, a class of token lengths
     * (reach.h). It maps a state to one that such tokens cannot distinguish
     * from it, the same for all states that are alike. NULL if every state is
     * mapped to itself. */
    uint32_t *alike[REACHES];
    uint32_t n_state, n_byte, n_call, n_place;
    /* The root rule matches the empty text. The root rule's entry is state
     * 0. */
    bool empty;
    uint8_t class_of[256];
    uint32_t n_class;
};

/* Builds the automaton of the rules, in `memory`. `name` is the grammar's name
 * in messages. PL_BAD_ARGUMENT if a rule begins with itself, never ends, or is
 * too large. */
pl_status automaton_build(struct automaton *a, struct arena *memory,
                          const struct rules *r, const char *name, pl_err *err);

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}

#endif
