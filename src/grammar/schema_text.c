/* Writes the constructs of GBNF as text; see schema_text.h. */
#include "grammar/schema_text.h"

#include "base/numeral.h"
#include "grammar/gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gbnf_text_fini(struct gbnf_text *t)
{
    free(t->s);
    *t = (struct gbnf_text){0};
}

void gbnf_put_bytes(struct gbnf_text *t, const char *s, size_t len)
{
    t->too_large |= len > GBNF_BYTES || t->n + len > GBNF_BYTES;
    if (t->failed || t->too_large)
        return;
    if (t->n + len + 1 > t->cap) {
        size_t cap = 2 * (t->n + len + 1);
        char *grown = realloc(t->s, cap);

        if (!grown) {
            t->failed = true;
            return;
        }
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, len);
    t->n += len;
    t->s[t->n] = '\0';
}

void gbnf_put(struct gbnf_text *t, const char *s)
{
    gbnf_put_bytes(t, s, strlen(s));
}

void gbnf_print(struct gbnf_text *t, const char *fmt, ...)
{
    char s[128];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(s, sizeof s, fmt, ap);
    va_end(ap);
    gbnf_put_bytes(t, s,
                   n < 0                  ? 0
                   : (size_t)n < sizeof s ? (size_t)n
                                          : sizeof s - 1);
}

void gbnf_put_rule(struct gbnf_text *t, uint32_t rule, struct gbnf_text *body)
{
    t->failed |= body->failed;
    t->too_large |= body->too_large;
    gbnf_print(t, "s%u ::= ", (unsigned)rule);
    gbnf_put(t, body->n ? body->s : "\"\"");
    gbnf_put(t, "\n");
    gbnf_text_fini(body);
}

void gbnf_put_literal(struct gbnf_text *t, const char *s, size_t len)
{
    gbnf_put(t, "\"");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c < ' ')
            gbnf_print(t, "\\x%02X", c);
        else if (c == '"' || c == '\\')
            gbnf_print(t, "\\%c", c);
        else
            gbnf_put_bytes(t, s + i, 1);
    }
    gbnf_put(t, "\"");
}

/* ---- characters of JSON strings ------------------------------------------ */

/* Appends a character that JSON strings must escape, by its short escape, such
 * as \n, if it has one. */
static void put_escaped(struct gbnf_text *t, uint32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = c ? strchr(from, (int)c) : NULL;
    char s[8];

    if (found)
        snprintf(s, sizeof s, "\\%c", to[found - from]);
    else
        snprintf(s, sizeof s, "\\u%04x", (unsigned)c);
    gbnf_put_literal(t, s, strlen(s));
}

void gbnf_put_json_char(struct gbnf_text *t, const struct char_range *range,
                        uint32_t n)
{
    /* the characters that are not escaped */
    static const struct char_range plain[] = {
        {' ', '!'}, {'#', '['}, {']', RULES_LAST_CHAR}};
    const char *before = "(";
    bool open = false;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = range[i].first; c <= range[i].last && c <= '\\'; c++)
            if (c < ' ' || c == '"' || c == '\\') {
                gbnf_put(t, before);
                put_escaped(t, c);
                before = " | ";
            }
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            uint32_t first = range[i].first, last = range[i].last;

            first = first > plain[k].first ? first : plain[k].first;
            last = last < plain[k].last ? last : plain[k].last;
            if (first > last)
                continue;
            gbnf_put(t, open ? "" : before);
            gbnf_print(t, "%s\\U%08X-\\U%08X", open ? "" : "[", (unsigned)first,
                       (unsigned)last);
            open = true;
        }
    gbnf_put(t, open ? "])" : ")");
}
