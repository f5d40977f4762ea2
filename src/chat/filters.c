/* Filters of lists, dicts and values of any type, x|name(arguments), in the
 * template language. Filters of texts and numbers are in filters_text.c. */
#include "chat/strings.h"

#include "base/err.h"

#include <string.h>

/* ---- filters for defaults, sizes and attributes ------------------------ */

static struct value use_default(struct render *r, const struct call *c)
{
    if (c->self.kind != V_UNDEFINED &&
        !(c->arg[1].truth && !value_truth(c->self)))
        return c->self;
    return c->arg[0].kind == V_ABSENT ? value_str(&r->w.empty) : c->arg[0];
}

static struct value length(struct render *r, const struct call *c)
{
    return value_int(value_length(r, c->self));
}

/* The filters first and last (`what` is true). */
static struct value end_item(struct render *r, const struct call *c)
{
    if (c->what && c->self.kind == V_ITER)
        render_bad(r, "a generator has no last item; convert it with \"list\"");
    if (c->l.n == 0)
        return value_undefined();
    return c->l.item[c->what ? c->l.n - 1 : 0];
}

/* Returns the next part of *s, before the character `by`, and removes both from
 * *s. Sets s->s to NULL after the last part. */
static struct value next_part(struct render *r, struct string *s, char by)
{
    const char *end = memchr(s->s, by, s->len);
    const size_t n = end ? (size_t)(end - s->s) : s->len;
    const struct value part = value_view(&r->w, s->s, n);

    s->s = end ? end + 1 : NULL;
    s->len -= n + (end != NULL);
    return part;
}

/* Returns the item in `of` to which `path` leads: of.a.b for "a.b", of[0] for
 * "0" or the integer 0; `of` itself if there is no path. If an item does not
 * exist, it is `fallback`, unless that is absent or None. */
static struct value get_path(struct render *r, struct value of,
                             struct value path, struct value fallback)
{
    const bool falls = !value_is(fallback, 1 << V_ABSENT | 1 << V_NONE);
    const bool names = path.kind == V_STR;
    struct string s = names ? *path.str : (struct string){0};

    if (path.kind == V_ABSENT)
        return of;
    do {
        const struct value part = names ? next_part(r, &s, '.') : path;
        const int64_t i = names ? string_index(part.str) : -1;

        of = value_item(r, of, i >= 0 ? value_int(i) : part);
        if (falls && of.kind == V_UNDEFINED)
            of = fallback;
    } while (s.s);
    return of;
}

static const struct value absent = {.kind = V_ABSENT};

static struct value attr(struct render *r, const struct call *c)
{
    struct string *name = c->arg[0].str;

    render_defined(r, c->self);
    /* The filter attr() finds attributes only, not keys of a dict. */
    if (c->self.kind == V_DICT && !builtin_method(V_DICT, name))
        return (struct value){.kind = V_UNDEFINED, .sub = V_DICT, .str = name};
    return value_attribute(r, c->self, name);
}

/* ---- filters that sort, group and compare ------------------------------ */

/* Returns the value by which an item is sorted or compared. A string is
 * converted to lower case unless `cases`. */
static struct value folded(struct render *r, struct value v, bool cases)
{
    return v.kind == V_STR && !cases ? string_case(r, v.str, CASE_LOWER) : v;
}

/* The order of a filter that sorts: by the items to which `path` leads
 * (get_path). If `many`, `path` is a comma-separated list of paths, and later
 * ones decide between items that are equal by the first. */
struct order {
    struct value path, fallback;
    bool many, cases, reverse;
};

/* Returns the key by which an item is sorted. With `many` it is a list of the
 * values to which the paths lead, compared item by item, as in Python. */
static struct value sort_key(struct render *r, struct value item,
                             const struct order *o)
{
    const bool names = o->path.kind == V_STR;
    struct string s = o->many && names ? *o->path.str : (struct string){0};
    struct list keys = {0};

    do {
        const struct value path = s.s ? next_part(r, &s, ',') : o->path;
        const struct value key =
            folded(r, get_path(r, item, path, o->fallback), o->cases);

        if (!o->many)
            return key;
        list_add(&r->w, &keys, key);
    } while (s.s);
    return value_list(&r->w, V_LIST, keys);
}

/* Returns the items of *l with their keys, sorted. Sets l->n to 0 after a
 * failure. */
static struct pair *sorted(struct render *r, struct list *l, struct order o)
{
    struct pair *p = work_alloc(&r->w, l->n, sizeof *p);

    for (size_t i = 0; p && i < l->n; i++)
        p[i] = (struct pair){sort_key(r, l->item[i], &o), l->item[i]};
    if (p)
        sort_pairs(r, p, l->n, o.reverse);
    if (r->w.status != PL_OK)
        l->n = 0;
    return p;
}

static struct value sorted_list(struct render *r, struct list l, struct order o)
{
    const struct pair *p = sorted(r, &l, o);
    struct list out = list_with(&r->w, l.n);

    for (size_t i = 0; i < l.n; i++)
        list_add(&r->w, &out, p[i].value);
    return value_list(&r->w, V_LIST, out);
}

static struct value sort(struct render *r, const struct call *c)
{
    return sorted_list(r, c->l,
                       (struct order){.path = c->arg[2],
                                      .many = true,
                                      .cases = c->arg[1].truth,
                                      .reverse = c->arg[0].truth});
}

/* The filter groupby: groups the items of a list by a key. Returns a list of
 * tuples (key, list of items), ordered by key. If case is ignored, the key of a
 * group is the key of its first item, not converted to lower case. */
static struct value groupby(struct render *r, const struct call *c)
{
    struct list l = c->l, all = {0}, same = {0};
    const struct pair *p = sorted(r, &l,
                                  (struct order){.path = c->arg[0],
                                                 .fallback = c->arg[1],
                                                 .cases = c->arg[2].truth});

    for (size_t i = 0; i < l.n; i++) {
        struct value group;

        list_add(&r->w, &same, p[i].value);
        if (i + 1 < l.n && value_equal(r, p[i].key, p[i + 1].key))
            continue;
        if (r->w.status != PL_OK)
            break;
        group =
            value_pair(&r->w, get_path(r, same.item[0], c->arg[0], c->arg[1]),
                       value_list(&r->w, V_LIST, same));
        group.sub = TUPLE_GROUP;
        list_add(&r->w, &all, group);
        same = (struct list){0};
    }
    return value_list(&r->w, V_LIST, all);
}

static struct value dictsort(struct render *r, const struct call *c)
{
    const struct value by = c->arg[1];
    const bool by_value = by.kind == V_STR && string_is(by.str, "value");
    struct value items;

    render_defined(r, c->self);
    if (c->self.kind != V_DICT ||
        (by.kind != V_ABSENT && !by_value &&
         !(by.kind == V_STR && string_is(by.str, "key"))))
        return render_bad(r, "\"dictsort\" sorts by \"key\" or \"value\"");
    items = dict_view(r, &(struct call){.self = c->self, .what = VIEW_ITEMS});
    return sorted_list(r, value_items(r, items),
                       (struct order){.path = value_int(by_value),
                                      .cases = c->arg[0].truth,
                                      .reverse = c->arg[2].truth});
}

/* Returns the value by which the filters max, min and unique compare an item,
 * by their arguments case_sensitive and attribute. */
static struct value compared(struct render *r, const struct call *c,
                             struct value item)
{
    return folded(r, get_path(r, item, c->arg[1], absent), c->arg[0].truth);
}

/* The filters max (`what` is true) and min. */
static struct value extreme(struct render *r, const struct call *c)
{
    struct value best = {0}, out = value_undefined();

    for (size_t i = 0; i < c->l.n; i++) {
        const struct value key = compared(r, c, c->l.item[i]);

        if (i == 0 ||
            value_less(r, c->what ? best : key, c->what ? key : best)) {
            best = key;
            out = c->l.item[i];
        }
    }
    return out;
}

static struct value sum(struct render *r, const struct call *c)
{
    struct value out = c->arg[1].kind == V_ABSENT ? value_int(0) : c->arg[1];

    for (size_t i = 0; i < c->l.n && r->w.status == PL_OK; i++) {
        work_spend(&r->w, 1);
        out = value_binary(r, N_ADD, out,
                           get_path(r, c->l.item[i], c->arg[0], absent));
    }
    return out;
}

/* ---- filters that make or select from lists ---------------------------- */

static struct value join(struct render *r, const struct call *c)
{
    size_t from = r->n_out;

    for (size_t i = 0; i < c->l.n; i++) {
        const struct value v = get_path(r, c->l.item[i], c->arg[1], absent);

        if (i > 0 && c->arg[0].kind == V_STR)
            put_str(r, c->arg[0]);
        put_str(r, v);
        work_spend(&r->w, 1);
    }
    return render_take(r, from);
}

static struct value list(struct render *r, const struct call *c)
{
    return value_list(&r->w, V_LIST, c->l);
}

static struct value make_iter(struct render *r, struct list l)
{
    return value_new(&r->w, V_ITER, &(struct iter){.list = l},
                     sizeof(struct iter));
}

static struct value reverse(struct render *r, const struct call *c)
{
    struct list back = {0};
    size_t from = r->n_out;

    for (size_t i = c->l.n; i-- > 0;)
        list_add(&r->w, &back, c->l.item[i]);
    work_spend(&r->w, back.n);
    if (c->self.kind == V_ITER)
        return value_list(&r->w, V_LIST, back);
    if (c->self.kind != V_STR)
        return make_iter(r, back);
    for (size_t i = 0; i < back.n; i++)
        put_str(r, back.item[i]);
    return markup_like(c->self, render_take(r, from));
}

static struct value items(struct render *r, const struct call *c)
{
    struct value view;

    if (c->self.kind == V_UNDEFINED)
        return make_iter(r, (struct list){0});
    if (c->self.kind != V_DICT)
        return render_wrong(r, c->self, "is not a mapping, so it has no items");
    view = dict_view(r, &(struct call){.self = c->self, .what = VIEW_ITEMS});
    return make_iter(r, value_items(r, view));
}

/* Fails for values that Python cannot hash: lists, dicts, and tuples that
 * contain a list or dict. */
static void check_hashable(struct render *r, struct value v)
{
    if (value_is(v, 1 << V_LIST | 1 << V_DICT))
        render_wrong(r, v, "cannot be compared for uniqueness");
    if (v.kind != V_TUPLE || !work_enter(&r->w))
        return;
    for (size_t i = 0; i < v.list->n; i++)
        check_hashable(r, v.list->item[i]);
    r->w.left.depth++;
}

static struct value unique(struct render *r, const struct call *c)
{
    struct list keys = {0}, kept = {0};

    for (size_t i = 0; i < c->l.n && r->w.status == PL_OK; i++) {
        const struct value key = compared(r, c, c->l.item[i]);
        bool seen = false;

        check_hashable(r, key);
        for (size_t k = 0; k < keys.n && !seen; k++)
            seen = value_equal(r, keys.item[k], key);
        if (seen)
            continue;
        list_add(&r->w, &keys, key);
        list_add(&r->w, &kept, c->l.item[i]);
    }
    return make_iter(r, kept);
}

/* Appends to `all` a list of the items from[n] and, if `fill` is not absent, as
 * many of it as make the list `least` items long. */
static void add_part(struct render *r, struct list *all,
                     const struct value *from, size_t n, struct value fill,
                     size_t least)
{
    struct list part = {0};

    for (size_t i = 0; i < n; i++)
        list_add(&r->w, &part, from[i]);
    while (fill.kind != V_ABSENT && part.n < least && r->w.status == PL_OK)
        list_add(&r->w, &part, fill);
    work_spend(&r->w, part.n + 1);
    list_add(&r->w, all, value_list(&r->w, V_LIST, part));
}

/* The filter batch: splits a list into lists of n items. If a filler is given,
 * the last list is filled up with it to n items. */
static struct value batch(struct render *r, const struct call *c)
{
    const size_t all = c->l.n, n = c->arg[0].i > 0 ? (size_t)c->arg[0].i : all;
    struct list out = {0};

    for (size_t at = 0; at < all; at += n)
        add_part(r, &out, c->l.item + at, all - at < n ? all - at : n,
                 c->arg[1], n);
    return make_iter(r, out);
}

/* The filter slice: splits a list into n lists. If the number of items is not a
 * multiple of n, the first lists have one item more. The others get a filler,
 * if one is given. */
static struct value slice(struct render *r, const struct call *c)
{
    const int64_t n = c->arg[0].i;
    struct list out = {0};

    if (n == 0)
        return render_bad(r, "division by zero");
    for (int64_t i = 0, at = 0, k; i < n && r->w.status == PL_OK;
         i++, at += k) {
        const int64_t each = (int64_t)c->l.n / n, more = (int64_t)c->l.n % n;

        k = each + (i < more);
        add_part(r, &out, c->l.item ? c->l.item + at : NULL, (size_t)k,
                 c->arg[1], (size_t)(i < more ? 0 : each + 1));
    }
    return make_iter(r, out);
}

/* Returns the filter or test that positional argument i of the call names; NULL
 * if there is no such argument. Sets *rest to the arguments after it. */
static const struct builtin *named(struct render *r, const struct args *args,
                                   int i, bool filter, struct args *rest)
{
    const struct builtin *row;
    struct string *name;
    char shown[ERR_SHOWN];

    rest->n = rest->n_word = 0;
    if (args->n <= i)
        return NULL;
    name = need_string(r, args->value[i]);
    row = filter ? builtin_filter(name) : builtin_test(name);
    if (!row)
        work_fail(&r->w, PL_UNSUPPORTED, "unknown %s \"%s\"",
                  filter ? "filter" : "test",
                  err_shown(shown, name->s, name->len));
    *rest = *args;
    rest->n -= i + 1;
    memmove(rest->value, rest->value + i + 1,
            (size_t)(rest->n + rest->n_word) * sizeof rest->value[0]);
    return row;
}

/* Returns the named argument `name` of a call; V_ABSENT if the call does not
 * have it. */
static struct value word_of(const struct args *args, const char *name)
{
    for (int i = 0; i < args->n_word; i++)
        if (string_is(args->word[i], name))
            return args->value[args->n + i];
    return absent;
}

static struct value map(struct render *r, const struct call *c)
{
    const struct value path = word_of(c->args, "attribute");
    const struct value fallback = word_of(c->args, "default");
    const struct builtin *filter;
    struct list l, mapped = {0};
    struct args rest;

    if (!value_truth(c->self)) /* For None and other false values Jinja's filter
                                  map returns no items. */
        return make_iter(r, mapped);
    filter = named(r, c->args, 0, true, &rest);
    if (!filter && path.kind == V_ABSENT)
        return render_bad(r,
                          "\"map\" needs the name of a filter or attribute=");
    l = value_items(r, c->self);
    for (size_t i = 0; i < l.n && r->w.status == PL_OK; i++) {
        work_spend(&r->w, 1);
        list_add(&r->w, &mapped,
                 filter ? builtin_run(r, filter, l.item[i], &rest)
                        : get_path(r, l.item[i], path, fallback));
    }
    return make_iter(r, mapped);
}

/* Differences of the filters select, reject, selectattr and rejectattr: flags
 * of `what`. */
enum { WANTED = 1, BY_PATH = 2 };

/* Returns the items that pass a test, or do not pass it unless WANTED. The test
 * is the argument of the call that names it. With BY_PATH, the first argument
 * names an attribute, and the test is applied to this attribute of the item.
 * Without a test, the truth of the value counts. */
static struct value choose(struct render *r, const struct call *c)
{
    const bool by_path = c->what & BY_PATH;
    const struct builtin *test;
    struct list l, kept = {0};
    struct args rest;

    if (!value_truth(c->self))
        return make_iter(r, kept);
    if (by_path && c->args->n == 0)
        return render_bad(r, "the name of an attribute is missing");
    test = named(r, c->args, by_path, false, &rest);
    l = value_items(r, c->self);
    for (size_t i = 0; i < l.n && r->w.status == PL_OK; i++) {
        struct value v = l.item[i];

        work_spend(&r->w, 1);
        if (by_path)
            v = get_path(r, v, c->args->value[0], absent);
        if (test)
            v = builtin_run(r, test, v, &rest);
        if (value_truth(v) == (c->what & WANTED))
            list_add(&r->w, &kept, l.item[i]);
    }
    return make_iter(r, kept);
}

const struct builtin builtin_filters[] = {
    {"attr", ' ', "name:S", attr, 0},
    {"batch", 'l', "linecount:i fill_with:v~", batch, 0},
    {"count", ' ', "", length, 0},
    {"d", ' ', "default_value:v? boolean:b?", use_default, 0},
    {"default", ' ', "default_value:v? boolean:b?", use_default, 0},
    {"dictsort", ' ', "case_sensitive:b? by:v? reverse:b?", dictsort, 0},
    {"first", 'l', "", end_item, false},
    {"groupby", 'l', "attribute:v default:v? case_sensitive:b?", groupby, 0},
    {"items", ' ', "", items, 0},
    {"join", 'l', "d:S? attribute:v~", join, 0},
    {"last", 'l', "", end_item, true},
    {"length", ' ', "", length, 0},
    {"list", 'l', "", list, 0},
    {"map", ' ', "*", map, 0},
    {"max", 'l', "case_sensitive:b? attribute:v~", extreme, true},
    {"min", 'l', "case_sensitive:b? attribute:v~", extreme, false},
    {"reject", ' ', "*", choose, 0},
    {"rejectattr", ' ', "*", choose, BY_PATH},
    {"reverse", 'l', "", reverse, 0},
    {"select", ' ', "*", choose, WANTED},
    {"selectattr", ' ', "*", choose, WANTED | BY_PATH},
    {"slice", 'l', "slices:i fill_with:v~", slice, 0},
    {"sort", 'l', "reverse:b? case_sensitive:b? attribute:v~", sort, 0},
    {"sum", 'l', "attribute:v~ start:v?", sum, 0},
    {"unique", 'l', "case_sensitive:b? attribute:v~", unique, 0},
    {0},
};
