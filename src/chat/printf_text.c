/* Formats values as Python does: "%5.2f" % x, and "{:>5}".format(x). */
#include "chat/strings.h"

#include "base/numeral.h"
#include "chat/unicode.h"

#include <ctype.h>
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

static struct value bad_form(struct render *r)
{
    return render_bad(r, "the format does not suit the values");
}

/* Pads the text in r->out from offset `from` on to f->width characters. The
 * first n_sign bytes of the text are the sign and prefix of a number. `usual`
 * is the alignment if the format has none. */
static void pad(struct render *r, size_t from, size_t n_sign,
                const struct form *f, char usual)
{
    char align = f->align ? f->align : usual;
    size_t n = unicode_count(r->out + from, r->n_out - from);
    size_t more = (size_t)f->width > n ? (size_t)f->width - n : 0;
    size_t left = align == '<' ? 0 : align == '^' ? more / 2 : more;
    const struct string *s;

    if (more == 0)
        return;
    s = render_take(r, from).str;
    if (align != '=' || n_sign > s->len)
        n_sign = 0;
    render_put(r, s->s, n_sign);
    render_fill(r, f->fill, left);
    render_put(r, s->s + n_sign, s->len - n_sign);
    render_fill(r, f->fill, more - left);
}

/* Appends a number to the output: `text` has its digits, which get commas
 * between thousands if f->group. */
static void put_number(struct render *r, bool negative, const char *text,
                       const char *prefix, const struct form *f)
{
    const size_t n = strspn(text, "0123456789"), from = r->n_out;
    size_t n_sign;

    if (negative)
        render_puts(r, "-");
    else if (f->sign != '-')
        render_put(r, &f->sign, 1);
    render_puts(r, prefix);
    n_sign = r->n_out - from;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && f->group)
            render_puts(r, ",");
        render_put(r, text + i, 1);
    }
    render_puts(r, text + n);
    pad(r, from, n_sign, f, '>');
}

static void put_integer(struct render *r, int64_t i, const struct form *f)
{
    static const char types[] = "xXob";
    static const unsigned bases[] = {16, 16, 8, 2};
    const char *type = f->type ? strchr(types, f->type) : NULL;
    const unsigned base = type ? bases[type - types] : 10;
    const char *digits =
        f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char prefix[3] = {'0', f->type, '\0'};
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    char text[80], *s = text + sizeof text;

    *--s = '\0';
    do
        *--s = digits[u % base];
    while ((u /= base) > 0);
    put_number(r, i < 0, s, type && f->prefix ? prefix : "", f);
}

static void put_real(struct render *r, double v, const struct form *f)
{
    char form[] = "%.*?", alternate[] = "%#.*?", text[MAX_PRECISION + 400];
    const bool percent = f->type == '%';

    form[3] = alternate[4] = percent ? 'f' : f->type;
    if (percent)
        v *= 100;
    numeral_print(text, sizeof text - 1, f->prefix ? alternate : form,
                  f->precision < 0 ? 6 : f->precision, fabs(v));
    if (percent)
        strcat(text, "%");
    put_number(r, signbit(v) && !isnan(v), text, "", f);
}

static void put_text(struct render *r, struct value v, const struct form *f)
{
    size_t from = r->n_out;

    if (f->type == 'r' || f->type == 'a')
        put_repr(r, v);
    else
        put_str(r, v);
    work_spend(&r->w, (r->n_out - from) / 64);
    if (f->precision >= 0)
        r->n_out = from + unicode_offset(r->out + from, r->n_out - from,
                                         (size_t)f->precision);
    pad(r, from, 0, f, '<');
}

static char char_at(const struct string *s, size_t at)
{
    return at < s->len ? s->s[at] : '\0';
}

/* Returns true if the character at offset at of s is one of `set`. */
static bool is_one(const struct string *s, size_t at, const char *set)
{
    return char_at(s, at) != '\0' && strchr(set, char_at(s, at));
}

/* Parses the decimal number at offset *at of s. Fails if it is greater than
 * `most`. */
static int read_number(struct render *r, const struct string *s, size_t *at,
                       int most)
{
    int v = 0;

    for (; isdigit((unsigned char)char_at(s, *at)); ++*at) {
        v = v <= most ? 10 * v + (s->s[*at] - '0') : v;
        if (v > most)
            work_fail(&r->w, PL_FULL,
                      "the format has a width or precision above %d", most);
    }
    return v <= most ? v : 0;
}

/* Parses the precision, if any, and the type at offset *at of s. */
static void read_type(struct render *r, const struct string *s, size_t *at,
                      struct form *f)
{
    if (char_at(s, *at) == '.') {
        ++*at;
        f->precision = read_number(r, s, at, MAX_PRECISION);
    }
    f->type = char_at(s, *at);
    ++*at;
}

/* ---- the operator %: form % args --------------------------------------- */

struct percent {
    struct value args;
    size_t used; /* number of items of `args` used so far */
    /* The items of `args` if it is a tuple, else `args` alone. */
    const struct value *item;
    size_t n;
};

static struct value next_arg(struct render *r, struct percent *p)
{
    if (p->used < p->n)
        return p->item[p->used++];
    return render_bad(r, "the format has more conversions than values");
}

/* Parses the flags, width, precision and type after a percent sign at offset
 * *at of s. */
static struct form percent_form(struct render *r, struct percent *p,
                                const struct string *s, size_t *at)
{
    struct form f = {.fill = ' ', .align = '>', .sign = '-', .precision = -1};

    for (; is_one(s, *at, "-+ 0#"); ++*at) {
        const char c = s->s[*at];

        if (c == '-')
            f.align = '<';
        else if (c == '0' && f.align != '<')
            f.align = '=';
        else if (c == '#')
            f.prefix = true;
        else if (c == '+' || (c == ' ' && f.sign == '-'))
            f.sign = c;
    }
    if (char_at(s, *at) == '*') {
        const struct value v = next_arg(r, p);

        ++*at;
        if (v.kind != V_INT || v.i < -MAX_WIDTH || v.i > MAX_WIDTH) {
            bad_form(r);
            return f;
        }
        f.align = v.i < 0 ? '<' : f.align;
        f.width = (int)(v.i < 0 ? -v.i : v.i);
    } else {
        f.width = read_number(r, s, at, MAX_WIDTH);
    }
    read_type(r, s, at, &f);
    return f;
}

static void put_percent(struct render *r, struct value v, struct form f)
{
    const bool text = f.type != '\0' && strchr("sra", f.type);
    const double real = value_is(v, KINDS_NUMBER) ? value_as_float(v) : 0;

    if (text || (f.type == 'c' && v.kind == V_STR &&
                 unicode_count(v.str->s, v.str->len) == 1)) {
        f.align = text && f.align == '=' ? '>' : f.align;
        put_text(r, v, &f);
        return;
    }
    if (f.align == '=')
        f.fill = '0';
    if (!value_is(v, KINDS_NUMBER) || f.type == '\0')
        bad_form(r);
    else if (strchr("eEfFgG", f.type))
        put_real(r, real, &f);
    else if (!strchr("diuxXo", f.type) ||
             (v.kind == V_FLOAT &&
              (strchr("xXo", f.type) || !(fabs(real) < 0x1p63))))
        bad_form(r);
    else
        put_integer(r, v.kind == V_FLOAT ? (int64_t)real : value_as_int(v), &f);
}

/* Parses "(name)" after a percent sign, and returns the value in the dict of
 * arguments that has this name. */
static struct value percent_name(struct render *r, struct percent *p,
                                 const struct string *s, size_t *at)
{
    const char *end = memchr(s->s + *at, ')', s->len - *at);
    const struct value *found = NULL;
    const size_t first = *at + 1;

    if (end && p->args.kind == V_DICT) {
        *at = (size_t)(end - s->s) + 1;
        found = dict_find(p->args.dict,
                          value_view(&r->w, s->s + first, *at - 1 - first));
    }
    return found ? *found : bad_form(r);
}

struct value format_percent(struct render *r, struct value form,
                            struct value args)
{
    const struct string *s = form.str;
    struct percent p = {.args = args, .item = &args, .n = 1};
    size_t from = r->n_out;

    if (args.kind == V_TUPLE) {
        p.item = args.list->item;
        p.n = args.list->n;
    }
    for (size_t at = 0; at < s->len && r->w.status == PL_OK;) {
        struct value v = {.kind = V_ABSENT};
        struct form f;

        if (s->s[at] != '%') {
            render_put(r, s->s + at++, 1);
            continue;
        }
        at++;
        if (char_at(s, at) == '(')
            v = percent_name(r, &p, s, &at);
        f = percent_form(r, &p, s, &at);
        if (f.type == '%') {
            render_puts(r, "%");
            continue;
        }
        if (v.kind == V_ABSENT)
            v = next_arg(r, &p);
        put_percent(r, value_is_markup(form) ? markup_argument(r, v) : v, f);
    }
    if (p.used < p.n && !value_is(args, 1 << V_DICT | 1 << V_LIST))
        render_bad(r, "the format has fewer conversions than values");
    return render_take(r, from);
}

/* ---- the method format() ----------------------------------------------- */

/* Parses the format specification of a replacement field:
 * [[fill]align][sign][#][0][width][,][.precision][type] */
static struct form brace_form(struct render *r, const struct string *s)
{
    struct form f = {.fill = ' ', .sign = '-', .precision = -1};
    size_t at = 0, len = 0;
    uint32_t c = ' ';

    if (s->len > 0)
        len = unicode_get(s->s, s->len, &c);
    if (len > 0 && is_one(s, len, "<>^=")) {
        f.fill = c;
        at = len;
    }
    if (is_one(s, at, "<>^="))
        f.align = s->s[at++];
    if (is_one(s, at, "+- "))
        f.sign = s->s[at++];
    f.prefix = char_at(s, at) == '#';
    at += f.prefix;
    if (char_at(s, at) == '0') {
        at++;
        if (!f.align) {
            f.align = '=';
            f.fill = '0';
        }
    }
    f.width = read_number(r, s, &at, MAX_WIDTH);
    f.group = char_at(s, at) == ',';
    at += f.group;
    read_type(r, s, &at, &f);
    if (at - (f.type == '\0') != s->len)
        bad_form(r);
    return f;
}

static void put_brace(struct render *r, struct value v, const struct form *f)
{
    const bool plain = !f->type && f->precision < 0;

    if (v.kind == V_STR || (f->width == 0 && plain && !f->group)) {
        if ((f->type && f->type != 's') || f->align == '=')
            bad_form(r);
        else
            put_text(r, v, f);
    } else if (!value_is(v, KINDS_NUMBER)) {
        bad_form(r);
    } else if (value_is(v, KINDS_INT) &&
               (!f->type || strchr("dxXob", f->type))) {
        if (v.kind == V_BOOL && !f->type)
            /* Python pads the words True and False here, which is not
             * supported */
            bad_form(r);
        else
            put_integer(r, value_as_int(v), f);
    } else if (plain) {
        const double real = value_as_float(v);
        const size_t from = r->n_out;
        char text[40] = "";

        put_repr(r, value_float(fabs(real)));
        memcpy(text, r->out + from, r->n_out - from);
        r->n_out = from;
        put_number(r, signbit(real), text, "", f);
    } else if (!f->type || !strchr("eEfFgG%", f->type)) {
        bad_form(r);
    } else {
        put_real(r, value_as_float(v), f);
    }
}

/* Follows the ".name" and "[key]" parts of a replacement field, from offset
 * `at` of s on, from the value v. */
static struct value brace_path(struct render *r, const struct string *s,
                               size_t at, struct value v)
{
    while (at < s->len) {
        bool item = s->s[at] == '[';
        size_t end = ++at;
        struct value key;
        int64_t i;

        while (end < s->len &&
               (item ? s->s[end] != ']' : s->s[end] != '.' && s->s[end] != '['))
            end++;
        if (end == at || (item && end == s->len) ||
            (!item && s->s[at - 1] != '.'))
            return bad_form(r);
        key = value_view(&r->w, s->s + at, end - at);
        i = string_index(key.str);
        if (!item)
            v = value_attribute(r, v, key.str);
        else
            v = value_item(r, v, i >= 0 ? value_int(i) : key);
        if (v.kind == V_UNDEFINED)
            return bad_form(r);
        at = end + item;
    }
    return v;
}

/* Returns the value to which the replacement field `s` refers. *next is the
 * number of fields so far that have no name or number; such fields take the
 * arguments in order. */
static struct value brace_value(struct render *r, const struct string *s,
                                const struct args *args, int *next)
{
    size_t n = 0;
    int64_t i;
    int k = 0;

    while (n < s->len && s->s[n] != '.' && s->s[n] != '[')
        n++;
    i = n == 0 ? (*next)++
               : string_index(&(struct string){.s = s->s, .len = n});
    if (i >= 0)
        return i < args->n ? brace_path(r, s, n, args->value[i]) : bad_form(r);
    while (k < args->n_word &&
           (args->word[k]->len != n || memcmp(args->word[k]->s, s->s, n) != 0))
        k++;
    return k < args->n_word ? brace_path(r, s, n, args->value[args->n + k])
                            : bad_form(r);
}

/* Formats one replacement field of format(). `s` is the text between its
 * braces. */
static void put_field(struct render *r, const struct string *s,
                      const struct call *c, int *next)
{
    const char *colon = memchr(s->s, ':', s->len);
    size_t n = colon ? (size_t)(colon - s->s) : s->len, from;
    struct string name = {.s = s->s, .len = n};
    struct string spec = {.s = s->s + n + 1, .len = colon ? s->len - n - 1 : 0};
    char conversion = '\0';
    struct value v;
    struct form f;

    if (n >= 2 && name.s[n - 2] == '!') {
        conversion = name.s[n - 1];
        name.len -= 2;
    }
    v = brace_value(r, &name, c->args, next);
    f = brace_form(r, &spec);
    if (value_is_markup(c->self))
        v = markup_argument(r, v);
    from = r->n_out;
    if (conversion == 'r')
        put_repr(r, v);
    else if (conversion == 's')
        put_str(r, v);
    else if (conversion != '\0')
        bad_form(r);
    put_brace(r, conversion == '\0' ? v : render_take(r, from), &f);
}

struct value format_braces(struct render *r, const struct call *c)
{
    const struct string *s = c->s;
    size_t from = r->n_out;
    int next = 0;

    for (size_t at = 0; at < s->len && r->w.status == PL_OK; at++) {
        const char ch = s->s[at];
        size_t end = at + 1;

        if (ch != '{' && ch != '}') {
            render_put(r, &ch, 1);
            continue;
        }
        /* Two equal braces stand for one brace. */
        if (char_at(s, at + 1) == ch) {
            render_put(r, &ch, 1);
            at++;
            continue;
        }
        while (end < s->len && s->s[end] != '}' && s->s[end] != '{')
            end++;
        if (ch == '}' || char_at(s, end) != '}')
            return bad_form(r);
        put_field(
            r, &(const struct string){.s = s->s + at + 1, .len = end - at - 1},
            c, &next);
        at = end;
    }
    return render_take(r, from);
}
