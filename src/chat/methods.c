/* Methods of strings, dicts, lists, loops and cyclers in the template
 * language. */
#include "chat/strings.h"

#include "base/err.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <string.h>

/* ---- lists under construction, and arguments --------------------------- */

pl_status items_add(struct render *r, struct items *l, struct value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 8;
        struct value *item;

        PL_TRY(render_alloc(r, cap, sizeof *item, &item));
        if (l->n > 0)
            memcpy(item, l->item, l->n * sizeof *item);
        l->item = item;
        l->cap = cap;
    }
    l->item[l->n++] = v;
    return render_spend(r, 1);
}

pl_status items_add_view(struct render *r, struct items *l, const char *s,
                         size_t len)
{
    struct value v;

    PL_TRY(render_view(r, s, len, &v));
    return items_add(r, l, v);
}

pl_status items_list(struct render *r, const struct items *l, struct list **out)
{
    PL_TRY(render_list(r, 0, out));
    if (l->n > 0)
        **out = (struct list){.n = l->n, .item = l->item};
    return PL_OK;
}

pl_status items_take(struct render *r, const struct items *l,
                     enum value_kind kind, struct value *out)
{
    out->kind = (uint8_t)kind;
    return items_list(r, l, &out->list);
}

pl_status need_string(struct render *r, struct value v, struct string **out)
{
    *out = NULL;
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (v.kind != V_STR)
        return render_fail(r, PL_BAD_ARGUMENT, "expected a string, got a %s",
                           value_kind_name(v.kind));
    *out = v.str;
    return PL_OK;
}

pl_status get_int(struct render *r, struct value v, int64_t usual, int64_t *out)
{
    *out = usual;
    if (v.kind == V_ABSENT)
        return PL_OK;
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (v.kind != V_INT && v.kind != V_BOOL)
        return render_fail(r, PL_BAD_ARGUMENT, "expected an integer, got a %s",
                           value_kind_name(v.kind));
    *out = value_as_int(v);
    return PL_OK;
}

/* ---- converting letter case -------------------------------------------- */

static bool starts_word(uint32_t before, enum string_case to)
{
    if (to == CASE_TITLE)
        return !unicode_is_letter(before);
    return before == '-' || before == '(' || before == '{' || before == '[' ||
           before == '<' || unicode_is_space(before);
}

static uint32_t cased(uint32_t c, enum string_case to, bool first,
                      uint32_t before)
{
    uint32_t lower;

    switch (to) {
    case CASE_LOWER:
        return unicode_lower(c);
    case CASE_UPPER:
        return unicode_upper(c);
    case CASE_SWAP:
        lower = unicode_lower(c);
        return lower != c ? lower : unicode_upper(c);
    case CASE_CAPITAL:
        return first ? unicode_upper(c) : unicode_lower(c);
    default:
        return first || starts_word(before, to) ? unicode_upper(c)
                                                : unicode_lower(c);
    }
}

/* The German sharp s, whose upper case is the two letters SS. */
enum { SHARP_S = 0xdf };

pl_status string_case(struct render *r, const struct string *s,
                      enum string_case to, struct value *out)
{
    size_t from = r->n_out;
    uint32_t before = 0;

    PL_TRY(render_spend(r, s->len / 16));
    for (size_t at = 0; at < s->len;) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);

        if (c == SHARP_S && cased('s', to, at == 0, before) == 'S')
            PL_TRY(render_puts(r, to == CASE_UPPER || to == CASE_SWAP ? "SS"
                                                                      : "Ss"));
        else
            PL_TRY(render_put_char(r, cased(c, to, at == 0, before)));
        before = c;
        at += len;
    }
    return render_take(r, from, out);
}

bool string_has_case(const struct string *s, bool upper)
{
    bool any = false;

    for (size_t at = 0; at < s->len;) {
        uint32_t c;

        at += unicode_get(s->s + at, s->len - at, &c);
        if (upper ? unicode_lower(c) != c : unicode_upper(c) != c)
            any = true;
        else if (upper ? unicode_upper(c) != c : unicode_lower(c) != c)
            return false;
    }
    return any;
}

/* ---- stripping, replacing, splitting lines ----------------------------- */

/* Sets *span to the number of bytes at the beginning of s[0 .. n) that belong
 * to characters of the set `chars`. */
static pl_status span_first(struct render *r, const char *s, size_t n,
                            const struct string *chars, size_t *span)
{
    size_t len;

    for (*span = 0; *span < n; *span += len) {
        uint32_t c;

        len = unicode_get(s + *span, n - *span, &c);
        PL_TRY(render_spend(r, 1 + chars->len / 64));
        if (!memmem(chars->s, chars->len, s + *span, len))
            break;
    }
    return PL_OK;
}

/* Sets *span to the number of bytes at the end of s[0 .. n) that belong to
 * characters of the set `chars`. */
static pl_status span_last(struct render *r, const char *s, size_t n,
                           const struct string *chars, size_t *span)
{
    size_t end = n;

    while (end > 0) {
        size_t at = end - 1;

        while (at > 0 && end - at < 4 && ((unsigned char)s[at] & 0xc0) == 0x80)
            at--;
        PL_TRY(render_spend(r, 1 + chars->len / 64));
        if (!memmem(chars->s, chars->len, s + at, end - at))
            break;
        end = at;
    }
    *span = n - end;
    return PL_OK;
}

pl_status string_strip(struct render *r, const struct string *s,
                       const struct string *chars, bool left, bool right,
                       struct value *out)
{
    size_t first = 0, last = 0, n = s->len;

    if (left && chars)
        PL_TRY(span_first(r, s->s, n, chars, &first));
    else if (left)
        first = unicode_space_first(s->s, n);
    n -= first;
    if (right && chars)
        PL_TRY(span_last(r, s->s + first, n, chars, &last));
    else if (right)
        last = unicode_space_last(s->s + first, n);
    n -= last;
    return render_view(r, s->s + first, n, out);
}

pl_status string_replace(struct render *r, const struct string *s,
                         const struct string *from, const struct string *to,
                         int64_t most, struct value *out)
{
    size_t mark = r->n_out, at = 0;

    PL_TRY(render_spend(r, s->len / 16));
    for (; most != 0 && at <= s->len; most -= most > 0) {
        const char *found =
            from->len == 0 ? s->s + at
                           : memmem(s->s + at, s->len - at, from->s, from->len);
        size_t to_found;
        uint32_t c;

        if (!found)
            break;
        to_found = (size_t)(found - s->s) - at;
        PL_TRY(render_put(r, s->s + at, to_found));
        PL_TRY(render_put(r, to->s, to->len));
        at += to_found + from->len;
        if (from->len > 0)
            continue;
        if (at == s->len) /* an empty `from` also matches at the end of the
                             string */
            break;
        to_found = unicode_get(s->s + at, s->len - at, &c);
        PL_TRY(render_put(r, s->s + at, to_found));
        at += to_found;
    }
    PL_TRY(render_put(r, s->s + at, s->len - at));
    return render_take(r, mark, out);
}

static bool ends_line(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
}

pl_status string_lines(struct render *r, const struct string *s, bool ends,
                       struct items *out)
{
    size_t start = 0, at = 0;

    while (at < s->len) {
        uint32_t c;
        size_t len = unicode_get(s->s + at, s->len - at, &c);

        if (!ends_line(c)) {
            at += len;
            continue;
        }
        if (c == '\r' && at + 1 < s->len && s->s[at + 1] == '\n')
            len = 2;
        PL_TRY(items_add_view(r, out, s->s + start,
                              at - start + (ends ? len : 0)));
        at += len;
        start = at;
    }
    if (start < s->len)
        PL_TRY(items_add_view(r, out, s->s + start, s->len - start));
    return render_spend(r, s->len / 16);
}

/* ---- methods of strings ------------------------------------------------ */

static pl_status upper(struct render *r, const struct call *c,
                       struct value *out)
{
    return string_case(r, c->self.str, CASE_UPPER, out);
}

static pl_status lower(struct render *r, const struct call *c,
                       struct value *out)
{
    return string_case(r, c->self.str, CASE_LOWER, out);
}

static pl_status capitalize(struct render *r, const struct call *c,
                            struct value *out)
{
    return string_case(r, c->self.str, CASE_CAPITAL, out);
}

static pl_status title(struct render *r, const struct call *c,
                       struct value *out)
{
    return string_case(r, c->self.str, CASE_TITLE, out);
}

static pl_status swapcase(struct render *r, const struct call *c,
                          struct value *out)
{
    return string_case(r, c->self.str, CASE_SWAP, out);
}

static pl_status strip_sides(struct render *r, const struct call *c, bool left,
                             bool right, struct value *out)
{
    struct string *chars = NULL;

    if (c->arg[0].kind != V_ABSENT && c->arg[0].kind != V_NONE)
        PL_TRY(need_string(r, c->arg[0], &chars));
    return string_strip(r, c->self.str, chars, left, right, out);
}

static pl_status strip(struct render *r, const struct call *c,
                       struct value *out)
{
    return strip_sides(r, c, true, true, out);
}

static pl_status lstrip(struct render *r, const struct call *c,
                        struct value *out)
{
    return strip_sides(r, c, true, false, out);
}

static pl_status rstrip(struct render *r, const struct call *c,
                        struct value *out)
{
    return strip_sides(r, c, false, true, out);
}

/* Sets *out to self[start:end], where `start` and `end` are the arguments i and
 * i + 1 of the call. Sets *first to the index in self of the first character of
 * *out. */
static pl_status part_of_self(struct render *r, const struct call *c, int i,
                              struct string **out, int64_t *first)
{
    struct value part[3] = {c->arg[i], c->arg[i + 1], value_none()}, v;

    *out = c->self.str;
    *first = 0;
    if (part[0].kind == V_ABSENT)
        return PL_OK;
    if (part[1].kind == V_ABSENT)
        part[1] = value_none();
    PL_TRY(value_slice(r, c->self, part, &v));
    *out = v.str;
    if (part[0].kind == V_NONE)
        return PL_OK;
    *first = value_as_int(part[0]);
    if (*first < 0) {
        int64_t n;

        PL_TRY(value_length(r, c->self, &n));
        *first = *first + n < 0 ? 0 : *first + n;
    }
    return PL_OK;
}

static bool has_end(const struct string *s, const struct string *end,
                    bool first)
{
    return s->len >= end->len && memcmp(first ? s->s : s->s + s->len - end->len,
                                        end->s, end->len) == 0;
}

/* Sets *out to true if self begins with the argument of the call (if `first`)
 * or ends with it. If the argument is a tuple, one of its strings is enough. */
static pl_status has_any_end(struct render *r, const struct call *c, bool first,
                             struct value *out)
{
    struct list one = {.n = 1, .item = (struct value *)&c->arg[0]};
    const struct list *l = c->arg[0].kind == V_TUPLE ? c->arg[0].list : &one;
    struct string *s;
    int64_t start;

    *out = value_bool(false);
    PL_TRY(part_of_self(r, c, 1, &s, &start));
    for (size_t i = 0; i < l->n; i++) {
        struct string *end;

        PL_TRY(need_string(r, l->item[i], &end));
        out->truth |= has_end(s, end, first);
    }
    return PL_OK;
}

static pl_status startswith(struct render *r, const struct call *c,
                            struct value *out)
{
    return has_any_end(r, c, true, out);
}

static pl_status endswith(struct render *r, const struct call *c,
                          struct value *out)
{
    return has_any_end(r, c, false, out);
}

static pl_status remove_end(struct render *r, const struct call *c, bool first,
                            struct value *out)
{
    const struct string *s = c->self.str;
    struct string *end;
    size_t n;

    PL_TRY(need_string(r, c->arg[0], &end));
    n = has_end(s, end, first) ? end->len : 0;
    return render_view(r, s->s + (first ? n : 0), s->len - n, out);
}

static pl_status removeprefix(struct render *r, const struct call *c,
                              struct value *out)
{
    return remove_end(r, c, true, out);
}

static pl_status removesuffix(struct render *r, const struct call *c,
                              struct value *out)
{
    return remove_end(r, c, false, out);
}

/* Sets *found to the first (or, if `last`, the last) occurrence of `part` in
 * s[0 .. n); to NULL if there is none. */
static pl_status find_part(struct render *r, const char *s, size_t n,
                           const struct string *part, bool last,
                           const char **found)
{
    *found = last ? NULL : memmem(s, n, part->s, part->len);
    if (!last || n < part->len)
        return PL_OK;
    for (size_t at = n - part->len + 1; at-- > 0;) {
        if (part->len > 0 && s[at] != part->s[0])
            continue;
        PL_TRY(render_spend(r, 1 + part->len / 64));
        if (memcmp(s + at, part->s, part->len) == 0) {
            *found = s + at;
            return PL_OK;
        }
    }
    return PL_OK;
}

/* Removes the next word from *s [*n], from its left end or, if `last`, from its
 * right end. Words are separated by whitespace. Sets *word and *len to the
 * word. Returns false if there is no word left. */
static bool next_word(const char **s, size_t *n, bool last, const char **word,
                      size_t *len)
{
    size_t at = 0;
    uint32_t c;

    if (last) {
        *n -= unicode_space_last(*s, *n);
        at = *n;
        while (at > 0 && unicode_space_last(*s, at) == 0)
            at--;
    } else {
        size_t skip = unicode_space_first(*s, *n);

        *s += skip;
        *n -= skip;
        while (at < *n) {
            size_t k = unicode_get(*s + at, *n - at, &c);

            if (unicode_is_space(c))
                break;
            at += k;
        }
    }
    if (*n == 0)
        return false;
    *word = last ? *s + at : *s;
    *len = last ? *n - at : at;
    *s += last ? 0 : at;
    *n -= *len;
    return true;
}

static pl_status split_words(struct render *r, const struct string *self,
                             int64_t most, bool last, struct items *out)
{
    const char *s = self->s, *word;
    size_t n = self->len, len;

    for (; most != 0 && next_word(&s, &n, last, &word, &len); most -= most > 0)
        PL_TRY(items_add_view(r, out, word, len));
    if (last)
        n -= unicode_space_last(s, n);
    else {
        size_t skip = unicode_space_first(s, n);

        s += skip;
        n -= skip;
    }
    return n > 0 ? items_add_view(r, out, s, n) : PL_OK;
}

static pl_status split_at(struct render *r, const struct string *self,
                          const struct string *sep, int64_t most, bool last,
                          struct items *out)
{
    const char *s = self->s, *found;
    size_t n = self->len;

    for (; most != 0; most -= most > 0) {
        size_t rest;

        PL_TRY(find_part(r, s, n, sep, last, &found));
        if (!found)
            break;
        rest = (size_t)(s + n - found) - sep->len;
        if (last) {
            PL_TRY(items_add_view(r, out, found + sep->len, rest));
            n = (size_t)(found - s);
        } else {
            PL_TRY(items_add_view(r, out, s, (size_t)(found - s)));
            s = found + sep->len;
            n = rest;
        }
    }
    return items_add_view(r, out, s, n);
}

static pl_status split_self(struct render *r, const struct call *c, bool last,
                            struct value *out)
{
    struct items l = {0};
    struct string *sep;
    int64_t most;

    PL_TRY(get_int(r, c->arg[1], -1, &most));
    PL_TRY(render_spend(r, c->self.str->len / 16));
    if (c->arg[0].kind == V_ABSENT || c->arg[0].kind == V_NONE) {
        PL_TRY(split_words(r, c->self.str, most, last, &l));
    } else {
        PL_TRY(need_string(r, c->arg[0], &sep));
        if (sep->len == 0)
            return render_fail(r, PL_BAD_ARGUMENT, "empty separator");
        PL_TRY(split_at(r, c->self.str, sep, most, last, &l));
    }
    for (size_t i = 0; last && i < l.n / 2; i++) {
        struct value v = l.item[i];

        l.item[i] = l.item[l.n - 1 - i];
        l.item[l.n - 1 - i] = v;
    }
    return items_take(r, &l, V_LIST, out);
}

static pl_status split(struct render *r, const struct call *c,
                       struct value *out)
{
    return split_self(r, c, false, out);
}

static pl_status rsplit(struct render *r, const struct call *c,
                        struct value *out)
{
    return split_self(r, c, true, out);
}

static pl_status partition_at(struct render *r, const struct call *c, bool last,
                              struct value *out)
{
    const struct string *s = c->self.str;
    struct items l = {0};
    struct string *sep;
    const char *found;

    PL_TRY(need_string(r, c->arg[0], &sep));
    if (sep->len == 0)
        return render_fail(r, PL_BAD_ARGUMENT, "empty separator");
    PL_TRY(find_part(r, s->s, s->len, sep, last, &found));
    if (found) {
        size_t n = (size_t)(found - s->s);

        PL_TRY(items_add_view(r, &l, s->s, n));
        PL_TRY(items_add(r, &l, c->arg[0]));
        n += sep->len;
        PL_TRY(items_add_view(r, &l, s->s + n, s->len - n));
    } else {
        for (int i = 0; i < 3; i++)
            PL_TRY(
                items_add_view(r, &l, s->s, i == (last ? 2 : 0) ? s->len : 0));
    }
    return items_take(r, &l, V_TUPLE, out);
}

static pl_status partition(struct render *r, const struct call *c,
                           struct value *out)
{
    return partition_at(r, c, false, out);
}

static pl_status rpartition(struct render *r, const struct call *c,
                            struct value *out)
{
    return partition_at(r, c, true, out);
}

static pl_status splitlines(struct render *r, const struct call *c,
                            struct value *out)
{
    struct items l = {0};

    PL_TRY(string_lines(r, c->self.str, value_truth(c->arg[0]), &l));
    return items_take(r, &l, V_LIST, out);
}

static pl_status replace(struct render *r, const struct call *c,
                         struct value *out)
{
    struct string *from, *to;
    int64_t most;

    PL_TRY(need_string(r, c->arg[0], &from));
    PL_TRY(need_string(r, c->arg[1], &to));
    PL_TRY(get_int(r, c->arg[2], -1, &most));
    return string_replace(r, c->self.str, from, to, most, out);
}

/* Sets *out to the index of the first (or, if `last`, the last) character of
 * self at which the argument of the call occurs; to -1 if there is none. */
static pl_status find_in(struct render *r, const struct call *c, bool last,
                         struct value *out)
{
    struct string *part, *s;
    const char *found;
    int64_t first;

    PL_TRY(need_string(r, c->arg[0], &part));
    PL_TRY(part_of_self(r, c, 1, &s, &first));
    PL_TRY(find_part(r, s->s, s->len, part, last, &found));
    *out = value_int(-1);
    if (found)
        *out = value_int(first +
                         (int64_t)unicode_count(s->s, (size_t)(found - s->s)));
    return render_spend(r, s->len / 16);
}

static pl_status find(struct render *r, const struct call *c, struct value *out)
{
    return find_in(r, c, false, out);
}

static pl_status rfind(struct render *r, const struct call *c,
                       struct value *out)
{
    return find_in(r, c, true, out);
}

static pl_status index_in(struct render *r, const struct call *c, bool last,
                          struct value *out)
{
    PL_TRY(find_in(r, c, last, out));
    return out->i >= 0 ? PL_OK
                       : render_fail(r, PL_BAD_ARGUMENT, "substring not found");
}

static pl_status string_index(struct render *r, const struct call *c,
                              struct value *out)
{
    return index_in(r, c, false, out);
}

static pl_status string_rindex(struct render *r, const struct call *c,
                               struct value *out)
{
    return index_in(r, c, true, out);
}

static pl_status string_count(struct render *r, const struct call *c,
                              struct value *out)
{
    struct string *part, *s;
    const char *at;
    int64_t first, n = 0;

    PL_TRY(need_string(r, c->arg[0], &part));
    PL_TRY(part_of_self(r, c, 1, &s, &first));
    if (part->len == 0)
        n = (int64_t)unicode_count(s->s, s->len) + 1;
    else
        for (at = s->s; (at = memmem(at, (size_t)(s->s + s->len - at), part->s,
                                     part->len));
             at += part->len)
            n++;
    *out = value_int(n);
    return render_spend(r, s->len / 16);
}

static pl_status join(struct render *r, const struct call *c, struct value *out)
{
    size_t from = r->n_out;
    struct list l;

    PL_TRY(value_items(r, c->arg[0], &l));
    for (size_t i = 0; i < l.n; i++) {
        struct string *s;

        PL_TRY(need_string(r, l.item[i], &s));
        if (i > 0)
            PL_TRY(render_put(r, c->self.str->s, c->self.str->len));
        PL_TRY(render_put(r, s->s, s->len));
        PL_TRY(render_spend(r, 1));
    }
    return render_take(r, from, out);
}

static pl_status format(struct render *r, const struct call *c,
                        struct value *out)
{
    return format_braces(r, c->self.str, c->args, out);
}

/* Sets *out to `s`, padded to `width` characters. This takes `more` fill
 * characters. The first left(more, width) of these precede the text. */
static pl_status justify(struct render *r, const struct string *s,
                         int64_t width, const struct string *fill,
                         int (*left)(int64_t more, int64_t width),
                         struct value *out)
{
    int64_t n = (int64_t)unicode_count(s->s, s->len);
    int64_t more = width > n ? width - n : 0, before;
    size_t from = r->n_out;

    if (fill && unicode_count(fill->s, fill->len) != 1)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the fill character must be one character");
    if (more > (64 << 20))
        return render_fail(r, PL_FULL,
                           "the resulting string has more than 64 MiB");
    PL_TRY(render_spend(r, (uint64_t)more));
    before = left(more, width);
    for (int64_t i = 0; i <= more; i++) {
        if (i == before)
            PL_TRY(render_put(r, s->s, s->len));
        if (i < more)
            PL_TRY(render_put(r, fill ? fill->s : " ", fill ? fill->len : 1));
    }
    return render_take(r, from, out);
}

static int none_left(int64_t more, int64_t width)
{
    (void)more;
    (void)width;
    return 0;
}

static int all_left(int64_t more, int64_t width)
{
    (void)width;
    return (int)more;
}

/* Returns the number of fill characters that precede a centered text, of `more`
 * in all. If `more` is odd, the left side gets the extra one only if `width` is
 * odd, as in CPython. */
static int half_left(int64_t more, int64_t width)
{
    return (int)(more / 2 + (more & width & 1));
}

pl_status string_center(struct render *r, const struct string *s, int64_t width,
                        const struct string *fill, struct value *out)
{
    return justify(r, s, width, fill, half_left, out);
}

static pl_status justify_self(struct render *r, const struct call *c,
                              int (*left)(int64_t, int64_t), struct value *out)
{
    struct string *fill = NULL;
    int64_t width;

    PL_TRY(get_int(r, c->arg[0], 0, &width));
    if (c->arg[1].kind != V_ABSENT)
        PL_TRY(need_string(r, c->arg[1], &fill));
    return justify(r, c->self.str, width, fill, left, out);
}

static pl_status center(struct render *r, const struct call *c,
                        struct value *out)
{
    return justify_self(r, c, half_left, out);
}

static pl_status ljust(struct render *r, const struct call *c,
                       struct value *out)
{
    return justify_self(r, c, none_left, out);
}

static pl_status rjust(struct render *r, const struct call *c,
                       struct value *out)
{
    return justify_self(r, c, all_left, out);
}

/* The method zfill(): pads a string to a width with zeros, which follow its
 * sign. */
static pl_status zfill(struct render *r, const struct call *c,
                       struct value *out)
{
    static const struct string zero = {.s = "0", .len = 1, .ascii = true};
    const struct string *s = c->self.str;
    bool sign = s->len > 0 && (s->s[0] == '-' || s->s[0] == '+');
    size_t from = r->n_out;
    struct value digits;
    int64_t width;

    PL_TRY(get_int(r, c->arg[0], 0, &width));
    PL_TRY(render_view(r, s->s + sign, s->len - sign, &digits));
    PL_TRY(justify(r, digits.str, width - sign, &zero, all_left, &digits));
    PL_TRY(render_put(r, s->s, sign));
    PL_TRY(render_put(r, digits.str->s, digits.str->len));
    return render_take(r, from, out);
}

/* Sets *out to true if self is not empty and is(c) is true for all its
 * characters c. */
static pl_status all_are(const struct call *c, bool (*is)(uint32_t),
                         struct value *out)
{
    const struct string *s = c->self.str;
    bool all = s->len > 0;

    for (size_t at = 0; at < s->len && all;) {
        uint32_t ch;

        at += unicode_get(s->s + at, s->len - at, &ch);
        all = is(ch);
    }
    *out = value_bool(all);
    return PL_OK;
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter_or_digit(uint32_t c)
{
    return is_digit(c) || unicode_is_letter(c);
}

static pl_status isdigit_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    return all_are(c, is_digit, out);
}

static pl_status isalpha_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    return all_are(c, unicode_is_letter, out);
}

static pl_status isalnum_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    return all_are(c, is_letter_or_digit, out);
}

static pl_status isspace_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    return all_are(c, unicode_is_space, out);
}

static pl_status isupper_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    *out = value_bool(string_has_case(c->self.str, true));
    return PL_OK;
}

static pl_status islower_(struct render *r, const struct call *c,
                          struct value *out)
{
    (void)r;
    *out = value_bool(string_has_case(c->self.str, false));
    return PL_OK;
}

const struct builtin builtin_string_methods[] = {
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"casefold", "", 0, lower},
    {"capitalize", "", 0, capitalize},
    {"title", "", 0, title},
    {"swapcase", "", 0, swapcase},
    {"strip", "chars", 0, strip},
    {"lstrip", "chars", 0, lstrip},
    {"rstrip", "chars", 0, rstrip},
    {"startswith", "prefix start end", 1, startswith},
    {"endswith", "suffix start end", 1, endswith},
    {"removeprefix", "prefix", 1, removeprefix},
    {"removesuffix", "suffix", 1, removesuffix},
    {"split", "sep maxsplit", 0, split},
    {"rsplit", "sep maxsplit", 0, rsplit},
    {"splitlines", "keepends", 0, splitlines},
    {"partition", "sep", 1, partition},
    {"rpartition", "sep", 1, rpartition},
    {"replace", "old new count", 2, replace},
    {"find", "sub start end", 1, find},
    {"rfind", "sub start end", 1, rfind},
    {"index", "sub start end", 1, string_index},
    {"rindex", "sub start end", 1, string_rindex},
    {"count", "sub start end", 1, string_count},
    {"join", "iterable", 1, join},
    {"format", "*", 0, format},
    {"center", "width fillchar", 1, center},
    {"ljust", "width fillchar", 1, ljust},
    {"rjust", "width fillchar", 1, rjust},
    {"zfill", "width", 1, zfill},
    {"isdigit", "", 0, isdigit_},
    {"isdecimal", "", 0, isdigit_},
    {"isnumeric", "", 0, isdigit_},
    {"isalpha", "", 0, isalpha_},
    {"isalnum", "", 0, isalnum_},
    {"isspace", "", 0, isspace_},
    {"isupper", "", 0, isupper_},
    {"islower", "", 0, islower_},
    {0},
};

/* ---- methods of dicts and lists ---------------------------------------- */

static pl_status dict_get(struct render *r, const struct call *c,
                          struct value *out)
{
    struct value *found = NULL;

    (void)r;
    if (value_is_key(c->arg[0]))
        found = dict_find(c->self.dict, c->arg[0]);
    *out = found                        ? *found
           : c->arg[1].kind != V_ABSENT ? c->arg[1]
                                        : value_none();
    return PL_OK;
}

static pl_status dict_view(struct render *r, const struct dict *d,
                           enum view what, struct value *out)
{
    struct list *l;

    PL_TRY(render_list(r, d->n, &l));
    for (size_t i = 0; i < d->n; i++) {
        struct list *pair;

        if (what != VIEW_ITEMS) {
            l->item[i] = what == VIEW_KEYS ? d->pair[i].key : d->pair[i].value;
            continue;
        }
        PL_TRY(render_list(r, 2, &pair));
        pair->item[0] = d->pair[i].key;
        pair->item[1] = d->pair[i].value;
        l->item[i] = (struct value){.kind = V_TUPLE, .list = pair};
    }
    *out = (struct value){.kind = V_VIEW, .sub = (uint8_t)what, .list = l};
    return render_spend(r, d->n);
}

static pl_status dict_keys(struct render *r, const struct call *c,
                           struct value *out)
{
    return dict_view(r, c->self.dict, VIEW_KEYS, out);
}

static pl_status dict_values(struct render *r, const struct call *c,
                             struct value *out)
{
    return dict_view(r, c->self.dict, VIEW_VALUES, out);
}

static pl_status dict_items(struct render *r, const struct call *c,
                            struct value *out)
{
    return dict_view(r, c->self.dict, VIEW_ITEMS, out);
}

/* The method copy() of dicts and tuples: returns the object itself, because it
 * never changes. */
static pl_status copy(struct render *r, const struct call *c, struct value *out)
{
    (void)r;
    *out = c->self;
    return PL_OK;
}

/* A row without a function is a method that would change the dict, which
 * templates may not do. The attribute of this name is undefined, even if the
 * dict has such a key. */
const struct builtin builtin_dict_methods[] = {
    {"get", "key default", 1, dict_get},
    {"keys", "", 0, dict_keys},
    {"values", "", 0, dict_values},
    {"items", "", 0, dict_items},
    {"copy", "", 0, copy},
    {"clear", "", 0, NULL},
    {"pop", "", 0, NULL},
    {"popitem", "", 0, NULL},
    {"setdefault", "", 0, NULL},
    {"update", "", 0, NULL},
    {0},
};

static pl_status list_count(struct render *r, const struct call *c,
                            struct value *out)
{
    const struct list *l = c->self.list;

    *out = value_int(0);
    for (size_t i = 0; i < l->n; i++) {
        bool same;

        PL_TRY(value_equal(r, l->item[i], c->arg[0], &same));
        out->i += same;
    }
    return PL_OK;
}

static pl_status list_index(struct render *r, const struct call *c,
                            struct value *out)
{
    const struct list *l = c->self.list;

    for (size_t i = 0; i < l->n; i++) {
        bool same;

        PL_TRY(value_equal(r, l->item[i], c->arg[0], &same));
        if (same) {
            *out = value_int((int64_t)i);
            return PL_OK;
        }
    }
    return render_fail(r, PL_BAD_ARGUMENT, "the value is not in the list");
}

const struct builtin builtin_list_methods[] = {
    {"count", "value", 1, list_count},
    {"index", "value", 1, list_index},
    {"copy", "", 0, copy},
    {0},
};

/* ---- methods that change a list ---------------------------------------- */

/* Fails if `v` is the list `l` or contains it. So no list can contain itself,
 * and code that walks through the values in a list always ends. */
static pl_status check_outside(struct render *r, const struct list *l,
                               struct value v)
{
    PL_TRY(render_spend(r, 1));
    if (v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_DICT)
        return PL_OK;
    if (v.kind != V_DICT && v.list == l)
        return render_fail(r, PL_BAD_ARGUMENT, "a list cannot contain itself");
    PL_TRY(render_deeper(r));
    for (size_t i = 0; v.kind == V_DICT && i < v.dict->n; i++)
        PL_TRY(check_outside(r, l, v.dict->pair[i].value));
    for (size_t i = 0; v.kind != V_DICT && i < v.list->n; i++)
        PL_TRY(check_outside(r, l, v.list->item[i]));
    r->left.depth++;
    return PL_OK;
}

/* Inserts v before item `at` of the list l. The items are moved to a new array
 * if the list has no capacity of its own, or if `at` is not its end. */
static pl_status insert_item(struct render *r, struct list *l, size_t at,
                             struct value v)
{
    PL_TRY(check_outside(r, l, v));
    if (at < l->n || l->n >= l->cap) {
        size_t cap = l->n < 2 ? 4 : 2 * l->n;
        struct value *item;

        PL_TRY(render_spend(r, l->n / 4));
        PL_TRY(render_alloc(r, cap, sizeof *item, &item));
        memcpy(item, l->item, at * sizeof *item);
        memcpy(item + at + 1, l->item + at, (l->n - at) * sizeof *item);
        l->item = item;
        l->cap = cap;
    }
    l->item[at] = v;
    l->n++;
    return PL_OK;
}

static pl_status list_append(struct render *r, const struct call *c,
                             struct value *out)
{
    *out = value_none();
    return insert_item(r, c->self.list, c->self.list->n, c->arg[0]);
}

static pl_status list_extend(struct render *r, const struct call *c,
                             struct value *out)
{
    struct list more;

    *out = value_none();
    PL_TRY(value_items(r, c->arg[0], &more));
    for (size_t i = 0; i < more.n; i++)
        PL_TRY(insert_item(r, c->self.list, c->self.list->n, more.item[i]));
    return PL_OK;
}

/* Converts an index of a list with n items to an offset 0 .. n. A negative
 * index counts from the end; `usual` is the index if `v` is absent. */
static pl_status get_index(struct render *r, struct value v, int64_t usual,
                           size_t n, size_t *out)
{
    int64_t i, len = (int64_t)n;

    PL_TRY(get_int(r, v, usual, &i));
    i = i < -len ? 0 : i < 0 ? i + len : i > len ? len : i;
    *out = (size_t)i;
    return PL_OK;
}

static pl_status list_insert(struct render *r, const struct call *c,
                             struct value *out)
{
    struct list *l = c->self.list;
    size_t at;

    *out = value_none();
    PL_TRY(get_index(r, c->arg[0], 0, l->n, &at));
    return insert_item(r, l, at, c->arg[1]);
}

/* The list method pop(): removes an item, the last one by default, and sets
 * *out to it. */
static pl_status list_pop(struct render *r, const struct call *c,
                          struct value *out)
{
    struct list *l = c->self.list;
    struct value *item;
    size_t at;

    PL_TRY(get_index(r, c->arg[0], -1, l->n, &at));
    if (at >= l->n)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"pop\" of a list with %zu items: no such item",
                           l->n);
    *out = l->item[at];
    /* Other lists may share the array, so a later append must not overwrite the
     * removed item. */
    l->cap = 0;
    l->n--;
    if (at == 0) {
        l->item++;
    } else if (at < l->n) {
        PL_TRY(render_spend(r, l->n / 4));
        PL_TRY(render_alloc(r, l->n, sizeof *item, &item));
        memcpy(item, l->item, at * sizeof *item);
        memcpy(item + at, l->item + at + 1, (l->n - at) * sizeof *item);
        l->item = item;
    }
    return PL_OK;
}

static pl_status list_copy(struct render *r, const struct call *c,
                           struct value *out)
{
    struct list *l;

    PL_TRY(render_alloc(r, 1, sizeof *l, &l));
    PL_TRY(value_items(r, c->self, l));
    *out = (struct value){.kind = V_LIST, .list = l};
    return PL_OK;
}

const struct builtin builtin_list_changes[] = {
    {"append", "object", 1, list_append},
    {"extend", "iterable", 1, list_extend},
    {"insert", "index object", 2, list_insert},
    {"pop", "index", 0, list_pop},
    {"copy", "", 0, list_copy},
    {0},
};

/* ---- methods of loops -------------------------------------------------- */

static pl_status cycle(struct render *r, const struct call *c,
                       struct value *out)
{
    if (c->args->n == 0)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "\"cycle\" needs at least one item");
    *out = c->args->value[c->self.loop->at % (size_t)c->args->n];
    return PL_OK;
}

/* The method loop.changed(): sets *out to true if the arguments differ from
 * those of its last call in this loop. */
static pl_status changed(struct render *r, const struct call *c,
                         struct value *out)
{
    struct loop *loop = c->self.loop;
    struct items now = {0};
    struct value v;
    bool same;

    for (int i = 0; i < c->args->n; i++)
        PL_TRY(items_add(r, &now, c->args->value[i]));
    PL_TRY(items_take(r, &now, V_TUPLE, &v));
    PL_TRY(value_equal(r, loop->last, v, &same));
    loop->last = v;
    *out = value_bool(!same);
    return PL_OK;
}

const struct builtin builtin_loop_methods[] = {
    {"cycle", "*", 0, cycle},
    {"changed", "*", 0, changed},
    {0},
};

/* ---- methods of cyclers ------------------------------------------------- */

static pl_status next(struct render *r, const struct call *c, struct value *out)
{
    struct cycler *cycle = c->self.cycler;

    (void)r;
    *out = cycle->list->item[cycle->at];
    cycle->at = (cycle->at + 1) % cycle->list->n;
    return PL_OK;
}

static pl_status reset(struct render *r, const struct call *c,
                       struct value *out)
{
    (void)r;
    c->self.cycler->at = 0;
    *out = value_none();
    return PL_OK;
}

const struct builtin builtin_cycler_methods[] = {
    {"next", "", 0, next},
    {"reset", "", 0, reset},
    {0},
};
