/* Markup: strings that the filters safe and escape mark as HTML, as in the
 * Python package markupsafe. A string that is joined with markup is escaped
 * first, so that '<a>' + ('x'|safe) is "&lt;a&gt;x". The operator ~ and the
 * output of a template do not escape. */
#include "chat/render.h"

#include <string.h>

struct value markup(struct value v)
{
    if (v.kind == V_STR)
        v.sub = STR_MARKUP;
    if (value_is(v, KINDS_LIST))
        for (size_t i = 0; i < v.list->n; i++)
            v.list->item[i] = markup(v.list->item[i]);
    return v;
}

struct value markup_like(struct value of, struct value v)
{
    return value_is_markup(of) ? markup(v) : v;
}

struct value markup_escape(struct render *r, struct value v, bool again)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct string *s = str_of(r, v);
    const size_t mark = r->n_out;

    if (value_is_markup(v) && !again)
        return v;
    for (size_t i = 0; i < s->len; i++) {
        const char *p = memchr(from, s->s[i], sizeof from - 1);

        render_put(r, p ? to[p - from] : s->s + i,
                   p ? strlen(to[p - from]) : 1);
    }
    return markup(render_take(r, mark));
}

struct value markup_argument(struct render *r, struct value v)
{
    return value_is(v, KINDS_NUMBER) ? v : markup_escape(r, v, false);
}

struct value markup_arguments(struct render *r, struct value args)
{
    struct list l = {0};
    struct dict d = {0};

    if (args.kind == V_TUPLE) {
        for (size_t i = 0; i < args.list->n; i++)
            list_add(&r->w, &l, markup_argument(r, args.list->item[i]));
        return value_list(&r->w, V_TUPLE, l);
    }
    if (args.kind != V_DICT)
        return markup_argument(r, args);
    for (size_t i = 0; i < args.dict->n; i++)
        dict_put(&r->w, &d, args.dict->pair[i].key,
                 markup_argument(r, args.dict->pair[i].value));
    return value_new(&r->w, V_DICT, &d, sizeof d);
}
