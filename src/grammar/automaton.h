/* The executable form of a grammar: a pushdown automaton. The edges of its
 * states take a byte or call a rule; there are no empty edges.
 *
 * A call continues at the rule's entry state and remembers the state to return
 * to. A final state may return. An entry is never final: edges of the caller
 * skip a rule that may be empty. No rule calls itself before it has taken a
 * byte, so chains of calls end. Rules are numbered by `place`, their position
 * in an order in which a rule that has not taken a byte yet calls only rules of
 * higher places. Bytes that no edge distinguishes form one class. */
#ifndef GRAMMAR_AUTOMATON_H
#define GRAMMAR_AUTOMATON_H

#include "grammar/reach.h"
#include "grammar/rule_tree.h"

enum { STATE_NONE = UINT32_MAX };

struct byte_edge {
    uint32_t to;
    uint8_t lo, hi; /* first and last byte class of the edge */
};

struct call_edge {
    uint32_t place; /* place of the called rule */
    uint32_t to;    /* state to return to; STATE_NONE to return where the
                       calling rule returns */
};

struct state {
    /* Index of the state's first edge of each type. The state's edges end where
     * those of the next state begin. */
    uint32_t byte, call;
    uint32_t place; /* place of its rule */
    bool final;
};

struct byte_set {
    uint64_t bits[4];
};

struct automaton {
    struct state *state;    /* owned, [n_state + 1] */
    struct byte_edge *byte; /* owned, [n_byte] */
    struct call_edge *call; /* owned, [n_call] */
    uint32_t *entry;        /* owned, [n_place]: each rule's entry state */
    /* Owned, [n_place]: the bytes that may follow a text of each rule. It may
     * contain other bytes, too. */
    struct byte_set *after;
    /* For each reach (reach.h), owned, [n_state]: a representative of the
     * states that no token of this reach distinguishes. NULL if every state
     * represents itself. */
    uint32_t *alike[REACHES];
    uint32_t n_state, n_byte, n_call, n_place;
    bool empty; /* the root rule matches the empty text; its entry is state 0 */
    uint8_t class_of[256];
    uint32_t n_class;
};

/* Builds the automaton of the rules. `name` is the grammar's name in messages.
 * PL_BAD_ARGUMENT if a rule begins with itself, never ends, or is too large.
 * Zeroes *a first; on failure it holds no memory. */
pl_status automaton_build(struct automaton *a, const struct rules *r,
                          const char *name, pl_err *err);
void automaton_fini(struct automaton *a);

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}

#endif
