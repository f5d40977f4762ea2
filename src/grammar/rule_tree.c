/* The normal form of ranges of characters, which the parsers of all notations
 * use. */
#include "grammar/rule_tree.h"

#include <stdlib.h>

static int by_first(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static uint32_t join(struct char_range *range, uint32_t n)
{
    uint32_t k = 0;

    qsort(range, n, sizeof *range, by_first);
    for (uint32_t i = 0; i < n; i++) {
        if (k == 0 || range[i].first > range[k - 1].last + 1)
            range[k++] = range[i];
        else if (range[i].last > range[k - 1].last)
            range[k - 1].last = range[i].last;
    }
    return k;
}

/* Replaces n ranges, which are ascending and have gaps between them, by their
 * complement. Works in place: writes only to elements that were read before,
 * and to one element after the last. Returns the new number of ranges. */
static uint32_t others(struct char_range *range, uint32_t n)
{
    uint32_t next = 0, k = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct char_range r = range[i];

        if (r.first > next)
            range[k++] = (struct char_range){next, r.first - 1};
        next = r.last + 1;
    }
    if (next <= RULES_LAST_CHAR)
        range[k++] = (struct char_range){next, RULES_LAST_CHAR};
    return k;
}

static uint32_t without_surrogates(struct char_range *range, uint32_t n)
{
    enum { FIRST = 0xd800, LAST = 0xdfff };
    uint32_t k = 0, high = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct char_range r = range[i];

        if (r.last < FIRST || r.first > LAST) {
            range[k++] = r;
            continue;
        }
        high = r.last > LAST ? r.last : high;
        if (r.first < FIRST)
            range[k++] = (struct char_range){r.first, FIRST - 1};
    }
    if (high)
        range[k++] = (struct char_range){LAST + 1, high};
    return join(range, k);
}

uint32_t char_ranges_normal(struct char_range *range, uint32_t n, bool negate)
{
    n = join(range, n);
    if (negate)
        n = others(range, n);
    return without_surrogates(range, n);
}
