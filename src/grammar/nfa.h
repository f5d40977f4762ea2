/* Rules as graphs over bytes (NFAs), built from their trees by Thompson's
 * construction. An edge takes a byte of a range, a text of another rule, or
 * nothing. Repetitions are expanded, characters are UTF-8, and small rules are
 * inlined. automaton.c converts the graph to its executable form. */
#ifndef GRAMMAR_NFA_H
#define GRAMMAR_NFA_H

#include "grammar/rule_tree.h"

enum { NFA_NODES = 1 << 18, NFA_NONE = UINT32_MAX };

enum nfa_kind { NFA_EMPTY, NFA_BYTE, NFA_RULE };

struct nfa_edge {
    /* Index of the next edge that leaves the same node, or NFA_NONE. */
    uint32_t next;
    uint32_t to, rule;
    uint8_t kind, lo, hi;
};

/* A bounded repetition such as a{2,5}, expanded to n identical copies of the
 * repeated item. Copy i has the nodes [node + i * size .. node + (i + 1) *
 * size). The node before the first copy belongs to no copy. */
struct nfa_row {
    uint32_t node, size, n;
    uint32_t min; /* number of copies that are required, the others are
                     optional */
    bool endless; /* any number of items may follow the copies, as in a{2,} */
};

struct nfa {
    struct arena memory;   /* owns all memory of the graph */
    uint32_t *first;       /* [n_node]: first edge of each node, or NFA_NONE */
    struct nfa_edge *edge; /* [n_edge]: edges; `next` links those of a node */
    /* [n_rule]: each rule's first and last node, NFA_NONE for rules that are
     * inlined everywhere. No edge leads to a first node, and none leaves a last
     * node. */
    uint32_t *entry, *end;
    bool *nullable; /* [n_rule]: true for rules that match the empty text */
    /* [n_row]: expanded repetitions, inner ones before outer ones */
    struct nfa_row *row;
    uint32_t n_node, n_edge, n_row;
    /* Every literal begins with the first byte of a character. Then no token of
     * n characters can pass more than n copies of a repeated item. */
    bool chars;
};

/* Builds the graph. PL_BAD_ARGUMENT if a rule can never end, or is too large
 * when expanded; the message begins with `name`. Zeroes *g first. The caller
 * frees g->memory in any case. */
pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err);

#endif
