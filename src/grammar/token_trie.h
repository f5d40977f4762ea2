/* The texts of a vocabulary as a trie of bytes, for walks over all of it.
 *
 * A node is a prefix of several tokens. A leaf is one token, with the bytes
 * that follow the node's prefix. A few leaves of a node may share their first
 * byte, because stepping it again is cheaper than a node. The leaves of a node
 * are contiguous, and so are its child nodes, so that a walk tries them in a
 * loop without branches. Leaves are in walking order, so those of a whole
 * subtree are contiguous too. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "grammar/grammar.h"
#include "grammar/reach.h"

#include <stdatomic.h>

/* A set of characters: ASCII characters individually, others by their
 * length. */
struct char_kinds {
    uint64_t ascii[2];
    uint8_t others; /* set of enum other_kind */
};

enum other_kind {
    OTHER_TWO = 1, /* characters of 2, 3 and 4 bytes */
    OTHER_THREE = 2,
    OTHER_FOUR = 4,
    OTHER_BAD = 8, /* bytes that are not UTF-8 */
};

/* A node: the texts that extend a prefix. */
struct trie_node {
    /* index of the node's first leaf of one byte, and of its first longer
     * leaf */
    uint32_t leaf, tail;
    uint32_t end;   /* end of all leaves below the node; those of its children
                       are last */
    uint32_t child; /* children: nodes [child .. child + n_child) */
    uint16_t n_child;
    /* The greatest number of characters that follow the prefix in a token. If
     * the prefix ends with the first byte of a longer character, this character
     * counts too. */
    uint16_t n_char;
    /* 1 + the index in grammar_vocab.wide of the mask of all leaves below. 0 if
     * there are fewer than TRIE_WIDE. */
    uint32_t wide;
    struct char_kinds kinds; /* characters that follow the prefix in tokens */
};

/* Returns true if a character of several bytes begins with this byte. */
static inline bool trie_begins_char(unsigned byte)
{
    return byte >= 0xc2 && byte <= 0xf4;
}

/* Tokens of each reach have their own trie. Its root, the empty prefix, is the
 * node with the reach's number. */
enum {
    TRIE_CHARS = 16, /* most tokens have at most as many characters */
    /* Minimum number of leaves of a node that is not a root. */
    TRIE_NODE_LEAVES = 6,
    TRIE_WIDE = 1024, /* minimum number of leaves of a node that has a mask */
};

struct grammar_vocab {
    struct trie_node *node; /* owned, [n_node] */
    uint8_t *node_byte; /* owned, [n_node]: last byte of the node's prefix */
    uint8_t *leaf_byte; /* owned, [n_leaf]: first byte of the leaf */
    /* Owned, [n_leaf + 1]: where a leaf's other bytes begin in `rest`. */
    uint32_t *rest_at;
    uint8_t *rest;    /* owned: bytes of all leaves after their first byte */
    int32_t *leaf_id; /* owned, [n_leaf]: token of each leaf */
    int32_t *end;     /* owned, [n_end]: ids that end a text */
    char *bytes;      /* owned: all tokens' texts, concatenated */
    size_t *at;    /* owned, [n_token + 1]: where each text begins in `bytes` */
    uint8_t *kind; /* owned, [n_token]: enum grammar_token_kind */
    /* owned, [n_wide, n_word]: masks of the tokens below nodes */
    uint32_t *wide;
    int32_t n_token, n_end;
    uint32_t n_wide, n_word;
    atomic_int n_owner;
    uint32_t n_node, n_leaf;
    /* The nodes before n_short, apart from roots, belong to tokens of up to
     * TRIE_CHARS characters. */
    uint32_t n_short;
};

/* Returns the end of the leaves that are directly below a node. */
static inline uint32_t trie_leaf_end(const struct grammar_vocab *v,
                                     const struct trie_node *node)
{
    return node->n_child ? v->node[node->child].leaf : node->end;
}

#endif
