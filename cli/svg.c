/* Writes SVG pictures as text; svg.h describes the functions. */
#include "svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void svg_say(struct whole_file *w, const char *fmt, ...)
{
    char buf[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    whole_write(w, buf, strlen(buf));
}

void svg_text(struct whole_file *w, const char *s)
{
    for (; *s != '\0'; s++)
        if (*s == '<' || *s == '>' || *s == '&')
            svg_say(w, *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;");
        else if ((unsigned char)*s >= ' ')
            whole_write(w, s, 1);
}

const char *svg_colour(int i)
{
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                          "#cc79a7", "#56b4e9", "#e69f00"};

    return colours[i % 6];
}

double svg_tick(double most)
{
    double p = pow(10, floor(log10(most / 4)));

    return most / 4 < 2 * p ? p : most / 4 < 5 * p ? 2 * p : 5 * p;
}
