/* Implements numeral.h by switching the thread to the C locale. glibc and musl
 * have this locale built in: newlocale returns it, at no cost and without
 * failure, and freelocale keeps it. On a system that must create the locale,
 * newlocale may fail. The thread's locale then stays unchanged, because
 * uselocale(0) changes nothing. */
#include "base/numeral.h"

#include <stdio.h>
#include <stdlib.h>

locale_t numeral_begin(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

void numeral_end(locale_t before)
{
    locale_t used = uselocale(before);

    if (used != before && used != LC_GLOBAL_LOCALE)
        freelocale(used);
}

int numeral_vprint(char *buf, size_t size, const char *fmt, va_list ap)
{
    locale_t before = numeral_begin();
    int n = vsnprintf(buf, size, fmt, ap);

    numeral_end(before);
    return n;
}

int numeral_print(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

double numeral_double(const char *s, char **end)
{
    locale_t before = numeral_begin();
    double v = strtod(s, end);

    numeral_end(before);
    return v;
}

const char *numeral_shortest(char buf[NUMERAL_SHORTEST], double v)
{
    for (int digits = 6; digits <= 17; digits++) {
        numeral_print(buf, NUMERAL_SHORTEST, "%.*g", digits, v);
        if (numeral_double(buf, NULL) == v)
            break;
    }
    return buf;
}

const char *numeral_shortest_float(char buf[NUMERAL_SHORTEST], float v)
{
    for (int digits = 6; digits <= 9; digits++) {
        numeral_print(buf, NUMERAL_SHORTEST, "%.*g", digits, (double)v);
        if (numeral_float(buf, NULL) == v)
            break;
    }
    return buf;
}

float numeral_float(const char *s, char **end)
{
    locale_t before = numeral_begin();
    float v = strtof(s, end);

    numeral_end(before);
    return v;
}
