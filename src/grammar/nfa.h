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
    uint32_t next; /* the node's next edge, or NFA_NONE */
    uint32_t to, rule;
    uint8_t kind, lo, hi;
};

/* The identical copies of the item of a bounded repetition. Copy i has the
 * nodes [node + i * size .. node + (i + 1) * size). There is a node before the
 * first copy. */
struct nfa_row {
    uint32_t node, size, n;
    uint32_t min; /* number of required copies */
    bool endless; /* a loop follows the last copy */
};

struct nfa {
    uint32_t *first; /* owned, [n_node]: a node's first edge, or NFA_NONE */
    struct nfa_edge *edge; /* owned, [n_edge] */
    /* Owned, [n_rule]: each rule's first and last node. No edge leads to an
     * entry; no edge leaves an end. */
    uint32_t *entry, *end;
    bool *nullable;      /* owned, [n_rule]: the rule may be empty */
    struct nfa_row *row; /* owned, [n_row]; inner repetitions come first */
    uint32_t n_node, cap_node, n_edge, cap_edge, n_row, cap_row;
    bool chars; /* every literal begins with the first byte of a character */
};

/* Builds the graph. PL_BAD_ARGUMENT if a rule can never end, or is too large
 * when expanded; the message begins with `name`. Zeroes *g first. The caller
 * calls nfa_fini in any case. */
pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err);
void nfa_fini(struct nfa *g);

#endif
