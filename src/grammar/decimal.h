/* Expressions for the numbers of an interval, as decimals of any length. */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include "grammar/schema_text.h"

#include <jansson.h>

enum { DECIMAL_DIGITS = 64 }; /* most digits before the point, and after it */

/* A number. `whole` has no leading zeros but "0"; `part`, the digits after the
 * point, no trailing ones. */
struct decimal {
    bool negative;
    char whole[DECIMAL_DIGITS + 1], part[DECIMAL_DIGITS + 1];
};

/* Sets *d to the shortest decimal of a JSON number. Returns false if it has too
 * many digits. An integer of 2^63 or more is rounded to a double by whoever
 * reads JSON; *d is then the double next to it in the direction `inward`: 1 up,
 * -1 down. So no number beyond a bound is taken. */
bool decimal_of(struct decimal *d, const json_t *v, int inward);
/* Returns a negative number, 0 or a positive one, as a < b, a = b or a > b. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

struct interval {
    const struct decimal *low, *high; /* NULL if unbounded */
    bool above, below; /* `low` and `high` themselves are excluded */
    bool integer;
    int places; /* most digits after the point, from 1 */
    bool exact; /* `places` suffices for both bounds, and neither is excluded;
                   else there are more digits if bounds have as many */
};

/* Appends an expression for the numbers of an interval. Unbounded, they have up
 * to 18 digits before the point. Returns false, without writing, if there is
 * none. */
bool decimal_put(struct gbnf_text *t, const struct interval *in);

#endif
