/* The executable form of a grammar: states whose edges take a byte or call a
 * rule, without empty edges.
 *
 * A call continues at the rule's entry and remembers where to return. A final
 * state may return. An entry is never final: the caller knows if a rule may be
 * empty. No rule calls itself before it has taken a byte, so chains of calls
 * end, and each call leads to a higher place in the order of rules. Bytes that
 * no edge distinguishes form one class. */
#ifndef GRAMMAR_AUTOMATON_H
#define GRAMMAR_AUTOMATON_H

#include "grammar/reach.h"
#include "grammar/rule_tree.h"

enum { STATE_NONE = UINT32_MAX };

struct byte_edge {
    uint32_t to;
    uint8_t lo, hi; /* classes of bytes */
};

struct call_edge {
    uint32_t place; /* of the rule */
    uint32_t to;    /* where it returns; STATE_NONE: to the caller's return */
};

struct state {
    uint32_t byte, call; /* first edges; they end at the next state's */
    uint32_t place;      /* of its rule */
    bool final;
};

struct byte_set {
    uint64_t bits[4];
};

struct automaton {
    struct state *state;    /* owned, [n_state + 1] */
    struct byte_edge *byte; /* owned, [n_byte] */
    struct call_edge *call; /* owned, [n_call] */
    uint32_t *entry;        /* owned, [n_place]: states */
    /* Owned, [n_place]: the bytes that may follow a text of the rule, perhaps
     * more. */
    struct byte_set *after;
    /* Owned, [n_state]: a representative of the states that no token of the
     * reach distinguishes. NULL: every state represents itself. */
    uint32_t *alike[REACHES];
    uint32_t n_state, n_byte, n_call, n_place;
    bool empty; /* root may be empty; its entry is state 0 */
    uint8_t class_of[256];
    uint32_t n_class;
};

/* Builds an automaton. PL_BAD_ARGUMENT: a rule begins with itself, never ends,
 * or is too large. Zeroes *a first; on failure it holds no memory. */
pl_status automaton_build(struct automaton *a, const struct rules *r,
                          const char *name, pl_err *err);
void automaton_fini(struct automaton *a);

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}

#endif
