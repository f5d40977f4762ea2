/* Prints values of the template language as Python's str() and repr() do, and
 * as JSON in the way of Python's json.dumps(). One walk serves both: repr() is
 * the walk without a style. */
#include "chat/render.h"

#include "base/numeral.h"
#include "chat/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_int(struct render *r, int64_t i)
{
    char s[32];

    snprintf(s, sizeof s, "%" PRId64, i);
    render_puts(r, s);
}

/* Appends `f` to the output with the fewest digits from which the same double
 * can be read. Below 1e-4 and from 1e16 on the number has an exponent, as in
 * Python's repr(). */
static void put_float(struct render *r, double f)
{
    char text[40], digit[20];
    int n = 0, exponent;

    for (int p = 0; p < 17; p++) {
        numeral_print(text, sizeof text, "%.*e", p, f);
        if (numeral_double(text, NULL) == f)
            break;
    }
    exponent = atoi(strchr(text, 'e') + 1);
    for (const char *s = text; *s != 'e'; s++)
        if (*s >= '0' && *s <= '9')
            digit[n++] = *s;
    if (text[0] == '-')
        render_puts(r, "-");
    if (exponent < -4 || exponent >= 16) {
        render_put(r, digit, 1);
        render_puts(r, n > 1 ? "." : "");
        render_put(r, digit + 1, (size_t)n - 1);
        snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+',
                 abs(exponent));
        render_puts(r, text);
        return;
    }
    if (exponent < 0)
        render_put(r, "0.000", (size_t)(1 - exponent));
    for (int i = 0; i < n || i <= exponent; i++) {
        if (i == exponent + 1 && exponent >= 0)
            render_puts(r, ".");
        render_put(r, i < n ? &digit[i] : "0", 1);
    }
    render_puts(r, n <= exponent + 1 ? ".0" : "");
}

/* Appends a string to the output in quotes. repr() uses double quotes if the
 * string contains single and no double quotes, else single quotes. */
static void put_quoted(struct render *r, const struct string *s,
                       const struct json_style *json)
{
    const bool doubled =
        json || (memchr(s->s, '\'', s->len) && !memchr(s->s, '"', s->len));
    const char *quote = doubled ? "\"" : "'";
    const char *from = json ? "\\\n\r\t\f\b" : "\\\n\r\t";
    size_t done = 0;

    render_puts(r, quote);
    for (size_t at = 0; at < s->len;) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);
        const char *p = c < 0x80 && c > 0 ? strchr(from, (int)c) : NULL;
        const bool shown = !json         ? unicode_is_shown(c)
                           : json->ascii ? c >= 0x20 && c < 0x7f
                                         : c >= 0x20;
        char text[16];

        at += len;
        if (p || c == (uint32_t)*quote)
            snprintf(text, sizeof text, "\\%c",
                     p ? "\\nrtfb"[p - from] : *quote);
        else if (shown)
            continue;
        else if (json && c >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x",
                     0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
        else
            snprintf(text, sizeof text,
                     c < 0x100 && !json ? "\\x%02x"
                     : c < 0x10000      ? "\\u%04x"
                                        : "\\U%08x",
                     c);
        render_put(r, s->s + done, at - len - done);
        render_puts(r, text);
        done = at;
    }
    render_put(r, s->s + done, s->len - done);
    render_puts(r, quote);
}

static void put_value(struct render *r, struct value v,
                      const struct json_style *json, int depth);

/* Appends the text before an item of a list or dict to the output: the
 * separator, if it is not the first one (i > 0), and with json->indent a line
 * break and the indentation of `depth` levels. */
static void put_break(struct render *r, const struct json_style *json,
                      int depth, size_t i)
{
    if (i > 0 && json && json->item)
        render_put(r, json->item->s, json->item->len);
    else if (i > 0)
        render_puts(r, json && json->indent ? "," : ", ");
    if (!json || !json->indent)
        return;
    render_puts(r, "\n");
    for (int k = 0; k < depth; k++)
        render_put(r, json->indent->s, json->indent->len);
}

static void put_list(struct render *r, const struct list *l, const char *open,
                     const char *close, const struct json_style *json,
                     int depth)
{
    render_puts(r, open);
    for (size_t i = 0; i < l->n; i++) {
        put_break(r, json, depth + 1, i);
        put_value(r, l->item[i], json, depth + 1);
    }
    if (l->n > 0)
        put_break(r, json, depth, 0);
    render_puts(r, close);
}

static void put_dict(struct render *r, const struct dict *d,
                     const struct json_style *json, int depth)
{
    struct pair *pair = d->pair;

    if (json && json->sorted) {
        pair = work_alloc(&r->w, d->n, sizeof *pair);
        if (!pair)
            return;
        if (d->n > 0)
            memcpy(pair, d->pair, d->n * sizeof *pair);
        sort_pairs(r, pair, d->n, false);
    }
    render_puts(r, "{");
    for (size_t i = 0; i < d->n; i++) {
        const bool bare = json && pair[i].key.kind != V_STR;

        put_break(r, json, depth + 1, i);
        render_puts(r, bare ? "\"" : "");
        put_value(r, pair[i].key, json, 0);
        render_puts(r, bare ? "\"" : "");
        if (json && json->key)
            render_put(r, json->key->s, json->key->len);
        else
            render_puts(r, ": ");
        put_value(r, pair[i].value, json, depth + 1);
    }
    if (d->n > 0)
        put_break(r, json, depth, 0);
    render_puts(r, "}");
}

static void put_range(struct render *r, const struct range *range)
{
    render_puts(r, "range(");
    put_int(r, range->first);
    render_puts(r, ", ");
    put_int(r, range->end);
    if (range->step != 1) {
        render_puts(r, ", ");
        put_int(r, range->step);
    }
    render_puts(r, ")");
}

/* Appends a value that JSON does not have. */
static void put_python(struct render *r, struct value v, int depth)
{
    static const char *const views[] = {
        [VIEW_KEYS] = "dict_keys([",
        [VIEW_VALUES] = "dict_values([",
        [VIEW_ITEMS] = "dict_items([",
    };

    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        render_puts(r, "Undefined");
        return;
    case V_VIEW:
        put_list(r, v.list, views[v.sub], "])", NULL, depth);
        return;
    case V_RANGE:
        put_range(r, v.range);
        return;
    case V_NAMESPACE:
        render_puts(r, "<Namespace ");
        put_dict(r, v.dict, NULL, depth);
        break;
    case V_MACRO:
        render_puts(r, "<Macro ");
        if (v.macro->node->kind == N_CALL_BLOCK)
            render_puts(r, "anonymous");
        else
            put_quoted(r, v.macro->node->value.str, NULL);
        break;
    default: /* Python's text for other values also has the address of the
                object */
        render_puts(r, "<");
        render_puts(r, value_kind_name(v.kind));
    }
    render_puts(r, ">");
}

static void put_inner(struct render *r, struct value v,
                      const struct json_style *json, int depth)
{
    const bool tuple = v.kind == V_TUPLE && !json;
    const bool marked = value_is_markup(v) && !json;

    switch ((enum value_kind)v.kind) {
    case V_NONE:
        render_puts(r, json ? "null" : "None");
        return;
    case V_BOOL:
        render_puts(r, json      ? v.truth ? "true" : "false"
                       : v.truth ? "True"
                                 : "False");
        return;
    case V_INT:
        put_int(r, v.i);
        return;
    case V_FLOAT:
        if (value_is_wide(v))
            render_put(r, v.str->s, v.str->len);
        else if (isfinite(v.f))
            put_float(r, v.f);
        else if (isnan(v.f))
            render_puts(r, json ? "NaN" : "nan");
        else {
            render_puts(r, v.f > 0 ? "" : "-");
            render_puts(r, json ? "Infinity" : "inf");
        }
        return;
    case V_STR:
        render_puts(r, marked ? "Markup(" : "");
        put_quoted(r, v.str, json);
        render_puts(r, marked ? ")" : "");
        return;
    case V_LIST:
    case V_TUPLE:
        put_list(r, v.list, tuple ? "(" : "[",
                 !tuple           ? "]"
                 : v.list->n == 1 ? ",)"
                                  : ")",
                 json, depth);
        return;
    case V_DICT:
        put_dict(r, v.dict, json, depth);
        return;
    default:
        if (json)
            render_bad(r, "a %s cannot be written as JSON",
                       value_kind_name(v.kind));
        else
            put_python(r, v, depth);
    }
}

static void put_value(struct render *r, struct value v,
                      const struct json_style *json, int depth)
{
    if (work_enter(&r->w))
        put_inner(r, v, json, depth);
    r->w.left.depth++;
}

void put_json(struct render *r, struct value v, const struct json_style *style)
{
    put_value(r, v, style, 0);
}

void put_repr(struct render *r, struct value v)
{
    put_value(r, v, NULL, 0);
}

void put_str(struct render *r, struct value v)
{
    if (v.kind == V_STR)
        render_put(r, v.str->s, v.str->len);
    else if (v.kind != V_UNDEFINED)
        put_repr(r, v);
}

struct string *str_of(struct render *r, struct value v)
{
    size_t from = r->n_out;

    if (v.kind != V_STR) {
        put_str(r, v);
        v = render_take(r, from);
    }
    return v.str;
}
