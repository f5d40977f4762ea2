/* Rules as graphs over bytes, straight from their trees (Thompson's
 * construction): edges take a byte of a range, a text of another rule, or
 * nothing. Repetitions are written out, characters are UTF-8, and small rules
 * stand where they are named. automaton.c makes of it what runs. */
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

/* The copies of what is repeated a bounded number of times: copy i is nodes
 * [node + i * size ..), and all look the same. `node` is where the first begins
 * and one before it was there already. */
struct nfa_row {
    uint32_t node, size, n;
    uint32_t min; /* copies that are there at least, if any may be left out */
    bool endless; /* a loop follows the last one */
};

struct nfa {
    uint32_t *first;       /* owned, [n_node]: a node's first edge, or none */
    struct nfa_edge *edge; /* owned, [n_edge] */
    uint32_t *entry, *end; /* owned, [n_rule]: no edge leads to an entry, none
                              leads away from an end */
    bool *nullable;        /* owned, [n_rule]: may be empty */
    struct nfa_row *row; /* owned, [n_row]; what is within a copy comes first */
    uint32_t n_node, cap_node, n_edge, cap_edge, n_row, cap_row;
    bool chars; /* texts of any part begin with the first byte of a character */
};

/* PL_BAD_ARGUMENT: a rule that can never end, or is too large written out; the
 * message begins with `name`. Zeroes *g first; what is held on failure is freed
 * by nfa_fini. */
pl_status nfa_build(struct nfa *g, const struct rules *r, const char *name,
                    pl_err *err);
void nfa_fini(struct nfa *g);

#endif
