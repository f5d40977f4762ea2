/* Parses the text of regular expressions and builds their nodes; see regex.h.
 * PCRE2 is used to find the characters that have a Unicode property,
 * \p{...}. */
#include "grammar/regex_inner.h"

#include "base/ascii.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    MOST_BYTES = 8192,
    /* Maximum number of items, such as characters and groups, of a sequence. */
    MOST_ITEMS = 2000,
    MOST_GROUPS = 32,
    MOST_TIMES = 10000,
    MOST_PROPERTY = 64, /* maximum length of a Unicode property's name in
                           bytes */
    MOST_PROPERTIES = 8,
};

struct reader {
    struct regex *r;
    const char *at, *end;
    int depth, n_property;
    /* While a lookaround is read: the lookaround is at the beginning of the
     * text, so that ^ in it holds. */
    bool begins;
};

/* The characters of a class that is being read, as ranges in any order. */
struct ranges {
    struct char_range *r; /* [n], in the arena of the expression */
    uint32_t n;
};

static bool fail(struct reader *p, enum regex_failure f, const char *why)
{
    regex_fail(p->r, f, why);
    return false;
}

static bool wrong(struct reader *p, const char *why)
{
    return fail(p, REGEX_WRONG, why);
}

static bool unsupported(struct reader *p, const char *why)
{
    return fail(p, REGEX_UNSUPPORTED, why);
}

static bool next_is(const struct reader *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take(struct reader *p, char c)
{
    bool there = next_is(p, c);

    p->at += there;
    return there;
}

static bool take_text(struct reader *p, const char *s)
{
    size_t n = strlen(s);
    bool there = (size_t)(p->end - p->at) >= n && memcmp(p->at, s, n) == 0;

    p->at += there ? n : 0;
    return there;
}

/* ---- character classes, as [a-z] and \d ---------------------------------- */

static const struct char_range digits[] = {{'0', '9'}};
static const struct char_range word[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range space[] = {
    {9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
    {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct char_range line_end[] = {
    {'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static bool add(struct reader *p, struct ranges *set, uint32_t first,
                uint32_t last)
{
    struct char_range *r =
        arena_extended(&p->r->memory, set->r, set->n, sizeof *r);

    if (!r)
        return fail(p, REGEX_NO_MEMORY, "out of memory");
    set->r = r;
    set->r[set->n++] = (struct char_range){first, last};
    return true;
}

/* Adds the characters of n ascending ranges to `set`; if `others`, adds all
 * characters outside these ranges instead. */
static bool add_class(struct reader *p, struct ranges *set,
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

/* Adds to `set` all characters that the PCRE2 expression `code` matches. Runs
 * it over a text that contains every character once. */
static bool add_matches(struct reader *p, struct ranges *set, pcre2_code *code)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    const size_t n = 0x110000 - 0x800;
    char *all = malloc(4 * n);
    size_t len = 0, at = 0;
    bool ok = m && all;

    if (!ok)
        fail(p, REGEX_NO_MEMORY, "out of memory");
    for (uint32_t c = 0; c <= RULES_LAST_CHAR && ok; c++)
        if (c >> 11 != 0x1b)
            len += utf8_put(all + len, c);
    while (ok && at < len &&
           pcre2_match(code, (PCRE2_SPTR)all, len, at, PCRE2_NO_UTF_CHECK, m,
                       NULL) > 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(m);
        uint32_t first = 0, last = 0;
        size_t end = range[1] - 1;

        while (((unsigned char)all[end] & 0xc0) == 0x80)
            end--;
        utf8_get(all + range[0], len - range[0], &first);
        utf8_get(all + end, len - end, &last);
        ok = add(p, set, first, last);
        at = range[1];
    }
    pcre2_match_data_free(m);
    free(all);
    return ok;
}

/* Reads the rest of \p{NAME} or, if `others`, \P{NAME}, and adds the characters
 * with this Unicode property, or those without it, to `set`. */
static bool read_property(struct reader *p, struct ranges *set, bool others)
{
    char name[MOST_PROPERTY] = "", pattern[MOST_PROPERTY + 16];
    const char *keys[] = {"Script=", "sc=", "General_Category=", "gc="};
    struct ranges found = {0};
    pcre2_code *code;
    PCRE2_SIZE where;
    size_t n = 0;
    int why;
    bool ok;

    if (!take(p, '{'))
        return unsupported(p, "\\p takes a name in braces");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (take_text(p, keys[i]))
            break;
    while (p->at < p->end && n + 1 < sizeof name &&
           (ascii_is_letter_or_digit(*p->at) || *p->at == '_'))
        name[n++] = *p->at++;
    if (n == 0 || !take(p, '}'))
        return unsupported(p, "this property is not supported");
    if (++p->n_property > MOST_PROPERTIES)
        return unsupported(p, "it names more than 8 properties");
    /* add_matches runs the pattern over all characters in order. With "+",
     * adjacent characters with the property are one match and add one range. */
    memcpy(pattern, "\\p{", 3);
    memcpy(pattern + 3, strcmp(name, "Letter") == 0 ? "L" : name, n + 1);
    if (strcmp(name, "Letter") == 0)
        n = 1;
    memcpy(pattern + 3 + n, "}+", 3);
    code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP, &why, &where, NULL);
    if (!code)
        return unsupported(p, "this property is not known");
    ok = add_matches(p, &found, code);
    pcre2_code_free(code);
    return ok && add_class(p, set, found.r, found.n, others);
}

static bool read_hex(struct reader *p, int least, int most, uint32_t *c)
{
    int n = 0;

    *c = 0;
    for (; n < most && p->at < p->end && ascii_digit(*p->at) < 16; n++)
        *c = *c << 4 | (uint32_t)ascii_digit(*p->at++);
    if (n < least || *c > RULES_LAST_CHAR || *c >> 11 == 0x1b)
        return wrong(p, "\\x takes 2 hexadecimal digits, \\u 4 or a character "
                        "in braces");
    return true;
}

static bool read_code_point(struct reader *p, char kind, uint32_t *c)
{
    uint32_t low;

    if (take(p, '{'))
        return read_hex(p, 1, 6, c) &&
               (take(p, '}') || wrong(p, "\\u{ is not closed"));
    if (kind == 'x')
        return read_hex(p, 2, 2, c);
    /* \uD83D\uDE00: the escapes of a high and of a low surrogate together are
     * one character. */
    if (p->end - p->at >= 10 && ascii_lower(p->at[0]) == 'd' &&
        strchr("89abAB", p->at[1]) && p->at[4] == '\\' && p->at[5] == 'u') {
        char high[5] = {0};

        memcpy(high, p->at, 4);
        /* Skips the high half, and the backslash, the u and the d of the low
         * half. */
        p->at += 7;
        *c = (uint32_t)strtoul(high, NULL, 16);
        if (!read_hex(p, 3, 3, &low) || low < 0xc00)
            return wrong(p, "\\u is half of a surrogate pair");
        *c = 0x10000 + ((*c & 0x3ff) << 10) + (low & 0x3ff);
        return true;
    }
    return read_hex(p, 4, 4, c);
}

/* Reads an escape after its backslash. If it stands for one character, sets *c
 * to it. If it stands for a class, such as \d, sets *is_class and adds the
 * class to `set`. */
static bool read_escape(struct reader *p, struct ranges *set, uint32_t *c,
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
    case 'p':
        return read_property(p, set, others);
    default:
        break;
    }
    *is_class = false;
    if (kind == 'x' || kind == 'u')
        return read_code_point(p, kind, c);
    if (kind == 'c' && p->at < p->end &&
        ascii_is_letter_or_digit(ascii_lower(*p->at))) {
        *c = (uint32_t)*p->at++ & 0x1f;
        return true;
    }
    found = kind ? strchr(from, kind) : NULL;
    if (!found && kind == '\0')
        return wrong(p, "the pattern ends unexpectedly");
    if (!found && ascii_is_letter_or_digit(kind))
        return unsupported(p, "this escape is not supported");
    *c = found ? (unsigned char)to[found - from] : (unsigned char)kind;
    return true;
}

static bool read_char(struct reader *p, uint32_t *c)
{
    size_t n =
        p->at < p->end ? utf8_get(p->at, (size_t)(p->end - p->at), c) : 0;

    if (n == 0)
        return wrong(p, "the pattern ends unexpectedly");
    p->at += n;
    return true;
}

/* Reads one member of a class in brackets: a character, to which it sets *c, or
 * an escape that is a class itself, which it adds to `set`. */
static bool read_member(struct reader *p, struct ranges *set, uint32_t *c,
                        bool *is_class)
{
    *is_class = false;
    if (!take(p, '\\'))
        return read_char(p, c);
    if (take(p, 'b'))
        *c = '\b';
    else if (take(p, '-'))
        *c = '-';
    else
        return read_escape(p, set, c, is_class);
    return true;
}

static uint32_t class_of(struct reader *p, struct ranges *set, bool negate)
{
    /* char_ranges_normal needs space for 2 * n + 2 ranges. */
    struct char_range *r =
        arena_alloc(&p->r->memory, 2 * (size_t)set->n + 2, sizeof *r);
    uint32_t n;

    if (!r)
        return fail(p, REGEX_NO_MEMORY, "out of memory");
    if (set->n)
        memcpy(r, set->r, set->n * sizeof *r);
    n = char_ranges_normal(r, set->n, negate);
    return n ? regex_class(p->r, r, n) : REGEX_NOTHING;
}

static bool read_brackets(struct reader *p, struct ranges *set)
{
    while (!take(p, ']')) {
        uint32_t first, last;
        bool is_class;

        if (!read_member(p, set, &first, &is_class))
            return false;
        if (is_class)
            continue;
        last = first;
        if (next_is(p, '-') && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            if (!read_member(p, set, &last, &is_class))
                return false;
            /* In [a-\d] the dash does not form a range: it is a character of
             * the class. */
            if (is_class) {
                if (!add(p, set, '-', '-'))
                    return false;
                last = first;
            }
            if (last < first)
                return wrong(p, "the range is reversed");
        }
        if (!add(p, set, first, last))
            return false;
    }
    return true;
}

static uint32_t read_class(struct reader *p)
{
    struct ranges set = {0};
    bool negate = take(p, '^');

    return read_brackets(p, &set) ? class_of(p, &set, negate) : 0;
}

/* ---- reading expressions ------------------------------------------------- */

/* Text that is allowed before an alternative that lacks ^, and after one that
 * lacks $. */
enum around {
    /* no text; in such an alternative ^ and $ are not supported */
    INNER,
    /* No text: the expression must match the whole text. */
    WHOLE,
    AHEAD,  /* any text after it: in a lookahead */
    SEARCH, /* any text before and after it */
};

static uint32_t read_alternatives(struct reader *p, enum around around);

static uint32_t read_group(struct reader *p)
{
    uint32_t node;

    if (take(p, '?') && !take(p, ':')) {
        bool named = (take_text(p, "<") || take_text(p, "P<")) &&
                     !next_is(p, '=') && !next_is(p, '!');

        while (named && p->at < p->end && *p->at != '>')
            p->at++;
        if (!named || !take(p, '>'))
            return unsupported(p, "lookaround inside a group, flags and atomic "
                                  "groups are not supported");
    }
    if (++p->depth > MOST_GROUPS)
        return unsupported(p, "groups nest deeper than 32 levels");
    node = read_alternatives(p, INNER);
    p->depth--;
    return node && (take(p, ')') || wrong(p, "a group is not closed")) ? node
                                                                       : 0;
}

static uint32_t read_atom(struct reader *p)
{
    struct ranges set = {0};
    bool is_class = false, ok;
    uint32_t c = 0;

    if (take(p, '('))
        return read_group(p);
    if (take(p, '['))
        return read_class(p);
    if (next_is(p, '^') || next_is(p, '$'))
        return unsupported(p, "^ and $ are supported only at the ends of an "
                              "alternative");
    if (p->at < p->end && *p->at && strchr("*+?", *p->at))
        return wrong(p, "this character has no meaning here; put \\ before it "
                        "if it is text");
    if (take(p, '.')) {
        ok = add_class(p, &set, line_end, 3, true);
        is_class = true;
    } else if (take(p, '\\')) {
        ok = read_escape(p, &set, &c, &is_class);
    } else {
        ok = read_char(p, &c);
    }
    return ok && (is_class || add(p, &set, c, c)) ? class_of(p, &set, false)
                                                  : 0;
}

/* Reads a decimal number and returns it, or -1 if there is none. Keeps only the
 * first six digits of a longer number, because they already exceed the limit
 * MOST_TIMES. */
static int read_count(struct reader *p)
{
    int n = -1;

    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (n < 100000)
            n = 10 * (n < 0 ? 0 : n) + (*p->at - '0');
    return n;
}

/* Reads a repetition {n}, {n,} or {n,m}. Returns false, at the position of the
 * brace, if the text has another form; the brace is then an ordinary
 * character. */
static bool read_braces(struct reader *p, uint32_t *min, uint32_t *max)
{
    const char *start = p->at++;
    int low = read_count(p), high = low;

    if (low >= 0 && take(p, ',')) {
        high = read_count(p);
        *max = high < 0 ? RULES_UNLIMITED : (uint32_t)high;
    } else {
        *max = (uint32_t)high;
    }
    *min = (uint32_t)low;
    if (low >= 0 && take(p, '}'))
        return true;
    p->at = start;
    return false;
}

static uint32_t read_repeat(struct reader *p, uint32_t node)
{
    uint32_t min = 0, max = RULES_UNLIMITED;

    if (next_is(p, '{')) {
        if (!read_braces(p, &min, &max))
            return node;
        if (max < min)
            return wrong(p, "a repetition must be {n}, {n,} or {n,m} with n <= "
                            "m");
        if (min > MOST_TIMES || (max > MOST_TIMES && max != RULES_UNLIMITED))
            return unsupported(p, "a repetition of more than 10,000 times is "
                                  "not supported");
    } else if (take(p, '?')) {
        max = 1;
    } else if (take(p, '+')) {
        min = 1;
    } else if (!take(p, '*')) {
        return node;
    }
    /* Skips the ? of a lazy or the + of a possessive repetition, which is taken
     * to match the same strings. */
    if (!take(p, '?'))
        take(p, '+');
    return regex_repeat(p->r, node, min, max);
}

static bool at_end(const struct reader *p)
{
    return p->at == p->end || *p->at == '|' || *p->at == ')';
}

/* An item of a sequence: an expression, or a condition for the text that
 * follows (lookahead) or precedes (lookbehind) this position. */
struct item {
    enum item_kind { ITEM, LOOK_AHEAD, LOOK_BEHIND } kind;
    uint32_t node;
};

struct items {
    struct item *item; /* [n], in the arena: items of a sequence */
    uint32_t n;
};

static bool items_add(struct reader *p, struct items *t, enum item_kind kind,
                      uint32_t node)
{
    struct item *more;

    if (!node)
        return false;
    if (t->n == MOST_ITEMS)
        return fail(p, REGEX_TOO_LARGE, "it has more than 2,000 parts");
    more = arena_extended(&p->r->memory, t->item, t->n, sizeof *more);
    if (!more)
        return fail(p, REGEX_NO_MEMORY, "out of memory");
    more[t->n++] = (struct item){kind, node};
    t->item = more;
    return true;
}

/* If a lookahead or a lookbehind is next, reads it, adds it to the items t, and
 * sets *found. */
static bool read_look(struct reader *p, struct items *t, enum around around,
                      bool *found)
{
    static const struct {
        const char *mark;
        enum item_kind kind;
        bool negate;
    } look[] = {{"(?=", LOOK_AHEAD, false},
                {"(?!", LOOK_AHEAD, true},
                {"(?<=", LOOK_BEHIND, false},
                {"(?<!", LOOK_BEHIND, true}};
    uint32_t node;
    size_t i = 0;

    while (i < 4 && !take_text(p, look[i].mark))
        i++;
    *found = i < 4;
    if (!*found)
        return true;
    if (++p->depth > MOST_GROUPS)
        return unsupported(p, "groups nest deeper than 32 levels");
    p->begins = around != AHEAD || p->begins;
    for (uint32_t k = 0; k < t->n; k++)
        p->begins = p->begins && t->item[k].kind == LOOK_AHEAD;
    node = read_alternatives(p, look[i].kind == LOOK_AHEAD ? AHEAD : INNER);
    p->depth--;
    if (!node || (!take(p, ')') && !wrong(p, "a group is not closed")))
        return false;
    if (look[i].kind == LOOK_BEHIND)
        node = regex_cat(p->r, REGEX_ALL, node);
    return items_add(p, t, look[i].kind,
                     look[i].negate ? regex_not(p->r, node) : node);
}

/* Returns the node of items [from .. n), followed by a text of node `rest`. A
 * lookahead is an intersection: all that follows it must match its node,
 * too. */
static uint32_t fold(struct reader *p, const struct items *t, uint32_t from,
                     uint32_t n, uint32_t rest)
{
    for (uint32_t i = n; i-- > from && rest;) {
        const struct item *it = &t->item[i];

        rest = it->kind == ITEM ? regex_cat(p->r, it->node, rest)
                                : regex_both(p->r, it->node, rest);
    }
    return rest;
}

/* Returns the node of a sequence followed by a text of node `rest`. The items
 * before a lookbehind are intersected with its node. A lookahead among them is
 * rejected, because its condition would reach beyond the lookbehind; lookaheads
 * at the beginning of the sequence are allowed. */
static uint32_t combine(struct reader *p, const struct items *t, uint32_t rest)
{
    uint32_t first = 0, last = 0, before;

    while (first < t->n && t->item[first].kind == LOOK_AHEAD)
        first++;
    for (uint32_t i = first; i < t->n; i++)
        if (t->item[i].kind == LOOK_BEHIND)
            last = i + 1;
    if (last == 0)
        return fold(p, t, 0, t->n, rest);
    for (uint32_t i = first; i + 1 < last; i++)
        if (t->item[i].kind != ITEM)
            return unsupported(p, "lookbehind after other lookaround is not "
                                  "supported");
    before = regex_both(p->r, fold(p, t, first, last - 1, REGEX_EMPTY),
                        t->item[last - 1].node);
    return fold(p, t, 0, first,
                regex_cat(p->r, before, fold(p, t, last, t->n, rest)));
}

/* Returns the position after the closing parenthesis of the group that begins
 * at p->at, or NULL if the group is not closed. */
static const char *group_end(const struct reader *p)
{
    bool in_class = false;
    int depth = 0;

    for (const char *c = p->at; c < p->end; c++) {
        if (*c == '\\')
            c++;
        else if (in_class || *c == '[')
            in_class = *c != ']';
        else if (*c == '(')
            depth++;
        else if (*c == ')' && --depth == 0)
            return c + 1;
    }
    return NULL;
}

/* Reads a group that is a whole alternative, such as (^a|b$). In such a group ^
 * and $ are supported. Returns false if the next item is anything else. */
static bool read_outer_group(struct reader *p, enum around around,
                             uint32_t *node)
{
    const char *end = next_is(p, '(') ? group_end(p) : NULL;

    if (around == INNER || !end || (end < p->end && *end != '|' && *end != ')'))
        return false;
    if (p->end - p->at > 1 && p->at[1] == '?' && p->at[2] != ':')
        return false;
    p->at += p->at[1] == '?' ? 3 : 1;
    *node = 0;
    if (++p->depth > MOST_GROUPS)
        unsupported(p, "groups nest deeper than 32 levels");
    else
        *node = read_alternatives(p, around);
    p->depth--;
    if (*node && !take(p, ')'))
        *node = wrong(p, "a group is not closed");
    return true;
}

static bool read_items(struct reader *p, struct items *t, enum around around,
                       bool *stops)
{
    if (around == SEARCH && !take(p, '^')) {
        if (!items_add(p, t, ITEM, REGEX_ALL))
            return false;
    } else if (around == WHOLE || (around == AHEAD && p->begins)) {
        take(p, '^');
    }
    while (!at_end(p)) {
        bool found;

        if (around != INNER && next_is(p, '$')) {
            p->at++;
            *stops = at_end(p);
            return *stops || unsupported(p, "$ is supported only at the end of "
                                            "an alternative");
        }
        if (around != INNER) {
            if (!read_look(p, t, around, &found))
                return false;
            if (found)
                continue;
        }
        if (!items_add(p, t, ITEM, read_repeat(p, read_atom(p))))
            return false;
    }
    return true;
}

static uint32_t read_sequence(struct reader *p, enum around around)
{
    struct items t = {0};
    bool stops = around == INNER || around == WHOLE;
    uint32_t node = 0;

    if (read_outer_group(p, around, &node))
        return node;
    return read_items(p, &t, around, &stops)
               ? combine(p, &t, stops ? REGEX_EMPTY : REGEX_ALL)
               : 0;
}

static uint32_t read_alternatives(struct reader *p, enum around around)
{
    uint32_t all = REGEX_NOTHING;

    do {
        all = regex_either(p->r, all, read_sequence(p, around));
    } while (all && take(p, '|'));
    return all;
}

uint32_t regex_read(struct regex *r, const char *s, size_t len, bool whole)
{
    struct reader p = {.r = r, .at = s, .end = s + len};
    uint32_t node = 0;

    if (len > MOST_BYTES)
        regex_fail(r, REGEX_TOO_LARGE, "it is longer than 8 KiB");
    else
        node = read_alternatives(&p, whole ? WHOLE : SEARCH);
    if (node && p.at < p.end)
        node = wrong(&p, "no group is open here");
    r->at = (size_t)(p.at - s);
    return node;
}
