/* The kinds of nodes, and functions that regex.c and regex_read.c share. */
#ifndef GRAMMAR_REGEX_INNER_H
#define GRAMMAR_REGEX_INNER_H

#include "grammar/regex.h"

enum node_kind {
    NODE_NOTHING,
    NODE_EMPTY,
    NODE_CLASS,  /* a character of class a */
    NODE_CAT,    /* a, then b */
    NODE_EITHER, /* a, or b, which is another NODE_EITHER or the last operand */
    /* both a and b, which is another NODE_BOTH or the last operand */
    NODE_BOTH,
    NODE_NOT,    /* any text that is not a text of a */
    NODE_STAR,   /* any number of texts of a */
    NODE_REPEAT, /* min to max texts of a */
};

/* Records the first failure and returns 0. */
uint32_t regex_fail(struct regex *r, enum regex_failure f, const char *why);
/* Returns the node of a single character of the ranges, which must be
 * normalized and at least one. */
uint32_t regex_class(struct regex *r, const struct char_range *range,
                     uint32_t n);
uint32_t regex_cat(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_repeat(struct regex *r, uint32_t a, uint32_t min, uint32_t max);

#endif
