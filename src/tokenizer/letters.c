/* Looks up code points in the tables of letter_table.h, and converts between
 * UTF-8 and code points. */
#include "tokenizer/letters.h"

#include "tokenizer/letter_table.h"

#include <stdlib.h>

/* Numbers by which a Hangul syllable is decomposed: the first code points of
 * syllables, leading consonants, vowels and trailing consonants, and how many
 * there are of each. The Unicode Standard, 3.12, "Conjoining Jamo Behavior". */
enum {
    SYLLABLE = 0xac00,
    LEAD = 0x1100,
    VOWEL = 0x1161,
    TRAIL = 0x11a7,
    N_VOWEL = 21,
    N_TRAIL = 28,
    N_SYLLABLE = 19 * N_VOWEL * N_TRAIL
};

static int by_first(const void *key, const void *row)
{
    uint32_t a = *(const uint32_t *)key, b = *(const uint32_t *)row;

    return (a > b) - (a < b);
}

static int by_run(const void *key, const void *run)
{
    const struct lower_run *r = run;
    uint32_t c = *(const uint32_t *)key;

    return c < r->first ? -1 : c > r->last;
}

int letter_base(uint32_t c, uint32_t out[LETTER_MAX_BASE])
{
    const uint32_t *row;

    out[0] = c;
    /* No character below U+00C0 has marks that could be removed. */
    if (c < 0xc0)
        return 1;
    if (c - SYLLABLE < N_SYLLABLE) {
        uint32_t i = c - SYLLABLE;

        out[0] = LEAD + i / (N_VOWEL * N_TRAIL);
        out[1] = VOWEL + i / N_TRAIL % N_VOWEL;
        out[2] = TRAIL + i % N_TRAIL;
        return i % N_TRAIL ? 3 : 2;
    }
    row = bsearch(&c, base_pairs, sizeof base_pairs / sizeof base_pairs[0],
                  sizeof base_pairs[0], by_first);
    if (row) {
        out[0] = row[1];
        return 1;
    }
    row = bsearch(&c, base_rows, sizeof base_rows / sizeof base_rows[0],
                  sizeof base_rows[0], by_first);
    if (!row)
        return 1;
    for (int i = 0; i < LETTER_MAX_BASE; i++)
        out[i] = row[1 + i];
    return row[3] ? 3 : 2;
}

uint32_t letter_lower(uint32_t c)
{
    const struct lower_run *r;

    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    r = bsearch(&c, lower_runs, sizeof lower_runs / sizeof lower_runs[0],
                sizeof lower_runs[0], by_run);
    if (!r || (c - r->first) % (uint32_t)r->step != 0)
        return c;
    return (uint32_t)((int32_t)c + r->delta);
}

uint32_t letter_read(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;

    if (p[0] < 0x80)
        return p[0];
    if (p[0] < 0xe0)
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    if (p[0] < 0xf0)
        return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 |
           (p[3] & 0x3fu);
}

size_t letter_write(uint32_t c, char *out)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(lead[n] | c);
    return n;
}
