/* Functions on ASCII letters, independent of the locale. <ctype.h> and
 * strcasecmp depend on the locale of the host program; in Turkish, for example,
 * I has another lower-case form. Digits are the same everywhere, so isdigit and
 * isxdigit may be used. */
#ifndef BASE_ASCII_H
#define BASE_ASCII_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static inline bool ascii_is_letter(char c)
{
    return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z';
}

static inline bool ascii_is_letter_or_digit(char c)
{
    return ascii_is_letter(c) || (c >= '0' && c <= '9');
}

/* Returns the value of a digit of base 36, as a and A for 10; 99 for any other
 * character. */
static inline int ascii_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0'
           : ascii_is_letter(c) ? ascii_lower(c) - 'a' + 10
                                : 99;
}

/* Writes a number of at most 20 digits and a 0 to `at`. Returns the address of
 * the 0. For names made by the thousand: printf takes five times as long. */
static inline char *ascii_put_number(char *at, uint64_t v)
{
    char digit[20];
    int n = 0;

    do
        digit[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (n > 0)
        *at++ = digit[--n];
    *at = '\0';
    return at;
}

static inline bool ascii_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns true if the first n characters of both strings are equal, ignoring
 * case. If the strings are shorter, compares them whole. */
static inline bool ascii_same_start(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
        if (a[i] == '\0')
            break;
    }
    return true;
}

static inline bool ascii_same(const char *a, const char *b)
{
    return ascii_same_start(a, b, (size_t)-1);
}

#endif
