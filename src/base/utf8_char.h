/* Decodes and encodes characters in UTF-8. */
#ifndef BASE_UTF8_CHAR_H
#define BASE_UTF8_CHAR_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_LAST = 0x10ffff };

/* Writes code point c, at most UTF8_LAST, as UTF-8 and returns its length, 1 to
 * 4 bytes. */
static inline size_t utf8_put(char out[4], uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* Decodes the character at the beginning of s[0 .. n), n > 0, to *c. Returns
 * its length in bytes, or 0 if it is not valid UTF-8. */
static inline size_t utf8_get(const char *s, size_t n, uint32_t *c)
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
    return *c < least[len] || *c > UTF8_LAST || *c >> 11 == 0x1b ? 0 : len;
}

#endif
