/* Markup: strings that the filters safe and escape mark as HTML, as in the
 * Python package markupsafe. A string that is joined with markup is escaped
 * first, so that '<a>' + ('x'|safe) is "&lt;a&gt;x". The operator ~ and the
 * output of a template do not escape. */
#include "chat/strings.h"

#include "base/err.h"

#include <string.h>

struct value markup(struct value v)
{
    if (v.kind == V_STR)
        v.sub = STR_MARKUP;
    if (v.kind == V_LIST || v.kind == V_TUPLE)
        for (size_t i = 0; i < v.list->n; i++)
            v.list->item[i] = markup(v.list->item[i]);
    return v;
}

struct value markup_like(struct value of, struct value v)
{
    return value_is_markup(of) ? markup(v) : v;
}

pl_status markup_escape(struct render *r, struct value v, bool again,
                        struct value *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct string *s;
    size_t mark;

    *out = v;
    if (value_is_markup(v) && !again)
        return PL_OK;
    PL_TRY(str_of(r, v, &s));
    mark = r->n_out;
    for (size_t i = 0; i < s->len; i++) {
        const char *p = memchr(from, s->s[i], sizeof from - 1);

        if (p)
            PL_TRY(render_puts(r, to[p - from]));
        else
            PL_TRY(render_put(r, s->s + i, 1));
    }
    PL_TRY(render_take(r, mark, out));
    *out = markup(*out);
    return PL_OK;
}

/* Escapes an argument that replaces a placeholder in a string that is markup. A
 * number is returned unchanged. */
static pl_status for_format(struct render *r, struct value v, struct value *out)
{
    *out = v;
    return value_is_number(v) ? PL_OK : markup_escape(r, v, false, out);
}

static pl_status escape_all(struct render *r, const struct list *l,
                            struct list **out)
{
    PL_TRY(render_list(r, l->n, out));
    for (size_t i = 0; i < l->n; i++)
        PL_TRY(for_format(r, l->item[i], &(*out)->item[i]));
    return PL_OK;
}

/* Escapes the strings in `args`, the right operand of `%` when the left operand
 * is markup. */
static pl_status escape_args(struct render *r, struct value args,
                             struct value *out)
{
    struct dict *d;

    *out = args;
    if (args.kind == V_TUPLE)
        return escape_all(r, args.list, &out->list);
    if (args.kind != V_DICT)
        return for_format(r, args, out);
    d = dict_create(&r->arena, args.dict->n);
    for (size_t i = 0; d && i < args.dict->n; i++) {
        struct value v;

        PL_TRY(for_format(r, args.dict->pair[i].value, &v));
        if (!dict_put(&r->arena, d, args.dict->pair[i].key, v))
            d = NULL;
    }
    out->dict = d;
    return d ? PL_OK : err_no_memory(r->err, "a template's values");
}

pl_status markup_operands(struct render *r, enum node_kind kind,
                          struct value *a, struct value *b)
{
    if (kind == N_REMAINDER && value_is_markup(*a))
        return escape_args(r, *b, b);
    if (kind != N_ADD || a->kind != V_STR || b->kind != V_STR)
        return PL_OK;
    PL_TRY(markup_escape(r, *a, false, a));
    return markup_escape(r, *b, false, b);
}

/* Escapes those arguments of a string method whose text becomes part of the
 * result, for example those of replace(). */
static pl_status method_args(struct render *r, const struct builtin *method,
                             struct args *args)
{
    static const struct {
        const char *name;
        int first; /* index of the first argument to escape */
    } row[] = {{"replace", 1}, {"ljust", 1},  {"rjust", 1},
               {"center", 1},  {"format", 0}, {"join", 0}};
    bool join = strcmp(method->name, "join") == 0;
    struct list l, *escaped;
    size_t i = 0;

    while (i < sizeof row / sizeof row[0] &&
           strcmp(row[i].name, method->name) != 0)
        i++;
    if (i == sizeof row / sizeof row[0])
        return PL_OK;
    for (int k = row[i].first; k < args->n + args->n_word && !join; k++)
        PL_TRY(for_format(r, args->value[k], &args->value[k]));
    if (!join || args->n != 1)
        return PL_OK;
    PL_TRY(value_items(r, args->value[0], &l));
    PL_TRY(render_list(r, l.n, &escaped));
    for (size_t k = 0; k < l.n; k++)
        PL_TRY(markup_escape(r, l.item[k], false, &escaped->item[k]));
    args->value[0] = (struct value){.kind = V_LIST, .list = escaped};
    return PL_OK;
}

pl_status markup_method(struct render *r, const struct method *m,
                        const struct args *args, struct value *out)
{
    struct args mine = *args;

    PL_TRY(method_args(r, m->row, &mine));
    PL_TRY(builtin_run(r, m->row, m->self, &mine, out));
    *out = markup(*out);
    return PL_OK;
}
