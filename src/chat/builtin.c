/* Finds the builtin functions, filters, tests and methods of the template
 * language, and binds the arguments of a call to their parameters. Also defines
 * the builtin functions. */
#include "chat/strings.h"

#include "base/err.h"
#include "base/numeral.h"

#include <stdlib.h>
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
    static const struct builtin *const tables[] = {
        [V_STR] = builtin_string_methods, [V_DICT] = builtin_dict_methods,
        [V_LIST] = builtin_list_methods,  [V_TUPLE] = builtin_tuple_methods,
        [V_LOOP] = builtin_loop_methods,  [V_CYCLER] = builtin_cycler_methods,
    };

    return (size_t)kind < sizeof tables / sizeof tables[0] && tables[kind]
               ? find(tables[kind], name)
               : NULL;
}

struct string *need_string(struct render *r, struct value v)
{
    if (v.kind == V_STR)
        return v.str;
    render_defined(r, v);
    render_bad(r, "expected a string, got a %s", value_kind_name(v.kind));
    return &r->w.empty;
}

int64_t need_int(struct render *r, struct value v)
{
    if (value_is(v, KINDS_INT))
        return value_as_int(v);
    render_defined(r, v);
    render_bad(r, "expected an integer, got a %s", value_kind_name(v.kind));
    return 0;
}

/* ---- binding arguments ------------------------------------------------- */

/* A parameter as `params` of a row describes it. */
struct parameter {
    const char *name;
    size_t n_name;
    char type;
    bool need, none;   /* it has no default; None counts as absent */
    const char *usual; /* the digits of its default, or "" */
};

/* Reads the parameter at *p and advances *p to the next one. */
static struct parameter next_parameter(const char **p)
{
    struct parameter out = {.name = *p, .n_name = strcspn(*p, ":")};
    const char *s = *p + out.n_name + 1;

    out.type = *s++;
    out.none = *s == '~';
    out.need = *s != '~' && *s != '?';
    out.usual = out.need ? "" : s + 1;
    *p = s + strcspn(s, " ");
    *p += **p == ' ';
    return out;
}

static struct value converted(struct render *r, const struct parameter *p,
                              struct value self, struct value v)
{
    if (v.kind == V_NONE && p->none)
        v.kind = V_ABSENT;
    if (v.kind == V_ABSENT && *p->usual >= '-')
        v = value_int(atoi(p->usual));
    if (p->type == 'b')
        return value_bool(value_truth(v));
    if (v.kind == V_ABSENT)
        return v;
    if (p->type == 'e' && value_is_markup(self))
        v = markup_argument(r, v);
    switch (p->type) {
    case 's':
    case 'e':
        return markup_like(v, value_str(need_string(r, v)));
    case 'S':
        return value_str(str_of(r, v));
    case 'i':
        return value_int(need_int(r, v));
    default:
        return v;
    }
}

static void bind(struct render *r, const struct builtin *b,
                 const struct args *args, struct call *c)
{
    struct parameter p[BUILTIN_MAX_PARAM];
    int n = 0, n_need = 0;

    for (const char *s = b->params; *s; n++) {
        p[n] = next_parameter(&s);
        n_need += p[n].need;
    }
    if (args->n > n)
        render_bad(r, "\"%s\" takes %d arguments, not %d", b->name, n, args->n);
    for (int i = 0; i < args->n && i < n; i++)
        c->arg[i] = args->value[i];
    for (int k = 0; k < args->n_word; k++) {
        const struct string *name = args->word[k];
        char shown[ERR_SHOWN];
        int i = 0;

        while (i < n && (p[i].n_name != name->len ||
                         memcmp(p[i].name, name->s, name->len) != 0))
            i++;
        if (i == n || c->arg[i].kind != V_ABSENT)
            render_bad(r,
                       "\"%s\" has no parameter \"%s\", or it is already set",
                       b->name, err_shown(shown, name->s, name->len));
        else
            c->arg[i] = args->value[args->n + k];
    }
    for (int i = 0; i < n_need; i++)
        if (c->arg[i].kind == V_ABSENT)
            render_bad(r, "\"%s\" needs %d arguments", b->name, n_need);
    for (int i = 0; i < n; i++)
        c->arg[i] = converted(r, &p[i], c->self, c->arg[i]);
}

struct value builtin_run(struct render *r, const struct builtin *b,
                         struct value self, const struct args *args)
{
    struct call c = {
        .self = self, .what = b->what, .args = args, .s = &r->w.empty};

    render_look(r, self);
    for (int i = 0; i < args->n + args->n_word; i++)
        render_look(r, args->value[i]);
    if (strcmp(b->params, "*") != 0)
        bind(r, b, args, &c);
    if (b->self == 's')
        c.s = need_string(r, self);
    else if (b->self == 'S' || b->self == 'P')
        c.s = str_of(r, self);
    else if (b->self == 'l')
        c.l = value_items(r, self);
    if (r->w.status != PL_OK)
        return value_undefined();
    self = b->run(r, &c);
    return b->self == 's' || b->self == 'S' ? markup_like(c.self, self) : self;
}

/* ---- the builtin functions --------------------------------------------- */

static struct value raise_exception(struct render *r, const struct call *c)
{
    const struct string *s = c->arg[0].str;

    return render_bad(r, "%.*s", (int)s->len, s->s);
}

static struct value range(struct render *r, const struct call *c)
{
    /* Maximum number of items of range(), as in Jinja's sandbox. */
    enum { MOST = 100000 };
    int64_t v[3] = {0, 0, 1};
    struct range range;
    __int128 span;

    if (c->args->n < 1 || c->args->n > 3 || c->args->n_word > 0)
        return render_bad(r, "\"range\" takes 1 to 3 arguments");
    for (int i = 0; i < c->args->n; i++)
        v[c->args->n == 1 ? 1 : i] = need_int(r, c->args->value[i]);
    if (v[2] == 0)
        return render_bad(r, "the step of a range is 0");
    span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1];
    span = span > 0 ? (span - 1) / (v[2] > 0 ? v[2] : -(__int128)v[2]) + 1 : 0;
    if (span > MOST)
        return work_fail(&r->w, PL_FULL,
                         "\"range\" would have more than %d items", MOST);
    range = (struct range){v[0], v[1], v[2], (int64_t)span};
    return value_new(&r->w, V_RANGE, &range, sizeof range);
}

/* Builds a dict or namespace from the arguments of a call: at most one dict or
 * list of pairs, and named arguments. */
static struct value make_dict(struct render *r, const struct call *c)
{
    const struct args *a = c->args;
    struct dict d = {0};
    struct list all = {0};

    if (a->n > 1)
        return render_bad(
            r, "\"dict\" takes one positional argument and keyword arguments");
    if (a->n == 1 && a->value[0].kind == V_DICT) {
        const struct dict *of = a->value[0].dict;

        for (size_t i = 0; i < of->n; i++)
            dict_put(&r->w, &d, of->pair[i].key, of->pair[i].value);
        work_spend(&r->w, of->n);
    } else if (a->n == 1) {
        all = value_items(r, a->value[0]);
    }
    for (size_t i = 0; i < all.n && r->w.status == PL_OK; i++) {
        struct list pair = value_items(r, all.item[i]);

        work_spend(&r->w, 1);
        if (pair.n != 2 || !value_is(pair.item[0], KINDS_KEY))
            return render_bad(r, "\"dict\" takes pairs of a key and a value");
        dict_put(&r->w, &d, pair.item[0], pair.item[1]);
    }
    for (int i = 0; i < a->n_word; i++)
        dict_put(&r->w, &d, value_str(a->word[i]), a->value[a->n + i]);
    return value_new(&r->w, (enum value_kind)c->what, &d, sizeof d);
}

static struct value joiner(struct render *r, const struct call *c)
{
    const struct value sep =
        c->arg[0].kind == V_ABSENT ? value_view(&r->w, ", ", 2) : c->arg[0];

    return value_new(&r->w, V_JOINER, &(struct joiner){.sep = sep.str},
                     sizeof(struct joiner));
}

struct list args_list(struct render *r, const struct args *args, int first)
{
    struct list l = {0};

    for (int i = first; i < args->n; i++)
        list_add(&r->w, &l, args->value[i]);
    return l;
}

static struct value cycler(struct render *r, const struct call *c)
{
    const struct cycler cycle = {.list = args_list(r, c->args, 0)};

    if (c->args->n == 0 || c->args->n_word > 0)
        return render_bad(
            r, "\"cycler\" takes at least one item and no keyword arguments");
    return value_new(&r->w, V_CYCLER, &cycle, sizeof cycle);
}

/* The function strftime_now(): formats the local time of the machine, with
 * English names of days and months. */
static struct value strftime_now(struct render *r, const struct call *c)
{
    enum { MOST = 1024 };
    const struct string *s = c->arg[0].str;
    char form[MOST], text[4 * MOST];
    time_t now = (time_t)r->now;
    locale_t before;
    struct tm tm;
    size_t n;

    if (s->len + 2 > sizeof form || memchr(s->s, '\0', s->len) ||
        !localtime_r(&now, &tm))
        return render_bad(r, "\"strftime_now\" does not know this format");
    memcpy(form, s->s, s->len);
    /* Appends a character, because strftime returns 0 both on failure and for
     * an empty result. */
    memcpy(form + s->len, ".", 2);
    before = numeral_begin();
    n = strftime(text, sizeof text, form, &tm);
    numeral_end(before);
    if (n == 0)
        return render_bad(r, "the result of \"strftime_now\" is too long");
    return value_copy(&r->w, text, n - 1);
}

const struct builtin builtin_functions[] = {
    {"raise_exception", ' ', "message:S", raise_exception, 0},
    {"strftime_now", ' ', "format:S", strftime_now, 0},
    {"range", ' ', "*", range, 0},
    {"dict", ' ', "*", make_dict, V_DICT},
    {"namespace", ' ', "*", make_dict, V_NAMESPACE},
    {"joiner", ' ', "sep:S?", joiner, 0},
    {"cycler", ' ', "*", cycler, 0},
    {0},
};
