/* The texts of a vocabulary's tokens as a trie of bytes, so that one walk
 * checks all tokens against a grammar.
 *
 * A node stands for a prefix of several tokens. A leaf is one token: the bytes
 * of its text that follow its node's prefix. Tokens that share further bytes
 * become a child node only if they are many (TRIE_NODE_LEAVES). Fewer tokens
 * stay separate leaves, because reading the shared byte again costs less than
 * visiting a node. The leaves of a node are contiguous, and so are its child
 * nodes, so that loops over them have no branches. Leaves are stored in the
 * order of a walk, so those of a whole subtree are contiguous too. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "base/arena.h"
#include "grammar/grammar.h"
#include "grammar/reach.h"

#include <stdatomic.h>

/* A set of characters. ASCII characters are in it one by one, others by their
 * length in UTF-8: either all characters of 2, 3 or 4 bytes, or none. */
struct char_kinds {
    uint64_t ascii[2];
    uint8_t others; /* sets of longer characters: bits of enum other_kind */
};

enum other_kind {
    /* Characters of 2 bytes in UTF-8; the next two are those of 3 and 4
     * bytes. */
    OTHER_TWO = 1,
    OTHER_THREE = 2,
    OTHER_FOUR = 4,
    OTHER_BAD = 8, /* bytes that are not valid UTF-8 */
};

/* A node of the trie: a prefix, and all tokens that extend it. */
struct trie_node {
    /* Index of the node's first leaf with one byte after the prefix, and of its
     * first leaf with more bytes. */
    uint32_t leaf, tail;
    /* End of the indices of all leaves in the node's subtree. The leaves of its
     * children follow its own. */
    uint32_t end;
    uint32_t child; /* the node's children are nodes [child .. child +
                       n_child) */
    uint16_t n_child;
    /* The greatest number of characters that follow the prefix in a token of
     * the subtree. If the prefix ends with the first byte of a longer
     * character, this character counts too. */
    uint16_t n_char;
    /* 1 + the index in grammar_vocab.wide of a mask of all tokens in the
     * subtree. 0 if they are fewer than TRIE_WIDE. */
    uint32_t wide;
    /* The characters that follow the prefix in tokens of the subtree. */
    struct char_kinds kinds;
};

/* Returns true if a character of several bytes begins with this byte. */
static inline bool trie_begins_char(unsigned byte)
{
    return byte >= 0xc2 && byte <= 0xf4;
}

/* The tokens of each reach, a class of token lengths (reach.h), have a trie of
 * their own. The root of the trie of reach r is node r; its prefix is empty. */
enum {
    /* Most tokens have at most this number of characters. */
    TRIE_CHARS = 16,
    /* Minimum number of tokens for which a node is added to the trie. */
    TRIE_NODE_LEAVES = 6,
    /* Minimum number of leaves in the subtree of a node for which a mask of
     * their tokens is stored. */
    TRIE_WIDE = 1024,
};

struct grammar_vocab {
    struct arena memory;    /* owns all memory of the vocabulary */
    struct trie_node *node; /* [n_node]: the nodes of all tries */
    uint8_t *node_byte;     /* [n_node]: last byte of each node's prefix */
    /* [n_leaf]: the byte that follows the node's prefix in each leaf */
    uint8_t *leaf_byte;
    /* [n_leaf + 1]: index in `rest` of each leaf's bytes after its first */
    uint32_t *rest_at;
    uint8_t *rest;    /* the bytes of all leaves after their first */
    int32_t *leaf_id; /* [n_leaf]: id of each leaf's token */
    int32_t *end;     /* [n_end]: ids of tokens that end the generation */
    char *bytes;      /* texts of all tokens, one after another */
    size_t *at;       /* [n_token + 1]: where the text of each token begins in
                      `bytes` */
    uint8_t *kind;  /* [n_token]: type of each token, enum grammar_token_kind */
    uint32_t *wide; /* [n_wide, n_word]: masks of all tokens below a node */
    int32_t n_token, n_end;
    uint32_t n_wide, n_word;
    atomic_int n_owner;
    uint32_t n_node, n_leaf;
    /* Apart from roots, the nodes before n_short belong to the tries of tokens
     * of up to TRIE_CHARS characters, and the nodes from n_short on to those of
     * longer tokens. */
    uint32_t n_short;
};

/* Returns the end of the indices of the leaves that belong to the node itself,
 * not to its children. */
static inline uint32_t trie_leaf_end(const struct grammar_vocab *v,
                                     const struct trie_node *node)
{
    return node->n_child ? v->node[node->child].leaf : node->end;
}

#endif
