/* Finds the builtin functions, filters, tests and methods of the template
 * language, and binds the arguments of a call to their parameters. Also defines
 * the builtin functions. */
#include "chat/render.h"

#include "base/err.h"
#include "base/numeral.h"

#include <string.h>
#include <time.h>

static const struct builtin *find(const struct builtin *row,
                                  const struct string *name)
{
    while (row->name && !string_is(name, row->name))
        row++;
    return row->name ? row : NULL;
}

const struct builtin *builtin_function(const struct string *name)
{
    return find(builtin_functions, name);
}

const struct builtin *builtin_filter(const struct string *name)
{
    const struct builtin *text = find(builtin_text_filters, name);

    return text ? text : find(builtin_filters, name);
}

const struct builtin *builtin_test(const struct string *name)
{
    return find(builtin_tests, name);
}

const struct builtin *builtin_method(enum value_kind kind,
                                     const struct string *name)
{
    const struct builtin *change;

    switch (kind) {
    case V_STR:
        return find(builtin_string_methods, name);
    case V_DICT:
        return find(builtin_dict_methods, name);
    case V_LIST:
        change = find(builtin_list_changes, name);
        return change ? change : find(builtin_list_methods, name);
    case V_TUPLE:
        return find(builtin_list_methods, name);
    case V_LOOP:
        return find(builtin_loop_methods, name);
    case V_CYCLER:
        return find(builtin_cycler_methods, name);
    default:
        return NULL;
    }
}

/* Returns the index of the parameter `name` in `params`, names separated by
 * blanks; -1 if there is none. */
static int parameter(const char *params, const struct string *name)
{
    for (int i = 0;; i++) {
        size_t n = strcspn(params, " ");

        if (n == name->len && memcmp(params, name->s, n) == 0)
            return i;
        if (params[n] == '\0')
            return -1;
        params += n + 1;
    }
}

static pl_status bind(struct render *r, const struct builtin *b,
                      const struct args *args, struct call *c)
{
    int n = b->params[0] != '\0';

    for (const char *s = b->params; *s; s++)
        n += *s == ' ';
    if (args->n > n)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"%s\" takes %d arguments, not %d", b->name, n,
                           args->n);
    for (int i = 0; i < args->n; i++)
        c->arg[i] = args->value[i];
    for (int k = 0; k < args->n_word; k++) {
        int i = parameter(b->params, args->word[k]);
        char shown[ERR_SHOWN];

        if (n == 0 || i < 0 || c->arg[i].kind != V_ABSENT)
            return render_fail(
                r, PL_BAD_ARGUMENT,
                "\"%s\" has no parameter \"%s\", or it is already set", b->name,
                err_shown(shown, args->word[k]->s, args->word[k]->len));
        c->arg[i] = args->value[args->n + k];
    }
    for (int i = 0; i < b->n_need; i++)
        if (c->arg[i].kind == V_ABSENT)
            return render_fail(r, PL_BAD_ARGUMENT, "\"%s\" needs %d arguments",
                               b->name, b->n_need);
    return PL_OK;
}

pl_status builtin_run(struct render *r, const struct builtin *b,
                      struct value self, const struct args *args,
                      struct value *out)
{
    struct call c = {.self = self, .args = args};

    PL_TRY(render_look(r, self));
    for (int i = 0; i < args->n + args->n_word; i++)
        PL_TRY(render_look(r, args->value[i]));
    if (strcmp(b->params, "*") != 0)
        PL_TRY(bind(r, b, args, &c));
    return b->run(r, &c, out);
}

/* ---- the builtin functions --------------------------------------------- */

static pl_status raise_exception(struct render *r, const struct call *c,
                                 struct value *out)
{
    struct string *s;

    (void)out;
    PL_TRY(str_of(r, c->arg[0], &s));
    return render_fail(r, PL_BAD_ARGUMENT, "%.*s", (int)s->len, s->s);
}

static pl_status need_int(struct render *r, struct value v, int64_t *out)
{
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (v.kind != V_INT && v.kind != V_BOOL)
        return render_fail(r, PL_BAD_ARGUMENT, "expected an integer, got a %s",
                           value_kind_name(v.kind));
    *out = value_as_int(v);
    return PL_OK;
}

static pl_status range(struct render *r, const struct call *c,
                       struct value *out)
{
    /* Maximum number of items of range(), as in Jinja's sandbox. */
    enum { MOST = 100000 };
    int64_t v[3] = {0, 0, 1};
    struct range *range;
    __int128 span;

    if (c->args->n < 1 || c->args->n > 3 || c->args->n_word > 0)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"range\" takes 1 to 3 arguments");
    for (int i = 0; i < c->args->n; i++)
        PL_TRY(need_int(r, c->args->value[i], &v[c->args->n == 1 ? 1 : i]));
    if (v[2] == 0)
        return render_fail(r, PL_BAD_ARGUMENT, "the step of a range is 0");
    span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1];
    span = span > 0 ? (span - 1) / (v[2] > 0 ? v[2] : -(__int128)v[2]) + 1 : 0;
    if (span > MOST)
        return render_fail(r, PL_FULL,
                           "\"range\" would have more than %d items", MOST);
    PL_TRY(render_alloc(r, 1, sizeof *range, &range));
    *range = (struct range){v[0], v[1], v[2], (int64_t)span};
    *out = (struct value){.kind = V_RANGE, .range = range};
    return PL_OK;
}

/* Builds a dict from the arguments of a call of dict() or namespace(): at most
 * one dict or list of pairs, and named arguments. */
static pl_status make_dict(struct render *r, const struct call *c,
                           struct dict **out)
{
    const struct args *a = c->args;
    struct dict *d = dict_create(&r->arena, (size_t)a->n_word);
    struct list all = {0};

    if (!d)
        return err_no_memory(r->err, "a template's values");
    if (a->n > 1)
        return render_fail(
            r, PL_BAD_ARGUMENT,
            "\"dict\" takes one positional argument and keyword arguments");
    if (a->n == 1 && a->value[0].kind == V_DICT) {
        const struct dict *of = a->value[0].dict;

        for (size_t i = 0; i < of->n; i++)
            if (!dict_put(&r->arena, d, of->pair[i].key, of->pair[i].value))
                return err_no_memory(r->err, "a template's values");
        PL_TRY(render_spend(r, of->n));
    } else if (a->n == 1) {
        PL_TRY(value_items(r, a->value[0], &all));
    }
    for (size_t i = 0; i < all.n; i++) {
        struct list pair;

        PL_TRY(value_items(r, all.item[i], &pair));
        if (pair.n != 2 || !value_is_key(pair.item[0]))
            return render_fail(r, PL_BAD_ARGUMENT,
                               "\"dict\" takes pairs of a key and a value");
        if (!dict_put(&r->arena, d, pair.item[0], pair.item[1]))
            return err_no_memory(r->err, "a template's values");
        PL_TRY(render_spend(r, 1));
    }
    for (int i = 0; i < a->n_word; i++)
        if (!dict_put(&r->arena, d, value_str(a->word[i]), a->value[a->n + i]))
            return err_no_memory(r->err, "a template's values");
    *out = d;
    return PL_OK;
}

static pl_status dict(struct render *r, const struct call *c, struct value *out)
{
    out->kind = V_DICT;
    return make_dict(r, c, &out->dict);
}

static pl_status namespace(struct render *r, const struct call *c,
                           struct value *out)
{
    out->kind = V_NAMESPACE;
    return make_dict(r, c, &out->dict);
}

static pl_status joiner(struct render *r, const struct call *c,
                        struct value *out)
{
    struct joiner *j;
    struct value sep = c->arg[0];

    if (sep.kind == V_ABSENT)
        PL_TRY(render_view(r, ", ", 2, &sep));
    PL_TRY(render_alloc(r, 1, sizeof *j, &j));
    PL_TRY(str_of(r, sep, &j->sep));
    *out = (struct value){.kind = V_JOINER, .joiner = j};
    return PL_OK;
}

static pl_status cycler(struct render *r, const struct call *c,
                        struct value *out)
{
    struct cycler *cycle;

    if (c->args->n == 0 || c->args->n_word > 0)
        return render_fail(
            r, PL_BAD_ARGUMENT,
            "\"cycler\" takes at least one item and no keyword arguments");
    PL_TRY(render_alloc(r, 1, sizeof *cycle, &cycle));
    PL_TRY(render_list(r, (size_t)c->args->n, &cycle->list));
    for (int i = 0; i < c->args->n; i++)
        cycle->list->item[i] = c->args->value[i];
    *out = (struct value){.kind = V_CYCLER, .cycler = cycle};
    return PL_OK;
}

/* The function strftime_now(): formats the local time of the machine, with
 * English names of days and months. */
static pl_status strftime_now(struct render *r, const struct call *c,
                              struct value *out)
{
    enum { MOST = 1024 };
    char form[MOST], text[4 * MOST];
    time_t now = (time_t)r->now;
    locale_t before;
    struct string *s;
    struct tm tm;
    size_t n;

    PL_TRY(str_of(r, c->arg[0], &s));
    if (s->len + 2 > sizeof form || memchr(s->s, '\0', s->len) ||
        !localtime_r(&now, &tm))
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"strftime_now\" does not know this format");
    memcpy(form, s->s, s->len);
    /* Appends a character, because strftime returns 0 both on failure and for
     * an empty result. */
    memcpy(form + s->len, ".", 2);
    before = numeral_begin();
    n = strftime(text, sizeof text, form, &tm);
    numeral_end(before);
    if (n == 0)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the result of \"strftime_now\" is too long");
    return render_string(r, text, n - 1, out);
}

const struct builtin builtin_functions[] = {
    {"raise_exception", "message", 1, raise_exception},
    {"strftime_now", "format", 1, strftime_now},
    {"range", "*", 0, range},
    {"dict", "*", 0, dict},
    {"namespace", "*", 0, namespace},
    {"joiner", "sep", 0, joiner},
    {"cycler", "*", 0, cycler},
    {0},
};
