/* The rules of a grammar as trees, in the order in which they were written.
 *
 * Who reads a notation makes them (gbnf.c), who runs them reads them
 * (automaton.c). All memory is the arena's. */
#ifndef GRAMMAR_RULE_TREE_H
#define GRAMMAR_RULE_TREE_H

#include "base/arena.h"
#include "pl.h"

enum { RULES_UNLIMITED = UINT32_MAX, RULES_LAST_CHAR = 0x10ffff };

enum tree_kind {
    TREE_BYTES,  /* these bytes; none: the empty text */
    TREE_CLASS,  /* one character of the ranges, as UTF-8 */
    TREE_RULE,   /* what a rule says */
    TREE_SEQ,    /* all children, one after another */
    TREE_ALT,    /* one of the children */
    TREE_REPEAT, /* the only child, min to max times */
};

/* Characters from first to last, both included. */
struct char_range {
    uint32_t first, last;
};

struct tree {
    enum tree_kind kind;
    uint32_t n; /* bytes, ranges or children */
    union {
        const char *bytes;               /* [n] */
        const struct char_range *range;  /* [n], n >= 1; rising, apart, without
                                           surrogates */
        const struct tree *const *child; /* [n], n >= 1 */
        uint32_t rule;
    };
    uint32_t min, max; /* of TREE_REPEAT; max may be RULES_UNLIMITED */
};

struct rule {
    const char *name; /* terminated */
    const struct tree *body;
    int64_t line, column; /* where it begins, from 1 on */
};

struct rules {
    struct arena memory; /* owns all that is here */
    struct rule *rule;   /* [n] */
    uint32_t n, root;
};

void rules_fini(struct rules *r);

/* Sorts n ranges in place, joins what touches, and with `negate` takes the
 * others instead; cuts the surrogates out, which are no characters. `range` has
 * room for 2 * n + 2. Returns how many there are then, perhaps none. */
uint32_t char_ranges_normal(struct char_range *range, uint32_t n, bool negate);

/* Writes a character as UTF-8, 1 to 4 bytes, and returns how many. */
size_t char_put(char out[4], uint32_t c);
/* Reads the character that s[0 .. n) begins with, n > 0; its bytes, or 0: it is
 * not UTF-8. */
size_t char_get(const char *s, size_t n, uint32_t *c);

#endif
