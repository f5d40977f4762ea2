/* Converts regular expressions to GBNF; see gbnf_put_pattern in
 * schema_text.h. */
#include "base/ascii.h"
#include "grammar/schema_text.h"

#include <string.h>

enum { MOST_RANGES = 512, MOST_GROUPS = 32 };

struct pattern {
    struct gbnf_text *out;
    const char *start, *at, *end;
    const char *wrong; /* the first error; NULL if none */
    int depth;
};

/* The characters of a class, as ranges. */
struct ranges {
    struct char_range r[2 * MOST_RANGES + 2];
    uint32_t n;
};

static const char no_memory_or_end[] = "the pattern ends unexpectedly";

static bool wrong(struct pattern *p, const char *what)
{
    p->wrong = p->wrong ? p->wrong : what;
    return false;
}

static bool next_is(const struct pattern *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take(struct pattern *p, char c)
{
    bool there = next_is(p, c);

    p->at += there;
    return there;
}

static bool add(struct pattern *p, struct ranges *set, uint32_t first,
                uint32_t last)
{
    if (set->n == MOST_RANGES)
        return wrong(p, "the class has more than 512 parts");
    set->r[set->n++] = (struct char_range){first, last};
    return true;
}

/* ---- classes of characters ----------------------------------------------- */

static const struct char_range digits[] = {{'0', '9'}};
static const struct char_range word[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range space[] = {
    {9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
    {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct char_range line_end[] = {
    {'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/* Adds the characters of a class such as \d to `set`, or its complement if
 * `others`. */
static bool add_class(struct pattern *p, struct ranges *set,
                      const struct char_range *range, size_t n, bool others)
{
    uint32_t next = 0;

    for (size_t i = 0; i < n; i++) {
        if (!others && !add(p, set, range[i].first, range[i].last))
            return false;
        if (others && range[i].first > next &&
            !add(p, set, next, range[i].first - 1))
            return false;
        next = range[i].last + 1;
    }
    return !others || add(p, set, next, RULES_LAST_CHAR);
}

static bool read_hex(struct pattern *p, int n, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < n; i++, p->at++) {
        char h = p->at < p->end ? ascii_lower(*p->at) : '\0';

        if (h >= '0' && h <= '9')
            *c = *c << 4 | (uint32_t)(h - '0');
        else if (h >= 'a' && h <= 'f')
            *c = *c << 4 | (uint32_t)(h - 'a' + 10);
        else
            return wrong(p, "\\x takes 2 hexadecimal digits, \\u 4");
    }
    return true;
}

/* Reads the part of an escape after the backslash. Sets *c to a character, or
 * adds a class to `set` and sets *is_class. */
static bool read_escape(struct pattern *p, struct ranges *set, uint32_t *c,
                        bool *is_class)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    char kind = p->at < p->end ? *p->at++ : '\0';
    bool others = kind >= 'A' && kind <= 'Z';
    const char *found;

    *is_class = true;
    switch (ascii_lower(kind)) {
    case 'd':
        return add_class(p, set, digits, 1, others);
    case 'w':
        return add_class(p, set, word, 4, others);
    case 's':
        return add_class(p, set, space, 10, others);
    default:
        break;
    }
    *is_class = false;
    if (kind == 'x' || kind == 'u')
        return read_hex(p, kind == 'x' ? 2 : 4, c);
    found = kind ? strchr(from, kind) : NULL;
    if (!found && (kind == '\0' || ascii_is_letter_or_digit(kind)))
        return wrong(p, "this escape is not supported");
    *c = found ? (unsigned char)to[found - from] : (unsigned char)kind;
    return true;
}

static bool read_char(struct pattern *p, uint32_t *c)
{
    size_t n =
        p->at < p->end ? char_get(p->at, (size_t)(p->end - p->at), c) : 0;

    if (n == 0)
        return wrong(p, no_memory_or_end);
    p->at += n;
    return true;
}

/* Reads one member of a class in brackets, as read_escape does. */
static bool read_member(struct pattern *p, struct ranges *set, uint32_t *c,
                        bool *is_class)
{
    *is_class = false;
    if (take(p, '\\')) {
        if (next_is(p, 'b')) {
            p->at++;
            *c = '\b';
            return true;
        }
        if (next_is(p, '-')) {
            p->at++;
            *c = '-';
            return true;
        }
        return read_escape(p, set, c, is_class);
    }
    return read_char(p, c);
}

static bool put_set(struct pattern *p, struct ranges *set, bool negate)
{
    uint32_t n = char_ranges_normal(set->r, set->n, negate);

    if (n == 0)
        return wrong(p, "the class is empty");
    gbnf_put_json_char(p->out, set->r, n);
    return true;
}

static bool read_brackets(struct pattern *p)
{
    struct ranges set = {.n = 0};
    bool negate = take(p, '^');

    while (!take(p, ']')) {
        uint32_t first, last;
        bool is_class;

        if (!read_member(p, &set, &first, &is_class))
            return false;
        if (is_class)
            continue;
        last = first;
        if (next_is(p, '-') && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            if (!read_member(p, &set, &last, &is_class))
                return false;
            if (is_class || last < first)
                return wrong(p, "the range has no end, or is reversed");
        }
        if (!add(p, &set, first, last))
            return false;
    }
    return put_set(p, &set, negate);
}

/* ---- expressions --------------------------------------------------------- */

static bool read_alternatives(struct pattern *p, bool outer);

static bool read_group(struct pattern *p)
{
    if (take(p, '?') && !take(p, ':'))
        return wrong(p, "lookaround and named groups are not supported");
    if (++p->depth > MOST_GROUPS)
        return wrong(p, "groups nest deeper than 32 levels");
    gbnf_put(p->out, "(");
    if (!read_alternatives(p, false))
        return false;
    gbnf_put(p->out, ")");
    p->depth--;
    return take(p, ')') || wrong(p, "a group is not closed");
}

static bool read_atom(struct pattern *p)
{
    struct ranges set = {.n = 0};
    bool is_class = false;
    uint32_t c;

    if (take(p, '('))
        return read_group(p);
    if (take(p, '['))
        return read_brackets(p);
    if (take(p, '.'))
        return add_class(p, &set, line_end, 3, true) && put_set(p, &set, false);
    if (p->at < p->end && strchr("*+?{}]^$", *p->at) && *p->at)
        return wrong(p, "this character has no meaning here or is not "
                        "supported; put \\ before it if it is text");
    if (take(p, '\\')) {
        if (!read_escape(p, &set, &c, &is_class))
            return false;
    } else if (!read_char(p, &c)) {
        return false;
    }
    return (is_class || add(p, &set, c, c)) && put_set(p, &set, false);
}

/* Reads a number of at most five digits. Returns -1 if there is none. */
static int read_count(struct pattern *p)
{
    int n = -1;

    while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && n < 10000)
        n = 10 * (n < 0 ? 0 : n) + (*p->at++ - '0');
    return n;
}

static bool read_braces(struct pattern *p)
{
    int min, max;
    bool open = false;

    p->at++;
    min = max = read_count(p);
    if (take(p, ',')) {
        max = read_count(p);
        open = max < 0;
    }
    if (min < 0 || !take(p, '}') || (!open && max < min))
        return wrong(p, "a repetition must be {n}, {n,} or {n,m} with n <= m");
    if (open)
        gbnf_print(p->out, "{%d,}", min);
    else
        gbnf_print(p->out, "{%d,%d}", min, max);
    return true;
}

static bool read_repeat(struct pattern *p)
{
    if (next_is(p, '{')) {
        if (!read_braces(p))
            return false;
    } else if (next_is(p, '*') || next_is(p, '+') || next_is(p, '?')) {
        gbnf_print(p->out, "%c", *p->at++);
    } else {
        return true;
    }
    take(p, '?'); /* a lazy repetition matches the same strings */
    return true;
}

static bool at_end(const struct pattern *p)
{
    return p->at == p->end || *p->at == '|' || *p->at == ')';
}

/* Reads an alternative. If it is not in a group (`outer`), any text may come
 * before and after it, except at ^ and $. */
static bool read_sequence(struct pattern *p, bool outer)
{
    if (outer && !take(p, '^'))
        gbnf_put(p->out, "char* ");
    while (!at_end(p)) {
        if (outer && next_is(p, '$') &&
            (p->at + 1 == p->end || p->at[1] == '|')) {
            p->at++;
            return true;
        }
        if (!read_atom(p) || !read_repeat(p))
            return false;
        gbnf_put(p->out, " ");
    }
    if (outer)
        gbnf_put(p->out, "char*");
    return true;
}

static bool read_alternatives(struct pattern *p, bool outer)
{
    for (;;) {
        if (!read_sequence(p, outer))
            return false;
        if (!take(p, '|'))
            return true;
        gbnf_put(p->out, " | ");
    }
}

const char *gbnf_put_pattern(struct gbnf_text *t, const char *s, size_t len,
                             size_t *at)
{
    struct pattern p = {.out = t, .start = s, .at = s, .end = s + len};

    gbnf_put(t, "\"\\\"\" (");
    if (read_alternatives(&p, true) && p.at < p.end)
        wrong(&p, "no group is open here");
    gbnf_put(t, ") \"\\\"\"");
    *at = (size_t)(p.at - s);
    return p.wrong;
}
