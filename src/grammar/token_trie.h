/* The texts of a vocabulary as a tree of bytes, in the order in which a walk
 * meets its nodes: a node stands before all that begin with it, so a walk is a
 * loop over an array, and leaving a branch out is a jump. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "grammar/grammar.h"

struct trie_node {
    uint32_t skip;  /* the node behind all that begin with this one */
    uint32_t first; /* of `order`: tokens that end here stand from first to the
                       next node's */
    uint16_t depth; /* 0: of one byte */
    uint8_t byte;
};

/* Characters by groups, bits of a word: small letters, large ones, digits, each
 * mark, ...; characters of 2, 3 and 4 bytes; and what is no character. */
enum {
    GROUPS_OF_BYTES = 41, /* the first ones: ASCII */
    GROUP_TWO = GROUPS_OF_BYTES,
    GROUP_THREE,
    GROUP_FOUR,
    N_GROUP,
    GROUP_BAD = N_GROUP,
};
unsigned token_group(unsigned byte); /* of ASCII */

/* What comes behind a node, if a character ends there. */
struct trie_below {
    uint64_t groups;
    uint32_t n_char; /* the most in a row */
};

struct grammar_vocab {
    struct trie_node *node;   /* owned, [n_node + 1] */
    struct trie_below *below; /* owned, [n_node] */
    int32_t *order;           /* owned, [n_order]: ids by text */
    int32_t *end;             /* owned, [n_end]: ids that end a text */
    char *bytes;              /* owned: the texts, one behind the other */
    size_t *at;               /* owned, [n_token + 1]: where each begins */
    uint8_t *kind;            /* owned, [n_token]: enum grammar_token_kind */
    int32_t n_token, n_end;
    uint32_t n_node, n_order, n_level; /* the largest depth, plus 1 */
};

#endif
