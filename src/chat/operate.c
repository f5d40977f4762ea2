/* Operators of the template language on values: Python's arithmetic,
 * comparison, membership tests, indexes and slices. */
#include "chat/render.h"

#include "chat/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- comparing values, membership tests -------------------------------- */

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

static bool equal_inner(struct render *r, struct value a, struct value b)
{
    bool same = true;

    if (value_is(a, KINDS_NUMBER) && value_is(b, KINDS_NUMBER))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch ((enum value_kind)a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_STR:
        return string_equal(a.str, b.str);
    case V_LIST:
    case V_TUPLE:
        same = a.list->n == b.list->n;
        for (size_t i = 0; i < a.list->n && same; i++)
            same = value_equal(r, a.list->item[i], b.list->item[i]);
        return same;
    case V_DICT:
        same = a.dict->n == b.dict->n;
        for (size_t i = 0; i < a.dict->n && same; i++) {
            const struct value *other = dict_find(b.dict, a.dict->pair[i].key);

            same = other && value_equal(r, a.dict->pair[i].value, *other);
        }
        return same;
    case V_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n < 1 || a.range->first == b.range->first) &&
               (a.range->n < 2 || a.range->step == b.range->step);
    default:
        /* Other values are equal only if they are the same object. */
        return a.object == b.object;
    }
}

bool value_equal(struct render *r, struct value a, struct value b)
{
    bool same;

    render_look(r, a);
    same = work_enter(&r->w) && equal_inner(r, a, b);
    r->w.left.depth++;
    return same;
}

static bool less_inner(struct render *r, struct value a, struct value b)
{
    if (value_is(a, KINDS_NUMBER) && value_is(b, KINDS_NUMBER))
        return compare_numbers(a, b) == -1;
    if (a.kind == V_STR && b.kind == V_STR) {
        size_t n = a.str->len < b.str->len ? a.str->len : b.str->len;
        int order = memcmp(a.str->s, b.str->s, n);

        return order < 0 || (order == 0 && a.str->len < b.str->len);
    }
    if (a.kind != b.kind || !value_is(a, KINDS_LIST)) {
        render_defined(r, a);
        render_defined(r, b);
        render_bad(r, "a %s and a %s cannot be ordered",
                   value_kind_name(a.kind), value_kind_name(b.kind));
        return false;
    }
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++)
        if (!value_equal(r, a.list->item[i], b.list->item[i]))
            return value_less(r, a.list->item[i], b.list->item[i]);
    return a.list->n < b.list->n;
}

bool value_less(struct render *r, struct value a, struct value b)
{
    bool less;

    render_look(r, a);
    less = work_enter(&r->w) && less_inner(r, a, b);
    r->w.left.depth++;
    return less;
}

static bool contains(struct render *r, struct value all, struct value part)
{
    bool found = false;
    struct list l;

    render_look(r, all);
    render_look(r, part);
    if (all.kind == V_STR) {
        if (part.kind == V_STR)
            return memmem(all.str->s, all.str->len, part.str->s, part.str->len);
        render_bad(r, "cannot search for a %s in a string",
                   value_kind_name(part.kind));
        return false;
    }
    if (all.kind == V_DICT) {
        if (value_is(part, 1 << V_LIST | 1 << V_DICT))
            render_wrong(r, part, "cannot be a dict key");
        return value_is(part, KINDS_KEY) && dict_find(all.dict, part);
    }
    l = value_items(r, all);
    for (size_t i = 0; i < l.n && !found; i++)
        found = value_equal(r, l.item[i], part);
    return found;
}

bool value_compare(struct render *r, enum comparison is, struct value a,
                   struct value b)
{
    int order;

    if (is == IS_EQ || is == IS_NE)
        return value_equal(r, a, b) == (is == IS_EQ);
    if (is == IS_IN || is == IS_NOT_IN)
        return contains(r, b, a) == (is == IS_IN);
    if (!value_is(a, KINDS_NUMBER) || !value_is(b, KINDS_NUMBER)) {
        bool swap = is == IS_GT || is == IS_LE;

        return value_less(r, swap ? b : a, swap ? a : b) ==
               (is == IS_LT || is == IS_GT);
    }
    order = compare_numbers(a, b);
    return order != 2 && (is == IS_LT   ? order < 0
                          : is == IS_LE ? order <= 0
                          : is == IS_GT ? order > 0
                                        : order >= 0);
}

/* ---- arithmetic operators ---------------------------------------------- */

struct value value_too_large(struct render *r)
{
    return work_fail(&r->w, PL_UNSUPPORTED,
                     "an integer has more than the supported 64 bits");
}

static struct value by_zero(struct render *r)
{
    return render_bad(r, "division by zero");
}

static struct value int_power(struct render *r, int64_t a, int64_t b)
{
    int64_t p = 1;

    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(p, a, &p))
            return value_too_large(r);
        b >>= 1;
        if (b > 0 && __builtin_mul_overflow(a, a, &a))
            return value_too_large(r);
    }
    return value_int(p);
}

static struct value int_binary(struct render *r, enum node_kind kind, int64_t a,
                               int64_t b)
{
    const bool divides =
        kind == N_DIVIDE || kind == N_DIVIDE_DOWN || kind == N_REMAINDER;
    int64_t v = 0;
    bool over = false;

    if (b == 0 ? divides : kind == N_POWER && b < 0 && a == 0)
        return by_zero(r);
    if (kind == N_DIVIDE)
        return value_float((double)a / (double)b);
    if (kind == N_POWER)
        return b < 0 ? value_float(pow((double)a, (double)b))
                     : int_power(r, a, b);
    if (kind == N_ADD) {
        over = __builtin_add_overflow(a, b, &v);
    } else if (kind == N_SUBTRACT) {
        over = __builtin_sub_overflow(a, b, &v);
    } else if (kind == N_MULTIPLY) {
        over = __builtin_mul_overflow(a, b, &v);
    } else if (b == -1) { /* INT64_MIN / -1 would overflow */
        over = kind == N_DIVIDE_DOWN && __builtin_sub_overflow(0, a, &v);
    } else {
        /* As in Python, the quotient is rounded down and the remainder has the
         * sign of b. */
        v = kind == N_REMAINDER ? a % b : a / b;
        if (a % b != 0 && (a % b < 0) != (b < 0))
            v += kind == N_REMAINDER ? b : -1;
    }
    return over ? value_too_large(r) : value_int(v);
}

static struct value float_binary(struct render *r, enum node_kind kind,
                                 double a, double b)
{
    double rest;

    switch (kind) {
    case N_ADD:
        return value_float(a + b);
    case N_SUBTRACT:
        return value_float(a - b);
    case N_MULTIPLY:
        return value_float(a * b);
    case N_POWER:
        if (a == 0 && b < 0)
            return by_zero(r);
        if (a < 0 && b != floor(b))
            return work_fail(
                &r->w, PL_UNSUPPORTED,
                "the result is a complex number, which is not supported");
        return value_float(pow(a, b));
    default:
        if (b == 0)
            return by_zero(r);
        if (kind == N_DIVIDE)
            return value_float(a / b);
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        if (kind == N_REMAINDER)
            return value_float(rest == 0 ? copysign(0, b) : rest);
        return value_float(round((a - rest) / b));
    }
}

/* Returns an array that begins with the elements of from[n] and has space for
 * `more` elements after them. It is from[] itself if its owner, which has the
 * capacity *cap, may append to it. Otherwise it is a copy; that of an array
 * with an owner has double the size, so that a template that appends to a value
 * many times copies it only a few times. Moves the capacity to *cap_out. */
static void *extended(struct render *r, const void *from, size_t n, size_t more,
                      size_t size, size_t *cap, size_t *cap_out)
{
    const size_t need = n + more;
    char *to;

    *cap_out = *cap;
    if (need > 0 && *cap >= need) {
        *cap = 0;
        memcpy(&to, &from, sizeof to);
        return to;
    }
    *cap_out = *cap > 0 ? 2 * need : need;
    work_spend(&r->w, n * size / 64);
    to = work_alloc(&r->w, *cap_out, size);
    if (to && n > 0)
        memcpy(to, from, n * size);
    return to;
}

static struct value add_strings(struct render *r, struct string *a,
                                const struct string *b)
{
    struct string s = {.len = a->len + b->len, .ascii = a->ascii && b->ascii};
    char *to = extended(r, a->s, a->len, b->len, 1, &a->cap, &s.cap);

    work_spend(&r->w, b->len / 64);
    if (!to)
        return value_str(&r->w.empty);
    if (b->len > 0)
        memcpy(to + a->len, b->s, b->len);
    s.s = to;
    return value_new(&r->w, V_STR, &s, sizeof s);
}

/* Returns the concatenation of two lists or two tuples. */
static struct value add_lists(struct render *r, struct value a, struct value b)
{
    const size_t n = a.list->n, more = b.list->n;
    struct list l = {.n = n + more};

    l.item = extended(r, a.list->item, n, more, sizeof *l.item, &a.list->cap,
                      &l.cap);
    work_spend(&r->w, more / 4);
    if (!l.item)
        return value_undefined();
    if (more > 0)
        memcpy(l.item + n, b.list->item, more * sizeof *l.item);
    return value_list(&r->w, a.kind, l);
}

/* Returns a string, list or tuple repeated `times` times. */
static struct value repeat(struct render *r, struct value v, int64_t times)
{
    const bool text = v.kind == V_STR;
    const size_t each = text ? v.str->len : v.list->n * sizeof(struct value);
    const size_t n = each > 0 && times > 0 ? (size_t)times : 0;
    char *to = work_alloc(&r->w, n, each);

    if (!to)
        return value_undefined();
    work_spend(&r->w, n * each / 64 + n);
    for (size_t i = 0; i < n && r->w.status == PL_OK; i++)
        memcpy(to + i * each, text ? v.str->s : (const char *)v.list->item,
               each);
    if (text)
        return value_view(&r->w, to, n * each);
    return value_list(
        &r->w, v.kind,
        (struct list){.n = n * v.list->n, .item = (struct value *)(void *)to});
}

static struct value binary_plain(struct render *r, enum node_kind kind,
                                 struct value a, struct value b)
{
    static const char *const names[] = {
        [N_ADD] = "+",    [N_SUBTRACT] = "-",     [N_MULTIPLY] = "*",
        [N_DIVIDE] = "/", [N_DIVIDE_DOWN] = "//", [N_REMAINDER] = "%",
        [N_POWER] = "**",
    };

    if (value_is(a, KINDS_INT) && value_is(b, KINDS_INT))
        return int_binary(r, kind, value_as_int(a), value_as_int(b));
    if (value_is(a, KINDS_NUMBER) && value_is(b, KINDS_NUMBER))
        return float_binary(r, kind, value_as_float(a), value_as_float(b));
    if (kind == N_REMAINDER && a.kind == V_STR)
        return format_percent(r, a, b);
    render_defined(r, a);
    render_defined(r, b);
    if (kind == N_ADD && a.kind == V_STR && b.kind == V_STR)
        return add_strings(r, a.str, b.str);
    if (kind == N_ADD && a.kind == b.kind && value_is(a, KINDS_LIST))
        return add_lists(r, a, b);
    if (kind == N_MULTIPLY && value_is(a, KINDS_SEQUENCE) &&
        value_is(b, KINDS_INT))
        return repeat(r, a, value_as_int(b));
    if (kind == N_MULTIPLY && value_is(a, KINDS_INT) &&
        value_is(b, KINDS_SEQUENCE))
        return repeat(r, b, value_as_int(a));
    return render_bad(r, "\"%s\" is not supported between a %s and a %s",
                      names[kind], value_kind_name(a.kind),
                      value_kind_name(b.kind));
}

struct value value_binary(struct render *r, enum node_kind kind, struct value a,
                          struct value b)
{
    bool marked =
        value_is_markup(a) || (value_is_markup(b) && kind != N_REMAINDER);

    if (!marked)
        return binary_plain(r, kind, a, b);
    if (kind == N_ADD && a.kind == V_STR && b.kind == V_STR) {
        a = markup_escape(r, a, false);
        b = markup_escape(r, b, false);
    }
    return markup(binary_plain(r, kind, a, b));
}

struct value value_negate(struct render *r, bool minus, struct value v)
{
    if (!value_is(v, KINDS_NUMBER))
        return render_wrong(r, v, "cannot be negated");
    if (v.kind == V_FLOAT)
        return value_float(minus ? -value_as_float(v) : value_as_float(v));
    return int_binary(r, minus ? N_SUBTRACT : N_ADD, 0, value_as_int(v));
}

/* ---- length of a value, and its items ---------------------------------- */

int64_t value_length(struct render *r, struct value v)
{
    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STR:
        work_spend(&r->w, v.str->ascii ? 0 : v.str->len / 64);
        return (int64_t)(v.str->ascii ? v.str->len
                                      : unicode_count(v.str->s, v.str->len));
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        return (int64_t)v.list->n;
    case V_DICT:
        return (int64_t)v.dict->n;
    case V_RANGE:
        return v.range->n;
    case V_LOOP:
        return value_length(r, v.loop->items);
    default:
        render_wrong(r, v, "has no length");
        return 0;
    }
}

struct value value_at(struct value v, int64_t i)
{
    return v.kind == V_RANGE ? value_int(v.range->first + i * v.range->step)
                             : v.list->item[i];
}

static struct list characters(struct render *r, const struct string *s)
{
    const size_t n = s->ascii ? s->len : unicode_count(s->s, s->len);
    struct list l = list_with(&r->w, n);

    work_spend(&r->w, n);
    for (size_t i = 0, at = 0, len; i < l.cap; i++, at += len) {
        uint32_t c;

        len = unicode_get(s->s + at, s->len - at, &c);
        list_add(&r->w, &l, value_view(&r->w, s->s + at, len));
    }
    return l;
}

struct list value_items(struct render *r, struct value v)
{
    struct list l = {0};

    switch ((enum value_kind)v.kind) {
    case V_UNDEFINED:
        return l;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        return (struct list){.n = v.list->n, .item = v.list->item};
    case V_STR:
        return characters(r, v.str);
    case V_ITER:
        r->n_event++;
        if (v.iter->at < v.iter->list.n)
            l = (struct list){.n = v.iter->list.n - v.iter->at,
                              .item = v.iter->list.item + v.iter->at};
        v.iter->at = v.iter->list.n;
        return l;
    case V_DICT:
        l = list_with(&r->w, v.dict->n);
        for (size_t i = 0; i < l.cap; i++)
            list_add(&r->w, &l, v.dict->pair[i].key);
        return l;
    case V_RANGE:
        l = list_with(&r->w, (size_t)v.range->n);
        for (size_t i = 0; i < l.cap; i++)
            list_add(&r->w, &l, value_at(v, (int64_t)i));
        return l;
    default:
        render_wrong(r, v, "has no items");
        return l;
    }
}

/* ---- attributes, indexes and slices ------------------------------------ */

/* Converts the slice `part` (first, end, step) of a sequence of `len` items to
 * indices. The slice has the returned number of indices *first, *first + *step,
 * *first + 2 * *step, and so on. */
static int64_t slice_bounds(struct render *r, const struct value part[3],
                            int64_t len, int64_t *first, int64_t *step)
{
    int64_t at[3];

    for (int i = 0; i < 3; i++) {
        at[i] = value_is(part[i], KINDS_INT) ? value_as_int(part[i]) : 0;
        render_defined(r, part[i]);
        if (!value_is(part[i], KINDS_INT | 1 << V_NONE))
            render_bad(r, "slice indices must be integers, not a %s",
                       value_kind_name(part[i].kind));
    }
    *step = part[2].kind == V_NONE ? 1 : at[2];
    if (*step == 0)
        render_bad(r, "the step of a slice is 0");
    *first = 0;
    if (r->w.status != PL_OK)
        return 0;
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
    /* A larger step would overflow when it is added to an index. */
    if (*step > len || *step < -len)
        *step = *step > 0 ? len + 1 : -len - 1;
    if (*step > 0)
        return at[1] > at[0] ? (at[1] - at[0] - 1) / *step + 1 : 0;
    return at[1] < at[0] ? (at[0] - at[1] - 1) / -*step + 1 : 0;
}

static struct value slice_string(struct render *r, const struct string *s,
                                 int64_t first, int64_t step, int64_t n)
{
    size_t from = r->n_out;
    struct list l;

    if (n == 0)
        return value_view(&r->w, s->s, 0);
    if (step == 1) {
        size_t a = (size_t)first, b = (size_t)n;

        if (!s->ascii) {
            a = unicode_offset(s->s, s->len, a);
            b = unicode_offset(s->s + a, s->len - a, b);
        }
        return value_view(&r->w, s->s + a, b);
    }
    l = characters(r, s);
    for (int64_t i = 0; i < n && l.n > 0; i++)
        put_str(r, l.item[first + i * step]);
    return render_take(r, from);
}

struct value value_slice(struct render *r, struct value v,
                         const struct value part[3])
{
    int64_t first, step, n;
    struct list all, l = {0};

    if (!value_is(v, KINDS_SEQUENCE | 1 << V_RANGE))
        return render_wrong(r, v, "cannot be sliced");
    n = slice_bounds(r, part, value_length(r, v), &first, &step);
    if (v.kind == V_STR)
        return markup_like(v, slice_string(r, v.str, first, step, n));
    all = value_items(r, v);
    if (n > 0 && step == 1 && all.n > 0)
        /* The slice shares the array of the list, because some templates take a
         * slice for each message. */
        l = (struct list){.n = (size_t)n, .item = all.item + first};
    work_spend(&r->w, step == 1 ? 0 : (uint64_t)n / 4);
    for (int64_t i = 0; i < n && step != 1 && all.n > 0; i++)
        list_add(&r->w, &l, all.item[first + i * step]);
    return value_list(&r->w, v.kind == V_RANGE ? V_LIST : v.kind, l);
}

/* Returns the attribute `name` of the variable `loop`; `none` if there is no
 * such attribute. */
static struct value loop_attribute(struct render *r, const struct loop *l,
                                   const struct string *name, struct value none)
{
    int64_t at = l->at, n = value_length(r, l->items);
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
        {"previtem", at > 0 ? value_at(l->items, at - 1) : none},
        {"nextitem", at < n - 1 ? value_at(l->items, at + 1) : none},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (string_is(name, row[i].name))
            return row[i].value;
    return none;
}

struct value value_attribute(struct render *r, struct value of,
                             struct string *name)
{
    const struct value none = {
        .kind = V_UNDEFINED, .sub = of.kind, .str = name};
    const struct builtin *row = builtin_method(of.kind, name);
    const struct value *found = NULL;

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    if (row && row->run)
        return value_new(&r->w, V_METHOD, &(struct method){of, row},
                         sizeof(struct method));
    if (row)
        return none;
    if (of.kind == V_LOOP)
        return loop_attribute(r, of.loop, name, none);
    if (of.kind == V_TUPLE && of.sub == TUPLE_GROUP &&
        (string_is(name, "grouper") || string_is(name, "list")))
        return of.list->item[string_is(name, "list")];
    if (of.kind == V_CYCLER && string_is(name, "current"))
        return of.cycler->list.item[of.cycler->at];
    if (of.kind == V_DICT || of.kind == V_NAMESPACE)
        found = dict_find(of.dict, value_str(name));
    return found ? *found : none;
}

struct value value_item(struct render *r, struct value of, struct value index)
{
    const struct value *found = NULL;

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    render_look(r, index);
    if (value_is(index, KINDS_INT) &&
        value_is(of, KINDS_SEQUENCE | 1 << V_RANGE)) {
        int64_t at = value_as_int(index), len = value_length(r, of);

        at += at < 0 ? len : 0;
        if (at >= 0 && at < len)
            return of.kind == V_STR
                       ? markup_like(of, slice_string(r, of.str, at, 1, 1))
                       : value_at(of, at);
        index = value_int(at);
    }
    if (of.kind == V_DICT && value_is(index, KINDS_KEY))
        found = dict_find(of.dict, index);
    if (found)
        return *found;
    if (index.kind == V_STR)
        return value_attribute(r, of, index.str);
    return (struct value){
        .kind = V_UNDEFINED, .sub = of.kind, .str = str_of(r, index)};
}

/* ---- sorting values ---------------------------------------------------- */

/* Merges p[0 .. half) and p[half .. n), each sorted by key, into one sorted
 * array. t[0 .. n) is scratch space. */
static void merge(struct render *r, struct pair *p, size_t half, size_t n,
                  bool reverse, struct pair *t)
{
    size_t a = 0, b = half;

    for (size_t i = 0; i < n; i++) {
        bool second = a == half;

        if (a < half && b < n)
            second = value_less(r, reverse ? p[a].key : p[b].key,
                                reverse ? p[b].key : p[a].key);
        t[i] = second ? p[b++] : p[a++];
    }
    memcpy(p, t, n * sizeof *p);
}

void sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse)
{
    struct pair *t = work_alloc(&r->w, n, sizeof *t);

    for (size_t half = 1; t && half < n; half *= 2)
        for (size_t at = 0; at + half < n; at += 2 * half)
            merge(r, p + at, half, n - at < 2 * half ? n - at : 2 * half,
                  reverse, t);
}
