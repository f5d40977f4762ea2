/* GBNF expressions that match exactly the numbers of an interval, written as
 * decimals of any length. */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include "grammar/schema_text.h"

#include <jansson.h>

/* maximum number of digits before the point, and after it */
enum { DECIMAL_DIGITS = 64 };

/* A decimal number as text. `whole` has the digits before the point, without
 * leading zeros; it is "0" for numbers below 1. `part` has the digits after the
 * point, without trailing zeros. */
struct decimal {
    bool negative;
    char whole[DECIMAL_DIGITS + 1], part[DECIMAL_DIGITS + 1];
};

/* Sets *d to the shortest decimal of the JSON number v, or to all digits of an
 * integer (wide_json_marked). Returns false if it has too many digits. A JSON
 * parser rounds a real number of 2^63 or more, such as 1e30, to a double, so
 * the bound in the document is not known exactly. *d is then the next double,
 * upwards if `inward` is 1, downwards if it is -1. So numbers beyond the bound
 * are never allowed. */
bool decimal_of(struct decimal *d, const json_t *v, int inward);
/* Compares two numbers. Returns less than 0 if a < b, 0 if a = b, and more than
 * 0 if a > b. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

struct interval {
    const struct decimal *low, *high; /* bounds of the interval; NULL where
                                         there is none */
    bool above, below; /* above: `low` itself is excluded; below: `high` itself
                          is */
    bool integer;
    int places; /* maximum number of digits that a number may have after the
                   point, at least 1 */
    /* If true, numbers have at most `places` digits after the point, which
     * suffice for both bounds, and the bounds belong to the interval. If false,
     * numbers may have one digit more after the point than the longer bound,
     * even if that exceeds `places`. */
    bool exact;
};

/* Appends a GBNF expression for the numbers of an interval. Where a bound is
 * absent, numbers have up to 18 digits before the point. Returns false, without
 * writing, if the interval contains no number. */
bool decimal_put(struct gbnf_text *t, const struct interval *in);

#endif
