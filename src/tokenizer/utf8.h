/* Scans a UTF-8 character strictly: no overlong forms, no surrogates, nothing
 * above U+10FFFF (Unicode 15, table 3-7). The encoder and the streaming decoder
 * share this file, so that they agree on characters. */
#ifndef TOKENIZER_UTF8_H
#define TOKENIZER_UTF8_H

#include <stddef.h>

/* Scans s[0..n), n >= 1. Returns
 *    1 .. 4   the length of the valid character at s,
 *    0        all n bytes are a proper prefix of a character: more are needed,
 *   -1 .. -3  not a character; that many bytes are its longest valid prefix
 *             (or the one wrong byte) and become one U+FFFD. */
static inline int utf8_scan(const char *s, size_t n)
{
    unsigned b = (unsigned char)s[0], lo = 0x80, hi = 0xbf;
    int more;

    if (b < 0x80)
        return 1;
    if (b < 0xc2 || b > 0xf4)
        return -1;
    more = b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
    if (b == 0xe0)
        lo = 0xa0; /* lower bytes: overlong */
    else if (b == 0xed)
        hi = 0x9f; /* higher bytes: surrogates */
    else if (b == 0xf0)
        lo = 0x90; /* lower bytes: overlong */
    else if (b == 0xf4)
        hi = 0x8f; /* higher bytes: above U+10FFFF */
    for (int i = 1; i <= more; i++) {
        unsigned c;

        if ((size_t)i >= n)
            return 0;
        c = (unsigned char)s[i];
        if (c < lo || c > hi)
            return -i;
        lo = 0x80;
        hi = 0xbf;
    }
    return more + 1;
}

/* Returns the length of the valid character at the start of s[0 .. n), n >= 1,
 * where the text ends. If there is none, returns 1 and sets *valid to false, so
 * that each stray byte is handled separately. */
static inline size_t utf8_step(const char *s, size_t n, int *valid)
{
    int len = utf8_scan(s, n);

    *valid = len > 0;
    return len > 0 ? (size_t)len : 1;
}

#endif
