/* The texts of a vocabulary as a trie of bytes, for walks over all of it.
 *
 * A node is a prefix of some tokens. A leaf is one token, with its bytes after
 * the node. A few leaves may share their first byte, because stepping it again
 * is cheaper than a node. Leaves and nodes below a node are in one row each, so
 * that a walk tries them in a loop without branches. Leaves are in walking
 * order, so those of a whole branch are in one row too. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "grammar/grammar.h"
#include "grammar/reach.h"

#include <stdatomic.h>

/* Sets of characters: ASCII individually, others by length. */
struct char_kinds {
    uint64_t ascii[2];
    uint8_t others; /* bits: enum other_kind */
};

enum other_kind {
    OTHER_TWO = 1, /* of 2, 3 and 4 bytes */
    OTHER_THREE = 2,
    OTHER_FOUR = 4,
    OTHER_BAD = 8, /* not a character */
};

/* The texts that extend a prefix. */
struct trie_node {
    uint32_t leaf, tail; /* leaves of one byte, then those of more */
    uint32_t end;        /* of all leaves below; the children's are last */
    uint32_t child;      /* nodes [child .. child + n_child) */
    uint16_t n_child;
    /* The most characters in a row after the node, if a character ends there;
     * otherwise counted from the character that begins with its last byte. */
    uint16_t n_char;
    /* 1 + the number of the vocabulary's mask with all leaves below. 0: they
     * are few. */
    uint32_t wide;
    struct char_kinds kinds; /* of those characters */
};

/* Returns true if a multi-byte character begins with the node's last byte. */
static inline bool trie_begins_char(unsigned byte)
{
    return byte >= 0xc2 && byte <= 0xf4;
}

/* Tokens of each reach have their own trie. Its root, the empty prefix, is the
 * node with the reach's number. */
enum {
    TRIE_CHARS = 16,      /* few tokens have more */
    TRIE_NODE_LEAVES = 6, /* the minimum of a node, except of a root */
    TRIE_WIDE = 1024,     /* leaves */
};

struct grammar_vocab {
    struct trie_node *node; /* owned, [n_node] */
    uint8_t *node_byte;     /* owned, [n_node]: last byte of the prefix */
    uint8_t *leaf_byte;     /* owned, [n_leaf]: its first byte */
    uint32_t *rest_at; /* owned, [n_leaf + 1]: where its other bytes begin */
    uint8_t *rest;     /* owned */
    int32_t *leaf_id;  /* owned, [n_leaf] */
    int32_t *end;      /* owned, [n_end]: ids that end a text */
    char *bytes;       /* owned: the texts in a row */
    size_t *at;        /* owned, [n_token + 1]: where each text begins */
    uint8_t *kind;     /* owned, [n_token]: enum grammar_token_kind */
    uint32_t *wide;    /* owned, [n_wide, n_word]: masks of tokens */
    int32_t n_token, n_end;
    uint32_t n_wide, n_word;
    atomic_int n_owner;
    uint32_t n_node, n_leaf;
    /* The first n_short nodes, apart from roots, are those of tokens up to
     * TRIE_CHARS. */
    uint32_t n_short;
};

/* Returns the end of a node's own leaves. */
static inline uint32_t trie_leaf_end(const struct grammar_vocab *v,
                                     const struct trie_node *node)
{
    return node->n_child ? v->node[node->child].leaf : node->end;
}

#endif
