/* Filters of texts and numbers, x|name(arguments), in the template language. */
#include "chat/strings.h"

#include "base/ascii.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- filters that change case, lines and blanks ------------------------ */

static struct value string(struct render *r, const struct call *c)
{
    (void)r;
    return value_str(c->s);
}

static struct value safe(struct render *r, const struct call *c)
{
    (void)r;
    return markup(value_str(c->s));
}

static struct value format(struct render *r, const struct call *c)
{
    const struct args *a = c->args;
    struct value args;
    struct dict d = {0};

    if (a->n > 0 && a->n_word > 0)
        return render_bad(
            r, "\"format\" takes positional or keyword arguments, not both");
    for (int i = 0; i < a->n_word; i++)
        dict_put(&r->w, &d, value_str(a->word[i]), a->value[i]);
    args = a->n_word > 0 ? value_new(&r->w, V_DICT, &d, sizeof d)
                         : value_list(&r->w, V_TUPLE, args_list(r, a, 0));
    return value_binary(r, N_REMAINDER, markup_like(c->self, value_str(c->s)),
                        args);
}

/* Returns the text that the filter indent inserts before each line: `v` if it
 * is a string, else `v` blanks. */
static struct string *indent_text(struct render *r, struct value v)
{
    size_t from = r->n_out;
    int64_t n;

    if (v.kind == V_STR)
        return v.str;
    n = need_int(r, v);
    render_fill(r, ' ', n > 0 ? (size_t)n : 0);
    return render_take(r, from).str;
}

static struct value indent(struct render *r, const struct call *c)
{
    const struct string *space = indent_text(r, c->arg[0]);
    size_t from = r->n_out;
    struct list line;

    render_put(r, c->s->s, c->s->len);
    /* Because of this newline, string_lines also returns an empty last line. */
    render_puts(r, "\n");
    line = string_lines(r, render_take(r, from).str, false);
    for (size_t i = 0; i < line.n; i++) {
        const struct string *l = line.item[i].str;

        if (i > 0)
            render_puts(r, "\n");
        if (i == 0 ? c->arg[1].truth : c->arg[2].truth || l->len > 0)
            render_put(r, space->s, space->len);
        render_put(r, l->s, l->len);
    }
    return render_take(r, from);
}

/* The filters escape and forceescape (`what` is true). */
static struct value escape(struct render *r, const struct call *c)
{
    return markup_escape(r, c->self, c->what);
}

static struct value wordcount(struct render *r, const struct call *c)
{
    bool inside = false, word;
    int64_t n = 0;
    size_t at = 0;
    uint32_t ch;

    (void)r;
    for (; string_next(c->s, &at, &ch); inside = word) {
        word = (ch >= '0' && ch <= '9') || ch == '_' || unicode_is_letter(ch);
        n += word && !inside;
    }
    return value_int(n);
}

static struct value tojson(struct render *r, const struct call *c)
{
    struct json_style style = {.ascii = c->arg[0].truth,
                               .sorted = c->arg[3].truth};
    size_t from = r->n_out;

    if (c->arg[1].kind != V_ABSENT)
        style.indent = indent_text(r, c->arg[1]);
    if (c->arg[2].kind != V_ABSENT) {
        const struct list l = value_items(r, c->arg[2]);

        if (l.n != 2)
            return render_bad(r, "separators must be a pair of strings");
        style.item = need_string(r, l.item[0]);
        style.key = need_string(r, l.item[1]);
    }
    put_json(r, c->self, &style);
    return render_take(r, from);
}

/* ---- filters of numbers ------------------------------------------------ */

static struct value absolute(struct render *r, const struct call *c)
{
    bool minus = value_is(c->self, KINDS_NUMBER) && value_as_float(c->self) < 0;

    if (c->self.kind == V_FLOAT)
        return value_float(fabs(value_as_float(c->self)));
    return value_negate(r, minus, c->self);
}

/* Copies the text of a number to `buf`, without whitespace around it and
 * without underscores between digits, which Python's int() and float() allow.
 * Returns false if the text is empty, too long, or has other underscores. */
static bool number_text(const struct string *s, char *buf, size_t size)
{
    size_t first = unicode_space_first(s->s, s->len), n = 0;
    size_t end = s->len - unicode_space_last(s->s, s->len);

    for (size_t i = first; i < end; i++) {
        char c = s->s[i];

        if (n + 1 == size)
            return false;
        if (c == '_' && (i == first || i + 1 == end ||
                         !ascii_is_letter_or_digit(s->s[i - 1]) ||
                         !ascii_is_letter_or_digit(s->s[i + 1])))
            return false;
        if (c != '_')
            buf[n++] = c;
    }
    buf[n] = '\0';
    return n > 0;
}

bool string_to_float(const struct string *s, double *out)
{
    char buf[400], *end;
    const char *p = buf;

    if (!number_text(s, buf, sizeof buf))
        return false;
    p += *p == '-' || *p == '+';
    if (!isdigit((unsigned char)*p) && *p != '.' && !ascii_same(p, "inf") &&
        !ascii_same(p, "infinity") && !ascii_same(p, "nan"))
        return false;
    /* C's strtod accepts hexadecimal numbers, Python's float() does not */
    if (strchr(p, 'x') || strchr(p, 'X'))
        return false;
    *out = numeral_double(buf, &end);
    return *end == '\0';
}

bool string_to_int(const struct string *s, int64_t base, int64_t *out)
{
    char buf[400];
    const char *p = buf;
    bool minus;
    int64_t v = 0;

    if (!number_text(s, buf, sizeof buf) || base < 0 || base == 1 || base > 36)
        return false;
    minus = *p == '-';
    p += *p == '-' || *p == '+';
    if (p[0] == '0' && p[1] != '\0') {
        char c = ascii_lower(p[1]);
        int says = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;

        if (says != 0 && (base == says || base == 0)) {
            base = says;
            p += 2;
        }
    }
    base = base == 0 ? 10 : base;
    if (*p == '\0')
        return false;
    for (; *p; p++)
        if (ascii_digit(*p) >= base || __builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, ascii_digit(*p), &v))
            return false;
    *out = minus ? -v : v;
    return true;
}

static struct value to_int(struct render *r, const struct call *c)
{
    const struct value v = c->self;
    int64_t i;
    double f;

    render_defined(r, v);
    if (value_is(v, KINDS_INT))
        return value_int(value_as_int(v));
    if (v.kind == V_FLOAT && isfinite(value_as_float(v)) &&
        !(fabs(value_as_float(v)) < 0x1p63))
        return value_too_large(r);
    if (v.kind == V_STR && string_to_int(v.str, c->arg[1].i, &i))
        return value_int(i);
    if (v.kind == V_FLOAT)
        f = value_as_float(v);
    else if (v.kind != V_STR || !string_to_float(v.str, &f))
        f = HUGE_VAL;
    if (fabs(f) < 0x1p63)
        return value_int((int64_t)f);
    return c->arg[0].kind == V_ABSENT ? value_int(0) : c->arg[0];
}

static struct value to_float(struct render *r, const struct call *c)
{
    double f;

    render_defined(r, c->self);
    if (value_is(c->self, KINDS_NUMBER))
        return value_float(value_as_float(c->self));
    if (c->self.kind == V_STR && string_to_float(c->self.str, &f))
        return value_float(f);
    return c->arg[0].kind == V_ABSENT ? value_float(0) : c->arg[0];
}

/* Rounds v to `digits` decimals: to the nearest value, and to an even digit if
 * two values are equally near. */
static double round_common(double v, int digits)
{
    char text[400];

    if (digits < 0) {
        double unit = pow(10, -digits);

        return nearbyint(v / unit) * unit;
    }
    numeral_print(text, sizeof text, "%.*f", digits, v);
    return numeral_double(text, NULL);
}

static struct value round_to(struct render *r, const struct call *c)
{
    const struct value v = c->self, method = c->arg[1];
    const int64_t digits = c->arg[0].i;
    const bool up = method.kind == V_STR && string_is(method.str, "ceil");
    const bool down = method.kind == V_STR && string_is(method.str, "floor");
    double f, unit;

    if (method.kind != V_ABSENT && !up && !down &&
        !(method.kind == V_STR && string_is(method.str, "common")))
        return render_bad(r, "method must be common, ceil or floor");
    if (!value_is(v, KINDS_NUMBER) || digits < -300 || digits > 300)
        return render_wrong(r, v, "cannot be rounded by this method");
    if (!up && !down && v.kind != V_FLOAT && digits >= 0)
        return value_int(value_as_int(v));
    f = value_as_float(v);
    if (!up && !down) {
        f = round_common(f, (int)digits);
        if (v.kind == V_FLOAT)
            return value_float(f);
        return fabs(f) < 0x1p63 ? value_int((int64_t)f) : value_too_large(r);
    }
    unit = pow(10, (double)digits);
    f *= unit;
    /* Adding 0.0 turns -0 into 0: in Python the result of ceil() or floor() is
     * an integer, which is never -0. */
    return value_float(((up ? ceil(f) : floor(f)) + 0.0) / unit);
}

/* ---- filters that shorten, URLs and HTML ------------------------------- */

static struct value truncate(struct render *r, const struct call *c)
{
    const struct value end =
        c->arg[2].kind == V_ABSENT ? value_view(&r->w, "...", 3) : c->arg[2];
    const int64_t most = c->arg[0].i, leeway = c->arg[3].i;
    const int64_t len = value_length(r, c->self), n_end = value_length(r, end);
    struct value out;
    size_t n;

    if (most < n_end || leeway < 0)
        render_bad(r,
                   "\"truncate\": the length must be at least %" PRId64
                   ", that of the end marker, and the leeway at least 0",
                   n_end);
    if (r->w.status != PL_OK || len <= leeway || len - leeway <= most)
        return c->self;
    need_string(r, c->self);
    out = value_slice(r, c->self,
                      (const struct value[]){
                          value_none(), value_int(most - n_end), value_none()});
    if (out.kind != V_STR)
        return out;
    n = out.str->len;
    if (!c->arg[1].truth) { /* the text ends before its last blank, if any */
        while (n > 0 && out.str->s[n - 1] != ' ')
            n--;
        n = n > 0 ? n - 1 : out.str->len;
    }
    out = markup_like(out, value_view(&r->w, out.str->s, n));
    return value_binary(r, N_ADD, out, end);
}

static struct value filesizeformat(struct render *r, const struct call *c)
{
    static const char prefix[] = "kMGTPEZY";
    const bool binary = c->arg[0].truth;
    const double base = binary ? 1024 : 1000;
    const double size =
        value_as_float(to_float(r, &(struct call){.self = c->self}));
    char text[400];
    double of = base;
    size_t i = 0;

    if (size < base) {
        numeral_print(text, sizeof text, size == 1 ? "%.0f Byte" : "%.0f Bytes",
                      trunc(size) + 0.0);
        return value_copy(&r->w, text, strlen(text));
    }
    for (of *= base; !(size < of) && prefix[i + 1]; i++)
        of *= base;
    numeral_print(text, sizeof text, "%.1f %c%s", base * size / of,
                  binary && i == 0 ? 'K' : prefix[i], binary ? "iB" : "B");
    return value_copy(&r->w, text, strlen(text));
}

/* Appends str(v) to the output with each byte as %XX. Letters, digits, the
 * characters _.-~ and, unless `query`, the slash are unchanged. In a query a
 * blank becomes "+". */
static void put_url(struct render *r, struct value v, bool query)
{
    static const char digits[] = "0123456789ABCDEF";
    const struct string *s = str_of(r, v);

    work_spend(&r->w, s->len / 64 + 1);
    for (size_t i = 0; i < s->len; i++) {
        const unsigned char ch = (unsigned char)s->s[i];
        const char code[] = {'%', digits[ch >> 4], digits[ch & 15]};

        if (ascii_is_letter_or_digit((char)ch) || (ch && strchr("_.-~", ch)) ||
            (ch == '/' && !query))
            render_put(r, s->s + i, 1);
        else if (ch == ' ' && query)
            render_puts(r, "+");
        else
            render_put(r, code, 3);
    }
}

static struct value urlencode(struct render *r, const struct call *c)
{
    const size_t from = r->n_out;
    struct value v = c->self;
    struct list l = {0};

    if (v.kind == V_DICT)
        v = dict_view(r, &(struct call){.self = v, .what = VIEW_ITEMS});
    if (value_is(v, KINDS_LIST | 1 << V_VIEW | 1 << V_ITER | 1 << V_RANGE |
                        1 << V_UNDEFINED))
        l = value_items(r, v);
    else
        put_url(r, v, false);
    for (size_t i = 0; i < l.n && r->w.status == PL_OK; i++) {
        const struct list pair = value_items(r, l.item[i]);

        if (pair.n != 2)
            return render_bad(r,
                              "\"urlencode\" takes pairs of a key and a value");
        render_puts(r, i > 0 ? "&" : "");
        put_url(r, pair.item[0], true);
        render_puts(r, "=");
        put_url(r, pair.item[1], true);
    }
    return render_take(r, from);
}

/* Returns true if `s` is a valid name of an HTML attribute. */
static bool is_attribute(const struct string *s)
{
    for (size_t i = 0; i < s->len; i++)
        if (s->s[i] && strchr("/>=", s->s[i]))
            return false;
    for (size_t i = 0; i < s->len; i++)
        if (unicode_space_first(s->s + i, s->len - i) > 0)
            return false;
    return true;
}

static struct value xmlattr(struct render *r, const struct call *c)
{
    const size_t from = r->n_out;
    const struct dict *d = c->self.dict;

    if (c->self.kind != V_DICT)
        return render_bad(r, "\"xmlattr\" takes a dict, not a %s",
                          value_kind_name(c->self.kind));
    for (size_t i = 0; i < d->n && r->w.status == PL_OK; i++) {
        const struct value key = d->pair[i].key, v = d->pair[i].value;

        if (value_is(v, 1 << V_NONE | 1 << V_UNDEFINED))
            continue;
        if (key.kind != V_STR || !is_attribute(key.str))
            return render_bad(r, "the name of an attribute must be a string "
                                 "without blanks, /, > and =");
        render_puts(r, r->n_out > from || c->arg[0].truth ? " " : "");
        put_str(r, markup_escape(r, key, false));
        render_puts(r, "=\"");
        put_str(r, markup_escape(r, v, false));
        render_puts(r, "\"");
    }
    return render_take(r, from);
}

const struct builtin builtin_text_filters[] = {
    {"abs", ' ', "", absolute, 0},
    {"capitalize", 'S', "", string_cased, CASE_CAPITAL},
    {"center", 'S', "width:i?80", string_justify, '^'},
    {"e", ' ', "", escape, false},
    {"escape", ' ', "", escape, false},
    {"filesizeformat", ' ', "binary:b?", filesizeformat, 0},
    {"float", ' ', "default:v?", to_float, 0},
    {"forceescape", ' ', "", escape, true},
    {"format", 'S', "*", format, 0},
    {"indent", 's', "width:v?4 first:b? blank:b?", indent, 0},
    {"int", ' ', "default:v? base:i?10", to_int, 0},
    {"lower", 'S', "", string_cased, CASE_LOWER},
    {"replace", 'P', "old:S new:S count:i~-1", string_replace, 0},
    {"round", ' ', "precision:i?0 method:v?", round_to, 0},
    {"safe", 'S', "", safe, 0},
    {"string", 'S', "", string, 0},
    {"title", 'P', "", string_cased, CASE_HEADING},
    {"tojson", ' ', "ensure_ascii:b? indent:v~ separators:v~ sort_keys:b?",
     tojson, 0},
    {"trim", 'S', "chars:s~", string_strip, SIDE_LEFT | SIDE_RIGHT},
    {"truncate", ' ', "length:i?255 killwords:b? end:s? leeway:i~5", truncate,
     0},
    {"upper", 'S', "", string_cased, CASE_UPPER},
    {"urlencode", ' ', "", urlencode, 0},
    {"wordcount", 'P', "", wordcount, 0},
    {"xmlattr", ' ', "autospace:b?1", xmlattr, 0},
    {0},
};
