/* Operators of the template language on values: Python's arithmetic,
 * comparison, membership tests, indexes and slices. */
#include "chat/render.h"

#include "base/err.h"
#include "chat/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- comparing values, membership tests -------------------------------- */

static pl_status lists_equal(struct render *r, const struct list *a,
                             const struct list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++)
        PL_TRY(value_equal(r, a->item[i], b->item[i], out));
    return PL_OK;
}

static pl_status dicts_equal(struct render *r, const struct dict *a,
                             const struct dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        struct value *other = dict_find(b, a->pair[i].key);

        *out = other != NULL;
        if (other)
            PL_TRY(value_equal(r, a->pair[i].value, *other, out));
    }
    return PL_OK;
}

static int compare_numbers(struct value a, struct value b)
{
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) {
        double x = value_as_float(a), y = value_as_float(b);

        /* 2 means not ordered, because one of them is NaN. */
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    return (value_as_int(a) > value_as_int(b)) -
           (value_as_int(a) < value_as_int(b));
}

static pl_status equal_inner(struct render *r, struct value a, struct value b,
                             bool *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return PL_OK;
    }
    *out = a.kind == b.kind;
    if (!*out)
        return PL_OK;
    switch ((enum value_kind)a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return PL_OK;
    case V_STR:
        *out = string_equal(a.str, b.str);
        return PL_OK;
    case V_LIST:
    case V_TUPLE:
        return lists_equal(r, a.list, b.list, out);
    case V_DICT:
        return dicts_equal(r, a.dict, b.dict, out);
    case V_RANGE:
        *out = a.range->n == b.range->n &&
               (a.range->n < 1 || a.range->first == b.range->first) &&
               (a.range->n < 2 || a.range->step == b.range->step);
        return PL_OK;
    default:
        /* Other values are equal only if they are the same object. */
        *out = a.list == b.list;
        return PL_OK;
    }
}

pl_status value_equal(struct render *r, struct value a, struct value b,
                      bool *out)
{
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_look(r, a));
    PL_TRY(render_deeper(r));
    PL_TRY(equal_inner(r, a, b, out));
    r->left.depth++;
    return PL_OK;
}

static pl_status no_order(struct render *r, struct value a, struct value b)
{
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        return render_undefined(r, a.kind == V_UNDEFINED ? a : b);
    return render_fail(r, PL_BAD_ARGUMENT, "a %s and a %s cannot be ordered",
                       value_kind_name(a.kind), value_kind_name(b.kind));
}

static pl_status less_inner(struct render *r, struct value a, struct value b,
                            bool *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        *out = compare_numbers(a, b) == -1;
        return PL_OK;
    }
    if (a.kind == V_STR && b.kind == V_STR) {
        size_t n = a.str->len < b.str->len ? a.str->len : b.str->len;
        int order = memcmp(a.str->s, b.str->s, n);

        *out = order < 0 || (order == 0 && a.str->len < b.str->len);
        return PL_OK;
    }
    if (a.kind != b.kind || (a.kind != V_LIST && a.kind != V_TUPLE))
        return no_order(r, a, b);
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
        bool same;

        PL_TRY(value_equal(r, a.list->item[i], b.list->item[i], &same));
        if (!same)
            return value_less(r, a.list->item[i], b.list->item[i], out);
    }
    *out = a.list->n < b.list->n;
    return PL_OK;
}

pl_status value_less(struct render *r, struct value a, struct value b,
                     bool *out)
{
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_look(r, a));
    PL_TRY(render_deeper(r));
    PL_TRY(less_inner(r, a, b, out));
    r->left.depth++;
    return PL_OK;
}

pl_status value_contains(struct render *r, struct value all, struct value part,
                         bool *out)
{
    struct list l;

    *out = false;
    PL_TRY(render_look(r, all));
    PL_TRY(render_look(r, part));
    if (all.kind == V_STR) {
        if (part.kind != V_STR)
            return render_fail(r, PL_BAD_ARGUMENT,
                               "cannot search for a %s in a string",
                               value_kind_name(part.kind));
        *out = memmem(all.str->s, all.str->len, part.str->s, part.str->len) !=
               NULL;
        return PL_OK;
    }
    if (all.kind == V_DICT) {
        if (part.kind == V_LIST || part.kind == V_DICT)
            return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be a dict key",
                               value_kind_name(part.kind));
        *out = value_is_key(part) && dict_find(all.dict, part);
        return PL_OK;
    }
    PL_TRY(value_items(r, all, &l));
    for (size_t i = 0; i < l.n && !*out; i++)
        PL_TRY(value_equal(r, l.item[i], part, out));
    return PL_OK;
}

pl_status value_compare(struct render *r, enum comparison is, struct value a,
                        struct value b, bool *out)
{
    int order;

    if (is == IS_EQ || is == IS_NE) {
        PL_TRY(value_equal(r, a, b, out));
        *out = *out == (is == IS_EQ);
        return PL_OK;
    }
    if (is == IS_IN || is == IS_NOT_IN) {
        PL_TRY(value_contains(r, b, a, out));
        *out = *out == (is == IS_IN);
        return PL_OK;
    }
    if (!value_is_number(a) || !value_is_number(b)) {
        bool swap = is == IS_GT || is == IS_LE;

        PL_TRY(value_less(r, swap ? b : a, swap ? a : b, out));
        *out = *out == (is == IS_LT || is == IS_GT);
        return PL_OK;
    }
    order = compare_numbers(a, b);
    *out = order != 2 && (is == IS_LT   ? order < 0
                          : is == IS_LE ? order <= 0
                          : is == IS_GT ? order > 0
                                        : order >= 0);
    return PL_OK;
}

/* ---- arithmetic operators ---------------------------------------------- */

static pl_status too_large(struct render *r)
{
    return render_fail(r, PL_UNSUPPORTED,
                       "an integer has more than the supported 64 bits");
}

static pl_status by_zero(struct render *r)
{
    return render_fail(r, PL_BAD_ARGUMENT, "division by zero");
}

static pl_status int_power(struct render *r, int64_t a, int64_t b,
                           struct value *out)
{
    int64_t p = 1;

    if (b < 0) {
        if (a == 0)
            return by_zero(r);
        *out = value_float(pow((double)a, (double)b));
        return PL_OK;
    }
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(p, a, &p))
            return too_large(r);
        b >>= 1;
        if (b > 0 && __builtin_mul_overflow(a, a, &a))
            return too_large(r);
    }
    *out = value_int(p);
    return PL_OK;
}

static pl_status int_binary(struct render *r, enum node_kind kind, int64_t a,
                            int64_t b, struct value *out)
{
    int64_t v = 0;
    bool over = false;

    switch (kind) {
    case N_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case N_SUBTRACT:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case N_MULTIPLY:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case N_POWER:
        return int_power(r, a, b, out);
    case N_DIVIDE:
        if (b == 0)
            return by_zero(r);
        *out = value_float((double)a / (double)b);
        return PL_OK;
    /* For N_DIVIDE_DOWN and N_REMAINDER: as in Python, the quotient is rounded
     * down and the remainder has the sign of b. */
    default:
        if (b == 0)
            return by_zero(r);
        over = a == INT64_MIN && b == -1;
        if (over && kind == N_REMAINDER) {
            over = false;
        } else if (!over) {
            v = kind == N_REMAINDER ? a % b : a / b;
            if (a % b != 0 && (a % b < 0) != (b < 0))
                v += kind == N_REMAINDER ? b : -1;
        }
    }
    *out = value_int(v);
    return over ? too_large(r) : PL_OK;
}

static pl_status float_binary(struct render *r, enum node_kind kind, double a,
                              double b, struct value *out)
{
    double rest;

    switch (kind) {
    case N_ADD:
        *out = value_float(a + b);
        return PL_OK;
    case N_SUBTRACT:
        *out = value_float(a - b);
        return PL_OK;
    case N_MULTIPLY:
        *out = value_float(a * b);
        return PL_OK;
    case N_POWER:
        if (a == 0 && b < 0)
            return by_zero(r);
        if (a < 0 && b != floor(b))
            return render_fail(
                r, PL_UNSUPPORTED,
                "the result is a complex number, which is not supported");
        *out = value_float(pow(a, b));
        return PL_OK;
    default:
        if (b == 0)
            return by_zero(r);
        if (kind == N_DIVIDE) {
            *out = value_float(a / b);
            return PL_OK;
        }
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        if (kind == N_REMAINDER)
            *out = value_float(rest == 0 ? copysign(0, b) : rest);
        else
            *out = value_float(round((a - rest) / b));
        return PL_OK;
    }
}

static pl_status add_strings(struct render *r, const struct string *a,
                             const struct string *b, struct value *out)
{
    char *s;

    PL_TRY(render_alloc(r, a->len + b->len, 1, &s));
    if (a->len > 0)
        memcpy(s, a->s, a->len);
    if (b->len > 0)
        memcpy(s + a->len, b->s, b->len);
    return render_view(r, s, a->len + b->len, out);
}

/* Sets *out to the concatenation of two lists or two tuples. */
static pl_status add_lists(struct render *r, struct value a, struct value b,
                           struct value *out)
{
    struct list *l;

    PL_TRY(render_list(r, a.list->n + b.list->n, &l));
    memcpy(l->item, a.list->item, a.list->n * sizeof *l->item);
    memcpy(l->item + a.list->n, b.list->item, b.list->n * sizeof *l->item);
    *out = (struct value){.kind = a.kind, .list = l};
    return render_spend(r, l->n / 4);
}

/* Sets *out to a string, list or tuple repeated `times` times. */
static pl_status repeat(struct render *r, struct value v, int64_t times,
                        struct value *out)
{
    size_t n = times > 0 ? (size_t)times : 0, each, all;
    char *to;

    each = v.kind == V_STR ? v.str->len : v.list->n * sizeof(struct value);
    if (each == 0)
        n = 0;
    PL_TRY(render_alloc(r, n, each, &to));
    all = n * each;
    PL_TRY(render_spend(r, all / 64 + n));
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * each,
               v.kind == V_STR ? v.str->s : (const char *)v.list->item, each);
    if (v.kind == V_STR)
        return render_view(r, to, all, out);
    out->kind = v.kind;
    PL_TRY(render_alloc(r, 1, sizeof *out->list, &out->list));
    out->list->n = all / sizeof(struct value);
    out->list->item = (struct value *)(void *)to;
    return PL_OK;
}

static bool is_sequence(struct value v)
{
    return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE;
}

static bool is_int(struct value v)
{
    return v.kind == V_INT || v.kind == V_BOOL;
}

static pl_status binary_plain(struct render *r, enum node_kind kind,
                              struct value a, struct value b, struct value *out)
{
    static const char *const names[] = {
        [N_ADD] = "+",    [N_SUBTRACT] = "-",     [N_MULTIPLY] = "*",
        [N_DIVIDE] = "/", [N_DIVIDE_DOWN] = "//", [N_REMAINDER] = "%",
        [N_POWER] = "**",
    };

    if (is_int(a) && is_int(b))
        return int_binary(r, kind, value_as_int(a), value_as_int(b), out);
    if (value_is_number(a) && value_is_number(b))
        return float_binary(r, kind, value_as_float(a), value_as_float(b), out);
    if (kind == N_REMAINDER && a.kind == V_STR)
        return format_percent(r, a.str, b, out);
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        return render_undefined(r, a.kind == V_UNDEFINED ? a : b);
    if (kind == N_ADD && a.kind == V_STR && b.kind == V_STR)
        return add_strings(r, a.str, b.str, out);
    if (kind == N_ADD && a.kind == b.kind && is_sequence(a))
        return add_lists(r, a, b, out);
    if (kind == N_MULTIPLY && is_sequence(a) && is_int(b))
        return repeat(r, a, value_as_int(b), out);
    if (kind == N_MULTIPLY && is_int(a) && is_sequence(b))
        return repeat(r, b, value_as_int(a), out);
    return render_fail(
        r, PL_BAD_ARGUMENT, "\"%s\" is not supported between a %s and a %s",
        names[kind], value_kind_name(a.kind), value_kind_name(b.kind));
}

pl_status value_binary(struct render *r, enum node_kind kind, struct value a,
                       struct value b, struct value *out)
{
    bool marked =
        value_is_markup(a) || (value_is_markup(b) && kind != N_REMAINDER);

    if (marked)
        PL_TRY(markup_operands(r, kind, &a, &b));
    PL_TRY(binary_plain(r, kind, a, b, out));
    if (marked)
        *out = markup(*out);
    return PL_OK;
}

pl_status value_negate(struct render *r, bool minus, struct value v,
                       struct value *out)
{
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (!value_is_number(v))
        return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be negated",
                           value_kind_name(v.kind));
    if (v.kind == V_FLOAT)
        *out = value_float(minus ? -value_as_float(v) : value_as_float(v));
    else if (minus && value_as_int(v) == INT64_MIN)
        return too_large(r);
    else
        *out = value_int(minus ? -value_as_int(v) : value_as_int(v));
    return PL_OK;
}

/* ---- length of a value, and its items ---------------------------------- */

pl_status value_length(struct render *r, struct value v, int64_t *out)
{
    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        *out = 0;
        return PL_OK;
    case V_STR:
        PL_TRY(render_spend(r, v.str->ascii ? 0 : v.str->len / 64));
        *out = (int64_t)(v.str->ascii ? v.str->len
                                      : unicode_count(v.str->s, v.str->len));
        return PL_OK;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        *out = (int64_t)v.list->n;
        return PL_OK;
    case V_DICT:
        *out = (int64_t)v.dict->n;
        return PL_OK;
    case V_RANGE:
        *out = v.range->n;
        return PL_OK;
    case V_LOOP:
        *out = (int64_t)v.loop->list->n;
        return PL_OK;
    default:
        return render_fail(r, PL_BAD_ARGUMENT, "a %s has no length",
                           value_kind_name(v.kind));
    }
}

static pl_status characters(struct render *r, const struct string *s,
                            struct list *out)
{
    size_t n = s->ascii ? s->len : unicode_count(s->s, s->len), at = 0;
    struct list *l;

    PL_TRY(render_list(r, n, &l));
    for (size_t i = 0; i < n; i++) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);

        PL_TRY(render_view(r, s->s + at, len, &l->item[i]));
        at += len;
    }
    *out = *l;
    return render_spend(r, n);
}

pl_status value_items(struct render *r, struct value v, struct list *out)
{
    struct list *l;

    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        PL_TRY(render_list(r, 0, &l));
        *out = *l;
        return PL_OK;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        *out = (struct list){.n = v.list->n, .item = v.list->item};
        return PL_OK;
    case V_STR:
        return characters(r, v.str, out);
    case V_ITER:
        out->item = v.iter->list.item + v.iter->at;
        out->n = v.iter->list.n - v.iter->at;
        v.iter->at = v.iter->list.n;
        return PL_OK;
    case V_DICT:
        PL_TRY(render_list(r, v.dict->n, &l));
        for (size_t i = 0; i < l->n; i++)
            l->item[i] = v.dict->pair[i].key;
        *out = *l;
        return PL_OK;
    case V_RANGE:
        PL_TRY(render_list(r, (size_t)v.range->n, &l));
        for (size_t i = 0; i < l->n; i++)
            l->item[i] = value_int(v.range->first + (int64_t)i * v.range->step);
        *out = *l;
        return PL_OK;
    default:
        return render_fail(r, PL_BAD_ARGUMENT, "a %s has no items",
                           value_kind_name(v.kind));
    }
}

/* ---- attributes, indexes and slices ------------------------------------ */

/* Converts the slice `part` (first, end, step) of a sequence of `len` items to
 * indices. The slice has the *n indices *first, *first + *step, *first + 2 *
 * *step, and so on. */
static pl_status slice_bounds(struct render *r, const struct value part[3],
                              int64_t len, int64_t *first, int64_t *step,
                              int64_t *n)
{
    int64_t at[3], end;

    *first = *n = 0;
    for (int i = 0; i < 3; i++) {
        at[i] = is_int(part[i]) ? value_as_int(part[i]) : 0;
        if (part[i].kind == V_UNDEFINED)
            return render_undefined(r, part[i]);
        if (part[i].kind != V_NONE && !is_int(part[i]))
            return render_fail(r, PL_BAD_ARGUMENT,
                               "slice indices must be integers, not a %s",
                               value_kind_name(part[i].kind));
    }
    *step = part[2].kind == V_NONE ? 1 : at[2];
    if (*step == 0)
        return render_fail(r, PL_BAD_ARGUMENT, "the step of a slice is 0");
    for (int i = 0; i < 2; i++) {
        int64_t least = *step > 0 ? 0 : -1;
        int64_t most = *step > 0 ? len : len - 1;

        if (part[i].kind == V_NONE)
            at[i] = (*step > 0) == (i == 0) ? least : most;
        else if (at[i] < 0)
            at[i] = at[i] + len < least ? least : at[i] + len;
        else if (at[i] > most)
            at[i] = most;
    }
    *first = at[0];
    end = at[1];
    if (*step > len) /* a larger step would overflow when it is added to an
                        index */
        *step = len + 1;
    if (*step < -len)
        *step = -len - 1;
    if (*step > 0)
        *n = end > *first ? (end - *first - 1) / *step + 1 : 0;
    else
        *n = end < *first ? (*first - end - 1) / -*step + 1 : 0;
    return PL_OK;
}

static pl_status slice_string(struct render *r, const struct string *s,
                              int64_t first, int64_t step, int64_t n,
                              struct value *out)
{
    size_t from = r->n_out;
    struct list l;

    if (step == 1) {
        size_t a = (size_t)first, b = (size_t)n;

        if (!s->ascii) {
            a = unicode_offset(s->s, s->len, a);
            b = unicode_offset(s->s + a, s->len - a, b);
        }
        return render_view(r, s->s + (n > 0 ? a : 0), n > 0 ? b : 0, out);
    }
    PL_TRY(characters(r, s, &l));
    for (int64_t i = 0; i < n; i++) {
        const struct string *c = l.item[first + i * step].str;

        PL_TRY(render_put(r, c->s, c->len));
    }
    return render_take(r, from, out);
}

pl_status value_slice(struct render *r, struct value v,
                      const struct value part[3], struct value *out)
{
    int64_t len, first, step, n;
    struct list all, *l;

    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (!is_sequence(v) && v.kind != V_RANGE)
        return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be sliced",
                           value_kind_name(v.kind));
    PL_TRY(value_length(r, v, &len));
    PL_TRY(slice_bounds(r, part, len, &first, &step, &n));
    if (v.kind == V_STR) {
        PL_TRY(slice_string(r, v.str, first, step, n, out));
        *out = markup_like(v, *out);
        return PL_OK;
    }
    PL_TRY(value_items(r, v, &all));
    PL_TRY(render_list(r, step == 1 ? 0 : (size_t)n, &l));
    if (step == 1) /* the slice shares the array of the list, because some
                      templates take a slice for each message */
        *l = (struct list){.n = (size_t)n, .item = all.item + first};
    for (int64_t i = 0; i < n && step != 1; i++)
        l->item[i] = all.item[first + i * step];
    PL_TRY(render_spend(r, step == 1 ? 0 : (uint64_t)n / 4));
    *out =
        (struct value){.kind = v.kind == V_RANGE ? V_LIST : v.kind, .list = l};
    return PL_OK;
}

/* Sets *out to the attribute `name` of the variable `loop`. If there is no such
 * attribute, leaves *out unchanged, which is an undefined value. */
static void loop_attribute(const struct loop *l, const struct string *name,
                           struct value *out)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->list->n;
    const struct {
        const char *name;
        struct value value;
    } row[] = {
        {"index", value_int(at + 1)},
        {"index0", value_int(at)},
        {"first", value_bool(at == 0)},
        {"last", value_bool(at == n - 1)},
        {"length", value_int(n)},
        {"revindex", value_int(n - at)},
        {"revindex0", value_int(n - at - 1)},
        {"depth", value_int(l->depth)},
        {"depth0", value_int(l->depth - 1)},
        {"previtem", at > 0 ? l->list->item[at - 1] : *out},
        {"nextitem", at < n - 1 ? l->list->item[at + 1] : *out},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (string_is(name, row[i].name)) {
            *out = row[i].value;
            return;
        }
}

pl_status value_attribute(struct render *r, struct value of,
                          struct string *name, struct value *out)
{
    const struct builtin *row = builtin_method(of.kind, name);
    struct value *found = NULL;

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    *out = (struct value){.kind = V_UNDEFINED, .sub = of.kind, .str = name};
    if (row && !row->run)
        return PL_OK;
    if (row) {
        struct method *m;

        PL_TRY(render_alloc(r, 1, sizeof *m, &m));
        *m = (struct method){of, row};
        *out = (struct value){.kind = V_METHOD, .method = m};
        return PL_OK;
    }
    if (of.kind == V_LOOP)
        loop_attribute(of.loop, name, out);
    if (of.kind == V_TUPLE && of.sub == TUPLE_GROUP &&
        (string_is(name, "grouper") || string_is(name, "list")))
        *out = of.list->item[string_is(name, "list")];
    if (of.kind == V_CYCLER && string_is(name, "current"))
        *out = of.cycler->list->item[of.cycler->at];
    if (of.kind == V_DICT || of.kind == V_NAMESPACE)
        found = dict_find(of.dict, value_str(name));
    if (found)
        *out = *found;
    return PL_OK;
}

/* Sets *out to the item with index `at` of a string, list, tuple or range. A
 * negative index counts from the end. */
static pl_status item_at(struct render *r, struct value of, int64_t at,
                         struct value *out)
{
    int64_t len;

    PL_TRY(value_length(r, of, &len));
    if (at < 0)
        at += len;
    if (at < 0 || at >= len) {
        char text[32];
        struct value name;

        snprintf(text, sizeof text, "%" PRId64, at);
        PL_TRY(render_string(r, text, strlen(text), &name));
        *out = (struct value){
            .kind = V_UNDEFINED, .sub = of.kind, .str = name.str};
        return PL_OK;
    }
    if (of.kind == V_STR) {
        PL_TRY(slice_string(r, of.str, at, 1, 1, out));
        *out = markup_like(of, *out);
        return PL_OK;
    }
    *out = of.kind == V_RANGE ? value_int(of.range->first + at * of.range->step)
                              : of.list->item[at];
    return PL_OK;
}

pl_status value_item(struct render *r, struct value of, struct value index,
                     struct value *out)
{
    struct string *name;

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    PL_TRY(render_look(r, index));
    if (is_int(index) && (is_sequence(of) || of.kind == V_RANGE))
        return item_at(r, of, value_as_int(index), out);
    if (of.kind == V_DICT && value_is_key(index)) {
        struct value *found = dict_find(of.dict, index);

        if (found) {
            *out = *found;
            return PL_OK;
        }
    }
    if (index.kind == V_STR)
        return value_attribute(r, of, index.str, out);
    PL_TRY(str_of(r, index, &name));
    *out = (struct value){.kind = V_UNDEFINED, .sub = of.kind, .str = name};
    return PL_OK;
}

/* ---- sorting values ---------------------------------------------------- */

/* Merges p[0 .. half) and p[half .. n), each sorted by key, into one sorted
 * array. t[0 .. n) is scratch space. */
static pl_status merge(struct render *r, struct pair *p, size_t half, size_t n,
                       bool reverse, struct pair *t)
{
    size_t a = 0, b = half;

    for (size_t i = 0; i < n; i++) {
        bool second = a == half;

        if (a < half && b < n)
            PL_TRY(value_less(r, reverse ? p[a].key : p[b].key,
                              reverse ? p[b].key : p[a].key, &second));
        t[i] = second ? p[b++] : p[a++];
    }
    memcpy(p, t, n * sizeof *p);
    return PL_OK;
}

pl_status sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse)
{
    struct pair *t;

    PL_TRY(render_alloc(r, n, sizeof *t, &t));
    for (size_t half = 1; half < n; half *= 2)
        for (size_t at = 0; at + half < n; at += 2 * half)
            PL_TRY(merge(r, p + at, half, n - at < 2 * half ? n - at : 2 * half,
                         reverse, t));
    return PL_OK;
}
