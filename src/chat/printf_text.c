/* Formats values as Python does: "%5.2f" % x, and "{:>5}".format(x). */
#include "chat/render.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 100000, MAX_PRECISION = 300 };

/* A parsed format specification for one value, such as >8.2f. */
struct form {
    uint32_t fill;
    /* Alignment: '<' left, '>' right, '^' centered, '=' to fill between sign
     * and digits; '\0' for the default. */
    char align;
    /* '+' or ' ' before positive numbers; '-' for a sign of negative numbers
     * only. */
    char sign;
    bool prefix, group;
    /* Width in characters, and number of decimals; a precision of -1 is the
     * default. */
    int width, precision;
    char type;
};

static pl_status bad_form(struct render *r)
{
    return render_fail(r, PL_BAD_ARGUMENT,
                       "the format does not suit the values");
}

static pl_status put_fill(struct render *r, uint32_t fill, size_t n)
{
    PL_TRY(render_spend(r, n));
    while (n-- > 0)
        PL_TRY(render_put_char(r, fill));
    return PL_OK;
}

/* Pads the text in r->out from offset `from` on to f->width characters. The
 * first n_sign bytes of the text are the sign and prefix of a number. `usual`
 * is the alignment if the format has none. */
static pl_status pad(struct render *r, size_t from, size_t n_sign,
                     const struct form *f, char usual)
{
    char align = f->align ? f->align : usual;
    size_t n = unicode_count(r->out + from, r->n_out - from);
    size_t more = (size_t)f->width > n ? (size_t)f->width - n : 0;
    size_t left = align == '<' ? 0 : align == '^' ? more / 2 : more;
    struct value text;
    const struct string *s;

    if (more == 0)
        return PL_OK;
    PL_TRY(render_take(r, from, &text));
    s = text.str;
    if (align != '=')
        n_sign = 0;
    PL_TRY(render_put(r, s->s, n_sign));
    PL_TRY(put_fill(r, f->fill, left));
    PL_TRY(render_put(r, s->s + n_sign, s->len - n_sign));
    return put_fill(r, f->fill, more - left);
}

/* Appends the number `s`, a decimal text, to the output, with commas between
 * thousands if `group`. Digits after a decimal point are unchanged. */
static pl_status put_digits(struct render *r, const char *s, bool group)
{
    size_t n = strspn(s, "0123456789"), all = strlen(s);

    for (size_t i = 0; i < n && group; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            PL_TRY(render_puts(r, ","));
        PL_TRY(render_put(r, s + i, 1));
    }
    return group ? render_put(r, s + n, all - n) : render_put(r, s, all);
}

static pl_status put_number(struct render *r, bool negative, const char *text,
                            const char *prefix, const struct form *f)
{
    size_t from = r->n_out, n_sign;

    if (negative)
        PL_TRY(render_puts(r, "-"));
    else if (f->sign != '-')
        PL_TRY(render_put(r, &f->sign, 1));
    if (f->prefix)
        PL_TRY(render_puts(r, prefix));
    n_sign = r->n_out - from;
    PL_TRY(put_digits(r, text, f->group));
    return pad(r, from, n_sign, f, '>');
}

static pl_status put_integer(struct render *r, int64_t i, const struct form *f)
{
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    const char *digits =
        f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char text[80], prefix[3] = {'0', f->type, '\0'};
    char *s = text + sizeof text;

    *--s = '\0';
    do
        *--s = digits[u % base];
    while ((u /= base) > 0);
    return put_number(r, i < 0, s, base == 10 ? "" : prefix, f);
}

static pl_status put_real(struct render *r, double v, const struct form *f)
{
    char form[] = "%#.*?", text[MAX_PRECISION + 400];
    const char *c = form;

    form[4] = f->type == '%' ? 'f' : f->type;
    if (f->type == '%')
        v *= 100;
    if (!f->prefix) {
        form[1] = '%'; /* removes the # flag from the format for C */
        c++;
    }
    numeral_print(text, sizeof text - 1, c, f->precision < 0 ? 6 : f->precision,
                  fabs(v));
    if (f->type == '%')
        strcat(text, "%");
    {
        struct form own = *f;

        own.prefix = false;
        return put_number(r, signbit(v) && !isnan(v), text, "", &own);
    }
}

static pl_status put_text(struct render *r, struct value v,
                          const struct form *f)
{
    size_t from = r->n_out;

    if (f->type == 'r' || f->type == 'a')
        PL_TRY(put_repr(r, v));
    else
        PL_TRY(put_str(r, v));
    PL_TRY(render_spend(r, (r->n_out - from) / 64));
    if (f->precision >= 0)
        r->n_out = from + unicode_offset(r->out + from, r->n_out - from,
                                         (size_t)f->precision);
    return pad(r, from, 0, f, '<');
}

/* Parses the decimal number at offset *at of s. Fails if it is greater than
 * `most`. */
static pl_status read_number(struct render *r, const struct string *s,
                             size_t *at, int most, int *out)
{
    int v = 0;

    for (; *at < s->len && isdigit((unsigned char)s->s[*at]); ++*at) {
        v = 10 * v + (s->s[*at] - '0');
        if (v > most)
            return render_fail(r, PL_FULL,
                               "the format has a width or precision above %d",
                               most);
    }
    *out = v;
    return PL_OK;
}

static char char_at(const struct string *s, size_t at)
{
    return at < s->len ? s->s[at] : '\0';
}

/* ---- the operator %: form % args --------------------------------------- */

struct percent {
    struct value args;
    /* Number of items of `args` used so far, if `args` is a tuple. */
    size_t used;
    bool by_name; /* an item of `args` was used by its name, as in %(name)s */
};

static pl_status next_arg(struct render *r, struct percent *p,
                          struct value *out)
{
    size_t n = p->args.kind == V_TUPLE ? p->args.list->n : 1;

    if (p->used >= n)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the format has more conversions than values");
    *out = p->args.kind == V_TUPLE ? p->args.list->item[p->used] : p->args;
    p->used++;
    return PL_OK;
}

/* Parses the flags, width, precision and type after a percent sign at offset
 * *at of s into *f. */
static pl_status percent_form(struct render *r, struct percent *p,
                              const struct string *s, size_t *at,
                              struct form *f)
{
    *f = (struct form){.fill = ' ', .align = '>', .sign = '-', .precision = -1};
    for (char c; (c = char_at(s, *at)) != '\0' && strchr("-+ 0#", c); ++*at) {
        if (c == '-')
            f->align = '<';
        else if (c == '0' && f->align != '<')
            f->align = '=';
        else if (c == '#')
            f->prefix = true;
        else if (c == '+' || (c == ' ' && f->sign == '-'))
            f->sign = c;
    }
    if (char_at(s, *at) == '*') {
        struct value v;

        PL_TRY(next_arg(r, p, &v));
        if (v.kind != V_INT || v.i < -MAX_WIDTH || v.i > MAX_WIDTH)
            return bad_form(r);
        f->align = v.i < 0 ? '<' : f->align;
        f->width = (int)(v.i < 0 ? -v.i : v.i);
        ++*at;
    } else {
        PL_TRY(read_number(r, s, at, MAX_WIDTH, &f->width));
    }
    if (char_at(s, *at) == '.') {
        ++*at;
        PL_TRY(read_number(r, s, at, MAX_PRECISION, &f->precision));
    }
    f->type = char_at(s, *at);
    ++*at;
    return PL_OK;
}

static pl_status put_percent(struct render *r, struct value v, struct form *f)
{
    if (f->type == 's' || f->type == 'r' || f->type == 'a') {
        f->align = f->align == '=' ? '>' : f->align;
        return put_text(r, v, f);
    }
    if (f->type == 'c' && v.kind == V_STR &&
        unicode_count(v.str->s, v.str->len) == 1)
        return put_text(r, v, f);
    if (!value_is_number(v) || f->type == '\0' ||
        !strchr("diuxXoeEfFgG", f->type))
        return bad_form(r);
    if (f->align == '=')
        f->fill = '0';
    if (strchr("eEfFgG", f->type))
        return put_real(r, value_as_float(v), f);
    if (v.kind == V_FLOAT) {
        if (strchr("xXo", f->type) || !(fabs(value_as_float(v)) < 0x1p63))
            return bad_form(r);
        v = value_int((int64_t)value_as_float(v));
    }
    return put_integer(r, value_as_int(v), f);
}

/* Parses "(name)" after a percent sign, and sets *out to the value in the dict
 * of arguments that has this name. */
static pl_status percent_name(struct render *r, struct percent *p,
                              const struct string *s, size_t *at,
                              struct value *out)
{
    const char *end = memchr(s->s + *at, ')', s->len - *at);
    struct value name;

    if (!end || p->args.kind != V_DICT)
        return bad_form(r);
    PL_TRY(
        render_view(r, s->s + *at + 1, (size_t)(end - s->s) - *at - 1, &name));
    p->by_name = true;
    *at = (size_t)(end - s->s) + 1;
    if (!dict_find(p->args.dict, name))
        return bad_form(r);
    *out = *dict_find(p->args.dict, name);
    return PL_OK;
}

pl_status format_percent(struct render *r, struct string *s, struct value args,
                         struct value *out)
{
    struct percent p = {.args = args};
    size_t from = r->n_out, n;

    for (size_t at = 0; at < s->len;) {
        struct value v = {.kind = V_ABSENT};
        struct form f;

        if (s->s[at] != '%') {
            PL_TRY(render_put(r, s->s + at++, 1));
            continue;
        }
        at++;
        if (char_at(s, at) == '(')
            PL_TRY(percent_name(r, &p, s, &at, &v));
        PL_TRY(percent_form(r, &p, s, &at, &f));
        if (f.type == '%') {
            PL_TRY(render_puts(r, "%"));
            continue;
        }
        if (v.kind == V_ABSENT)
            PL_TRY(next_arg(r, &p, &v));
        PL_TRY(put_percent(r, v, &f));
    }
    n = args.kind == V_TUPLE ? args.list->n : 1;
    if (p.used < n && args.kind != V_DICT && args.kind != V_LIST)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the format has fewer conversions than values");
    return render_take(r, from, out);
}

/* ---- the method format() ----------------------------------------------- */

/* Parses the format specification of a replacement field:
 * [[fill]align][sign][#][0][width][,][.precision][type] */
static pl_status brace_form(struct render *r, const struct string *s,
                            struct form *f)
{
    size_t at = 0, len = 0;
    uint32_t c = ' ';

    *f = (struct form){.fill = ' ', .sign = '-', .precision = -1};
    if (s->len > 0)
        len = unicode_get(s->s, s->len, &c);
    if (len > 0 && char_at(s, len) && strchr("<>^=", char_at(s, len))) {
        f->fill = c;
        f->align = s->s[len];
        at = len + 1;
    } else if (char_at(s, 0) && strchr("<>^=", char_at(s, 0))) {
        f->align = s->s[at++];
    }
    if (char_at(s, at) && strchr("+- ", char_at(s, at)))
        f->sign = s->s[at++];
    if (char_at(s, at) == '#') {
        f->prefix = true;
        at++;
    }
    if (char_at(s, at) == '0') {
        at++;
        if (!f->align) {
            f->align = '=';
            f->fill = '0';
        }
    }
    PL_TRY(read_number(r, s, &at, MAX_WIDTH, &f->width));
    if (char_at(s, at) == ',') {
        f->group = true;
        at++;
    }
    if (char_at(s, at) == '.') {
        at++;
        PL_TRY(read_number(r, s, &at, MAX_PRECISION, &f->precision));
    }
    f->type = char_at(s, at);
    return at + (f->type != '\0') == s->len ? PL_OK : bad_form(r);
}

static pl_status put_brace(struct render *r, struct value v, struct form *f)
{
    bool integer = v.kind == V_INT || v.kind == V_BOOL;

    if (v.kind == V_STR ||
        (f->width == 0 && !f->type && f->precision < 0 && !f->group)) {
        if ((f->type && f->type != 's') || f->align == '=')
            return bad_form(r);
        return put_text(r, v, f);
    }
    if (!value_is_number(v))
        return bad_form(r);
    if (integer && (!f->type || strchr("dxXob", f->type))) {
        if (v.kind == V_BOOL && !f->type)
            /* Python pads the words True and False here, which is not
             * supported */
            return bad_form(r);
        return put_integer(r, value_as_int(v), f);
    }
    if (!f->type && f->precision < 0) {
        size_t from = r->n_out;
        char text[40] = "";

        PL_TRY(put_repr(r, value_float(fabs(value_as_float(v)))));
        memcpy(text, r->out + from, r->n_out - from);
        r->n_out = from;
        return put_number(r, signbit(value_as_float(v)) != 0, text, "", f);
    }
    if (!f->type || !strchr("eEfFgG%", f->type))
        return bad_form(r);
    return put_real(r, value_as_float(v), f);
}

/* Follows the ".name" and "[key]" parts of a replacement field, from offset
 * `at` of s on. *v is the value to begin with, and the result. */
static pl_status brace_path(struct render *r, const struct string *s, size_t at,
                            struct value *v)
{
    while (at < s->len) {
        bool item = s->s[at] == '[';
        size_t end = ++at, i;
        struct value key;
        int64_t n = 0;

        while (end < s->len &&
               (item ? s->s[end] != ']' : s->s[end] != '.' && s->s[end] != '['))
            end++;
        if (end == at || (item && end == s->len) ||
            (!item && s->s[at - 1] != '.'))
            return bad_form(r);
        PL_TRY(render_view(r, s->s + at, end - at, &key));
        for (i = at; i < end && i - at < 18 && isdigit((unsigned char)s->s[i]);
             i++)
            n = 10 * n + (s->s[i] - '0');
        if (item && i == end)
            key = value_int(n);
        if (item)
            PL_TRY(value_item(r, *v, key, v));
        else
            PL_TRY(value_attribute(r, *v, key.str, v));
        if (v->kind == V_UNDEFINED)
            return bad_form(r);
        at = end + item;
    }
    return PL_OK;
}

/* Sets *out to the value to which the replacement field `s` refers. *next is
 * the number of fields so far that have no name or number; such fields take the
 * arguments in order. */
static pl_status brace_value(struct render *r, const struct string *s,
                             const struct args *args, int *next,
                             struct value *out)
{
    size_t n = 0, digits;
    int64_t i = 0;

    while (n < s->len && s->s[n] != '.' && s->s[n] != '[')
        n++;
    for (digits = 0; digits < n && isdigit((unsigned char)s->s[digits]) &&
                     i < BUILTIN_MAX_ARG;
         digits++)
        i = 10 * i + (s->s[digits] - '0');
    if (n == 0)
        i = (*next)++;
    if (digits == n) {
        if (i >= args->n)
            return bad_form(r);
        *out = args->value[i];
        return brace_path(r, s, n, out);
    }
    for (int k = 0; k < args->n_word; k++)
        if (args->word[k]->len == n && memcmp(args->word[k]->s, s->s, n) == 0) {
            *out = args->value[args->n + k];
            return brace_path(r, s, n, out);
        }
    return bad_form(r);
}

/* Formats one replacement field of format(). `s` is the text between its
 * braces. */
static pl_status put_field(struct render *r, const struct string *s,
                           const struct args *args, int *next)
{
    const char *colon = memchr(s->s, ':', s->len);
    size_t n = colon ? (size_t)(colon - s->s) : s->len;
    struct string name = {.s = s->s, .len = n};
    struct string spec = {.s = s->s + n + 1, .len = colon ? s->len - n - 1 : 0};
    struct form f;
    struct value v;
    char conversion = '\0';

    if (n >= 2 && name.s[n - 2] == '!') {
        conversion = name.s[n - 1];
        name.len -= 2;
    }
    PL_TRY(brace_value(r, &name, args, next, &v));
    PL_TRY(brace_form(r, &spec, &f));
    if (conversion != '\0') {
        size_t from = r->n_out;

        if (conversion == 'r')
            PL_TRY(put_repr(r, v));
        else if (conversion == 's')
            PL_TRY(put_str(r, v));
        else
            return bad_form(r);
        PL_TRY(render_take(r, from, &v));
    }
    return put_brace(r, v, &f);
}

pl_status format_braces(struct render *r, struct string *s,
                        const struct args *args, struct value *out)
{
    size_t from = r->n_out;
    int next = 0;

    for (size_t at = 0; at < s->len; at++) {
        char c = s->s[at];
        size_t end = at + 1;

        if (c != '{' && c != '}') {
            PL_TRY(render_put(r, &c, 1));
            continue;
        }
        /* Two equal braces stand for one brace. */
        if (char_at(s, at + 1) == c) {
            PL_TRY(render_put(r, &c, 1));
            at++;
            continue;
        }
        while (end < s->len && s->s[end] != '}' && s->s[end] != '{')
            end++;
        if (c == '}' || char_at(s, end) != '}')
            return bad_form(r);
        {
            const struct string field = {.s = s->s + at + 1,
                                         .len = end - at - 1};

            PL_TRY(put_field(r, &field, args, &next));
        }
        at = end;
    }
    return render_take(r, from, out);
}
