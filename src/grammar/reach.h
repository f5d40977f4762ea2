/* Tokens by how far they reach: a token of reach r has at most reach_chars(r)
 * characters, and more than those of the reach before. A character counts where
 * its first byte stands.
 *
 * A token that reaches 16 characters far cannot tell a text that may have 100
 * more from one that may have 90 more. So tokens of each reach have a tree of
 * their own (token_trie.h), and states that none of them tells apart are alike
 * for that reach (automaton.h): what is found for one is true for all. */
#ifndef GRAMMAR_REACH_H
#define GRAMMAR_REACH_H

#include <stdint.h>

enum {
    REACHES = 5,
    REACH_FIRST_CHARS = 4,
};

/* UINT32_MAX: as many as there may be. */
static inline uint32_t reach_chars(int reach)
{
    static const uint32_t chars[REACHES] = {REACH_FIRST_CHARS, 8, 16, 64,
                                            UINT32_MAX};

    return chars[reach];
}

#endif
