/* Rules as graphs over bytes, built from their trees by Thompson's
 * construction. An edge takes a byte of a range, a text of another rule, or
 * nothing. Repetitions are expanded, characters are UTF-8, and small rules are
 * inlined. automaton.c converts the graph to its executable form. */
#ifndef GRAMMAR_NFA_H
#define GRAMMAR_NFA_H

#include "grammar/rule_tree.h"

enum { NFA_NODES = 1 << 18, NFA_NONE = UINT32_MAX };

enum nfa_kind { NFA_EMPTY, NFA_BYTE, NFA_RULE };

struct nfa_edge {
    uint32_t next; /* of the same node, or NFA_NONE */
    uint32_t to, rule;
    uint8_t kind, lo, hi;
};

/* The identical copies of a bounded repetition: copy i is nodes
 * [node + i * size ..). The first begins at `node`, and the node before it
 * exists. */
struct nfa_row {
    uint32_t node, size, n;
    uint32_t min; /* copies that are required */
    bool endless; /* a loop follows the last one */
};

struct nfa {
    uint32_t *first; /* owned, [n_node]: a node's first edge, or NFA_NONE */
    struct nfa_edge *edge; /* owned, [n_edge] */
    /* Owned, [n_rule]. No edge leads to an entry; no edge leaves an end. */
    uint32_t *entry, *end;
    bool *nullable;      /* owned, [n_rule]: may be empty */
    struct nfa_row *row; /* owned, [n_row]; inner rows come first */
    uint32_t n_node, cap_node, n_edge, cap_edge, n_row, cap_row;
    bool chars; /* all parts begin with the first byte of a character */
};

/* Builds the graph. PL_BAD_ARGUMENT: a rule can never end, or is too large when
 * expanded; the message begins with `name`. Zeroes *g first. nfa_fini frees the
 * memory, also on failure. */
pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err);
void nfa_fini(struct nfa *g);

#endif
