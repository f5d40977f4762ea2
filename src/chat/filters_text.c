/* Filters of texts and numbers, x|name(arguments), in the template language. */
#include "chat/strings.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- filters that change case, lines and blanks ------------------------ */

/* Sets *out to the str() of the operand, converted to upper or lower case. */
static pl_status with_case(struct render *r, const struct call *c,
                           enum string_case to, struct value *out)
{
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    PL_TRY(string_case(r, s, to, out));
    if (to != CASE_HEADING) /* Jinja builds a new string here, which is not
                               markup (HTML) */
        *out = markup_like(c->self, *out);
    return PL_OK;
}

static pl_status upper(struct render *r, const struct call *c,
                       struct value *out)
{
    return with_case(r, c, CASE_UPPER, out);
}

static pl_status lower(struct render *r, const struct call *c,
                       struct value *out)
{
    return with_case(r, c, CASE_LOWER, out);
}

static pl_status capitalize(struct render *r, const struct call *c,
                            struct value *out)
{
    return with_case(r, c, CASE_CAPITAL, out);
}

static pl_status title(struct render *r, const struct call *c,
                       struct value *out)
{
    return with_case(r, c, CASE_HEADING, out);
}

static pl_status string(struct render *r, const struct call *c,
                        struct value *out)
{
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    *out = markup_like(c->self, value_str(s));
    return PL_OK;
}

static pl_status safe(struct render *r, const struct call *c, struct value *out)
{
    PL_TRY(string(r, c, out));
    *out = markup(*out);
    return PL_OK;
}

static pl_status trim(struct render *r, const struct call *c, struct value *out)
{
    struct string *s, *chars = NULL;

    PL_TRY(str_of(r, c->self, &s));
    if (c->arg[0].kind != V_ABSENT && c->arg[0].kind != V_NONE)
        PL_TRY(need_string(r, c->arg[0], &chars));
    PL_TRY(string_strip(r, s, chars, true, true, out));
    *out = markup_like(c->self, *out);
    return PL_OK;
}

static pl_status replace(struct render *r, const struct call *c,
                         struct value *out)
{
    struct string *s, *from, *to;
    int64_t most = -1;

    PL_TRY(str_of(r, c->self, &s));
    PL_TRY(str_of(r, c->arg[0], &from));
    PL_TRY(str_of(r, c->arg[1], &to));
    if (c->arg[2].kind != V_NONE)
        PL_TRY(get_int(r, c->arg[2], -1, &most));
    return string_replace(r, s, from, to, most, out);
}

static pl_status center(struct render *r, const struct call *c,
                        struct value *out)
{
    struct string *s;
    int64_t width;

    PL_TRY(str_of(r, c->self, &s));
    PL_TRY(get_int(r, c->arg[0], 80, &width));
    PL_TRY(string_center(r, s, width, NULL, out));
    *out = markup_like(c->self, *out);
    return PL_OK;
}

static pl_status format(struct render *r, const struct call *c,
                        struct value *out)
{
    struct items l = {0};
    struct value self, args;
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    if (c->args->n > 0 && c->args->n_word > 0)
        return render_fail(
            r, PL_BAD_ARGUMENT,
            "\"format\" takes positional or keyword arguments, not both");
    for (int i = 0; i < c->args->n; i++)
        PL_TRY(items_add(r, &l, c->args->value[i]));
    PL_TRY(items_take(r, &l, V_TUPLE, &args));
    if (c->args->n_word > 0) {
        struct dict *d = dict_create(&r->arena, (size_t)c->args->n_word);

        for (int i = 0; d && i < c->args->n_word; i++)
            if (!dict_put(&r->arena, d, value_str(c->args->word[i]),
                          c->args->value[i]))
                d = NULL;
        if (!d)
            return err_no_memory(r->err, "a template's values");
        args = (struct value){.kind = V_DICT, .dict = d};
    }
    self = markup_like(c->self, value_str(s));
    return value_binary(r, N_REMAINDER, self, args, out);
}

/* Sets *out to the text that the filter indent inserts before each line: `v` if
 * it is a string, else `v` blanks. If `v` is absent, `usual` blanks. */
static pl_status indent_text(struct render *r, struct value v, int64_t usual,
                             struct string **out)
{
    size_t from = r->n_out;
    int64_t n;

    if (v.kind == V_STR) {
        *out = v.str;
        return PL_OK;
    }
    PL_TRY(get_int(r, v, usual, &n));
    PL_TRY(render_spend(r, n > 0 ? (uint64_t)n : 0));
    for (; n > 0; n--)
        PL_TRY(render_put(r, " ", 1));
    PL_TRY(render_take(r, from, &v));
    *out = v.str;
    return PL_OK;
}

static pl_status indent(struct render *r, const struct call *c,
                        struct value *out)
{
    bool first = value_truth(c->arg[1]), blank = value_truth(c->arg[2]);
    struct items line = {0};
    struct string *s, *space;
    struct value all;
    size_t from;

    PL_TRY(need_string(r, c->self, &s));
    PL_TRY(indent_text(r, c->arg[0], 4, &space));
    from = r->n_out;
    PL_TRY(render_put(r, s->s, s->len));
    /* Because of this newline, string_lines also returns an empty last line. */
    PL_TRY(render_put(r, "\n", 1));
    PL_TRY(render_take(r, from, &all));
    PL_TRY(string_lines(r, all.str, false, &line));
    for (size_t i = 0; i < line.n; i++) {
        const struct string *l = line.item[i].str;

        if (i > 0)
            PL_TRY(render_put(r, "\n", 1));
        if (i == 0 ? first : blank || l->len > 0)
            PL_TRY(render_put(r, space->s, space->len));
        PL_TRY(render_put(r, l->s, l->len));
    }
    PL_TRY(render_take(r, from, out));
    *out = markup_like(c->self, *out);
    return PL_OK;
}

static pl_status escape(struct render *r, const struct call *c,
                        struct value *out)
{
    return markup_escape(r, c->self, false, out);
}

static pl_status forceescape(struct render *r, const struct call *c,
                             struct value *out)
{
    return markup_escape(r, c->self, true, out);
}

static pl_status wordcount(struct render *r, const struct call *c,
                           struct value *out)
{
    bool inside = false;
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    *out = value_int(0);
    for (size_t at = 0; at < s->len;) {
        uint32_t ch;
        bool word;

        at += unicode_get(s->s + at, s->len - at, &ch);
        word = (ch >= '0' && ch <= '9') || ch == '_' || unicode_is_letter(ch);
        out->i += word && !inside;
        inside = word;
    }
    return PL_OK;
}

static pl_status tojson(struct render *r, const struct call *c,
                        struct value *out)
{
    struct json_style style = {
        .ascii = value_truth(c->arg[0]),
        .sorted = value_truth(c->arg[3]),
    };
    struct value separators = c->arg[2];
    size_t from;

    if (c->arg[1].kind != V_ABSENT && c->arg[1].kind != V_NONE) {
        struct string *s;

        PL_TRY(indent_text(r, c->arg[1], 0, &s));
        style.indent = s->s;
        style.n_indent = s->len;
    }
    if (separators.kind != V_ABSENT && separators.kind != V_NONE) {
        struct string *s[2];
        struct list l;

        PL_TRY(value_items(r, separators, &l));
        if (l.n != 2)
            return render_fail(r, PL_BAD_ARGUMENT,
                               "separators must be a pair of strings");
        for (int i = 0; i < 2; i++)
            PL_TRY(need_string(r, l.item[i], &s[i]));
        style.item = s[0];
        style.key = s[1];
    }
    from = r->n_out;
    PL_TRY(put_json(r, c->self, &style));
    return render_take(r, from, out);
}

/* ---- filters of numbers ------------------------------------------------ */

static pl_status absolute(struct render *r, const struct call *c,
                          struct value *out)
{
    bool minus = value_is_number(c->self) && value_as_float(c->self) < 0;

    if (c->self.kind == V_FLOAT) {
        *out = value_float(fabs(value_as_float(c->self)));
        return PL_OK;
    }
    return value_negate(r, minus, c->self, out);
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

static bool text_to_float(const struct string *s, double *out)
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

/* Parses an integer as Python's int() does. If `base` is 0, the prefix of the
 * text, such as 0x, determines the base. Returns false if the text is not an
 * integer or the integer has more than 64 bits. */
static bool text_to_int(const struct string *s, int64_t base, int64_t *out)
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
    if (base == 0)
        base = 10;
    if (*p == '\0')
        return false;
    for (; *p; p++) {
        int d = isdigit((unsigned char)*p) ? *p - '0'
                : ascii_is_letter(*p)      ? ascii_lower(*p) - 'a' + 10
                                           : 99;

        if (d >= base || __builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, d, &v))
            return false;
    }
    *out = minus ? -v : v;
    return true;
}

static pl_status to_int(struct render *r, const struct call *c,
                        struct value *out)
{
    struct value v = c->self;
    int64_t base, i;
    double f;

    PL_TRY(get_int(r, c->arg[1], 10, &base));
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    *out = c->arg[0].kind == V_ABSENT ? value_int(0) : c->arg[0];
    if (v.kind == V_INT || v.kind == V_BOOL)
        *out = value_int(value_as_int(v));
    else if (v.kind == V_FLOAT && fabs(value_as_float(v)) < 0x1p63)
        *out = value_int((int64_t)value_as_float(v));
    else if (v.kind == V_FLOAT && isfinite(value_as_float(v)))
        return render_fail(r, PL_UNSUPPORTED,
                           "an integer has more than the supported 64 bits");
    else if (v.kind == V_STR && text_to_int(v.str, base, &i))
        *out = value_int(i);
    else if (v.kind == V_STR && text_to_float(v.str, &f) && fabs(f) < 0x1p63)
        *out = value_int((int64_t)f);
    return PL_OK;
}

static pl_status to_float(struct render *r, const struct call *c,
                          struct value *out)
{
    struct value v = c->self;
    double f;

    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    *out = c->arg[0].kind == V_ABSENT ? value_float(0) : c->arg[0];
    if (value_is_number(v))
        *out = value_float(value_as_float(v));
    else if (v.kind == V_STR && text_to_float(v.str, &f))
        *out = value_float(f);
    return PL_OK;
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

static pl_status round_to(struct render *r, const struct call *c,
                          struct value *out)
{
    struct value v = c->self;
    bool up = false, down = false;
    int64_t digits;
    double unit;

    PL_TRY(get_int(r, c->arg[0], 0, &digits));
    if (c->arg[1].kind == V_STR) {
        up = string_is(c->arg[1].str, "ceil");
        down = string_is(c->arg[1].str, "floor");
    }
    if (c->arg[1].kind != V_ABSENT && !up && !down &&
        !(c->arg[1].kind == V_STR && string_is(c->arg[1].str, "common")))
        return render_fail(r, PL_BAD_ARGUMENT,
                           "method must be common, ceil or floor");
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (!value_is_number(v) || digits < -300 || digits > 300)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "a %s cannot be rounded by this method",
                           value_kind_name(v.kind));
    if (!up && !down && v.kind != V_FLOAT && digits >= 0) {
        *out = value_int(value_as_int(v));
        return PL_OK;
    }
    if (!up && !down) {
        double f = round_common(value_as_float(v), (int)digits);

        if (v.kind != V_FLOAT && !(fabs(f) < 0x1p63))
            return render_fail(r, PL_UNSUPPORTED,
                               "an integer has more than the supported 64 "
                               "bits");
        *out = v.kind == V_FLOAT ? value_float(f) : value_int((int64_t)f);
        return PL_OK;
    }
    unit = pow(10, (double)digits);
    *out = value_float(value_as_float(v) * unit);
    /* Adding 0.0 turns -0 into 0: in Python the result of ceil() or floor() is
     * an integer, which is never -0. */
    *out = value_float(((up ? ceil(out->f) : floor(out->f)) + 0.0) / unit);
    return PL_OK;
}

/* ---- filters that shorten, URLs and HTML ------------------------------- */

/* Sets *out to the string `s` up to its last blank, without the blank. */
static pl_status drop_word(struct render *r, struct value s, struct value *out)
{
    size_t n = s.str->len;

    while (n > 0 && s.str->s[n - 1] != ' ')
        n--;
    PL_TRY(render_view(r, s.str->s, n > 0 ? n - 1 : s.str->len, out));
    *out = markup_like(s, *out);
    return PL_OK;
}

static pl_status truncate(struct render *r, const struct call *c,
                          struct value *out)
{
    struct value part[3] = {value_none(), value_none(), value_none()};
    struct value end = c->arg[2], leeway_of = c->arg[3];
    int64_t most, leeway, len, n_end;
    struct string *s;

    PL_TRY(get_int(r, c->arg[0], 255, &most));
    if (leeway_of.kind == V_NONE)
        leeway_of.kind = V_ABSENT;
    PL_TRY(get_int(r, leeway_of, 5, &leeway));
    if (end.kind == V_ABSENT)
        PL_TRY(render_view(r, "...", 3, &end));
    PL_TRY(need_string(r, end, &s));
    PL_TRY(value_length(r, c->self, &len));
    PL_TRY(value_length(r, end, &n_end));
    if (most < n_end || leeway < 0)
        return render_fail(
            r, PL_BAD_ARGUMENT,
            "\"truncate\": the length must be at least %" PRId64
            ", that of the end marker, and the leeway at least 0",
            n_end);
    *out = c->self;
    if (len <= leeway || len - leeway <= most)
        return PL_OK;
    PL_TRY(need_string(r, c->self, &s));
    part[1] = value_int(most - n_end);
    PL_TRY(value_slice(r, c->self, part, out));
    if (!value_truth(c->arg[1]))
        PL_TRY(drop_word(r, *out, out));
    return value_binary(r, N_ADD, *out, end, out);
}

static pl_status filesizeformat(struct render *r, const struct call *c,
                                struct value *out)
{
    static const char prefix[] = "kMGTPEZY";
    const bool binary = value_truth(c->arg[0]);
    const double base = binary ? 1024 : 1000;
    char text[400];
    struct value v;
    double size, of = base;
    size_t i = 0;

    PL_TRY(to_float(r, &(struct call){.self = c->self}, &v));
    size = value_as_float(v);
    if (size < base) {
        numeral_print(text, sizeof text, size == 1 ? "%.0f Byte" : "%.0f Bytes",
                      trunc(size) + 0.0);
        return render_string(r, text, strlen(text), out);
    }
    for (of *= base; !(size < of) && prefix[i + 1]; i++)
        of *= base;
    numeral_print(text, sizeof text, "%.1f %c%s", base * size / of,
                  binary && i == 0 ? 'K' : prefix[i], binary ? "iB" : "B");
    return render_string(r, text, strlen(text), out);
}

/* Appends str(v) to the output with each byte as %XX. Letters, digits, the
 * characters _.-~ and, unless `query`, the slash are unchanged. In a query a
 * blank becomes "+". */
static pl_status put_url(struct render *r, struct value v, bool query)
{
    static const char digits[] = "0123456789ABCDEF";
    struct string *s;

    PL_TRY(str_of(r, v, &s));
    PL_TRY(render_spend(r, s->len / 64 + 1));
    for (size_t i = 0; i < s->len; i++) {
        const unsigned char ch = (unsigned char)s->s[i];
        const char code[] = {'%', digits[ch >> 4], digits[ch & 15]};

        if (ascii_is_letter_or_digit((char)ch) || (ch && strchr("_.-~", ch)) ||
            (ch == '/' && !query))
            PL_TRY(render_put(r, s->s + i, 1));
        else if (ch == ' ' && query)
            PL_TRY(render_put(r, "+", 1));
        else
            PL_TRY(render_put(r, code, 3));
    }
    return PL_OK;
}

static pl_status put_query(struct render *r, struct value key, struct value v)
{
    PL_TRY(put_url(r, key, true));
    PL_TRY(render_put(r, "=", 1));
    return put_url(r, v, true);
}

static pl_status urlencode(struct render *r, const struct call *c,
                           struct value *out)
{
    const size_t from = r->n_out;
    struct value v = c->self;
    struct list l = {0}, pair;

    if (v.kind == V_DICT)
        for (size_t i = 0; i < v.dict->n; i++) {
            PL_TRY(render_puts(r, i > 0 ? "&" : ""));
            PL_TRY(put_query(r, v.dict->pair[i].key, v.dict->pair[i].value));
        }
    else if (v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_VIEW ||
             v.kind == V_ITER || v.kind == V_RANGE || v.kind == V_UNDEFINED)
        PL_TRY(value_items(r, v, &l));
    else
        PL_TRY(put_url(r, v, false));
    for (size_t i = 0; i < l.n; i++) {
        PL_TRY(value_items(r, l.item[i], &pair));
        if (pair.n != 2)
            return render_fail(
                r, PL_BAD_ARGUMENT,
                "\"urlencode\" takes pairs of a key and a value");
        PL_TRY(render_puts(r, i > 0 ? "&" : ""));
        PL_TRY(put_query(r, pair.item[0], pair.item[1]));
    }
    return render_take(r, from, out);
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

static pl_status put_escaped(struct render *r, struct value v)
{
    struct value e;

    PL_TRY(markup_escape(r, v, false, &e));
    return render_put(r, e.str->s, e.str->len);
}

static pl_status xmlattr(struct render *r, const struct call *c,
                         struct value *out)
{
    const bool space = c->arg[0].kind == V_ABSENT || value_truth(c->arg[0]);
    const size_t from = r->n_out;
    const struct dict *d = c->self.dict;

    if (c->self.kind != V_DICT)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"xmlattr\" takes a dict, not a %s",
                           value_kind_name(c->self.kind));
    for (size_t i = 0; i < d->n; i++) {
        const struct value key = d->pair[i].key, v = d->pair[i].value;

        if (v.kind == V_NONE || v.kind == V_UNDEFINED)
            continue;
        if (key.kind != V_STR || !is_attribute(key.str))
            return render_fail(r, PL_BAD_ARGUMENT,
                               "the name of an attribute must be a string "
                               "without blanks, /, > and =");
        PL_TRY(render_puts(r, r->n_out > from || space ? " " : ""));
        PL_TRY(put_escaped(r, key));
        PL_TRY(render_puts(r, "=\""));
        PL_TRY(put_escaped(r, v));
        PL_TRY(render_puts(r, "\""));
    }
    return render_take(r, from, out);
}

const struct builtin builtin_text_filters[] = {
    {"abs", "", 0, absolute},
    {"capitalize", "", 0, capitalize},
    {"center", "width", 0, center},
    {"e", "", 0, escape},
    {"escape", "", 0, escape},
    {"filesizeformat", "binary", 0, filesizeformat},
    {"float", "default", 0, to_float},
    {"forceescape", "", 0, forceescape},
    {"format", "*", 0, format},
    {"indent", "width first blank", 0, indent},
    {"int", "default base", 0, to_int},
    {"lower", "", 0, lower},
    {"replace", "old new count", 2, replace},
    {"round", "precision method", 0, round_to},
    {"safe", "", 0, safe},
    {"string", "", 0, string},
    {"title", "", 0, title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
    {"trim", "chars", 0, trim},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"upper", "", 0, upper},
    {"urlencode", "", 0, urlencode},
    {"wordcount", "", 0, wordcount},
    {"xmlattr", "autospace", 0, xmlattr},
    {0},
};
