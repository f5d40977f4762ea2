/* The rules of a grammar as syntax trees, in the order of their definitions.
 *
 * The parser of GBNF (gbnf.c) creates them, nfa.c converts them to a graph. The
 * arena owns all memory. */
#ifndef GRAMMAR_RULE_TREE_H
#define GRAMMAR_RULE_TREE_H

#include "base/arena.h"
#include "base/utf8_char.h"
#include "pl.h"

enum { RULES_UNLIMITED = UINT32_MAX, RULES_LAST_CHAR = UTF8_LAST };

enum tree_kind {
    TREE_BYTES,  /* matches `bytes`, or the empty text if n is 0 */
    TREE_CLASS,  /* matches one character of `range`, as UTF-8 */
    TREE_RULE,   /* matches a text of rule number `rule` */
    TREE_SEQ,    /* matches all children, one after another */
    TREE_ALT,    /* matches any one of the children */
    TREE_REPEAT, /* matches the only child min to max times */
};

/* The code points from first to last, inclusive. */
struct char_range {
    uint32_t first, last;
};

struct tree {
    enum tree_kind kind;
    uint32_t n; /* number of elements of bytes, range or child */
    union {
        const char *bytes; /* [n]: the text of TREE_BYTES */
        /* [n], n >= 1: the ranges of TREE_CLASS, ascending and with gaps
         * between them, without surrogates */
        const struct char_range *range;
        const struct tree *const *child; /* [n], n >= 1: children of TREE_SEQ,
                                            TREE_ALT and TREE_REPEAT */
        uint32_t rule;
    };
    /* Of TREE_REPEAT: least and greatest number of texts of the child; max may
     * be RULES_UNLIMITED. */
    uint32_t min, max;
};

struct rule {
    const char *name; /* the rule's name, NUL-terminated */
    const struct tree *body;
    /* Where the rule's definition begins in the source text; both count from
     * 1. */
    int64_t line, column;
};

/* A symbol: a token of the vocabulary that a grammar names by id or text, or,
 * if `other`, any token but this one. In trees a symbol is written as bytes
 * that are not UTF-8 (see rules_symbol), so that the text of no token matches
 * it. */
struct token_symbol {
    int32_t id;
    bool other;
};

struct rules {
    struct arena memory; /* owns all memory of the rules and trees; its owner
                            frees it */
    struct rule *rule;   /* [n], in the arena: all rules */
    struct token_symbol *symbol; /* [n_symbol], in the arena: named tokens */
    uint32_t n, root, n_symbol;
};

enum { RULES_SYMBOLS = 1024, RULES_SYMBOL_BYTES = 3, RULES_SYMBOL_LEAD = 0xff };

/* Writes the bytes that stand for symbol i (struct token_symbol) in trees. */
static inline void rules_symbol(char out[RULES_SYMBOL_BYTES], uint32_t i)
{
    out[0] = (char)RULES_SYMBOL_LEAD;
    out[1] = (char)(i >> 6 & 63);
    out[2] = (char)(i & 63);
}

/* Normalizes an array of n ranges of characters in place: sorts them, joins
 * those that overlap or touch, and removes the surrogates, which are not
 * characters. If `negate`, replaces them by their complement. The array must
 * have space for 2 * n + 2 ranges. Returns the new number of ranges, which may
 * be 0. */
uint32_t char_ranges_normal(struct char_range *range, uint32_t n, bool negate);

#endif
