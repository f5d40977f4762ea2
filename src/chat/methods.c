/* Methods of strings, dicts, lists, loops and cyclers in the template
 * language. */
#include "chat/strings.h"

#include "chat/unicode.h"

#include <string.h>

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

struct value string_case(struct render *r, const struct string *s,
                         enum string_case to)
{
    size_t from = r->n_out, at = 0;
    uint32_t before = 0, c;
    bool first = true;

    work_spend(&r->w, s->len / 16);
    for (; string_next(s, &at, &c); before = c, first = false)
        if (c == SHARP_S && cased('s', to, first, before) == 'S')
            render_puts(r, to == CASE_UPPER || to == CASE_SWAP ? "SS" : "Ss");
        else
            render_put_char(r, cased(c, to, first, before));
    return render_take(r, from);
}

struct value string_cased(struct render *r, const struct call *c)
{
    return string_case(r, c->s, (enum string_case)c->what);
}

struct value string_is_case(struct render *r, const struct call *c)
{
    const struct string *s = c->s;
    const bool upper = c->what;
    bool any = false;
    size_t at = 0;
    uint32_t ch;

    (void)r;
    while (string_next(s, &at, &ch)) {
        if (upper ? unicode_lower(ch) != ch : unicode_upper(ch) != ch)
            any = true;
        else if (upper ? unicode_upper(ch) != ch : unicode_lower(ch) != ch)
            return value_bool(false);
    }
    return value_bool(any);
}

/* ---- stripping, replacing, splitting lines ----------------------------- */

/* Returns the number of bytes at the beginning of s[0 .. n), or at its end if
 * `last`, that belong to characters of the set `chars`. */
static size_t span(struct render *r, const char *s, size_t n,
                   const struct string *chars, bool last)
{
    size_t done = 0, len;

    for (; done < n; done += len) {
        const char *c = s + done;
        uint32_t code;

        if (last) {
            c = s + n - done - 1;
            while (c > s && s + n - done - c < 4 && (*c & 0xc0) == 0x80)
                c--;
            len = (size_t)(s + n - done - c);
        } else {
            len = unicode_get(c, n - done, &code);
        }
        work_spend(&r->w, 1 + chars->len / 64);
        if (!memmem(chars->s, chars->len, c, len))
            break;
    }
    return done;
}

struct value string_strip(struct render *r, const struct call *c)
{
    const struct string *chars = c->arg[0].str;
    const bool spaces = c->arg[0].kind == V_ABSENT;
    const char *s = c->s->s;
    size_t n = c->s->len, cut = 0;

    if (c->what & SIDE_LEFT)
        cut = spaces ? unicode_space_first(s, n) : span(r, s, n, chars, false);
    s += cut;
    n -= cut;
    if (c->what & SIDE_RIGHT)
        n -= spaces ? unicode_space_last(s, n) : span(r, s, n, chars, true);
    return value_view(&r->w, s, n);
}

struct value string_replace(struct render *r, const struct call *c)
{
    const struct string *s = c->s, *from = c->arg[0].str, *to = c->arg[1].str;
    int64_t most = c->arg[2].i;
    size_t mark = r->n_out, at = 0;

    work_spend(&r->w, s->len / 16);
    for (; most != 0 && at <= s->len; most -= most > 0) {
        const char *found =
            from->len == 0 ? s->s + at
                           : memmem(s->s + at, s->len - at, from->s, from->len);
        size_t to_found;
        uint32_t ch;

        if (!found)
            break;
        to_found = (size_t)(found - s->s) - at;
        render_put(r, s->s + at, to_found);
        render_put(r, to->s, to->len);
        at += to_found + from->len;
        if (from->len > 0)
            continue;
        if (at == s->len) /* an empty `from` also matches at the end of the
                             string */
            break;
        to_found = unicode_get(s->s + at, s->len - at, &ch);
        render_put(r, s->s + at, to_found);
        at += to_found;
    }
    render_put(r, s->s + at, s->len - at);
    return render_take(r, mark);
}

static bool ends_line(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
}

struct list string_lines(struct render *r, const struct string *s, bool ends)
{
    size_t start = 0, at = 0, end = 0;
    struct list out = {0};
    uint32_t c;

    work_spend(&r->w, s->len / 16);
    for (; string_next(s, &at, &c); end = at) {
        if (!ends_line(c))
            continue;
        if (c == '\r' && at < s->len && s->s[at] == '\n')
            at++;
        list_add_view(r, &out, s->s + start, (ends ? at : end) - start);
        start = at;
    }
    if (start < s->len)
        list_add_view(r, &out, s->s + start, s->len - start);
    return out;
}

static struct value splitlines(struct render *r, const struct call *c)
{
    return value_list(&r->w, V_LIST, string_lines(r, c->s, c->arg[0].truth));
}

int64_t string_index(const struct string *s)
{
    int64_t v = 0;
    size_t i = 0;

    for (; i < s->len && i < 18 && s->s[i] >= '0' && s->s[i] <= '9'; i++)
        v = 10 * v + (s->s[i] - '0');
    return i > 0 && i == s->len ? v : -1;
}

/* ---- searching in strings ---------------------------------------------- */

/* Returns self[start:end], where `start` and `end` are the arguments 1 and 2 of
 * the call. Sets *first to the index in self of its first character. */
static const struct string *part_of_self(struct render *r, const struct call *c,
                                         int64_t *first)
{
    struct value part[3] = {c->arg[1], c->arg[2], value_none()}, v;

    *first = 0;
    if (part[0].kind == V_ABSENT)
        return c->s;
    if (part[1].kind == V_ABSENT)
        part[1] = value_none();
    v = value_slice(r, c->self, part);
    if (v.kind != V_STR)
        return &r->w.empty;
    if (part[0].kind != V_NONE)
        *first = value_as_int(part[0]);
    if (*first < 0) {
        *first += value_length(r, c->self);
        *first = *first < 0 ? 0 : *first;
    }
    return v.str;
}

static bool has_end(const struct string *s, const struct string *end,
                    bool first)
{
    return s->len >= end->len && memcmp(first ? s->s : s->s + s->len - end->len,
                                        end->s, end->len) == 0;
}

/* Returns true if self begins with the argument of the call (SIDE_LEFT) or ends
 * with it. If the argument is a tuple, one of its strings is enough. */
static struct value has_any_end(struct render *r, const struct call *c)
{
    const struct list one = {.n = 1, .item = (struct value *)&c->arg[0]};
    const struct list *l = c->arg[0].kind == V_TUPLE ? c->arg[0].list : &one;
    int64_t start;
    const struct string *s = part_of_self(r, c, &start);
    bool any = false;

    for (size_t i = 0; i < l->n; i++)
        any |= has_end(s, need_string(r, l->item[i]), c->what == SIDE_LEFT);
    return value_bool(any);
}

static struct value remove_end(struct render *r, const struct call *c)
{
    const bool first = c->what == SIDE_LEFT;
    const struct string *s = c->s, *end = c->arg[0].str;
    const size_t n = has_end(s, end, first) ? end->len : 0;

    return value_view(&r->w, s->s + (first ? n : 0), s->len - n);
}

/* Returns the first (or, if `last`, the last) occurrence of `part` in s[0 ..
 * n); NULL if there is none. */
static const char *find_part(struct render *r, const char *s, size_t n,
                             const struct string *part, bool last)
{
    if (!last)
        return memmem(s, n, part->s, part->len);
    if (n < part->len)
        return NULL;
    for (size_t at = n - part->len + 1; at-- > 0 && r->w.status == PL_OK;) {
        if (part->len > 0 && s[at] != part->s[0])
            continue;
        work_spend(&r->w, 1 + part->len / 64);
        if (memcmp(s + at, part->s, part->len) == 0)
            return s + at;
    }
    return NULL;
}

/* Functions of which one searches from the left and one from the right, and
 * index() fails if there is nothing to find: flags of `what`. */
enum { FROM_RIGHT = 1, MUST_FIND = 2 };

/* Returns the index of the first or last character of self at which the
 * argument of the call occurs; -1 if there is none. */
static struct value find_in(struct render *r, const struct call *c)
{
    int64_t first;
    const struct string *s = part_of_self(r, c, &first);
    const char *found =
        find_part(r, s->s, s->len, c->arg[0].str, c->what & FROM_RIGHT);

    work_spend(&r->w, s->len / 16);
    if (found)
        return value_int(first +
                         (int64_t)unicode_count(s->s, (size_t)(found - s->s)));
    if (c->what & MUST_FIND)
        render_bad(r, "substring not found");
    return value_int(-1);
}

static struct value string_count(struct render *r, const struct call *c)
{
    int64_t first, n = 0;
    const struct string *s = part_of_self(r, c, &first), *part = c->arg[0].str;
    const char *at = s->s, *end = s->s + s->len;

    work_spend(&r->w, s->len / 16);
    if (part->len == 0)
        return value_int((int64_t)unicode_count(s->s, s->len) + 1);
    while ((at = memmem(at, (size_t)(end - at), part->s, part->len))) {
        at += part->len;
        n++;
    }
    return value_int(n);
}

/* ---- splitting and joining --------------------------------------------- */

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

static struct list split_words(struct render *r, const struct string *self,
                               int64_t most, bool last)
{
    const char *s = self->s, *word;
    size_t n = self->len, len, skip;
    struct list out = {0};

    for (; most != 0 && next_word(&s, &n, last, &word, &len); most -= most > 0)
        list_add_view(r, &out, word, len);
    skip = last ? 0 : unicode_space_first(s, n);
    n -= last ? unicode_space_last(s, n) : skip;
    if (n > 0)
        list_add_view(r, &out, s + skip, n);
    return out;
}

static struct list split_at(struct render *r, const struct string *self,
                            const struct string *sep, int64_t most, bool last)
{
    const char *s = self->s, *found;
    size_t n = self->len;
    struct list out = {0};

    for (; most != 0 && (found = find_part(r, s, n, sep, last));
         most -= most > 0) {
        const size_t before = (size_t)(found - s);
        const size_t rest = n - before - sep->len;

        list_add(&r->w, &out,
                 last ? value_view(&r->w, found + sep->len, rest)
                      : value_view(&r->w, s, before));
        n = last ? before : rest;
        s = last ? s : found + sep->len;
    }
    list_add_view(r, &out, s, n);
    return out;
}

static struct value split(struct render *r, const struct call *c)
{
    const struct string *sep = c->arg[0].str;
    struct list l = {0};

    work_spend(&r->w, c->s->len / 16);
    if (c->arg[0].kind == V_ABSENT)
        l = split_words(r, c->s, c->arg[1].i, c->what);
    else if (sep->len == 0)
        render_bad(r, "empty separator");
    else
        l = split_at(r, c->s, sep, c->arg[1].i, c->what);
    for (size_t i = 0; c->what == FROM_RIGHT && i < l.n / 2; i++) {
        struct value v = l.item[i];

        l.item[i] = l.item[l.n - 1 - i];
        l.item[l.n - 1 - i] = v;
    }
    return value_list(&r->w, V_LIST, l);
}

static struct value partition(struct render *r, const struct call *c)
{
    const struct string *s = c->s, *sep = c->arg[0].str;
    const bool last = c->what;
    const char *found;
    size_t n;
    struct list l = {0};

    if (sep->len == 0)
        return render_bad(r, "empty separator");
    found = find_part(r, s->s, s->len, sep, last);
    n = found ? (size_t)(found - s->s) : last ? 0 : s->len;
    list_add_view(r, &l, s->s, n);
    list_add_view(r, &l, s->s + n, found ? sep->len : 0);
    n += found ? sep->len : 0;
    list_add_view(r, &l, s->s + n, s->len - n);
    return value_list(&r->w, V_TUPLE, l);
}

static struct value join(struct render *r, const struct call *c)
{
    const struct list l = value_items(r, c->arg[0]);
    size_t from = r->n_out;

    for (size_t i = 0; i < l.n; i++) {
        if (i > 0)
            put_str(r, c->self);
        if (value_is_markup(c->self))
            put_str(r, markup_escape(r, l.item[i], false));
        else
            put_str(r, value_str(need_string(r, l.item[i])));
        work_spend(&r->w, 1);
    }
    return render_take(r, from);
}

/* ---- padding and classifying strings ----------------------------------- */

struct value string_justify(struct render *r, const struct call *c)
{
    const struct string *fill =
        c->arg[1].kind == V_ABSENT ? NULL : c->arg[1].str;
    const int64_t width = c->arg[0].i, n = value_length(r, value_str(c->s));
    const int64_t more = width > n ? width - n : 0;
    size_t from = r->n_out, left = 0;
    uint32_t ch = ' ';

    if (fill &&
        (fill->len == 0 || unicode_get(fill->s, fill->len, &ch) != fill->len))
        return render_bad(r, "the fill character must be one character");
    if (more > (64 << 20))
        return work_fail(&r->w, PL_FULL,
                         "the resulting string has more than 64 MiB");
    /* If `more` is odd, the left side of a centered text gets the extra
     * character only if `width` is odd, as in CPython. */
    if (c->what == '>')
        left = (size_t)more;
    else if (c->what == '^')
        left = (size_t)(more / 2 + (more & width & 1));
    render_fill(r, ch, left);
    render_put(r, c->s->s, c->s->len);
    render_fill(r, ch, (size_t)more - left);
    return render_take(r, from);
}

/* The method zfill(): pads a string to a width with zeros, which follow its
 * sign. */
static struct value zfill(struct render *r, const struct call *c)
{
    const struct string *s = c->s;
    const size_t sign = s->len > 0 && (s->s[0] == '-' || s->s[0] == '+');
    struct string zero = {.s = "0", .len = 1, .ascii = true};
    struct call digits = {.what = '>'};
    size_t from = r->n_out;

    digits.self = value_view(&r->w, s->s + sign, s->len - sign);
    digits.s = digits.self.str;
    digits.arg[0] = value_int(c->arg[0].i - (int64_t)sign);
    digits.arg[1] = value_str(&zero);
    render_put(r, s->s, sign);
    put_str(r, string_justify(r, &digits));
    return render_take(r, from);
}

/* Returns true if self is not empty and all its characters are of the class
 * `what`, which is a letter. */
static struct value all_are(struct render *r, const struct call *c)
{
    const struct string *s = c->s;
    bool all = s->len > 0;
    size_t at = 0;
    uint32_t ch;

    (void)r;
    while (all && string_next(s, &at, &ch))
        all = (c->what == 's' && unicode_is_space(ch)) ||
              (strchr("dn", c->what) && ch >= '0' && ch <= '9') ||
              (strchr("an", c->what) && unicode_is_letter(ch));
    return value_bool(all);
}

const struct builtin builtin_string_methods[] = {
    {"upper", 'S', "", string_cased, CASE_UPPER},
    {"lower", 'S', "", string_cased, CASE_LOWER},
    {"casefold", 'S', "", string_cased, CASE_LOWER},
    {"capitalize", 'S', "", string_cased, CASE_CAPITAL},
    {"title", 'S', "", string_cased, CASE_TITLE},
    {"swapcase", 'S', "", string_cased, CASE_SWAP},
    {"strip", 'S', "chars:s~", string_strip, SIDE_LEFT | SIDE_RIGHT},
    {"lstrip", 'S', "chars:s~", string_strip, SIDE_LEFT},
    {"rstrip", 'S', "chars:s~", string_strip, SIDE_RIGHT},
    {"startswith", 'S', "prefix:v start:v? end:v?", has_any_end, SIDE_LEFT},
    {"endswith", 'S', "suffix:v start:v? end:v?", has_any_end, SIDE_RIGHT},
    {"removeprefix", 'S', "prefix:s", remove_end, SIDE_LEFT},
    {"removesuffix", 'S', "suffix:s", remove_end, SIDE_RIGHT},
    {"split", 'S', "sep:s~ maxsplit:i?-1", split, 0},
    {"rsplit", 'S', "sep:s~ maxsplit:i?-1", split, FROM_RIGHT},
    {"splitlines", 'S', "keepends:b?", splitlines, 0},
    {"partition", 'S', "sep:s", partition, 0},
    {"rpartition", 'S', "sep:s", partition, FROM_RIGHT},
    {"replace", 'S', "old:s new:e count:i?-1", string_replace, 0},
    {"find", 'S', "sub:s start:v? end:v?", find_in, 0},
    {"rfind", 'S', "sub:s start:v? end:v?", find_in, FROM_RIGHT},
    {"index", 'S', "sub:s start:v? end:v?", find_in, MUST_FIND},
    {"rindex", 'S', "sub:s start:v? end:v?", find_in, MUST_FIND | FROM_RIGHT},
    {"count", 'S', "sub:s start:v? end:v?", string_count, 0},
    {"join", 'S', "iterable:v", join, 0},
    {"format", 'S', "*", format_braces, 0},
    {"center", 'S', "width:i fillchar:e?", string_justify, '^'},
    {"ljust", 'S', "width:i fillchar:e?", string_justify, '<'},
    {"rjust", 'S', "width:i fillchar:e?", string_justify, '>'},
    {"zfill", 'S', "width:i", zfill, 0},
    {"isdigit", 'S', "", all_are, 'd'},
    {"isdecimal", 'S', "", all_are, 'd'},
    {"isnumeric", 'S', "", all_are, 'd'},
    {"isalpha", 'S', "", all_are, 'a'},
    {"isalnum", 'S', "", all_are, 'n'},
    {"isspace", 'S', "", all_are, 's'},
    {"isupper", 'S', "", string_is_case, true},
    {"islower", 'S', "", string_is_case, false},
    {0},
};

/* ---- methods of dicts and lists ---------------------------------------- */

static struct value dict_get(struct render *r, const struct call *c)
{
    const struct value *found = NULL;

    (void)r;
    if (value_is(c->arg[0], KINDS_KEY))
        found = dict_find(c->self.dict, c->arg[0]);
    return found                        ? *found
           : c->arg[1].kind != V_ABSENT ? c->arg[1]
                                        : value_none();
}

struct value dict_view(struct render *r, const struct call *c)
{
    const struct dict *d = c->self.dict;
    struct list l = list_with(&r->w, d->n);
    struct value out;

    work_spend(&r->w, d->n);
    for (size_t i = 0; i < l.cap; i++)
        list_add(&r->w, &l,
                 c->what == VIEW_KEYS ? d->pair[i].key
                 : c->what == VIEW_VALUES
                     ? d->pair[i].value
                     : value_pair(&r->w, d->pair[i].key, d->pair[i].value));
    out = value_list(&r->w, V_VIEW, l);
    if (out.kind == V_VIEW)
        out.sub = (uint8_t)c->what;
    return out;
}

/* The method copy() of dicts: returns the dict itself, because it never
 * changes. */
static struct value copy(struct render *r, const struct call *c)
{
    (void)r;
    return c->self;
}

/* A row without a function is a method that would change the dict or list,
 * which templates may not do. The attribute of this name is undefined, even if
 * the dict has such a key. */
const struct builtin builtin_dict_methods[] = {
    {"get", ' ', "key:v default:v?", dict_get, 0},
    {"keys", ' ', "", dict_view, VIEW_KEYS},
    {"values", ' ', "", dict_view, VIEW_VALUES},
    {"items", ' ', "", dict_view, VIEW_ITEMS},
    {"copy", ' ', "", copy, 0},
    {"clear", ' ', "", NULL, 0},
    {"pop", ' ', "", NULL, 0},
    {"popitem", ' ', "", NULL, 0},
    {"setdefault", ' ', "", NULL, 0},
    {"update", ' ', "", NULL, 0},
    {0},
};

static struct value list_count(struct render *r, const struct call *c)
{
    const struct list *l = c->self.list;
    int64_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += value_equal(r, l->item[i], c->arg[0]);
    return value_int(n);
}

static struct value list_index(struct render *r, const struct call *c)
{
    const struct list *l = c->self.list;

    for (size_t i = 0; i < l->n; i++)
        if (value_equal(r, l->item[i], c->arg[0]))
            return value_int((int64_t)i);
    return render_bad(r, "the value is not in the list");
}

/* ---- methods that change a list ---------------------------------------- */

/* Fails if `v` is the list `l` or contains it. So no list can contain itself,
 * and code that walks through the values in a list always ends. */
static void check_outside(struct render *r, const struct list *l,
                          struct value v)
{
    work_spend(&r->w, 1);
    if (!value_is(v, KINDS_LIST | 1 << V_DICT))
        return;
    if (v.kind != V_DICT && v.list == l)
        render_bad(r, "a list cannot contain itself");
    if (work_enter(&r->w)) {
        for (size_t i = 0; v.kind == V_DICT && i < v.dict->n; i++)
            check_outside(r, l, v.dict->pair[i].value);
        for (size_t i = 0; v.kind != V_DICT && i < v.list->n; i++)
            check_outside(r, l, v.list->item[i]);
    }
    r->w.left.depth++;
}

/* Appends the items `first` to `end` - 1 of `from` to the list `l`. */
static void add_items(struct render *r, struct list *l, const struct list *from,
                      size_t first, size_t end)
{
    work_spend(&r->w, (end - first) / 4);
    for (size_t i = first; i < end; i++)
        list_add(&r->w, l, from->item[i]);
}

static struct value list_append(struct render *r, const struct call *c)
{
    check_outside(r, c->self.list, c->arg[0]);
    if (r->w.status == PL_OK)
        list_add(&r->w, c->self.list, c->arg[0]);
    return value_none();
}

static struct value list_extend(struct render *r, const struct call *c)
{
    const struct list more = value_items(r, c->arg[0]);

    for (size_t i = 0; i < more.n; i++)
        list_append(r, &(struct call){.self = c->self, .arg = {more.item[i]}});
    return value_none();
}

/* Converts an index of a list with n items to an offset 0 .. n. A negative
 * index counts from the end. */
static size_t offset_of(int64_t i, size_t n)
{
    int64_t len = (int64_t)n;

    return (size_t)(i < -len ? 0 : i < 0 ? i + len : i > len ? len : i);
}

static struct value list_insert(struct render *r, const struct call *c)
{
    struct list *l = c->self.list, moved = {0};
    const size_t at = offset_of(c->arg[0].i, l->n);

    check_outside(r, l, c->arg[1]);
    add_items(r, &moved, l, 0, at);
    list_add(&r->w, &moved, c->arg[1]);
    add_items(r, &moved, l, at, l->n);
    if (r->w.status == PL_OK)
        *l = moved;
    return value_none();
}

/* The list method pop(): removes an item, the last one by default, and returns
 * it. Other lists may share the array, so a later append must not overwrite the
 * removed item. */
static struct value list_pop(struct render *r, const struct call *c)
{
    struct list *l = c->self.list, moved = {0};
    const size_t at = offset_of(c->arg[0].i, l->n);
    struct value out;

    if (at >= l->n)
        return render_bad(r, "\"pop\" of a list with %zu items: no such item",
                          l->n);
    out = l->item[at];
    if (at == 0 || at == l->n - 1) {
        moved = (struct list){.n = l->n - 1, .item = l->item + (at == 0)};
    } else {
        add_items(r, &moved, l, 0, at);
        add_items(r, &moved, l, at + 1, l->n);
    }
    if (r->w.status == PL_OK)
        *l = moved;
    return out;
}

static struct value list_copy(struct render *r, const struct call *c)
{
    return value_list(&r->w, V_LIST, value_items(r, c->self));
}

const struct builtin builtin_list_methods[] = {
    {"append", ' ', "object:v", list_append, 0},
    {"clear", ' ', "", NULL, 0},
    {"remove", ' ', "", NULL, 0},
    {"reverse", ' ', "", NULL, 0},
    {"sort", ' ', "", NULL, 0},
    {"extend", ' ', "iterable:v", list_extend, 0},
    {"insert", ' ', "index:i object:v", list_insert, 0},
    {"pop", ' ', "index:i?-1", list_pop, 0},
    {"copy", ' ', "", list_copy, 0},
    {"count", ' ', "value:v", list_count, 0},
    {"index", ' ', "value:v", list_index, 0},
    {0},
};

const struct builtin builtin_tuple_methods[] = {
    {"count", ' ', "value:v", list_count, 0},
    {"index", ' ', "value:v", list_index, 0},
    {0},
};

/* ---- methods of loops and cyclers -------------------------------------- */

static struct value cycle(struct render *r, const struct call *c)
{
    if (c->args->n == 0)
        return render_bad(r, "\"cycle\" needs at least one item");
    return c->args->value[c->self.loop->at % c->args->n];
}

/* The method loop.changed(): returns true if the arguments differ from those of
 * its last call in this loop. */
static struct value changed(struct render *r, const struct call *c)
{
    struct loop *loop = c->self.loop;
    const struct value now =
        value_list(&r->w, V_TUPLE, args_list(r, c->args, 0));
    const bool same = value_equal(r, loop->last, now);

    loop->last = now;
    return value_bool(!same);
}

const struct builtin builtin_loop_methods[] = {
    {"cycle", ' ', "*", cycle, 0},
    {"changed", ' ', "*", changed, 0},
    {0},
};

static struct value next(struct render *r, const struct call *c)
{
    struct cycler *cycle = c->self.cycler;
    const struct value out = cycle->list.item[cycle->at];

    (void)r;
    cycle->at = (cycle->at + 1) % cycle->list.n;
    return out;
}

static struct value reset(struct render *r, const struct call *c)
{
    (void)r;
    c->self.cycler->at = 0;
    return value_none();
}

const struct builtin builtin_cycler_methods[] = {
    {"next", ' ', "", next, 0},
    {"reset", ' ', "", reset, 0},
    {0},
};
