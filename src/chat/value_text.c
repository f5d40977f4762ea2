/* Prints values of the template language as Python's str() and repr() do, and
 * as JSON in the way of Python's json.dumps(). */
#include "chat/render.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status render_put_char(struct render *r, uint32_t c)
{
    char s[4];

    return render_put(r, s, unicode_put(s, c));
}

static pl_status put_int(struct render *r, int64_t i)
{
    char s[32];

    snprintf(s, sizeof s, "%" PRId64, i);
    return render_puts(r, s);
}

/* Appends `f` to the output with the fewest digits from which the same double
 * can be read. Below 1e-4 and from 1e16 on the number has an exponent, as in
 * Python's repr(). */
static pl_status put_float(struct render *r, double f)
{
    char text[40], digit[20];
    int n = 0, exponent;

    if (!isfinite(f))
        return render_puts(r, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
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
        PL_TRY(render_puts(r, "-"));
    if (exponent < -4 || exponent >= 16) {
        PL_TRY(render_put(r, digit, 1));
        if (n > 1)
            PL_TRY(render_puts(r, "."));
        PL_TRY(render_put(r, digit + 1, (size_t)n - 1));
        snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+',
                 abs(exponent));
        return render_puts(r, text);
    }
    if (exponent < 0)
        PL_TRY(render_put(r, "0.000", (size_t)(1 - exponent)));
    for (int i = 0; i < n || i <= exponent; i++) {
        if (i == exponent + 1 && exponent >= 0)
            PL_TRY(render_puts(r, "."));
        PL_TRY(render_put(r, i < n ? &digit[i] : "0", 1));
    }
    return n <= exponent + 1 ? render_puts(r, ".0") : PL_OK;
}

/* Appends the repr() of a string to the output. Its quotes are double quotes if
 * the string contains single and no double quotes, else single quotes. */
static pl_status repr_string(struct render *r, const struct string *s)
{
    bool use_double = memchr(s->s, '\'', s->len) && !memchr(s->s, '"', s->len);
    char quote = use_double ? '"' : '\'';

    PL_TRY(render_put(r, &quote, 1));
    for (size_t at = 0; at < s->len;) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);
        char text[16];

        if (c == '\n' || c == '\r' || c == '\t')
            snprintf(text, sizeof text, "\\%c",
                     c == '\n'   ? 'n'
                     : c == '\r' ? 'r'
                                 : 't');
        else if (c == '\\' || c == (uint32_t)quote)
            snprintf(text, sizeof text, "\\%c", (char)c);
        else if (unicode_is_shown(c))
            text[0] = '\0';
        else
            snprintf(text, sizeof text,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
        if (text[0] == '\0')
            PL_TRY(render_put(r, s->s + at, len));
        else
            PL_TRY(render_puts(r, text));
        at += len;
    }
    return render_put(r, &quote, 1);
}

static pl_status repr_list(struct render *r, const struct list *l,
                           const char *open, const char *close)
{
    PL_TRY(render_puts(r, open));
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            PL_TRY(render_puts(r, ", "));
        PL_TRY(put_repr(r, l->item[i]));
    }
    return render_puts(r, close);
}

static pl_status repr_dict(struct render *r, const struct dict *d)
{
    PL_TRY(render_puts(r, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            PL_TRY(render_puts(r, ", "));
        PL_TRY(put_repr(r, d->pair[i].key));
        PL_TRY(render_puts(r, ": "));
        PL_TRY(put_repr(r, d->pair[i].value));
    }
    return render_puts(r, "}");
}

static pl_status repr_range(struct render *r, const struct range *range)
{
    PL_TRY(render_puts(r, "range("));
    PL_TRY(put_int(r, range->first));
    PL_TRY(render_puts(r, ", "));
    PL_TRY(put_int(r, range->end));
    if (range->step != 1) {
        PL_TRY(render_puts(r, ", "));
        PL_TRY(put_int(r, range->step));
    }
    return render_puts(r, ")");
}

static pl_status repr_inner(struct render *r, struct value v)
{
    static const char *const views[] = {
        [VIEW_KEYS] = "dict_keys([",
        [VIEW_VALUES] = "dict_values([",
        [VIEW_ITEMS] = "dict_items([",
    };

    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        return render_puts(r, "Undefined");
    case V_NONE:
        return render_puts(r, "None");
    case V_BOOL:
        return render_puts(r, v.truth ? "True" : "False");
    case V_INT:
        return put_int(r, v.i);
    case V_FLOAT:
        return value_is_wide(v) ? render_put(r, v.str->s, v.str->len)
                                : put_float(r, v.f);
    case V_STR:
        PL_TRY(render_puts(r, value_is_markup(v) ? "Markup(" : ""));
        PL_TRY(repr_string(r, v.str));
        return render_puts(r, value_is_markup(v) ? ")" : "");
    case V_LIST:
        return repr_list(r, v.list, "[", "]");
    case V_TUPLE:
        return repr_list(r, v.list, "(", v.list->n == 1 ? ",)" : ")");
    case V_VIEW:
        return repr_list(r, v.list, views[v.sub], "])");
    case V_DICT:
        return repr_dict(r, v.dict);
    case V_RANGE:
        return repr_range(r, v.range);
    case V_NAMESPACE:
        PL_TRY(render_puts(r, "<Namespace "));
        PL_TRY(repr_dict(r, v.dict));
        return render_puts(r, ">");
    case V_MACRO:
        if (v.macro->node->kind == N_CALL_BLOCK)
            return render_puts(r, "<Macro anonymous>");
        PL_TRY(render_puts(r, "<Macro "));
        PL_TRY(repr_string(r, v.macro->node->value.str));
        return render_puts(r, ">");
    default: /* Python's text for other values also has the address of the
                object */
        PL_TRY(render_puts(r, "<"));
        PL_TRY(render_puts(r, value_kind_name(v.kind)));
        return render_puts(r, ">");
    }
}

pl_status put_repr(struct render *r, struct value v)
{
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_deeper(r));
    PL_TRY(repr_inner(r, v));
    r->left.depth++;
    return PL_OK;
}

pl_status put_str(struct render *r, struct value v)
{
    if (v.kind == V_STR)
        return render_put(r, v.str->s, v.str->len);
    return v.kind == V_UNDEFINED ? PL_OK : put_repr(r, v);
}

pl_status str_of(struct render *r, struct value v, struct string **out)
{
    size_t from = r->n_out;

    if (v.kind != V_STR) {
        PL_TRY(put_str(r, v));
        PL_TRY(render_take(r, from, &v));
    }
    *out = v.str;
    return PL_OK;
}

/* ---- printing values as JSON ------------------------------------------- */

static pl_status json_string(struct render *r, const struct string *s,
                             bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t done = 0;

    PL_TRY(render_puts(r, "\""));
    for (size_t at = 0; at < s->len;) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);
        const char *p = c < 0x80 && c > 0 ? strchr(from, (int)c) : NULL;
        char text[16];

        at += len;
        if (p)
            snprintf(text, sizeof text, "\\%c", to[p - from]);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000))
            snprintf(text, sizeof text, "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x",
                     0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
        else
            continue;
        PL_TRY(render_put(r, s->s + done, at - len - done));
        PL_TRY(render_puts(r, text));
        done = at;
    }
    PL_TRY(render_put(r, s->s + done, s->len - done));
    return render_puts(r, "\"");
}

/* Appends the text between items of a list or dict to the output: the
 * separator, if `between` two items and, with style->indent, a line break and
 * the indentation of `depth` levels. */
static pl_status json_break(struct render *r, const struct json_style *style,
                            int depth, bool between)
{
    if (between && style->item)
        PL_TRY(render_put(r, style->item->s, style->item->len));
    else if (between)
        PL_TRY(render_puts(r, style->indent ? "," : ", "));
    if (!style->indent)
        return PL_OK;
    PL_TRY(render_puts(r, "\n"));
    for (int i = 0; i < depth; i++)
        PL_TRY(render_put(r, style->indent, style->n_indent));
    return PL_OK;
}

static pl_status json_value(struct render *r, struct value v,
                            const struct json_style *style, int depth);

static pl_status json_list(struct render *r, const struct list *l,
                           const struct json_style *style, int depth)
{
    if (l->n == 0)
        return render_puts(r, "[]");
    PL_TRY(render_puts(r, "["));
    for (size_t i = 0; i < l->n; i++) {
        PL_TRY(json_break(r, style, depth + 1, i > 0));
        PL_TRY(json_value(r, l->item[i], style, depth + 1));
    }
    PL_TRY(json_break(r, style, depth, false));
    return render_puts(r, "]");
}

static pl_status json_key(struct render *r, struct value key,
                          const struct json_style *style)
{
    if (key.kind == V_STR) {
        PL_TRY(json_string(r, key.str, style->ascii));
    } else {
        PL_TRY(render_puts(r, "\""));
        PL_TRY(json_value(r, key, style, 0));
        PL_TRY(render_puts(r, "\""));
    }
    if (style->key)
        return render_put(r, style->key->s, style->key->len);
    return render_puts(r, ": ");
}

static pl_status json_dict(struct render *r, const struct dict *d,
                           const struct json_style *style, int depth)
{
    struct pair *pair = d->pair;

    if (d->n == 0)
        return render_puts(r, "{}");
    if (style->sorted) {
        PL_TRY(render_alloc(r, d->n, sizeof *pair, &pair));
        memcpy(pair, d->pair, d->n * sizeof *pair);
        PL_TRY(sort_pairs(r, pair, d->n, false));
    }
    PL_TRY(render_puts(r, "{"));
    for (size_t i = 0; i < d->n; i++) {
        PL_TRY(json_break(r, style, depth + 1, i > 0));
        PL_TRY(json_key(r, pair[i].key, style));
        PL_TRY(json_value(r, pair[i].value, style, depth + 1));
    }
    PL_TRY(json_break(r, style, depth, false));
    return render_puts(r, "}");
}

static pl_status json_inner(struct render *r, struct value v,
                            const struct json_style *style, int depth)
{
    switch ((enum value_kind)v.kind) {
    case V_NONE:
        return render_puts(r, "null");
    case V_BOOL:
        return render_puts(r, v.truth ? "true" : "false");
    case V_INT:
        return put_int(r, v.i);
    case V_FLOAT:
        if (value_is_wide(v))
            return render_put(r, v.str->s, v.str->len);
        if (isfinite(v.f))
            return put_float(r, v.f);
        return render_puts(r, isnan(v.f) ? "NaN"
                              : v.f > 0  ? "Infinity"
                                         : "-Infinity");
    case V_STR:
        return json_string(r, v.str, style->ascii);
    case V_LIST:
    case V_TUPLE:
        return json_list(r, v.list, style, depth);
    case V_DICT:
        return json_dict(r, v.dict, style, depth);
    default:
        return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be written as JSON",
                           value_kind_name(v.kind));
    }
}

static pl_status json_value(struct render *r, struct value v,
                            const struct json_style *style, int depth)
{
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_deeper(r));
    PL_TRY(json_inner(r, v, style, depth));
    r->left.depth++;
    return PL_OK;
}

pl_status put_json(struct render *r, struct value v,
                   const struct json_style *style)
{
    return json_value(r, v, style, 0);
}
