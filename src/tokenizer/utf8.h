/* Scans one UTF-8 character, strictly: overlong forms, surrogates and
 * characters above U+10FFFF are invalid (Unicode 15, table 3-7). Encoding and
 * streaming decoding both use this file, so that they agree on what a character
 * is. */
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
        lo = 0xa0; /* a lower second byte would make an overlong form */
    else if (b == 0xed)
        hi = 0x9f; /* a higher second byte would encode a surrogate */
    else if (b == 0xf0)
        lo = 0x90; /* a lower second byte would make an overlong form */
    else if (b == 0xf4)
        hi = 0x8f; /* a higher second byte would exceed U+10FFFF */
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

/* Returns the length of the valid character at the beginning of s[0 .. n), n >=
 * 1; nothing follows s[n - 1]. If there is no valid character, returns 1 and
 * sets *valid to false, so that the caller handles each invalid byte by
 * itself. */
static inline size_t utf8_step(const char *s, size_t n, int *valid)
{
    int len = utf8_scan(s, n);

    *valid = len > 0;
    return len > 0 ? (size_t)len : 1;
}

#endif
