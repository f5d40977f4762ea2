/* Functions for characters that the parsers of all notations share: normal form
 * of ranges, and UTF-8. */
#include "grammar/rule_tree.h"

#include <stdlib.h>

void rules_fini(struct rules *r)
{
    arena_fini(&r->memory);
    *r = (struct rules){0};
}

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

size_t char_put(char out[4], uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

size_t char_get(const char *s, size_t n, uint32_t *c)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned b = (unsigned char)s[0];
    size_t len = b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;

    if (len == 0 || len > n || b > 0xf4)
        return 0;
    *c = len == 1 ? b : b & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        b = (unsigned char)s[i];
        if ((b & 0xc0) != 0x80)
            return 0;
        *c = *c << 6 | (b & 0x3f);
    }
    if (*c < least[len] || *c > RULES_LAST_CHAR || (*c >> 11) == 0x1b)
        return 0;
    return len;
}
