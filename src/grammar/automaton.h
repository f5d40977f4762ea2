/* What runs: states with edges that take a byte or call a rule, and none that
 * take nothing.
 *
 * A call goes on at the rule's entry and remembers where to return; a state
 * that is final may return. An entry is never final: that a rule may be empty
 * is known where it is called. No rule calls itself before it took a byte, so
 * calls in a row come to an end, and they go from lower to higher places in
 * the order of rules. Bytes that no edge tells apart are one class. */
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
    uint32_t to;    /* where it returns; STATE_NONE: as the caller does */
};

struct state {
    uint32_t byte, call; /* its first edges; the next state's follow them */
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
    struct byte_set *after; /* owned, [n_place]: bytes that may follow a text of
                               the rule, or more */
    /* Owned, [n_state]: for each state one of all that no token of the reach
     * tells apart; NULL: each stands for itself. */
    uint32_t *alike[REACHES];
    uint32_t n_state, n_byte, n_call, n_place;
    bool empty; /* root may be; its entry is state 0 */
    uint8_t class_of[256];
    uint32_t n_class;
};

/* PL_BAD_ARGUMENT: a rule that begins with itself, that never ends, or is too
 * large. Zeroes *a first; on failure nothing is held. */
pl_status automaton_build(struct automaton *a, const struct rules *r,
                          const char *name, pl_err *err);
void automaton_fini(struct automaton *a);

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}

#endif
