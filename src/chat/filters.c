/* Filters of lists, dicts and values of any type, x|name(arguments), in the
 * template language. Filters of texts and numbers are in filters_text.c. */
#include "chat/strings.h"

#include "base/err.h"

#include <ctype.h>
#include <string.h>

/* ---- filters for defaults, sizes and attributes ------------------------ */

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
        return render_fail(
            r, PL_BAD_ARGUMENT,
            "a generator has no last item; convert it with \"list\"");
    PL_TRY(value_items(r, c->self, &l));
    *out = l.n > 0 ? l.item[l.n - 1] : (struct value){.kind = V_UNDEFINED};
    return PL_OK;
}

/* Sets *out to the item in `of` to which `path` leads: of.a.b for "a.b", of[0]
 * for "0" or the integer 0. If the item does not exist, sets *out to
 * `fallback`, unless that is absent or None. */
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
        /* The filter attr() finds attributes only, not keys of a dict. */
        return PL_OK;
    }
    return value_attribute(r, c->self, name, out);
}

/* ---- filters that sort, group and compare ------------------------------ */

/* Sets *out to the value by which an item is sorted or compared: the item to
 * which `path` leads (get_path), or the item itself if there is no path. A
 * string is converted to lower case unless `cases`. */
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

/* Sets *out to a list of sort keys, one for each of the comma-separated paths
 * in `path`. Such lists are compared item by item, as in Python. Without a path
 * the item itself is the only key. */
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

static pl_status group_key(struct render *r, const struct call *c,
                           struct value item, struct value *out)
{
    return get_path(r, item, c->arg[0], c->arg[1], out);
}

/* Appends a group of items, `same`, to the result of the filter groupby. If
 * case is ignored, the key of the group is the key of its first item, not
 * converted to lower case. */
static pl_status add_group(struct render *r, const struct call *c,
                           const struct items *same, struct value key,
                           struct items *all)
{
    struct value group = {.kind = V_TUPLE, .sub = TUPLE_GROUP};

    if (!value_truth(c->arg[2]))
        PL_TRY(group_key(r, c, same->item[0], &key));
    PL_TRY(render_list(r, 2, &group.list));
    group.list->item[0] = key;
    PL_TRY(items_take(r, same, V_LIST, &group.list->item[1]));
    return items_add(r, all, group);
}

/* The filter groupby: groups the items of a list by a key. Sets *out to a list
 * of tuples (key, list of items), ordered by key. */
static pl_status groupby(struct render *r, const struct call *c,
                         struct value *out)
{
    const bool cases = value_truth(c->arg[2]);
    struct items all = {0}, same = {0};
    struct pair *p;
    struct list l;

    PL_TRY(value_items(r, c->self, &l));
    PL_TRY(render_alloc(r, l.n, sizeof *p, &p));
    for (size_t i = 0; i < l.n; i++) {
        p[i].value = l.item[i];
        PL_TRY(group_key(r, c, l.item[i], &p[i].key));
        if (p[i].key.kind == V_STR && !cases)
            PL_TRY(string_case(r, p[i].key.str, CASE_LOWER, &p[i].key));
    }
    PL_TRY(sort_pairs(r, p, l.n, false));
    for (size_t i = 0; i < l.n; i++) {
        bool more = false;

        PL_TRY(items_add(r, &same, p[i].value));
        if (i + 1 < l.n)
            PL_TRY(value_equal(r, p[i].key, p[i + 1].key, &more));
        if (more)
            continue;
        PL_TRY(add_group(r, c, &same, p[i].key, &all));
        same = (struct items){0};
    }
    return items_take(r, &all, V_LIST, out);
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
                           "\"dictsort\" sorts by \"key\" or \"value\"");
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

/* ---- filters that make or select from lists ---------------------------- */

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
                           "a %s is not a mapping, so it has no items",
                           value_kind_name(c->self.kind));
    }
    return make_iter(r, &l, out);
}

/* Fails for values that Python cannot hash: lists, dicts, and tuples that
 * contain a list or dict. */
static pl_status check_hashable(struct render *r, struct value v)
{
    if (v.kind == V_LIST || v.kind == V_DICT)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "a %s cannot be compared for uniqueness",
                           value_kind_name(v.kind));
    if (v.kind != V_TUPLE)
        return PL_OK;
    PL_TRY(render_deeper(r));
    PL_TRY(render_spend(r, v.list->n));
    for (size_t i = 0; i < v.list->n; i++)
        PL_TRY(check_hashable(r, v.list->item[i]));
    r->left.depth++;
    return PL_OK;
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
        PL_TRY(check_hashable(r, key));
        for (size_t k = 0; k < keys.n && !seen; k++)
            PL_TRY(value_equal(r, keys.item[k], key, &seen));
        if (seen)
            continue;
        PL_TRY(items_add(r, &keys, key));
        PL_TRY(items_add(r, &kept, l.item[i]));
    }
    return make_iter(r, &kept, out);
}

/* The filter batch: splits a list into lists of n items. If a filler is given,
 * the last list is filled up with it to n items. */
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

/* The filter slice: splits a list into n lists. If the number of items is not a
 * multiple of n, the first lists have one item more. The others get a filler,
 * if one is given. */
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

/* Returns a copy of the arguments `args` without the first `skip`. */
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
    return render_fail(r, PL_UNSUPPORTED, "unknown %s \"%s\"",
                       filter ? "filter" : "test",
                       err_shown(shown, name->s, name->len));
}

/* Returns the named argument `name` of a call; V_ABSENT if the call does not
 * have it. */
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

    if (!value_truth(c->self)) /* For None and other false values Jinja's filter
                                  map returns no items. */
        return make_iter(r, &mapped, out);
    if (c->args->n > 0) {
        PL_TRY(named(r, c->args, 0, true, &filter));
        rest = args_rest(c->args, 1);
    } else if (path.kind == V_ABSENT) {
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"map\" needs the name of a filter or attribute=");
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

/* Sets *out to the items for which the result of a test is `want`. The test is
 * the argument of the call that names it. If `by_path`, the first argument
 * names an attribute, and the test is applied to this attribute of the item.
 * Without a test, the truth of the value counts. */
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
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the name of an attribute is missing");
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
    {"attr", "name", 1, attr},
    {"batch", "linecount fill_with", 1, batch},
    {"count", "", 0, length},
    {"d", "default_value boolean", 0, use_default},
    {"default", "default_value boolean", 0, use_default},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"first", "", 0, first},
    {"groupby", "attribute default case_sensitive", 1, groupby},
    {"items", "", 0, items},
    {"join", "d attribute", 0, join},
    {"last", "", 0, last},
    {"length", "", 0, length},
    {"list", "", 0, list},
    {"map", "*", 0, map},
    {"max", "case_sensitive attribute", 0, most},
    {"min", "case_sensitive attribute", 0, least},
    {"reject", "*", 0, reject},
    {"rejectattr", "*", 0, rejectattr},
    {"reverse", "", 0, reverse},
    {"select", "*", 0, select},
    {"selectattr", "*", 0, selectattr},
    {"slice", "slices fill_with", 1, slice},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"sum", "attribute start", 0, sum},
    {"unique", "case_sensitive attribute", 0, unique},
    {0},
};
