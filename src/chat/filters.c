/* Filters: x|name(arguments). */
#include "chat/strings.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- text -------------------------------------------------------------- */

/* A filter of what str() makes of self. */
static pl_status with_case(struct render *r, const struct call *c,
                           enum string_case to, struct value *out)
{
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    PL_TRY(string_case(r, s, to, out));
    if (to != CASE_HEADING) /* which Jinja joins anew */
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
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"format\" takes values either by place or by "
                           "name");
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

/* Text that indent puts before each line: a string, or so many blanks. */
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
    PL_TRY(render_put(r, "\n", 1)); /* or a last newline would be lost */
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
                               "separators of JSON are two");
        for (int i = 0; i < 2; i++)
            PL_TRY(need_string(r, l.item[i], &s[i]));
        style.item = s[0];
        style.key = s[1];
    }
    from = r->n_out;
    PL_TRY(put_json(r, c->self, &style));
    return render_take(r, from, out);
}

/* ---- numbers ----------------------------------------------------------- */

static pl_status absolute(struct render *r, const struct call *c,
                          struct value *out)
{
    bool minus = value_is_number(c->self) && value_as_float(c->self) < 0;

    if (c->self.kind == V_FLOAT) {
        *out = value_float(fabs(c->self.f));
        return PL_OK;
    }
    return value_negate(r, minus, c->self, out);
}

/* s without whitespace around and underscores between digits, as Python's
 * int() and float() take it. */
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
    if (strchr(p, 'x') || strchr(p, 'X')) /* C reads hexadecimal floats */
        return false;
    *out = numeral_double(buf, &end);
    return *end == '\0';
}

/* Base 0 means what the prefix says. */
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
    else if (v.kind == V_FLOAT && fabs(v.f) < 0x1p63)
        *out = value_int((int64_t)v.f);
    else if (v.kind == V_FLOAT && isfinite(v.f))
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

/* To the nearest, of two equally near ones the even: what printf does. */
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
        return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be rounded so",
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
    /* Python divides an integer, which has no -0. */
    *out = value_float(((up ? ceil(out->f) : floor(out->f)) + 0.0) / unit);
    return PL_OK;
}

/* ---- what is there, and how much --------------------------------------- */

static pl_status use_default(struct render *r, const struct call *c,
                             struct value *out)
{
    bool missing = c->self.kind == V_UNDEFINED ||
                   (value_truth(c->arg[1]) && !value_truth(c->self));

    *out = missing ? c->arg[0] : c->self;
    return out->kind == V_ABSENT ? render_view(r, "", 0, out) : PL_OK;
}

static pl_status length(struct render *r, const struct call *c,
                        struct value *out)
{
    *out = value_int(0);
    return value_length(r, c->self, &out->i);
}

static pl_status first(struct render *r, const struct call *c,
                       struct value *out)
{
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    *out = l.n > 0 ? l.item[0] : (struct value){.kind = V_UNDEFINED};
    return PL_OK;
}

static pl_status last(struct render *r, const struct call *c, struct value *out)
{
    struct list l;

    if (c->self.kind == V_ITER)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "a generator has no last item; make it a list");
    PL_TRY(value_items(r, c->self, &l));
    *out = l.n > 0 ? l.item[l.n - 1] : (struct value){.kind = V_UNDEFINED};
    return PL_OK;
}

/* x.a.b or x.0 for "a.b" and "0", or for an integer. */
static pl_status get_path(struct render *r, struct value of, struct value path,
                          struct value fallback, struct value *out)
{
    const char *s, *end;

    *out = of;
    if (path.kind != V_STR) {
        PL_TRY(value_item(r, of, path, out));
    } else {
        s = path.str->s;
        end = s + path.str->len;
        for (bool more = true; more;) {
            const char *dot = memchr(s, '.', (size_t)(end - s));
            size_t n = (size_t)((dot ? dot : end) - s), i = 0;
            struct value part;
            int64_t v = 0;

            for (; i < n && i < 18 && isdigit((unsigned char)s[i]); i++)
                v = 10 * v + (s[i] - '0');
            PL_TRY(render_view(r, s, n, &part));
            if (n > 0 && i == n)
                part = value_int(v);
            PL_TRY(value_item(r, *out, part, out));
            if (fallback.kind != V_ABSENT && fallback.kind != V_NONE &&
                out->kind == V_UNDEFINED)
                *out = fallback;
            more = dot != NULL;
            s += n + 1;
        }
    }
    if (fallback.kind != V_ABSENT && fallback.kind != V_NONE &&
        out->kind == V_UNDEFINED)
        *out = fallback;
    return PL_OK;
}

static pl_status attr(struct render *r, const struct call *c, struct value *out)
{
    struct string *name;

    PL_TRY(str_of(r, c->arg[0], &name));
    if (c->self.kind == V_UNDEFINED)
        return render_undefined(r, c->self);
    if (c->self.kind == V_DICT && !builtin_method(V_DICT, name)) {
        *out = (struct value){.kind = V_UNDEFINED, .sub = V_DICT, .str = name};
        return PL_OK; /* attributes only, no items */
    }
    return value_attribute(r, c->self, name, out);
}

/* ---- order ------------------------------------------------------------- */

/* What an item is sorted or compared by. */
static pl_status sort_key(struct render *r, struct value item,
                          struct value path, bool cases, struct value *out)
{
    *out = item;
    if (path.kind != V_ABSENT && path.kind != V_NONE)
        PL_TRY(get_path(r, item, path, (struct value){.kind = V_ABSENT}, out));
    if (out->kind == V_STR && !cases)
        return string_case(r, out->str, CASE_LOWER, out);
    return PL_OK;
}

/* Paths with commas between, or none: a list of keys, as Python compares lists.
 */
static pl_status sort_keys(struct render *r, struct value item,
                           struct value path, bool cases, struct value *out)
{
    struct items keys = {0};
    const char *s, *end;
    struct value one;

    if (path.kind != V_STR) {
        PL_TRY(sort_key(r, item, path, cases, &one));
        PL_TRY(items_add(r, &keys, one));
        return items_take(r, &keys, V_LIST, out);
    }
    s = path.str->s;
    end = s + path.str->len;
    for (;;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));

        PL_TRY(render_view(r, s, (size_t)((comma ? comma : end) - s), &one));
        PL_TRY(sort_key(r, item, one, cases, &one));
        PL_TRY(items_add(r, &keys, one));
        if (!comma)
            return items_take(r, &keys, V_LIST, out);
        s = comma + 1;
    }
}

static pl_status sort(struct render *r, const struct call *c, struct value *out)
{
    struct list l, *sorted;
    struct pair *p;

    PL_TRY(value_items(r, c->self, &l));
    PL_TRY(render_alloc(r, l.n, sizeof *p, &p));
    for (size_t i = 0; i < l.n; i++) {
        PL_TRY(sort_keys(r, l.item[i], c->arg[2], value_truth(c->arg[1]),
                         &p[i].key));
        p[i].value = l.item[i];
    }
    PL_TRY(sort_pairs(r, p, l.n, value_truth(c->arg[0])));
    PL_TRY(render_list(r, l.n, &sorted));
    for (size_t i = 0; i < l.n; i++)
        sorted->item[i] = p[i].value;
    *out = (struct value){.kind = V_LIST, .list = sorted};
    return PL_OK;
}

static pl_status dictsort(struct render *r, const struct call *c,
                          struct value *out)
{
    bool by_value = false;
    struct items l = {0};
    struct pair *p;
    const struct dict *d = c->self.dict;

    if (c->self.kind == V_UNDEFINED)
        return render_undefined(r, c->self);
    if (c->arg[1].kind == V_STR)
        by_value = string_is(c->arg[1].str, "value");
    if (c->self.kind != V_DICT ||
        (c->arg[1].kind != V_ABSENT && !by_value &&
         !(c->arg[1].kind == V_STR && string_is(c->arg[1].str, "key"))))
        return render_fail(r, PL_BAD_ARGUMENT,
                           "dictsort sorts a dict by \"key\" or \"value\"");
    PL_TRY(render_alloc(r, d->n, sizeof *p, &p));
    for (size_t i = 0; i < d->n; i++) {
        struct list *pair;

        PL_TRY(render_list(r, 2, &pair));
        pair->item[0] = d->pair[i].key;
        pair->item[1] = d->pair[i].value;
        PL_TRY(sort_key(r, pair->item[by_value],
                        (struct value){.kind = V_ABSENT},
                        value_truth(c->arg[0]), &p[i].key));
        p[i].value = (struct value){.kind = V_TUPLE, .list = pair};
    }
    PL_TRY(sort_pairs(r, p, d->n, value_truth(c->arg[2])));
    for (size_t i = 0; i < d->n; i++)
        PL_TRY(items_add(r, &l, p[i].value));
    return items_take(r, &l, V_LIST, out);
}

static pl_status extreme(struct render *r, const struct call *c, bool most,
                         struct value *out)
{
    struct value best = {.kind = V_ABSENT};
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    *out = (struct value){.kind = V_UNDEFINED};
    for (size_t i = 0; i < l.n; i++) {
        struct value key;
        bool better = true;

        PL_TRY(sort_key(r, l.item[i], c->arg[1], value_truth(c->arg[0]), &key));
        if (i > 0)
            PL_TRY(
                value_less(r, most ? best : key, most ? key : best, &better));
        if (better) {
            best = key;
            *out = l.item[i];
        }
    }
    return PL_OK;
}

static pl_status most(struct render *r, const struct call *c, struct value *out)
{
    return extreme(r, c, true, out);
}

static pl_status least(struct render *r, const struct call *c,
                       struct value *out)
{
    return extreme(r, c, false, out);
}

static pl_status sum(struct render *r, const struct call *c, struct value *out)
{
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    *out = c->arg[1].kind == V_ABSENT ? value_int(0) : c->arg[1];
    for (size_t i = 0; i < l.n; i++) {
        struct value v = l.item[i];

        if (c->arg[0].kind != V_ABSENT && c->arg[0].kind != V_NONE)
            PL_TRY(get_path(r, v, c->arg[0], (struct value){.kind = V_ABSENT},
                            &v));
        PL_TRY(value_binary(r, N_ADD, *out, v, out));
        PL_TRY(render_spend(r, 1));
    }
    return PL_OK;
}

/* ---- lists ------------------------------------------------------------- */

static pl_status join(struct render *r, const struct call *c, struct value *out)
{
    size_t from;
    struct string *sep = NULL;
    struct list l;

    if (c->arg[0].kind != V_ABSENT)
        PL_TRY(str_of(r, c->arg[0], &sep));
    PL_TRY(value_items(r, c->self, &l));
    from = r->n_out;
    for (size_t i = 0; i < l.n; i++) {
        struct value v = l.item[i];

        if (c->arg[1].kind != V_ABSENT && c->arg[1].kind != V_NONE)
            PL_TRY(get_path(r, v, c->arg[1], (struct value){.kind = V_ABSENT},
                            &v));
        if (i > 0 && sep)
            PL_TRY(render_put(r, sep->s, sep->len));
        PL_TRY(put_str(r, v));
        PL_TRY(render_spend(r, 1));
    }
    return render_take(r, from, out);
}

static pl_status list(struct render *r, const struct call *c, struct value *out)
{
    struct list l, *copy;

    PL_TRY(value_items(r, c->self, &l));
    PL_TRY(render_alloc(r, 1, sizeof *copy, &copy));
    *copy = l;
    *out = (struct value){.kind = V_LIST, .list = copy};
    return PL_OK;
}

static pl_status make_iter(struct render *r, const struct items *l,
                           struct value *out)
{
    struct iter *iter;
    struct list *list_of;

    PL_TRY(items_list(r, l, &list_of));
    PL_TRY(render_alloc(r, 1, sizeof *iter, &iter));
    iter->list = *list_of;
    *out = (struct value){.kind = V_ITER, .iter = iter};
    return PL_OK;
}

static pl_status reverse(struct render *r, const struct call *c,
                         struct value *out)
{
    struct items back = {0};
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    for (size_t i = l.n; i-- > 0;)
        PL_TRY(items_add(r, &back, l.item[i]));
    if (c->self.kind == V_STR) {
        size_t from = r->n_out;

        for (size_t i = 0; i < back.n; i++)
            PL_TRY(put_str(r, back.item[i]));
        PL_TRY(render_take(r, from, out));
        *out = markup_like(c->self, *out);
        return PL_OK;
    }
    return c->self.kind == V_ITER ? items_take(r, &back, V_LIST, out)
                                  : make_iter(r, &back, out);
}

static pl_status items(struct render *r, const struct call *c,
                       struct value *out)
{
    struct items l = {0};
    struct value view;
    const struct args none = {0};

    if (c->self.kind == V_DICT) {
        const struct string name = {.s = "items", .len = 5};

        PL_TRY(builtin_run(r, builtin_method(V_DICT, &name), c->self, &none,
                           &view));
        l = (struct items){view.list->item, view.list->n, view.list->n};
    } else if (c->self.kind != V_UNDEFINED) {
        return render_fail(r, PL_BAD_ARGUMENT,
                           "a %s has no items: it is no mapping",
                           value_kind_name(c->self.kind));
    }
    return make_iter(r, &l, out);
}

static pl_status unique(struct render *r, const struct call *c,
                        struct value *out)
{
    struct items keys = {0}, kept = {0};
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    for (size_t i = 0; i < l.n; i++) {
        struct value key;
        bool seen = false;

        PL_TRY(sort_key(r, l.item[i], c->arg[1], value_truth(c->arg[0]), &key));
        if (key.kind == V_LIST || key.kind == V_DICT)
            return render_fail(r, PL_BAD_ARGUMENT,
                               "a %s cannot be told from others",
                               value_kind_name(key.kind));
        for (size_t k = 0; k < keys.n && !seen; k++)
            PL_TRY(value_equal(r, keys.item[k], key, &seen));
        if (seen)
            continue;
        PL_TRY(items_add(r, &keys, key));
        PL_TRY(items_add(r, &kept, l.item[i]));
    }
    return make_iter(r, &kept, out);
}

/* Item by item into lists of n; the last is filled up. */
static pl_status batch(struct render *r, const struct call *c,
                       struct value *out)
{
    struct items all = {0}, part = {0};
    struct value v;
    struct list l;
    int64_t n;

    PL_TRY(get_int(r, c->arg[0], 0, &n));
    PL_TRY(value_items(r, c->self, &l));
    for (size_t i = 0; i < l.n; i++) {
        if ((int64_t)part.n == n && i > 0) {
            PL_TRY(items_take(r, &part, V_LIST, &v));
            PL_TRY(items_add(r, &all, v));
            part = (struct items){0};
        }
        PL_TRY(items_add(r, &part, l.item[i]));
    }
    if (part.n > 0) {
        while (c->arg[1].kind != V_ABSENT && c->arg[1].kind != V_NONE &&
               (int64_t)part.n < n)
            PL_TRY(items_add(r, &part, c->arg[1]));
        PL_TRY(items_take(r, &part, V_LIST, &v));
        PL_TRY(items_add(r, &all, v));
    }
    return make_iter(r, &all, out);
}

/* Into n lists, the first ones longer by one where it does not come out. */
static pl_status slice(struct render *r, const struct call *c,
                       struct value *out)
{
    struct items all = {0};
    struct list l;
    int64_t n;
    size_t at = 0;

    PL_TRY(get_int(r, c->arg[0], 0, &n));
    PL_TRY(value_items(r, c->self, &l));
    if (n == 0)
        return render_fail(r, PL_BAD_ARGUMENT, "division by zero");
    for (int64_t i = 0; i < n; i++) {
        struct items part = {0};
        size_t more = l.n % (size_t)n;
        size_t k = l.n / (size_t)n + ((size_t)i < more);
        struct value v;

        for (; k > 0; k--)
            PL_TRY(items_add(r, &part, l.item[at++]));
        if (c->arg[1].kind != V_ABSENT && c->arg[1].kind != V_NONE &&
            (size_t)i >= more)
            PL_TRY(items_add(r, &part, c->arg[1]));
        PL_TRY(items_take(r, &part, V_LIST, &v));
        PL_TRY(items_add(r, &all, v));
    }
    return make_iter(r, &all, out);
}

/* The arguments of a call without the first `skip`. */
static struct args args_rest(const struct args *args, int skip)
{
    struct args rest = *args;
    int n = args->n + args->n_word - skip;

    rest.n -= skip;
    memmove(rest.value, rest.value + skip, (size_t)n * sizeof rest.value[0]);
    return rest;
}

static pl_status named(struct render *r, const struct args *args, int i,
                       bool filter, const struct builtin **out)
{
    struct string *name;
    char shown[ERR_SHOWN];

    PL_TRY(need_string(r, args->value[i], &name));
    *out = filter ? builtin_filter(name) : builtin_test(name);
    if (*out)
        return PL_OK;
    return render_fail(r, PL_UNSUPPORTED, "there is no %s \"%s\"",
                       filter ? "filter" : "test",
                       err_shown(shown, name->s, name->len));
}

/* The value given by that name, or V_ABSENT. */
static struct value word_of(const struct args *args, const char *name)
{
    for (int i = 0; i < args->n_word; i++)
        if (string_is(args->word[i], name))
            return args->value[args->n + i];
    return (struct value){.kind = V_ABSENT};
}

static pl_status map(struct render *r, const struct call *c, struct value *out)
{
    const struct builtin *filter = NULL;
    struct value path = word_of(c->args, "attribute");
    struct value fallback = word_of(c->args, "default");
    struct args rest = {0};
    struct items mapped = {0};
    struct list l;

    if (!value_truth(c->self)) /* of None, too, Jinja makes nothing */
        return make_iter(r, &mapped, out);
    if (c->args->n > 0) {
        PL_TRY(named(r, c->args, 0, true, &filter));
        rest = args_rest(c->args, 1);
    } else if (path.kind == V_ABSENT) {
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"map\" needs a filter's name or attribute=");
    }
    PL_TRY(value_items(r, c->self, &l));
    for (size_t i = 0; i < l.n; i++) {
        struct value v;

        if (filter)
            PL_TRY(builtin_run(r, filter, l.item[i], &rest, &v));
        else
            PL_TRY(get_path(r, l.item[i], path, fallback, &v));
        PL_TRY(items_add(r, &mapped, v));
    }
    return make_iter(r, &mapped, out);
}

/* Items of which a test says `want`; with a path it is the test of that. */
static pl_status choose(struct render *r, const struct call *c, bool by_path,
                        bool want, struct value *out)
{
    const struct builtin *test = NULL;
    struct args rest = {0};
    struct items kept = {0};
    struct list l;

    if (!value_truth(c->self))
        return make_iter(r, &kept, out);
    if (by_path && c->args->n == 0)
        return render_fail(r, PL_BAD_ARGUMENT, "an attribute must be named");
    if (c->args->n > by_path) {
        PL_TRY(named(r, c->args, by_path, false, &test));
        rest = args_rest(c->args, by_path + 1);
    }
    PL_TRY(value_items(r, c->self, &l));
    for (size_t i = 0; i < l.n; i++) {
        struct value v = l.item[i];

        if (by_path)
            PL_TRY(get_path(r, v, c->args->value[0],
                            (struct value){.kind = V_ABSENT}, &v));
        if (test)
            PL_TRY(builtin_run(r, test, v, &rest, &v));
        if (value_truth(v) == want)
            PL_TRY(items_add(r, &kept, l.item[i]));
        PL_TRY(render_spend(r, 1));
    }
    return make_iter(r, &kept, out);
}

static pl_status select(struct render *r, const struct call *c,
                        struct value *out)
{
    return choose(r, c, false, true, out);
}

static pl_status reject(struct render *r, const struct call *c,
                        struct value *out)
{
    return choose(r, c, false, false, out);
}

static pl_status selectattr(struct render *r, const struct call *c,
                            struct value *out)
{
    return choose(r, c, true, true, out);
}

static pl_status rejectattr(struct render *r, const struct call *c,
                            struct value *out)
{
    return choose(r, c, true, false, out);
}

const struct builtin builtin_filters[] = {
    {"abs", "", 0, absolute},
    {"attr", "name", 1, attr},
    {"batch", "linecount fill_with", 1, batch},
    {"capitalize", "", 0, capitalize},
    {"center", "width", 0, center},
    {"count", "", 0, length},
    {"d", "default_value boolean", 0, use_default},
    {"default", "default_value boolean", 0, use_default},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"e", "", 0, escape},
    {"escape", "", 0, escape},
    {"first", "", 0, first},
    {"float", "default", 0, to_float},
    {"forceescape", "", 0, forceescape},
    {"format", "*", 0, format},
    {"indent", "width first blank", 0, indent},
    {"int", "default base", 0, to_int},
    {"items", "", 0, items},
    {"join", "d attribute", 0, join},
    {"last", "", 0, last},
    {"length", "", 0, length},
    {"list", "", 0, list},
    {"lower", "", 0, lower},
    {"map", "*", 0, map},
    {"max", "case_sensitive attribute", 0, most},
    {"min", "case_sensitive attribute", 0, least},
    {"reject", "*", 0, reject},
    {"rejectattr", "*", 0, rejectattr},
    {"replace", "old new count", 2, replace},
    {"reverse", "", 0, reverse},
    {"round", "precision method", 0, round_to},
    {"safe", "", 0, safe},
    {"select", "*", 0, select},
    {"selectattr", "*", 0, selectattr},
    {"slice", "slices fill_with", 1, slice},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"string", "", 0, string},
    {"sum", "attribute start", 0, sum},
    {"title", "", 0, title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
    {"trim", "chars", 0, trim},
    {"unique", "case_sensitive attribute", 0, unique},
    {"upper", "", 0, upper},
    {"wordcount", "", 0, wordcount},
    {0},
};
