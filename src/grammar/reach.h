/* Reaches: classes of tokens by their length in characters. A token of reach r
 * has at most reach_chars(r) characters, and more than reach_chars(r - 1). If a
 * token begins or ends inside a character, only first bytes of characters are
 * counted.
 *
 * A token of up to 16 characters is accepted or rejected alike whether a
 * repetition in the grammar allows 100 more characters or 90 more. So the
 * tokens of each reach have their own trie (token_trie.h). States that no token
 * of a reach distinguishes are alike for this reach (automaton.h): the mask
 * computed for one state holds for all of them. */
#ifndef GRAMMAR_REACH_H
#define GRAMMAR_REACH_H

#include <stdint.h>

enum {
    REACHES = 5,
    REACH_FIRST_CHARS = 4,
};

/* Returns the greatest number of characters of a token of this reach,
 * UINT32_MAX for the last reach, which has no limit. */
static inline uint32_t reach_chars(int reach)
{
    static const uint32_t chars[REACHES] = {REACH_FIRST_CHARS, 8, 16, 64,
                                            UINT32_MAX};

    return chars[reach];
}

#endif
