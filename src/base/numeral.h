/* Prints and parses numbers as in the C locale, whatever locale the host
 * program has set. JSON, SVG, options and programs must be the same everywhere.
 * The functions affect only the calling thread and allocate no memory. */
#ifndef BASE_NUMERAL_H
#define BASE_NUMERAL_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>

/* Print and parse like vsnprintf, snprintf, strtod and strtof, but always in
 * the C locale. */
int numeral_vprint(char *buf, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
int numeral_print(char *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
double numeral_double(const char *s, char **end);
/* Write a number with the fewest digits, 6 or more, from which the same value
 * is parsed, of a double or a float. Return `buf`, whose size is
 * NUMERAL_SHORTEST bytes. */
enum { NUMERAL_SHORTEST = 32 };
const char *numeral_shortest(char buf[NUMERAL_SHORTEST], double v);
const char *numeral_shortest_float(char buf[NUMERAL_SHORTEST], float v);
float numeral_float(const char *s, char **end);

/* numeral_begin switches the calling thread to the C locale and returns the
 * previous locale. numeral_end restores that locale, passed as `before`. For
 * calls of other libraries that print or parse numbers. */
locale_t numeral_begin(void);
void numeral_end(locale_t before);

#endif
