/* The texts of a vocabulary as a tree of bytes, for walks that meet all of it.
 *
 * A node is a prefix of some tokens; a leaf, one token, with its bytes behind
 * the node, of which it may share the first with a few others: to step them
 * again takes less than a node. What stands below one node is in one row,
 * leaves and nodes each, so that a walk tries them in a loop without branches;
 * leaves are in the order in which a walk meets them, so those of a branch are
 * one row, too. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "grammar/grammar.h"
#include "grammar/reach.h"

#include <stdatomic.h>

/* Characters of some kinds: ASCII one by one, others by their length. */
struct char_kinds {
    uint64_t ascii[2];
    uint8_t others; /* bits: enum other_kind */
};

enum other_kind {
    OTHER_TWO = 1, /* of 2, 3 and 4 bytes */
    OTHER_THREE = 2,
    OTHER_FOUR = 4,
    OTHER_BAD = 8, /* what is no character */
};

/* The texts that have more bytes than some prefix. */
struct trie_node {
    uint32_t leaf, tail; /* leaves of one byte, and behind them those of more */
    uint32_t end;        /* of all leaves below; the children's stand last */
    uint32_t child;      /* nodes [child .. child + n_child) */
    uint16_t n_child;
    uint16_t n_char; /* the most characters in a row behind the node, if one
                        ends there, or with the one that begins with its last
                        byte */
    uint32_t wide;   /* 1 + which of the vocabulary's masks has all leaves
                        below; 0: they are few */
    struct char_kinds kinds; /* of those characters */
};

/* Does a longer character begin with the node's last byte? */
static inline bool trie_begins_char(unsigned byte)
{
    return byte >= 0xc2 && byte <= 0xf4;
}

/* Tokens of each reach have a tree of their own, whose root, the empty prefix,
 * is the node of the reach's number. */
enum {
    TRIE_CHARS = 16,      /* tokens of more are few */
    TRIE_NODE_LEAVES = 6, /* that a node has at least, unless it is a root */
    TRIE_WIDE = 1024,     /* leaves */
};

struct grammar_vocab {
    struct trie_node *node; /* owned, [n_node] */
    uint8_t *node_byte;     /* owned, [n_node]: the last of the prefix */
    uint8_t *leaf_byte;     /* owned, [n_leaf]: its first one */
    uint32_t *rest_at;      /* owned, [n_leaf + 1]: where its others begin */
    uint8_t *rest;          /* owned */
    int32_t *leaf_id;       /* owned, [n_leaf] */
    int32_t *end;           /* owned, [n_end]: ids that end a text */
    char *bytes;            /* owned: the texts, one behind the other */
    size_t *at;             /* owned, [n_token + 1]: where each begins */
    uint8_t *kind;          /* owned, [n_token]: enum grammar_token_kind */
    uint32_t *wide;         /* owned, [n_wide, n_word]: masks of tokens */
    int32_t n_token, n_end;
    uint32_t n_wide, n_word;
    atomic_int n_owner;
    uint32_t n_node, n_leaf;
    uint32_t n_short; /* nodes; but for roots, those of tokens up to TRIE_CHARS
                         come first */
};

/* The end of a node's own leaves. */
static inline uint32_t trie_leaf_end(const struct grammar_vocab *v,
                                     const struct trie_node *node)
{
    return node->n_child ? v->node[node->child].leaf : node->end;
}

#endif
