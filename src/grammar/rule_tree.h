/* The rules of a grammar as trees, in source order.
 *
 * A reader of a notation creates them (gbnf.c), automaton.c consumes them. The
 * arena owns all memory. */
#ifndef GRAMMAR_RULE_TREE_H
#define GRAMMAR_RULE_TREE_H

#include "base/arena.h"
#include "pl.h"

enum { RULES_UNLIMITED = UINT32_MAX, RULES_LAST_CHAR = 0x10ffff };

enum tree_kind {
    TREE_BYTES,  /* these bytes; none: the empty text */
    TREE_CLASS,  /* one character of the ranges, as UTF-8 */
    TREE_RULE,   /* a text of a rule */
    TREE_SEQ,    /* all children, one after another */
    TREE_ALT,    /* one of the children */
    TREE_REPEAT, /* the only child, min to max times */
};

/* Characters from first to last, inclusive. */
struct char_range {
    uint32_t first, last;
};

struct tree {
    enum tree_kind kind;
    uint32_t n; /* bytes, ranges or children */
    union {
        const char *bytes; /* [n] */
        /* [n], n >= 1; rising, not adjacent, without surrogates. */
        const struct char_range *range;
        const struct tree *const *child; /* [n], n >= 1 */
        uint32_t rule;
    };
    uint32_t min, max; /* of TREE_REPEAT; max may be RULES_UNLIMITED */
};

struct rule {
    const char *name; /* terminated */
    const struct tree *body;
    int64_t line, column; /* of its beginning, from 1 */
};

struct rules {
    struct arena memory; /* owns everything here */
    struct rule *rule;   /* [n] */
    uint32_t n, root;
};

void rules_fini(struct rules *r);

/* Sorts n ranges in place and joins those that touch; with `negate`, replaces
 * them by their complement. Removes the surrogates, which are not characters.
 * `range` must have space for 2 * n + 2. Returns the new count, perhaps 0. */
uint32_t char_ranges_normal(struct char_range *range, uint32_t n, bool negate);

/* Writes a character as UTF-8 and returns its length, 1 to 4 bytes. */
size_t char_put(char out[4], uint32_t c);
/* Reads the character that s[0 .. n) begins with, n > 0. Returns its length, or
 * 0 if it is not UTF-8. */
size_t char_get(const char *s, size_t n, uint32_t *c);

#endif
