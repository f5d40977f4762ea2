/* The rules of a grammar as trees, in source order.
 *
 * The parser of a notation (gbnf.c) creates them, automaton.c consumes them.
 * The arena owns all memory. */
#ifndef GRAMMAR_RULE_TREE_H
#define GRAMMAR_RULE_TREE_H

#include "base/arena.h"
#include "pl.h"

enum { RULES_UNLIMITED = UINT32_MAX, RULES_LAST_CHAR = 0x10ffff };

enum tree_kind {
    TREE_BYTES,  /* the bytes; the empty text if there are none */
    TREE_CLASS,  /* one character of the ranges, as UTF-8 */
    TREE_RULE,   /* a text of the rule */
    TREE_SEQ,    /* all children, one after another */
    TREE_ALT,    /* any one of the children */
    TREE_REPEAT, /* the only child, min to max times */
};

/* Characters from first to last, inclusive. */
struct char_range {
    uint32_t first, last;
};

struct tree {
    enum tree_kind kind;
    uint32_t n; /* number of bytes, ranges or children */
    union {
        const char *bytes; /* [n] */
        /* [n], n >= 1; ascending, not adjacent, without surrogates. */
        const struct char_range *range;
        const struct tree *const *child; /* [n], n >= 1 */
        uint32_t rule;
    };
    uint32_t min, max; /* for TREE_REPEAT: counts of the child; max may be
                          RULES_UNLIMITED */
};

struct rule {
    const char *name; /* terminated */
    const struct tree *body;
    int64_t line, column; /* position of its beginning, from 1 */
};

/* A token of the vocabulary that a grammar names: that token, or any other
 * one. In trees it is text that is not UTF-8 (see rules_symbol), so that no
 * token's own text matches it. */
struct token_symbol {
    int32_t id;
    bool other;
};

struct rules {
    struct arena memory;         /* owns all memory of the rules */
    struct rule *rule;           /* [n] */
    struct token_symbol *symbol; /* [n_symbol] */
    uint32_t n, root, n_symbol;
};

enum { RULES_SYMBOLS = 1024, RULES_SYMBOL_BYTES = 3, RULES_SYMBOL_LEAD = 0xff };

/* Writes the text of symbol i. */
static inline void rules_symbol(char out[RULES_SYMBOL_BYTES], uint32_t i)
{
    out[0] = (char)RULES_SYMBOL_LEAD;
    out[1] = (char)(i >> 6 & 63);
    out[2] = (char)(i & 63);
}

void rules_fini(struct rules *r);

/* Normalizes n ranges in place: sorts them and joins those that overlap or
 * touch. If `negate`, replaces them by their complement. Removes the
 * surrogates, which are not characters. `range` must have space for 2 * n + 2.
 * Returns the new number of ranges, which may be 0. */
uint32_t char_ranges_normal(struct char_range *range, uint32_t n, bool negate);

/* Writes a character as UTF-8 and returns its length, 1 to 4 bytes. */
size_t char_put(char out[4], uint32_t c);
/* Decodes the character at the beginning of s[0 .. n), n > 0. Returns its
 * length, or 0 if it is not UTF-8. */
size_t char_get(const char *s, size_t n, uint32_t *c);

#endif
