/* Buffered text output; see text_out.h. */
#include "base/text_out.h"

#include "base/ascii.h"
#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>

void text_flush(struct text_out *o)
{
    if (o->len > 0)
        o->write(o->user, o->buf, o->len);
    o->len = 0;
}

void text_put(struct text_out *o, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (sizeof o->buf - o->len < 128)
        text_flush(o);
    va_start(ap, fmt);
    n = numeral_vprint(o->buf + o->len, sizeof o->buf - o->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        o->len += (size_t)n;
}

void text_put_char(struct text_out *o, char c)
{
    if (o->len == sizeof o->buf)
        text_flush(o);
    o->buf[o->len++] = c;
}

void text_put_lower(struct text_out *o, const char *s)
{
    for (; *s; s++)
        text_put_char(o, ascii_lower(*s));
}

void text_put_float(struct text_out *o, float v)
{
    char buf[NUMERAL_SHORTEST];

    text_put(o, "%s", numeral_shortest_float(buf, v));
}
