/* The types of nodes of regular expressions, and functions that regex.c and
 * regex_read.c share. */
#ifndef GRAMMAR_REGEX_INNER_H
#define GRAMMAR_REGEX_INNER_H

#include "grammar/regex.h"

enum node_kind {
    NODE_NOTHING,
    NODE_EMPTY,
    NODE_CLASS, /* one character of class number `a` */
    NODE_CAT,   /* a text of node a, then one of b */
    /* A text of a or of b. Longer lists are chains: b is a NODE_EITHER again,
     * or the last operand. */
    NODE_EITHER,
    /* A text of both a and b (intersection). Longer lists are chains: b is a
     * NODE_BOTH again, or the last operand. */
    NODE_BOTH,
    NODE_NOT,    /* any text that is not a text of node a */
    NODE_STAR,   /* any number of texts of a, one after another */
    NODE_REPEAT, /* min to max texts of a, one after another */
};

/* Records the reason `f` and the message `why`, unless something failed before.
 * Returns 0, which is not a node. */
uint32_t regex_fail(struct regex *r, enum regex_failure f, const char *why);
/* Returns the node of any single character of range[0 .. n), n > 0. The ranges
 * must be ascending and disjoint. */
uint32_t regex_class(struct regex *r, const struct char_range *range,
                     uint32_t n);
uint32_t regex_cat(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_repeat(struct regex *r, uint32_t a, uint32_t min, uint32_t max);

#endif
