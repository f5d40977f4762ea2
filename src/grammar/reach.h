/* Reaches: classes of tokens by their number of characters. A token of reach r
 * has at most reach_chars(r) characters, and more than reach_chars(r - 1). A
 * token that begins or ends inside a character counts only first bytes.
 *
 * A token of up to 16 characters cannot distinguish a text that may have 100
 * more from one that may have 90 more. So tokens of each reach have their own
 * trie (token_trie.h). States that no token of a reach distinguishes are alike
 * for it (automaton.h): a result for one holds for all. */
#ifndef GRAMMAR_REACH_H
#define GRAMMAR_REACH_H

#include <stdint.h>

enum {
    REACHES = 5,
    REACH_FIRST_CHARS = 4,
};

/* Returns the greatest number of characters of a token of this reach.
 * UINT32_MAX means no limit. */
static inline uint32_t reach_chars(int reach)
{
    static const uint32_t chars[REACHES] = {REACH_FIRST_CHARS, 8, 16, 64,
                                            UINT32_MAX};

    return chars[reach];
}

#endif
