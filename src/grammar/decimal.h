/* Expressions for the numbers of an interval, as decimals of any length. */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include "grammar/schema_text.h"

#include <jansson.h>

/* maximum number of digits before the point, and after it */
enum { DECIMAL_DIGITS = 64 };

/* A number. `whole` has the digits before the point, without leading zeros; "0"
 * if there are no others. `part` has the digits after the point, without
 * trailing zeros. */
struct decimal {
    bool negative;
    char whole[DECIMAL_DIGITS + 1], part[DECIMAL_DIGITS + 1];
};

/* Sets *d to the shortest decimal of a JSON number. Returns false if it has too
 * many digits. A JSON parser rounds an integer of 2^63 or more to a double; *d
 * is then the double next to it in the direction `inward`: 1 up, -1 down. So no
 * number beyond a bound is allowed. */
bool decimal_of(struct decimal *d, const json_t *v, int inward);
/* Returns a negative number, 0 or a positive one, as a < b, a = b or a > b. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

struct interval {
    const struct decimal *low, *high; /* bounds; NULL if there is none */
    bool above, below; /* `low` and `high` themselves are excluded */
    bool integer;
    int places; /* maximum number of digits after the point, at least 1 */
    /* true: `places` suffices for both bounds, and neither is excluded. False:
     * numbers may have one digit after the point more than a bound, even beyond
     * `places`. */
    bool exact;
};

/* Appends an expression for the numbers of an interval. Without a bound, they
 * have up to 18 digits before the point. Returns false, without writing, if the
 * interval has no numbers. */
bool decimal_put(struct gbnf_text *t, const struct interval *in);

#endif
