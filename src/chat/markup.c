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
